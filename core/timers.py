"""What must happen later: timers in buckets of ten milliseconds of the monotonic clock.

Promises  a timer fires neither before its instant nor more than one bucket after it, given a step then (I-TIMER);
          setting and clearing cost the same however many there are.
Never     scans timers that are not due: `soonest` is a lower bound of the next bucket in use.
"""

from __future__ import annotations

from collections.abc import Iterator

from immutables import Map
from msgspec import Struct

from dovetail.core.ids import ordered

BUCKET_MS = 10
ROW_BUCKETS = 1_024
NEVER = 1 << 62

Timer = tuple[int, int, int]
"""`(kind, a, b)`: what fires and about which ids."""

Rows = Map[int, Map[int, Map[Timer, None]]]

LEASE = 1
RETRY = 2
SESSION = 3
POLL = 4
DELAYED = 5
HOUR_NEAR = 6
HOUR_OVER = 7
HELD = 8
REPLAY = 9
GATHER = 11
REVOKE = 12
GROUP_EXPIRY = 13


def bucket_of(at_ms: int) -> int:
    """The first bucket whose start is not before `at_ms`."""
    return -(-at_ms // BUCKET_MS)


class Wheel(Struct, frozen=True, gc=False):
    """A persistent set of timers by bucket; buckets lie in rows, so that the next one is found among few."""

    rows: Rows = Map()
    soonest: int = NEVER

    @property
    def wake_ms(self) -> int | None:
        """When a step is due at the latest; None when no timer is set."""
        return None if self.soonest == NEVER else self.soonest * BUCKET_MS

    def bucket(self, number: int) -> Map[Timer, None]:
        """What fires at the start of a bucket."""
        return _bucket(self.rows, number)


def put(wheel: Wheel, at_ms: int, timer: Timer) -> Wheel:
    """The wheel with `timer` set for `at_ms`."""
    number = bucket_of(at_ms)
    rows = _with_bucket(wheel.rows, number, wheel.bucket(number).set(timer, None))
    return Wheel(rows, min(wheel.soonest, number))


def drop(wheel: Wheel, at_ms: int, timer: Timer) -> Wheel:
    """The wheel without the `timer` set for `at_ms`; one that already fired is fine."""
    number = bucket_of(at_ms)
    timers = wheel.bucket(number)
    if timer not in timers:
        return wheel
    rows = _with_bucket(wheel.rows, number, timers.delete(timer))
    return Wheel(rows, wheel.soonest if rows else NEVER)


def due(wheel: Wheel, now_ms: int) -> tuple[Wheel, list[Timer]]:
    """The wheel without what is due at `now_ms`, and those timers, earliest bucket first."""
    rows, soonest = wheel.rows, wheel.soonest
    fired: list[Timer] = []
    while rows and soonest * BUCKET_MS <= now_ms:
        if timers := _bucket(rows, soonest):
            fired.extend(timer for timer, _ in ordered(timers))
            rows = _with_bucket(rows, soonest, Map())
        soonest = _first_bucket(rows, soonest)
    return (Wheel(rows, soonest) if soonest != wheel.soonest else wheel), fired


def _bucket(rows: Rows, number: int) -> Map[Timer, None]:
    row: Map[int, Map[Timer, None]] = rows.get(number // ROW_BUCKETS) or Map()
    return row.get(number) or Map()


def _with_bucket(rows: Rows, number: int, timers: Map[Timer, None]) -> Rows:
    """The rows with `timers` in a bucket; neither a bucket nor a row is kept when nothing is left in it."""
    at = number // ROW_BUCKETS
    row: Map[int, Map[Timer, None]] = rows.get(at) or Map()
    row = row.set(number, timers) if timers else row.delete(number)
    return rows.set(at, row) if row else rows.delete(at)


def _first_bucket(rows: Rows, after: int) -> int:
    """The first bucket in use, given that none before `after` is."""
    if not rows:
        return NEVER
    at = after // ROW_BUCKETS
    return min(rows[at] if at in rows else rows[min(rows)])


def contents(wheel: Wheel) -> Iterator[tuple[int, Map[Timer, None]]]:
    """Every bucket in use, in order."""
    for _, row in ordered(wheel.rows):
        yield from ordered(row)
