"""Shows the frames on the wire, in the log: `serve --trace-wire`, or the setting `trace_wire` while the broker runs.

Promises  can be switched on in the middle of a connection: what can't be understood yet is left out.
Never     shows a token, a payload or what a header holds, and costs nothing while it is off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog
from msgspec import Struct
from msgspec.structs import asdict

from dovetail.core import wire
from dovetail.core.frames import MAGIC, Frame, FrameDecoder, FrameType

log = structlog.get_logger("wire")

_BEGINNING = MAGIC.to_bytes(4, "big")
_SECRET = frozenset({"token"})
IN, OUT = "in", "out"


class WireTrace:
    """All connections of one broker."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._most = frame_bytes_max + (1 << 20)
        self._decoders: dict[tuple[int, str], FrameDecoder] = {}

    def received(self, session: int, data: bytes) -> None:
        """What a client sent."""
        self._show(session, IN, data)

    def sent(self, session: int, buffers: Iterable[bytes | memoryview]) -> None:
        """What a client is sent."""
        self._show(session, OUT, b"".join(buffers))

    def lost(self, session: int) -> None:
        """A connection is gone."""
        for way in (IN, OUT):
            self._decoders.pop((session, way), None)

    def _show(self, session: int, way: str, data: bytes) -> None:
        decoder = self._decoders.get((session, way))
        if decoder is None:
            if not data.startswith(_BEGINNING):
                return
            decoder = self._decoders[session, way] = FrameDecoder(self._most)
        for each in decoder.feed(data):
            if isinstance(each, Frame):
                log.info("frame", session=session, way=way, **_described(each))
            else:
                log.info("no frame", session=session, way=way, reason=each.text)


def _described(frame: Frame) -> dict[str, Any]:
    found: dict[str, Any] = {"type": FrameType(frame.type).name, "payload_bytes": len(frame.payload)}
    if frame.correlation is not None:
        found["correlation"] = frame.correlation
    if frame.type == FrameType.RESPONSE:
        return {**found, "status": frame.payload[0] if frame.payload else None}
    try:
        message = wire.decode_message(frame.type, frame.payload)
    except wire.WireError as error:
        return {**found, "malformed": str(error)}
    return {**found, "says": {name: _shown(name, value) for name, value in asdict(message).items()}}


def _shown(name: str, value: object) -> object:
    if name in _SECRET:
        return "(hidden)" if value else ""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if name == "headers" and isinstance(value, tuple | list):
        return [key for key, _ in value]
    if isinstance(value, tuple | list):
        return [_shown(name, each) for each in value[:20]]
    if isinstance(value, Struct):
        return {key: _shown(key, each) for key, each in asdict(value).items()}
    return value
