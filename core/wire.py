"""What the payloads of frames say: one frozen record per message and per answer, to bytes and back.

Promises  `decode_x(x.encode()) == x`, and `decode_x(payload).encode() == payload` for every payload accepted;
          a payload that is cut short, too long, not UTF-8 or lies about a count raises `WireError` with what
          was wrong, and nothing is allocated for a count before its bytes are seen to be there.
Never     judges names, ranges or permissions: a message that decodes may still be refused by the core.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from struct import Struct as Layout
from struct import error as StructError
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct

from dovetail.core.codes import Acks as Acks
from dovetail.core.codes import NackReason as NackReason
from dovetail.core.codes import Outcome as Outcome
from dovetail.core.codes import Priority as Priority
from dovetail.core.codes import SettleAction as SettleAction
from dovetail.core.codes import Status as Status
from dovetail.core.codes import Wait as Wait
from dovetail.core.codes import Whence as Whence
from dovetail.core.frames import FrameType
from dovetail.core.kernels import LANES

Headers: TypeAlias = tuple[tuple[str, str], ...]
Range: TypeAlias = tuple[int, int]

TEXT_BYTES_MAX: Final = 0xFFFF
HEADERS_MAX: Final = 0xFFFF

_U8: Final = Layout(">B")
_U16: Final = Layout(">H")
_U32: Final = Layout(">I")
_U64: Final = Layout(">Q")
_I32: Final = Layout(">i")
_PUBLISH_TAIL: Final = Layout(">IB")
_PRODUCE_MIDDLE: Final = Layout(">iBBQQI")
_PRODUCE_MIDDLE_BYTES: Final = _PRODUCE_MIDDLE.size
_PRODUCE_ANSWER: Final = Layout(">BiQQB")
_DELIVER_MIDDLE: Final = Layout(">iBQHQH")
_RANGE: Final = Layout(">QQ")
_SETTLE_HEAD: Final = Layout(">BH")
_SETTLE_ITEM: Final = Layout(">QBQQBIH")
_NO_HEADERS: Final = b"\0\0"
_OK: Final = b"\0"


class WireError(Exception):
    """What the peer got wrong in a payload."""


class EncodeError(ValueError):
    """A message of ours that does not fit the wire."""


class Publish(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.PUBLISH
    LAYOUT: ClassVar = "str topic · headers · u32 length + payload · u32 ttl_seconds · u8 require_ack"

    topic: str
    headers: Headers
    payload: bytes
    ttl_seconds: int = 0
    require_ack: bool = True

    def encode(self) -> bytes:
        tail = _PUBLISH_TAIL.pack(self.ttl_seconds, self.require_ack)
        return b"".join((_text(self.topic), _headers(self.headers), _U32.pack(len(self.payload)), self.payload, tail))


class Subscribe(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.SUBSCRIBE
    LAYOUT: ClassVar = "str pattern · str group · u16 max_inflight · u8 auto_ack"

    pattern: str
    group: str = ""
    max_inflight: int = 0
    auto_ack: bool = False

    def encode(self) -> bytes:
        return _text(self.pattern) + _text(self.group) + _U16.pack(self.max_inflight) + _U8.pack(self.auto_ack)


class Ack(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.ACK
    LAYOUT: ClassVar = "str message_id · u32 processing_ms"

    message_id: str
    processing_ms: int = 0

    def encode(self) -> bytes:
        return _text(self.message_id) + _U32.pack(self.processing_ms)


class Nack(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.NACK
    LAYOUT: ClassVar = "str message_id · u8 reason · u8 retry_requested"

    message_id: str
    reason: int = NackReason.UNSPECIFIED
    retry_requested: bool = True

    def encode(self) -> bytes:
        return _text(self.message_id) + _U8.pack(self.reason) + _U8.pack(self.retry_requested)


class JoinGroup(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.JOIN_GROUP
    LAYOUT: ClassVar = "str group · str member · str strategy"

    group: str
    member: str
    strategy: str = ""

    def encode(self) -> bytes:
        return _text(self.group) + _text(self.member) + _text(self.strategy)


class Unsubscribe(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.UNSUBSCRIBE
    LAYOUT: ClassVar = "str subscription_id"

    subscription_id: str

    def encode(self) -> bytes:
        return _text(self.subscription_id)


class LeaveGroup(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.LEAVE_GROUP
    LAYOUT: ClassVar = "str group · str member"

    group: str
    member: str

    def encode(self) -> bytes:
        return _text(self.group) + _text(self.member)


class Heartbeat(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.HEARTBEAT
    LAYOUT: ClassVar = "empty, or str member"

    member: str | None = None

    def encode(self) -> bytes:
        return b"" if self.member is None else _text(self.member)


class Delivery(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.DELIVERY
    LAYOUT: ClassVar = (
        "str subscription_id · str message_id · str topic · headers · u32 length + payload · u64 ack_deadline_ms"
    )

    subscription_id: str
    message_id: str
    topic: str
    headers: Headers
    payload: bytes
    ack_deadline_ms: int = 0

    def encode(self) -> bytes:
        return b"".join(
            (
                _text(self.subscription_id),
                _text(self.message_id),
                _text(self.topic),
                _headers(self.headers),
                _U32.pack(len(self.payload)),
                self.payload,
                _U64.pack(self.ack_deadline_ms),
            )
        )


class Hello(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.HELLO
    LAYOUT: ClassVar = "str client · str token · u32 features"

    client: str
    token: str = ""
    features: int = 0

    def encode(self) -> bytes:
        return _text(self.client) + _text(self.token) + _U32.pack(self.features)


class Produce(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.PRODUCE
    LAYOUT: ClassVar = (
        "str topic · i32 partition · u8 acks · u8 priority · u64 delay_ms · u64 ttl_ms · u32 length + batch"
    )

    topic: str
    partition: int  # -1: the broker chooses
    acks: int
    delay_ms: int
    ttl_ms: int
    batch: bytes
    priority: int = 0

    def encode(self) -> bytes:
        return self.encode_head(len(self.batch)) + self.batch

    def encode_head(self, batch_bytes: int) -> bytes:
        """All but the batch itself, which may then be written from its own buffer."""
        fields = (self.partition, self.acks, self.priority, self.delay_ms, self.ttl_ms, batch_bytes)
        middle = _PRODUCE_MIDDLE.pack(*fields)
        return _text(self.topic) + middle


class Deliver(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.DELIVER
    LAYOUT: ClassVar = (
        "str subscription_id · str topic · i32 partition · u8 lane · u64 lease · u16 attempt · "
        "u64 deadline_ms · u16 ranges · {u64 first · u64 last}… · u32 length + batches"
    )

    subscription_id: str
    topic: str
    partition: int
    lane: int  # 0: the topic has none
    lease: int
    attempt: int
    deadline_ms: int  # wall clock; 0: settled when sent
    ranges: tuple[Range, ...]
    batches: bytes = b""

    def encode(self) -> bytes:
        return self.encode_head(len(self.batches)) + self.batches

    def encode_head(self, batches_bytes: int) -> bytes:
        """All but the stored batches, which may then be written from their own buffers."""
        ranges = self.ranges
        middle = _DELIVER_MIDDLE.pack(
            self.partition, self.lane, self.lease, self.attempt, self.deadline_ms, len(ranges)
        )
        pack = _RANGE.pack
        leased = pack(*ranges[0]) if len(ranges) == 1 else b"".join([pack(*each) for each in ranges])
        return _text(self.subscription_id) + _text(self.topic) + middle + leased + _U32.pack(batches_bytes)


class SettleItem(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u64 lease · u8 action · u64 first · u64 last · u8 reason · u32 delay_ms · str error"

    lease: int
    action: int
    first: int
    last: int
    reason: int = NackReason.UNSPECIFIED
    delay_ms: int = 0
    error: str = ""


class Settle(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.SETTLE
    LAYOUT: ClassVar = "u8 wait · u16 count · {" + SettleItem.LAYOUT + "}…"

    items: tuple[SettleItem, ...]
    wait: int = Wait.APPLIED

    def encode(self) -> bytes:
        parts = [_SETTLE_HEAD.pack(self.wait, len(self.items))]
        pack = _SETTLE_ITEM.pack
        for item in self.items:
            error = _text_bytes(item.error)
            parts.append(pack(item.lease, item.action, item.first, item.last, item.reason, item.delay_ms, len(error)))
            parts.append(error)
        return b"".join(parts)


class Fetch(Struct, frozen=True, gc=False):
    """Reads a log without a group."""

    TYPE: ClassVar = FrameType.FETCH
    LAYOUT: ClassVar = "str topic · i32 partition · u64 offset · u32 bytes_max · u32 wait_ms · [u8 lane]"

    topic: str
    partition: int
    offset: int
    bytes_max: int
    wait_ms: int = 0
    lane: int = 0  # 1 to 5; 0: the first, or the topic has none

    def encode(self) -> bytes:
        return b"".join(
            (
                _text(self.topic),
                _I32.pack(self.partition),
                _U64.pack(self.offset),
                _U32.pack(self.bytes_max),
                _U32.pack(self.wait_ms),
                _lane(self.lane),
            )
        )


class Commit(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.COMMIT
    LAYOUT: ClassVar = "str group · str topic · i32 partition · u64 offset · [u8 lane]"

    group: str
    topic: str
    partition: int
    offset: int
    lane: int = 0  # 1 to 5; 0: the topic has none

    def encode(self) -> bytes:
        place = _text(self.group) + _text(self.topic) + _I32.pack(self.partition)
        return place + _U64.pack(self.offset) + _lane(self.lane)


class Seek(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.SEEK
    LAYOUT: ClassVar = "str group · str topic · i32 partition · u8 whence · u64 value · [u8 lane]"

    group: str
    topic: str
    partition: int
    whence: int
    value: int = 0
    lane: int = 0  # 1 to 5; 0: every lane, or the topic has none

    def encode(self) -> bytes:
        return b"".join(
            (
                _text(self.group),
                _text(self.topic),
                _I32.pack(self.partition),
                _U8.pack(self.whence),
                _U64.pack(self.value),
                _lane(self.lane),
            )
        )


class Metadata(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.METADATA
    LAYOUT: ClassVar = "str pattern"

    pattern: str

    def encode(self) -> bytes:
        return _text(self.pattern)


class Credit(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.CREDIT
    LAYOUT: ClassVar = "str subscription_id · u16 max_inflight"

    subscription_id: str
    max_inflight: int

    def encode(self) -> bytes:
        return _text(self.subscription_id) + _U16.pack(self.max_inflight)


class Error(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.ERROR
    LAYOUT: ClassVar = "u16 code · str text"

    code: int
    text: str

    def encode(self) -> bytes:
        return _U16.pack(self.code) + _text(self.text)


class Goodbye(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.GOODBYE
    LAYOUT: ClassVar = "str reason"

    reason: str = ""

    def encode(self) -> bytes:
        return _text(self.reason)


class TopicPartition(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "str topic · i32 partition"

    topic: str
    partition: int


class Revoke(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.REVOKE
    LAYOUT: ClassVar = "str group · u64 generation · u16 count · {" + TopicPartition.LAYOUT + "}…"

    group: str
    generation: int
    partitions: tuple[TopicPartition, ...]

    def encode(self) -> bytes:
        return _text(self.group) + _U64.pack(self.generation) + _partitions(self.partitions)


class Assign(Struct, frozen=True, gc=False):
    TYPE: ClassVar = FrameType.ASSIGN
    LAYOUT: ClassVar = Revoke.LAYOUT

    group: str
    generation: int
    partitions: tuple[TopicPartition, ...]

    def encode(self) -> bytes:
        return _text(self.group) + _U64.pack(self.generation) + _partitions(self.partitions)


class Refusal(Struct, frozen=True, gc=False):
    """Any answer whose status is not 0."""

    LAYOUT: ClassVar = "u8 status · u32 retry_after_ms · str reason"

    status: int
    retry_after_ms: int
    reason: str

    def encode(self) -> bytes:
        if self.status == Status.OK:
            raise EncodeError("a refusal needs a status other than 0: 0 means success")
        return _U8.pack(self.status) + _U32.pack(self.retry_after_ms) + _text(self.reason)


class PublishAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status · str message_id · u64 timestamp_ms"

    message_id: str
    timestamp_ms: int

    def encode(self) -> bytes:
        return _OK + _text(self.message_id) + _U64.pack(self.timestamp_ms)


class SubscribeAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status · str subscription_id"

    subscription_id: str

    def encode(self) -> bytes:
        return _OK + _text(self.subscription_id)


class PlainAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status"

    def encode(self) -> bytes:
        return _OK


class NackAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status · u8 action"

    action: int

    def encode(self) -> bytes:
        return _OK + _U8.pack(self.action)


class GenerationAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status · u64 generation"

    generation: int

    def encode(self) -> bytes:
        return _OK + _U64.pack(self.generation)


class HelloAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = (
        "u8 status · str broker · u64 session · u32 features · u32 heartbeat_ms · u32 session_timeout_ms · "
        "u32 frame_bytes_max"
    )

    broker: str
    session: int
    features: int
    heartbeat_ms: int
    session_timeout_ms: int
    frame_bytes_max: int

    def encode(self) -> bytes:
        return b"".join(
            (
                _OK,
                _text(self.broker),
                _U64.pack(self.session),
                _U32.pack(self.features),
                _U32.pack(self.heartbeat_ms),
                _U32.pack(self.session_timeout_ms),
                _U32.pack(self.frame_bytes_max),
            )
        )


class ProduceAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status · i32 partition · u64 base_offset · u64 timestamp_ms · u8 lane · str topic"

    partition: int
    base_offset: int
    timestamp_ms: int
    lane: int = 0  # 0: the topic has none
    topic: str = ""  # where it waits if it is delayed; "": where it was sent to

    def encode(self) -> bytes:
        fields = (0, self.partition, self.base_offset, self.timestamp_ms, self.lane)
        return _PRODUCE_ANSWER.pack(*fields) + _text(self.topic)


class SettleOutcome(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status · u8 action"

    status: int
    action: int = Outcome.SETTLED


class SettleAnswer(Struct, frozen=True, gc=False):
    """One outcome per item of the SETTLE, in its order; some may have been refused."""

    LAYOUT: ClassVar = "u8 status · u16 count · {" + SettleOutcome.LAYOUT + "}…"

    outcomes: tuple[SettleOutcome, ...]

    def encode(self) -> bytes:
        flat = bytearray(_SETTLE_HEAD.pack(0, len(self.outcomes)))
        for outcome in self.outcomes:
            flat.append(outcome.status)
            flat.append(outcome.action)
        return bytes(flat)


class FetchAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status · u64 start · u64 end · u32 length + batches"

    start: int
    end: int
    batches: bytes = b""

    def encode(self) -> bytes:
        return self.encode_head(len(self.batches)) + self.batches

    def encode_head(self, batches_bytes: int) -> bytes:
        """All but the stored batches, which may then be written from their own buffers."""
        return _OK + _RANGE.pack(self.start, self.end) + _U32.pack(batches_bytes)


class LogMetadata(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "i32 partition · u8 lane · u64 start · u64 end"

    partition: int
    lane: int
    start: int
    end: int


class TopicMetadata(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "str topic · u16 logs · {" + LogMetadata.LAYOUT + "}…"

    topic: str
    logs: tuple[LogMetadata, ...]


class MetadataAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status · u32 topics · {" + TopicMetadata.LAYOUT + "}…"

    topics: tuple[TopicMetadata, ...]

    def encode(self) -> bytes:
        parts = [_OK, _U32.pack(len(self.topics))]
        for topic in self.topics:
            parts += (_text(topic.topic), _U16.pack(len(topic.logs)))
            for log in topic.logs:
                parts += (_I32.pack(log.partition), _U8.pack(log.lane), _RANGE.pack(log.start, log.end))
        return b"".join(parts)


class SeekAnswer(Struct, frozen=True, gc=False):
    LAYOUT: ClassVar = "u8 status · u64 offset"

    offset: int

    def encode(self) -> bytes:
        return _OK + _U64.pack(self.offset)


Request: TypeAlias = (
    Publish
    | Subscribe
    | Ack
    | Nack
    | JoinGroup
    | Unsubscribe
    | LeaveGroup
    | Heartbeat
    | Hello
    | Produce
    | Settle
    | Fetch
    | Commit
    | Seek
    | Metadata
    | Credit
    | Goodbye
)
Push: TypeAlias = Delivery | Deliver | Error | Goodbye | Revoke | Assign
Answer: TypeAlias = (
    PublishAnswer
    | SubscribeAnswer
    | PlainAnswer
    | NackAnswer
    | GenerationAnswer
    | HelloAnswer
    | ProduceAnswer
    | SettleAnswer
    | FetchAnswer
    | MetadataAnswer
    | SeekAnswer
)


def _text_bytes(text: str) -> bytes:
    data = text.encode()
    if len(data) > TEXT_BYTES_MAX:
        raise EncodeError(
            f"a text of {len(data)} bytes does not fit: at most {TEXT_BYTES_MAX}; it starts {text[:40]!r}"
        )
    return data


def _lane(lane: int) -> bytes:
    return _U8.pack(lane) if lane else b""


def _text(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    if size > TEXT_BYTES_MAX:
        _text_bytes(text)
    return _U16.pack(size) + data


def _headers(headers: Headers) -> bytes:
    if not headers:
        return _NO_HEADERS
    if len(headers) > HEADERS_MAX:
        raise EncodeError(f"{len(headers)} headers do not fit: at most {HEADERS_MAX}")
    parts = [_U16.pack(len(headers))]
    for key, value in headers:
        parts.append(_text(key))
        parts.append(_text(value))
    return b"".join(parts)


def _partitions(partitions: tuple[TopicPartition, ...]) -> bytes:
    parts = [_U16.pack(len(partitions))]
    for each in partitions:
        parts += (_text(each.topic), _I32.pack(each.partition))
    return b"".join(parts)


class _Reader:
    """A payload read field by field; each mistake names the field it was found in."""

    __slots__ = ("at", "data", "what")

    def __init__(self, what: str, data: bytes, at: int = 0) -> None:
        self.what = what
        self.data = data
        self.at = at

    def take(self, size: int, field: str) -> int:
        """The position of the next `size` bytes, which are there."""
        at = self.at
        left = len(self.data) - at
        if size > left:
            raise WireError(f"{self.what}: {field} needs {size} bytes at byte {at}, but only {left} are left")
        self.at = at + size
        return at

    def number(self, layout: Layout, field: str) -> int:
        at = self.take(layout.size, field)
        value: int = layout.unpack_from(self.data, at)[0]
        return value

    def u8(self, field: str) -> int:
        return self.data[self.take(1, field)]

    def u16(self, field: str) -> int:
        return self.number(_U16, field)

    def u32(self, field: str) -> int:
        return self.number(_U32, field)

    def u64(self, field: str) -> int:
        return self.number(_U64, field)

    def i32(self, field: str) -> int:
        return self.number(_I32, field)

    def flag(self, field: str) -> bool:
        value = self.u8(field)
        if value > 1:
            raise WireError(f"{self.what}: {field} must be 0 or 1, it is {value}")
        return value == 1

    def choice(self, accepted: type[IntEnum], field: str) -> int:
        value = self.u8(field)
        return _chosen(self.what, accepted, field, value)

    def lane(self) -> int:
        """A lane at the payload's end, which may be left out."""
        if self.at == len(self.data):
            return 0
        lane = self.u8("lane")
        if not 1 <= lane <= LANES:
            raise WireError(f"{self.what}: lane must be 1 to {LANES} or left out, it is {lane}")
        return lane

    def text(self, field: str) -> str:
        size = self.u16(field)
        at = self.take(size, field)
        try:
            return self.data[at : at + size].decode()
        except UnicodeDecodeError as error:
            raise WireError(f"{self.what}: {field} at byte {at} is not UTF-8: {error.reason}") from None

    def blob(self, field: str) -> bytes:
        size = self.u32(field)
        at = self.take(size, field)
        return self.data[at : at + size]

    def count(self, number: int, item_bytes_min: int, field: str) -> int:
        """`number`, if that many items can be in what is left."""
        left = len(self.data) - self.at
        if number * item_bytes_min > left:
            raise WireError(
                f"{self.what}: {number} {field} need {number * item_bytes_min} bytes or more, but only {left} are left"
            )
        return number

    def headers(self) -> Headers:
        number = self.u16("header count")
        return tuple([(self.text("header key"), self.text("header value")) for _ in range(number)])

    def end(self) -> None:
        if self.at != len(self.data):
            raise WireError(
                f"{self.what}: {len(self.data) - self.at} bytes too many after byte {self.at}: "
                "remove them, or use a newer protocol version"
            )


