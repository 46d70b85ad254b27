"""What must happen later: timers in buckets of ten milliseconds of the monotonic clock.

Promises  a timer fires neither before its instant nor more than one bucket after it, given a step then (I-TIMER);
          setting and clearing cost the same however many there are.
Never     scans timers that are not due: `soonest` is a lower bound of the next bucket in use.
"""

from __future__ import annotations

from immutables import Map
from msgspec import Struct

from dovetail.core.ids import ordered

BUCKET_MS = 10
NEVER = 1 << 62

Timer = tuple[int, int, int]
"""`(kind, a, b)`: what fires and about which ids."""

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
    """A persistent set of timers by bucket."""

    buckets: Map[int, Map[Timer, None]] = Map()
    soonest: int = NEVER

    @property
    def wake_ms(self) -> int | None:
        """When a step is due at the latest; None when no timer is set."""
        return None if self.soonest == NEVER else self.soonest * BUCKET_MS


def put(wheel: Wheel, at_ms: int, timer: Timer) -> Wheel:
    """The wheel with `timer` set for `at_ms`."""
    bucket = bucket_of(at_ms)
    timers: Map[Timer, None] = wheel.buckets.get(bucket) or Map()
    return Wheel(wheel.buckets.set(bucket, timers.set(timer, None)), min(wheel.soonest, bucket))


def drop(wheel: Wheel, at_ms: int, timer: Timer) -> Wheel:
    """The wheel without the `timer` set for `at_ms`; one that already fired is fine."""
    bucket = bucket_of(at_ms)
    timers = wheel.buckets.get(bucket)
    if timers is None or timer not in timers:
        return wheel
    rest = timers.delete(timer)
    buckets = wheel.buckets.set(bucket, rest) if rest else wheel.buckets.delete(bucket)
    return Wheel(buckets, wheel.soonest if buckets else NEVER)


def due(wheel: Wheel, now_ms: int) -> tuple[Wheel, list[Timer]]:
    """The wheel without what is due at `now_ms`, and those timers, earliest bucket first."""
    if wheel.soonest * BUCKET_MS > now_ms:
        return wheel, []
    limit = now_ms // BUCKET_MS
    buckets = wheel.buckets
    fired: list[Timer] = []
    for bucket in sorted(bucket for bucket in buckets if bucket <= limit):
        fired.extend(timer for timer, _ in ordered(buckets[bucket]))
        buckets = buckets.delete(bucket)
    return Wheel(buckets, min(buckets, default=NEVER)), fired
