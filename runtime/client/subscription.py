"""A stream of messages that outlives connections.

Promises  messages come in the order in which the broker sent them; what was delivered under a lease by a
          connection that is lost is dropped here, because the broker delivers it again; what was settled by being
          sent (auto_ack) is kept; no more than `max_inflight` leased messages, or `BUFFER_BYTES_MAX` of settled ones
          and one delivery, wait here at a time; the leases of messages that wait here are extended while others are
          taken, so that a slow consumer does not lose what it was sent ahead, and one that hangs does.
Never     settles for you, except what a compacted log no longer holds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from functools import partial
from operator import length_hint
from types import TracebackType
from typing import Final, Protocol
from weakref import ref

from dovetail.core import batch
from dovetail.core.batch import BatchError, Record
from dovetail.core.codes import NackReason, SettleAction
from dovetail.core.wire import Deliver, Error, Range, Refusal, SettleItem, Subscribe, SubscribeAnswer, Unsubscribe
from dovetail.runtime.client.durations import Duration, seconds
from dovetail.runtime.client.errors import DovetailError, TimedOut, broker_error, refused
from dovetail.runtime.client.exchange import Reply
from dovetail.runtime.client.link import Link, ignore
from dovetail.runtime.client.membership import Membership, Place
from dovetail.runtime.client.message import Delivery, Message
from dovetail.runtime.storage.codecs import CODECS

log = logging.getLogger("dovetail.client")

BUFFER_BYTES_MAX: Final = 8 * 1024 * 1024
_POLITE: Final = 64  # messages handed out before others on the event loop get their turn
_LEASE_MS: Final = 30_000  # a lease's length where the two clocks are too far apart to tell
_LEASE_MS_MAX: Final = 3_600_000


class Home(Protocol):
    """The client that a subscription belongs to."""

    def subscription_closed(self, subscription: Subscription) -> None: ...


class _Held:
    """A delivery that was not handed out completely."""

    __slots__ = ("delivery", "last_offset", "lease_ms", "records", "size_bytes")

    def __init__(self, delivery: Delivery, records: list[Record], size_bytes: int) -> None:
        self.delivery = delivery
        self.records: Iterator[Record] = iter(records)
        self.last_offset = records[-1].offset
        self.size_bytes = size_bytes
        self.lease_ms = lease_length_ms(delivery.deadline_ms, time.time_ns() // 1_000_000) if delivery.lease else 0

    @property
    def is_leased(self) -> bool:
        """Whether messages wait here whose lease can end."""
        return self.delivery.lease != 0 and length_hint(self.records) > 0


class Subscription:
    """`async for message in subscription`. Leave it with `async with`, or `close` it."""

    def __init__(self, home: Home, request: Subscribe, timeout: float, membership: Membership | None = None) -> None:
        self._last_batch = LastBatch()
        self._home = home
        self._request = request
        self._membership = membership
        self._timeout = timeout
        self._held: deque[_Held] = deque()
        self._held_bytes = 0
        self._arrived = asyncio.Event()
        self._joined = asyncio.Event()
        self._link: Link | None = None
        self._id = ""
        self._holds_reading = False
        self._closed = False
        self._failure: DovetailError | None = None
        self._handed_out = 0
        self._handed_out_before = 0  # when leases were looked after last
        self._lease_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def pattern(self) -> str:
        return self._request.pattern

    @property
    def group(self) -> str:
        """The group's name; empty without one."""
        return self._request.group

    @property
    def assigned(self) -> frozenset[Place]:
        """The partitions, each a topic and a number, that the broker has given to us as a member of a partitioned
        group; empty in any other."""
        return self._membership.assigned if self._membership is not None else frozenset()

    @property
    def generation(self) -> int:
        """The generation of that assignment."""
        return self._membership.generation if self._membership is not None else 0

    async def ready(self) -> None:
        """Wait until the broker has taken the subscription: what is published from then on arrives here."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._joined.wait()
        except TimeoutError:
            raise TimedOut(f"no answer to the subscription to {self.pattern!r} within {self._timeout:g} s") from None
        if self._failure is not None:
            raise self._failure

    async def take(self, count_max: int = 100, *, timeout: Duration | None = None) -> list[Message]:
        """Wait for a message, then take all that are here, up to `count_max`; none if `timeout` comes first, or
        if the subscription was closed."""
        if count_max < 1:
            raise ValueError(f"count_max is 1 or more, this is {count_max}")
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                # What is held may be a delivery whose last message was taken: only a message counts.
                while (message := self._next()) is None and not self._closed:
                    await self._wait()
        except TimeoutError:
            return []
        messages: list[Message] = []
        while message is not None:
            messages.append(message)
            message = self._next() if len(messages) < count_max else None
        return messages

    async def close(self) -> None:
        """Take no more. Messages that wait here are not lost: their leases return to the group, uncounted."""
        if self._closed:
            return
        link, id = self._link, self._id
        self.stop()
        self._home.subscription_closed(self)
        if link is None or not link.usable or not id:
            return
        link.flush()
        link.routes.pop(id, None)
        done = self._loop.create_future()
        link.ask(Unsubscribe(id), lambda reply: None if done.done() else done.set_result(None))
        try:
            async with asyncio.timeout(self._timeout):
                await done
        except TimeoutError:
            raise TimedOut(f"no answer to the end of the subscription to {self.pattern!r}") from None

    async def __aenter__(self) -> Subscription:
        await self.ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        self._handed_out += 1
        if self._handed_out % _POLITE == 0:
            await asyncio.sleep(0)
        while True:
            message = self._next()
            if message is not None:
                return message
            if self._closed:
                raise StopAsyncIteration
            await self._wait()

    def __del__(self) -> None:
        # Nobody reads it any longer, but the broker would go on leasing messages to it: their deadlines would pass,
        # and count as failures. The garbage collector may run in any thread.
        if not self._closed and self._link is not None and self._id and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_abandon, self._link, self._id, self._holds_reading)

    def attach(self, link: Link) -> None:
        """A connection is there: subscribe on it."""
        self._link = link
        link.ask(self._request, partial(self._answered, link))

    def detach(self) -> None:
        """The connection is gone, and with it every lease."""
        self._link = None
        self._id = ""
        self._holds_reading = False
        self._held = deque(held for held in self._held if held.delivery.lease == 0)
        self._held_bytes = sum(held.size_bytes for held in self._held)
        self._stop_timer()
        self._update_arrived()

    def give_up(self, places: frozenset[Place]) -> None:
        """Partitions are wanted back: what waits here of them returns to the group."""
        kept = [held for held in self._held if (held.delivery.topic, held.delivery.partition) not in places]
        self._held = deque(kept)
        self._held_bytes = sum(held.size_bytes for held in kept)
        self._update_arrived()

    def stop(self) -> None:
        """Hand out no more messages. Those handed out keep their leases, until `close` or the client's end."""
        self._release_reading()
        self._stop_timer()
        self._closed = True
        self._held.clear()
        self._held_bytes = 0
        self._arrived.set()
        self._joined.set()

    def fail(self, error: DovetailError) -> None:
        """It can't go on: whoever waits gets `error`."""
        self._failure = self._failure or error
        self._arrived.set()
        self._joined.set()

    def deliver(self, link: Link, deliver: Deliver) -> None:
        """A DELIVER for this subscription came in."""
        if self._closed:
            return
        settler = self._membership.settler(link, (deliver.topic, deliver.partition)) if self._membership else link
        delivery = Delivery(deliver, settler)
        try:
            records = leased(deliver, self._last_batch)
        except BatchError as error:
            log.error("%s:%d can't be read: %s", deliver.topic, deliver.partition, error)
            settle_ranges(link, deliver, SettleAction.NACK, f"the consumer can't read the batch: {error}")
            return
        if deliver.lease:
            for first, last in holes(deliver.ranges, records):
                link.settle(SettleItem(deliver.lease, SettleAction.ACK, first, last))
        if not records:
            return
        held = _Held(delivery, records, len(deliver.batches))
        self._held.append(held)
        self._held_bytes += held.size_bytes
        self._arrived.set()
        if held.lease_ms and self._lease_timer is None:
            self._look_after_leases_in(held.lease_ms)
        if deliver.lease == 0 and self._held_bytes > BUFFER_BYTES_MAX and not self._holds_reading:
            self._holds_reading = True
            link.hold_reading()

    def _answered(self, link: Link, reply: Reply) -> None:
        if self._closed:
            if isinstance(reply, SubscribeAnswer):
                link.ask(Unsubscribe(reply.subscription_id), ignore)
            return
        match reply:
            case SubscribeAnswer():
                self._id = reply.subscription_id
                link.routes[self._id] = self
                self._joined.set()
            case Refusal() if reply.retry_after_ms:
                self._loop.call_later(reply.retry_after_ms / 1000, self._again, link)
            case Refusal():
                self.fail(refused(reply))
            case Error():
                self.fail(broker_error(reply))
            case _:
                """The connection is lost; the client attaches the next one."""

    def _again(self, link: Link) -> None:
        if link is self._link and not self._closed:
            self.attach(link)

    def _look_after_leases_in(self, lease_ms: int) -> None:
        # A third of the lease: two looks may come too late and the third is still in time.
        self._lease_timer = self._loop.call_later(lease_ms / 3000, _look_after_leases, ref(self))

    def look_after_leases(self) -> None:
        """Extend what waits here if something was taken since the last look."""
        self._lease_timer = None
        waiting = [held for held in self._held if held.is_leased]
        if not waiting or self._link is None:
            return
        if self._handed_out != self._handed_out_before:
            self._handed_out_before = self._handed_out
            for held in waiting:
                place = held.last_offset
                lease = held.delivery.lease
                self._link.settle(SettleItem(lease, SettleAction.EXTEND, place, place, 0, held.lease_ms))
        self._look_after_leases_in(min(held.lease_ms for held in waiting))

    def _stop_timer(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        await self._arrived.wait()

    def _next(self) -> Message | None:
        while self._held:
            held = self._held[0]
            for record in held.records:
                return Message(record, held.delivery, self)
            self._held.popleft()
            self._held_bytes -= held.size_bytes
            if self._held_bytes < BUFFER_BYTES_MAX // 2:
                self._release_reading()
        self._update_arrived()
        return None

    def _update_arrived(self) -> None:
        if not (self._held or self._closed or self._failure):
            self._arrived.clear()

    def _release_reading(self) -> None:
        if self._holds_reading and self._link is not None:
            self._holds_reading = False
            self._link.release_reading()


def _look_after_leases(subscription: ref[Subscription]) -> None:
    # A timer must not keep alive what nobody else refers to.
    if (alive := subscription()) is not None:
        alive.look_after_leases()


def _abandon(link: Link, id: str, holds_reading: bool) -> None:
    if holds_reading:
        link.release_reading()
    if link.usable:
        link.flush()
        link.ask(Unsubscribe(id), ignore)


def lease_length_ms(deadline_ms: int, wall_ms: int) -> int:
    """How long a lease is that has just been granted, by a broker whose clock may differ a little from ours."""
    length = deadline_ms - wall_ms
    return length if 0 < length <= _LEASE_MS_MAX else _LEASE_MS


class LastBatch:
    """The batch that was read last: a packed one comes again whole for each range that is leased of it."""

    __slots__ = ("_head", "_records")

    def __init__(self) -> None:
        self._head = b""
        self._records: list[Record] = []

    def read(self, data: bytes) -> list[Record]:
        """The records of a batch. Its head has its offset and its checksum: two of one head are the same."""
        head = data[: batch.HEADER_BYTES]
        if head != self._head:
            self._records = batch.parse(data, codecs=CODECS)
            self._head = head
        return self._records


def leased(deliver: Deliver, last: LastBatch) -> list[Record]:
    """The records of a delivery that lie in its ranges; the rest of its batches belongs to others."""
    records: list[Record] = []
    for _, data in batch.split(deliver.batches):
        records += last.read(data)
    if not records:
        return records
    ranges = deliver.ranges
    if len(ranges) == 1 and ranges[0][0] <= records[0].offset and records[-1].offset <= ranges[0][1]:
        return records
    return [record for record in records if any(first <= record.offset <= last for first, last in ranges)]


def holes(ranges: tuple[Range, ...], records: list[Record]) -> list[Range]:
    """The parts of the leased ranges for which there is no record: compaction has removed them."""
    if sum(last - first + 1 for first, last in ranges) == len(records):
        return []
    found: list[Range] = []
    offsets = iter([record.offset for record in records])
    offset = next(offsets, None)
    for first, last in ranges:
        at = first
        while offset is not None and offset <= last:
            if offset > at:
                found.append((at, offset - 1))
            at = offset + 1
            offset = next(offsets, None)
        if at <= last:
            found.append((at, last))
    return found


def settle_ranges(link: Link, deliver: Deliver, action: SettleAction, error: str) -> None:
    """Settle all of a delivery alike."""
    if deliver.lease:
        for first, last in deliver.ranges:
            link.settle(SettleItem(deliver.lease, action, first, last, NackReason.PROCESSING_ERROR, 0, error[:1000]))
