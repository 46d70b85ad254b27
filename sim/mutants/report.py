"""What became of mechanical mutants, as rows, as a summary and as the table in `spec/mutants.md`.

Promises  what was caught, what can't be noticed and what is a hole are counted apart; no survivor is left out.
Never     tries anything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from dovetail.sim.mutants.equivalents import EQUIVALENT
from dovetail.sim.mutants.hunt import Caught
from dovetail.sim.mutants.trials import Found

KINDS = ("test", "simulation", "model", "proof")


def rows(found: Sequence[Found]) -> list[dict[str, object]]:
    """One row for each."""
    return [
        {
            "mutant": each.name,
            "rule": each.rule,
            "caught_by": each.kind or ("nobody: equivalent" if each.is_equivalent else "nobody"),
            "where": each.by,
            "how": each.how,
            "tried": each.tried,
            "runs": each.runs,
            "seconds": each.seconds,
            "reason": "" if each.kind else EQUIVALENT.get(each.name, ""),
        }
        for each in found
    ]


def summary(found: Sequence[Found]) -> str:
    """How many were caught, by what, and how many were not."""
    kinds = Counter(each.kind for each in found)
    caught = len(found) - kinds[""]
    same = sum(each.is_equivalent for each in found)
    parts = [f"{kinds[kind]} by a {kind}" for kind in KINDS if kinds[kind]]
    text = f"{caught} of {len(found)} caught ({100 * caught / max(1, len(found)):.1f}%): {', '.join(parts)}"
    real = len(found) - same
    rest = f"{same} can't be noticed, {real - caught} are holes"
    return f"{text}; {rest} ({100 * caught / max(1, real):.1f}% of those that can be)"


def markdown(found: Sequence[Found]) -> Iterator[str]:
    """The lines of the table."""
    yield f"{summary(found)}."
    yield ""
    yield "| rule | mutants | caught | equivalent | holes |"
    yield "|---|---|---|---|---|"
    for rule in sorted({each.rule for each in found}):
        of_rule = [each for each in found if each.rule == rule]
        caught = sum(bool(each.kind) for each in of_rule)
        same = sum(each.is_equivalent for each in of_rule)
        yield f"| {rule} | {len(of_rule)} | {caught} | {same} | {len(of_rule) - caught - same} |"
    yield ""
    yield "| not caught | why |"
    yield "|---|---|"
    for each in found:
        if not each.kind:
            yield f"| {_cell(each.name)} | {EQUIVALENT.get(each.name) or 'a hole'} |"
    yield ""
    yield "| caught | by | which | detectors tried | s |"
    yield "|---|---|---|---|---|"
    for each in found:
        if each.kind:
            yield f"| {_cell(each.name)} | {each.kind} | {_cell(each.by)} | {each.tried} | {each.seconds:.1f} |"


def planted(found: Sequence[Caught]) -> Iterator[str]:
    """The lines of the table of mistakes that were planted by hand."""
    yield "| mistake | noticed by | verdict | in | runs | s | its story |"
    yield "|---|---|---|---|---|---|---|"
    for each in found:
        cells = (each.mutant.name, each.by or "nobody", each.verdict, each.where, str(each.runs), f"{each.seconds:.1f}")
        yield f"| {' | '.join((*cells, each.mutant.story))} |"


def read_table(text: str) -> dict[str, str]:
    """Which detector caught each mutant, out of a table that `markdown` made."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip().strip("`").replace("\\|", "|") for cell in _BARE_BAR.split(line)[1:-1]]
        if len(cells) == 5 and cells[1] in KINDS:
            found[cells[0]] = cells[2]
    return found


_BARE_BAR = re.compile(r"(?<!\\)\|")


def _cell(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")
