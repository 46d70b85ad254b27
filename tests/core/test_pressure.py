"""Flow control beside its naive model (`spec/pressure.py`), in any order of events, with crashes between.

`DOVETAIL_DEPTH=10` makes it ten times as many.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.core.pressed import QUOTAS, WEIGHTS, Action, Pressed, run
from tests.core.test_machine import Drawn
from tests.depth import DEPTH

EXAMPLES = 8 * DEPTH
SEEDS = 12 * DEPTH
ACTIONS = 80


def _rule(action: Action) -> Callable[[CoreAndModelOfPressure, st.DataObject], None]:
    @rule(data=st.data())
    def step(self: CoreAndModelOfPressure, data: st.DataObject) -> None:
        pick = Drawn(data)
        if self.world is None:
            self.world = Pressed(pick.choice(QUOTAS))
        action(self.world, pick)

    return step


class CoreAndModelOfPressure(RuleBasedStateMachine):
    """Each rule is one action; every answer is judged by the model."""

    def __init__(self) -> None:
        super().__init__()
        self.world: Pressed | None = None


for _action in WEIGHTS:
    setattr(CoreAndModelOfPressure, _action.__name__, _rule(_action))

TestCoreAndModelOfPressure = CoreAndModelOfPressure.TestCase
TestCoreAndModelOfPressure.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_whoever_publishes_is_slowed_and_refused_as_the_naive_model_says() -> None:
    for seed in range(SEEDS):
        run(seed, ACTIONS)
