"""A client on a plain socket, written from the tables of the wire protocol alone.

Promises  shares no code with the broker: what it sends and reads is what an outside reader of the tables would.
Never     hides an answer: everything the broker sent is given out once, in the order it came.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import crc32c

MAGIC = 0x4D515545
CORRELATED = 0x02
PUBLISH, SUBSCRIBE, ACK, NACK, JOIN_GROUP, UNSUBSCRIBE, LEAVE_GROUP = 1, 2, 3, 4, 5, 6, 7
DELIVERY, RESPONSE, HELLO, PRODUCE, ERROR, GOODBYE, HEARTBEAT = 10, 11, 20, 21, 29, 30, 99
REQUEUED, DEAD_LETTERED, DROPPED = 1, 2, 3

Headers = tuple[tuple[str, str], ...]


def frame(
    type: int,
    payload: bytes = b"",
    *,
    correlation: int | None = None,
    magic: int = MAGIC,
    version: int = 1,
    flags: int = 0,
    reserved: int = 0,
    length: int | None = None,
) -> bytes:
    """One frame; what a test wants to get wrong, it says."""
    if correlation is not None:
        flags |= CORRELATED
        payload = struct.pack(">I", correlation) + payload
    size = len(payload) if length is None else length
    return struct.pack(">IBBBBI", magic, version, type, flags, reserved, size) + payload


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def headers_of(pairs: Iterable[tuple[str, str]]) -> bytes:
    data = [text(key) + text(value) for key, value in pairs]
    return struct.pack(">H", len(data)) + b"".join(data)


def publish(
    topic: str | bytes, value: bytes = b"", *, headers: Headers = (), ttl_seconds: int = 0, require_ack: int = 1
) -> bytes:
    body = struct.pack(">I", len(value)) + value
    return text(topic) + headers_of(headers) + body + struct.pack(">IB", ttl_seconds, require_ack)


def subscribe(pattern: str, group: str = "", max_inflight: int = 0, auto_ack: int = 0) -> bytes:
    return text(pattern) + text(group) + struct.pack(">HB", max_inflight, auto_ack)


def ack(message_id: str, processing_ms: int = 0) -> bytes:
    return text(message_id) + struct.pack(">I", processing_ms)


def nack(message_id: str, reason: int = 1, retry_requested: int = 1) -> bytes:
    return text(message_id) + struct.pack(">BB", reason, retry_requested)


def join(group: str, member: str, strategy: str = "") -> bytes:
    return text(group) + text(member) + text(strategy)


def varint(value: int) -> bytes:
    """A zigzag varint of a record."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def record_batch(values: list[bytes], *, count: int | None = None, crc: int | None = None, tail: bytes = b"") -> bytes:
    """A record batch of `values`; a `count` or `crc` given is written whatever is true."""
    records = b""
    for place, value in enumerate(values):
        body = b"\0" + varint(0) + varint(place) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    said = len(values) if count is None else count
    checked = struct.pack(">hiqqqhii", 0, said - 1, 1, 1, -1, -1, -1, said) + records + tail
    crc = crc32c.crc32c(checked) if crc is None else crc
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc) + checked


def produce(topic: str, batch: bytes, *, acks: int = 1) -> bytes:
    return text(topic) + struct.pack(">iBBQQI", -1, acks, 0, 0, 0, len(batch)) + batch


