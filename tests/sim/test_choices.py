"""A swarm that somebody chose has one name, which says all of it."""

from __future__ import annotations

import pytest

from dovetail.sim import plan
from dovetail.sim.choices import BadSwarm, read_choice
from dovetail.sim.scenarios import plan_of
from dovetail.sim.swarm import KINDS, swarm


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("swarm", "swarm"),
        ("swarm:scale=1,chaos=8s", "swarm"),
        ("swarm:chaos=20s, scale=4", "swarm:scale=4,chaos=20000ms"),
        ("swarm:faults=partition+Crash+crash", "swarm:faults=Crash+Partition"),
        ("swarm:faults=none", "swarm:faults=none"),
    ],
)
def test_a_choice_has_one_name_however_it_is_written(written: str, name: str) -> None:
    assert read_choice(written).name == name
    assert read_choice(name) == read_choice(written)


def test_a_plan_is_called_as_it_was_chosen_and_holds_what_was_chosen() -> None:
    assert plan_of("swarm", 7) == swarm(7)
    found = plan_of("swarm:scale=3,chaos=2s,faults=Crash+Damage", 7)
    assert (found.name, found.chaos_ms, found.repair) == ("swarm:scale=3,chaos=2000ms,faults=Crash+Damage", 2_000, True)
    struck = {type(event).__name__ for event in found.events if type(event).__name__ in KINDS}
    assert struck == {"Crash", "Damage"}
    calm = [plan_of("swarm:faults=none", seed) for seed in range(5)]
    assert not [event for each in calm for event in each.events if type(event).__name__ in KINDS]
    assert {kind.__name__ for kind in plan.FAULTS} <= set(KINDS)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("swarm:size=3", "'size=3' of a swarm: this can't be chosen"),
        ("swarm:scale=0", "a whole number from 1 to 1000"),
        ("swarm:chaos=soon", "write a time from 1s to 1h"),
        ("swarm:chaos=1ms", "write a time from 1s to 1h"),
        ("swarm:faults=Flood", "'Flood' is no kind of fault"),
        ("swarm:", "can't be chosen"),
    ],
)
def test_what_can_not_be_chosen_is_said_with_what_can(name: str, says: str) -> None:
    with pytest.raises(BadSwarm, match="What can be chosen is scale: ") as refused:
        read_choice(name)
    assert says in str(refused.value)
