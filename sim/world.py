"""The world of a run: one clock, one seed, a broker, its clients, and the faults that strike them.

Promises  a plan gives the same run every time, to the byte; chaos comes first, then a healed world in which everything
          must drain within a bound, then one more power loss after which everything must still be there.
Never     reads the machine's clock or randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any

import simpy

from dovetail.core.effects import AnyEffect
from dovetail.core.inputs import AnyInput
from dovetail.core.journal_format import SEGMENT_HEADER_BYTES, FormatError, decode_segment_header, whole_frames
from dovetail.core.kernels import LANES
from dovetail.core.records import AnyRecord
from dovetail.core.state import Durable
from dovetail.runtime.storage import disk as ops
from dovetail.runtime.storage.findings import Finding, Outcome, RecoveryReport
from dovetail.sim import dice, marks, plan
from dovetail.sim.actors import Auditor, Client, Consumer, Operator, Producer
from dovetail.sim.broker import Broker
from dovetail.sim.checkers import Books, LogKey, Violated
from dovetail.sim.checkers.levels import WORDS
from dovetail.sim.disk import CAPACITY_BYTES, SECTOR_BYTES, fail
from dovetail.sim.network import Line
from dovetail.sim.trace import Trace

READ_ALONG_MS = 37
LOOK_MS = 200
"""How often the healed world is asked whether it is done."""
_OPS: dict[str, tuple[type, ...]] = {
    "sync": (ops.Sync, ops.SyncDir),
    "write": (ops.Write,),
    "read": (ops.Read,),
    "create": (ops.Create,),
}
_WAYS: dict[str, tuple[str, ...]] = {"both": ("to", "from"), "to": ("to",), "from": ("from",)}


class Stuck(Exception):
    """The healed world did not drain; the text says what waits for what."""


class World:
    """One run of a plan: `run`, then look at `books`, `trace` and `marks`."""

    def __init__(self, setup: plan.Plan, trace: Trace, check_every: int = 1) -> None:
        self.plan = setup
        self.trace = trace
        self.check_every = check_every
        """After how many steps the state's own invariants are looked at."""
        self.env = simpy.Environment()
        self.marks: dict[str, int] = {}
        self.faults = 0
        self.steps = 0
        self.recovery_us = 0
        self.books = Books(setup, self.note)
        self.broker = Broker(self, setup.broker)
        self.producers = {each.name: Producer(self, each) for each in setup.producers}
        self.consumers = {each.name: Consumer(self, each) for each in setup.consumers}
        self.operator = Operator(self, "operator")
        self.auditor = Auditor(self)
        self.clients: dict[str, Client] = {**self.producers, **self.consumers}
        self._random = dice.stream(setup.seed, "nemesis")
        self._lines = 0
        self._stuck = ""
        self._level_stays = False
        """What the operator asked for lasts until what is stored was settled."""
        self._armed: list[tuple[str, Callable[[], None]]] = []

    # For everybody

    @property
    def now_us(self) -> int:
        """Simulated time."""
        now: int = self.env.now  # type: ignore[assignment]  # only whole microseconds are ever scheduled
        return now

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """Call something later."""
        event = self.env.timeout(delay_us)
        assert event.callbacks is not None
        event.callbacks.append(lambda _: call())

    def note(self, actor: str, kind: str, **columns: Any) -> int:
        """Add a row to the trace; gives its number."""
        return self.trace.add(self.now_us, actor, kind, **columns)

    def mark(self, name: str) -> None:
        """A rare path was taken."""
        self.marks[name] = self.marks.get(name, 0) + 1

    def new_line(self, client: Client) -> Line:
        """A connection from a client to the broker."""
        self._lines += 1
        return Line(self._lines, client.name, self, client.link, client, self.broker)

    def stepped(
        self, inputs: tuple[AnyInput, ...], records: tuple[AnyRecord, ...], effects: tuple[AnyEffect, ...]
    ) -> None:
        """The broker decided something."""
        self.steps += 1
        for name in marks.of_step(inputs, records, effects):
            self.mark(name)

    def recovered(self, life: int, took_us: int, report: RecoveryReport) -> None:
        """The broker is up."""
        self.recovery_us = max(self.recovery_us, took_us)
        for finding in report.findings:
            self.mark(f"recovery: {finding.outcome}")
            if finding.outcome == "lost":
                self.found_damage(RuntimeError(str(finding)))
        self.books.awake(self.now_us)
        self.note("broker", "up", generation=life, latency_us=took_us, detail=f"{report.frames} frames")

    def found_damage(self, error: BaseException) -> None:
        """The broker says that its disk is damaged: it must not say so of a disk that only lost power."""
        self.mark("damage was found")
        if not self.plan.has_damage:
            raise Violated("I-RECOVERY", f"nothing on the disk was damaged, yet recovery says: {error}")

    def repaired(self, found: Iterable[Finding], durable: Durable) -> None:
        """The broker is up again after a repair that said what was lost."""
        lost: list[tuple[LogKey, int, int]] = []
        everything = False
        for finding in found:
            if finding.outcome is Outcome.LOST:
                log = durable.logs.get(finding.log)
                topic = durable.topics.get(log.topic) if log is not None else None
                if log is None or topic is None or finding.last < finding.first or finding.lsn:
                    everything = True
                else:
                    key = (topic.name, log.partition, log.lane + 1 if topic.lanes else 0)
                    lost.append((key, finding.first, finding.last))
        self.books.repairs.repaired(lost, everything=everything, now_us=self.now_us)

    def stuck(self, text: str) -> None:
        """Something will never get on."""
        self._stuck = text

    # The run

    def run(self) -> None:
        """All of it; raises `Violated`, `Stuck` or whatever the broker died of."""
        self.note("world", "setup", detail=self.plan.terms)
        self.broker.start()
        for client in (*self.clients.values(), self.operator):
            habits = client.habits.start_ms if isinstance(client, Consumer) else 0
            self.after(habits * 1000, client.start)
        for event in self.plan.events:
            self.after(event.at_ms * 1000, self._striker(event))
        if self.plan.reads_along:
            self.auditor.start()
            self.env.process(self._read_along())
        self.env.run(until=self.plan.chaos_ms * 1000)
        self._heal()
        finished = self.env.process(self._drain())
        self.env.run(until=finished)

    def _read_along(self) -> Generator[simpy.Event, Any, None]:
        """Have the logs read while faults strike: nobody is shown what is not stored."""
        while self.now_us < self.plan.chaos_ms * 1000:
            yield self.env.timeout(READ_ALONG_MS * 1000)
            if not self.auditor.is_busy:
                self.auditor.audit(self._logs())

    def _striker(self, event: plan.AnyEvent) -> Callable[[], None]:
        return lambda: self.happen(event)

    def happen(self, event: plan.AnyEvent) -> None:
        """What a plan says happens now; faults that wait for a moment are armed."""
        match event:
            case plan.Publish():
                self.producers[event.who].publish(event)
            case plan.Seek():
                self.operator.seek(event)
            case plan.Checkpoint():
                if self.broker.life.checkpointer is not None:
                    self.broker.life.checkpointer.ask()
            case plan.DeleteTopic():
                self.operator.delete(event)
            case plan.CreateTopic():
                self.operator.create(event)
            case plan.Configure():
                self.operator.configure(event)
            case plan.ReplayDead() | plan.PurgeDead():
                self.operator.look_at_dead(event)
            case plan.Look():
                self.operator.look(event)
            case plan.SetLevel():
                self._set_level(event)
            case plan.Crash() if event.after_ops:
                self.broker.crash_later(event)
            case plan.Crash() | plan.FailDisk() if event.on:
                self.arm(event.on, partial(self.strike_at, event))
            case plan.CrashClient() | plan.Reset() | plan.Partition() if event.on:
                consumer = self.consumers.get(event.who)
                if consumer is not None:
                    consumer.strike_on = event
            case _:
                self.strike(event)

    def arm(self, kind: str, strike: Callable[[], None]) -> None:
        """Have something strike when the next thing of a kind has happened at the broker."""
        self._armed.append((kind, strike))

    def strike_at(self, event: plan.Crash | plan.FailDisk) -> None:
        """The moment that a fault waited for has come."""
        self.mark(f"{type(event).__name__} at {event.on}")
        self.strike(event)

    def moment(self, kinds: set[str]) -> None:
        """Something has just happened at the broker: faults that waited for such a thing strike now."""
        if self._armed:
            due = [strike for on, strike in self._armed if on in kinds]
            self._armed = [(on, strike) for on, strike in self._armed if on not in kinds]
            for strike in due:
                strike()

    def strike(self, event: plan.AnyEvent) -> None:
        """A fault happens."""
        self.faults += 1
        who = getattr(event, "who", "broker")
        self.note(
            who, "fault", fault=type(event).__name__, latency_us=1000 * getattr(event, "for_ms", 0), detail=repr(event)
        )
        match event:
            case plan.Crash():
                self.broker.crash(event)
            case plan.PauseBroker():
                self.broker.pause(event.for_ms)
            case plan.Partition():
                link, ways = self.clients[event.who].link, _WAYS[event.way]
                link.block(ways)
                self.after(event.for_ms * 1000, lambda: link.unblock(ways))
            case plan.Slow():
                self._slow(event)
            case plan.Reset():
                line = self.clients[event.who].line
                if line is not None:
                    line.reset(self._random)
            case plan.CrashClient():
                self.clients[event.who].crash(event.for_ms, silent=event.silent)
            case plan.PauseClient():
                self.clients[event.who].pause(event.for_ms)
            case plan.Leave():
                self.consumers[event.who].leave(event.for_ms)
            case plan.Pressure():
                self.broker.press(event.memory_percent, event.late_ms)
                self.after(event.for_ms * 1000, lambda: self.broker.press(0, 0))
            case plan.JumpClock():
                self.broker.clock.jump(event.by_ms)
            case plan.SlowDisk():
                self.broker.disk_factor = event.factor
                self.books.ground.disk_was_slow = True
                self.after(event.for_ms * 1000, self._disk_is_fast)
            case plan.FailDisk():
                kinds, path = _OPS[event.op], event.path
                self.broker.disk.fault = fail(
                    ops.Kind(event.kind),
                    lambda op: isinstance(op, kinds) and getattr(op, "path", "").startswith(path),
                    event.times,
                )
            case plan.FillDisk():
                disk = self.broker.disk
                disk.capacity_bytes = disk.used_bytes() + event.free_bytes
                self.after(event.for_ms * 1000, self._disk_has_room)
            case plan.Damage():
                self._damage(event)
            case _:
                raise AssertionError(event)

    def _set_level(self, event: plan.SetLevel) -> None:
        self.note("operator", "level", mode=event.level, detail=repr(event))
        self.broker.set_level(event.level)
        self._level_stays = event.for_ms == 0 and event.level != "emergency"
        if event.for_ms:
            self.after(event.for_ms * 1000, self._end_level)

    def _end_level(self) -> None:
        """An operator takes the level back, unless a later one is to stay."""
        if not self._level_stays:
            self.broker.set_level("normal")

    def _slow(self, event: plan.Slow) -> None:
        link = self.clients[event.who].link
        link.delay_us, link.bytes_per_s = event.delay_ms * 1000, event.bytes_per_s
        self.after(event.for_ms * 1000, link.widen)

    def _disk_is_fast(self) -> None:
        self.broker.disk_factor = 1

    def _disk_has_room(self) -> None:
        self.broker.disk.capacity_bytes = CAPACITY_BYTES

    def _damage(self, event: plan.Damage) -> None:
        """Change what lies on the disk, behind everybody's back; not what the last commit alone stands for, because
        damage there looks like a write that a crash cut short."""
        files = [(path, len(data)) for path, data in self.broker.disk.files() if path.startswith(event.path) and data]
        at = sum(size for _, size in files) * event.place // 1000
        for path, size in files:
            if at < size:
                if self._is_only_in_the_last_commit(path, at):
                    return
                if event.lost_sector:
                    self.broker.disk.lose_sector(path, at // SECTOR_BYTES)
                else:
                    self.broker.disk.flip(path, at * 8 + event.place % 8)
                self.note("broker", "damaged", fault="Damage", detail=f"{path} at {at}")
                return
            at -= size

    def _is_only_in_the_last_commit(self, path: str, at: int) -> bool:
        """Whether the sector holds some of the journal's end, of which no later commit says that it was synced."""
        files = dict(self.broker.disk.files())
        if path != max((each for each in files if each.endswith(".wal")), default=""):
            return False
        data = files[path]
        try:
            header = decode_segment_header(data)
        except FormatError:
            return False
        frames = list(whole_frames(data, SEGMENT_HEADER_BYTES, header.first_lsn, header.salt))
        synced_lsn = max((frame.synced_lsn for frame in frames), default=0)
        ends = [SEGMENT_HEADER_BYTES, *(frame.end for frame in frames if frame.lsn <= synced_lsn)]
        sector = at // SECTOR_BYTES * SECTOR_BYTES
        return sector + SECTOR_BYTES > ends[-1] and sector < (frames[-1].end if frames else 0)

    # The healed world

    def calm(self) -> None:
        """Nothing is broken any more, and nothing that was armed strikes; clients' ways are not touched."""
        self._armed.clear()
        self.broker.heal()
        self.broker.press(0, 0)
        self._end_level()
        self._disk_has_room()

    def _heal(self) -> None:
        self.note("world", "heal")
        self.calm()
        for client in self.clients.values():
            client.link.heal()
        for consumer in self.consumers.values():
            consumer.is_good = True
            consumer.strike_on = None
        if not self.plan.reads_along:
            self.auditor.start()

    def _drain(self) -> Generator[simpy.Event, Any, None]:
        deadline_us = self.now_us + (self.plan.drain_ms + self.broker.clock.behind_ms()) * 1000
        is_over = False
        yield from self._drain_at_level(deadline_us)
        while not is_over:
            yield self.env.timeout(LOOK_MS * 1000)
            if self.broker.is_damaged and not self.plan.repair:
                return
            if not self.auditor.is_busy:
                self.auditor.audit(self._logs())
                is_over = not self._under_way() and self.books.drain.is_over()
            if self._stuck:
                raise Stuck(self._stuck)
            if not is_over and self.now_us > deadline_us:
                left = self._under_way() + self.books.drain.left(self.now_us)
                raise Stuck("; ".join(left) or "the auditor's last reads are not answered")
        self.books.dead_letters.check_settled()
        yield from self._last_look()

    def _drain_at_level(self, deadline_us: int) -> Generator[simpy.Event, Any, None]:
        """Whatever level an operator left: deliveries and settles go on, so what is stored gets settled."""
        while self._level_stays and self.books.levels.now and not self.broker.is_damaged:
            yield self.env.timeout(LOOK_MS * 1000)
            if not self.auditor.is_busy:
                self.auditor.audit(self._logs())
                if self.books.drain.is_over():
                    self.mark("drained at a level")
                    break
            if self.now_us > deadline_us:
                raise Stuck("; ".join(self.books.drain.left(self.now_us)) + ", while the broker does less than usual")
        self._level_stays = False
        self._end_level()

    def _last_look(self) -> Generator[simpy.Event, Any, None]:
        """One more power loss: everything must still be there."""
        for client in self.clients.values():
            client.crash(1 << 40, silent=False)
        yield self.env.timeout(10_000)
        self.strike(plan.Crash(at_ms=self.now_us // 1000, power=True, down_ms=10))
        deadline_us = self.now_us + self.plan.drain_ms * 1000
        yield self.env.timeout(50_000)
        rounds = self.auditor.rounds
        self.auditor.audit(self._logs(), anew=True)
        while self.auditor.rounds == rounds:
            yield self.env.timeout(LOOK_MS * 1000)
            if self.broker.is_damaged and not self.plan.repair:
                return
            if self.now_us > deadline_us or self._stuck:
                raise Stuck(self._stuck or "the broker does not come back after the last power loss")
        self.note("world", "done")

    def _logs(self) -> list[LogKey]:
        """Every log there is, dead letters included."""
        known = set(self.books.contents.logs)
        for topic in self.plan.topics:
            # What waits for a lane that nobody reads is seen nowhere else.
            lanes = range(1, LANES + 1) if topic.lanes else ()
            known |= {(topic.name, partition, lane) for partition in range(topic.partitions) for lane in lanes}
        dead = {(f"{topic}.dlq", 0, 0) for topic, _, _ in known if not topic.endswith(".dlq")}
        return sorted(known | dead)

    def _under_way(self) -> list[str]:
        """What producers and the broker have not done yet, in words."""
        left = [
            f"producer {producer.name} waits for {producer.unconfirmed} confirmations"
            for producer in self.producers.values()
            if producer.unconfirmed
        ]
        if self.books.levels.now:
            left.append(f"the broker's level is {WORDS[self.books.levels.now]}")
        node = self.broker.life.node
        if not self.broker.is_up or node is None:
            left.append("the broker is not up")
        elif node.behind_lsn < node.state.live.stored_lsn:
            left.append(f"the logs' files are at lsn {node.behind_lsn}, the journal at {node.state.live.stored_lsn}")
        return left
