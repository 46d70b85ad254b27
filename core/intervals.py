"""Sorted, disjoint, non-adjacent ranges of offsets: what a group has settled above its floor.

Promises  every result is again sorted, disjoint and non-adjacent (I-INTERVALS), ends inclusive.
Never     changes its argument: an interval set is a tuple of pairs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TypeVar

Range = tuple[int, int]
Intervals = tuple[Range, ...]
Runs = tuple[tuple[int, int, int], ...]
"""Run-length map: `(first, last, value)`, sorted and disjoint."""

EMPTY: Intervals = ()


def add(intervals: Intervals, first: int, last: int) -> Intervals:
    """The set with `first..last` in it; neighbours and overlaps are merged."""
    if not intervals or first > intervals[-1][1] + 1:
        return (*intervals, (first, last))
    low = bisect_left(intervals, first - 1, key=_last)
    high = bisect_right(intervals, last + 1, key=_first)
    if low < high:
        first = min(first, intervals[low][0])
        last = max(last, intervals[high - 1][1])
    return (*intervals[:low], (first, last), *intervals[high:])


def remove(intervals: Intervals, first: int, last: int) -> Intervals:
    """The set without `first..last`."""
    low = bisect_left(intervals, first, key=_last)
    high = bisect_right(intervals, last, key=_first)
    if low >= high:
        return intervals
    left = intervals[low][0]
    right = intervals[high - 1][1]
    rest: Intervals = ()
    if left < first:
        rest = ((left, first - 1),)
    if right > last:
        rest = (*rest, (last + 1, right))
    return (*intervals[:low], *rest, *intervals[high:])


def contains(intervals: Intervals, first: int, last: int) -> bool:
    """Whether all of `first..last` is in the set."""
    at = bisect_left(intervals, last, key=_last)
    return at < len(intervals) and intervals[at][0] <= first


def overlaps(intervals: Intervals, first: int, last: int) -> bool:
    """Whether any of `first..last` is in the set."""
    at = bisect_left(intervals, first, key=_last)
    return at < len(intervals) and intervals[at][0] <= last


def gaps(intervals: Intervals, first: int, last: int) -> Intervals:
    """The parts of `first..last` that are not in the set."""
    found: list[Range] = []
    at = bisect_left(intervals, first, key=_last)
    while first <= last:
        if at >= len(intervals) or intervals[at][0] > last:
            found.append((first, last))
            break
        left, right = intervals[at]
        if first < left:
            found.append((first, left - 1))
        first = right + 1
        at += 1
    return tuple(found)


def total(intervals: Intervals) -> int:
    """How many offsets are in the set."""
    return sum(last - first + 1 for first, last in intervals)


def assign(runs: Runs, first: int, last: int, value: int) -> Runs:
    """The run-length map with `value` over `first..last`; equal neighbours are joined."""
    left = tuple(run for run in clip(runs, first, last))
    low = bisect_left(left, first, key=_run_first)
    before, after = left[:low], left[low:]
    if before and before[-1][1] + 1 == first and before[-1][2] == value:
        first, before = before[-1][0], before[:-1]
    if after and after[0][0] == last + 1 and after[0][2] == value:
        last, after = after[0][1], after[1:]
    return (*before, (first, last, value), *after)


V = TypeVar("V")


def clip(runs: tuple[tuple[int, int, V], ...], first: int, last: int) -> tuple[tuple[int, int, V], ...]:
    """The run-length map without anything in `first..last`."""
    kept: list[tuple[int, int, V]] = []
    for start, end, value in runs:
        if end < first or start > last:
            kept.append((start, end, value))
            continue
        if start < first:
            kept.append((start, first - 1, value))
        if end > last:
            kept.append((last + 1, end, value))
    return tuple(kept)


def lookup(runs: Runs, offset: int) -> tuple[int, int]:
    """The value at `offset` (0 where there is none) and the last offset up to which it is the same.

    The second is -1 when nothing further right limits it.
    """
    at = bisect_left(runs, offset, key=_run_last)
    if at >= len(runs):
        return 0, -1
    first, last, value = runs[at]
    return (value, last) if first <= offset else (0, first - 1)


def _first(item: Range) -> int:
    return item[0]


def _last(item: Range) -> int:
    return item[1]


def _run_first(item: tuple[int, int, int]) -> int:
    return item[0]


def _run_last(item: tuple[int, int, int]) -> int:
    return item[1]
