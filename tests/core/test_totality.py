"""Whatever a peer says, in whatever state: `step` answers and never raises, and the state's invariants hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core import inputs as ask
from dovetail.core.ids import Bug, Now
from dovetail.core.invariants import check_state
from dovetail.core.records import TopicConfig
from dovetail.core.state import State
from dovetail.core.step import step
from tests.core import actions
from tests.depth import DEPTH

NUMBER = st.one_of(st.integers(-2, 12), st.sampled_from((-(1 << 63), 1 << 31, 1 << 63)))
SMALL = st.integers(0, 9)
NAME = st.sampled_from(("", "a", "a.b", "a/b", "b", "a.*", "#", "g", "h", "m", "c-1", "..", " ", "\ud800", "x" * 300))
ASKS = st.lists(st.builds(ask.Ask, SMALL, NUMBER, SMALL, SMALL), max_size=2).map(tuple)
CONFIG = st.builds(TopicConfig, lease_ms=NUMBER, lease_max_ms=NUMBER, max_retries=st.integers(-1, 4), ttl_ms=NUMBER)
LEASE = st.one_of(NUMBER, st.builds(lambda start, n: (start << 32) + n, st.integers(1, 4), st.integers(1, 9)))
ITEM = st.builds(ask.SettleItem, LEASE, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NAME)

FROM_PEERS: tuple[st.SearchStrategy[ask.AnyInput], ...] = (
    st.builds(ask.Subscribe, SMALL, NUMBER, NAME, NAME, st.integers(0, 65_535), st.booleans()),
    st.builds(ask.Unsubscribe, SMALL, NUMBER, NUMBER),
    st.builds(ask.JoinGroup, SMALL, NUMBER, NAME, NAME, st.sampled_from(("", "round-robin", "best"))),
    st.builds(ask.LeaveGroup, SMALL, NUMBER, NAME, NAME),
    st.builds(ask.Heartbeat, SMALL, NUMBER, NAME),
    st.builds(ask.SetCredit, SMALL, NUMBER, NUMBER, st.integers(0, 65_535)),
    st.builds(ask.Settle, SMALL, NUMBER, st.lists(ITEM, max_size=3).map(tuple), st.booleans()),
    st.builds(ask.ListTopics, SMALL, NUMBER, NAME),
    st.builds(ask.CreateTopic, SMALL, NUMBER, NAME, st.integers(-1, 3), st.sampled_from((0, 5, 7)), CONFIG),
    st.builds(ask.DeleteTopic, SMALL, NUMBER, NAME, st.booleans()),
    st.builds(ask.Fetch, SMALL, NUMBER, NAME, NUMBER, NUMBER, NUMBER, NUMBER),
    st.builds(ask.Commit, SMALL, NUMBER, NAME, NAME, NUMBER, NUMBER),
    st.builds(ask.Seek, SMALL, NUMBER, NAME, NAME, NUMBER, st.integers(-1, 5), NUMBER),
    st.builds(ask.Publish, NAME, NUMBER, NUMBER, st.integers(1, 4), st.integers(1, 400), ASKS, NUMBER),
)
LATE_FROM_THE_SHELL: tuple[st.SearchStrategy[ask.AnyInput], ...] = (
    st.builds(ask.Seen, NUMBER),
    st.builds(ask.Unsent, NUMBER),
    st.builds(ask.SessionClosed, NUMBER),
    st.builds(ask.Found, NUMBER, NUMBER),
    st.builds(ask.TrimLog, NUMBER, NUMBER),
    st.builds(ask.Sent, st.integers(90, 99), SMALL),
    st.builds(ask.Copied, st.integers(90, 99), NUMBER, SMALL),
    st.builds(ask.Loaded, st.integers(90, 99), NUMBER, st.just(())),
)
"""Answers that come after what they answer is gone."""

ANYTHING = st.lists(st.one_of(*FROM_PEERS, *LATE_FROM_THE_SHELL), min_size=1, max_size=6)


def some_state(seed: int) -> tuple[State, int, int]:
    world = actions.run(seed, 60)
    return world.state, world.mono_ms, world.wall_ms


STATES = [some_state(seed) for seed in range(12)]


@given(st.sampled_from(STATES), st.lists(st.tuples(st.integers(0, 40_000), ANYTHING), min_size=1, max_size=4))
@settings(max_examples=150 * DEPTH, deadline=None)
def test_step_is_total_over_what_peers_say(
    before: tuple[State, int, int], ticks: list[tuple[int, list[ask.AnyInput]]]
) -> None:
    state, mono_ms, wall_ms = before
    for passed_ms, inputs in ticks:
        mono_ms, wall_ms = mono_ms + passed_ms, wall_ms + passed_ms
        state, _, _ = step(state, Now(mono_ms, wall_ms), inputs)
        check_state(state, mono_ms)


@given(st.sampled_from(STATES), ANYTHING)
@settings(max_examples=60 * DEPTH, deadline=None)
def test_the_same_arguments_give_the_same_result(before: tuple[State, int, int], inputs: list[ask.AnyInput]) -> None:
    state, mono_ms, wall_ms = before
    now = Now(mono_ms, wall_ms)
    assert step(state, now, inputs) == step(state, now, inputs)


@pytest.mark.parametrize("state", [state for state, _, _ in STATES[:3]])
def test_a_shell_that_lies_about_durability_is_a_bug_and_not_a_refusal(state: State) -> None:
    for lie in (ask.Stored(state.durable.lsn + 1), ask.Written(state.durable.lsn + 1), ask.Stored(-1)):
        with pytest.raises(Bug, match="I-CONFIRM"):
            step(state, Now(0, 0), (lie,))


def test_every_answer_of_a_session_that_is_over_says_so() -> None:
    state, mono_ms, wall_ms = STATES[0]
    _, records, effects = step(state, Now(mono_ms, wall_ms), (ask.Heartbeat(9_999, 1, ""),))
    assert records == ()
    assert len(effects) == 1
