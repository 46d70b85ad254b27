"""`dovetail prove`: the table, JSON, exit codes, and a counterexample that people can read."""

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from dovetail.cli import app
from dovetail.core import cursor, journal_format, leases
from dovetail.proofs.sabotage import reworded, swapped

FLOOR = "the-floor-passes-an-island-that-touches-it"


def prove(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["prove", *arguments, "--jobs", "1"])
    return result.exit_code, result.output


def test_the_table_has_id_statement_function_scope_and_verdict() -> None:
    code, output = prove(FLOOR)
    assert code == 0
    for text in (FLOOR, "I-FLOOR", "core.cursor.next_floor", "all integers", "2/2", "proved", "1 of 1 proved"):
        assert text in output


def test_json_says_the_same() -> None:
    code, output = prove(FLOOR, "--json")
    (row,) = json.loads(output)
    assert code == 0
    assert (row["id"], row["verdict"], row["sabotage"], row["paths"]) == (FLOOR, "proved", "counterexample", 2)


def test_a_broken_kernel_is_shown_with_its_inputs_as_a_test_case() -> None:
    with swapped(cursor.next_floor, reworded(cursor.next_floor, "last + 1 if", "last if")):
        code, output = prove(FLOOR)
    assert code == 1
    assert f'assert keeps("{FLOOR}", floor=' in output
    assert "as a test, which passes when core.cursor.next_floor is right again:" in output
    assert "planted bug" not in output, "in broken code there is nowhere to plant it: that says nothing"
    assert "0 of 1 proved" in output


def test_a_counterexample_can_be_taken_from_the_output_whatever_its_length() -> None:
    proof = "a-frame-is-taken-exactly-when-it-is-whole-and-next"
    frames = reworded(journal_format.read_frame, "end <= len(buffer) and ", "end <= len(buffer) + 1 and ")
    with swapped(journal_format.read_frame, frames):
        _, output = prove(proof)
    text = output[output.index("from dovetail.proofs") : output.rindex("\n0 of 1 proved")]
    assert max(map(len, text.splitlines())) <= 100
    space: dict[str, Callable[[], None]] = {}
    exec(text, space)
    test = space[f"test_{proof.replace('-', '_')}"]
    test()
    with swapped(journal_format.read_frame, frames), pytest.raises(AssertionError):
        test()


def test_what_a_number_of_a_choice_stands_for_is_said_beside_it() -> None:
    shrink = reworded(leases.shrink, "holder.in_flight - (last - first + 1)", "holder.in_flight - (last - first)")
    with swapped(leases.shrink, shrink):
        _, output = prove("credit-returns-with-what-was-decided")
    assert "# held_count stands for 1" in output
    assert ", held_count=0," in output


def test_mutants_are_counted() -> None:
    code, output = prove("core.cursor.next_floor", "--mutants")
    assert code == 0
    assert "5 of 5 mutants killed by proofs alone (100.0%)" in output


def test_what_is_not_there_is_refused_with_what_to_do() -> None:
    code, output = prove("no such proof")
    assert code == 1
    assert "`dovetail prove` lists them all" in output
