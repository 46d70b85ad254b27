"""What a producer has taken and the broker has not yet confirmed: collected, sent, sent again.

Messages whose order counts share a lane: those for one topic, partition and priority. Where the broker chooses the
partition there is no order to keep, and they share one by delay and ttl, too. A lane collects one open batch; it is
sent when it is full or ripe (the linger time is over), or when a message of another delay or ttl follows, as long as
fewer than `in_flight_max` batches are under way. While they all are, ripe batches go on growing, so that a slow broker
gets larger batches instead of more.

Promises  of the batches that a lane has to send, the one opened first goes first, also among those that came back
          after a lost connection or, once their lane's wait is over, after BUSY; every message added
          leaves through `leave`, exactly once; no lane is kept that holds nothing.
Never     looks at a clock or a socket, builds bytes, or knows what a token is.
"""

import math
from bisect import insort
from collections import deque
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from dovetail.core.batch import NewRecord
from dovetail.runtime.client.partitioning import ANY

T = TypeVar("T")

Stream: TypeAlias = tuple[str, int, int, int, int]
"""What leaves in the order in which it came: a topic, partition and priority; with `ANY` a delay and ttl, too."""


class Route(Struct, frozen=True, order=True):
    """What all messages of one batch have in common."""

    topic: str
    partition: int
    delay_ms: int = 0
    ttl_ms: int = 0
    priority: int = 0

    @property
    def stream(self) -> Stream:
        """Which other routes' messages it must not overtake."""
        if self.partition == ANY:
            return self.topic, ANY, self.priority, self.delay_ms, self.ttl_ms
        return self.topic, self.partition, self.priority, 0, 0


class Batch(Generic[T]):
    """Messages on their way together; `tokens[i]` stands for whoever waits for `records[i]`."""

    __slots__ = ("data", "deadline", "number", "order", "records", "route", "size_bytes", "tokens", "tries")

    def __init__(self, number: int, route: Route, deadline: float) -> None:
        self.number = number
        self.order = (number, 0)  # among the batches of its lane
        self.route = route
        self.deadline = deadline
        self.records: list[NewRecord] = []
        self.tokens: list[T] = []
        self.size_bytes = 0
        self.tries = 0
        self.data = b""  # as it was sent, for when it must be sent again


class _Lane(Generic[T]):
    __slots__ = ("blocked", "closed", "in_flight", "listed", "open", "ripe")

    def __init__(self) -> None:
        self.open: Batch[T] | None = None
        self.closed: list[Batch[T]] = []  # in their order
        self.in_flight = 0
        self.ripe = False
        self.blocked = False
        self.listed = False  # in the ring of lanes that have something to send

    @property
    def sendable(self) -> bool:
        return not self.blocked and bool(self.closed or (self.ripe and self.open is not None))

    @property
    def empty(self) -> bool:
        return not (self.open or self.closed or self.in_flight)


