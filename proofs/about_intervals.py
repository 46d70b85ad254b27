"""Proofs about sets of ranges and run-length maps: each operation against the definition, offset by offset."""

from __future__ import annotations

from itertools import pairwise

from dovetail.core import intervals
from dovetail.core.intervals import Intervals
from dovetail.proofs.engine import Given, every, implies, negated, some
from dovetail.proofs.registry import proof
from dovetail.proofs.shapes import (
    RANGES_MAX,
    RUNS_MAX,
    is_apart,
    is_in,
    is_run_length,
    ranges,
    runs,
    same,
    value_at,
    within,
)

SETS = f"bounded: up to {RANGES_MAX} ranges, ends any integers"
MAPS = f"bounded: up to {RUNS_MAX} runs, ends any integers"


def _set_and_range(given: Given) -> tuple[Intervals, int, int]:
    first, last = given.integer("first"), given.integer("last")
    given.assume(first <= last)
    return ranges(given, "range", RANGES_MAX), first, last


@proof("I-INTERVALS", about=intervals.add, scope=SETS, sabotage=("intervals, last + 1, key", "intervals, last, key"))
def a_set_with_a_range_added_is_well_formed(given: Given) -> bool:
    """After adding a range the set is again sorted, disjoint and non-adjacent."""
    return is_apart(given.call(intervals.add, *_set_and_range(given)))


@proof("I-INTERVALS", about=intervals.add, scope=SETS, sabotage=("min(first", "max(first"))
def adding_adds_exactly_the_range(given: Given) -> bool:
    """After adding a range the set holds what it held and the range, and nothing else."""
    held, first, last = _set_and_range(given)
    offset = given.integer("offset")
    after = given.call(intervals.add, held, first, last)
    return same(is_in(after, offset), some(is_in(held, offset), within(offset, first, last)))


@proof("I-INTERVALS", about=intervals.remove, scope=SETS, sabotage=("left < first", "left <= first"))
def a_set_with_a_range_removed_is_well_formed(given: Given) -> bool:
    """After removing a range the set is again sorted, disjoint and non-adjacent."""
    return is_apart(given.call(intervals.remove, *_set_and_range(given)))


@proof("I-INTERVALS", about=intervals.remove, scope=SETS, sabotage=("(last + 1, right)", "(last + 2, right)"))
def removing_removes_exactly_the_range(given: Given) -> bool:
    """After removing a range the set holds what it held outside the range, and nothing else."""
    held, first, last = _set_and_range(given)
    offset = given.integer("offset")
    after = given.call(intervals.remove, held, first, last)
    return same(is_in(after, offset), every(is_in(held, offset), negated(within(offset, first, last))))


@proof("I-INTERVALS", about=intervals.contains, scope=SETS, sabotage=("intervals, last, key", "intervals, first, key"))
def contains_means_every_offset(given: Given) -> bool:
    """A set contains a range exactly when one of its ranges covers it."""
    held, first, last = _set_and_range(given)
    covered = some(False, *(every(left <= first, last <= right) for left, right in held))
    return same(given.call(intervals.contains, held, first, last), covered)


@proof("I-INTERVALS", about=intervals.overlaps, scope=SETS, sabotage=("[0] <= last", "[0] < last"))
def overlaps_means_some_offset(given: Given) -> bool:
    """A set overlaps a range exactly when one of its ranges shares an offset with it."""
    held, first, last = _set_and_range(given)
    shared = some(False, *(every(left <= last, first <= right) for left, right in held))
    return same(given.call(intervals.overlaps, held, first, last), shared)


@proof("I-INTERVALS", about=intervals.gaps, scope=SETS, sabotage=("left - 1", "left"))
def gaps_are_exactly_what_is_missing(given: Given) -> bool:
    """The gaps of a range hold its offsets that the set lacks, and nothing else, sorted and apart."""
    held, first, last = _set_and_range(given)
    offset = given.integer("offset")
    found = given.call(intervals.gaps, held, first, last)
    missing = every(within(offset, first, last), negated(is_in(held, offset)))
    return every(is_apart(found), same(is_in(found, offset), missing))


