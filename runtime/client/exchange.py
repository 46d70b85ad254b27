"""One connection as a client sees it: requests that wait for their answers, and what the broker says unasked.

Promises  each request is answered once: by its RESPONSE, by the ERROR in its place, or by `Lost`; what the broker
          sends is read as `spec/protocol.md` has it, in any pieces.
Never     opens, writes or waits: it turns requests into bytes, and bytes into events.
"""

from collections.abc import Callable
from struct import error as StructError
from typing import Final, TypeAlias

from msgspec import Struct

from dovetail.core import frames, wire
from dovetail.core.frames import Frame, FrameError, FrameType
from dovetail.core.wire import Answer, EncodeError, Error, Produce, Push, Refusal, Request, WireError

_CORRELATIONS: Final = 1 << 32


class Lost(Struct, frozen=True):
    """The connection ended before the answer came; whether the request was carried out is not known."""

    reason: str


class Broken(Struct, frozen=True):
    """The broker sent what can't be read: nothing that follows can be trusted."""

    reason: str


Reply: TypeAlias = Answer | Refusal | Error | Lost
Told: TypeAlias = Callable[[Reply], None]


class Answered(Struct, frozen=True):
    told: Told
    reply: Reply


Event: TypeAlias = Answered | Push | Broken


class Exchange:
    def __init__(self) -> None:
        self._decoder = frames.FrameDecoder()
        self._waiting: dict[int, tuple[int, Told]] = {}
        self._next = 0

    @property
    def waiting(self) -> int:
        """How many requests have no answer so far."""
        return len(self._waiting)

    def expect(self, payload_bytes_max: int) -> None:
        """The broker's frames may be as large as this, where that is more than usual."""
        self._decoder.payload_bytes_max = max(frames.PAYLOAD_BYTES_MAX, payload_bytes_max)

    def ask(self, request: Request, told: Told) -> tuple[bytes, ...]:
        """The bytes of a request whose answer goes to `told`."""
        number = self._next
        while number in self._waiting:
            number = (number + 1) % _CORRELATIONS
        self._next = (number + 1) % _CORRELATIONS
        data = _encode(request, number)
        self._waiting[number] = (request.TYPE, told)
        return data

    def say(self, request: Request) -> tuple[bytes, ...]:
        """The bytes of a request that has no answer."""
        return _encode(request, None)

    def feed(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        for frame in self._decoder.feed(data):
            try:
                event = self._read(frame)
            except WireError as error:
                events.append(Broken(str(error)))
                break
            if event is not None:
                events.append(event)
        return events

    def end(self, reason: str) -> list[Event]:
        """The connection is gone: everyone who waits is told."""
        lost = Lost(reason)
        waiting, self._waiting = self._waiting, {}
        return [Answered(told, lost) for _, told in waiting.values()]

    def _read(self, frame: Frame | FrameError) -> Event | None:
        if isinstance(frame, FrameError):
            return Broken(frame.text)
        if frame.type == FrameType.DELIVER:
            return wire.decode_deliver(bytes(frame.payload))
        if frame.correlation is None:
            message = wire.decode_message(frame.type, frame.payload)
            if isinstance(message, Push):
                return message
            raise WireError(f"frame type {frame.type} is for clients to send, not for brokers")
        asked = self._waiting.pop(frame.correlation, None)
        if asked is None:
            return None
        type_of_request, told = asked
        if frame.type == FrameType.ERROR:
            return Answered(told, wire.decode_error(bytes(frame.payload)))
        return Answered(told, wire.decode_answer(type_of_request, frame.payload))


def _encode(request: Request, correlation: int | None) -> tuple[bytes, ...]:
    if isinstance(request, Produce):
        # A batch may have megabytes: it is written from where it lies.
        head = request.encode_head(len(request.batch))
        size = len(head) + len(request.batch)
        return frames.header(request.TYPE, size, correlation) + head, request.batch
    try:
        payload = request.encode()
    except StructError as error:
        raise EncodeError(f"{error}: not every number fits {request!r:.500}") from None
    return (frames.encode(request.TYPE, payload, correlation),)
