"""Proofs about the decisions over numbers: retries, deadlines, shares, clocks."""

from __future__ import annotations

from dovetail.core import kernels
from dovetail.proofs.engine import Given, every, implies, negated, some
from dovetail.proofs.registry import proof
from dovetail.proofs.shapes import same, within


@proof("I-BACKOFF", about=kernels.backoff_ms, sabotage=("failures <= 1", "failures <= 2"))
def only_the_first_retry_is_immediate(given: Given) -> bool:
    """The first retry waits for nothing, every later one at least a second."""
    failures, salt = given.integer("failures"), given.integer("salt")
    waited = given.call(kernels.backoff_ms, failures, salt)
    return every(implies(failures <= 1, waited == 0), implies(failures > 1, waited >= 1_000))


@proof("I-BACKOFF", about=kernels.backoff_ms, through=(kernels.spread,), sabotage=("// 100", "// 10"))
def backoff_is_capped_with_its_jitter(given: Given) -> bool:
    """No wait is above 60 s and a fifth of it, after however many failures."""
    return within(given.call(kernels.backoff_ms, given.integer("failures"), given.integer("salt")), 0, 72_000)


@proof("I-BACKOFF", about=kernels.backoff_ms, through=(kernels.spread,), sabotage=("failures - 2", "failures - 1"))
def backoff_doubles_up_to_its_cap(given: Given) -> bool:
    """Wait number n is 1 s doubled n - 2 times, 60 s at most, and of a fifth of that what the salt decides."""
    failures, salt = given.integer("failures", 2), given.integer("salt")
    waited = given.call(kernels.backoff_ms, failures, salt)
    base = 60_000
    for number, doubled in enumerate((1_000, 2_000, 4_000, 8_000, 16_000, 32_000), start=2):
        if failures == number:
            base = doubled
    return waited == base + kernels.spread(salt, base // 5)


@proof("I-BACKOFF", about=kernels.backoff_ms, through=(kernels.spread,), sabotage=("doublings >= 6", "doublings >= 5"))
def a_later_retry_waits_longer_whatever_the_jitter(given: Given) -> bool:
    """Until the cap is reached each wait is longer than the one before, and from there on none is below the cap."""
    failures = given.integer("failures", 1)
    sooner = given.call(kernels.backoff_ms, failures, given.integer("salt"))
    later = given.call(kernels.backoff_ms, failures + 1, given.integer("other_salt"))
    return every(implies(failures <= 7, sooner < later), implies(failures >= 7, later >= 60_000))


@proof("I-BACKOFF", about=kernels.spread, sabotage=("limit + 1", "limit + 2"))
def jitter_stays_within_its_limit(given: Given) -> bool:
    """The number that a salt decides is one of 0..limit, for every salt and limit."""
    limit = given.integer("limit", 0)
    return within(given.call(kernels.spread, given.integer("salt"), limit), 0, limit)


@proof("I-BACKOFF", about=kernels.spread, sabotage=("salt * ", "(salt | 1) * "))
def jitter_tells_neighbours_apart(given: Given) -> bool:
    """Two salts that differ by one never get the same number when the limit is 2³¹ - 1."""
    salt = given.integer("salt")
    limit = (1 << 31) - 1
    return given.call(kernels.spread, salt, limit) != given.call(kernels.spread, salt + 1, limit)


@proof(
    "I-BACKOFF", about=kernels.spread, scope="bounded: 5 salts and 2 limits", sabotage=("mixed >> 33", "mixed >> 32")
)
def jitter_is_the_same_in_every_release(given: Given) -> bool:
    """A salt's number never changes, so that a run recorded by one release replays in the next."""
    known = {
        1: (1_327_217_884, 3_292),
        1 << 40: (624_822_912, 2_848),
        (1 << 63) + 12_345: (278_294_805, 3_616),
        6_243_427_334_938_951_679: (0, 0),
        7_261_658_795_716_676_802: ((1 << 31) - 1, 705),
    }
    salt = given.choice("salt", tuple(known))
    wide, narrow = given.call(kernels.spread, salt, (1 << 31) - 1), given.call(kernels.spread, salt, 12_000)
    return (wide, narrow) == known[salt]


@proof("I-POISON", about=kernels.retry_length, sabotage=("max(1, length // 8)", "length // 8"))
def a_retried_range_is_a_part_of_what_failed(given: Given) -> bool:
    """At least one message and never more than failed are tried together."""
    length = given.integer("length", 1)
    tried = given.call(kernels.retry_length, length, given.integer("failures", 0), given.integer("attempts_max", 1))
    return within(tried, 1, length)


@proof("I-POISON", about=kernels.retry_length, sabotage=("failures + 1 >= attempts_max", "failures + 1 > attempts_max"))
def the_last_attempts_are_single_messages(given: Given) -> bool:
    """From the second retry on, and on the last attempt, a message is tried alone: a poison one has no company."""
    failures, attempts_max = given.integer("failures", 1), given.integer("attempts_max", 1)
    tried = given.call(kernels.retry_length, given.integer("length", 1), failures, attempts_max)
    return implies(some(failures >= 2, failures + 1 >= attempts_max), tried == 1)


@proof("I-POISON", about=kernels.retry_length, sabotage=("length // 8", "length // 4"))
def the_first_retry_is_an_eighth(given: Given) -> bool:
    """What never failed goes out whole; the first retry with others left takes an eighth, rounded down, or one."""
    length, failures = given.integer("length", 1), given.integer("failures", 0, 1)
    tried = given.call(kernels.retry_length, length, failures, given.integer("attempts_max", 3))
    eighth = some(every(length < 8, tried == 1), every(8 * tried <= length, length < 8 * (tried + 1)))
    return every(implies(failures == 0, tried == length), implies(failures == 1, eighth))


@proof("I-LEASE", about=kernels.extended_deadline, sabotage=("max(deadline_ms", "min(deadline_ms"))
def an_extension_never_shortens_a_lease(given: Given) -> bool:
    """A deadline moves forward or stays."""
    granted, deadline, now, by, most = (given.integer(name) for name in "granted deadline now by lease_max".split())
    return given.call(kernels.extended_deadline, granted, deadline, now, by, most) >= deadline


@proof("I-LEASE", about=kernels.extended_deadline, sabotage=("granted_ms + lease_max_ms", "now_ms + lease_max_ms"))
def an_extension_never_passes_lease_max(given: Given) -> bool:
    """However often a lease is extended, it ends `lease_max` after it was granted, unless it was longer already."""
    granted, deadline, now, by, most = (given.integer(name) for name in "granted deadline now by lease_max".split())
    extended = given.call(kernels.extended_deadline, granted, deadline, now, by, most)
    return some(extended <= granted + most, extended == deadline)


@proof("I-LEASE", about=kernels.extended_deadline, sabotage=("now_ms + by_ms", "deadline_ms + by_ms"))
def an_extension_gives_what_was_asked_where_it_may(given: Given) -> bool:
    """An extension that lies between the deadline and `lease_max` is granted to the millisecond."""
    granted, deadline, now, by, most = (given.integer(name) for name in "granted deadline now by lease_max".split())
    extended = given.call(kernels.extended_deadline, granted, deadline, now, by, most)
    return implies(every(deadline <= now + by, now + by <= granted + most), extended == now + by)


@proof(
    "I-FAIR", about=kernels.share, sabotage=("place < available", "place <= available"), scope="bounded: 1 to 6 members"
)
def shares_add_up(given: Given) -> bool:
    """What the members of a ring get is exactly what there is."""
    available, members = given.integer("available", 0), given.choice("members", range(1, 7))
    dealt = [given.call(kernels.share, available, members, place) for place in range(members)]
    return sum(dealt) == available


@proof("I-FAIR", about=kernels.share, sabotage=("1 if place", "2 if place"))
def shares_differ_by_one_at_most(given: Given) -> bool:
    """Nobody gets more than one message more than another, and those earlier in the ring get no less."""
    available, members = given.integer("available", 0), given.integer("members", 1)
    place, later = given.integer("place", 0), given.integer("later")
    given.assume(every(place < later, later < members))
    earlier_share = given.call(kernels.share, available, members, place)
    later_share = given.call(kernels.share, available, members, later)
    return within(earlier_share, later_share, later_share + 1)


@proof("I-TTL", about=kernels.is_expired, sabotage=("expires_at_ms <= wall_ms", "expires_at_ms < wall_ms"))
def a_message_expires_at_its_instant(given: Given) -> bool:
    """A message is expired from its instant on and not before; one without a time to live never is."""
    expires_at, wall = given.integer("expires_at"), given.integer("wall")
    expired = given.call(kernels.is_expired, expires_at, wall)
    return same(expired, every(negated(expires_at == 0), wall >= expires_at))


@proof("I-TTL", about=kernels.is_expired, sabotage=("expires_at_ms <= wall_ms", "expires_at_ms == wall_ms"))
def what_expired_stays_expired(given: Given) -> bool:
    """With a wall clock that never goes back nothing comes to life again."""
    expires_at, wall, later = given.integer("expires_at"), given.integer("wall"), given.integer("later")
    given.assume(wall <= later)
    before = given.call(kernels.is_expired, expires_at, wall)
    return implies(before, given.call(kernels.is_expired, expires_at, later))


@proof("I-TTL", about=kernels.expiry, sabotage=("ttl_ms > 0", "ttl_ms > 1"))
def a_time_to_live_is_granted_in_full(given: Given) -> bool:
    """A message with a time to live ends exactly that much after it arrived, as far as 63 bits can say it; one without
    has no end."""
    wall, ttl = given.integer("wall"), given.integer("ttl", 0)
    ends, latest = given.call(kernels.expiry, wall, ttl), (1 << 63) - 1
    whole, cut = wall + ttl <= latest, wall + ttl > latest
    return every(
        implies(every(ttl > 0, whole), ends == wall + ttl),
        implies(every(ttl > 0, cut), ends == latest),
        implies(ttl == 0, ends == 0),
    )


@proof("I-CLOCK", about=kernels.clamp_wall, sabotage=("max(previous_ms", "min(previous_ms"))
def the_wall_clock_never_goes_back(given: Given) -> bool:
    """The core's wall clock is the latest it has seen, and nothing else."""
    previous, wall = given.integer("previous"), given.integer("wall")
    clamped = given.call(kernels.clamp_wall, previous, wall)
    return every(previous <= clamped, wall <= clamped, some(clamped == previous, clamped == wall))


@proof("I-ONCE", about=kernels.next_sequence, sabotage=("1 << 31", "1 << 32"))
def sequence_numbers_begin_again_after_31_bits(given: Given) -> bool:
    """The number after a batch has 31 bits, and lies as far behind the batch's own as the batch has records."""
    sequence, count = given.integer("sequence", 0, (1 << 31) - 1), given.integer("count", 1, (1 << 31) - 1)
    following = given.call(kernels.next_sequence, sequence, count)
    passed = some(following == sequence + count, following == sequence + count - (1 << 31))
    return every(within(following, 0, (1 << 31) - 1), passed)


@proof("I-DELAY", about=kernels.due_hour, sabotage=("// 3_600_000", "// 3_600_001"))
def an_instant_lies_in_its_hour(given: Given) -> bool:
    """The hour of an instant begins not after it, and ends after it."""
    instant = given.integer("instant")
    hour = given.call(kernels.due_hour, instant)
    return within(instant, hour * 3_600_000, (hour + 1) * 3_600_000 - 1)


@proof("I-LANES", about=kernels.lane_weight, scope="bounded: the 5 lanes", sabotage=("return 25", "return 24"))
def the_turns_of_a_round_are_a_hundred(given: Given) -> bool:
    """The lanes' weights are 50, 25, 15, 7 and 3 of a hundred, and a higher lane has the larger."""
    weights = [given.call(kernels.lane_weight, lane) for lane in range(kernels.LANES)]
    return sum(weights) == 100 and weights == sorted(weights, reverse=True) and weights[-1] == 3 and weights[0] == 50


LANE_STATES = "bounded: the 5 lanes; any turn, any lanes with work"


@proof("I-LANES", about=kernels.lane_turn, scope=LANE_STATES, sabotage=("left > 0", "left >= 0"))
def a_turn_goes_to_a_lane_with_work(given: Given) -> bool:
    """While its turn lasts a lane with work keeps it; else the next lane with work gets a turn of its full weight."""
    lane, left = given.choice("lane", range(5)), given.integer("left", 0, 50)
    work = given.choice("work", range(1, 32))
    chosen, messages = given.call(kernels.lane_turn, lane, left, work)
    has_work = [work // 2**number % 2 == 1 for number in range(5)]
    passed = [number % 5 for number in range(lane + 1, lane + 6)]
    following = next(number for number in passed if has_work[number])
    keeps_it = every(left > 0, has_work[lane])
    return every(
        implies(keeps_it, every(chosen == lane, messages == left)),
        implies(negated(keeps_it), every(chosen == following, messages == kernels.lane_weight(following))),
    )


@proof(
    "I-LANES",
    about=kernels.lane_turn,
    through=(kernels.lane_weight,),
    scope=LANE_STATES,
    sabotage=("(lane + step) % LANES", "(lane + step) % 4"),
)
def no_lane_starves(given: Given) -> bool:
    """A lane with work waits for no more messages of others than their weights add up to, whatever work comes to the
    others or goes meanwhile: 97 for the lowest."""
    waiting = given.choice("waiting", range(5))
    lane = given.choice("lane", [number for number in range(5) if number != waiting])
    left = given.integer("left", 0, 50)
    given.assume(left <= kernels.lane_weight(lane))
    sent = 0
    for turn in range(6):
        work = given.integer(f"work_{turn}", 0, 31)
        given.assume(work // 2**waiting % 2 == 1)
        lane, left = given.call(kernels.lane_turn, lane, left, work)
        if lane == waiting:
            return sent <= 100 - kernels.lane_weight(waiting)
        sent, left = sent + left, 0
    return False


@proof("I-FENCE", about=kernels.is_fenced, sabotage=("assigned <= named", "assigned < named"))
def a_generation_counts_from_its_assignment_on(given: Given) -> bool:
    """What is said about a partition counts if its generation is not before the assignment and not after the current:
    neither a zombie from before nor somebody who claims the future gets through."""
    assigned, named, current = given.integer("assigned"), given.integer("named"), given.integer("current")
    fenced = given.call(kernels.is_fenced, assigned, named, current)
    return same(fenced, some(named < assigned, named > current))


@proof("I-PLAN", about=kernels.evens_out, sabotage=("taker + 2", "taker + 1"))
def every_move_evens_out_the_loads(given: Given) -> bool:
    """A partition moves only if that lowers the sum of the squared loads, and whenever it does: moving ends."""
    giver, taker = given.integer("giver", 0), given.integer("taker", 0)
    moves = given.call(kernels.evens_out, giver, taker)
    lower = (giver - 1) * (giver - 1) + (taker + 1) * (taker + 1) < giver * giver + taker * taker
    return same(moves, lower)


@proof("I-GATHER", about=kernels.gathered_ms, sabotage=("begun_ms + 10 * quiet_ms", "last_ms + 10 * quiet_ms"))
def a_burst_is_gathered_for_a_bounded_time(given: Given) -> bool:
    """A rebalance waits for a quiet period after the last change, but however long changes come, no more than ten
    of them after the first."""
    begun, last, quiet = given.integer("begun"), given.integer("last"), given.integer("quiet", 0)
    given.assume(begun <= last)
    over = given.call(kernels.gathered_ms, begun, last, quiet)
    return every(
        over <= begun + 10 * quiet,
        over <= last + quiet,
        some(over == last + quiet, over == begun + 10 * quiet),
    )
