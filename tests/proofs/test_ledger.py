"""`spec/INVARIANTS.md` says what holds and who shows it, and both are so."""

import ast
import re
from pathlib import Path

import pytest

from dovetail.core import kernels
from dovetail.proofs.ledger import LEDGER, ROOT, checked, cited, entries, filled_in, named_tests
from dovetail.proofs.registry import proofs

TEXT = LEDGER.read_text()
ENTRIES = entries(TEXT)


def test_every_id_that_code_cites_is_written_down_once() -> None:
    unknown = {id: files for id, files in cited().items() if id not in ENTRIES}
    assert unknown == {}, f"write a statement for each into {LEDGER.name}"


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
    with pytest.raises(ValueError, match="I-A is in the file twice"):
        entries("**I-A** One.\n\n**I-A** Two.")


def test_what_is_written_by_hand_stays() -> None:
    filled = filled_in("# Title\n\n**I-NOBODY** Nothing.\n- checked: `core/gone.py`\n- tested: `tests/a.py::test_b`\n")
    assert filled == "# Title\n\n**I-NOBODY** Nothing.\n- tested: `tests/a.py::test_b`\n"