def _chosen(what: str, accepted: type[IntEnum], field: str, value: int) -> int:
    try:
        accepted(value)
    except ValueError:
        known = ", ".join(f"{int(each)} {each.name.lower()}" for each in accepted)
        raise WireError(f"{what}: {field} must be one of {known}; it is {value}") from None
    return value


def _unreadable(what: str, layout: str, payload: bytes | bytearray, cause: Exception) -> WireError:
    if isinstance(cause, UnicodeDecodeError):
        problem = f"a text is not UTF-8 ({cause.reason})"
    else:
        problem = "it ends inside a field"
    return WireError(f"{what}: {problem}, in a payload of {len(payload)} bytes; expected: {layout}")


def _wrong_size(what: str, layout: str, payload: bytes | bytearray, used: int) -> WireError:
    if used > len(payload):
        return _unreadable(what, layout, payload, StructError())
    extra = len(payload) - used
    return WireError(f"{what}: {extra} bytes too many after byte {used}; expected: {layout}")


def _read_headers(payload: bytes, at: int, number: int) -> tuple[Headers, int]:
    """`number` headers from `at` on; a text cut short shows in the position after it."""
    headers = []
    unpack = _U16.unpack_from
    for _ in range(number):
        (size,) = unpack(payload, at)
        at += 2
        key = payload[at : at + size].decode()
        at += size
        (size,) = unpack(payload, at)
        at += 2
        headers.append((key, payload[at : at + size].decode()))
        at += size
    return tuple(headers), at


