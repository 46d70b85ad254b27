"""What a FETCH brought: messages of one partition, read without a group.

Promises  the messages from the offset asked for on, in order, and where to go on, whatever compaction has removed.
Never     leases or settles anything.
"""

from msgspec import Struct

from dovetail.core import batch
from dovetail.core.wire import Deliver, Fetch, FetchAnswer
from dovetail.runtime.client.message import Delivery, Message, NoLease
from dovetail.runtime.storage.codecs import CODECS


class Fetched(Struct, frozen=True):
    messages: tuple[Message, ...]
    next_offset: int
    """Where to go on reading."""
    start: int
    """The oldest offset that is kept."""
    end: int
    """The offset that the next message will have."""


def fetched(request: Fetch, answer: FetchAnswer) -> Fetched:
    """The messages in an answer; batches may begin before the offset that was asked for."""
    delivery = Delivery(Deliver("", request.topic, request.partition, request.lane, 0, 0, 0, ()), NoLease())
    messages: list[Message] = []
    next_offset = max(request.offset, answer.start)
    for header, data in batch.split(answer.batches):
        for record in batch.parse(data, codecs=CODECS):
            if record.offset >= request.offset:
                messages.append(Message(record, delivery))
        next_offset = max(next_offset, header.last_offset + 1)
    return Fetched(tuple(messages), next_offset, answer.start, answer.end)
