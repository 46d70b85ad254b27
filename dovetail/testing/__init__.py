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
import contextvars
import itertools
import os
import random
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Literal, TypeVar, get_args
from unittest import mock

try:
    import simpy  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("the test broker needs simpy: install Dovetail with its extra `testing`") from error

from dovetail.core.ids import check
from dovetail.core.intervals import total
from dovetail.core.trace import Row
from dovetail.runtime.client import App, Client, Message, connect
from dovetail.runtime.client import client as client_module
from dovetail.runtime.client.client import Partition
from dovetail.runtime.client.durations import Duration, milliseconds
from dovetail.runtime.client.producer import Priority
from dovetail.sim import dice, plan, replay_page
from dovetail.sim.checkers import WALL_MS, Violated
from dovetail.sim.plan import Topic
from dovetail.sim.run import CHECK_EVERY
from dovetail.sim.trace import Trace
from dovetail.sim.world import World
from dovetail.testing.loop import Stalled, VirtualLoop
from dovetail.testing.programs import LIFE, Life, Main, Program
from dovetail.testing.wires import Peer, Peers

__all__ = ["Broker", "Program", "Stalled", "Topic", "Violated"]

Moment = Literal["confirm", "deliver", "settle", "settled", "sync"]
"""Right after the broker confirmed a publish, sent a delivery, heard a settle, answered a settle, or began a sync."""
Way = Literal["both", "to", "from"]
DiskOp = Literal["sync", "write", "read", "create"]
DiskKind = Literal["io", "denied", "descriptors", "full"]
Who = Client | App | Program | str

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
        self._lives: list[Life] = []
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
        self._runner: asyncio.Runner | None = None
        self._loop: VirtualLoop | None = None
        self._test: asyncio.Task[Any] | None = None
        self._programs: list[Program] = []
        self._failed: BaseException | None = None
        """What a program ended with that nobody had killed."""
        self._luck = _Luck(seed)
        self._random = dice.stream(seed, "chaos")
        self._has_chaos = chaos

    # Running

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        """Run a test to its end, in virtual time; gives what it returns. A broker runs one, but in a `with` block any
        number of them, one after the other, in the same world."""
        __tracebackhide__ = True
        if self._runner is None:
            try:
                self.__enter__()
            except BaseException:
                test.close()
                raise
            try:
                return self._run(test)
            finally:
                self.__exit__(None, None, None)
        return self._run(test)

    def __enter__(self) -> Broker:
        if self._loop is not None:
            raise ValueError(
                "this broker's world has ended: make a new one, or `with Broker() as broker:` for several runs"
            )
        world = self._world
        loop = self._loop = VirtualLoop(world, self._limit_us)
        self._peers = Peers(loop, world)
        loop.connect = self._peers.connect
        self._runner = asyncio.Runner(loop_factory=lambda: loop)
        world.broker.start()
        if self._has_chaos:
            self._strike_later()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The world ends: what still runs is cancelled."""
        runner, self._runner = self._runner, None
        if runner is not None and self._loop is not None:
            for life in self._lives:
                self._loop.bury(life)
            with self._luck.of(self._world):
                runner.close()

    def _run(self, test: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True
        assert self._runner is not None
        try:
            with self._luck.of(self._world):
                return self._runner.run(self._begin(test))
        except Violated as error:
            error.add_note(
                "The broker broke a promise of its own. That is no mistake of the program under test: please "
                f"report it to Dovetail, with this test and its seed, {self.seed}."
            )
            raise error.with_traceback(None) from None
        except Stalled as error:
            raise error.with_traceback(None) from None

    async def _begin(self, test: Coroutine[Any, Any, T]) -> T:
        self._test = asyncio.current_task()
        try:
            await self._until_up()
        except BaseException:
            test.close()
            raise
        try:
            result = await test
        except asyncio.CancelledError:
            if self._failed is None:
                raise
        finally:
            self._test = None
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        return result

    async def _until_up(self) -> None:
        while not self._world.broker.is_up:
            await asyncio.sleep(LOOK_S)

    # Programs

    def start(self, main: Main, *, name: str = "") -> Program:
        """Start a program beside the test, as a process of its own: one that `kill` ends as `kill -9` would.

        main  called at each start: what it makes is lost when it is killed, what it is given stays. If it fails,
              so does the test
        name  for the page of the run; default: what `main` is called
        """
        program = Program(name or getattr(main, "__name__", "program"), main)
        self._programs.append(program)
        self._start(program)
        return program

    def kill(self, program: Program, *, down: Duration = "100ms", on: Moment | None = None) -> None:
        """A program dies in the middle of whatever it does, and is started again after `down`.

        on  not now, but right after the next such moment at the broker: "deliver" kills between a delivery and its ack
        """
        down_us = milliseconds(down) * 1000
        if on is None:
            self._kill(program, down_us)
        else:
            # The broker finishes its turn first.
            strike = partial(self._kill, program, down_us)
            self._world.arm(_one_of("on", on, Moment), lambda: self._world.after(0, strike))

    def _start(self, program: Program) -> None:
        if self._loop is None or self._runner is None:
            raise ValueError("a program is started in a test: while the broker runs")
        program.starts += 1
        program.life = life = Life()
        self._lives.append(life)
        context = contextvars.copy_context()
        context.run(LIFE.set, life)
        program.task = self._loop.create_task(context.run(program.main), name=program.name, context=context)
        program.task.add_done_callback(partial(self._ended, life))

    def _kill(self, program: Program, down_us: int) -> None:
        life, loop = program.life, self._loop
        if life is None or loop is None or not program.is_running:
            return
        program.life = None
        loop.end(life)
        self._world.faults += 1
        self._world.note(program.name, "fault", fault="Kill", latency_us=down_us)
        for peer in self._peers or ():
            for transport in [each for each in peer.transports if each.life is life]:
                transport.line.reset(self._random)
        self._world.after(down_us, partial(self._revive, program))

    def _revive(self, program: Program) -> None:
        if self._loop is not None and self._runner is not None:
            self._loop.call_soon(self._start, program, context=contextvars.Context())

    def _ended(self, life: Life, task: asyncio.Task[object]) -> None:
        """A program has come to its end, by itself or by an error."""
        if not task.cancelled() and not life.is_over and task.exception() is not None:
            self._failed = task.exception()
            if self._test is not None:
                self._test.cancel()

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
        if on:
            _one_of("on", on, Moment)
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
        op: DiskOp = "sync",
        *,
        kind: DiskKind = "io",
        times: int = 1,
    ) -> None:
        """The next operations of a kind fail. After a failed sync the broker ends, and is started again."""
        _one_of("op", op, DiskOp), _one_of("kind", kind, DiskKind)
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
        ways = ("to", "from") if _one_of("way", way, Way) == "both" else (way,)
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
        """How many messages a group has not settled."""
        node = self._world.broker.life.node
        if node is None or not self._world.broker.is_up:
            raise RuntimeError(
                f"the broker is down: nobody knows the lag of {group!r}; `await settled()` waits until it is up"
            )
        durable = node.state.durable
        number = durable.groups_by_name.get(group)
        if number is None:
            known = ", ".join(sorted(durable.groups_by_name)) or "none"
            raise ValueError(f"there is no group {group!r}; those that there are: {known}")
        return sum(
            durable.logs[log].end - cursor.floor - total(cursor.islands)
            for (owner, log), cursor in durable.cursors.items()
            if owner == number
        )

    async def settled(self, group: str, *, within: Duration = "10m") -> None:
        """Wait until a group has settled everything that is in its topics by now: acknowledged it, or given it up as
        dead letters. What is delayed is not there before it is due."""
        until = self.now + milliseconds(within) / 1000
        while True:
            await self._until_up()
            try:
                lag = self.lag(group)
                left = f"{group!r} has not settled {lag} messages"
            except (ValueError, RuntimeError) as error:
                lag, left = -1, str(error)
            if lag == 0:
                return
            if self.now >= until:
                raise AssertionError(f"{left}, after {within}")
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
        if isinstance(who, Program):
            return [peer for peer in peers if any(each.life is who.life for each in peer.transports)]
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
        running = [program for program in self._programs if program.is_running]
        if running and not chance.randrange(4):
            return self._kill(chance.choice(running), for_ms * 1000)
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


def _one_of(name: str, value: str, choices: Any) -> str:
    known = get_args(choices)
    if value not in known:
        raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}")
    return value


class _Luck:
    """What a program asks of chance and of the clock: the world's answers, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._bytes = Random(f"{seed}/bytes")
        self._numbers = itertools.count(1)
        self._state = Random(seed).getstate()

    @contextmanager
    def of(self, world: World) -> Iterator[None]:
        """While a test runs: the names of clients, `random`, `secrets`, `uuid4`, `time.time`."""

        def wall_ns() -> int:
            return (WALL_MS * 1000 + world.now_us) * 1000

        def wall_s() -> float:
            return wall_ns() / 1e9

        def made_up_name() -> str:
            return f"client-{next(self._numbers)}"

        before = random.getstate()
        random.setstate(self._state)
        try:
            with (
                mock.patch.object(client_module, "made_up_name", made_up_name),
                mock.patch.object(os, "urandom", self._bytes.randbytes),
                mock.patch.object(random, "_urandom", self._bytes.randbytes),
                mock.patch.object(time, "time_ns", wall_ns),
                mock.patch.object(time, "time", wall_s),
            ):
                yield
        finally:
            self._state = random.getstate()
            random.setstate(before)