def decode_publish(payload: bytes) -> Publish:
    try:
        (size,) = _U16.unpack_from(payload)
        at = 2 + size
        topic = payload[2:at].decode()
        (number,) = _U16.unpack_from(payload, at)
        at += 2
        headers: Headers = ()
        if number:
            headers, at = _read_headers(payload, at, number)
        (size,) = _U32.unpack_from(payload, at)
        at += 4
        value = payload[at : at + size]
        at += size
        ttl_seconds, require_ack = _PUBLISH_TAIL.unpack_from(payload, at)
    except (StructError, UnicodeDecodeError) as error:
        raise _unreadable("PUBLISH", Publish.LAYOUT, payload, error) from None
    if at + 5 != len(payload):
        raise _wrong_size("PUBLISH", Publish.LAYOUT, payload, at + 5)
    if require_ack > 1:
        raise WireError(f"PUBLISH: require_ack must be 0 or 1, it is {require_ack}")
    return Publish(topic, headers, value, ttl_seconds, require_ack == 1)


def read_produce(payload: bytes | bytearray) -> tuple[str, int, int, int, int, int, int]:
    """Topic, partition, acks, priority, delay and TTL of a PRODUCE, and where its batch begins: that stays in place."""
    try:
        (size,) = _U16.unpack_from(payload)
        at = 2 + size
        topic = payload[2:at].decode()
        partition, acks, priority, delay_ms, ttl_ms, size = _PRODUCE_MIDDLE.unpack_from(payload, at)
    except (StructError, UnicodeDecodeError) as error:
        raise _unreadable("PRODUCE", Produce.LAYOUT, payload, error) from None
    at += _PRODUCE_MIDDLE_BYTES
    if at + size != len(payload):
        raise _wrong_size("PRODUCE", Produce.LAYOUT, payload, at + size)
    if acks > 2:
        _chosen("PRODUCE", Acks, "acks", acks)
    if priority > 5:
        _chosen("PRODUCE", Priority, "priority", priority)
    return topic, partition, acks, priority, delay_ms, ttl_ms, at


