"""The framing of the wire: twelve bytes of header, then a payload.

Promises  any split of a byte stream gives the same frames and the same errors; what a peer got wrong is a
          `FrameError` with its text, never an exception; a payload is copied once, and what was read may be
          overwritten afterwards; no more than one payload and its header are ever held back.
Never     looks inside a payload, beyond the correlation number that a flag puts in front of it.
"""

from enum import IntEnum
from struct import Struct as Layout
from types import MappingProxyType
from typing import Final

from msgspec import Struct

MAGIC: Final = 0x4D515545
VERSION: Final = 1
VERSIONS: Final = (1,)
HEADER_BYTES: Final = 12
CORRELATION_BYTES: Final = 4
PAYLOAD_BYTES_MAX: Final = 10 * 1024 * 1024
FLAG_CORRELATED: Final = 0x02
ROOM_BYTES: Final = 1024
"""What a payload has beside its batches at most, whoever sends it: names, numbers and a correlation."""

_HEADER: Final = Layout(">IBBBBI")
_CORRELATED_HEADER: Final = Layout(">IBBBBII")
_WORD_LENGTH: Final = Layout(">QI")
_CORRELATION: Final = Layout(">I")
_CORRELATED_HEADER_BYTES: Final = HEADER_BYTES + CORRELATION_BYTES
_MAGIC_BYTES: Final = MAGIC.to_bytes(4, "big")


class FrameType(IntEnum):
    PUBLISH = 1
    SUBSCRIBE = 2
    ACK = 3
    NACK = 4
    JOIN_GROUP = 5
    UNSUBSCRIBE = 6
    LEAVE_GROUP = 7
    DELIVERY = 10
    RESPONSE = 11
    HELLO = 20
    PRODUCE = 21
    DELIVER = 22
    SETTLE = 23
    FETCH = 24
    COMMIT = 25
    SEEK = 26
    METADATA = 27
    CREDIT = 28
    ERROR = 29
    GOODBYE = 30
    REVOKE = 31
    ASSIGN = 32
    HEARTBEAT = 99


class ErrorCode(IntEnum):
    """The `code` of an ERROR frame. The first three always close the connection."""

    MAGIC = 1
    VERSION = 2
    OVER_LONG = 3
    UNKNOWN_TYPE = 4
    RESERVED = 5
    FLAGS = 6
    LENGTH = 7
    MALFORMED = 8
    UNEXPECTED = 9
    NOT_STORED = 10
    UNAUTHORIZED = 11
    TOO_SLOW = 12
    LIMIT = 13
    SESSION_ENDED = 14
    INTERNAL = 15
    OVERTAKEN = 16
    LEVEL = 17


class Frame(Struct, frozen=True, gc=False):
    """A frame; the payload of a large PRODUCE may be changed: its batch gets its place in the log where it lies."""

    type: int
    correlation: int | None
    payload: bytes | bytearray


class FrameError(Struct, frozen=True, gc=False):
    """What the peer got wrong. After a fatal one nothing that follows in the stream can be trusted."""

    code: int
    text: str
    fatal: bool
    correlation: int | None = None


def _word(type: int, flags: int) -> int:
    return MAGIC << 32 | VERSION << 24 | type << 16 | flags << 8


# Every well-formed header starts with one of these 64-bit words: one look-up replaces five comparisons.
_PLAIN: Final = MappingProxyType({_word(type, 0): int(type) for type in FrameType})
_TYPES: Final = frozenset(int(type) for type in FrameType)
_PRODUCE: Final = int(FrameType.PRODUCE)
_LARGE: Final = 4096
_CORRELATED: Final = MappingProxyType({_word(type, FLAG_CORRELATED): int(type) for type in FrameType})


def header(type: int, length: int, correlation: int | None = None) -> bytes:
    """The bytes in front of a payload of `length` bytes, which may then be written from several buffers."""
    if correlation is None:
        return _HEADER.pack(MAGIC, VERSION, type, 0, 0, length)
    return _CORRELATED_HEADER.pack(MAGIC, VERSION, type, FLAG_CORRELATED, 0, length + CORRELATION_BYTES, correlation)


