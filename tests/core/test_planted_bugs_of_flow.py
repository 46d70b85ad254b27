"""Mistakes in flow control, planted from outside: its naive model must catch each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.core import flow, kernels, publish
from dovetail.core.effects import Reply
from dovetail.core.ids import Bug
from dovetail.core.inputs import Publish
from dovetail.core.state import Flow, Topic
from dovetail.core.turn import Turn
from dovetail.spec.pressure import Disagreement
from tests.core.pressed import run

SEEDS = 15
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


def everybody_is_as_important(patch: Patch) -> None:
    patch.setattr(kernels, "refused_at", lambda priority: 200)


def the_important_are_refused_first(patch: Patch) -> None:
    refused_at = kernels.refused_at
    patch.setattr(kernels, "refused_at", lambda priority: refused_at(6 - priority))


def a_level_ends_where_it_begins(patch: Patch) -> None:
    level = kernels.flow_level
    patch.setattr(kernels, "flow_level", lambda before, load, warning: level(0, load, warning))


def a_level_never_ends(patch: Patch) -> None:
    level = kernels.flow_level
    patch.setattr(kernels, "flow_level", lambda before, load, warning: max(before, level(before, load, warning)))


def nobody_is_slowed(patch: Patch) -> None:
    patch.setattr(kernels, "spend", lambda tokens, count, rate, wait_max_ms: (tokens, 0))


def slowed_for_longer_than_said(patch: Patch) -> None:
    patch.setattr(flow, "SLOW_MS_MAX", 3 * flow.SLOW_MS_MAX)


def a_confirm_that_was_held_back_is_forgotten(patch: Patch) -> None:
    patch.setattr(flow, "let_go", lambda turn, ticket: turn.held.pop(ticket, None))


def held_back_from_the_request_on(patch: Patch) -> None:
    hold_back = flow.hold_back

    def hasty(turn: Turn, not_before_ms: int, reply: Reply) -> None:
        hold_back(turn, turn.mono_ms, reply)

    patch.setattr(flow, "hold_back", hasty)


def the_group_that_keeps_up_counts(patch: Patch) -> None:
    lags = flow._lags

    def mild(turn: Turn, topic: Topic) -> tuple[dict[int, int], dict[int, int], int]:
        found, settled, age_ms = lags(turn, topic)
        least = min(found.values(), default=0)
        return dict.fromkeys(found, least), settled, age_ms

    patch.setattr(flow, "_lags", mild)


def age_is_no_lag(patch: Patch) -> None:
    patch.setattr(flow, "arrived_ms", lambda marks, offset, default_ms: default_ms)


def looked_at_once_and_for_all(patch: Patch) -> None:
    checked = flow._checked

    def lazy(turn: Turn, topic: Topic) -> Flow:
        return turn.flows.get(topic.id) or checked(turn, topic)

    patch.setattr(flow, "_checked", lazy)


def a_rate_that_never_fades(patch: Patch) -> None:
    patch.setattr(kernels, "smoothed_rate", lambda before, count, elapsed_ms: max(before, count, 1_000))


def what_is_refused_is_charged(patch: Patch) -> None:
    admit = flow.admit

    def greedy(turn: Turn, topic: Topic, batch: Publish) -> int:
        session = batch.asks[0].session
        before = turn.buckets.get(session)
        try:
            return admit(turn, topic, batch)
        finally:
            if turn.buckets.get(session) is before:
                flow._charge(turn, batch)

    patch.setattr(flow, "admit", greedy)


def a_quota_for_all_together(patch: Patch) -> None:
    client = flow._client
    patch.setattr(flow, "_client", lambda turn, batch: min(client(turn, batch), 1))


def a_quota_that_never_comes_back(patch: Patch) -> None:
    def stingy(tokens: int, rate: int, elapsed_ms: int) -> int:
        return tokens

    patch.setattr(kernels, "refill", stingy)


def a_quota_that_is_saved_up(patch: Patch) -> None:
    patch.setattr(kernels, "refill", lambda tokens, rate, elapsed_ms: tokens + rate * elapsed_ms)


def made_before_it_was_refused(patch: Patch) -> None:
    check = flow.check

    def late(turn: Turn, batch: Publish) -> None:
        if batch.topic in turn.durable.topics_by_name:
            check(turn, batch)

    patch.setattr(publish.flow, "check", late)


def throttled_means_nobody(patch: Patch) -> None:
    check = flow.check

    def strict(turn: Turn, batch: Publish) -> None:
        check(turn, replace(batch, priority=5) if turn.throttled else batch)

    patch.setattr(flow, "check", strict)


def throttled_means_nothing(patch: Patch) -> None:
    patch.setattr(flow, "THROTTLED_MS", 0)


PLANTS: tuple[Callable[[Patch], Any], ...] = (
    everybody_is_as_important,
    the_important_are_refused_first,
    a_level_ends_where_it_begins,
    a_level_never_ends,
    nobody_is_slowed,
    slowed_for_longer_than_said,
    a_confirm_that_was_held_back_is_forgotten,
    held_back_from_the_request_on,
    the_group_that_keeps_up_counts,
    age_is_no_lag,
    looked_at_once_and_for_all,
    a_rate_that_never_fades,
    what_is_refused_is_charged,
    a_quota_for_all_together,
    a_quota_that_never_comes_back,
    a_quota_that_is_saved_up,
    made_before_it_was_refused,
    throttled_means_nobody,
    throttled_means_nothing,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], Any], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert caught() is not None