def decode_produce(payload: bytes | bytearray) -> Produce:
    topic, partition, acks, priority, delay_ms, ttl_ms, at = read_produce(payload)
    return Produce(topic, partition, acks, delay_ms, ttl_ms, bytes(payload[at:]), priority)


def decode_settle(payload: bytes) -> Settle:
    items: list[SettleItem] = []
    append = items.append
    unpack = _SETTLE_ITEM.unpack_from
    try:
        wait, number = _SETTLE_HEAD.unpack_from(payload)
        at = 3
        for _ in range(number):
            lease, action, first, last, reason, delay_ms, size = unpack(payload, at)
            at += 32
            text = ""
            if size:
                text = payload[at : at + size].decode()
                at += size
            if not 1 <= action <= 4:
                _chosen("SETTLE", SettleAction, "action", action)
            append(SettleItem(lease, action, first, last, reason, delay_ms, text))
    except (StructError, UnicodeDecodeError) as error:
        raise _unreadable("SETTLE", Settle.LAYOUT, payload, error) from None
    if at != len(payload):
        raise _wrong_size("SETTLE", Settle.LAYOUT, payload, at)
    if wait > 1:
        _chosen("SETTLE", Wait, "wait", wait)
    return Settle(tuple(items), wait)


def decode_subscribe(payload: bytes) -> Subscribe:
    read = _Reader("SUBSCRIBE", payload)
    message = Subscribe(read.text("pattern"), read.text("group"), read.u16("max_inflight"), read.flag("auto_ack"))
    read.end()
    return message


