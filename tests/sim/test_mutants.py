"""Planted mistakes: each can be planted, and a few are hunted here; `dovetail sim mutants` hunts all."""

from __future__ import annotations

import os

import pytest

from dovetail.sim.mutants.hunt import hunt
from dovetail.sim.mutants.mechanical import all_mutants, sample
from dovetail.sim.mutants.mutant import Mutant, mutated
from dovetail.sim.mutants.zoo import ZOO

QUICK = ("confirm-before-sync", "leavers-messages-forgotten", "journal-freed-too-early", "floor-one-behind")
HUNTED = ZOO if os.environ.get("DOVETAIL_SIM_MUTANTS") else tuple(each for each in ZOO if each.name in QUICK)


@pytest.mark.parametrize("mutant", ZOO, ids=lambda mutant: mutant.name)
def test_a_planted_mistake_has_its_place_in_the_code(mutant: Mutant) -> None:
    compile(mutated(mutant), mutant.module, "exec")


@pytest.mark.parametrize("mutant", HUNTED, ids=lambda mutant: mutant.name)
def test_a_planted_mistake_is_noticed(mutant: Mutant) -> None:
    found = hunt(mutant)
    assert found.by, f"{mutant.name} got away in {found.runs} runs: {mutant.story}"


def test_the_zoo_has_at_least_twenty_five_mistakes_with_their_stories() -> None:
    assert len({mutant.name for mutant in ZOO}) == len(ZOO) >= 25
    assert all(mutant.story for mutant in ZOO)


def test_a_mechanical_mutant_differs_from_the_module_and_compiles() -> None:
    assert len(all_mutants()) > 1000
    for mutant in sample(10):
        compile(mutated(mutant), mutant.module, "exec")
