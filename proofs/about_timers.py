"""Proofs about timers: neither early nor late, never lost, and no step woken for nothing."""

from __future__ import annotations

from dovetail.core import timers
from dovetail.core.timers import Wheel
from dovetail.proofs.engine import Given, every, implies, negated, unchanged
from dovetail.proofs.registry import ALL, Sabotage, proof
from dovetail.proofs.shapes import within

INSTANTS = range(31)
OTHERS = (0, 1, 9, 10, 11, 20, 29, 10_240, 20_475)
"""Those in the same row of buckets, and the first and the last instant of the next row."""
TWO_TIMERS = "bounded: two timers, one for 0 to 30 ms, the other then or in the next row, asked at any instant"

ONE, TWO = (timers.LEASE, 1, 0), (timers.RETRY, 2, 0)


@proof("I-TIMER", about=timers.bucket_of, scope=ALL, sabotage=("-(-at_ms // BUCKET_MS)", "at_ms // BUCKET_MS"))
def a_bucket_starts_at_or_after_its_instants(given: Given) -> bool:
    """A timer's bucket starts not before its instant, and less than one bucket after it."""
    at = given.integer("at")
    return within(given.call(timers.bucket_of, at) * timers.BUCKET_MS, at, at + timers.BUCKET_MS - 1)


def _wheel(given: Given) -> tuple[Wheel, int, int]:
    at, other = given.choice("at", INSTANTS), given.choice("other", OTHERS)
    wheel = given.call(timers.put, Wheel(), at, ONE)
    return given.call(timers.put, wheel, other, TWO), at, other


@proof(
    "I-TIMER",
    about=timers.due,
    through=(timers.put, timers.bucket_of),
    scope=TWO_TIMERS,
    sabotage=("soonest * BUCKET_MS <= now_ms", "soonest * BUCKET_MS <= now_ms + BUCKET_MS"),
)
def a_timer_fires_neither_early_nor_late(given: Given) -> bool:
    """A step fires no timer before its instant, and every one whose instant was a bucket ago."""
    wheel, at, other = _wheel(given)
    now = given.integer("now")
    _, fired = given.call(timers.due, wheel, now)
    in_time = [
        every(now >= instant) if timer in fired else now < instant + timers.BUCKET_MS
        for instant, timer in ((at, ONE), (other, TWO))
    ]
    return every(*in_time)


@proof(
    "I-TIMER",
    about=timers.due,
    through=(timers.put,),
    scope=TWO_TIMERS,
    sabotage=Sabotage(timers.put, "wheel.bucket(number).set", "Map().set"),
)
def a_timer_fires_once(given: Given) -> bool:
    """What has fired is gone, what has not fires later, the earlier bucket first, and then nothing is left."""
    wheel, at, other = _wheel(given)
    now = given.integer("now")
    rest, fired = given.call(timers.due, wheel, now)
    empty, later = given.call(timers.due, rest, 30_000)
    in_order = [ONE, TWO] if timers.bucket_of(at) <= timers.bucket_of(other) else [TWO, ONE]
    return every(fired + later == in_order, not empty.rows, empty.wake_ms is None)


@proof(
    "I-TIMER",
    about=timers.due,
    through=(timers.put,),
    scope=TWO_TIMERS,
    sabotage=Sabotage(timers._first_bucket, "return min(", "return max("),
)
def a_wake_up_is_never_too_late_and_never_repeated(given: Given) -> bool:
    """The instant a wheel asks to be woken at is its first bucket's, and after a step then it is the next one's."""
    wheel, at, other = _wheel(given)
    wheel = given.call(timers.put, wheel, 50, (timers.SESSION, 3, 0))
    first, following, *_ = sorted({timers.bucket_of(instant) * timers.BUCKET_MS for instant in (at, other, 50)})
    rest, fired = given.call(timers.due, wheel, first)
    return every(wheel.wake_ms == first, rest.wake_ms == following, len(fired) > 0)


@proof(
    "I-TIMER",
    about=timers.drop,
    through=(timers.put, timers.due),
    scope=TWO_TIMERS,
    sabotage=("timers.delete(timer)", "Map()"),
)
def a_cleared_timer_never_fires_and_the_other_does(given: Given) -> bool:
    """A timer that was cleared is gone, whatever shares its bucket stays, and a wheel without any asks for nothing."""
    wheel, at, other = _wheel(given)
    now = given.integer("now")
    left = given.call(timers.drop, wheel, at, ONE)
    _, fired = given.call(timers.due, left, now)
    none = given.call(timers.drop, left, other, TWO)
    unknown = given.call(timers.drop, left, at, ONE)
    return every(
        ONE not in fired,
        implies(now >= other + timers.BUCKET_MS, TWO in fired),
        implies(TWO in fired, now >= other),
        negated(TWO in fired) if now < other else True,
        none.wake_ms is None,
        unchanged(unknown, left),
    )