@proof("I-INTERVALS", about=intervals.total, scope=SETS, sabotage=("last - first + 1", "last - first"))
def the_total_grows_by_what_was_missing(given: Given) -> bool:
    """A set that gets a range grows by as many offsets as the range has gaps; the empty set has none."""
    held, first, last = _set_and_range(given)
    before = given.call(intervals.total, held)
    missing = given.call(intervals.total, intervals.gaps(held, first, last))
    after = given.call(intervals.total, intervals.add(held, first, last))
    alone = given.call(intervals.total, ((first, last),))
    return every(after == before + missing, alone == last + 1 - first, intervals.total(()) == 0)


@proof("I-ATTEMPTS", about=intervals.assign, scope=MAPS, sabotage=("== last + 1", "<= last + 2"))
def assigning_changes_exactly_the_range(given: Given) -> bool:
    """After assigning, the map says the value over the range and what it said before elsewhere."""
    first, last, value = given.integer("first"), given.integer("last"), given.integer("value", 1)
    given.assume(first <= last)
    before = runs(given, "run", RUNS_MAX)
    offset, said = given.integer("offset"), given.integer("said", 0)
    after = given.call(intervals.assign, before, first, last, value)
    inside = within(offset, first, last)
    return every(
        implies(inside, value_at(after, offset, value)),
        implies(every(negated(inside), value_at(before, offset, said)), value_at(after, offset, said)),
    )


@proof(
    "I-ATTEMPTS",
    about=intervals.assign,
    scope=MAPS,
    sabotage=("before[-1][1] + 1 == first", "before[-1][1] + 2 == first"),
)
def assigned_runs_are_sorted_and_joined(given: Given) -> bool:
    """After assigning, runs are sorted and disjoint, and the new one is joined with equal neighbours."""
    first, last, value = given.integer("first"), given.integer("last"), given.integer("value", 1)
    given.assume(first <= last)
    after = given.call(intervals.assign, runs(given, "run", RUNS_MAX), first, last, value)
    pairs = list(pairwise(after))
    return every(is_run_length(after), *(some(left[1] + 1 < right[0], left[2] != right[2]) for left, right in pairs))


@proof("I-ATTEMPTS", about=intervals.clip, scope=MAPS, sabotage=("first - 1, value", "first, value"))
def clipping_forgets_exactly_the_range(given: Given) -> bool:
    """After clipping, the map says nothing over the range and what it said before elsewhere, sorted and disjoint."""
    first, last = given.integer("first"), given.integer("last")
    given.assume(first <= last)
    before = runs(given, "run", RUNS_MAX)
    offset, said = given.integer("offset"), given.integer("said", 0)
    after = given.call(intervals.clip, before, first, last)
    inside = within(offset, first, last)
    return every(
        is_run_length(after),
        implies(inside, value_at(after, offset, 0)),
        implies(every(negated(inside), value_at(before, offset, said)), value_at(after, offset, said)),
    )


@proof("I-ATTEMPTS", about=intervals.lookup, scope=MAPS, sabotage=("(0, first - 1)", "(0, first)"))
def a_lookup_says_the_value_and_how_far_it_goes(given: Given) -> bool:
    """A look-up gives the value at an offset, and one that holds up to the limit it names (-1: without end)."""
    found = runs(given, "run", RUNS_MAX)
    offset, further = given.integer("offset", 0), given.integer("further")
    value, limit = given.call(intervals.lookup, found, offset)
    reached = every(offset <= further, some(limit == -1, further <= limit))
    widest = [negated(within(limit + 1, first, last)) for first, last, said in found if said == value]
    return every(
        value_at(found, offset, value),
        some(limit == -1, offset <= limit),
        implies(reached, value_at(found, further, value)),
        implies(every(limit != -1, value != 0), every(True, *widest)),
    )
