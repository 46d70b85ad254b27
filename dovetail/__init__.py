"""Dovetail: the message broker you can replay.

from dovetail import connect

async with connect("dovetail://127.0.0.1:7400") as dv:
    await dv.publish("orders.created", b"...")
    async for message in dv.subscribe("orders.*", group="billing"):
        await message.ack()
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.runtime.client import App as App
    from dovetail.runtime.client import Client as Client
    from dovetail.runtime.client import Disconnected as Disconnected
    from dovetail.runtime.client import DovetailError as DovetailError
    from dovetail.runtime.client import Message as Message
    from dovetail.runtime.client import Refused as Refused
    from dovetail.runtime.client import TimedOut as TimedOut
    from dovetail.runtime.client import connect as connect

__version__ = version("dovetail")
__all__ = ["App", "Client", "Disconnected", "DovetailError", "Message", "Refused", "TimedOut", "__version__", "connect"]


def __getattr__(name: str) -> Any:
    # The client is imported when it is first asked for: who runs the core alone does not pay for it.
    if name in __all__:
        return getattr(import_module("dovetail.runtime.client"), name)
    raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
