"""A producer that gathers messages into batches: bytes and time around an `Outbox`.

Promises  memory is bounded: `send` waits while `max_pending` messages or `max_pending_bytes` are not confirmed; a
          message is confirmed, refused or timed out, and its future says which.
Never     stores a message twice by itself, but sends again what was not confirmed when a connection is lost: the
          broker may have stored it before, so a message arrives *at least once*.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from types import TracebackType
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from dovetail.core import batch, names
from dovetail.core.batch import NewRecord, RecordHeaders
from dovetail.core.codes import Acks, Status
from dovetail.core.codes import Priority as Lane
from dovetail.core.compression import Compression
from dovetail.core.frames import batch_bytes_max
from dovetail.core.kernels import next_sequence
from dovetail.core.names import message_id
from dovetail.core.wire import Error, Produce, ProduceAnswer, Refusal
from dovetail.runtime.client.durations import Duration, milliseconds, seconds
from dovetail.runtime.client.errors import (
    Disconnected,
    DovetailError,
    Refused,
    TimedOut,
    broker_error,
    refused,
)
from dovetail.runtime.client.exchange import Reply
from dovetail.runtime.client.link import Link
from dovetail.runtime.client.outbox import Batch, Outbox, Route
from dovetail.runtime.client.partitioning import ANY, Partitioner, PartitionerName, partitioner
from dovetail.runtime.storage.codecs import CODECS

AcksName: TypeAlias = Literal["none", "stored", "all"]
CompressionName: TypeAlias = Literal["none", "gzip", "lz4", "zstd"]
Priority: TypeAlias = Literal["critical", "high", "normal", "low", "background"]
Value: TypeAlias = bytes | bytearray | memoryview | str
Headers: TypeAlias = Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]

_PRIORITIES: Final[dict[str, Lane]] = {lane.name.lower(): lane for lane in Lane if lane is not Lane.DEFAULT}
LANES: Final = {name: int(lane) for name, lane in _PRIORITIES.items()}
"""The lanes of topics that have them: names as people write them, and numbers as the wire has them."""
_ACKS: Final[dict[str, Acks]] = {"none": Acks.NONE, "stored": Acks.STORED, "all": Acks.ALL}
_COMPRESSIONS: Final[dict[str, Compression]] = {
    "none": Compression.NONE,
    "gzip": Compression.GZIP,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_RECORD_OVERHEAD_BYTES: Final = 16
_KEPT_NAMES: Final = 4096
_NOBODY: Final = (-1, -1, -1)
_EPOCH_MAX: Final = 0x7FFF
_PARTITION_MAX: Final = 0x7FFFFFFF
_NOT_KNOWN: Final = -1

V = TypeVar("V")


class Receipt(Struct, frozen=True, gc=False):
    """Where the broker stored a message. With acks "none" nobody knows: partition and offset are -1."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """When it arrived at the broker, in milliseconds since 1970 UTC."""
    lane: int = 0
    """0 where the topic has no lanes."""

    @property
    def message_id(self) -> str:
        """Its position; a delayed message's is where it waits, which goes on in `topic`."""
        return message_id(self.topic, self.partition, self.lane - 1, self.offset) if self.offset >= 0 else ""

    @property
    def timestamp(self) -> datetime:
        """When it arrived at the broker."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)


class Home(Protocol):
    """The client that a producer belongs to."""

    @property
    def link(self) -> Link | None:
        """The connection, while there is one that takes requests."""
        ...

    async def partition_count(self, topic: str) -> int: ...

    def forget_partition_count(self, topic: str) -> None: ...

    def producer_closed(self, producer: Producer) -> None: ...


class Identity:
    """Who an idempotent producer is: an id of its own choice, and sequence numbers for each log it writes to.

    Each priority has an id of its own, because it may have a log of its own.
    """

    def __init__(self) -> None:
        self._id = secrets.randbits(56) << 3
        self._epoch = 0
        self._sequences: dict[tuple[str, int, int], int] = {}

    def next(self, route: Route, count: int) -> tuple[int, int, int]:
        """Id, epoch and first sequence number of the next `count` records of a route."""
        key = (route.topic, route.partition, route.priority)
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = next_sequence(sequence, count)
        return self._id + route.priority, self._epoch, sequence

    def begin_epoch(self) -> None:
        """Count anew: the broker takes an epoch it has not heard of from its first batch on."""
        self._epoch += 1
        if self._epoch > _EPOCH_MAX:
            self._id, self._epoch = secrets.randbits(56) << 3, 0
        self._sequences.clear()


class Producer:
    """Made by `Client.producer`. `async with` it: leaving waits until everything is confirmed."""

    def __init__(
        self,
        home: Home,
        topic: str | None = None,
        *,
        linger_ms: float,
        batch_bytes: int,
        acks: AcksName,
        retries: int,
        compression: CompressionName,
        partitioner_name: PartitionerName,
        max_pending: int,
        max_pending_bytes: int,
        max_in_flight: int,
        timeout: Duration,
        idempotent: bool = False,
    ) -> None:
        _check_at_least("batch_bytes", batch_bytes, 1)
        _check_at_least("max_pending", max_pending, 1)
        _check_at_least("max_pending_bytes", max_pending_bytes, 1)
        _check_at_least("max_in_flight", max_in_flight, 1)
        _check_at_least("retries", retries, 0)
        _check_at_least("linger_ms", linger_ms, 0)
        self._home = home
        self._topic = None if topic is None else _topic_name(topic)
        self._linger = linger_ms / 1000
        self._acks = _chosen("acks", _ACKS, acks)
        self._compression = _chosen("compression", _COMPRESSIONS, compression)
        self._identity = Identity() if idempotent else None
        self._retries = retries
        self._timeout = seconds(timeout)
        # A batch that is sent again has to come to the log that knows its sequence number.
        self._partitioner: Partitioner = partitioner(partitioner_name, named=idempotent)
        self._outbox: Outbox[asyncio.Future[Receipt]] = Outbox(
            batch_bytes=batch_bytes,
            in_flight_max=1 if idempotent else max_in_flight,
            messages_max=max_pending,
            bytes_max=max_pending_bytes,
        )
        self._loop = asyncio.get_running_loop()
        self._linger_timer: asyncio.Handle | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._room: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._failure: DovetailError | None = None

    @property
    def pending(self) -> int:
        """Messages taken that are not confirmed so far."""
        return self._outbox.messages

    async def send(
        self,
        value: Value,
        *,
        topic: str | None = None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: Duration = 0,
        ttl: Duration = 0,
        priority: Priority = "normal",
        partition: int | None = None,
    ) -> asyncio.Future[Receipt]:
        """Take a message; the future it gives has the receipt once the broker has stored it.

        Awaiting `send` itself only waits while the producer is full. `topic` is the producer's by default; without
        `partition` the partitioner chooses; `delay` 0 delivers at once; `ttl` 0 never expires.
        """
        # This runs once per message: what most messages do without is looked at only where it is there.
        name = self._topic_for(topic) if topic is not None or self._topic is None else self._topic
        lane = 0 if priority == "normal" else _chosen("priority", _PRIORITIES, priority)
        key_bytes = None if key is None else _content("key", key)
        value_bytes = _content("value", value)
        if partition is None:
            partition = ANY
            if key is not None or self._partitioner.needs_count:
                partition = self._partitioner.choose(name, key_bytes, await self._home.partition_count(name))
        elif not 0 <= partition <= _PARTITION_MAX:
            raise ValueError(f"a partition is 0 to {_PARTITION_MAX}, this is {partition}")
        said = _record_headers(headers) if headers else ()
        route = Route(name, partition, milliseconds(delay) if delay else 0, milliseconds(ttl) if ttl else 0, lane)
        while self._outbox.full:
            await self._wait_for_room()
        if self._closed:
            raise self._failure or ValueError("the producer is closed: send while it is open")
        return self._add(route, (key_bytes, value_bytes, said))

    async def publish(
        self,
        value: Value,
        *,
        topic: str | None = None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: Duration = 0,
        ttl: Duration = 0,
        priority: Priority = "normal",
        partition: int | None = None,
    ) -> Receipt:
        """`send`, and wait for the receipt."""
        future = await self.send(
            value,
            topic=topic,
            key=key,
            headers=headers,
            delay=delay,
            ttl=ttl,
            priority=priority,
            partition=partition,
        )
        return await future

    async def flush(self) -> None:
        """Send all there is without waiting for more, and wait until each has its receipt or its error."""
        self._ripen()
        tokens = [token for each in self._outbox.all() for token in each.tokens]
        if tokens:
            await asyncio.wait(tokens)

    async def close(self) -> None:
        """Flush, then take no more."""
        if not self._closed:
            await self.flush()
            self.stop(Disconnected("the producer was closed before the broker confirmed"))
            self._home.producer_closed(self)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def stop(self, error: DovetailError) -> None:
        """Take no more; what is not confirmed fails with `error`."""
        self._closed = True
        self._failure = self._failure or error
        for timer in (self._linger_timer, self._deadline_timer):
            if timer is not None:
                timer.cancel()
        for each in self._outbox.all():
            self._fail(each, error)

    def pump(self) -> None:
        """Send what may be sent: called when a connection comes, can be written to again, or an answer made room."""
        while (link := self._home.link) is not None and link.writable:
            each = self._outbox.next()
            if each is None:
                return
            self._partitioner.batch_ended(each.route.topic)
            self._send(link, each)

    def _topic_for(self, topic: str | None) -> str:
        if topic is not None:
            return _topic_name(topic)
        if self._topic is None:
            raise ValueError("this producer has no topic of its own: name one with each message")
        return self._topic

    def _add(self, route: Route, record: NewRecord) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = self._loop.create_future()
        opened = self._outbox.add(route, record, _size(record), future)
        if opened is not None:
            self._opened(opened)
        if self._outbox.ready:
            self.pump()
        return future

    def _opened(self, each: Batch[asyncio.Future[Receipt]]) -> None:
        each.deadline = self._loop.time() + self._timeout
        if self._deadline_timer is None:
            self._watch_deadlines()
        if self._linger_timer is None:
            if self._linger:
                self._linger_timer = self._loop.call_later(self._linger, self._ripen)
            else:
                self._linger_timer = self._loop.call_soon(self._ripen)

    def _ripen(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
        self._outbox.ripen()
        self.pump()

    def _send(self, link: Link, each: Batch[asyncio.Future[Receipt]]) -> None:
        if not each.data:
            number, epoch, sequence = self._identity.next(each.route, len(each.records)) if self._identity else _NOBODY
            each.data = batch.build(
                each.records,
                timestamp_ms=time.time_ns() // 1_000_000,
                compression=self._compression,
                codecs=CODECS,
                producer_id=number,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        most = batch_bytes_max(link.frame_bytes_max)
        if len(each.data) > most:
            self._too_large(each, f"the batch has {len(each.data)} bytes, a frame has room for {most}")
            return
        route = each.route
        times = (route.delay_ms, route.ttl_ms)
        produce = Produce(route.topic, route.partition, self._acks, *times, each.data, route.priority)
        if self._acks == Acks.NONE:
            link.say(produce)
            self._succeed(each, ProduceAnswer(_NOT_KNOWN, _NOT_KNOWN, time.time_ns() // 1_000_000))
        else:
            link.ask(produce, partial(self._answered, each))

    def _answered(self, each: Batch[asyncio.Future[Receipt]], reply: Reply) -> None:
        match reply:
            case ProduceAnswer():
                self._succeed(each, reply)
            case Refusal(status=Status.TOO_LARGE, reason=reason):
                self._too_large(each, reason)
            case Refusal() if reply.retry_after_ms and each.tries <= self._retries:
                self._outbox.block(each)
                wait = reply.retry_after_ms / 1000 * (1 + random.random() / 5)
                self._loop.call_later(wait, self._unblock, each.route)
            case Refusal():
                # The topic may have been made anew, with other partitions than a key was placed by.
                self._home.forget_partition_count(each.route.topic)
                self._fail(each, refused(reply))
            case Error():
                self._fail(each, broker_error(reply))
            case _:
                self._outbox.come_back(each)
        self.pump()

    def _unblock(self, route: Route) -> None:
        self._outbox.unblock(route)
        self.pump()

    def _too_large(self, each: Batch[asyncio.Future[Receipt]], reason: str) -> None:
        if len(each.records) > 1:
            # One large message must not take its neighbours with it.
            self._begin_epoch()
            self._outbox.split(each)
        else:
            self._fail(each, Refused(Status.TOO_LARGE, reason))

    def _succeed(self, each: Batch[asyncio.Future[Receipt]], answer: ProduceAnswer) -> None:
        topic, partition, timestamp_ms = answer.topic or each.route.topic, answer.partition, answer.timestamp_ms
        known = answer.base_offset >= 0
        for place, future in enumerate(each.tokens):
            if not future.done():
                offset = answer.base_offset + place if known else _NOT_KNOWN
                future.set_result(Receipt(topic, partition, offset, timestamp_ms, answer.lane))
        self._leave(each)

    def _begin_epoch(self) -> None:
        """A batch that had its sequence numbers will not come: what follows must not be taken for a gap."""
        if self._identity is not None:
            self._identity.begin_epoch()

    def _fail(self, each: Batch[asyncio.Future[Receipt]], error: DovetailError) -> None:
        self._begin_epoch()
        for future in each.tokens:
            if not future.done():
                future.set_exception(error)
        self._leave(each)

    def _leave(self, each: Batch[asyncio.Future[Receipt]]) -> None:
        self._outbox.leave(each)
        while self._room and not self._outbox.full:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def _wait_for_room(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._room.append(waiter)
        await waiter

    def _watch_deadlines(self) -> None:
        deadline = self._outbox.oldest_deadline
        self._deadline_timer = None
        if deadline is not None and not self._closed:
            self._deadline_timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        for each in self._outbox.overdue(self._loop.time()):
            if self._home.link is None:
                self._fail(each, Disconnected(f"no connection to the broker for {self._timeout:g} s"))
            else:
                self._fail(each, TimedOut(f"no receipt within {self._timeout:g} s; it may be stored all the same"))
        self._watch_deadlines()
        self.pump()


@lru_cache(_KEPT_NAMES)
def _topic_name(text: str) -> str:
    return names.topic_name(text)


def _size(record: NewRecord) -> int:
    key, value, headers = record
    size = _RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    for name, text in headers:
        size += len(name) + (len(text) if text else 0) + 4
    return size


def _content(what: str, content: Value) -> bytes:
    """As bytes; whatever is neither bytes nor text is refused here, where nobody else's message waits with it."""
    if type(content) is bytes:
        return content
    if isinstance(content, str):
        return content.encode()
    try:
        return bytes(memoryview(content))
    except TypeError:
        raise TypeError(f"a {what} is bytes or str, this is {type(content).__name__}: encode it first") from None


def _record_headers(headers: Headers) -> RecordHeaders:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    named = [(_header_name(name), value) for name, value in pairs]
    return tuple([(name, value if value is None else _content("header's value", value)) for name, value in named])


def _header_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a header's name is str, this is {type(name).__name__}")
    name.encode()  # raises where there are no bytes for it
    return name


def _check_at_least(name: str, value: float, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} is {least} or more, this is {value}")


def _chosen(name: str, known: Mapping[str, V], value: str) -> V:
    found = known.get(value)
    if found is None:
        raise ValueError(f"{name}={value!r} is not known: use one of {', '.join(known)}")
    return found


def lane_number(lane: Priority | None) -> int:
    """A lane as the wire names it: from 1; 0 where none is."""
    return 0 if lane is None else _chosen("lane", _PRIORITIES, lane)
