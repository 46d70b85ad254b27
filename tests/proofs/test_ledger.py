"""`spec/INVARIANTS.md` says what holds and who shows it, and both are so."""

import ast
import re
from pathlib import Path

import pytest

from dovetail.core import kernels
from dovetail.proofs.ledger import COUNTING, LEDGER, ROOT, checked, cited, entries, filled_in, named_tests
from dovetail.proofs.registry import proofs

TEXT = LEDGER.read_text()
ENTRIES = entries(TEXT)


def test_every_id_that_code_or_a_test_cites_is_written_down_once() -> None:
    unknown = {id: files for id, files in cited().items() if id not in ENTRIES}
    assert unknown == {}, f"write a statement for each into {LEDGER.name}"


def test_every_id_that_a_document_cites_is_written_down() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("spec/*.md")]
    unknown = {page.name: set(re.findall(r"\bI-[A-Z]+\b", page.read_text())) - set(ENTRIES) for page in pages}
    assert {name: ids for name, ids in unknown.items() if ids} == {}


def test_every_id_that_is_written_down_is_cited() -> None:
    assert set(ENTRIES) - set(cited()) == set()


@pytest.mark.parametrize("id", ENTRIES)
def test_every_invariant_has_evidence(id: str) -> None:
    assert "\n- " in ENTRIES[id], f"nothing proves, checks or tests {id}"


def test_every_proof_stands_under_its_invariant() -> None:
    now = entries(filled_in(TEXT))
    stale = [id for id in ENTRIES if _lines(ENTRIES[id], "proved") != _lines(now[id], "proved")]
    assert stale == [], "run `python -m dovetail.proofs.ledger`"


def test_the_files_that_are_named_do_check_it() -> None:
    where = checked()
    named = {id: re.findall(r"`([^`]+)`", "".join(_lines(text, "checked"))) for id, text in ENTRIES.items()}
    wrong = {id: set(files) - set(where.get(id, [])) for id, files in named.items()}
    assert {id: files for id, files in wrong.items() if files} == {}, "run `python -m dovetail.proofs.ledger`"


def _lines(paragraph: str, begins: str) -> list[str]:
    return [line for line in paragraph.split("\n- ") if line.startswith(begins)]


def test_the_tests_that_are_named_exist() -> None:
    missing = []
    for id, paragraph in ENTRIES.items():
        for path, name in named_tests(paragraph):
            file = ROOT / path
            tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
            if name not in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}:
                missing.append(f"{id}: {path}::{name}")
    assert missing == []


def test_every_kernel_is_proved() -> None:
    names = re.findall(r"^def (\w+)", Path(kernels.__file__).read_text(), re.MULTILINE)
    proved = {function.__name__ for proof in proofs() for function in proof.covers}
    assert set(names) - proved == set()


def test_an_id_that_is_there_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="I-FLOOR is in the file twice"):
        entries("**I-FLOOR** One.\n\n**I-FLOOR** Two.")


def test_what_is_written_by_hand_stays() -> None:
    statement = f"# Title\n\n**I-{'NOBODY'}** Nothing.\n"
    filled = filled_in(f"{statement}- checked: `core/gone.py`\n- tested: `tests/a.py::test_b`\n")
    assert filled == f"{statement}- tested: `tests/a.py::test_b`\n"


def test_who_only_counts_what_was_looked_at_checks_nothing() -> None:
    assert COUNTING in cited()["I-ORDER"]
    assert COUNTING not in checked()["I-ORDER"]
