"""A partitioned group whose every step is told to its naive model, and what may happen to it, as small actions.

Members come, go, fall silent and come back, topics appear and vanish, partitions are asked back and released or not,
and the broker dies between. Who picks decides how: Hypothesis, or a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from dovetail.core import effects as out
from dovetail.core import inputs as ask
from dovetail.core import records
from dovetail.core.assignment import PARTITIONED_STRATEGIES
from dovetail.core.codes import SettleAction, Status, Whence
from dovetail.core.ids import ordered
from dovetail.core.records import TopicConfig
from dovetail.core.state import BatchMeta, Settings
from dovetail.spec.partitions import Partitions, Place, Plan
from tests.core.actions import Pick, Seeded
from tests.core.crew import OPERATOR, Crew

SETTINGS = Settings(auto_create=False, session_timeout_ms=8_000, rebalance_answer_ms=5_000)
CONFIG = TopicConfig(lease_ms=1 << 40, lag_warning=0)
TOPICS = {"a": (4, 0), "a.b": (3, 0), "b": (1, 5)}
"""Name to partitions and lanes."""
PATTERNS = ("#", "#", "a.#", "*", "b")
NAMES = ("anna", "ben", "cleo", "dora")


class Watched(Crew):
    """A crew whose every step is told to the model."""

    def __init__(self, strategy: str) -> None:
        self.model = Partitions(strategy, SETTINGS.quiet_ms, SETTINGS.rebalance_answer_ms, SETTINGS.session_timeout_ms)
        self.shut: list[int] = []
        self.silent: set[str] = set()
        self.leases_ever: list[tuple[int, int, int]] = [(0, 0, 0)]
        """Lease, session, first offset."""
        super().__init__(SETTINGS, CONFIG)
        self.step(ask.ConfigureGroup(OPERATOR, self.request(), "crew", strategy))

    def _step(self, inputs: Iterable[ask.AnyInput]) -> list[out.AnyEffect]:
        inputs, seen = list(inputs), len(self.records)
        effects = super()._step(inputs)
        model = self.model
        model.begin(self.mono_ms)
        for record in self.records[seen:]:
            self._tell_record(record)
        answers = {each.request: each.answer for each in effects if isinstance(each, out.Reply)}
        for each in inputs:
            self._tell_input(each, answers)
        for effect in effects:
            self._tell_effect(effect)
        progress = ordered(self.state.live.progress)
        model.end({self._place(log) for (_, log), each in progress if each.reading})
        return effects

    def _tell_record(self, record: records.AnyRecord) -> None:
        match record:
            case records.TopicCreated():
                self.model.topic_created(record.name, record.partitions, record.lanes)
            case records.TopicDeleted():
                self.model.topic_deleted(next(name for name in self.model.topics if self._is_gone(name)))
            case records.BatchAppended():
                self.model.published(
                    self._place(record.log), range(record.base, record.base + record.count), self.state.durable.lsn
                )
            case records.Rebalanced():
                plan: Plan = {self._place(slot)[:2]: name for name, slots in record.shares for slot in slots}
                self.model.planned_anew(record.generation, plan, [name for name, _ in record.shares])

    def _is_gone(self, name: str) -> bool:
        return name not in self.state.durable.topics_by_name

    def _place(self, log: int) -> Place:
        found = self.state.durable.logs[log]
        return self.state.durable.topics[found.topic].name, found.partition, found.lane

    def _tell_input(self, each: ask.AnyInput, answers: dict[int, out.Answer]) -> None:
        model, request = self.model, getattr(each, "request", 0)
        answer = answers.get(request)
        good = not isinstance(answer, out.Refused)
        match each:
            case ask.Stored():
                model.stored(each.lsn)
            case ask.SessionOpened():
                model.opened(each.session, each.name)
            case ask.SessionClosed():
                model.closed(each.session)
            case ask.Seen():
                model.seen(each.session)
            case ask.JoinGroup():
                generation = model.generation
                assert model.join(each.session, each.member, each.strategy) == good, (each, answer)
                assert not good or answer == out.Joined(generation)
            case ask.LeaveGroup():
                assert model.leave(each.session, each.member) == good, (each, answer)
            case ask.Subscribe():
                assert isinstance(answer, out.Subscribed)
                model.subscribe(each.session, answer.subscription, each.pattern, each.max_inflight)
            case ask.Unsubscribe():
                assert model.unsubscribe(each.session, each.subscription) == good, (each, answer)
            case ask.RemoveMember():
                assert model.remove(each.member) == good or answer is None
            case ask.RebalanceGroup():
                model.replan()
            case ask.Settle():
                assert isinstance(answer, out.Settlement)
                (item,) = each.items
                counts = model.settle(each.session, item.lease, set(range(item.first, item.last + 1)))
                assert counts == (answer.results[0][0] == Status.OK), (each, answer)
            case ask.Commit():
                place = each.topic, each.partition, max(0, each.lane - 1)
                assert model.commit(each.session, place, each.offset) == good, (each, answer)
            case ask.Seek():
                place = each.topic, each.partition, max(0, each.lane - 1)
                assert model.seek(each.session, place, each.value) == good, (each, answer)

    def _tell_effect(self, effect: out.AnyEffect) -> None:
        model = self.model
        match effect:
            case out.Revoke():
                model.revoked(effect.session, effect.generation, effect.partitions)
            case out.Assign():
                model.assigned(effect.session, effect.generation, effect.partitions)
            case out.CloseSession():
                model.shut(effect.session)
                self.shut.append(effect.session)
            case out.LeaseEnded():
                model.lease_ended(effect.session, effect.lease)
            case out.Deliver():
                place = effect.topic, effect.partition, max(0, effect.lane)
                offsets = [each for first, last in effect.ranges for each in range(first, last + 1)]
                self.leases_ever.append((effect.lease, effect.session, offsets[0]))
                model.delivered(effect.session, effect.subscription, place, effect.lease, effect.attempt, offsets)

    def publish_to(self, topic: str, partition: int, lane: int, count: int) -> None:
        """A batch for one lane, which the store knows from then on."""
        log = self.log(partition, topic) + lane
        base = self.state.durable.logs[log].end
        self.batches.setdefault(log, []).append(BatchMeta(base, base + count - 1, 100, 0, 0))
        asked = (ask.Ask(OPERATOR, self.request(), 0, count),)
        self.step(ask.Publish(topic, partition, self.requests, count, 100, asked, priority=lane + 1))

    def hang_up(self) -> None:
        """As a shell does: connections that the broker ended are closed."""
        while self.shut:
            session = self.shut.pop()
            for name in [name for name, number in self.sessions.items() if number == session]:
                del self.sessions[name]
            self.step(ask.SessionClosed(session))

    def say(self, name: str, make: Callable[[int, int], ask.AnyInput]) -> None:
        """A request of a connection; any frame is a sign of life."""
        self.step(ask.Seen(self.sessions[name]), make(self.sessions[name], self.request()))
        self.hang_up()

    def pass_time(self, by_ms: int) -> list[out.AnyEffect]:
        """Time goes by, with a step whenever a timer fires; those who are not silent give signs of life."""
        until_ms = self.mono_ms + by_ms
        while self.mono_ms < until_ms:
            wake_ms = self.state.live.timers.wake_ms
            at_ms = min(until_ms, self.mono_ms + 2_000, max(wake_ms or until_ms, self.mono_ms + 1))
            self.wall_ms += at_ms - self.mono_ms
            self.mono_ms = at_ms
            heard = [session for name, session in self.sessions.items() if name not in self.silent]
            self.step(*[ask.Seen(session) for session in heard])
            self.hang_up()
        return []

    def crash(self) -> None:
        self.model.crash()
        self.shut.clear()
        self.mono_ms = 0
        super().crash()


def _name(world: Watched, pick: Pick) -> str:
    return pick.choice(sorted(world.sessions)) if world.sessions else ""


def _rarely(pick: Pick) -> bool:
    return pick.integer(0, 9) == 0


def connect(world: Watched, pick: Pick) -> None:
    """Under a name that may be connected already: then the old connection stays, a zombie."""
    name = pick.choice(NAMES)
    world.silent.discard(name)
    world.connect(name)
    world.say(name, lambda me, number: ask.JoinGroup(me, number, "crew", name, ""))
    if not _rarely(pick):
        pattern, credit = pick.choice(PATTERNS), pick.integer(1, 4)
        world.say(name, lambda me, number: ask.Subscribe(me, number, pattern, "crew", credit, False))


def join(world: Watched, pick: Pick) -> None:
    """Mostly an answer to a REVOKE."""
    name = _name(world, pick)
    if name:
        claimed = pick.choice(NAMES) if _rarely(pick) else name
        strategy = pick.choice(PARTITIONED_STRATEGIES) if _rarely(pick) else ""
        world.say(name, lambda me, number: ask.JoinGroup(me, number, "crew", claimed, strategy))


def _join(member: str, session: int, request: int) -> ask.AnyInput:
    return ask.JoinGroup(session, request, "crew", member, "")


def all_answer(world: Watched, pick: Pick) -> None:
    """Everybody joins again."""
    for name in sorted(world.sessions):
        if name in world.sessions:
            known = [each for each, member in world.model.members.items() if member.connection == world.sessions[name]]
            mine = (known or [name])[0]
            world.say(name, partial(_join, mine))


def leave(world: Watched, pick: Pick) -> None:
    name = _name(world, pick)
    if name:
        world.say(name, lambda me, number: ask.LeaveGroup(me, number, "crew", name))


def hang_up(world: Watched, pick: Pick) -> None:
    name = _name(world, pick)
    if name:
        world.step(ask.SessionClosed(world.sessions.pop(name)))


def fall_silent(world: Watched, pick: Pick) -> None:
    name = _name(world, pick)
    if name:
        world.silent ^= {name}


def subscribe(world: Watched, pick: Pick) -> None:
    name = _name(world, pick)
    if name:
        pattern, credit = pick.choice(PATTERNS), pick.integer(1, 4)
        world.say(name, lambda me, number: ask.Subscribe(me, number, pattern, "crew", credit, False))


def unsubscribe(world: Watched, pick: Pick) -> None:
    name = _name(world, pick)
    if name and world.model.subscriptions:
        subscription = pick.choice(sorted(world.model.subscriptions))
        world.say(name, lambda me, number: ask.Unsubscribe(me, number, subscription))


def remove(world: Watched, pick: Pick) -> None:
    name = pick.choice(NAMES)
    world.step(ask.RemoveMember(OPERATOR, world.request(), "crew", name))
    world.hang_up()


def replan(world: Watched, pick: Pick) -> None:
    world.step(ask.RebalanceGroup(OPERATOR, world.request(), "crew"))


def make_topic(world: Watched, pick: Pick) -> None:
    name = pick.choice(tuple(TOPICS))
    if name in world.model.topics:
        if _rarely(pick):
            world.delete(name)
    else:
        world.topic(name, *TOPICS[name])


def publish(world: Watched, pick: Pick) -> None:
    if world.model.topics:
        topic, count = pick.choice(tuple(world.model.topics)), pick.integer(1, 4)
        partitions, lanes = TOPICS[topic]
        world.publish_to(topic, pick.integer(0, partitions - 1), pick.integer(0, max(0, lanes - 1)), count)


def settle(world: Watched, pick: Pick) -> None:
    """Mostly what its sender holds, sometimes what it held, or what somebody else holds."""
    known = sorted(world.model.leases) if not _rarely(pick) else []
    if known:
        number = pick.choice(known)
        held = world.model.leases[number]
        first, session = min(held.offsets), world.model.subscriptions[held.subscription].connection
    else:
        number, session, first = pick.choice(world.leases_ever)
    names = [name for name, each in world.sessions.items() if each == session]
    name = names[0] if names and not _rarely(pick) else _name(world, pick)
    if name:
        item = (ask.SettleItem(number, SettleAction.ACK, first, first),)
        world.say(name, lambda me, request: ask.Settle(me, request, item))


def _some_place(world: Watched, pick: Pick) -> tuple[str, int, int, int]:
    """Topic, partition, lane as a request names it, an offset there."""
    topic, partition, lane = pick.choice(
        sorted(place for each in world.model.topics.values() for place in each.offsets)
    )
    offsets = sorted(world.model.topics[topic].offsets[topic, partition, lane])
    return topic, partition, lane + 1 if TOPICS[topic][1] else 0, pick.choice(offsets) if offsets else -1


def commit(world: Watched, pick: Pick) -> None:
    name = _name(world, pick)
    if name and world.model.topics and any(each in world.model.patterns for each in ("#",)):
        topic, partition, lane, offset = _some_place(world, pick)
        if offset >= 0:
            world.say(name, lambda me, request: ask.Commit(me, request, "crew", topic, partition, offset, lane))


def seek(world: Watched, pick: Pick) -> None:
    name = _name(world, pick)
    if name and world.model.topics and any(each in world.model.patterns for each in ("#",)):
        topic, partition, lane, offset = _some_place(world, pick)
        if offset >= 0:
            world.say(
                name, lambda me, request: ask.Seek(me, request, "crew", topic, partition, Whence.OFFSET, offset, lane)
            )


def a_moment(world: Watched, pick: Pick) -> None:
    world.pass_time(pick.choice((10, 50, 100, 100, 200, 1_000)))


def a_while(world: Watched, pick: Pick) -> None:
    world.pass_time(pick.choice((3_000, 6_000, 10_000)))


def crash(world: Watched, pick: Pick) -> None:
    world.silent.clear()
    world.crash()


Action = Callable[[Watched, Pick], None]
WEIGHTS: dict[Action, int] = {
    connect: 6, join: 4, all_answer: 8, leave: 2, hang_up: 2, fall_silent: 2, subscribe: 2, unsubscribe: 2,
    remove: 1, replan: 1, make_topic: 4, publish: 10, settle: 10, commit: 2, seek: 1, a_moment: 16, a_while: 3,
    crash: 1,
}  # fmt: skip


def run(seed: int, actions: int) -> Watched:
    pick = Seeded(seed)
    world = Watched(PARTITIONED_STRATEGIES[seed % len(PARTITIONED_STRATEGIES)])
    deck = [action for action, weight in WEIGHTS.items() for _ in range(weight)]
    for _ in range(actions):
        pick.choice(deck)(world, pick)
    return world
