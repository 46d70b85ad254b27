"""The machine finds bugs: each of these is planted from outside, and must be caught within `SEEDS` short runs.

A record whose `evolve` case is dropped, and mistakes that brokers have really made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from dovetail.core import awaken as awakening
from dovetail.core import (
    choosing,
    cursor,
    dispatch,
    evolve,
    intervals,
    kernels,
    leases,
    records,
    settling,
    timers,
    turn,
)
from dovetail.core.ids import Bug
from dovetail.core.inputs import ConfigureTopic, SettleItem
from dovetail.core.records import AnyRecord, TopicConfig
from dovetail.core.state import Durable, Lease, Settings, State, Subscription, Tail
from dovetail.core.turn import Turn
from dovetail.spec.model import Disagreement
from tests.core import (
    actions,
    test_delay,
    test_evolve,
    test_groups_strategies,
    test_rebalance,
    test_replays,
    world,
)
from tests.core.running import Running

SEEDS = 150
ACTIONS = 120

Patch = pytest.MonkeyPatch


def caught() -> Exception | None:
    """What the first run that fails says; None when all of them pass."""
    for seed in range(SEEDS):
        try:
            actions.run(seed, ACTIONS)
        except (Bug, Disagreement, KeyError, Endless) as error:
            return error
    return None


DECIDED = (
    records.BrokerStarted,
    records.TopicCreated,
    records.TopicDeleted,
    records.BatchAppended,
    records.LogTrimmed,
    records.GroupCreated,
    records.PatternAdded,
    records.MemberJoined,
    records.MemberLeft,
    records.CursorOpened,
    records.Settled,
    records.AttemptFailed,
    records.DeadLettered,
    records.Expired,
    records.FloorReset,
)
"""The records that the machine's actions lead to."""


def a_topic_is_configured() -> None:
    broker = Running()
    broker.create("t")
    broker.ask(lambda me, number: ConfigureTopic(me, number, "t", TopicConfig(max_retries=9)))
    broker.crash()
    (topic,) = broker.node.state.durable.topics.values()
    assert topic.config.max_retries == 9


CLAIMED: dict[type[AnyRecord], Callable[[], None]] = {
    records.TopicConfigured: a_topic_is_configured,
    records.GroupDeleted: lambda: test_groups_strategies.test_a_group_without_members_expires_and_its_floors_with_it(
        "range"
    ),
    records.GroupConfigured: test_groups_strategies.test_an_operator_changes_the_strategy_of_a_group_without_members,
    records.PatternRemoved: test_evolve.test_a_removed_pattern_is_no_longer_the_groups,
    records.Rebalanced: test_rebalance.test_the_first_member_gets_everything_after_the_quiet_period,
    records.Moved: test_delay.test_delayed_messages_survive_a_restart_and_each_comes_once,
    records.ReplayStarted: test_replays.test_a_replay_goes_in_the_order_of_its_plan_and_says_so_in_headers,
    records.Replayed: test_replays.test_a_replay_goes_on_after_a_crash_without_losing_or_repeating_an_entry,
    records.ReplayChanged: test_replays.test_a_replay_can_be_paused_gone_on_with_and_aborted,
    records.DeadRemoved: test_replays.test_a_purge_removes_what_it_names_but_not_what_is_being_replayed,
}
"""The other records, each with a claim that rests on it."""


class Endless(Exception):
    """A broker that goes on and on."""


def plant_forgetfulness(kind: type[AnyRecord], patch: Patch) -> None:
    """Have `evolve` do nothing for records of one kind."""
    real = evolve.evolve
    forgotten = 0

    def forgetful(durable: Durable, record: AnyRecord) -> Durable:
        nonlocal forgotten
        if not isinstance(record, kind):
            return real(durable, record)
        forgotten += 1
        if forgotten > 1_000:
            raise Endless
        return durable

    for module in (evolve, turn, test_evolve):
        patch.setattr(module, "evolve", forgetful)


def test_every_record_there_is_is_forgotten_in_one_of_these_tests() -> None:
    assert set(DECIDED) | set(CLAIMED) == set(get_args(AnyRecord))


