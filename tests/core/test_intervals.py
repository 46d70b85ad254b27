"""Interval sets and run-length maps against plain sets and dictionaries of offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dovetail.core import intervals
from dovetail.core.intervals import Intervals, Runs

OFFSET = st.integers(0, 30)
RANGE = st.tuples(OFFSET, st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
RANGES = st.lists(RANGE, max_size=8)


def made(ranges: list[tuple[int, int]]) -> Intervals:
    made = intervals.EMPTY
    for first, last in ranges:
        made = intervals.add(made, first, last)
    return made


def offsets(ranges: Intervals) -> set[int]:
    return {offset for first, last in ranges for offset in range(first, last + 1)}


def normal(ranges: Intervals) -> bool:
    apart = all(a[1] + 1 < b[0] for a, b in pairwise(ranges))
    return apart and all(first <= last for first, last in ranges)


@given(RANGES)
def test_adding_is_union_in_normal_form(ranges: list[tuple[int, int]]) -> None:
    assert offsets(made(ranges)) == offsets(tuple(ranges))
    assert normal(made(ranges))


@given(RANGES, RANGE)
def test_removing_is_difference_in_normal_form(ranges: list[tuple[int, int]], gone: tuple[int, int]) -> None:
    rest = intervals.remove(made(ranges), *gone)
    assert offsets(rest) == offsets(made(ranges)) - offsets((gone,))
    assert normal(rest)


@given(RANGES, RANGE)
def test_contains_means_all_and_overlaps_means_any(ranges: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    held = offsets(made(ranges))
    assert intervals.contains(made(ranges), *asked) == (offsets((asked,)) <= held)
    assert intervals.overlaps(made(ranges), *asked) == bool(offsets((asked,)) & held)


@given(RANGES, OFFSET, OFFSET)
def test_gaps_are_what_is_missing(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    found = intervals.gaps(made(ranges), first, last)
    assert offsets(found) == set(range(first, last + 1)) - offsets(made(ranges))
    assert normal(found)


@given(RANGES)
def test_total_counts_offsets(ranges: list[tuple[int, int]]) -> None:
    assert intervals.total(made(ranges)) == len(offsets(made(ranges)))


ASSIGNMENTS = st.lists(st.tuples(RANGE, st.integers(1, 3)), max_size=8)


def values(runs: Runs) -> dict[int, int]:
    return {offset: value for first, last, value in runs for offset in range(first, last + 1)}


def assigned(assignments: list[tuple[tuple[int, int], int]]) -> Runs:
    runs: Runs = ()
    for (first, last), value in assignments:
        runs = intervals.assign(runs, first, last, value)
    return runs


@given(ASSIGNMENTS)
def test_the_last_assignment_wins_and_equal_neighbours_are_one(
    assignments: list[tuple[tuple[int, int], int]],
) -> None:
    expected: dict[int, int] = {}
    for (first, last), value in assignments:
        expected |= dict.fromkeys(range(first, last + 1), value)
    runs = assigned(assignments)
    assert values(runs) == expected
    assert all(a[1] < b[0] and (a[1] + 1 < b[0] or a[2] != b[2]) for a, b in pairwise(runs))


@given(ASSIGNMENTS, RANGE)
def test_clipping_forgets_a_range(assignments: list[tuple[tuple[int, int], int]], gone: tuple[int, int]) -> None:
    rest = values(intervals.clip(assigned(assignments), *gone))
    assert rest == {at: value for at, value in values(assigned(assignments)).items() if not gone[0] <= at <= gone[1]}


@given(ASSIGNMENTS, OFFSET)
def test_a_look_up_says_the_value_and_how_far_it_holds(
    assignments: list[tuple[tuple[int, int], int]], offset: int
) -> None:
    known = values(assigned(assignments))
    value, limit = intervals.lookup(assigned(assignments), offset)
    assert value == known.get(offset, 0)
    assert all(known.get(at, 0) == value for at in range(offset, limit + 1))
    if limit < 0:
        assert not any(at >= offset for at in known)