class Outbox(Generic[T]):
    def __init__(self, *, batch_bytes: int, in_flight_max: int, messages_max: int, bytes_max: int) -> None:
        self.messages = 0
        self.size_bytes = 0
        self._batch_bytes = batch_bytes
        self._in_flight_max = in_flight_max
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._lanes: dict[Stream, _Lane[T]] = {}
        self._ring: deque[Stream] = deque()
        self._batches: dict[int, Batch[T]] = {}  # all there are, oldest first
        self._in_flight: dict[int, Batch[T]] = {}
        self._next_number = 0

    @property
    def full(self) -> bool:
        """Whether whoever wants to add must wait."""
        return self.messages >= self._messages_max or self.size_bytes >= self._bytes_max

    @property
    def ready(self) -> bool:
        """Whether `next` would hand something out, or at least look."""
        return bool(self._ring) and len(self._in_flight) < self._in_flight_max

    @property
    def oldest_deadline(self) -> float | None:
        """The deadline that ends first."""
        return min((batch.deadline for batch in self._batches.values()), default=None)

    def add(self, route: Route, record: NewRecord, size_bytes: int, token: T) -> Batch[T] | None:
        """Take a message. If it opened a batch, gives that: its linger time begins, and it needs a deadline."""
        stream = route.stream
        lane = self._lanes.get(stream)
        if lane is None:
            lane = self._lanes[stream] = _Lane()
        batch = lane.open
        if batch is not None and (batch.size_bytes + size_bytes > self._batch_bytes or batch.route != route):
            self._close(stream, lane, batch)
            batch = None
        opened = None
        if batch is None:
            batch = lane.open = opened = self._new_batch(route, math.inf)
        batch.records.append(record)
        batch.tokens.append(token)
        batch.size_bytes += size_bytes
        self.messages += 1
        self.size_bytes += size_bytes
        if batch.size_bytes >= self._batch_bytes:
            self._close(stream, lane, batch)
        return opened

    def ripen(self) -> None:
        """The linger time is over: whatever is open may be sent."""
        for stream, lane in self._lanes.items():
            if lane.open is not None:
                lane.ripe = True
                self._list(stream, lane)

    def next(self) -> Batch[T] | None:
        """The next batch to send, which is then under way; None while there is none, or enough are."""
        while self.ready:
            stream = self._ring.popleft()
            lane = self._lanes[stream]
            lane.listed = False
            if not lane.sendable:
                self._forget_if_empty(stream, lane)
                continue
            batch = self._take(lane)
            self._list(stream, lane)
            lane.in_flight += 1
            batch.tries += 1
            self._in_flight[batch.number] = batch
            return batch
        return None

    def leave(self, batch: Batch[T]) -> None:
        """The batch was answered for good, or nobody waits any longer: it goes, from wherever it is."""
        lane = self._lanes.get(batch.route.stream)
        if lane is None or batch.number not in self._batches:
            return
        self._remove(batch, lane)
        self.messages -= len(batch.records)
        self.size_bytes -= batch.size_bytes
        self._forget_if_empty(batch.route.stream, lane)

    def come_back(self, batch: Batch[T]) -> None:
        """The connection was lost before the answer: the batch is to be sent again, in its old place."""
        if self._in_flight.pop(batch.number, None) is None:
            return
        lane = self._lanes[batch.route.stream]
        lane.in_flight -= 1
        insort(lane.closed, batch, key=_order)
        self._list(batch.route.stream, lane)

    def block(self, batch: Batch[T]) -> None:
        """The broker is busy: the batch comes back, and its lane waits for `unblock`."""
        if batch.number in self._in_flight:
            self._lanes[batch.route.stream].blocked = True
            self.come_back(batch)

    def unblock(self, route: Route) -> None:
        """A busy lane may send again."""
        lane = self._lanes.get(route.stream)
        if lane is not None:
            lane.blocked = False
            self._list(route.stream, lane)

    def split(self, batch: Batch[T]) -> None:
        """Send each message of a batch under way in a batch of its own: one of them is not acceptable."""
        if batch.number not in self._in_flight:
            return
        lane = self._lanes[batch.route.stream]
        self._remove(batch, lane)
        share, rest = divmod(batch.size_bytes, len(batch.records))
        for place, (record, token) in enumerate(zip(batch.records, batch.tokens, strict=True)):
            single: Batch[T] = self._new_batch(batch.route, batch.deadline)
            single.order = (batch.order[0], batch.order[1] + place)
            single.records.append(record)
            single.tokens.append(token)
            single.size_bytes = share if place else share + rest
            insort(lane.closed, single, key=_order)
        self._list(batch.route.stream, lane)

    def overdue(self, now: float) -> list[Batch[T]]:
        """The batches whose deadline has passed, oldest first."""
        return [batch for batch in self._batches.values() if batch.deadline <= now]

    def all(self) -> list[Batch[T]]:
        """Every batch there is, oldest first."""
        return list(self._batches.values())

    def _new_batch(self, route: Route, deadline: float) -> Batch[T]:
        batch: Batch[T] = Batch(self._next_number, route, deadline)
        self._batches[batch.number] = batch
        self._next_number += 1
        return batch

    def _close(self, stream: Stream, lane: _Lane[T], batch: Batch[T]) -> None:
        lane.closed.append(batch)
        lane.open = None
        lane.ripe = False
        self._list(stream, lane)

    def _take(self, lane: _Lane[T]) -> Batch[T]:
        if lane.closed:
            return lane.closed.pop(0)
        batch = lane.open
        if batch is None:
            raise AssertionError("a lane was sendable but holds nothing")
        lane.open = None
        lane.ripe = False
        return batch

    def _list(self, stream: Stream, lane: _Lane[T]) -> None:
        if lane.sendable and not lane.listed:
            lane.listed = True
            self._ring.append(stream)

    def _remove(self, batch: Batch[T], lane: _Lane[T]) -> None:
        del self._batches[batch.number]
        if self._in_flight.pop(batch.number, None) is not None:
            lane.in_flight -= 1
        elif lane.open is batch:
            lane.open = None
            lane.ripe = False
        else:
            lane.closed.remove(batch)

    def _forget_if_empty(self, stream: Stream, lane: _Lane[T]) -> None:
        if lane.empty and not lane.listed:
            del self._lanes[stream]


def _order(batch: Batch[T]) -> tuple[int, int]:
    return batch.order