@pytest.mark.parametrize("kind", CLAIMED, ids=lambda kind: kind.__name__)
def test_a_record_that_the_actions_never_lead_to_is_missed_by_its_claim(
    kind: type[AnyRecord], monkeypatch: Patch
) -> None:
    CLAIMED[kind]()
    plant_forgetfulness(kind, monkeypatch)
    with pytest.raises((AssertionError, Bug, KeyError, ValueError, Endless)):
        CLAIMED[kind]()


@pytest.mark.parametrize("kind", DECIDED, ids=lambda kind: kind.__name__)
def test_a_record_that_changes_nothing_is_noticed(kind: type[AnyRecord], monkeypatch: Patch) -> None:
    plant_forgetfulness(kind, monkeypatch)
    assert caught() is not None


def test_every_record_that_is_not_planted_here_is_of_a_kind_the_actions_never_lead_to() -> None:
    seen = {type(record) for seed in range(20) for _, _, frame in actions.run(seed, ACTIONS).frames for record in frame}
    assert seen <= set(DECIDED) <= set(get_args(AnyRecord))


def confirmed_before_stored(patch: Patch) -> None:
    finish = Turn.finish

    def eager(self: Turn) -> State:
        self.effects.extend(self.replies)
        self.replies = []
        return finish(self)

    patch.setattr(Turn, "finish", eager)


def shown_before_stored(patch: Patch) -> None:
    run = dispatch.run

    def eager(at: Turn) -> None:
        for log, end in at.ends.items():
            if log in at.tails:
                at.tails[log] = replace(at.tails[log], stored=end)
                for owner in at.readers.get(log, ()):
                    at.wake(owner, log)
        run(at)

    patch.setattr(dispatch, "run", eager)


def leased_twice(patch: Patch) -> None:
    deal = dispatch._deal

    def greedy(at: Turn, owner: int, log: int, *rest: Any) -> int:
        dealt = deal(at, owner, log, *rest)
        progress = at.progress[owner, log]
        if progress.next - 1 > at.cursor(owner, log).floor:
            at.progress[owner, log] = replace(progress, next=progress.next - 1)
        return dealt

    patch.setattr(dispatch, "_deal", greedy)


def floor_ahead(patch: Patch) -> None:
    patch.setattr(cursor, "next_floor", lambda floor, first, last: last + 1)


def credit_not_returned(patch: Patch) -> None:
    shrink = leases.shrink

    def stingy(at: Turn, lease: Lease, first: int, last: int) -> Lease | None:
        before = at.subscriptions[lease.subscription].in_flight
        rest = shrink(at, lease, first, last)
        at.subscriptions[lease.subscription] = replace(at.subscriptions[lease.subscription], in_flight=before)
        return rest

    patch.setattr(leases, "shrink", stingy)


def credit_not_taken(patch: Patch) -> None:
    deliver = leases.deliver

    def generous(at: Turn, to: Subscription, *rest: Any, **more: Any) -> None:
        deliver(at, to, *rest, **more)
        at.subscriptions[to.id] = replace(at.subscriptions[to.id], in_flight=to.in_flight)

    patch.setattr(leases, "deliver", generous)


def credit_that_nobody_notices(patch: Patch) -> None:
    patch.setattr(dispatch, "_serve_waiting", lambda at, owner: None)


def retried_at_the_same_member(patch: Patch) -> None:
    def stubborn(at: Turn, owner: int, ring: tuple[int, ...], avoid: str) -> Subscription | None:
        eligible = choosing.eligible(at, owner, ring)
        return next((member for member in eligible if member.member == avoid), eligible[0] if eligible else None)

    patch.setattr(dispatch, "_pick", stubborn)


def deadline_ignored(patch: Patch) -> None:
    patch.setattr(leases, "time_out", lambda at, lease: None)


def deadline_not_moved(patch: Patch) -> None:
    patch.setattr(kernels, "extended_deadline", lambda granted, deadline, now, by, most: deadline)


def lease_extended_for_ever(patch: Patch) -> None:
    patch.setattr(kernels, "extended_deadline", lambda granted, deadline, now, by, most: max(deadline, now + by))


def retry_timer_dropped(patch: Patch) -> None:
    put = timers.put

    def careless(wheel: timers.Wheel, at_ms: int, timer: timers.Timer) -> timers.Wheel:
        return wheel if timer[0] == timers.RETRY else put(wheel, at_ms, timer)

    patch.setattr(timers, "put", careless)


