"""Decisions over numbers, each its own function over ints, as the proofs run them.

Promises  total over the ints their docstrings name; no containers, no floats, no clock.
Never     knows what a session or a payload is.
"""

from __future__ import annotations

RETRY_FIRST_MS = 1_000
RETRY_CAP_MS = 60_000
JITTER_PERCENT = 20
LATEST_MS = (1 << 63) - 1
"""The last instant that a stored time can name."""


def backoff_ms(failures: int, salt: int) -> int:
    """How long after failure number `failures` (from 1) the next try waits.

    The first retry is immediate; then 1 s doubling up to 60 s, plus up to 20% that `salt` decides.
    """
    if failures <= 1:
        return 0
    doublings = failures - 2
    base = RETRY_CAP_MS if doublings >= 6 else min(RETRY_CAP_MS, RETRY_FIRST_MS << doublings)
    return base + spread(salt, base * JITTER_PERCENT // 100)


def spread(salt: int, limit: int) -> int:
    """A number in `0..limit` that depends on `salt` alone."""
    mixed = (salt * 0x9E3779B97F4A7C15 + 0x7F4A7C15) % (1 << 64)
    return (mixed >> 33) % (limit + 1)


def retry_length(length: int, failures: int, attempts_max: int) -> int:
    """The longest range that is tried together after `failures` of `attempts_max` attempts failed.

    An eighth at the first retry, single messages from the second retry or on the last attempt, so that one
    poison message takes no neighbour along.
    """
    if failures == 0:
        return length
    if failures >= 2 or failures + 1 >= attempts_max:
        return 1
    return max(1, length // 8)


def extended_deadline(granted_ms: int, deadline_ms: int, now_ms: int, by_ms: int, lease_max_ms: int) -> int:
    """The deadline of a lease extended at `now_ms`: never earlier than it was, never past `lease_max` in all."""
    return max(deadline_ms, min(now_ms + by_ms, granted_ms + lease_max_ms))


def share(available: int, members: int, place: int) -> int:
    """How many of `available` messages the member at `place` (from 0) of a ring of `members` gets."""
    return available // members + (1 if place < available % members else 0)


def partition_of_hash(hash: int, partitions: int) -> int:
    """Where a key with this hash goes, of `partitions` (1 or more); the sign is left out, as Kafka's clients do."""
    return (hash & 0x7FFFFFFF) % partitions


def expiry(wall_ms: int, ttl_ms: int) -> int:
    """The end of life of a message that arrives now and may live `ttl_ms` (0: for ever); as late as can be stored."""
    return min(wall_ms + ttl_ms, LATEST_MS) if ttl_ms > 0 else 0


def next_sequence(sequence: int, count: int) -> int:
    """The sequence number after `count` records from `sequence` on; it has 31 bits and begins again at 0."""
    return (sequence + count) % (1 << 31)


def due_hour(deliver_at_ms: int) -> int:
    """The hour since 1970 that an instant lies in."""
    return deliver_at_ms // 3_600_000


LANES = 5


def lane_weight(lane: int) -> int:
    """How many messages a lane may send in its turn; all turns of a round are 100."""
    if lane == 0:
        return 50
    if lane == 1:
        return 25
    if lane == 2:
        return 15
    return 7 if lane == 3 else 3


def lane_turn(lane: int, left: int, work: int) -> tuple[int, int]:
    """Whose turn it is, and for how many messages: the same lane's while it has work and something left, else the
    next one's that has. Bit n of `work` says that lane n has work; at least one has."""
    if left > 0 and work >> lane & 1:
        return lane, left
    for step in (1, 2, 3, 4, 5):
        following = (lane + step) % LANES
        if work >> following & 1:
            return following, lane_weight(following)
    return lane, left


def percent(part: int, whole: int) -> int:
    """`part` as a percentage of `whole`; 0 where there is no limit."""
    return part * 100 // whole if whole > 0 else 0


def flow_level(level: int, load: int, warning: int) -> int:
    """A topic's level (0 normal to 3 overloaded) from its load in percent of the critical limit and of the warning.

    A level begins at its limit and ends at four fifths of it.
    """
    if load >= (160 if level >= 3 else 200):
        return 3
    if load >= (80 if level >= 2 else 100):
        return 2
    return 1 if warning >= (80 if level >= 1 else 100) else 0


def refused_at(priority: int) -> int:
    """The load in percent from which batches of a priority (1 critical to 5 background) are refused."""
    return 200 - (priority - 1) * 15


def refill(tokens: int, rate: int, elapsed_ms: int) -> int:
    """A bucket of thousandths after a while at `rate` a second; it holds one second's worth."""
    return min(rate * 1000, tokens + rate * elapsed_ms)


def debt_ms(tokens: int, rate: int) -> int:
    """How long until a bucket of thousandths has something in it again."""
    return -tokens // rate + 1 if tokens <= 0 and rate > 0 else 0


def spend(tokens: int, count: int, rate: int, wait_max_ms: int) -> tuple[int, int]:
    """What is left in a bucket of thousandths after `count`, and how long that is ahead of `rate` a second.

    It owes at most what `wait_max_ms` brings in.
    """
    left = tokens - count * 1000
    if left >= 0:
        return left, 0
    if rate <= 0:
        return 0, wait_max_ms
    return max(left, -rate * wait_max_ms), min(wait_max_ms, -left // rate)


def smoothed_rate(before: int, count: int, elapsed_ms: int) -> int:
    """A rate a second after `count` in `elapsed_ms`: a quarter new, three quarters old."""
    return (3 * before + count * 1000 // elapsed_ms) // 4 if elapsed_ms > 0 else before


def retry_after_ms(lag: int, drain: int) -> int:
    """When a refused publisher may try again: when a tenth of the lag is done at `drain` a second, 0.1 to 10 s."""
    return min(10_000, max(100, lag * 100 // drain)) if drain > 0 else 1_000


def is_expired(expires_at_ms: int, wall_ms: int) -> bool:
    """Whether a message with this end of life (0: none) is past it."""
    return expires_at_ms != 0 and expires_at_ms <= wall_ms


def clamp_wall(previous_ms: int, wall_ms: int) -> int:
    """The wall clock as the core uses it: it never goes back."""
    return max(previous_ms, wall_ms)


def is_fenced(assigned: int, named: int, current: int) -> bool:
    """Whether what was said under generation `named` is void for a partition assigned at generation `assigned`."""
    return not assigned <= named <= current


def evens_out(giver: int, taker: int) -> bool:
    """Whether moving one partition from a member that has `giver` to one that has `taker` evens out the two."""
    return giver >= taker + 2


def gathered_ms(begun_ms: int, last_ms: int, quiet_ms: int) -> int:
    """When a burst is over: after a quiet period, but no later than ten of them after it began."""
    return min(last_ms + quiet_ms, begun_ms + 10 * quiet_ms)


SAMPLES_MIN = 20


def health(outcomes: int, failures: int, took_ms: int, allowed_ms: int) -> int:
    """0 healthy, 1 warning, 2 suspicious, 3 failed, by share of failures and by how much of their leases members need.

    Warning from 10% failures or half of the lease on, suspicious from 50% or four fifths, failed from 90%.
    """
    if outcomes < SAMPLES_MIN:
        return 0
    if failures * 10 >= outcomes * 9:
        return 3
    if failures * 2 >= outcomes or took_ms * 5 >= allowed_ms * 4:
        return 2
    if failures * 10 >= outcomes or took_ms * 2 >= allowed_ms:
        return 1
    return 0


def takes_turn(worse: int, salt: int) -> bool:
    """Whether a member `worse` levels below the best takes this turn: each, or one in 2, 4, 8, as `salt` decides."""
    return spread(salt, (1 << worse) - 1) == 0


def caught_up(next_offset: int, stored: int, lag_max: int) -> int:
    """Where a reader goes on that must not be more than `lag_max` behind: half of that behind, if it is."""
    return next_offset if stored - next_offset <= lag_max else stored - lag_max // 2