def decode_ack(payload: bytes) -> Ack:
    read = _Reader("ACK", payload)
    message = Ack(read.text("message_id"), read.u32("processing_ms"))
    read.end()
    return message


def decode_nack(payload: bytes) -> Nack:
    read = _Reader("NACK", payload)
    message = Nack(read.text("message_id"), read.u8("reason"), read.flag("retry_requested"))
    read.end()
    return message


def decode_join_group(payload: bytes) -> JoinGroup:
    read = _Reader("JOIN_GROUP", payload)
    message = JoinGroup(read.text("group"), read.text("member"), read.text("strategy"))
    read.end()
    return message


def decode_unsubscribe(payload: bytes) -> Unsubscribe:
    read = _Reader("UNSUBSCRIBE", payload)
    message = Unsubscribe(read.text("subscription_id"))
    read.end()
    return message


def decode_leave_group(payload: bytes) -> LeaveGroup:
    read = _Reader("LEAVE_GROUP", payload)
    message = LeaveGroup(read.text("group"), read.text("member"))
    read.end()
    return message


def decode_heartbeat(payload: bytes) -> Heartbeat:
    if not payload:
        return Heartbeat(None)
    read = _Reader("HEARTBEAT", payload)
    message = Heartbeat(read.text("member"))
    read.end()
    return message


