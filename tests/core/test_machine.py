"""Core and model side by side in any order of events, with every invariant after every rule.

`EXAMPLES` runs of up to `STEPS` rules by default; `DOVETAIL_DEPTH=10` makes it ten times as many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.core import actions
from tests.core.actions import Action
from tests.core.world import World
from tests.depth import DEPTH

EXAMPLES = 120 * DEPTH
STEPS = 40
SEEDS = 120 * DEPTH

T = TypeVar("T")
Rule = Callable[["CoreAndModel", st.DataObject], None]


class Drawn:
    """Picks what Hypothesis draws, so that a failure shrinks."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))

    def choice(self, options: Sequence[T]) -> T:
        return self._data.draw(st.sampled_from(options))


def _rule(action: Action) -> Rule:
    """A rule of the machine that lets Hypothesis pick how `action` goes."""

    @rule(data=st.data())
    def act(self: CoreAndModel, data: st.DataObject) -> None:
        action(self.world, Drawn(data))

    return act


class CoreAndModel(RuleBasedStateMachine):
    """Each rule is one action of the world, which checks itself at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(actions.SETTINGS)

    a_session_opens = _rule(actions.open_session)
    a_session_closes = _rule(actions.close_session)
    publish = _rule(actions.publish)
    publish_and_store = _rule(actions.publish_stored)
    subscribe = _rule(actions.subscribe)
    unsubscribe = _rule(actions.unsubscribe)
    change_credit = _rule(actions.credit)
    join = _rule(actions.join)
    leave = _rule(actions.leave)
    heartbeat = _rule(actions.heartbeat)
    ack_nack_reject_or_extend = _rule(actions.settle)
    settle_everything = _rule(actions.settle_everything)
    time_passes = _rule(actions.pass_a_moment)
    leases_run_out = _rule(actions.pass_a_lease)
    commit = _rule(actions.commit)
    seek = _rule(actions.seek)
    fetch = _rule(actions.fetch)
    list_topics = _rule(actions.list_topics)
    create_a_topic = _rule(actions.create_topic)
    delete_a_topic = _rule(actions.delete_topic)
    some_frames_are_synced = _rule(actions.store)
    some_frames_are_written = _rule(actions.write)
    the_store_and_the_network_answer = _rule(actions.answer)
    retention = _rule(actions.trim)
    several_requests_in_one_tick = _rule(actions.several)
    crash_and_recover = _rule(actions.crash)

    def teardown(self) -> None:
        self.world.heal()


TestCoreAndModel = CoreAndModel.TestCase
TestCoreAndModel.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_core_and_model_agree_over_many_seeds() -> None:
    for seed in range(SEEDS):
        actions.run(seed, 120)
