"""The client people import: asyncio first, with a thin blocking twin in `blocking`.

Promises  what is listed here is the public face; the rest may change.
Never     needs anything of the broker's own modules but the formats that both share.
"""

from dovetail.core.codes import NackReason, Outcome
from dovetail.runtime.client.app import App
from dovetail.runtime.client.backoff import Backoff
from dovetail.runtime.client.client import Client, Partition, Topic, connect
from dovetail.runtime.client.errors import BrokerError, Disconnected, DovetailError, Refused, TimedOut
from dovetail.runtime.client.message import Message
from dovetail.runtime.client.partitioning import partition_of
from dovetail.runtime.client.producer import Producer, Receipt
from dovetail.runtime.client.reading import Fetched
from dovetail.runtime.client.subscription import Subscription

__all__ = [
    "App",
    "Backoff",
    "BrokerError",
    "Client",
    "Disconnected",
    "DovetailError",
    "Fetched",
    "Message",
    "NackReason",
    "Outcome",
    "Partition",
    "Producer",
    "Receipt",
    "Refused",
    "Subscription",
    "TimedOut",
    "Topic",
    "connect",
    "partition_of",
]
