"""A broker for the tests of programs that use Dovetail: in process, in virtual time, failing on command.

It is no imitation: core, connection, committer and storage engine are those that run in production, over the
simulator's disk, network and clocks; the program under test uses the same client as ever. An hour of backoff takes
milliseconds, a crash loses exactly what a crash would lose, and one seed decides everything.

    from dovetail import connect
    from dovetail.testing import Broker

    async def a_payment_survives_a_crash(broker: Broker) -> None:
        async with connect() as dv:
            await dv.publish("payments", "10 EUR")
            broker.crash()
            async for payment in dv.subscribe("payments", group="ledger"):
                await payment.ack()
                break
        await broker.settled("ledger")

    broker = Broker(seed=7)
    broker.run(a_payment_survives_a_crash(broker))

With pytest, ask for the fixture `dovetail_broker` in an `async def test_…`; `docs/testing.md` has the whole of it.

Promises  the same test with the same seed gives the same run; whatever the broker sends is checked as in Dovetail's own
          campaigns: a broken promise of the broker fails the test and names the promise.
Never     touches a socket, a thread, a file or the machine's clock.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, Literal, TypeVar
from unittest import mock

from dovetail.core.ids import check
from dovetail.core.intervals import total
from dovetail.core.trace import Row
from dovetail.runtime.client import App, Client, Message, connect
from dovetail.runtime.client import client as client_module
from dovetail.runtime.client.client import Partition
from dovetail.runtime.client.durations import Duration, milliseconds
from dovetail.runtime.client.producer import Priority
from dovetail.sim import dice, plan, replay_page
from dovetail.sim.checkers import WALL_MS
from dovetail.sim.plan import Topic
from dovetail.sim.run import CHECK_EVERY
from dovetail.sim.trace import Trace
from dovetail.sim.world import World
from dovetail.testing.loop import Stalled, VirtualLoop
from dovetail.testing.wires import Peer, Peers

__all__ = ["Broker", "Stalled", "Topic"]

Moment = Literal["confirm", "deliver", "settle", "settled", "sync"]
"""Right after the broker confirmed a publish, sent a delivery, heard a settle, answered a settle, or began a sync."""
Way = Literal["both", "to", "from"]
Who = Client | App | str

T = TypeVar("T")

ONLOOKER = "the test itself"
"""The client that looks for `messages`: no fault strikes it."""
ROWS_KEPT = 200_000
LOOK_S = 0.01
CHECKPOINT_MS = 60_000
CHAOS_US = 700_000
"""The longest time between two faults of chaos."""
CHAOS_S = 60
LANES: tuple[Priority | None, ...] = (None, "critical", "high", "normal", "low", "background")
"""By their numbers; 0 where a topic has none."""


class Broker:
    """A broker, and the world around it. Make one for each test.

    seed             decides everything that chance decides: network delays, what a power loss takes, chaos
    lease            how long a message is leased for; default 30s, as in production
    max_retries      attempts after the first; default 3
    session_timeout  how long a silent client is believed to live; default 30s
    topics           made before the test begins: names, or `Topic(name, partitions=…, lanes=…)`; others are made on
                     their first use
    chaos            faults at random times, about three a second, for a minute or until `calm`
    limit            how much virtual time a test may take before it fails with `Stalled`; default 1d
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        lease: Duration = "30s",
        max_retries: int = 3,
        session_timeout: Duration = "30s",
        topics: Iterable[Topic | str] = (),
        chaos: bool = False,
        limit: Duration = "1d",
    ) -> None:
        self.seed = seed
        self._limit_us = milliseconds(limit) * 1000
        self._rows: deque[Row] = deque(maxlen=ROWS_KEPT)
        setup = plan.Plan(
            name="test",
            seed=seed,
            broker=plan.Broker(
                lease_ms=milliseconds(lease),
                max_retries=max_retries,
                session_timeout_ms=milliseconds(session_timeout),
                checkpoint_ms=CHECKPOINT_MS,
            ),
            topics=tuple(Topic(each) if isinstance(each, str) else each for each in topics),
        )
        self._world = World(setup, Trace(self._rows.append), CHECK_EVERY)
        self._peers: Peers | None = None
        self._random = dice.stream(seed, "chaos")
        self._has_chaos = chaos

    # Running

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        """Run a test to its end, in virtual time; gives what it returns."""
        world = self._world
        loop = VirtualLoop(world, self._limit_us)
        self._peers = Peers(loop, world)
        loop.connect = self._peers.connect
        world.broker.start()
        if self._has_chaos:
            self._strike_later()
        with ExitStack() as stack:
            stack.enter_context(_chance_and_time(self.seed, world))
            runner = stack.enter_context(asyncio.Runner(loop_factory=lambda: loop))
            return runner.run(self._begin(test))

    async def _begin(self, test: Coroutine[Any, Any, T]) -> T:
        try:
            await self._until_up()
        except BaseException:
            test.close()
            raise
        return await test

    async def _until_up(self) -> None:
        while not self._world.broker.is_up:
            await asyncio.sleep(LOOK_S)

    # Time

    @property
    def now(self) -> float:
        """Seconds since this world began."""
        return self._world.now_us / 1_000_000

    async def advance(self, duration: Duration) -> None:
        """Let time pass, with all that happens in it."""
        await asyncio.sleep(milliseconds(duration) / 1000)

    # Faults

    def crash(self, *, power: bool = True, down: Duration = "100ms", on: Moment | None = None) -> None:
        """The broker dies, and comes back after `down`.

        power  True: of what was not synced, any part is lost; False: the process alone is killed
        on     not now, but right after the next such moment: "deliver" dies between a delivery and its ack
        """
        self._world.happen(plan.Crash(at_ms=self._now_ms, power=power, down_ms=milliseconds(down), on=on or ""))

    def pause(self, duration: Duration) -> None:
        """The broker stands still, as under SIGSTOP, and goes on as if nothing had happened."""
        self._world.happen(plan.PauseBroker(at_ms=self._now_ms, for_ms=milliseconds(duration)))

    def jump_clock(self, by: Duration, *, back: bool = False) -> None:
        """The broker's wall clock jumps ahead, or back."""
        ms = milliseconds(by)
        self._world.happen(plan.JumpClock(at_ms=self._now_ms, by_ms=-ms if back else ms))

    def slow_disk(self, duration: Duration, *, factor: int = 20) -> None:
        """Disk operations take so many times as long."""
        self._world.happen(plan.SlowDisk(at_ms=self._now_ms, for_ms=milliseconds(duration), factor=factor))

    def fill_disk(self, duration: Duration, *, free_bytes: int = 4096) -> None:
        """Only so many more bytes fit on the disk, for a while."""
        self._world.happen(plan.FillDisk(at_ms=self._now_ms, for_ms=milliseconds(duration), free_bytes=free_bytes))

    def fail_disk(
        self,
        op: Literal["sync", "write", "read", "create"] = "sync",
        *,
        kind: Literal["io", "denied", "descriptors", "full"] = "io",
        times: int = 1,
    ) -> None:
        """The next operations of a kind fail. After a failed sync the broker ends, and is started again."""
        self._world.happen(plan.FailDisk(at_ms=self._now_ms, op=op, kind=kind, times=times))

    def drop(self, who: Who | None = None) -> None:
        """Break a client's connection, or everybody's: what is under way may arrive in part. It connects again by
        itself; what it held is delivered again."""
        for peer in self._chosen(who):
            self._note(peer, "Reset")
            for transport in list(peer.transports):
                transport.line.reset(self._random)

    def partition(self, who: Who | None = None, *, duration: Duration, way: Way = "both") -> None:
        """Nothing passes between a client and the broker, in both directions or `to` or `from` the broker."""
        ways = ("to", "from") if way == "both" else (way,)
        for peer in self._chosen(who):
            self._note(peer, "Partition", milliseconds(duration))
            peer.link.block(ways)
            self._world.after(milliseconds(duration) * 1000, partial(peer.link.unblock, ways))

    def slow(
        self, who: Who | None = None, *, duration: Duration, delay: Duration = "200ms", bytes_per_s: int = 0
    ) -> None:
        """A client's way to the broker is long, or narrow."""
        for peer in self._chosen(who):
            self._note(peer, "Slow", milliseconds(duration))
            peer.link.delay_us, peer.link.bytes_per_s = milliseconds(delay) * 1000, bytes_per_s
            self._world.after(milliseconds(duration) * 1000, peer.link.widen)

    def calm(self) -> None:
        """End chaos, partitions, slow links and a full disk: from here on nothing fails."""
        self._has_chaos = False
        self._world.calm()
        for peer in self._peers or ():
            peer.link.heal()

    # Looking

    async def messages(self, topic: str) -> list[Message]:
        """Everything a topic holds now, in order of partition, lane and offset. Its dead letters: `topic + ".dlq"`."""
        found: list[Message] = []
        async with connect(name=ONLOOKER) as dv:
            for each in await dv.topics(topic):
                for log in each.partitions:
                    found += await _read(dv, each.name, log)
        return found

    def lag(self, group: str) -> int:
        """How many messages a group has not settled; 0 for a group that is not there."""
        node = self._world.broker.life.node
        if node is None:
            return 0
        durable = node.state.durable
        number = durable.groups_by_name.get(group)
        return sum(
            durable.logs[log].end - cursor.floor - total(cursor.islands)
            for (owner, log), cursor in durable.cursors.items()
            if owner == number
        )

    async def settled(self, group: str, *, within: Duration = "10m") -> None:
        """Wait until a group has settled everything: acknowledged it, or given it up as dead letters."""
        until = self.now + milliseconds(within) / 1000
        while True:
            await self._until_up()
            node = self._world.broker.life.node
            if node is not None and group in node.state.durable.groups_by_name and not self.lag(group):
                return
            if self.now >= until:
                raise AssertionError(f"{group} has not settled {self.lag(group)} messages after {within}")
            await asyncio.sleep(LOOK_S)

    @property
    def hash(self) -> str:
        """Of all that has passed on the wire and struck: the same test and seed give the same."""
        return self._world.trace.hash

    def write_page(self, path: str, title: str = "A test's run") -> None:
        """Write what has happened as a page to look at: who did what when, and what struck."""
        summary = {"seed": self.seed, "virtual seconds": self.now, "faults": self._world.faults, "hash": self.hash}
        replay_page.write_page(path, self._rows, title, summary)

    # Inside

    @property
    def _now_ms(self) -> int:
        return self._world.now_us // 1000

    def _note(self, peer: Peer, fault: str, for_ms: int = 0) -> None:
        self._world.faults += 1
        self._world.note(peer.name, "fault", fault=fault, latency_us=for_ms * 1000)

    def _chosen(self, who: Who | None) -> list[Peer]:
        peers = [peer for peer in self._peers or () if peer.name != ONLOOKER]
        if who is None:
            return peers
        client = who.client if isinstance(who, App) else who
        name = client if isinstance(client, str) else client.name
        found = [peer for peer in peers if peer.name == name]
        if not found:
            known = ", ".join(peer.name for peer in peers) or "nobody"
            raise ValueError(f"no client {name!r} has connected so far, but {known}")
        return found

    def _strike_later(self) -> None:
        self._world.after(self._random.randrange(CHAOS_US), self._strike)

    def _strike(self) -> None:
        """A fault by chance."""
        if not self._has_chaos or self.now > CHAOS_S:
            return
        self._strike_later()
        chance = self._random
        if not any(peer.transports for peer in self._peers or ()):
            return
        for_ms = chance.randrange(20, 1_000)
        who = chance.choice(self._chosen(None)).name if self._chosen(None) else None
        match chance.randrange(8):
            case 0 | 1:
                moment: Moment | None = chance.choice((None, "confirm", "deliver", "settle", "settled", "sync"))
                self.crash(power=bool(chance.randrange(2)), down=f"{for_ms}ms", on=moment)
            case 2 | 3:
                self.drop(who)
            case 4:
                self.partition(who, duration=f"{for_ms}ms", way=chance.choice(("both", "to", "from")))
            case 5:
                self.slow(who, duration=f"{for_ms}ms", delay=f"{chance.randrange(10, 300)}ms")
            case 6:
                self.slow_disk(f"{for_ms}ms")
            case _:
                self.pause(f"{for_ms}ms")


async def _read(dv: Client, topic: str, log: Partition) -> list[Message]:
    """All that a log holds between its start and its end."""
    found: list[Message] = []
    offset = log.start
    while offset < log.end:
        fetched = await dv.fetch(topic, partition=log.partition, lane=LANES[log.lane], offset=offset)
        check(fetched.next_offset > offset, "I-DENSE", topic, log, fetched)
        found += fetched.messages
        offset = fetched.next_offset
    return found


@contextmanager
def _chance_and_time(seed: int, world: World) -> Iterator[None]:
    """What a program asks of chance and of the clock is the world's: names, backoff, `random`, `time.time`."""

    def wall_ns() -> int:
        return (WALL_MS * 1000 + world.now_us) * 1000

    def wall_s() -> float:
        return wall_ns() / 1e9

    names = Random(f"{seed}/names")
    made_up = SimpleNamespace(token_hex=lambda size: names.randbytes(size).hex())
    before = random.getstate()
    random.seed(seed)
    try:
        with (
            mock.patch.object(client_module, "secrets", made_up),
            mock.patch.object(time, "time_ns", wall_ns),
            mock.patch.object(time, "time", wall_s),
        ):
            yield
    finally:
        random.setstate(before)
