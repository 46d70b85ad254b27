"""One group's place in one log: what is settled, and how often what is not has failed.

Promises  the floor moves back only by `reset` (I-FLOOR); islands lie above it, apart from it and from each
          other (I-INTERVALS); attempts are kept for unsettled offsets only (I-ATTEMPTS).
Never     sees a payload, a lease or a clock: those end with a session, this is durable.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from dovetail.core import intervals
from dovetail.core.intervals import Intervals, Runs


class Cursor(Struct, frozen=True, gc=False):
    """Durable progress. `floor` is the committed offset: everything below it is settled."""

    floor: int
    islands: Intervals = ()
    attempts: Runs = ()
    settled_count: int = 0
    expired_count: int = 0
    dead_count: int = 0


def settle(cursor: Cursor, first: int, last: int) -> Cursor:
    """The cursor after `first..last` was settled, however it ended."""
    first = max(first, cursor.floor)
    if last < first:
        return cursor
    if first == cursor.floor and not cursor.islands and not cursor.attempts:
        return replace(cursor, floor=last + 1)
    islands = intervals.add(cursor.islands, first, last)
    floor = next_floor(cursor.floor, islands[0][0], islands[0][1])
    if floor != cursor.floor:
        islands = islands[1:]
    attempts = intervals.clip(cursor.attempts, first, last) if cursor.attempts else cursor.attempts
    return replace(cursor, floor=floor, islands=islands, attempts=attempts)


def next_floor(floor: int, first: int, last: int) -> int:
    """The floor after the lowest island `first..last` is known: past it when it touches, else where it was."""
    return last + 1 if first <= floor else floor


def fail(cursor: Cursor, first: int, last: int, attempt: int) -> Cursor:
    """The cursor after attempt number `attempt` of `first..last` ended without success."""
    attempts = cursor.attempts
    for left, right in unsettled(cursor, first, last):
        attempts = intervals.assign(attempts, left, right, attempt)
    return replace(cursor, attempts=attempts)


def unsettled(cursor: Cursor, first: int, last: int) -> Intervals:
    """The parts of `first..last` that still wait to be settled."""
    return intervals.gaps(cursor.islands, max(first, cursor.floor), last)


def is_settled(cursor: Cursor, offset: int) -> bool:
    """Whether `offset` was settled."""
    return offset < cursor.floor or intervals.contains(cursor.islands, offset, offset)


def reset(cursor: Cursor, floor: int) -> Cursor:
    """The cursor moved to `floor` by command: what was settled or tried from there on is forgotten."""
    return replace(cursor, floor=floor, islands=(), attempts=())
