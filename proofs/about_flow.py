"""Proofs about flow control: levels that do not flap, buckets that do not overflow, waits that are bounded."""

from __future__ import annotations

from dovetail.core import kernels
from dovetail.proofs.engine import Given, every, implies, negated, some
from dovetail.proofs.registry import proof
from dovetail.proofs.shapes import same, within


@proof("I-FLOW", about=kernels.percent, sabotage=("* 100", "* 101"))
def a_percentage_is_rounded_down(given: Given) -> bool:
    """A part is so many whole hundredths of the limit; without a limit it is none."""
    part, whole = given.integer("part", 0), given.integer("whole")
    found = given.call(kernels.percent, part, whole)
    exact = every(found * whole <= part * 100, part * 100 < (found + 1) * whole)
    return every(implies(whole > 0, exact), implies(whole <= 0, found == 0))


@proof("I-FLOW", about=kernels.flow_level, sabotage=("160 if level >= 3", "160 if level >= 2"))
def a_level_begins_at_its_limit_and_ends_at_four_fifths(given: Given) -> bool:
    """A topic is at a level or above when the measure reaches its limit, and stays until it is below four fifths."""
    level, load, warning = given.integer("level", 0, 3), given.integer("load", 0), given.integer("warning", 0)
    found = given.call(kernels.flow_level, level, load, warning)
    reached = False
    kept = [within(found, 0, 3)]
    for number, measure, limit in ((3, load, 200), (2, load, 100), (1, warning, 100)):
        lasts = every(level >= number, 5 * measure >= 4 * limit)
        reached = some(reached, measure >= limit, lasts)
        kept.append(same(found >= number, reached))
    return every(*kept)


@proof("I-FLOW", about=kernels.flow_level, sabotage=("else 200", "else 150"))
def a_level_does_not_flap(given: Given) -> bool:
    """Looked at again with nothing changed the level is the same, and more load never lowers it."""
    level, load, warning = given.integer("level", 0, 3), given.integer("load", 0), given.integer("warning", 0)
    more, warned = given.integer("more", 0), given.integer("warned", 0)
    first = given.call(kernels.flow_level, level, load, warning)
    again = given.call(kernels.flow_level, first, load, warning)
    loaded = given.call(kernels.flow_level, level, load + more, warning + warned)
    return every(again == first, loaded >= first, implies(every(level < 3, load < 200), first < 3))


@proof("I-FLOW", about=kernels.refused_at, sabotage=("(priority - 1) * 15", "priority * 15"))
def the_least_important_are_refused_first(given: Given) -> bool:
    """The lower a publisher's priority, the earlier it is refused; critical ones at twice the limit, none below it."""
    priority, lower = given.integer("priority", 1, 5), given.integer("lower", 1, 5)
    at, lower_at = given.call(kernels.refused_at, priority), given.call(kernels.refused_at, lower)
    return every(
        implies(priority < lower, lower_at < at),
        within(at, 100, 200),
        same(at == 200, priority == 1),
        same(at == 140, priority == 5),
    )


@proof("I-FLOW", about=kernels.refill, sabotage=("rate * 1000", "rate * 1001"))
def a_bucket_holds_one_second(given: Given) -> bool:
    """A bucket gets its rate's thousandths each millisecond and holds what one second brings, no more."""
    tokens, rate, elapsed = given.integer("tokens"), given.integer("rate", 0), given.integer("elapsed", 0)
    found = given.call(kernels.refill, tokens, rate, elapsed)
    full = rate * 1000
    return every(found <= full, some(found == full, found == tokens + rate * elapsed), found <= tokens + rate * elapsed)


@proof("I-FLOW", about=kernels.debt_ms, sabotage=("-tokens // rate + 1", "-tokens // rate"))
def a_debt_is_over_when_it_was_said(given: Given) -> bool:
    """After the wait there is something in the bucket again, and a millisecond earlier there was not."""
    tokens, rate = given.integer("tokens"), given.integer("rate")
    wait = given.call(kernels.debt_ms, tokens, rate)
    owes = every(tokens <= 0, rate > 0)
    enough = every(tokens + rate * wait > 0, tokens + rate * (wait - 1) <= 0, wait >= 1)
    return every(implies(owes, enough), implies(negated(owes), wait == 0))


