"""How a broker is set up: where it keeps its data, where it listens, what it allows.

Promises  the defaults are those of the design; nothing here needs a file.
Never     opens anything.
"""

from __future__ import annotations

from msgspec import Struct

from dovetail.core.node import NodeOptions
from dovetail.core.state import Settings
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.space import SpaceLimits

TCP_PORT = 7400
HTTP_PORT = 7480


class Config(Struct, frozen=True):
    """All settings of one broker process. An empty `http` means no HTTP."""

    data: str = "data"
    listen: str = f"127.0.0.1:{TCP_PORT}"
    http: str = f"127.0.0.1:{HTTP_PORT}"
    settings: Settings = Settings()
    store: StoreOptions = StoreOptions()
    node: NodeOptions = NodeOptions()
    space: SpaceLimits = SpaceLimits()
    heartbeat_ms: int = 3_000
    frame_bytes_max: int = 10 << 20
    connections_max: int = 10_000
    checkpoint_ms: int = 300_000
    drain_ms: int = 5_000
    go_on_without_damage: bool = False
    record: str = ""
    """Where a recording of the core's inputs is kept; empty: none is."""


class BadAddress(ValueError):
    """An address that is not HOST:PORT; the text says what is."""


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT` as a pair; IPv6 hosts stand in brackets, port 0 lets the system choose."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise BadAddress(f"{text!r} is not an address: write HOST:PORT, for example 127.0.0.1:{TCP_PORT}")
    return host, int(port)
