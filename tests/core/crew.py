"""A group at work: the core driven step by step, its members acting by name, its invariants checked after each step."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dovetail.core import effects as out
from dovetail.core import inputs as ask
from dovetail.core.awaken import awaken
from dovetail.core.codes import SettleAction
from dovetail.core.evolve import evolve_frame
from dovetail.core.ids import Now
from dovetail.core.invariants import check_state
from dovetail.core.rebalance import GroupState, state_of
from dovetail.core.records import AnyRecord, TopicConfig
from dovetail.core.state import BatchMeta, Durable, Group, Lease, Settings
from dovetail.core.step import step

EPOCH_MS = 1_700_000_000_000
OPERATOR = 1


class Crew:
    """One broker, one group called "crew", members by name; the disk stores everything at once."""

    def __init__(self, settings: Settings | None = None, config: TopicConfig | None = None) -> None:
        self.settings = settings or Settings()
        self.config = config or TopicConfig()
        self.mono_ms, self.wall_ms = 0, EPOCH_MS
        self.replayed = Durable()
        self.state = awaken(self.replayed, self.settings)
        self.records: list[AnyRecord] = []
        self.effects: list[out.AnyEffect] = []
        self.sessions: dict[str, int] = {}
        self.batches: dict[int, list[BatchMeta]] = {}
        self.last_session = OPERATOR
        self.requests = 0
        self.step(ask.Start(), ask.SessionOpened(OPERATOR, "operator"))

    def step(self, *inputs: ask.AnyInput) -> list[out.AnyEffect]:
        """One step, with everything it decided stored; gives the effects."""
        effects = self._step(inputs)
        while True:
            follow_ups = [self._follow_up(effect) for effect in effects]
            more = [each for each in follow_ups if each is not None]
            if self.state.live.stored_lsn < self.state.durable.lsn:
                more.append(ask.Stored(self.state.durable.lsn))
            if not more:
                return effects
            more_effects = self._step(more)
            effects = [*[each for each in effects if self._follow_up(each) is None], *more_effects]

    def _step(self, inputs: Iterable[ask.AnyInput]) -> list[out.AnyEffect]:
        self.state, records, effects = step(self.state, Now(self.mono_ms, self.wall_ms), inputs)
        if records:
            self.replayed = evolve_frame(self.replayed, self.state.durable.lsn, self.wall_ms, records)
        assert self.replayed == self.state.durable
        check_state(self.state, self.mono_ms)
        self.records.extend(records)
        self.effects.extend(effects)
        return list(effects)

    def _follow_up(self, effect: out.AnyEffect) -> ask.AnyInput | None:
        match effect:
            case out.Deliver(lease=0):
                return ask.Sent(effect.subscription, sum(last - first + 1 for first, last in effect.ranges))
            case out.Read():
                known = [meta for meta in self.batches[effect.log] if meta.last >= effect.from_offset]
                shown = known if effect.keys else [replace(meta, keys=()) for meta in known]
                return ask.Loaded(effect.owner, effect.log, tuple(shown))
        return None

    def request(self) -> int:
        self.requests += 1
        return self.requests

    def answer(self, effects: Iterable[out.AnyEffect]) -> out.Answer:
        """The answer to the request that was just made."""
        (found,) = [each.answer for each in effects if isinstance(each, out.Reply) and each.request == self.requests]
        return found

    def topic(self, name: str = "news", partitions: int = 6, lanes: int = 0) -> None:
        self.step(ask.CreateTopic(OPERATOR, self.request(), name, partitions, lanes, self.config))

    def delete(self, name: str = "news") -> None:
        self.step(ask.DeleteTopic(OPERATOR, self.request(), name, True))

    def connect(self, name: str) -> int:
        """A new connection for `name`; an older one stays open."""
        self.last_session += 1
        self.sessions[name] = self.last_session
        self.step(ask.SessionOpened(self.last_session, name))
        return self.last_session

    def join(self, name: str, strategy: str = "") -> out.Answer:
        request = ask.JoinGroup(self.sessions[name], self.request(), "crew", name, strategy)
        return self.answer(self.step(request))

    def subscribe(self, name: str, pattern: str = "#", credit: int = 10) -> out.Answer:
        request = ask.Subscribe(self.sessions[name], self.request(), pattern, "crew", credit, False)
        return self.answer(self.step(request))

    def enter(self, name: str, strategy: str = "range", pattern: str = "#", credit: int = 10) -> None:
        """Connect, join, subscribe."""
        self.connect(name)
        self.join(name, strategy)
        self.subscribe(name, pattern, credit)

    def settled_crew(self, *names: str, strategy: str = "range") -> Crew:
        """These members, together from the start, with all partitions handed out."""
        for name in names:
            self.enter(name, strategy)
        self.pass_time(self.settings.quiet_ms + 10)
        assert self.phase is GroupState.STABLE
        return self

    def leave(self, name: str) -> None:
        self.step(ask.LeaveGroup(self.sessions.pop(name), self.request(), "crew", name))

    def vanish(self, name: str) -> None:
        """The member's socket closes."""
        self.step(ask.SessionClosed(self.sessions.pop(name)))

    def publish_keys(self, *keys: int) -> list[out.AnyEffect]:
        """A batch whose messages have these keys' hashes, to partition 0."""
        base = self.state.durable.logs[self.log(0)].end
        self.batches.setdefault(self.log(0), []).append(BatchMeta(base, base + len(keys) - 1, 100, 0, 0, keys=keys))
        asked = (ask.Ask(OPERATOR, self.request(), 0, len(keys)),)
        return self.step(ask.Publish("news", 0, self.requests, len(keys), 100, asked))

    def publish(self, partition: int, count: int = 1, topic: str = "news") -> list[out.AnyEffect]:
        self.requests += 1
        asked = (ask.Ask(OPERATOR, self.requests, 0, count),)
        log = self.log(partition, topic)
        base = self.state.durable.logs[log].end
        self.batches.setdefault(log, []).append(BatchMeta(base, base + count - 1, 100, 0, 0))
        return self.step(ask.Publish(topic, partition, self.requests, count, 100, asked))

    def ack(self, lease: int, by: str, action: SettleAction = SettleAction.ACK) -> tuple[int, int]:
        """Settle all of a lease; gives status and outcome."""
        held = self.state.live.leases.get(lease)
        first, last = held.ranges[0] if held else (0, 0)
        item = ask.SettleItem(lease, action, first, last)
        answer = self.answer(self.step(ask.Settle(self.sessions[by], self.request(), (item,))))
        assert isinstance(answer, out.Settlement)
        return answer.results[0]

    def commit(self, by: str, partition: int, offset: int, topic: str = "news") -> out.Answer:
        request = ask.Commit(self.sessions[by], self.request(), "crew", topic, partition, offset)
        return self.answer(self.step(request))

    def pass_time(self, by_ms: int) -> list[out.AnyEffect]:
        """Time goes by; timers on the way fire one after the other. Members send signs of life."""
        until_ms, effects = self.mono_ms + by_ms, list[out.AnyEffect]()
        while self.mono_ms < until_ms:
            wake_ms = self.state.live.timers.wake_ms
            at_ms = min(until_ms, self.mono_ms + 10_000, max(wake_ms or until_ms, self.mono_ms + 1))
            self.wall_ms += at_ms - self.mono_ms
            self.mono_ms = at_ms
            effects += self.step(*[ask.Seen(session) for session in self.sessions.values()])
        return effects

    def crash(self) -> None:
        """The process ends and starts again; connections are gone."""
        self.state = awaken(self.replayed, self.settings)
        self.sessions.clear()
        self.step(ask.Start(), ask.SessionOpened(OPERATOR, "operator"))

    def log(self, partition: int, topic: str = "news") -> int:
        found = self.state.durable.topics[self.state.durable.topics_by_name[topic]]
        return found.first_log + partition * max(1, found.lanes)

    @property
    def group(self) -> Group:
        return self.state.durable.groups[self.state.durable.groups_by_name["crew"]]

    @property
    def phase(self) -> GroupState:
        number = self.state.durable.groups_by_name.get("crew")
        return GroupState.DEAD if number is None else state_of(self.state, number)

    def holders(self, topic: str = "news") -> dict[int, str]:
        """Who has which partition now."""
        tenures = self.state.live.tenures.get(self.group.id) or {}
        places = {slot: self.state.durable.logs[slot] for slot in tenures}
        wanted = self.state.durable.topics_by_name.get(topic)
        return {place.partition: tenures[slot].member for slot, place in places.items() if place.topic == wanted}

    def asked_back(self) -> dict[int, str]:
        """Partitions whose holders were asked to give them up."""
        tenures = self.state.live.tenures.get(self.group.id) or {}
        return {
            self.state.durable.logs[slot].partition: each.member for slot, each in tenures.items() if each.revoke_by_ms
        }

    def leases_of(self, name: str) -> list[Lease]:
        return [lease for _, lease in sorted(self.state.live.leases.items()) if lease.member == name]

    def name_of(self, session: int) -> str:
        return next((name for name, number in self.sessions.items() if number == session), f"session {session}")


def revokes(effects: Iterable[out.AnyEffect]) -> list[out.Revoke]:
    return [each for each in effects if isinstance(each, out.Revoke)]


def assigns(effects: Iterable[out.AnyEffect]) -> list[out.Assign]:
    return [each for each in effects if isinstance(each, out.Assign)]


def deliveries(effects: Iterable[out.AnyEffect]) -> list[out.Deliver]:
    return [each for each in effects if isinstance(each, out.Deliver)]