def session_timer_dropped(patch: Patch) -> None:
    put = timers.put

    def careless(wheel: timers.Wheel, at_ms: int, timer: timers.Timer) -> timers.Wheel:
        return wheel if timer[0] == timers.SESSION else put(wheel, at_ms, timer)

    patch.setattr(timers, "put", careless)


def retried_at_once(patch: Patch) -> None:
    patch.setattr(kernels, "backoff_ms", lambda failures, salt: 0)


def sent_after_its_time(patch: Patch) -> None:
    patch.setattr(kernels, "is_expired", lambda expires_at_ms, wall_ms: False)


def leaver_takes_messages_along(patch: Patch) -> None:
    patch.setattr(leases, "give_back", lambda at, lease, avoid="": leases._end(at, at.leases[lease]))


def leaver_blamed(patch: Patch) -> None:
    def strict(at: Turn, number: int, avoid: str = "") -> None:
        lease = at.leases[number]
        leases._end(at, lease)
        for first, last in lease.ranges:
            leases.fail(at, lease, first, last, 0, 0, "")

    patch.setattr(leases, "give_back", strict)


def unsent_blamed(patch: Patch) -> None:
    patch.setattr(leases, "not_sent", leases.time_out)


def unsent_before_its_deadline(patch: Patch) -> None:
    def hasty(at: Turn, number: int) -> None:
        if number in at.leases:
            leases.give_back(at, number, at.leases[number].member)

    patch.setattr(leases, "not_sent", hasty)


def seek_leaves_leases(patch: Patch) -> None:
    patch.setattr(leases, "end_all", lambda at, owner, log: None)


def another_sessions_lease_settled(patch: Patch) -> None:
    held = settling._held

    def trusting(at: Turn, session: int, item: SettleItem) -> Lease:
        lease = at.leases.get(item.lease)
        return held(at, at.subscriptions[lease.subscription].session if lease else session, item)

    patch.setattr(settling, "_held", trusting)


def half_a_range_settled(patch: Patch) -> None:
    patch.setattr(intervals, "contains", lambda ranges, first, last: intervals.overlaps(ranges, first, last))


def everything_for_the_first_member(patch: Patch) -> None:
    patch.setattr(kernels, "share", lambda available, members, place: available if place == 0 else 0)


def backlog_forgotten_at_restart(patch: Patch) -> None:
    real = awakening.awaken

    def hasty(durable: Durable, settings: Settings) -> State:
        state = real(durable, settings)
        progress = state.live.progress
        for key, found in state.live.progress.items():
            progress = progress.set(key, replace(found, next=durable.logs[key[1]].end))
        return replace(state, live=replace(state.live, progress=progress))

    patch.setattr(world, "awaken", hasty)


def tail_forgotten(patch: Patch) -> None:
    """Not a bug for clients: what the tail does not know is read again."""
    finish = Turn.finish

    def forgetful(self: Turn) -> State:
        state = finish(self)
        tails = state.live.tails
        for log, tail in state.live.tails.items():
            tails = tails.set(log, Tail(tail.stored))
        return replace(state, live=replace(state.live, tails=tails))

    patch.setattr(Turn, "finish", forgetful)


PLANTS: tuple[Callable[[Patch], None], ...] = (
    confirmed_before_stored,
    shown_before_stored,
    leased_twice,
    floor_ahead,
    credit_not_returned,
    credit_not_taken,
    credit_that_nobody_notices,
    retried_at_the_same_member,
    deadline_ignored,
    deadline_not_moved,
    lease_extended_for_ever,
    retry_timer_dropped,
    session_timer_dropped,
    retried_at_once,
    sent_after_its_time,
    leaver_takes_messages_along,
    leaver_blamed,
    unsent_blamed,
    unsent_before_its_deadline,
    seek_leaves_leases,
    another_sessions_lease_settled,
    half_a_range_settled,
    everything_for_the_first_member,
    backlog_forgotten_at_restart,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert caught() is not None


def test_what_is_no_bug_is_not_called_one(monkeypatch: Patch) -> None:
    tail_forgotten(monkeypatch)
    for seed in range(20):
        actions.run(seed, ACTIONS)