@proof("I-FLOW", about=kernels.spend, sabotage=("max(left, -rate * wait_max_ms)", "left"))
def a_publisher_is_held_back_for_a_bounded_time(given: Given) -> bool:
    """Who has enough does not wait; who has not waits as long as the debt takes, and no longer than the limit, which
    is also the most that is ever owed; where nothing drains the wait is the limit, and nothing is owed."""
    tokens, count, rate = given.integer("tokens"), given.integer("count", 0), given.integer("rate", 0)
    limit = given.integer("limit", 0)
    left, wait = given.call(kernels.spend, tokens, count, rate, limit)
    debt = count * 1000 - tokens
    in_full = every(wait * rate <= debt, debt < (wait + 1) * rate, wait <= limit, left <= 0)
    return every(
        every(left >= -rate * limit, within(wait, 0, limit)),
        implies(debt <= 0, every(left == -debt, wait == 0)),
        implies(every(debt > 0, rate == 0), every(left == 0, wait == limit)),
        implies(every(debt > 0, rate > 0), some(in_full, every(wait == limit, limit * rate <= debt))),
        implies(every(debt > 0, rate > 0), some(left == -debt, every(left == -rate * limit, debt > rate * limit))),
    )


@proof("I-FLOW", about=kernels.smoothed_rate, sabotage=("3 * before", "4 * before"))
def a_smoothed_rate_lies_between_old_and_new(given: Given) -> bool:
    """The new rate lies between the old one and what was just seen, a quarter of the way; without time it stays."""
    before, count, elapsed = given.integer("before", 0), given.integer("count", 0), given.integer("elapsed", 0)
    found = given.call(kernels.smoothed_rate, before, count, elapsed)
    if elapsed == 0:
        return found == before
    seen = count * 1000 // elapsed
    quarter = every(4 * found <= 3 * before + seen, 3 * before + seen < 4 * found + 4)
    return every(quarter, some(within(found, before, seen), within(found, seen, before)))


@proof("I-FLOW", about=kernels.retry_after_ms, sabotage=("max(100,", "max(10,"))
def a_refusal_says_when_to_try_again(given: Given) -> bool:
    """The wait is a tenth of the lag at the rate it drains, from 0.1 s to 10 s; a second if it does not drain."""
    lag, drain = given.integer("lag", 0), given.integer("drain")
    found = given.call(kernels.retry_after_ms, lag, drain)
    exact = every(found * drain <= lag * 100, lag * 100 < (found + 1) * drain)
    bounded = some(
        exact, every(found == 100, lag * 100 < 100 * drain), every(found == 10_000, lag * 100 >= 10_000 * drain)
    )
    return every(implies(drain > 0, every(within(found, 100, 10_000), bounded)), implies(drain <= 0, found == 1_000))


@proof("I-LAG", about=kernels.caught_up, sabotage=("<= lag_max", "< lag_max - 1"))
def a_reader_too_far_behind_goes_on_nearer_to_the_end(given: Given) -> bool:
    """A reader within its limit goes on where it is; one beyond it goes on half the limit behind, which is ahead of
    where it was and never past what is stored."""
    following, stored, limit = given.integer("next"), given.integer("stored"), given.integer("limit", 0)
    given.assume(following <= stored)
    found = given.call(kernels.caught_up, following, stored, limit)
    within_limit = stored - following <= limit
    return every(
        implies(within_limit, found == following),
        implies(negated(within_limit), every(found > following, 2 * (stored - found) <= limit)),
        implies(negated(within_limit), limit < 2 * (stored - found) + 2),
        found <= stored,
    )


@proof("I-HEALTH", about=kernels.health, sabotage=("outcomes * 9", "outcomes * 8"))
def health_follows_its_thresholds(given: Given) -> bool:
    """Without enough outcomes a member is healthy; else it fails from nine failures in ten, is suspicious from half or
    four fifths of its leases, and worth a warning from one in ten or half of its leases."""
    outcomes, failures = given.integer("outcomes", 0), given.integer("failures", 0)
    took, allowed = given.integer("took", 0), given.integer("allowed", 1)
    found = given.call(kernels.health, outcomes, failures, took, allowed)
    known = outcomes >= kernels.SAMPLES_MIN
    failed = 10 * failures >= 9 * outcomes
    suspicious = some(2 * failures >= outcomes, 5 * took >= 4 * allowed)
    warning = some(10 * failures >= outcomes, 2 * took >= allowed)
    return every(
        within(found, 0, 3),
        same(found == 3, every(known, failed)),
        same(found >= 2, every(known, some(failed, suspicious))),
        same(found >= 1, every(known, some(failed, suspicious, warning))),
    )


@proof(
    "I-HEALTH",
    about=kernels.takes_turn,
    through=(kernels.spread,),
    scope="bounded: up to 3 levels below the best; any salt",
    sabotage=("(1 << worse) - 1", "1 << worse"),
)
def the_best_never_miss_their_turn(given: Given) -> bool:
    """A member as healthy as the best takes every turn; one that is worse takes those whose salt spreads to 0 of 2,
    4 or 8, so that it is tried again and again."""
    worse, salt = given.choice("worse", range(4)), given.integer("salt")
    taken = given.call(kernels.takes_turn, worse, salt)
    if worse == 0:
        return taken
    return same(taken, kernels.spread(salt, 2**worse - 1) == 0)
