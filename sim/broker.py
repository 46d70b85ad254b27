"""The SimPy shell: simulated sockets, disk lanes and clock around a `Node`, as thin as the asyncio one.

Promises  the shipped core and storage engine run as they are; a crash may come at any disk operation, at any frame and
          at any time, and takes with it what a dying process or a machine without power would lose.
Never     decides about messages, or goes on after a bug: that ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import simpy

from dovetail.core import invariants
from dovetail.core.awaken import awaken
from dovetail.core.committer import Committer
from dovetail.core.connection import Terms
from dovetail.core.effects import AnyEffect, Refused
from dovetail.core.frames import ErrorCode, FrameType, encode
from dovetail.core.ids import Now
from dovetail.core.inputs import (
    AnyInput,
    Copied,
    CreateTopic,
    Fetch,
    Heartbeat,
    Loaded,
    Picked,
    Publish,
    Seen,
    Sent,
    Settle,
    Stored,
    Written,
)
from dovetail.core.journal_format import Frame
from dovetail.core.kernels import LANES
from dovetail.core.levels import BY_WORD, LOOK_MS, OPERATOR, Level, Levels, Pressure, PressureLimits, carry_out
from dovetail.core.lives import Event, Follower, Lives
from dovetail.core.node import Local, Node, NodeOptions
from dovetail.core.records import AnyRecord, AttemptFailed, BatchAppended, Settled, SyncPolicy, TopicConfig
from dovetail.core.state import Settings
from dovetail.core.wire import Error
from dovetail.runtime.storage import tools
from dovetail.runtime.storage.codecs import CODECS
from dovetail.runtime.storage.disk import DiskError, Free, List, Lock, Op, Read, Sync, SyncAll, SyncDir, Task, Unlock
from dovetail.runtime.storage.findings import Corrupted, Finding, Outcome, Unusable
from dovetail.runtime.storage.housekeeping import Housekeeper
from dovetail.runtime.storage.lanes import Checkpointer, commit_task, job_task
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.lookback import look_back
from dovetail.runtime.storage.space import SpaceLimits
from dovetail.runtime.storage.store import Opened, Store, open_store
from dovetail.sim import dice, plan
from dovetail.sim.checkers import WALL_MS
from dovetail.sim.disk import SimDisk
from dovetail.sim.network import Line

if TYPE_CHECKING:
    from dovetail.sim.world import World

TICK_US = 500
"""How long a tick keeps the processor: what arrives meanwhile is decided by the next one."""
SYNC_US = 300
READ_US = 60
RESTART_MS = 300
"""How long a supervisor waits before it starts a broker that ended by itself."""
USUAL_INPUTS = frozenset((Publish, Settle, Seen, Heartbeat, Sent, Loaded, Stored, Written, Fetch, Copied, Picked))
USUAL_RECORDS = frozenset((BatchAppended, Settled, AttemptFailed))
"""Steps with nothing else in them are looked at now and then; all others each."""
T = TypeVar("T")


class Clock:
    """The broker's machine: a wall clock that may jump, and the monotonic clock of each life of the process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._skew_ms = 0
        self._latest_ms = 0

    def jump(self, by_ms: int) -> None:
        self._latest_ms = max(self._latest_ms, self.wall_ms())
        self._skew_ms += by_ms

    def behind_ms(self) -> int:
        """How far it is behind the latest time it has shown: until then nothing falls due by it."""
        return max(0, self._latest_ms - self.wall_ms())

    def wall_ms(self) -> int:
        return WALL_MS + self._world.now_us // 1000 + self._skew_ms