def batch_bytes_max(payload_bytes_max: int) -> int:
    """How large a batch may be that has to fit into a frame when it is sent, and again when it is delivered."""
    return payload_bytes_max - ROOM_BYTES


def encode(type: int, payload: bytes, correlation: int | None = None) -> bytes:
    """A whole frame."""
    return header(type, len(payload), correlation) + payload


class FrameDecoder:
    """A byte stream in any pieces, turned into frames.

    A frame that is wrong but whole (unknown type, reserved byte, flags, a correlated payload too short for
    its number) is reported in its place and skipped. Wrong magic, wrong version and an over-long payload end
    the decoder: they are reported as soon as the bytes that show them are there, and nothing comes after.
    """

    __slots__ = ("_correlation", "_dead", "_error", "_head", "_held", "_missing", "_type", "payload_bytes_max")

    def __init__(self, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self.payload_bytes_max = payload_bytes_max
        self._dead = False
        self._head = b""  # a header that is not complete yet
        self._missing = 0  # bytes of a payload still to come
        self._held = bytearray()  # what is there of that payload
        self._type = 0
        self._correlation: int | None = None
        self._error: FrameError | None = None

    @property
    def buffered(self) -> int:
        """Bytes received that are not yet part of a frame that was handed out."""
        return len(self._head) + len(self._held)

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame was begun that is not complete yet."""
        return bool(self._head) or self._missing > 0

    @property
    def dead(self) -> bool:
        """True after a fatal error."""
        return self._dead

    def feed(self, data: bytes | memoryview) -> list[Frame | FrameError]:
        out: list[Frame | FrameError] = []
        if self._dead:
            return out
        data = memoryview(data)
        at = 0
        if self._missing:
            at = self._take(data, 0, out)
        elif self._head:
            at = self._resume_header(data, out)
        end = len(data)
        unpack = _WORD_LENGTH.unpack_from
        plain = _PLAIN
        append = out.append
        largest = self.payload_bytes_max
        while end - at >= HEADER_BYTES:
            word, length = unpack(data, at)
            type = plain.get(word)
            stop = at + HEADER_BYTES + length
            if type is not None and length <= largest and stop <= end:
                payload = data[at + HEADER_BYTES : stop]
                large = length > _LARGE and type == _PRODUCE
                append(Frame(type, None, bytearray(payload) if large else bytes(payload)))
                at = stop
                continue
            type = _CORRELATED.get(word)
            if type is not None and CORRELATION_BYTES <= length <= largest and stop <= end:
                (correlation,) = _CORRELATION.unpack_from(data, at + HEADER_BYTES)
                payload = data[at + _CORRELATED_HEADER_BYTES : stop]
                large = length > _LARGE and type == _PRODUCE
                append(Frame(type, correlation, bytearray(payload) if large else bytes(payload)))
                at = stop
                continue
            at = self._begin(bytes(data[at : at + _CORRELATED_HEADER_BYTES]), data, at, out)
        if at < end:
            self._hold_header(bytes(data[at:]), out)
        return out

    def _resume_header(self, data: memoryview, out: list[Frame | FrameError]) -> int:
        held = len(self._head)
        head = self._head + data[: _CORRELATED_HEADER_BYTES - held]
        self._head = b""
        return self._begin(head, data, -held, out)

    def _begin(self, head: bytes, data: memoryview, at: int, out: list[Frame | FrameError]) -> int:
        """Take a frame that starts at `at` of `data` (below zero: in an earlier read) and whose first bytes
        are `head`. Gives the position after what was used up."""
        if len(head) < HEADER_BYTES:
            self._hold_header(head, out)
            return len(data)
        error = _judge(head, self.payload_bytes_max)
        if error is not None and error.fatal:
            self._die(error, out)
            return len(data)
        _, _, type, flags, _, length = _HEADER.unpack_from(head)
        correlation = None
        used = HEADER_BYTES
        if flags & FLAG_CORRELATED and length >= CORRELATION_BYTES:
            if len(head) < _CORRELATED_HEADER_BYTES:
                self._head = head
                return len(data)
            (correlation,) = _CORRELATION.unpack_from(head, HEADER_BYTES)
            used = _CORRELATED_HEADER_BYTES
            length -= CORRELATION_BYTES
        if error is not None:
            error = FrameError(error.code, error.text, False, correlation)
        self._type, self._correlation, self._error = type, correlation, error
        self._missing = length
        return self._take(data, at + used, out)

    def _take(self, data: memoryview, at: int, out: list[Frame | FrameError]) -> int:
        """Use up `data` from `at` for the payload under way, and hand out the frame when it is whole."""
        stop = min(at + self._missing, len(data))
        self._missing -= stop - at
        if self._error is None:
            # Memory is taken as bytes come: a length alone, which costs its sender nothing, reserves none.
            self._held += data[at:stop]
        if self._missing:
            return stop
        if self._error is not None:
            out.append(self._error)
        else:
            large = len(self._held) > _LARGE and self._type == _PRODUCE
            out.append(Frame(self._type, self._correlation, self._held if large else bytes(self._held)))
        self._held = bytearray()
        self._error = None
        return stop

    def _hold_header(self, head: bytes, out: list[Frame | FrameError]) -> None:
        """Keep an incomplete header, unless what is there of it is wrong already."""
        error = _judge_start(head)
        if error is not None:
            self._die(error, out)
        else:
            self._head = head

    def _die(self, error: FrameError, out: list[Frame | FrameError]) -> None:
        self._dead = True
        self._head = b""
        self._held = bytearray()
        self._missing = 0
        out.append(error)


def _judge_start(head: bytes) -> FrameError | None:
    """The fatal error that the first bytes of a header show, as soon as they show it."""
    if len(head) >= 4 and head[:4] != _MAGIC_BYTES:
        text = (
            f"a frame must start with the magic bytes {_MAGIC_BYTES.hex()} ({_MAGIC_BYTES.decode()}), "
            f"these are {head[:4].hex()}: is this client meant for another port or protocol?"
        )
        return FrameError(ErrorCode.MAGIC, text, True)
    if len(head) >= 5 and head[4] not in VERSIONS:
        supported = ", ".join(str(version) for version in VERSIONS)
        return FrameError(
            ErrorCode.VERSION, f"protocol version {head[4]} is not supported; supported: {supported}", True
        )
    return None


def _judge(head: bytes, payload_bytes_max: int) -> FrameError | None:
    """What is wrong with a whole header, the fatal first."""
    error = _judge_start(head)
    if error is not None:
        return error
    _, _, type, flags, reserved, length = _HEADER.unpack_from(head)
    if length > payload_bytes_max:
        text = f"a payload of {length} bytes is over the limit of {payload_bytes_max}: send smaller batches"
        return FrameError(ErrorCode.OVER_LONG, text, True)
    if reserved != 0:
        return FrameError(ErrorCode.RESERVED, f"the reserved byte of a frame header must be 0, it is {reserved}", False)
    if flags & ~FLAG_CORRELATED:
        text = f"flags {flags:#04x} are not known: only {FLAG_CORRELATED:#04x} (correlated) may be set"
        return FrameError(ErrorCode.FLAGS, text, False)
    if flags & FLAG_CORRELATED and length < CORRELATION_BYTES:
        text = f"a correlated payload starts with a u32 correlation, but this one has {length} bytes"
        return FrameError(ErrorCode.LENGTH, text, False)
    if type not in _TYPES:
        return FrameError(ErrorCode.UNKNOWN_TYPE, f"frame type {type} is not known in version {VERSION}", False)
    return None
