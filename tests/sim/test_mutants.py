"""Planted mistakes: each can be planted, and a few are hunted here; `dovetail sim mutants` hunts all."""

from __future__ import annotations

import os
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from zlib import crc32

import pytest
from msgspec import json

from dovetail.sim.mutants import report
from dovetail.sim.mutants.equivalents import EQUIVALENT
from dovetail.sim.mutants.hunt import Caught, hunt
from dovetail.sim.mutants.mechanical import module_of, modules, mutants_of, mutated_code
from dovetail.sim.mutants.mutant import Mutant, mutated
from dovetail.sim.mutants.trial import Outcome, Try
from dovetail.sim.mutants.trials import Found, Server
from dovetail.sim.mutants.zoo import ZOO

QUICK_MECHANICAL = 25
SOME_MODULES = ("dovetail.core.leases", "dovetail.core.varint", "dovetail.runtime.storage.index")
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


def test_the_table_of_planted_mistakes_is_printed_as_it_stands_in_the_specification() -> None:
    found = [Caught(ZOO[0], "I-LOST", "safety", "swarm 0", 1, 1.25), Caught(ZOO[1], "", runs=40, seconds=9.0)]
    head, _, *rows = report.planted(found)
    assert head in Path("spec/mutants.md").read_text(encoding="utf-8")
    assert rows[0] == f"| {ZOO[0].name} | I-LOST | safety | swarm 0 | 1 | 1.2 | {ZOO[0].story} |"
    assert rows[1].startswith(f"| {ZOO[1].name} | nobody |")


def test_the_table_tells_of_every_planted_mistake_who_noticed_it() -> None:
    rows = [line.split(" | ") for line in Path("spec/mutants.md").read_text(encoding="utf-8").splitlines()]
    noticed_by = {row[0].removeprefix("| "): row[1] for row in rows if len(row) == 7}
    assert {mutant.name for mutant in ZOO} <= {name for name, by in noticed_by.items() if by != "nobody"}


def test_every_mechanical_mutant_has_a_name_of_its_own() -> None:
    for module in SOME_MODULES:
        mutants = mutants_of(module)
        assert len({mutant.name for mutant in mutants}) == len(mutants) > 20
        assert {module_of(mutant.name) for mutant in mutants} == {module}
    assert set(SOME_MODULES) < set(modules())


def test_a_mechanical_mutant_has_other_code_than_its_function() -> None:
    for mutant in [mutant for module in SOME_MODULES for mutant in mutants_of(module)[::20]]:
        function = attrgetter(mutant.function)(import_module(mutant.module))
        code = getattr(getattr(function, "fget", function), "__code__", None)
        wrong = mutated_code(mutant)
        assert code is not None
        assert (wrong.co_qualname, wrong.co_firstlineno) == (code.co_qualname, code.co_firstlineno)
        assert (wrong.co_code, wrong.co_consts) != (code.co_code, code.co_consts), mutant.name


def test_what_is_called_equivalent_is_still_there() -> None:
    there = {mutant.name for module in {module_of(name) for name in EQUIVALENT} for mutant in mutants_of(module)}
    assert set(EQUIVALENT) <= there
    assert all(EQUIVALENT.values())


def test_the_table_says_nothing_twice_and_forgets_no_survivor() -> None:
    found = [
        Found("core.a: x | y → dropped", "", "dropped", kind="test", by="tests/core/test_a.py::test[1|2]", tried=3),
        Found("core.b: gone", "", "dropped"),
        Found(next(iter(EQUIVALENT)), "", "constant"),
    ]
    text = "\n".join(report.markdown(found))
    assert report.read_table(text) == {"core.a: x | y → dropped": "tests/core/test_a.py::test[1|2]"}
    assert "1 of 3 caught" in text
    assert "1 can't be noticed, 1 are holes" in text
    assert "`core.b: gone` | a hole" in text


def test_a_sample_of_the_mechanical_mutants_in_the_table_is_still_caught() -> None:
    """Each by the test that caught it when the table was made, or by one beside it; `dovetail sim mutants --mechanical
    all` tries all."""
    table = report.read_table(Path("spec/mutants.md").read_text(encoding="utf-8"))
    chosen = sorted(table, key=lambda name: crc32(name.encode()))[:QUICK_MECHANICAL]
    there = {mutant.name: mutant for module in {module_of(name) for name in chosen} for mutant in mutants_of(module)}
    server = Server(jobs=2)
    try:
        orders = []
        for name in chosen:
            beside = table[name].partition("::")[0]
            tried = sorted((id for id in server.detectors if id.startswith(beside)), key=table[name].__ne__)
            if name in there and tried:
                orders.append(Try(there[name], [(id, 1.0) for id in tried], 20.0))
        assert len(orders) > len(chosen) // 2, "the code and its tests have changed: make the table anew"
        outcomes = {place: json.decode(answer, type=Outcome) for place, answer in server.carry_out(orders)}
    finally:
        server.end()
    assert [orders[place].mutant for place, outcome in outcomes.items() if not outcome.by] == []