def decode_delivery(payload: bytes) -> Delivery:
    read = _Reader("DELIVERY", payload)
    message = Delivery(
        read.text("subscription_id"),
        read.text("message_id"),
        read.text("topic"),
        read.headers(),
        read.blob("payload"),
        read.u64("ack_deadline_ms"),
    )
    read.end()
    return message


def decode_hello(payload: bytes) -> Hello:
    read = _Reader("HELLO", payload)
    message = Hello(read.text("client"), read.text("token"), read.u32("features"))
    read.end()
    return message


def decode_deliver(payload: bytes) -> Deliver:
    read = _Reader("DELIVER", payload)
    subscription_id, topic = read.text("subscription_id"), read.text("topic")
    at = read.take(_DELIVER_MIDDLE.size, "partition to ranges")
    partition, lane, lease, attempt, deadline_ms, number = _DELIVER_MIDDLE.unpack_from(payload, at)
    at = read.take(number * _RANGE.size, "ranges")
    ranges = tuple([_RANGE.unpack_from(payload, at + i * _RANGE.size) for i in range(number)])
    batches = read.blob("batches")
    read.end()
    return Deliver(subscription_id, topic, partition, lane, lease, attempt, deadline_ms, ranges, batches)


def decode_fetch(payload: bytes) -> Fetch:
    read = _Reader("FETCH", payload)
    message = Fetch(
        read.text("topic"),
        read.i32("partition"),
        read.u64("offset"),
        read.u32("bytes_max"),
        read.u32("wait_ms"),
        read.lane(),
    )
    read.end()
    return message


