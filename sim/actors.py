"""The clients of a run: producers, consumers with good and bad habits, an operator, an auditor.

Promises  they speak the real wire protocol, byte for byte; they reconnect, send again what was not answered, and settle
          what they hold, or not, as their habits say; what they decide about a message depends on that message alone.
Never     know anything that a client of a real broker would not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dovetail.core import batch, capacity, frames, inputs, members, wire
from dovetail.core.codes import Acks, NackReason, Priority, SettleAction, Status, Wait, Whence
from dovetail.core.frames import FrameDecoder, FrameError, FrameType
from dovetail.core.ids import ordered
from dovetail.core.inputs import AnyInput
from dovetail.runtime.storage.codecs import CODECS
from dovetail.sim import dice, plan
from dovetail.sim.checkers import WALL_MS
from dovetail.sim.checkers.entries import LogKey
from dovetail.sim.checkers.looks import Shown, Told
from dovetail.sim.network import Line, Link

if TYPE_CHECKING:
    from dovetail.sim.world import World

CONNECT_US = 400
RETRY_MS = 60
SILENCE_MS = 2_500
"""A client that waits for an answer this long hangs up and tries anew."""
HEARTBEAT_MS = 800
CLINGS = 5
"""How often a member that clings to a delivery asks for more time."""

OnAnswer = Callable[[wire.Answer | wire.Refusal], None]
OnResult = Callable[[bool | None], None]


class Client:
    """One process with one connection that heals."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.link = Link(dice.stream(world.plan.seed, f"link {name}"))
        self.random = dice.stream(world.plan.seed, f"client {name}")
        self.line: Line | None = None
        self.is_correlated = True
        self.is_dead = False
        self.paused_until_us = 0
        self._inbox: list[tuple[Line, bytes, int]] = []
        self._decoder = FrameDecoder()
        self._correlation = 0
        self._waiting: dict[int, tuple[wire.Request, OnAnswer | None, int]] = {}
        self._out: list[bytes] = []
        self._attempting = False
        self._beating = False

    # Connecting

    def start(self) -> None:
        """Begin, or begin anew after a crash."""
        self.is_dead = False
        self._connect_soon(0)

    def _connect_soon(self, delay_us: int) -> None:
        if not self._attempting:
            self._attempting = True
            self.world.after(delay_us + CONNECT_US, self._connect)

    def _connect(self) -> None:
        self._attempting = False
        if self.is_dead or self.line is not None:
            return
        if self.is_paused or not self._reaches_broker():
            self._connect_soon(RETRY_MS * 1000 + self.random.randrange(RETRY_MS * 1000))
            return
        line = self.world.new_line(self)
        if not self.world.broker.accept(line):
            line.close_by_client(silent=True)
            line.close_by_broker(silent=True)
            self._connect_soon(RETRY_MS * 1000 + self.random.randrange(RETRY_MS * 1000))
            return
        self.line = line
        self._decoder = FrameDecoder()
        self._waiting.clear()
        self._out.clear()
        self.connected()
        self._flush()
        if not self._beating:
            self._beating = True
            self._beat_later()

    def _reaches_broker(self) -> bool:
        return self.world.broker.is_up and not any(self.link.blocked.values())

    def connected(self) -> None:
        """A new connection is there: introduce yourself."""
        self.request(wire.Hello(self.name))

    def disconnected(self) -> None:
        """The connection is gone, with all answers that had not come."""

    def _drop(self, *, silent: bool = False) -> None:
        """Hang up."""
        line, self.line = self.line, None
        if line is not None:
            line.close_by_client(silent=silent)
            self.disconnected()

    def hung_up(self, line: Line) -> None:
        """The broker or the network ended the connection."""
        if line is self.line:
            self.line = None
            self.disconnected()
            if not self.is_dead:
                self._connect_soon(self.random.randrange(RETRY_MS * 1000))

    def _beat_later(self) -> None:
        self.world.after(HEARTBEAT_MS * 1000, self._beat)

    def _beat(self) -> None:
        if self.line is None:
            self._beating = False
            return
        self._beat_later()
        if self.is_paused:
            return
        oldest_us = min((asked_us for _, _, asked_us in self._waiting.values()), default=self.world.now_us)
        if self.world.now_us - oldest_us > SILENCE_MS * 1000:
            self._drop()
            self._connect_soon(0)
            return
        self.request(wire.Heartbeat())
        self._flush()

    # Faults

    @property
    def is_paused(self) -> bool:
        return self.world.now_us < self.paused_until_us

    def crash(self, for_ms: int, *, silent: bool) -> None:
        """Die, and come back with nothing remembered."""
        if self.is_dead:
            return
        self.is_dead = True
        self._inbox.clear()
        self._drop(silent=silent)
        self.world.after(for_ms * 1000, self.start)

    def pause(self, for_ms: int) -> None:
        """Stand still."""
        self.paused_until_us = max(self.paused_until_us, self.world.now_us + for_ms * 1000)
        self.world.after(for_ms * 1000, self._resume)

    def _resume(self) -> None:
        if self.is_paused:
            return
        inbox, self._inbox = self._inbox, []
        for line, data, sent_us in inbox:
            self.received(line, data, sent_us)

    # Talking

    def request(self, message: wire.Request, then: OnAnswer | None = None) -> None:
        """Ask the broker for something; sent with the next `_flush`."""
        self._correlation += 1
        self._waiting[self._correlation] = (message, then, self.world.now_us)
        correlation = self._correlation if self.is_correlated else None
        self._out.append(frames.encode(message.TYPE, message.encode(), correlation))

    def _flush(self) -> None:
        if self._out and self.line is not None:
            data = b"".join(self._out)
            self._out.clear()
            self.line.up.send(data)
            if not self.line.broker_open and self.world.broker.is_up:
                self.world.after(2 * CONNECT_US, self.line.knock)

    def received(self, line: Line, data: bytes, sent_us: int) -> None:
        """Bytes came from the broker."""
        if line is not self.line:
            return
        if self.is_paused:
            self._inbox.append((line, data, sent_us))
            return
        for frame in self._decoder.feed(data):
            if isinstance(frame, FrameError) or self.line is not line:
                break
            if frame.type == FrameType.RESPONSE:
                # Without correlations answers come in the order of requests.
                number = frame.correlation if frame.correlation is not None else next(iter(self._waiting), 0)
                asked = self._waiting.pop(number, None)
                if asked is not None and asked[1] is not None:
                    asked[1](wire.decode_answer(asked[0].TYPE, frame.payload))
            else:
                self.got(wire.decode_message(frame.type, frame.payload))
        self._flush()

    def got(self, message: wire.Request | wire.Push) -> None:
        """Something came that was not asked for."""

    def drained(self, line: Line) -> None:
        """Clients do not wait for their sockets."""


