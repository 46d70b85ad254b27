"""The simulated network: connections between clients and the broker as two pipes of bytes each.

Promises  bytes of a connection arrive in order, as in TCP, and only while both ends have it open; what a partition
          stops arrives when it heals, unless somebody has hung up; what arrives at one instant arrives as one.
Never     changes a byte; a reset may cut a stream anywhere, also inside a frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

DELAY_US = 150
"""Half of a usual round trip."""
SOCKET_BYTES = 64 << 10
"""What the system takes from a sender before it has to wait."""


SPLIT_ONE_IN = 16
"""How often what was sent at once arrives in two pieces, cut anywhere."""


class Scheduler(Protocol):
    """The part of the world that a network needs."""

    @property
    def now_us(self) -> int: ...

    def after(self, delay_us: int, call: Callable[[], None]) -> None: ...


class Link:
    """One client's way to the broker and back; faults change it, connections run over it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.delay_us = DELAY_US
        self.bytes_per_s = 0
        self.blocked = {"to": 0, "from": 0}
        """How many partitions stop each direction."""
        self.lines: list[Line] = []

    def travel_us(self, size: int) -> int:
        """How long `size` bytes take that are sent now."""
        jitter = self.random.randrange(self.delay_us // 2 + 1)
        return self.delay_us + jitter + (size * 1_000_000 // self.bytes_per_s if self.bytes_per_s else 0)

    def block(self, ways: tuple[str, ...]) -> None:
        """Begin a partition."""
        for way in ways:
            self.blocked[way] += 1

    def unblock(self, ways: tuple[str, ...]) -> None:
        """End a partition, if it was not healed before: what was held up moves on."""
        for way in ways:
            self.blocked[way] = max(0, self.blocked[way] - 1)
        for line in list(self.lines):
            line.up.move()
            line.down.move()

    def widen(self) -> None:
        """It is as short and as wide as it was."""
        self.delay_us, self.bytes_per_s = DELAY_US, 0

    def heal(self) -> None:
        """End everything that was done to it."""
        self.widen()
        for way, count in list(self.blocked.items()):
            for _ in range(count):
                self.unblock((way,))


class Pipe:
    """One direction of a connection."""

    def __init__(self, world: Scheduler, link: Link, way: str, arrive: Callable[[bytes, int], None]) -> None:
        self._world = world
        self._link = link
        self._way = way
        self._arrive = arrive
        self._queue: deque[tuple[int, int, bytes]] = deque()  # (due, sent, bytes)
        self._held: deque[tuple[int, bytes]] = deque()  # (sent, bytes), while a partition lasts
        self._last_due_us = 0
        self._size = 0
        self._end: Callable[[], None] | None = None
        self.is_shut = False

    @property
    def waiting_bytes(self) -> int:
        """What the sender's system has not taken yet."""
        return max(0, self._size - SOCKET_BYTES)

    def send(self, data: bytes) -> int:
        """Send bytes; says when they will arrive, -1 if that depends on a partition."""
        if self.is_shut or not data:
            return -1
        now_us = self._world.now_us
        self._size += len(data)
        pieces: tuple[bytes, ...] = (data,)
        if len(data) > 1 and not self._link.random.randrange(SPLIT_ONE_IN):
            at = self._link.random.randrange(1, len(data))
            pieces = (data[:at], data[at:])
        due_us = -1
        for piece in pieces:
            if self._held or self._link.blocked[self._way]:
                self._held.append((now_us, piece))
            else:
                due_us = self._launch(now_us, piece)
        return due_us

    def _launch(self, sent_us: int, data: bytes) -> int:
        due_us = max(self._last_due_us, self._world.now_us + self._link.travel_us(len(data)))
        if self._queue and self._queue[-1][0] == due_us:
            _, first_sent_us, before = self._queue.pop()
            self._queue.append((due_us, first_sent_us, before + data))
        else:
            self._queue.append((due_us, sent_us, data))
            self._world.after(due_us - self._world.now_us, self._land)
        self._last_due_us = due_us
        return due_us

    def move(self) -> None:
        """A partition may be over."""
        if self._link.blocked[self._way]:
            return
        while self._held:
            self._launch(*self._held.popleft())
        if self._end is not None:
            self._finish()

    def _land(self) -> None:
        if self.is_shut or not self._queue:
            return
        _, sent_us, data = self._queue.popleft()
        self._size -= len(data)
        self._arrive(data, sent_us)

    def finish(self, then: Callable[[], None]) -> None:
        """Nothing more is sent: when all has arrived, `then` the other end learns of it."""
        self._end = then
        if not self._held and not self._link.blocked[self._way]:
            self._finish()

    def _finish(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            delay_us = max(self._last_due_us, self._world.now_us + self._link.travel_us(0)) - self._world.now_us
            self._world.after(delay_us, end)

    def shut(self) -> None:
        """Whatever is under way is lost."""
        self.is_shut = True
        self._queue.clear()
        self._held.clear()
        self._end = None
        self._size = 0

    def cut(self, random: Random) -> None:
        """The connection breaks: a part of what is under way arrives at once, the rest never."""
        data = b"".join(data for _, _, data in self._queue)
        part = data[: random.randrange(len(data) + 1)] if data else b""
        self.shut()
        if part:
            self._arrive(part, self._world.now_us)


class End(Protocol):
    """What a connection's two ends are told."""

    def received(self, line: Line, data: bytes, sent_us: int) -> None: ...

    def hung_up(self, line: Line) -> None: ...

    def drained(self, line: Line) -> None: ...


class Line:
    """One connection. `client_open` and `broker_open` say which end still has it."""

    def __init__(self, number: int, name: str, world: Scheduler, link: Link, client: End, broker: End) -> None:
        self.number = number
        self.name = name
        self.session = 0
        self.client_open = True
        self.broker_open = True
        self._link = link
        self._client = client
        self._broker = broker
        self.up = Pipe(world, link, "to", self._at_broker)
        self.down = Pipe(world, link, "from", self._at_client)
        link.lines.append(self)

    def _at_broker(self, data: bytes, sent_us: int) -> None:
        if self.broker_open:
            self._broker.received(self, data, sent_us)

    def _at_client(self, data: bytes, sent_us: int) -> None:
        if self.client_open:
            self._client.received(self, data, sent_us)
        if self.broker_open:
            self._broker.drained(self)

    def close_by_client(self, silent: bool = False) -> None:
        """The client hangs up; a machine that vanished does not even say so."""
        if self.client_open:
            self.client_open = False
            self.down.shut()
            if not silent:
                self.up.finish(self._broker_learns)

    def close_by_broker(self, silent: bool = False) -> None:
        """The broker hangs up, after what it has sent."""
        if self.broker_open:
            self.broker_open = False
            self.up.shut()
            if not silent:
                self.down.finish(self._client_learns)
            self._forget()

    def knock(self) -> None:
        """The client sends to a broker that has forgotten the connection: it is told so."""
        if not self.broker_open and self.client_open and not any(self._link.blocked.values()):
            self._client_learns()

    def reset(self, random: Random) -> None:
        """Something between the two broke the connection."""
        self.up.cut(random)
        self.down.cut(random)
        self._broker_learns()
        self._client_learns()

    def _broker_learns(self) -> None:
        if self.broker_open:
            self.broker_open = False
            self.up.shut()
            self._broker.hung_up(self)
            self._forget()

    def _client_learns(self) -> None:
        if self.client_open:
            self.client_open = False
            self.down.shut()
            self._client.hung_up(self)

    def _forget(self) -> None:
        if self in self._link.lines:
            self._link.lines.remove(self)