def decode_commit(payload: bytes) -> Commit:
    read = _Reader("COMMIT", payload)
    message = Commit(read.text("group"), read.text("topic"), read.i32("partition"), read.u64("offset"), read.lane())
    read.end()
    return message


def decode_seek(payload: bytes) -> Seek:
    read = _Reader("SEEK", payload)
    message = Seek(
        read.text("group"),
        read.text("topic"),
        read.i32("partition"),
        read.choice(Whence, "whence"),
        read.u64("value"),
        read.lane(),
    )
    read.end()
    return message


def decode_metadata(payload: bytes) -> Metadata:
    read = _Reader("METADATA", payload)
    message = Metadata(read.text("pattern"))
    read.end()
    return message


def decode_credit(payload: bytes) -> Credit:
    read = _Reader("CREDIT", payload)
    message = Credit(read.text("subscription_id"), read.u16("max_inflight"))
    read.end()
    return message


def decode_error(payload: bytes) -> Error:
    read = _Reader("ERROR", payload)
    message = Error(read.u16("code"), read.text("text"))
    read.end()
    return message


def decode_goodbye(payload: bytes) -> Goodbye:
    read = _Reader("GOODBYE", payload)
    message = Goodbye(read.text("reason"))
    read.end()
    return message


def decode_revoke(payload: bytes) -> Revoke:
    return Revoke(*_read_assignment("REVOKE", payload))


def decode_assign(payload: bytes) -> Assign:
    return Assign(*_read_assignment("ASSIGN", payload))


def _read_assignment(what: str, payload: bytes) -> tuple[str, int, tuple[TopicPartition, ...]]:
    read = _Reader(what, payload)
    group, generation = read.text("group"), read.u64("generation")
    number = read.count(read.u16("count"), 6, "partitions")
    partitions = tuple([TopicPartition(read.text("topic"), read.i32("partition")) for _ in range(number)])
    read.end()
    return group, generation, partitions


def _read_publish_answer(read: _Reader) -> PublishAnswer:
    return PublishAnswer(read.text("message_id"), read.u64("timestamp_ms"))


def _read_subscribe_answer(read: _Reader) -> SubscribeAnswer:
    return SubscribeAnswer(read.text("subscription_id"))


def _read_plain_answer(read: _Reader) -> PlainAnswer:
    return PlainAnswer()


def _read_nack_answer(read: _Reader) -> NackAnswer:
    return NackAnswer(read.choice(Outcome, "action"))


def _read_generation_answer(read: _Reader) -> GenerationAnswer:
    return GenerationAnswer(read.u64("generation"))


def _read_hello_answer(read: _Reader) -> HelloAnswer:
    return HelloAnswer(
        read.text("broker"),
        read.u64("session"),
        read.u32("features"),
        read.u32("heartbeat_ms"),
        read.u32("session_timeout_ms"),
        read.u32("frame_bytes_max"),
    )