class Producer(Client):
    """Publishes what events tell it to, in order, and again when it does not know the outcome."""

    def __init__(self, world: World, habits: plan.Producer) -> None:
        super().__init__(world, habits.name)
        self.is_correlated = not habits.legacy
        self._window = min(habits.window, 5) if habits.idempotent else habits.window
        self._id = habits.idempotent
        self._sequences: dict[tuple[str, int, int], int] = {}
        """What comes next, log by log: an idempotent producer numbers each by itself."""
        self._laned = {topic.name for topic in world.plan.topics if topic.lanes}
        self._keyed = {topic.name: topic for topic in world.plan.topics if topic.keys}
        self._outbox: deque[tuple[int, wire.Request]] = deque()
        self._is_in_order = True
        """Whether the outbox is known to be in order of number."""
        self._under_way: dict[int, wire.Request] = {}
        self._numbers = 0
        self._rests_until_us = 0
        """It was told when to come back."""

    @property
    def unconfirmed(self) -> int:
        """Batches whose fate is not known yet."""
        return len(self._outbox) + len(self._under_way)

    def publish(self, event: plan.Publish) -> None:
        """Take messages to be sent."""
        # What is delayed may be sent in the same millisecond as something else, and is told apart.
        begin = f"{self.name}/{event.at_ms}/{event.topic}/{'later/' if event.delay_ms else ''}"
        values = [f"{begin}{n}/".encode().ljust(event.size, b".") for n in range(event.count)]
        if event.singles and not self._id and event.topic not in self._keyed:
            for value in values:
                self._put(wire.Publish(event.topic, (), value, event.ttl_ms // 1000))
        else:
            self._put(self._batch(event, values))
        self._pump()

    def _batch(self, event: plan.Publish, values: list[bytes]) -> wire.Produce:
        keyed = self._keyed.get(event.topic)
        records: list[batch.NewRecord] = [(keyed.key_of(value) if keyed else None, value, ()) for value in values]
        stamp_ms = WALL_MS + event.at_ms
        partition = event.partition
        if self._id:
            partition = max(0, partition)
            lane = event.priority or Priority.NORMAL if event.topic in self._laned else 0
            sequence = self._sequences.get((event.topic, partition, lane), 0)
            self._sequences[event.topic, partition, lane] = sequence + len(values)
            data = batch.build(
                records, timestamp_ms=stamp_ms, producer_id=self._id, producer_epoch=0, base_sequence=sequence
            )
        else:
            data = batch.build(records, timestamp_ms=stamp_ms)
        return wire.Produce(event.topic, partition, Acks.STORED, event.delay_ms, event.ttl_ms, data, event.priority)

    def _put(self, request: wire.Request) -> None:
        self._numbers += 1
        self._outbox.append((self._numbers, request))

    def _put_back(self, number: int, request: wire.Request) -> None:
        """Back to its place: what an idempotent producer sends out of order is refused for its sequence."""
        if self._is_in_order:
            before = []
            while self._outbox and self._outbox[0][0] < number:
                before.append(self._outbox.popleft())
            self._outbox.appendleft((number, request))
            self._outbox.extendleft(reversed(before))
        else:
            self._outbox = deque(sorted([*self._outbox, (number, request)], key=itemgetter(0)))
            self._is_in_order = True

    def _pump(self) -> None:
        if self.line is None or self.is_paused or self.is_dead or self.world.now_us < self._rests_until_us:
            return
        while self._outbox and len(self._under_way) < self._window:
            number, request = self._outbox.popleft()
            self._under_way[number] = request
            self.request(request, self._on_answer(number))
        self._flush()

    def _tries_again(self, refusal: wire.Refusal) -> bool:
        """A batch that follows a refused one is refused for its sequence: it goes out again behind that one, unless it
        is said to be stored."""
        if self._id:
            return refusal.status != Status.EXISTS
        return refusal.status in (Status.BUSY, Status.READ_ONLY, Status.QUOTA, Status.INTERNAL)

    def _on_answer(self, number: int) -> OnAnswer:
        def then(answer: wire.Answer | wire.Refusal) -> None:
            request = self._under_way.pop(number, None)
            if request is not None and isinstance(answer, wire.Refusal) and self._tries_again(answer):
                self._put_back(number, request)
                rest_us = max(answer.retry_after_ms, 50) * 1000
                self._rests_until_us = max(self._rests_until_us, self.world.now_us + rest_us)
                self.world.after(rest_us, self._pump)
            else:
                self._pump()

        return then

    def connected(self) -> None:
        super().connected()
        self._pump()

    def disconnected(self) -> None:
        for number in sorted(self._under_way, reverse=True):
            self._outbox.appendleft((number, self._under_way[number]))
        self._is_in_order = False
        self._under_way.clear()


class Consumer(Client):
    """Reads, works, settles: by its habits during the chaos, like a good one afterwards."""

    def __init__(self, world: World, habits: plan.Consumer) -> None:
        super().__init__(world, habits.name)
        self.habits = habits
        self.is_correlated = not habits.legacy
        self.is_good = False
        self._last: wire.Deliver | None = None
        self._revoked: set[tuple[str, int]] = set()
        self.strike_on: plan.CrashClient | plan.Reset | plan.Partition | None = None

    def connected(self) -> None:
        habits = self.habits
        self._revoked.clear()
        if not habits.legacy:
            super().connected()
        if (habits.member or habits.strategy) and habits.group:
            self.request(wire.JoinGroup(habits.group, habits.name, habits.strategy))
        self.request(wire.Subscribe(habits.pattern, habits.group, habits.credit, habits.auto_ack), self._subscribed)
        if self._last is not None and not habits.legacy and self._draw("stale", self._last.lease) < habits.stale:
            # Work that was done for the connection before this one: a broker must not take it.
            first, last = self._last.ranges[0]
            self.request(wire.Settle((wire.SettleItem(self._last.lease, SettleAction.ACK, first, last),)))

    def _subscribed(self, answer: wire.Answer | wire.Refusal) -> None:
        self._strike("subscribe")

    def _strike(self, moment: str) -> bool:
        """A fault that waited for this moment."""
        event = self.strike_on
        if event is None or event.on != moment:
            return False
        self.strike_on = None
        self.world.mark(f"{type(event).__name__} at {moment}")
        self.world.strike(event)
        return True

    def leave(self, for_ms: int) -> None:
        """Go in good order."""
        if self.line is not None and not self.is_dead and not self.is_paused:
            self.request(wire.Goodbye())
            self._flush()
            self.crash(for_ms, silent=False)

    def got(self, message: wire.Request | wire.Push) -> None:
        if isinstance(message, wire.Deliver):
            self._last = message if message.lease else self._last
            if message.lease and not self._strike("deliver"):
                self._work(lambda line: self._settle(line, message))
        elif isinstance(message, wire.Revoke):
            self._strike("revoke")
            if not self.is_good and self._draw("deaf", message.group, message.generation) < self.habits.deaf:
                return
            # What is being worked on is given up with the partition.
            self._revoked |= {(each.topic, each.partition) for each in message.partitions}
            self.request(wire.JoinGroup(self.habits.group, self.habits.name, self.habits.strategy))
        elif isinstance(message, wire.Assign):
            self._revoked.clear()
            self._strike("assign")
        elif isinstance(message, wire.Delivery) and message.ack_deadline_ms and not self._strike("deliver"):
            self._work(lambda line: self._settle_single(line, message))

    def _work(self, then: Callable[[Line], None]) -> None:
        line = self.line

        def done() -> None:
            if self.is_paused:
                self.world.after(self.paused_until_us - self.world.now_us, done)
            elif line is not None and line is self.line:
                then(line)
                self._flush()
                self._strike("settle")

        busy_us = self.habits.process_ms * 1000 if not self.is_good else 1000
        self.world.after(busy_us + self.random.randrange(500), done)

    def _draw(self, *about: object) -> int:
        return dice.draw(self.world.plan.seed, self.name, *about)

    def _cling(self, line: Line, message: wire.Deliver, times: int) -> None:
        """Ask for more time, and come back to it before that is over."""
        lease_ms = self.world.plan.broker.lease_ms
        first, last = message.ranges[0]
        self.request(wire.Settle((wire.SettleItem(message.lease, SettleAction.EXTEND, first, last, 0, lease_ms),)))

        def again() -> None:
            if line is self.line and not self.is_paused:
                self._settle(line, message, times + 1)
                self._flush()

        self.world.after(lease_ms * 600, again)

    def _settle(self, line: Line, message: wire.Deliver, times: int = 0) -> None:
        habits = self.habits
        if (message.topic, message.partition) in self._revoked:
            return
        where = (message.topic, message.partition, message.lease)
        if not self.is_good and self._draw("ignore", *where) < habits.ignore:
            return
        if not self.is_good and self._draw("extend", *where) < habits.extend:
            first, last = message.ranges[0]
            item = wire.SettleItem(message.lease, SettleAction.EXTEND, first, last, 0, self.world.plan.broker.lease_ms)
            self.request(wire.Settle((item,)))
        if not self.is_good and times < CLINGS and self._draw("cling", *where) < habits.cling:
            self._cling(line, message, times)
            return
        items: list[wire.SettleItem] = []
        for first, last in message.ranges:
            items += self._items(message, first, last)
        if self._draw("later", *where) < habits.later:
            items = [replace(each, delay_ms=plan.LATER_MS * (each.action == SettleAction.NACK)) for each in items]
        wait = Wait.DURABLE if self._draw("durable", *where) < habits.durable else Wait.APPLIED
        if len(items) > 1 and self._draw("parts", *where) < habits.in_parts:
            items.reverse()
        self.request(wire.Settle(tuple(items), wait))

    def _items(self, message: wire.Deliver, first: int, last: int) -> list[wire.SettleItem]:
        """What to say about a range: runs of offsets that fare alike."""
        habits = self.habits
        is_odd = bool(habits.nack or habits.reject or habits.in_parts) and not self.is_good
        if not (self.world.plan.poison or self.world.plan.toxic or is_odd):
            return [wire.SettleItem(message.lease, SettleAction.ACK, first, last)]
        items: list[wire.SettleItem] = []
        middle = (first + last) // 2 if habits.in_parts else last
        action_of = self._actions(message.topic, message.partition)
        is_toxic = self._is_toxic(message.topic, message.partition)
        for offset in range(first, last + 1):
            action = action_of(offset, message.attempt)
            before = items[-1] if items else None
            reason = _reason(action, is_toxic(offset))
            if before is not None and (before.action, before.reason) == (action, reason) and offset != middle + 1:
                items[-1] = wire.SettleItem(before.lease, action, before.first, offset, reason)
            else:
                items.append(wire.SettleItem(message.lease, action, offset, offset, reason))
        return items

    def _is_toxic(self, topic: str, partition: int) -> Callable[..., bool]:
        """Which messages are poison to everybody."""
        return self._odds(self.world.plan.toxic, dice.series(self.world.plan.seed, "toxic", topic, partition))

    def _actions(self, topic: str, partition: int) -> Callable[[int, int], SettleAction]:
        """What becomes of each offset of a partition at each attempt."""
        seed, habits = self.world.plan.seed, self.habits
        is_poison = self._odds(self.world.plan.poison, dice.series(seed, "poison", topic, partition))
        is_toxic = self._is_toxic(topic, partition)
        is_rejected = self._odds(habits.reject, dice.series(seed, self.name, "reject", topic, partition))
        fails = self._odds(habits.nack, dice.series(seed, self.name, "nack", topic, partition))

        def action_of(offset: int, attempt: int) -> SettleAction:
            if is_poison(offset) or is_toxic(offset):
                return SettleAction.NACK
            if self.is_good:
                return SettleAction.ACK
            if is_rejected(offset):
                return SettleAction.REJECT
            return SettleAction.NACK if fails(offset, attempt) else SettleAction.ACK

        return action_of

    @staticmethod
    def _odds(per_mille: int, drawn: Callable[..., int]) -> Callable[..., bool]:
        """Whether chance strikes, so many times in a thousand."""
        return (lambda *about: drawn(*about) < per_mille) if per_mille else (lambda *about: False)

    def _settle_single(self, line: Line, message: wire.Delivery) -> None:
        if not self.is_good and self._draw("ignore", message.message_id) < self.habits.ignore:
            return
        bare, _, number = message.message_id.rpartition("#")
        topic, partition, offset = bare.rsplit(":", 2)
        action = self._actions(topic, int(partition.partition(".")[0]))(int(offset), int(number))
        if action == SettleAction.ACK:
            self.request(wire.Ack(message.message_id))
        else:
            is_toxic = self._is_toxic(topic, int(partition.partition(".")[0]))
            reason = _reason(action, is_toxic(int(offset)))
            self.request(wire.Nack(message.message_id, reason, action == SettleAction.NACK))


class Operator(Client):
    """Moves groups about over the wire; sees to topics and dead letters as the HTTP interface does."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._asked: dict[int, OnResult] = {}
        self._numbers = 0
        self._seeks: list[plan.Seek] = []
        """Those that were not answered: asked for again."""

    def connected(self) -> None:
        super().connected()
        for event in self._seeks:
            self._seek(event)

    def seek(self, event: plan.Seek) -> None:
        """Move a group's place back."""
        self._seeks.append(event)
        if self.line is not None:
            self._seek(event)
            self._flush()

    def _seek(self, event: plan.Seek) -> None:
        def then(answer: wire.Answer | wire.Refusal) -> None:
            self._seeks.remove(event)

        whence = {"earliest": Whence.EARLIEST, "time": Whence.TIME, "offset": Whence.OFFSET}[event.to]
        value = WALL_MS + event.value if whence == Whence.TIME else event.value
        self.request(wire.Seek(event.group, event.topic, event.partition, whence, value, event.lane), then)

    def delete(self, event: plan.DeleteTopic) -> None:
        """Delete a topic, whoever reads it."""
        deletions, world = self.world.books.deletions, self.world
        if world.broker.is_up:
            deletions.deleting(event.topic)
            self._ask(
                lambda session, number: inputs.DeleteTopic(session, number, event.topic, force=True),
                lambda ok: deletions.deleted(event.topic, world.now_us, ok=ok),
            )

    def create(self, event: plan.CreateTopic) -> None:
        """Make a topic as the plan says, if it is not there."""
        topic = next(each for each in self.world.plan.topics if each.name == event.topic)
        self._ask(lambda session, number: self.world.broker.creation(session, number, topic), lambda ok: None)

    def configure(self, event: plan.Configure) -> None:
        """Give a topic another limit on retries."""
        topic = next(each for each in self.world.plan.topics if each.name == event.topic)
        self.world.books.ground.configured(event.topic, event.max_retries)
        config = replace(self.world.broker.config_of(topic), max_retries=event.max_retries)
        self._ask(lambda session, number: inputs.ConfigureTopic(session, number, event.topic, config), lambda ok: None)

    def look_at_dead(self, event: plan.ReplayDead | plan.PurgeDead) -> None:
        """Read a topic's dead letters, and then do with them what is to be done."""
        if self.line is not None:
            dead = f"{event.topic}.dlq"

            def then(answer: wire.Answer | wire.Refusal) -> None:
                if isinstance(answer, wire.FetchAnswer) and answer.batches:
                    entries = [each for each in _records(answer.batches) if each.offset >= answer.start]
                    if isinstance(event, plan.PurgeDead):
                        self._purge(dead, [entry.offset for entry in entries[: event.count]])
                    else:
                        self._replay(dead, entries[:: event.every], event.rate)

            self.request(wire.Fetch(dead, 0, 0, 1 << 20), then)
            self._flush()

    def look(self, event: plan.Look) -> None:
        """Look at members, at how far behind they are, and at the lives of some messages."""
        broker, looks = self.world.broker, self.world.books.looks
        node = broker.life.node
        if not broker.is_up or node is None:
            return
        state, now, now_us = node.state, broker.now(broker.life), self.world.now_us
        durable = state.durable
        for number, group in ordered(durable.groups):
            shown = [
                Shown(
                    group.name,
                    broker.life.lines[each.session].number,
                    each.health.name.lower(),
                    each.in_flight,
                    each.oldest_pending_ms,
                    each.outcomes,
                    each.error_percent,
                )
                for each in members.describe(state, number, now.mono_ms)
                if each.session in broker.life.lines
            ]
            looks.members(shown, now_us)
        for topic in self.world.plan.topics:
            found = durable.topics.get(durable.topics_by_name.get(topic.name, 0))
            if found is not None:
                lag = capacity.lags_of(state).by_topic.get(found.id, 0)
                level = capacity.level_of(state, found, lag, now.wall_ms)
                looks.capacity(topic.name, lag, level.name.lower(), topic.lag_critical, now_us)
        looked_at = durable.topics.get(durable.topics_by_name.get(event.topic, 0))
        if looked_at is not None:
            for log in [durable.logs[looked_at.first_log + place] for place in range(looked_at.log_count)]:
                key = (event.topic, log.partition, log.lane + 1 if looked_at.lanes else 0)
                stored = state.live.tails[log.id].stored
                for offset in range(max(log.start, stored - event.count), stored):
                    told = [
                        Told(each.what, durable.groups[each.group].name if each.group else "", each.attempt)
                        for each in broker.told(log.id, offset)
                        if each.place == (log.id, offset) and (not each.group or each.group in durable.groups)
                    ]
                    looks.life(key, offset, told)

    def _purge(self, dead: str, offsets: list[int]) -> None:
        """Remove dead letters."""
        ranges = tuple([(offset, offset) for offset in offsets])

        def then(ok: bool | None) -> None:
            if ok:
                self.world.books.dead_letters.purged.update((dead, offset) for offset in offsets)

        self._ask(lambda session, number: inputs.RemoveDead(session, number, dead, ranges), then)

    def _replay(self, dead: str, entries: list[batch.Record], rate: int) -> None:
        """Replay dead letters to where they came from; those that were replayed or removed before are refused."""
        dead_letters = self.world.books.dead_letters
        gone = set(dead_letters.purged)
        if self._numbers % 2:
            gone |= set(dead_letters.replays_owed)
        items: list[tuple[int, str, int]] = []
        for entry in entries:
            headers = dict(entry.headers)
            if (dead, entry.offset) not in gone:
                topic, partition = headers["dovetail-topic"] or b"", headers["dovetail-partition"] or b""
                items.append((entry.offset, topic.decode(), int(partition)))
        if not items or not self.world.broker.is_up:
            return
        plans = [(dead, offset, topic) for offset, topic, _ in items]
        dead_letters.replaying(plans)

        def then(ok: bool | None) -> None:
            if ok is not None:
                dead_letters.replayed(plans, ok=ok)

        self._ask(lambda session, number: inputs.StartReplay(session, number, dead, tuple(items), rate), then)

    def _ask(self, make: Callable[[int, int], AnyInput], then: OnResult) -> None:
        """Ask the broker as its HTTP interface does; `then` hears whether it was done, None if that is not known."""
        self._numbers += 1
        asked = self._numbers
        self._asked[asked] = then

        def answered(done: bool) -> None:
            waiting = self._asked.pop(asked, None)
            if waiting is not None:
                waiting(done)

        if not self.world.broker.ask(make, answered):
            del self._asked[asked]

    def broker_died(self) -> None:
        """Nobody will answer any more."""
        for asked in sorted(self._asked):
            self._asked.pop(asked)(None)


class Auditor(Client):
    """Reads every log from its start, at the end of a run."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "auditor")
        self._todo: deque[LogKey] = deque()
        self.ends: dict[LogKey, int] = {}
        self.rounds = 0
        self.is_busy = False

    def audit(self, logs: list[LogKey], *, anew: bool = False) -> None:
        """Read on in these logs, or everything anew; `is_busy` until it is done."""
        if anew:
            self.ends.clear()
        self._todo = deque(logs)
        self.is_busy = True
        self._next()

    def _next(self) -> None:
        if self.line is None:
            return
        if not self._todo:
            self.is_busy = False
            self.rounds += 1
            return
        topic, partition, lane = self._todo[0]
        offset = self.ends.get(self._todo[0], 0)
        self.request(wire.Fetch(topic, partition, offset, 1 << 20, 0, lane), self._took)
        self._flush()

    def _took(self, answer: wire.Answer | wire.Refusal) -> None:
        log = self._todo[0]
        if isinstance(answer, wire.FetchAnswer):
            self.ends[log] = max(self.ends.get(log, 0), answer.start)
        if isinstance(answer, wire.FetchAnswer) and answer.batches:
            self.ends[log] = batch.split(answer.batches)[-1][0].last_offset + 1
        if not isinstance(answer, wire.FetchAnswer) or self.ends.get(log, 0) >= answer.end:
            self._todo.popleft()
        elif not answer.batches:
            self.world.stuck(f"{log} can't be read past {self.ends.get(log, 0)}, it ends at {answer.end}")
        self._next()

    def connected(self) -> None:
        super().connected()
        if self.is_busy:
            self._next()


def _reason(action: SettleAction, is_toxic: bool) -> NackReason:
    if is_toxic:
        return NackReason.POISON
    return NackReason.PROCESSING_ERROR if action == SettleAction.NACK else NackReason.UNSPECIFIED


def _records(batches: bytes) -> list[batch.Record]:
    return [record for _, data in batch.split(batches) for record in batch.parse(data, codecs=CODECS)]