class Life:
    """One life of the broker's process, from its start to its end."""

    def __init__(self, number: int, born_us: int, mono_base_ms: int) -> None:
        self.number = number
        self.born_us = born_us
        self.mono_base_ms = mono_base_ms
        self.over = False
        self.node: Node | None = None
        self.store: Store | None = None
        self.checkpointer: Checkpointer | None = None
        self.housekeeper: Housekeeper | None = None
        self.operator: Local | None = None
        self.lives = Lives()
        self.levels = Levels(self._level_changed)
        self.pressure = Pressure(self.levels, PressureLimits(memory_bytes=100))
        self.is_looking = False
        self.lines: dict[int, Line] = {}
        self.inbox: list[tuple[Line, bytes, int]] = []
        self.ticking = False
        self.next_tick_us = 0
        self.timer_us = -1
        self.steps = 0
        self.unusual = False
        """Something else than messages coming and going was decided: the state's invariants are looked at."""
        self.under_way: list[Op] = []

    def _level_changed(self, level: Level, reason: str) -> None:
        if self.node is not None:
            carry_out(self.node, level, reason)


class Broker:
    """The broker's machine: its disk, its clock, and the process that runs, or not."""

    def __init__(self, world: World, setup: plan.Broker) -> None:
        self.world = world
        self.setup = setup
        self.clock = Clock(world)
        self.disk = SimDisk(dice.stream(world.plan.seed, "disk"))
        self.disk_factor = 1
        self.life = Life(0, 0, 0)
        self.life.over = True
        self.down_until_us = 0
        self.memory_percent = 0
        self.late_ms = 0
        self.paused_until_us = 0
        self.is_damaged = False
        """The disk was found damaged: an operator is needed, and nothing more will happen."""
        self.is_looked_at = any(isinstance(event, plan.Look) for event in world.plan.events)
        self._random: Random = dice.stream(world.plan.seed, "broker")
        self._crash_after: tuple[int, plan.Crash] | None = None
        self._lost: tuple[Finding, ...] = ()
        """What a repair said is lost, until the broker is up again."""

    # Life and death

    @property
    def is_up(self) -> bool:
        """Whether it listens."""
        return not self.life.over and self.life.node is not None and not self.is_paused

    @property
    def is_paused(self) -> bool:
        return self.world.now_us < self.paused_until_us

    def start(self) -> None:
        """Start the process, unless it runs."""
        if not self.life.over or self.is_damaged:
            return
        self.life = Life(self.life.number + 1, self.world.now_us, self._random.randrange(1, 1 << 40))
        self.world.env.process(self._live(self.life))

    def _live(self, life: Life) -> Generator[simpy.Event, Any, None]:
        task = open_store(self._options(), f"life {life.number}", self.clock.wall_ms(), self._salt())
        done = yield from self._perform(life, task)
        if done is not None:
            self._awake(life, *done[0])

    def _options(self) -> StoreOptions:
        return StoreOptions(
            journal_segment_bytes=self.setup.journal_segment_bytes,
            log_segment_bytes=self.setup.log_segment_bytes,
            index_every_bytes=1024,
            preallocate=self.setup.preallocate,
            checkpoint_journal_bytes=self.setup.checkpoint_journal_bytes,
            spare_segments_max=2,
        )

    def _salt(self) -> int:
        return dice.draw(self.world.plan.seed) + 1

    def _awake(self, life: Life, store: Store, opened: Opened) -> None:
        setup = self.setup
        settings = Settings(
            topic_defaults=TopicConfig(
                lease_ms=setup.lease_ms, lease_max_ms=setup.lease_max_ms, max_retries=setup.max_retries
            ),
            session_timeout_ms=setup.session_timeout_ms,
            settle_linger_ms=setup.settle_linger_ms,
            rebalance_answer_ms=setup.rebalance_answer_ms,
            ephemeral_lag_max=setup.ephemeral_lag_max,
            deliver_bytes_max=setup.deliver_bytes_max,
            quota_messages=setup.quota_messages,
        )
        terms = Terms(broker=opened.broker_id, session_timeout_ms=setup.session_timeout_ms, codecs=CODECS)
        committer = Committer(
            lsn=opened.durable.lsn,
            crc=opened.crc,
            salt=opened.salt,
            linger_ms=settings.settle_linger_ms,
            sync_interval_ms=setup.sync_interval_ms,
        )
        options = NodeOptions(
            tail_bytes_max=setup.tail_bytes_max,
            read_bytes_max=max(64 << 10, setup.tail_bytes_max),
            send_window_bytes=setup.send_window_bytes,
        )
        life.store = store
        life.node = Node(awaken(opened.durable, settings), committer, terms, options, self._observe)
        life.checkpointer = Checkpointer(store, life.node, setup.checkpoint_ms, self.now(life))
        life.housekeeper = Housekeeper(
            store, life.node, SpaceLimits(), self.now(life), lambda reason: self._disk_full(life, reason)
        )
        if self._lost:
            lost, self._lost = self._lost, ()
            self.world.repaired(lost, opened.durable)
        self.world.recovered(life.number, self.world.now_us - life.born_us, opened.report)
        self._make_topics(life.node)
        self._look(life)
        self.wake()

    def _make_topics(self, node: Node) -> None:
        """The operator's topics; those that are there are refused, which is fine."""
        self.life.operator = node.open_local("operator")
        for topic in self.world.plan.topics:
            number = self.life.operator.register(lambda answer, entries: None)
            node.submit(self.creation(self.life.operator.session, number, topic))

    def creation(self, session: int, number: int, topic: plan.Topic) -> CreateTopic:
        """The request that makes a topic as the plan says."""
        lanes = LANES if topic.lanes else 0
        return CreateTopic(session, number, topic.name, topic.partitions, lanes, self.config_of(topic))

    def config_of(self, topic: plan.Topic) -> TopicConfig:
        """A topic's settings as the plan says."""
        return TopicConfig(
            lease_ms=self.setup.lease_ms,
            lease_max_ms=self.setup.lease_max_ms,
            max_retries=self.setup.max_retries,
            sync=SyncPolicy[topic.sync.upper()],
            lag_critical=topic.lag_critical,
            expired_to_dead_letters=topic.bury,
        )

    def ask(self, make: Callable[[int, int], AnyInput], then: Callable[[bool], None]) -> bool:
        """An operator's request; `then` hears whether it was done. False when nobody listens."""
        node, operator = self.life.node, self.life.operator
        if not self.is_up or node is None or operator is None:
            return False
        number = operator.register(lambda answer, entries: then(not isinstance(answer, Refused)))
        node.submit(make(operator.session, number))
        self.wake()
        return True

    def told(self, log: int, offset: int) -> list[Event]:
        """A message's life, as an operator is told; at one instant."""
        newest, follower = self.life.lives.newest(), Follower((log, offset))

        def show(frame: Frame) -> None:
            if frame.lsn < newest.first_lsn:
                follower.see_frame(frame)

        self._at_once(look_back(show))
        assert self.life.node is not None
        return follower.see_newest(newest, self.life.node.state.live.stored_lsn)

    # How much it does

    def set_level(self, word: plan.Level) -> None:
        """An operator asks for a level, if the broker is there to hear it."""
        life = self.life
        if not life.over and life.node is not None:
            self.world.mark(f"level: {word}")
            self.world.books.levels.set_by_operator(word)
            life.levels.ask(OPERATOR, BY_WORD[word], "an operator asked for it")
            self.wake()

    def press(self, memory_percent: int, late_ms: int) -> None:
        """From now on so much memory is in use, and timers are so late."""
        self.memory_percent, self.late_ms = memory_percent, late_ms
        if not self.life.is_looking:
            self._look(self.life)

    def _look(self, life: Life) -> None:
        """The process looks at itself: here only while there is, or was, something to see."""
        asks = self.world.books.levels
        life.is_looking = not life.over and bool(self.memory_percent or self.late_ms or asks.is_asked)
        if not life.is_looking or life.node is None:
            life.is_looking = False
            return
        asks.looked(self.memory_percent, self.late_ms)
        life.pressure.look(self.memory_percent, self.late_ms)
        if life.levels.level is not Level.NORMAL:
            self.world.mark(f"level by itself: {life.levels.level.word}")
        self.wake()
        self.world.after(LOOK_MS * 1000, lambda: self._look(life))

    def _disk_full(self, life: Life, reason: str) -> None:
        if reason:
            self.world.mark("read-only: the disk is full")
        self.world.books.levels.disk_is_full(bool(reason))
        life.levels.ask("disk", Level.READ_ONLY if reason else Level.NORMAL, reason)

    def crash(self, event: plan.Crash) -> None:
        """Die now, and come back later."""
        life = self.life
        self.down_until_us = self.world.now_us + event.down_ms * 1000
        self.world.after(event.down_ms * 1000, self._revive)
        if life.over:
            return
        self.world.mark("crash during recovery" if life.node is None else "crash")
        for op in life.under_way:
            if self._random.randrange(2):
                self._execute_blindly(op)
        self._end(life, power=event.power)
        if event.power:
            self.disk.crash()
        else:
            self.disk.kill()

    def _execute_blindly(self, op: Op) -> None:
        """What was under way at a crash may have happened all the same."""
        try:
            self.disk.execute(op)
        except DiskError:
            return

    def _end(self, life: Life, *, power: bool) -> None:
        life.over = True
        self._crash_after = None
        self.world.books.broker_died(self.world.now_us, power=power)
        self.world.operator.broker_died()
        for line in list(life.lines.values()):
            line.close_by_broker(silent=power)
        life.lines.clear()

    def _revive(self) -> None:
        if self.world.now_us >= self.down_until_us:
            self.start()

    def _fail(self, life: Life, error: BaseException) -> None:
        """The process ends by itself: the disk failed it, or what it found there can't be trusted."""
        if life.node is None:
            self.world.mark("failed during recovery")
        self._end(life, power=False)
        self.disk.kill()
        self.world.note("broker", "failed", fault=type(error).__name__, detail=str(error)[:200])
        if isinstance(error, Corrupted | Unusable) or "Damaged" in type(error).__name__:
            self.world.found_damage(error)
            self.is_damaged = True
            if self.world.plan.repair:
                self.world.after(RESTART_MS * 1000, self._repair)
            return
        self.world.mark("disk failure ended the broker")
        self.world.after(RESTART_MS * 1000, self._revive)

    def _repair(self) -> None:
        """An operator's `dovetail log repair`, and a look at what it left; at one instant."""
        try:
            repaired = self._at_once(tools.repair(self._options(), self.clock.wall_ms(), self._salt()))
            verified = self._at_once(tools.verify(self._options()))
        except OSError:
            self.disk.kill()
            self.world.after(RESTART_MS * 1000, self._repair)
            return
        self._lost += tuple(each for each in (*repaired.report.findings, *repaired.findings))
        self.is_damaged = False
        self.world.mark("a damaged disk was repaired")
        self.world.books.repairs.verified(str(each) for each in verified.findings if each.outcome is Outcome.LOST)
        self._revive()

    def _at_once(self, task: Task[T]) -> T:
        """Carry out a storage task without letting time pass."""
        try:
            op = next(task)
            while True:
                try:
                    result = self.disk.execute(op)
                except DiskError as error:
                    op = task.throw(error)
                else:
                    op = task.send(result)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def crash_later(self, event: plan.Crash) -> None:
        """Arm a crash that waits for a disk operation."""
        self._crash_after = (self.disk.operations + event.after_ops, event)

    def pause(self, for_ms: int) -> None:
        """Stand still; what arrives waits."""
        self.paused_until_us = max(self.paused_until_us, self.world.now_us + for_ms * 1000)
        self.world.books.broker_stands_still(self.paused_until_us)
        self.world.after(for_ms * 1000, self._resume)

    def _resume(self) -> None:
        if self.is_paused or self.life.over:
            return
        inbox, self.life.inbox = self.life.inbox, []
        for line, data, sent_us in inbox:
            if line.broker_open:
                self.received(line, data, sent_us)
        for line in list(self.life.lines.values()):
            if not line.broker_open:
                self.hung_up(line)
        self.wake()

    def heal(self) -> None:
        """Nothing is broken any more."""
        self.disk.fault = None
        self.disk_factor = 1
        self._crash_after = None

    # The disk, operation by operation

    def _perform(self, life: Life, task: Task[T]) -> Generator[simpy.Event, Any, tuple[T] | None]:
        """Carry out a storage task in simulated time, for its result; None when the process died of it, or before it
        was done."""
        try:
            op = next(task)
            while True:
                delay_us = self._latency_us(op)
                if delay_us:
                    life.under_way.append(op)
                    if isinstance(op, Sync):
                        self.world.moment({"sync"})
                    yield self.world.env.timeout(delay_us)
                    while self.is_paused and not life.over:
                        yield self.world.env.timeout(self.paused_until_us - self.world.now_us)
                    life.under_way.remove(op)
                if life.over or self._dies_at(op):
                    return None
                try:
                    result = self.disk.execute(op)
                except DiskError as error:
                    self.world.mark(f"disk refused: {error.kind}")
                    op = task.throw(error)
                else:
                    op = task.send(result)
        except StopIteration as stop:
            return (stop.value,)
        except (OSError, Corrupted, Unusable) as error:
            if not life.over:
                self._fail(life, error)
        except Exception as error:
            if "Damaged" not in type(error).__name__:
                raise
            self._fail(life, error)
        return None

    def _latency_us(self, op: Op) -> int:
        if isinstance(op, Sync | SyncAll | SyncDir):
            return self.disk_factor * (SYNC_US + self._random.randrange(SYNC_US))
        if isinstance(op, Read | List | Lock | Unlock | Free):
            return (self.disk_factor - 1) * READ_US
        return (self.disk_factor - 1) * READ_US

    def _dies_at(self, op: Op) -> bool:
        if self._crash_after is None or self.disk.operations < self._crash_after[0]:
            return False
        _, event = self._crash_after
        self.life.under_way.append(op)
        self.world.strike(event)
        return True

    # The clock and the ticks

    def now(self, life: Life) -> Now:
        """The process's two clocks."""
        return Now(life.mono_base_ms + (self.world.now_us - life.born_us) // 1000, self.clock.wall_ms())

    def wake(self) -> None:
        """Have a tick run after everything that arrives at this instant."""
        life = self.life
        if life.ticking or life.over or life.node is None:
            return
        life.ticking = True
        self.world.after(max(0, life.next_tick_us - self.world.now_us), lambda: self._tick(life))

    def _tick(self, life: Life) -> None:
        if life.over:
            return
        if self.is_paused:
            self.world.after(self.paused_until_us - self.world.now_us, lambda: self._tick(life))
            return
        node, checkpointer, housekeeper = life.node, life.checkpointer, life.housekeeper
        assert node is not None
        assert checkpointer is not None
        assert housekeeper is not None
        life.ticking = False
        life.next_tick_us = self.world.now_us + TICK_US
        now = self.now(life)
        node.tick(now)
        more = checkpointer.advance(now)
        housekeeper.advance(now)
        if life.unusual or life.steps % self.world.check_every == 0:
            life.unusual = False
            invariants.check_state(node.state, now.mono_ms)
        if self._flush(life, node):
            return
        self._start_work(life, node, now)
        if more or node.has_arrivals:
            self.wake()
        else:
            self._arm_timer(life, node, min(checkpointer.due_ms, housekeeper.due_ms), now)

    def _observe(
        self,
        now: Now,
        inputs: tuple[AnyInput, ...],
        records: tuple[AnyRecord, ...],
        effects: tuple[AnyEffect, ...],
    ) -> None:
        self.life.steps += 1
        if self.is_looked_at and self.life.node is not None:
            self.life.lives.observe(self.life.node.state, now, inputs, records, effects)
        if not (USUAL_INPUTS.issuperset(map(type, inputs)) and USUAL_RECORDS.issuperset(map(type, records))):
            self.life.unusual = True
        self.world.stepped(inputs, records, effects)

    def _flush(self, life: Life, node: Node) -> bool:
        """Send what is to be sent; True when the process died of it."""
        sending = [(life.lines.get(session), session, data, closing) for session, data, closing in node.outgoing()]
        for line, session, _, closing in sending:
            if closing:
                # Whoever reads along learns of an end before what follows from it.
                if line is not None:
                    self.world.books.closed(line.number, self.world.now_us)
                else:
                    node.disconnect(session)
        for line, session, data, closing in sending:
            if line is None:
                continue
            if data:
                joined = b"".join(data)
                due_us = line.down.send(joined)
                self.world.books.sent(line.number, joined, self.world.now_us, due_us)
                self.world.moment(self.world.books.passed)
                if life.over:
                    return True
            if closing:
                del life.lines[session]
                line.close_by_broker()
                node.disconnect(session)
            else:
                node.wrote(session, line.down.waiting_bytes)
        return False

    def _start_work(self, life: Life, node: Node, now: Now) -> None:
        store = life.store
        assert store is not None
        commit = node.next_commit(now)
        if commit is not None:
            if commit.frames and not commit.sync:
                self.world.mark("written without a sync")
            self.world.env.process(self._lane(life, commit_task(store, commit), lambda _: node.committed()))
        job = node.next_job()
        if job is not None:
            self.world.mark(f"job {type(job).__name__}")
            self.world.env.process(self._lane(life, job_task(store, job), node.job_done))

    def _lane(
        self, life: Life, task: Task[object], then: Callable[[object], None]
    ) -> Generator[simpy.Event, Any, None]:
        done = yield from self._perform(life, task)
        if done is not None and not life.over:
            then(done[0])
            self.wake()

    def _arm_timer(self, life: Life, node: Node, chores_ms: int, now: Now) -> None:
        wake_ms = node.wake_ms()
        due_ms = min(chores_ms, wake_ms if wake_ms is not None else 1 << 62)
        due_us = life.born_us + max(0, due_ms - life.mono_base_ms) * 1000
        due_us = max(due_us, self.world.now_us + 1)
        if life.timer_us > self.world.now_us and life.timer_us <= due_us:
            return
        life.timer_us = due_us
        self.world.after(due_us - self.world.now_us, lambda: self._timer(life, due_us))

    def _timer(self, life: Life, due_us: int) -> None:
        if life.timer_us == due_us:
            life.timer_us = -1
        self.wake()

    # The sockets

    def accept(self, line: Line) -> bool:
        """A client connects; False when nobody listens."""
        life = self.life
        if life.node is None or life.over or self.is_paused:
            return False
        if life.levels.turns_away:
            self.world.books.levels.connected(line.name, taken=False)
            line.down.send(encode(FrameType.ERROR, Error(ErrorCode.LIMIT, life.levels.turns_away).encode()))
            line.close_by_broker()
            return True
        self.world.books.levels.connected(line.name, taken=True)
        line.session = life.node.connect(line.name)
        life.lines[line.session] = line
        self.world.books.opened(line.number, line.name)
        return True

    def received(self, line: Line, data: bytes, sent_us: int) -> None:
        """Bytes came from a client."""
        life = self.life
        if life.lines.get(line.session) is not line:
            return
        if self.is_paused:
            life.inbox.append((line, data, sent_us))
            return
        assert life.node is not None
        self.world.books.received(line.number, data, self.world.now_us, sent_us)
        self.world.moment(self.world.books.passed)
        if not life.over:
            life.node.receive(line.session, data)
            self.wake()

    def drained(self, line: Line) -> None:
        """A client has taken bytes."""
        life = self.life
        if life.lines.get(line.session) is line and life.node is not None and not self.is_paused:
            life.node.wrote(line.session, line.down.waiting_bytes)
            if life.node.has_arrivals:
                self.wake()

    def hung_up(self, line: Line) -> None:
        """A client is gone."""
        life = self.life
        if life.lines.get(line.session) is not line or self.is_paused:
            return
        del life.lines[line.session]
        assert life.node is not None
        self.world.books.closed(line.number, self.world.now_us)
        life.node.disconnect(line.session)
        self.wake()