def _read_produce_answer(read: _Reader) -> ProduceAnswer:
    return ProduceAnswer(
        read.i32("partition"), read.u64("base_offset"), read.u64("timestamp_ms"), read.u8("lane"), read.text("topic")
    )


def _read_settle_answer(read: _Reader) -> SettleAnswer:
    number = read.count(read.u16("count"), 2, "outcomes")
    return SettleAnswer(
        tuple([SettleOutcome(read.u8("status"), read.choice(Outcome, "action")) for _ in range(number)])
    )


def _read_fetch_answer(read: _Reader) -> FetchAnswer:
    return FetchAnswer(read.u64("start"), read.u64("end"), read.blob("batches"))


def _read_metadata_answer(read: _Reader) -> MetadataAnswer:
    number = read.count(read.u32("topics"), 4, "topics")
    return MetadataAnswer(tuple([_read_topic(read) for _ in range(number)]))


def _read_topic(read: _Reader) -> TopicMetadata:
    topic = read.text("topic")
    number = read.count(read.u16("logs"), 21, "logs")
    logs = [
        LogMetadata(read.i32("partition"), read.u8("lane"), read.u64("start"), read.u64("end")) for _ in range(number)
    ]
    return TopicMetadata(topic, tuple(logs))


def _read_seek_answer(read: _Reader) -> SeekAnswer:
    return SeekAnswer(read.u64("offset"))


_MESSAGES: Final[Mapping[int, Callable[[bytes], Request | Push]]] = MappingProxyType(
    {
        FrameType.PUBLISH: decode_publish,
        FrameType.SUBSCRIBE: decode_subscribe,
        FrameType.ACK: decode_ack,
        FrameType.NACK: decode_nack,
        FrameType.JOIN_GROUP: decode_join_group,
        FrameType.UNSUBSCRIBE: decode_unsubscribe,
        FrameType.LEAVE_GROUP: decode_leave_group,
        FrameType.DELIVERY: decode_delivery,
        FrameType.HELLO: decode_hello,
        FrameType.PRODUCE: decode_produce,
        FrameType.DELIVER: decode_deliver,
        FrameType.SETTLE: decode_settle,
        FrameType.FETCH: decode_fetch,
        FrameType.COMMIT: decode_commit,
        FrameType.SEEK: decode_seek,
        FrameType.METADATA: decode_metadata,
        FrameType.CREDIT: decode_credit,
        FrameType.ERROR: decode_error,
        FrameType.GOODBYE: decode_goodbye,
        FrameType.REVOKE: decode_revoke,
        FrameType.ASSIGN: decode_assign,
        FrameType.HEARTBEAT: decode_heartbeat,
    }
)

_ANSWERS: Final[Mapping[int, Callable[[_Reader], Answer]]] = MappingProxyType(
    {
        FrameType.PUBLISH: _read_publish_answer,
        FrameType.SUBSCRIBE: _read_subscribe_answer,
        FrameType.ACK: _read_plain_answer,
        FrameType.NACK: _read_nack_answer,
        FrameType.JOIN_GROUP: _read_generation_answer,
        FrameType.UNSUBSCRIBE: _read_plain_answer,
        FrameType.LEAVE_GROUP: _read_plain_answer,
        FrameType.HELLO: _read_hello_answer,
        FrameType.PRODUCE: _read_produce_answer,
        FrameType.SETTLE: _read_settle_answer,
        FrameType.FETCH: _read_fetch_answer,
        FrameType.COMMIT: _read_plain_answer,
        FrameType.SEEK: _read_seek_answer,
        FrameType.METADATA: _read_metadata_answer,
        FrameType.CREDIT: _read_plain_answer,
        FrameType.HEARTBEAT: _read_generation_answer,
    }
)


def decode_message(type: int, payload: bytes | bytearray) -> Request | Push:
    """The message in a frame of any known type but RESPONSE, whose meaning depends on its request."""
    decode = _MESSAGES.get(type)
    if decode is None:
        raise WireError(f"frame type {type} carries no message of its own")
    return decode(bytes(payload))


def decode_answer(type_of_request: int, payload: bytes | bytearray) -> Answer | Refusal:
    """The RESPONSE to a request of that type."""
    read_answer = _ANSWERS.get(type_of_request)
    if read_answer is None:
        raise WireError(f"a RESPONSE came for frame type {type_of_request}, which has no answer")
    read = _Reader("RESPONSE", bytes(payload))
    status = read.u8("status")
    answer: Answer | Refusal
    if status == Status.OK:
        answer = read_answer(read)
    else:
        answer = Refusal(status, read.u32("retry_after_ms"), read.text("reason"))
    read.end()
    return answer
