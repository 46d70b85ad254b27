"""Core and model side by side: every step of the core is told to the model, and their books are compared.

The world also is the core's shell in small: a journal that syncs when told to, an honest store that answers reads and
copies when told to, a network that reports what was sent when told to.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.core import effects as out
from dovetail.core import inputs as ask
from dovetail.core import records as journal
from dovetail.core.awaken import awaken
from dovetail.core.codes import Acks
from dovetail.core.evolve import evolve_frame
from dovetail.core.ids import Now, ordered
from dovetail.core.intervals import Intervals, gaps, lookup
from dovetail.core.invariants import check_state
from dovetail.core.records import EntryFlag, SyncPolicy, TopicConfig
from dovetail.core.state import BatchMeta, Durable, Settings
from dovetail.core.step import step
from dovetail.spec.model import Answer, Config, Disagreement, Model, Place, Reader, Rules

EPOCH_MS = 1_700_000_000_000
EVENTS_MAX = 1_000
"""How much may happen by itself before something is wrong."""

Frame = tuple[int, int, tuple[journal.AnyRecord, ...]]
"""Its number, its time, its records."""


class World:
    """One broker with its disk and clock, and the model that watches it."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.model = Model(_rules(self.settings))
        self.mono_ms, self.wall_ms = 0, EPOCH_MS
        self.frames: list[Frame] = []
        self.replayed = Durable()
        self.state = awaken(self.replayed, self.settings)
        self.stored_lsn = self.written_lsn = 0
        self.batches: dict[int, list[tuple[int, BatchMeta]]] = {}
        self.logs: dict[int, tuple[str, int]] = {}
        self.groups: dict[int, str] = {}
        self.requests = 0
        self.sessions_ever = 0
        self.deliveries: list[out.Deliver] = []
        self._forget_the_process()
        self.step(ask.Start())
        self.store()

    def _forget_the_process(self) -> None:
        self.reads: list[out.Read] = []
        self.copies: list[out.Copy] = []
        self.finds: list[out.Find] = []
        self.unsent: list[tuple[int, int]] = []
        self.together: list[ask.AnyInput] | None = None

    def request(self) -> int:
        """A number for a request, never used before."""
        self.requests += 1
        return self.requests

    def step(self, *inputs: ask.AnyInput) -> tuple[out.AnyEffect, ...]:
        """One step of the core, told to the model; everything that must hold afterwards is checked."""
        if self.together is not None:
            self.together.extend(inputs)
            return ()
        now = Now(self.mono_ms, self.wall_ms)
        self.state, records, effects = step(self.state, now, inputs)
        lsn = self.state.durable.lsn
        if records:
            self.frames.append((lsn, self.wall_ms, records))
            self.replayed = evolve_frame(self.replayed, lsn, self.wall_ms, records)
            self._keep(lsn, records)
        if self.replayed != self.state.durable:
            raise Disagreement(f"replay and live state differ after frame {lsn}")
        self._tell_model(inputs, records, effects)
        self._carry_out(effects)
        check_state(self.state, self.mono_ms)
        self.compare()
        return effects

    def begin_tick(self) -> None:
        """Gather what comes now into one step."""
        self.together = []

    def end_tick(self) -> None:
        """Let the step with everything gathered happen."""
        gathered, self.together = self.together or [], None
        self.step(*gathered)

    def pass_time(self, by_ms: int) -> None:
        """Time goes by; deadlines on the way are noticed one after the other, as a shell does that obeys `wake_ms`."""
        until_ms = self.mono_ms + by_ms
        for _ in range(EVENTS_MAX):
            wake_ms = self.state.live.timers.wake_ms
            at_ms = until_ms if wake_ms is None else min(until_ms, max(wake_ms, self.mono_ms + 1))
            self.wall_ms += at_ms - self.mono_ms
            self.mono_ms = at_ms
            self.step()
            if at_ms == until_ms:
                return
        raise Disagreement("the core asks to be woken again and again")

    def store(self, lsn: int | None = None) -> None:
        """The disk has synced everything up to `lsn`."""
        self.stored_lsn = self.frames[-1][0] if lsn is None else max(lsn, self.stored_lsn)
        self.written_lsn = max(self.written_lsn, self.stored_lsn)
        self._remove_what_was_trimmed()
        self.step(ask.Stored(self.stored_lsn))

    def _remove_what_was_trimmed(self) -> None:
        """Whole batches go, and not before the decision is stored: a crash must not find them gone but wanted."""
        for lsn, _, records in self.frames:
            for record in records:
                if isinstance(record, journal.LogTrimmed) and lsn <= self.stored_lsn:
                    kept = self.batches.get(record.log, [])
                    self.batches[record.log] = [(at, meta) for at, meta in kept if meta.last >= record.start]

    def write(self, lsn: int) -> None:
        """The disk has written everything up to `lsn`, but not synced it."""
        self.written_lsn = max(lsn, self.written_lsn)
        self.step(ask.Written(self.written_lsn))

    def answer_read(self, place: int = 0) -> None:
        """The store answers one of the reads under way."""
        read = self.reads.pop(place)
        known = [meta for _, meta in self.batches.get(read.log, []) if meta.last >= read.from_offset]
        self.step(ask.Loaded(read.owner, read.log, tuple(known[:4])))

    def answer_copy(self, place: int = 0) -> None:
        """The store answers one of the copies under way; what retention took can't be copied."""
        copy = self.copies.pop(place)
        held = any(meta.base <= copy.offset <= meta.last for _, meta in self.batches.get(copy.log, []))
        self.step(ask.Copied(copy.ticket, 1_000_000 + copy.ticket, 100 if held else 0))

    def answer_find(self, offset: int) -> None:
        """The store answers the oldest search for an offset by time."""
        self.step(ask.Found(self.finds.pop(0).ticket, offset))

    def report_sent(self, place: int = 0) -> None:
        """The network took messages that need no acknowledgment."""
        subscription, count = self.unsent.pop(place)
        self.step(ask.Sent(subscription, count))

    def trim(self, log: int, start: int) -> None:
        """Retention proposes to remove everything below `start`."""
        self.step(ask.TrimLog(log, start))

    def crash(self, lsn: int, mono_ms: int = 0) -> None:
        """The process ends; of its journal everything up to `lsn` is there when the next one starts."""
        self.frames = [frame for frame in self.frames if frame[0] <= lsn]
        self.replayed = Durable()
        for number, wall_ms, records in self.frames:
            self.replayed = evolve_frame(self.replayed, number, wall_ms, records)
        self.state = awaken(self.replayed, self.settings)
        self.batches = {
            log: [(at, meta) for at, meta in kept if at <= lsn]
            for log, kept in self.batches.items()
            if log in self.replayed.logs
        }
        self.stored_lsn = self.written_lsn = lsn
        self.mono_ms = mono_ms
        self.model.crash(lsn)
        self._forget_the_process()
        self.compare()
        check_state(self.state, self.mono_ms)
        self.step(ask.Start())
        self.store()

    def heal(self) -> None:
        """Everything that is under way comes to its end."""
        for _ in range(EVENTS_MAX):
            if self.reads:
                self.answer_read()
            elif self.copies:
                self.answer_copy()
            elif self.unsent:
                self.report_sent()
            elif self.stored_lsn < self.frames[-1][0]:
                self.store()
            else:
                return
        raise Disagreement("the world does not come to rest")

    def session(self, name: str = "c") -> int:
        """A new connection."""
        self.sessions_ever += 1
        self.step(ask.SessionOpened(self.sessions_ever, name))
        return self.sessions_ever

    def reader(self, owner: int) -> Reader:
        """Whose cursor it is, as the model calls them."""
        return self.groups[owner] if owner > 0 else -owner

    def place(self, owner: int, log: int) -> Place:
        """A cursor's place, as the model calls it."""
        return self.reader(owner), *self.logs[log]

    def _keep(self, lsn: int, records: Iterable[journal.AnyRecord]) -> None:
        for record in records:
            match record:
                case journal.TopicCreated():
                    for place in range(record.partitions * max(1, record.lanes)):
                        self.logs[record.first_log + place] = (record.name, place // max(1, record.lanes))
                case journal.GroupCreated():
                    self.groups[record.group] = record.name
                case journal.BatchAppended():
                    last = record.base + record.count - 1
                    meta = BatchMeta(record.base, last, record.size_bytes, record.expires_at_ms, record.flags)
                    self.batches.setdefault(record.log, []).append((lsn, meta))

    def _carry_out(self, effects: Iterable[out.AnyEffect]) -> None:
        for effect in effects:
            match effect:
                case out.Read():
                    self.reads.append(effect)
                case out.Copy():
                    self.copies.append(effect)
                case out.Find():
                    self.finds.append(effect)
                case out.Deliver():
                    self.deliveries.append(effect)
                    if effect.lease == 0:
                        self.unsent.append((effect.subscription, len(_offsets(effect.ranges))))

    def _tell_model(
        self,
        inputs: Iterable[ask.AnyInput],
        records: tuple[journal.AnyRecord, ...],
        effects: tuple[out.AnyEffect, ...],
    ) -> None:
        model = self.model
        observed = Observed(self, records, effects)
        unsent = [each.lease for each in inputs if isinstance(each, ask.Unsent)]
        model.begin(self.mono_ms, self.wall_ms, unsent)
        for each in inputs:
            tell_input(self, model, each, observed)
        for effect in effects:
            tell_effect(self, model, effect)
        for record in records:
            if isinstance(record, journal.Expired):
                _, topic, partition = self.place(record.group, record.log)
                model.expired(self.groups[record.group], topic, partition, record.first, record.last)
        reading = {self.place(owner, log) for (owner, log), each in ordered(self.state.live.progress) if each.reading}
        model.end(self.state.durable.lsn, reading)

    def compare(self) -> None:
        """The core's books, written as the model writes them, are the model's."""
        incarnation, topics, retired, groups, places, _ = self.model.books()
        durable, live, model = self.state.durable, self.state.live, self.model
        assert isinstance(topics, dict)
        _same("incarnation", incarnation, durable.incarnation)
        _same("old ends", retired, {name: list(ends) for name, ends in ordered(durable.retired_by_name)})
        _same(
            "topics",
            {name: [log[:2] for log in logs] for name, (_, logs) in topics.items()},
            {
                topic.name: [
                    (durable.logs[number].start, durable.logs[number].end)
                    for number in range(topic.first_log, topic.first_log + topic.log_count)
                ]
                for _, topic in ordered(durable.topics)
            },
        )
        _same("groups", groups, {each.name: (each.patterns, each.generation) for _, each in ordered(durable.groups)})
        _same("places", places, {self.place(*key): _unsettled(durable, key) for key, _ in ordered(durable.cursors)})
        _same(
            "leases",
            {
                number: (lease.subscription, lease.place, lease.offsets, lease.attempt, lease.deadline_ms)
                for number, lease in model.leases.items()
            },
            {
                number: (
                    lease.subscription,
                    self.place(lease.owner, lease.log),
                    set(_offsets(lease.ranges)),
                    lease.attempt,
                    lease.deadline_ms,
                )
                for number, lease in ordered(live.leases)
            },
        )
        _same(
            "credit in use",
            {number: model.in_flight(number) for number in model.subscriptions},
            {number: subscription.in_flight for number, subscription in ordered(live.subscriptions)},
        )


def _same(what: str, wanted: object, found: object) -> None:
    if wanted != found:
        raise Disagreement(f"{what}: the model has {wanted!r}, the core {found!r}")


def _offsets(ranges: Intervals) -> list[int]:
    return [offset for first, last in ranges for offset in range(first, last + 1)]


def _unsettled(durable: Durable, key: tuple[int, int]) -> dict[int, int]:
    cursor = durable.cursors[key]
    open_ranges = gaps(cursor.islands, cursor.floor, durable.logs[key[1]].end - 1)
    return {offset: lookup(cursor.attempts, offset)[0] for offset in _offsets(open_ranges)}


def _rules(settings: Settings) -> Rules:
    return Rules(
        settings.auto_create,
        settings.partitions,
        settings.max_inflight,
        settings.session_timeout_ms,
        settings.topics_max,
        settings.partitions_max,
        settings.patterns_max,
    )


def _config(config: TopicConfig) -> Config:
    return Config(
        config.lease_ms,
        config.lease_max_ms,
        config.max_retries,
        config.ttl_ms,
        config.sync == SyncPolicy.ALWAYS,
        config.dead_letters,
        config.expired_to_dead_letters,
    )


class Observed:
    """What the core chose in a step where it was free to choose."""

    def __init__(self, world: World, records: Iterable[journal.AnyRecord], effects: Iterable[out.AnyEffect]) -> None:
        self.placed: dict[int, int] = {}
        self.subscribed: dict[tuple[int, int], int] = {}
        self.sought: dict[tuple[int, int], int] = {}
        for record in records:
            if isinstance(record, journal.BatchAppended):
                self.placed[record.handle] = world.logs[record.log][1]
        for effect in effects:
            if isinstance(effect, out.Reply) and isinstance(effect.answer, out.Subscribed):
                self.subscribed[effect.session, effect.request] = effect.answer.subscription
            elif isinstance(effect, out.Find):
                seeking = world.state.live.seeking[effect.ticket]
                self.sought[seeking.session, seeking.request] = effect.ticket


def tell_input(world: World, model: Model, given: ask.AnyInput, seen: Observed) -> None:
    """Tell the model about one input of the core."""
    match given:
        case ask.Start():
            model.started()
        case ask.Stored():
            model.stored(given.lsn)
        case ask.Written():
            model.written(given.lsn)
        case ask.Sent():
            model.sent(given.subscription, given.count)
        case ask.Copied():
            model.copied(given.ticket, gone=given.size_bytes == 0)
        case ask.Found():
            model.found(given.ticket, given.offset)
        case ask.TrimLog():
            if given.log in world.state.durable.logs:
                model.trimmed(*world.logs[given.log], given.start)
        case ask.SessionOpened():
            model.session_opened(given.session, given.name)
        case ask.SessionClosed():
            model.session_closed(given.session)
        case ask.Seen():
            model.seen(given.session)
        case ask.Unsent():
            pass  # told when the step began
        case ask.Loaded():
            pass
        case ask.Publish():
            _tell_publish(model, given, seen)
        case _:
            _tell_request(model, given, seen)


def _tell_publish(model: Model, given: ask.Publish, seen: Observed) -> None:
    model.publish(
        given.topic,
        given.partition,
        given.count,
        given.ttl_ms,
        needs_ack=not given.flags & EntryFlag.NO_ACK,
        asks=[(each.session, each.request, each.index, each.count) for each in given.asks],
        confirm=given.acks != Acks.NONE,
        placed=seen.placed.get(given.handle),
    )


def _tell_request(model: Model, given: ask.AnyInput, seen: Observed) -> None:
    """What a session asks for; nothing is done for one that is over."""
    who = getattr(given, "session", 0), getattr(given, "request", 0)
    if who[0] not in model.sessions:
        return model.no_such_session(*who)
    match given:
        case ask.Settle():
            items = [
                (each.lease, each.action, each.first, each.last, each.reason, each.delay_ms) for each in given.items
            ]
            model.settle(*who, items, wait=given.wait)
        case ask.Subscribe():
            number = seen.subscribed.get(who)
            credit = given.max_inflight
            model.subscribe(*who, given.pattern, given.group, credit, auto_ack=given.auto_ack, number=number)
        case ask.Unsubscribe():
            model.unsubscribe(*who, given.subscription)
        case ask.JoinGroup():
            model.join_group(*who, given.group, given.member, given.strategy)
        case ask.LeaveGroup():
            model.leave_group(*who, given.group, given.member)
        case ask.Heartbeat():
            model.heartbeat(*who, given.member)
        case ask.SetCredit():
            model.set_credit(*who, given.subscription, given.max_inflight)
        case ask.Fetch():
            model.fetch(*who, given.topic, given.partition, given.offset, given.wait_ms)
        case ask.Commit():
            model.commit(*who, given.group, given.topic, given.partition, given.offset)
        case ask.Seek():
            ticket = seen.sought.get(who, 0)
            model.seek(*who, given.group, given.topic, given.partition, given.whence, given.value, ticket)
        case ask.ListTopics():
            model.list_topics(*who, given.pattern)
        case ask.CreateTopic():
            model.create_topic(*who, given.topic, given.partitions, given.lanes, _config(given.config))
        case ask.DeleteTopic():
            model.delete_topic(*who, given.topic, force=given.force)
        case _:
            raise Disagreement(f"the model does not know {given!r}")
    return None


def tell_effect(world: World, model: Model, effect: out.AnyEffect) -> None:
    """Tell the model about something that the core had done."""
    match effect:
        case out.Reply():
            model.replied(effect.session, effect.request, plain(effect.answer))
        case out.LeaseEnded():
            model.lease_ended(effect.session, effect.lease)
        case out.CloseSession():
            model.session_ended(effect.session)
        case out.Copy():
            dying = world.state.live.dying[effect.ticket]
            model.copy_asked(effect.ticket, world.place(dying.owner, dying.log), dying.offset)
        case out.Deliver():
            model.delivered(
                effect.session,
                effect.subscription,
                effect.topic,
                effect.partition,
                effect.lease,
                effect.attempt,
                effect.deadline_ms if effect.lease else 0,
                _offsets(effect.ranges),
            )
        case out.Read() | out.Find() | out.Hurry():
            pass
        case _:
            raise Disagreement(f"the model does not know {effect!r}")


def plain(answer: out.Answer) -> Answer:
    """An answer as the model writes it."""
    match answer:
        case out.Done():
            return ("done",)
        case out.Appended():
            return ("appended", answer.topic, answer.partition, answer.offset, answer.count)
        case out.Subscribed():
            return ("subscribed", answer.subscription)
        case out.Joined():
            return ("joined", answer.generation)
        case out.Settlement():
            return ("settled", tuple((int(status), int(action)) for status, action in answer.results))
        case out.Topics():
            return ("topics", {each.name: tuple((log.start, log.end) for log in each.logs) for each in answer.topics})
        case out.Fetched():
            return ("fetched", answer.offset, answer.start, answer.end)
        case out.Sought():
            return ("sought", answer.offset)
        case out.Refused():
            return ("refused", int(answer.status))
        case _:
            raise Disagreement(f"the model does not know {answer!r}")