class Fields:
    """The fields of a payload, taken one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        assert self._at + size <= len(self._data), "the payload ends inside a field"
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def text(self) -> str:
        return self._take(self.number(2)).decode()

    def blob(self) -> bytes:
        return self._take(self.number(4))

    def headers(self) -> Headers:
        return tuple((self.text(), self.text()) for _ in range(self.number(2)))

    def end(self) -> None:
        assert self._at == len(self._data), f"{len(self._data) - self._at} bytes too many"


class Frame(NamedTuple):
    type: int
    correlation: int | None
    payload: bytes


class Delivery(NamedTuple):
    subscription: str
    id: str
    topic: str
    headers: Headers
    value: bytes
    deadline_ms: int


class Answer(NamedTuple):
    """A RESPONSE: the fields of a success are in `fields`, a refusal has its reason."""

    status: int
    fields: Fields
    retry_after_ms: int
    reason: str
    correlation: int | None


class Mistake(NamedTuple):
    """An ERROR of the broker."""

    code: int
    text: str
    correlation: int | None


class Closed(Exception):
    """The broker closed the connection."""


def as_delivery(payload: bytes) -> Delivery:
    fields = Fields(payload)
    delivery = Delivery(fields.text(), fields.text(), fields.text(), fields.headers(), fields.blob(), fields.number(8))
    fields.end()
    return delivery


def as_answer(found: Frame) -> Answer:
    fields = Fields(found.payload)
    status = fields.number(1)
    if status == 0:
        return Answer(0, fields, 0, "", found.correlation)
    refusal = Answer(status, fields, fields.number(4), fields.text(), found.correlation)
    fields.end()
    assert refusal.reason, "a refusal says why"
    return refusal


def as_mistake(found: Frame) -> Mistake:
    fields = Fields(found.payload)
    mistake = Mistake(fields.number(2), fields.text(), found.correlation)
    fields.end()
    return mistake


class Raw:
    """One connection. Deliveries and answers are kept apart; each is given out once, in order."""

    def __init__(self, port: int, timeout: float = 20.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._bytes = bytearray()
        self._deliveries: deque[Delivery] = deque()
        self._answers: deque[Answer | Mistake] = deque()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _read(self, size: int) -> bytes:
        while len(self._bytes) < size:
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionError as error:
                raise Closed from error
            if not data:
                raise Closed(f"with {len(self._bytes)} bytes of a frame that was not finished")
            self._bytes += data
        taken = bytes(self._bytes[:size])
        del self._bytes[:size]
        return taken

    def frame(self) -> Frame:
        """The next frame, whatever it is; its header must be as the table has it."""
        magic, version, type, flags, reserved, size = struct.unpack(">IBBBBI", self._read(12))
        assert (magic, version, reserved) == (MAGIC, 1, 0)
        assert flags in (0, CORRELATED)
        payload = self._read(size)
        if flags:
            return Frame(type, int.from_bytes(payload[:4], "big"), payload[4:])
        return Frame(type, None, payload)

    def _take_in(self) -> None:
        found = self.frame()
        match found.type:
            case 10:
                self._deliveries.append(as_delivery(found.payload))
            case 11:
                self._answers.append(as_answer(found))
            case 29:
                self._answers.append(as_mistake(found))
            case _:
                raise AssertionError(found)

    def delivery(self) -> Delivery:
        """The next delivery, waited for."""
        while not self._deliveries:
            self._take_in()
        return self._deliveries.popleft()

    def deliveries(self, count: int) -> list[Delivery]:
        return [self.delivery() for _ in range(count)]

    def answer(self) -> Answer:
        """The next answer, waited for; it must not be an ERROR."""
        while not self._answers:
            self._take_in()
        found = self._answers.popleft()
        assert isinstance(found, Answer), found
        return found

    def mistake(self) -> Mistake:
        """The next answer, which must be an ERROR that says what was wrong."""
        while not self._answers:
            self._take_in()
        found = self._answers.popleft()
        assert isinstance(found, Mistake), found
        assert found.text
        return found

    def wait_closed(self) -> None:
        """The broker closes this connection; nothing but deliveries came before."""
        try:
            while True:
                self._take_in()
        except Closed:
            assert not self._answers, self._answers

    def ask(self, type: int, payload: bytes = b"") -> Answer:
        self.send(frame(type, payload))
        return self.answer()

    def done(self, type: int, payload: bytes = b"") -> Fields:
        """The fields of a success."""
        answer = self.ask(type, payload)
        assert answer.status == 0, answer.reason
        return answer.fields

    def publish(
        self, topic: str, value: bytes = b"", *, headers: Headers = (), ttl_seconds: int = 0, require_ack: int = 1
    ) -> str:
        """Publish, wait for the confirm, and give the message id."""
        options = publish(topic, value, headers=headers, ttl_seconds=ttl_seconds, require_ack=require_ack)
        fields = self.done(PUBLISH, options)
        message_id = fields.text()
        assert fields.number(8) > 0
        fields.end()
        return message_id

    def publish_all(self, topic: str, values: Iterable[bytes]) -> list[str]:
        """Publish without waiting in between, in one write; gives the message ids."""
        frames = [frame(PUBLISH, publish(topic, value)) for value in values]
        self.send(b"".join(frames))
        answers = [self.answer() for _ in frames]
        assert all(answer.status == 0 for answer in answers), answers
        return [answer.fields.text() for answer in answers]

    def subscribe(self, pattern: str, group: str = "", max_inflight: int = 0, auto_ack: int = 0) -> str:
        fields = self.done(SUBSCRIBE, subscribe(pattern, group, max_inflight, auto_ack))
        subscription = fields.text()
        fields.end()
        return subscription

    def ack(self, message_id: str) -> int:
        """The status of an ACK."""
        answer = self.ask(ACK, ack(message_id))
        answer.fields.end()
        return answer.status

    def nack(self, message_id: str, reason: int = 1, retry_requested: int = 1) -> int:
        """What became of a message that was given back: requeued, dead-lettered or dropped."""
        fields = self.done(NACK, nack(message_id, reason, retry_requested))
        action = fields.number(1)
        fields.end()
        return action

    def join(self, group: str, member: str, strategy: str = "") -> int:
        """The generation after joining."""
        return self._generation(JOIN_GROUP, join(group, member, strategy))

    def leave(self, group: str, member: str) -> None:
        self.done(LEAVE_GROUP, text(group) + text(member)).end()

    def unsubscribe(self, subscription: str) -> None:
        self.done(UNSUBSCRIBE, text(subscription)).end()

    def heartbeat(self, member: str | None = None) -> int:
        """The generation of the member's group."""
        return self._generation(HEARTBEAT, b"" if member is None else text(member))

    def _generation(self, type: int, payload: bytes) -> int:
        fields = self.done(type, payload)
        generation = fields.number(8)
        fields.end()
        return generation

    def so_far(self) -> list[Delivery]:
        """What was delivered until now, and not asked for yet.

        A confirmed message was sent to its readers before its publisher heard of it, and a heartbeat's answer comes
        after all that: whoever publishes, waits for the confirm and then looks here sees it, or it never comes.
        """
        self.heartbeat()
        found = list(self._deliveries)
        self._deliveries.clear()
        return found
