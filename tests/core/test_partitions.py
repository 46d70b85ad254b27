"""Partitioned groups beside their naive model (`spec/partitions.py`), in any order of events, with crashes between.

`DOVETAIL_DEPTH=10` makes it ten times as many.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from dovetail.core.assignment import PARTITIONED_STRATEGIES
from tests.core.partitioned import WEIGHTS, Action, Watched, run
from tests.core.test_machine import Drawn
from tests.depth import DEPTH

EXAMPLES = 40 * DEPTH
SEEDS = 60 * DEPTH
ACTIONS = 80


def _rule(action: Action) -> Callable[[CoreAndModelOfPartitions, st.DataObject], None]:
    @rule(data=st.data())
    def act(self: CoreAndModelOfPartitions, data: st.DataObject) -> None:
        pick = Drawn(data)
        if self.world is None:
            self.world = Watched(pick.choice(PARTITIONED_STRATEGIES))
        action(self.world, pick)

    return act


class CoreAndModelOfPartitions(RuleBasedStateMachine):
    """Each rule is one action; every step of the core is judged by the model."""

    def __init__(self) -> None:
        super().__init__()
        self.world: Watched | None = None


for _action in WEIGHTS:
    setattr(CoreAndModelOfPartitions, _action.__name__, _rule(_action))

TestCoreAndModelOfPartitions = CoreAndModelOfPartitions.TestCase
TestCoreAndModelOfPartitions.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_whatever_members_do_the_naive_model_of_partitions_agrees() -> None:
    for seed in range(SEEDS):
        run(seed, ACTIONS)
