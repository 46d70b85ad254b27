"""Every proof holds, can fail, says something, and is about the code that the core runs."""

import random
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

import dovetail.core
import dovetail.runtime
from dovetail.core import cursor, invariants, kernels
from dovetail.proofs.engine import Exploration, Verdict, agrees, prove
from dovetail.proofs.equivalents import EQUIVALENT
from dovetail.proofs.registry import ALL, Proof, as_test, keeps, named, proofs, prove_sabotaged
from dovetail.proofs.run import Row, check_all, proved_functions
from dovetail.proofs.sabotage import mutants, reworded, swapped
from tests.proofs.calls import reachable

PROOFS = proofs()
by_id = pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.id)


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.id: row for row in check_all([proof.id for proof in PROOFS], jobs=2)}


@by_id
def test_it_is_proved_on_every_path(proof: Proof, rows: dict[str, Row]) -> None:
    row = rows[proof.id]
    assert row.verdict is Verdict.PROVED, f"{row.detail} {row.inputs}\n{row.test}"
    assert row.paths > 0


@by_id
def test_its_planted_bug_gives_a_counterexample(proof: Proof, rows: dict[str, Row]) -> None:
    assert rows[proof.id].sabotage is Verdict.COUNTEREXAMPLE


@by_id
def test_it_says_what_it_is_about_and_how_far_it_reaches(proof: Proof) -> None:
    assert proof.invariant.startswith("I-")
    assert proof.statement.endswith(".")
    assert proof.scope == ALL or proof.scope.startswith("bounded: ")


def test_there_are_enough_of_them() -> None:
    assert len(PROOFS) >= 30


ALWAYS_ONE_WAY = {
    "Committer.next_commit": "the clock is above 0 in the proofs, as it is in life: 0 stands for no time at all",
    "backoff_ms": "min(cap, 1 s << doublings) never takes the cap: below six doublings it is not reached",
}
"""Functions with a place that no inputs reach both ways, and why that is as it should be."""


def test_every_branch_of_a_proved_function_is_reached_both_ways_by_some_proof(rows: dict[str, Row]) -> None:
    reached: dict[str, tuple[bool, bool]] = {}
    for row in rows.values():
        for place, (true, false) in row.reached.items():
            before = reached.get(place, (False, False))
            reached[place] = before[0] or true, before[1] or false
    names = {function.__code__.co_qualname for function in proved_functions().values()}
    one_way = {place for place, seen in reached.items() if not all(seen)}
    assert {place for place in one_way if place.split(" in ")[1] in names - ALWAYS_ONE_WAY.keys()} == set()


@by_id
def test_symbolic_paths_give_what_plain_numbers_give(proof: Proof) -> None:
    dice = random.Random(proof.id)
    exploration = Exploration()
    for number, _ in enumerate(exploration.paths(proof.claim)):
        wishes = {name: dice.choice((dice.randint(-9, 9), dice.randint(0, 999))) for name in exploration.inputs}
        assert agrees(proof.claim, *exploration.witness(wishes)), wishes
        if number == 8:
            break


@pytest.fixture(scope="module")
def used() -> set[Callable[..., Any]]:
    """What of the core the runtime leads to, or the check of the state between two steps."""
    sources = {}
    for package in (dovetail.core, dovetail.runtime):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            module = import_module(found.name)
            sources[found.name] = module, Path(module.__file__ or "").read_text()
    return reachable(
        sources, [name for name in sources if name.startswith("dovetail.runtime.") or name == invariants.__name__]
    )


@pytest.mark.parametrize("name", proved_functions())
def test_what_is_proved_is_what_the_core_calls(name: str, used: set[Callable[..., Any]]) -> None:
    function = proved_functions()[name]
    found = attrgetter(function.__qualname__)(import_module(function.__module__))
    assert found is function, "the proof is about another function than the module's own"
    assert function in used, f"nothing that the broker runs or checks leads to {name}: prove what is used"


