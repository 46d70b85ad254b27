"""Mistakes in rebalancing, planted from outside: the naive model of partitioned groups must catch each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from immutables import Map
from msgspec.structs import replace

from dovetail.core import assignment, groups, kernels, rebalance, records, routing, settling
from dovetail.core.ids import Bug, ordered
from dovetail.core.state import Topic
from dovetail.core.turn import Turn
from dovetail.spec.partitions import Disagreement
from tests.core.partitioned import run

SEEDS = 60
ACTIONS = 80

Patch = pytest.MonkeyPatch


def caught() -> Exception | None:
    """What the first run that fails says; None when all of them pass."""
    for seed in range(SEEDS):
        try:
            run(seed, ACTIONS)
        except (AssertionError, Bug, Disagreement, KeyError) as error:
            return error
    return None


def moved_without_asking(patch: Patch) -> None:
    move = rebalance._move

    def hasty(turn: Turn, number: int, *, tell_all: bool) -> None:
        planned = rebalance._in_force(turn, turn.durable.groups[number])
        for slot, tenure in ordered(turn.tenures.get(number) or {}):
            if planned.get(slot) != tenure.member:
                rebalance._drop(turn, number, slot)
        move(turn, number, tell_all=tell_all)

    patch.setattr(rebalance, "_move", hasty)


def everything_asked_back(patch: Patch) -> None:
    patch.setattr(rebalance, "_in_force", lambda turn, group: {})


def sent_while_asked_back(patch: Patch) -> None:
    ring_of = routing.ring_of

    def careless(turn: Turn, owner: int, log: int) -> tuple[int, ...]:
        tenures = turn.tenures.get(owner)
        if tenures:
            calm = {slot: replace(each, revoke_by_ms=0) for slot, each in ordered(tenures)}
            turn.tenures[owner] = Map(calm)
        found = ring_of(turn, owner, log)
        if tenures:
            turn.tenures[owner] = tenures
        return found

    patch.setattr(routing, "ring_of", careless)


def kept_after_release(patch: Patch) -> None:
    patch.setattr(rebalance, "_give_back", lambda turn, number, member, slot: None)


def silence_about_a_revoke_is_suffered(patch: Patch) -> None:
    patch.setattr(groups, "revoke_overdue", lambda turn, number: None)


def a_generation_twice(patch: Patch) -> None:
    patch.setattr(
        rebalance,
        "Rebalanced",
        lambda group, generation, shares, at_ms: records.Rebalanced(group, max(1, generation - 1), shares, at_ms),
    )


def planned_at_every_change(patch: Patch) -> None:
    def eager(turn: Turn, number: int) -> None:
        if turn.durable.groups[number].mode == rebalance.PARTITIONED:
            rebalance.plan_now(turn, number)

    patch.setattr(rebalance, "disturb", eager)


def a_burst_without_end(patch: Patch) -> None:
    patch.setattr(kernels, "gathered_ms", lambda begun_ms, last_ms, quiet_ms: last_ms + 20 * quiet_ms)


def a_leaver_keeps_its_partitions(patch: Patch) -> None:
    patch.setattr(rebalance, "member_gone", lambda turn, number, member: rebalance.disturb(turn, number))


def a_leaver_is_not_noticed(patch: Patch) -> None:
    def forgetful(turn: Turn, number: int, member: str) -> None:
        for slot, _ in rebalance._of_member(turn, number, member):
            rebalance._drop(turn, number, slot)

    patch.setattr(rebalance, "member_gone", forgetful)


def a_new_topic_is_nobodys(patch: Patch) -> None:
    appeared = routing.topic_appeared

    def quiet(turn: Turn, topic: Topic) -> None:
        disturb, rebalance.disturb = rebalance.disturb, lambda turn, number: None
        appeared(turn, topic)
        rebalance.disturb = disturb

    patch.setattr(routing, "topic_appeared", quiet)


def who_comes_back_comes_anew(patch: Patch) -> None:
    patch.setattr(rebalance, "_is_returning", lambda turn, group, name: False)


def sticky_from_nothing(patch: Patch) -> None:
    sticky = assignment.sticky
    patch.setattr(assignment, "sticky", lambda topics, held: sticky(topics, {}))


def the_last_gets_one_more(patch: Patch) -> None:
    patch.setattr(assignment, "share", lambda count, of, place: kernels.share(count, of, of - 1 - place))


def the_ring_begins_anew_with_each_topic(patch: Patch) -> None:
    in_turn = assignment.in_turn
    patch.setattr(assignment, "in_turn", lambda topics: {s: m for topic in topics for s, m in in_turn([topic]).items()})


def anybody_commits(patch: Patch) -> None:
    patch.setattr(settling, "_check_holder", lambda turn, session, group, log: None)


def released_but_not_passed_on(patch: Patch) -> None:
    answered = rebalance.answered

    def lazy(turn: Turn, number: int, member: str) -> None:
        patch.setattr(rebalance, "_move", lambda turn, number, tell_all: None)
        answered(turn, number, member)
        patch.setattr(rebalance, "_move", move)

    move = rebalance._move
    patch.setattr(rebalance, "answered", lazy)


def a_joiner_is_not_told(patch: Patch) -> None:
    patch.setattr(rebalance, "_tell", lambda turn, group, tenures, members: None)


PLANTS: tuple[Callable[[Patch], None], ...] = (
    moved_without_asking,
    everything_asked_back,
    sent_while_asked_back,
    kept_after_release,
    silence_about_a_revoke_is_suffered,
    a_generation_twice,
    planned_at_every_change,
    a_burst_without_end,
    a_leaver_keeps_its_partitions,
    a_leaver_is_not_noticed,
    a_new_topic_is_nobodys,
    who_comes_back_comes_anew,
    sticky_from_nothing,
    the_last_gets_one_more,
    the_ring_begins_anew_with_each_topic,
    anybody_commits,
    released_but_not_passed_on,
    a_joiner_is_not_told,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert caught() is not None
