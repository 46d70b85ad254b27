"""Symbolic values of the core's own types, and their definitions in plain terms.

Promises  a shape is any value its invariant allows, up to the stated number of parts.
Never     calls the function under proof: what is right is said here a second time, another way.
"""

from __future__ import annotations

from itertools import pairwise

from dovetail.core.cursor import Cursor
from dovetail.core.intervals import Intervals, Runs
from dovetail.proofs.engine import Given, every, implies, negated, some

RANGES_MAX = 3
ISLANDS_MAX = 2
RUNS_MAX = 2


def ranges(given: Given, name: str, most: int, *, least: int = 0, above: int | None = None) -> Intervals:
    """Any set of `least` to `most` ranges, sorted, disjoint and apart; the lowest above `above`."""
    found: list[tuple[int, int]] = []
    for place in range(given.choice(f"{name}_count", range(least, most + 1))):
        first, last = given.integer(f"{name}_first_{place}"), given.integer(f"{name}_last_{place}")
        given.assume(first <= last)
        if found:
            given.assume(found[-1][1] + 1 < first)
        elif above is not None:
            given.assume(above < first)
        found.append((first, last))
    return tuple(found)


def runs(given: Given, name: str, most: int) -> Runs:
    """Any run-length map of up to `most` runs, sorted and disjoint, equal neighbours joined."""
    found: list[tuple[int, int, int]] = []
    for place in range(given.choice(f"{name}_count", range(most + 1))):
        first, last = given.integer(f"{name}_first_{place}"), given.integer(f"{name}_last_{place}")
        value = given.integer(f"{name}_value_{place}", 1)
        given.assume(first <= last)
        if found:
            given.assume(found[-1][1] < first)
            given.assume(some(found[-1][1] + 1 < first, found[-1][2] != value))
        found.append((first, last, value))
    return tuple(found)


def cursor(given: Given, name: str = "") -> Cursor:
    """Any well-formed cursor with up to two islands and two runs of attempts."""
    floor = given.integer(f"{name}floor", 0)
    islands = ranges(given, f"{name}island", ISLANDS_MAX, above=floor)
    attempts = runs(given, f"{name}attempt", RUNS_MAX)
    counts = [given.integer(f"{name}{what}", 0) for what in ("settled", "expired", "dead")]
    found = Cursor(floor, islands, attempts, *counts)
    given.assume(is_well_formed(found))
    return found


def is_apart(intervals: Intervals) -> bool:
    """Sorted, disjoint, non-adjacent, none empty (I-INTERVALS)."""
    gaps = [left[1] + 1 < right[0] for left, right in pairwise(intervals)]
    return every(True, *(first <= last for first, last in intervals), *gaps)


def is_run_length(found: Runs) -> bool:
    """Sorted, disjoint, none empty, and no two neighbours that are one run."""
    order = [left[1] < right[0] for left, right in pairwise(found)]
    return every(True, *(first <= last for first, last, _ in found), *order)


def is_well_formed(found: Cursor) -> bool:
    """Islands lie above the floor, apart (I-INTERVALS); attempts are of unsettled offsets alone (I-ATTEMPTS)."""
    open_runs = [
        every(found.floor <= first, value >= 1, *(some(last < left, right < first) for left, right in found.islands))
        for first, last, value in found.attempts
    ]
    above = [found.floor < found.islands[0][0]] if found.islands else []
    return every(is_apart(found.islands), is_run_length(found.attempts), *above, *open_runs)


def within(offset: int, first: int, last: int) -> bool:
    """Whether `offset` is one of `first..last`."""
    return every(first <= offset, offset <= last)


def is_in(intervals: Intervals, offset: int) -> bool:
    """The definition of membership."""
    return some(False, *(within(offset, first, last) for first, last in intervals))


def value_at(found: Runs, offset: int, value: int) -> bool:
    """Whether a run-length map says `value` at `offset`; 0 is said where there is no run."""
    hits = [implies(within(offset, first, last), run == value) for first, last, run in found]
    nowhere = every(True, *(negated(within(offset, first, last)) for first, last, _ in found))
    return every(True, *hits, implies(nowhere, value == 0))


def is_settled(found: Cursor, offset: int) -> bool:
    """The definition of settled: below the floor or on an island."""
    return some(offset < found.floor, is_in(found.islands, offset))


def settled_total(found: Cursor) -> int:
    """The floor and the offsets on islands together: it grows by one for each offset that is settled."""
    total = found.floor
    for first, last in found.islands:
        total = total + last - first + 1
    return total


def same(one: bool, other: bool) -> bool:
    """Whether two truth values are equal, without a fork."""
    return every(implies(one, other), implies(other, one))