def test_a_function_that_only_shares_its_name_with_what_is_called_is_not_used() -> None:
    sources = {
        "kernels": "def add(a): return a\ndef total(a): return helper(a)\ndef helper(a): return add(a)\n",
        "books": "class Book:\n    def add(self): pass\n    def close(self): pass\n",
        "broker": "import kernels\ndef run(seen, total, book):\n    seen.add(total)\n    book.close()\n",
    }
    made: dict[str, ModuleType] = {name: ModuleType(name) for name in sources}
    for name, text in sources.items():
        exec(text.replace("import kernels\n", ""), vars(made[name]))
    made["broker"].__dict__["kernels"] = made["kernels"]

    def names(changed: str) -> set[str]:
        modules = {name: (made[name], changed if name == "broker" else text) for name, text in sources.items()}
        return {function.__qualname__ for function in reachable(modules, ["broker"])}

    assert names(sources["broker"]) == {"run", "Book.close"}
    assert names(sources["broker"].replace("seen.add(total)", "kernels.total(1)")) == {
        *("run", "Book.close", "total", "helper", "add")
    }


def test_a_broken_kernel_gives_a_counterexample_that_is_a_failing_test() -> None:
    proof = named("the-floor-passes-an-island-that-touches-it")
    with swapped(cursor.next_floor, reworded(cursor.next_floor, "first <= floor", "first < floor")):
        finding = prove(proof.claim)
        text = as_test(proof, finding)
        space: dict[str, object] = {}
        exec(text, space)
        test = space["test_the_floor_passes_an_island_that_touches_it"]
        assert callable(test)
        with pytest.raises(AssertionError):
            test()
    test()
    assert finding.inputs["first"] == finding.inputs["floor"]
    assert 'keeps("the-floor-passes-an-island-that-touches-it", floor=' in text


def test_a_planted_bug_is_gone_afterwards() -> None:
    proof = named("only-the-first-retry-is-immediate")
    assert prove_sabotaged(proof).verdict is Verdict.COUNTEREXAMPLE
    assert prove(proof.claim).verdict is Verdict.PROVED
    assert keeps("only-the-first-retry-is-immediate", failures=2, salt=7)


def test_a_planted_bug_that_is_nonsense_shows_nothing() -> None:
    proof = named("only-the-first-retry-is-immediate")
    nonsense = replace(proof, sabotage=replace(proof.sabotage, new="failings <= 1"))
    found = prove_sabotaged(nonsense)
    assert found.verdict is Verdict.REFUSED
    assert "NameError" in found.detail


def test_a_planted_bug_must_be_in_the_source_once() -> None:
    with pytest.raises(ValueError, match="must be there once"):
        reworded(kernels.share, "members", "member")


def test_mutants_are_comparisons_and_numbers_one_off() -> None:
    labels = [mutant.label for mutant in mutants(kernels.share)]
    assert "share: place < available % members → place <= available % members" in labels
    assert "share: 1 → 2 in 1 if place < available % members else 0" in labels
    assert len(labels) == 7


def test_the_kernels_mutants_are_killed_by_proofs_alone() -> None:
    covering = [proof for proof in PROOFS if kernels.retry_length in proof.covers]
    for mutant in mutants(kernels.retry_length):
        with swapped(kernels.retry_length, mutant.code):
            assert any(prove(proof.claim).verdict is not Verdict.PROVED for proof in covering), mutant.label


def test_an_unknown_proof_is_refused_with_where_to_look() -> None:
    with pytest.raises(KeyError, match="dovetail prove"):
        named("no-such-proof")


@pytest.mark.parametrize("label", EQUIVALENT)
def test_a_mutant_that_is_called_equivalent_exists_and_lives(label: str) -> None:
    name = label.split(":")[0]
    (function,) = (each for each in proved_functions().values() if each.__qualname__ == name)
    (mutant,) = (each for each in mutants(function) if each.label == label)
    covering = next(proof for proof in PROOFS if function in proof.covers)
    with swapped(function, mutant.code):
        assert prove(covering.claim).verdict is Verdict.PROVED
