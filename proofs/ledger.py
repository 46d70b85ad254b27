"""The evidence in `spec/INVARIANTS.md`: statements are written by hand, who proves and checks them is filled in here.

    python -m dovetail.proofs.ledger

Promises  the file names every proof and every file that checks an invariant, under its id; what a test shows is
          written by hand, as `tests/….py::test_name`, and stays.
Never     invents an invariant: an id that is used and not in the file is an error.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from dovetail.proofs.registry import ALL, proofs

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / "spec" / "INVARIANTS.md"
CHECKING = ("core", "runtime", "sim", "reports")
SHOWING = ("proofs", "dovetail", "tests", "examples")
"""Folders that cite ids too, without being what checks them while something runs."""
COUNTING = "sim/marks.py"
"""Names ids to see that they were looked at, which is no look of its own."""

_ENTRY = re.compile(r"^\*\*(I-[A-Z]+)\*\* ", re.MULTILINE)
_ID = re.compile(r"\bI-[A-Z]+\b")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def entries(text: str) -> dict[str, str]:
    """The paragraphs of the file by the id each begins with."""
    found: dict[str, str] = {}
    for paragraph in text.split("\n\n"):
        head = _ENTRY.match(paragraph)
        if head is not None:
            if head[1] in found:
                raise ValueError(f"{head[1]} is in the file twice")
            found[head[1]] = paragraph
    return found


def cited() -> dict[str, list[str]]:
    """Every id that code or a test mentions, and the files that do."""
    found: dict[str, list[str]] = {}
    for path in _sources(*CHECKING, *SHOWING):
        for id in sorted(set(_ID.findall(path.read_text()))):
            found.setdefault(id, []).append(_name(path))
    return found


def checked() -> dict[str, list[str]]:
    """The files that check an id while something runs: they name it as a value, not only in their prose."""
    found: dict[str, list[str]] = {}
    for path in _sources(*CHECKING):
        if _name(path) == COUNTING:
            continue
        tree = ast.parse(path.read_text())
        values = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        for id in sorted(value for value in values if _ID.fullmatch(value)):
            found.setdefault(id, []).append(_name(path))
    return found


def named_tests(paragraph: str) -> list[tuple[str, str]]:
    """The tests that an entry names: file and function."""
    return _TEST.findall(paragraph)


def filled_in(text: str) -> str:
    """The file with its evidence as it is now."""
    where = checked()
    by_id: dict[str, tuple[list[str], list[str]]] = {}
    for proof in proofs():
        by_id.setdefault(proof.invariant, ([], []))[0 if proof.scope == ALL else 1].append(proof.id)
    parts = []
    for paragraph in text.split("\n\n"):
        head = _ENTRY.match(paragraph)
        if head is None:
            parts.append(paragraph)
            continue
        statement, *lines = paragraph.rstrip("\n").split("\n- ")
        everywhere, bounded = by_id.get(head[1], ([], []))
        evidence = [
            _line("proved for all integers", everywhere),
            _line("proved for bounded shapes", bounded),
            _line("checked", where.get(head[1], [])),
            *(line for line in lines if line.startswith("tested")),
        ]
        parts.append("\n- ".join([statement, *(line for line in evidence if line)]))
    return "\n\n".join(parts).rstrip("\n") + "\n"


def _line(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(f'`{name}`' for name in names)}" if names else ""


def _sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    written = filled_in(LEDGER.read_text())
    LEDGER.write_text(written)
    missing = sorted(set(cited()) - set(entries(written)))
    if missing:
        sys.exit(f"write a statement for {', '.join(missing)} into {_name(LEDGER)}, and run this again")
