"""A group's place in a log against a plain set of settled offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.core import cursor as cursors
from dovetail.core.cursor import Cursor
from dovetail.core.intervals import lookup

RANGE = st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(RANGE, max_size=12))
def test_the_floor_is_the_first_offset_that_is_not_settled(settled: list[tuple[int, int]]) -> None:
    cursor, known = Cursor(0), set[int]()
    for first, last in settled:
        cursor = cursors.settle(cursor, first, last)
        known |= set(range(first, last + 1))
        assert cursor.floor == min(set(range(60)) - known)
        assert all(cursors.is_settled(cursor, offset) == (offset in known) for offset in range(60))


@given(st.lists(st.tuples(RANGE, st.integers(0, 3)), max_size=12))
def test_attempts_are_kept_for_what_is_not_settled_only(events: list[tuple[tuple[int, int], int]]) -> None:
    cursor = Cursor(0)
    failures: dict[int, int] = {}
    settled: set[int] = set()
    for (first, last), attempt in events:
        offsets = set(range(first, last + 1))
        if attempt:
            cursor = cursors.fail(cursor, first, last, attempt)
            failures |= dict.fromkeys(offsets - settled, attempt)
        else:
            cursor = cursors.settle(cursor, first, last)
            settled |= offsets
            failures = {offset: count for offset, count in failures.items() if offset not in offsets}
    assert {at: lookup(cursor.attempts, at)[0] for at in range(60) if lookup(cursor.attempts, at)[0]} == failures


def test_a_settle_that_closes_the_gap_moves_the_floor_past_the_island() -> None:
    cursor = cursors.settle(Cursor(0), 2, 4)
    assert (cursor.floor, cursor.islands) == (0, ((2, 4),))
    cursor = cursors.settle(cursor, 0, 1)
    assert (cursor.floor, cursor.islands) == (5, ())


def test_settling_what_is_settled_changes_nothing() -> None:
    cursor = cursors.settle(cursors.settle(Cursor(0), 0, 3), 6, 7)
    assert cursors.settle(cursor, 0, 3) == cursor == cursors.settle(cursor, 6, 7)


def test_a_reset_forgets_what_was_settled_and_tried_from_there_on() -> None:
    cursor = cursors.fail(cursors.settle(Cursor(0), 2, 4), 5, 6, 1)
    assert cursors.reset(cursor, 1) == Cursor(1)


def test_the_counts_survive_a_reset() -> None:
    assert cursors.reset(Cursor(9, settled_count=4, dead_count=1), 0) == Cursor(0, settled_count=4, dead_count=1)
