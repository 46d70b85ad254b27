"""Proofs about leases: granted, dealt, shrunk, retried, and never past what a group or a log allows.

They run the core's own decisions on a `Turn` whose state has one topic, one log and one group with two members; ids
and clocks are fixed, ranges and credit are any integers that the invariants allow.
"""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from dovetail.core import dispatch, kernels, leases, timers, topics
from dovetail.core.codes import Outcome
from dovetail.core.cursor import Cursor
from dovetail.core.effects import Copy, Deliver
from dovetail.core.ids import Bug, Now
from dovetail.core.inputs import TrimLog
from dovetail.core.intervals import Intervals
from dovetail.core.records import ReplayState, TopicConfig
from dovetail.core.state import (
    BatchMeta,
    Durable,
    Group,
    Lease,
    Live,
    Log,
    Progress,
    Replay,
    Retry,
    State,
    Subscription,
    Tail,
    Topic,
)
from dovetail.core.turn import Turn
from dovetail.proofs.engine import Given, every, implies, negated, some, unchanged
from dovetail.proofs.registry import Sabotage, proof
from dovetail.proofs.shapes import is_apart, is_in, is_settled, ranges, same, within

LOG = GROUP = 1
HELD = 900
"""The id of a lease that is under way; those that a turn grants count up from 1."""
MEMBERS = (11, 12)
ALONE = -MEMBERS[0]
"""Who owns the cursor of a session that reads without a group."""
MONO_MS, WALL_MS, DEADLINE_MS = 1_000, 500_000, 5_000
INCARNATION, GENERATION = 3, 4

TURN = "bounded: 2 members, 1 lease under way, up to 2 ranges or batches, any integers in them"


def _turn(
    subscriptions: tuple[Subscription, ...],
    held: Lease | None = None,
    progress: Progress | None = None,
    log: Log | None = None,
    stored: int = 0,
    cursors: Map[tuple[int, int], Cursor] | None = None,
) -> Turn:
    durable = Durable(
        incarnation=INCARNATION,
        topics=Map({1: Topic(1, "a", 1, 0, LOG, TopicConfig(), False, 0)}),
        logs=Map({LOG: log or Log(LOG, 1, 0, 0, 0, 0)}),
        groups=Map({GROUP: Group(GROUP, "g", "shared", "", (), GENERATION, 0)}),
        cursors=cursors or Map({(GROUP, LOG): Cursor(0)}),
    )
    live = Live(
        subscriptions=Map({found.id: found for found in subscriptions}),
        leases=Map({held.id: held}) if held else Map(),
        progress=Map({(GROUP, LOG): progress or Progress(0)}),
        tails=Map({LOG: Tail(stored)}),
        readers=Map({LOG: tuple(sorted({group for group, _ in cursors or {(GROUP, LOG): 0}}))}),
    )
    return Turn(State(durable, live), Now(MONO_MS, WALL_MS))


def _member(given: Given, number: int, held: Intervals = ()) -> Subscription:
    """A subscription whose messages in flight are those of its lease, `held`, and any others."""
    credit, others = given.integer(f"credit_{number}", 0), given.integer(f"others_{number}", 0)
    in_flight = others + _total(held)
    given.assume(in_flight <= credit)
    under_way: Map[int, None] = Map({HELD: None}) if held else Map()
    return Subscription(number, number, GROUP, f"m{number}", "a", credit, in_flight, False, under_way)


def _lease(held: Intervals, number: int = MEMBERS[0]) -> Lease:
    return Lease(HELD, GROUP, LOG, held, number, f"m{number}", 1, 0, DEADLINE_MS, 0)


def _leases(turn: Turn) -> list[Lease]:
    """The leases that are under way when the turn is over."""
    return [lease for _, lease in sorted(turn.leases.finish().items())]


def _total(held: Intervals) -> int:
    total = 0
    for first, last in held:
        total = total + last - first + 1
    return total


@proof(
    "I-LEASE",
    about=leases.shrink,
    scope=TURN,
    sabotage=("intervals.remove(lease.ranges, first, last)", "intervals.remove(lease.ranges, first, last + 1)"),
)
def a_lease_loses_exactly_what_was_decided(given: Given) -> bool:
    """What is decided leaves the lease, the rest stays in it, and a lease with nothing left is gone; deciding what
    is not in the lease is a bug."""
    held = ranges(given, "held", 2, least=1)
    first, last, offset = given.integer("first"), given.integer("last"), given.integer("offset")
    given.assume(first <= last)
    lease = _lease(held)
    turn = _turn((_member(given, MEMBERS[0], held),), lease)
    turn.set_timer(DEADLINE_MS, (timers.LEASE, HELD, 0))
    covered = some(*(every(left <= first, last <= right) for left, right in held))
    try:
        left = given.call(leases.shrink, turn, lease, first, last)
    except Bug:
        return negated(covered)
    now = left.ranges if left is not None else ()
    rest = every(is_in(held, offset), negated(within(offset, first, last)))
    return every(
        covered,
        is_apart(now),
        same(is_in(now, offset), rest),
        unchanged(turn.leases.get(HELD), left),
        len(now) > 0 if left is not None else True,
        (turn.timers.wake_ms is None) == (left is None),
        (HELD in turn.subscriptions[MEMBERS[0]].leases) == (left is not None),
    )


@proof(
    "I-CREDIT",
    about=leases.shrink,
    scope=TURN,
    sabotage=("holder.in_flight - (last - first + 1)", "holder.in_flight - (last - first)"),
)
def credit_returns_with_what_was_decided(given: Given) -> bool:
    """A member's messages in flight are those in its leases, before and after a part of one is decided."""
    held = ranges(given, "held", 2, least=1)
    member, lease = _member(given, MEMBERS[0], held), _lease(held)
    others = member.in_flight - _total(held)
    turn = _turn((member,), lease)
    place = given.choice("place", range(len(held)))
    first, last = given.integer("first"), given.integer("last")
    given.assume(every(held[place][0] <= first, first <= last, last <= held[place][1]))
    left = given.call(leases.shrink, turn, lease, first, last)
    now = turn.subscriptions[MEMBERS[0]].in_flight
    return every(now == others + _total(left.ranges if left is not None else ()), now >= 0, now <= member.credit_max)


def _batches(given: Given, first: int, last: int) -> tuple[BatchMeta, ...]:
    """One or two batches that hold `first..last`."""
    base = given.integer("base")
    given.assume(base <= first)
    if given.choice("batches", (1, 2)) == 1:
        return (BatchMeta(base, last, 1, 0, 0),)
    middle = given.integer("middle")
    given.assume(every(base < middle, middle <= last))
    return BatchMeta(base, middle - 1, 1, 0, 0), BatchMeta(middle, last, 1, 0, 0)


@proof(
    "I-LEASE",
    about=dispatch._deal,
    through=(dispatch._to_batch_end,),
    scope=TURN,
    sabotage=("first = end + 1", "first = end"),
)
def no_offset_is_leased_twice(given: Given) -> bool:
    """Fresh messages are dealt in leases that do not overlap each other nor any lease under way, from where reading
    stood to where it stands then, and none beyond what may go out; each is a first attempt, and none is empty."""
    first, last, offset = given.integer("first", 0), given.integer("last"), given.integer("offset")
    given.assume(first <= last)
    held_last = given.integer("held_last", 0)
    given.assume(held_last < first)
    held = ((held_last, held_last),)
    members = (_member(given, MEMBERS[0], held), _member(given, MEMBERS[1]))
    for member in members:
        given.assume(member.in_flight < member.credit_max)
    most = given.integer("most", 1)
    turn = _turn(members, _lease(held), Progress(first))
    batches = _batches(given, first, last)
    sent = given.call(dispatch._deal, turn, GROUP, LOG, (first, last, 0, True), batches, list(members), most)
    next_one = turn.progress[GROUP, LOG].next
    found = _leases(turn)
    holders = [is_in(lease.ranges, offset) for lease in found]
    pairs = [every(one, other) for place, one in enumerate(holders) for other in holders[:place]]
    fresh = some(False, *(is_in(lease.ranges, offset) for lease in found if lease.id != HELD))
    return every(
        negated(some(False, *pairs)),
        *(every(lease.attempt == 1, lease.ranges[0][0] <= lease.ranges[0][1]) for lease in found),
        same(fresh, within(offset, first, next_one - 1)),
        first < next_one,
        next_one <= last + 1,
        next_one - first <= most,
        sent == next_one - first,
    )


@proof(
    "I-CREDIT",
    about=dispatch._deal,
    through=(leases.deliver,),
    scope=TURN,
    sabotage=("min(fair, member.credit_max - member.in_flight)", "fair"),
)
def nobody_is_dealt_more_than_their_credit(given: Given) -> bool:
    """After dealing, each member has in flight what it had and what its new leases hold, within its credit."""
    first, last = given.integer("first", 0), given.integer("last")
    given.assume(first <= last)
    members = (_member(given, MEMBERS[0]), _member(given, MEMBERS[1]))
    for member in members:
        given.assume(member.in_flight < member.credit_max)
    most = given.integer("most", 1)
    turn = _turn(members, progress=Progress(first))
    given.call(
        dispatch._deal,
        turn,
        GROUP,
        LOG,
        (first, last, 0, True),
        _batches(given, first, last),
        list(members),
        most,
    )
    kept = []
    found = _leases(turn)
    for member in members:
        now = turn.subscriptions[member.id]
        granted = [lease.ranges for lease in found if lease.subscription == member.id]
        total = member.in_flight
        for dealt in granted:
            total = total + _total(dealt)
        kept.append(every(now.in_flight == total, now.in_flight <= now.credit_max, len(now.leases) == len(granted)))
    return every(*kept)


@proof(
    "I-ORDER",
    about=dispatch._to_batch_end,
    scope="bounded: 1 or 2 batches, any integers in them",
    sabotage=("count - count // 8", "0 - count // 8"),
)
def a_delivery_is_cut_back_to_a_boundary_close_by(given: Given) -> bool:
    """At least one message goes out, never more than asked for and never less than seven eighths of it, and up to
    the last batch boundary when that is close enough."""
    first, last, count = given.integer("first", 0), given.integer("last"), given.integer("count", 1)
    given.assume(every(first <= last, count <= last - first + 1))
    batches = _batches(given, first, last)
    cut = given.call(dispatch._to_batch_end, batches, first, count)
    boundary = batches[-1].base
    ends = every(boundary <= first + count, 8 * (first + count - boundary) <= count)
    return every(
        within(cut, 1, count),
        8 * (count - cut) <= count,
        implies(ends, cut == boundary - first),
        some(ends, cut == count),
    )


@proof(
    "I-LEASE",
    about=dispatch._send_retry,
    through=(leases.deliver, leases.without_next_retry),
    scope=TURN,
    sabotage=("first=last + 1", "first=last"),
)
def a_retry_is_sent_or_waits_and_never_both(given: Given) -> bool:
    """Of a range that is tried again each offset is leased or still waits, never both, and waits only when credit or
    the lane's turn is used up; the lease is the attempt after those that failed, and what waits behind it goes on
    waiting."""
    first, last, offset = given.integer("first", 0), given.integer("last"), given.integer("offset")
    given.assume(first <= last)
    member = _member(given, MEMBERS[0])
    given.assume(member.in_flight < member.credit_max)
    retry, behind = Retry(0, first, last, "", 0), Retry(5, last + 1, last + 9, "", 0)
    progress = Progress(0, (retry, behind))
    failures = given.integer("failures", 1)
    cursor = Cursor(first, (), ((first, last, failures),))
    turn = _turn((member,), progress=progress, cursors=Map({(GROUP, LOG): cursor}))
    most = given.integer("most", 1)
    sent = given.call(dispatch._send_retry, turn, GROUP, LOG, progress, retry, member, most)
    found = _leases(turn)
    leased = some(False, *(is_in(lease.ranges, offset) for lease in found))
    *rest, kept = turn.progress[GROUP, LOG].retries
    waits = some(False, *(within(offset, left.first, left.last) for left in rest))
    now = turn.subscriptions[member.id]
    return every(
        same(some(leased, waits), within(offset, first, last)),
        negated(every(leased, waits)),
        len(found) == 1,
        found[0].attempt == failures + 1,
        now.in_flight <= now.credit_max,
        every(sent <= most, sent == now.in_flight - member.in_flight),
        implies(waits, some(now.in_flight == now.credit_max, sent == most)),
        *(left.first <= left.last for left in rest),
        unchanged(kept, behind),
    )


@proof(
    "I-POISON",
    about=leases.fail,
    through=(leases._try_again, leases.add_retries),
    scope="bounded: ranges of up to 20 offsets, up to 4 failures",
    sabotage=Sabotage(leases._try_again, "start + length - 1", "start + length"),
)
def what_failed_waits_in_pieces_that_make_up_the_whole(given: Given) -> bool:
    """A failed range that may be tried again waits in pieces, each offset in exactly one of them, none longer than a
    retry may be, each for its own backoff or the delay that was asked for; a timer wakes each. After the last
    attempt every message is copied to the dead letters instead."""
    first, length = 5, given.choice("length", range(1, 21))
    last = first + length - 1
    attempt, delay_ms = given.choice("attempt", (1, 2, 3, 4, 5)), given.choice("delay_ms", (0, 7_000))
    member = Subscription(MEMBERS[0], MEMBERS[0], GROUP, "m", "a", 100, 0, False)
    turn = _turn((member,), log=Log(LOG, 1, 0, 0, 0, 100))
    lease = Lease(HELD, GROUP, LOG, ((first, last),), MEMBERS[0], "m", attempt, 0, DEADLINE_MS, 0)
    outcome = given.call(leases.fail, turn, lease, first, last, 1, delay_ms, "")
    retries = turn.progress[GROUP, LOG].retries
    copied = [effect.offset for effect in turn.effects if isinstance(effect, Copy)]
    if attempt >= 4:
        return outcome == Outcome.DEAD_LETTERED and not retries and copied == list(range(first, last + 1))
    offsets = [offset for retry in retries for offset in range(retry.first, retry.last + 1)]
    longest = kernels.retry_length(length, attempt, 4)
    waits = [delay_ms or kernels.backoff_ms(attempt, (LOG << 40) + (retry.first << 8) + attempt) for retry in retries]
    fired = timers.due(turn.timers, 100_000)[1]
    return every(
        outcome == Outcome.REQUEUED,
        not copied,
        sorted(offsets) == list(range(first, last + 1)),
        all(retry.last - retry.first < longest for retry in retries),
        len(retries) == -(-length // longest),
        [retry.due_ms - MONO_MS for retry in retries] == waits == sorted(waits),
        bool(fired) == (max(waits) > 0),
    )


@proof(
    "I-LEASE",
    about=leases.deliver,
    scope="bounded: 1 member without leases, of a group or alone, any range; clocks and ids fixed",
    sabotage=("turn.mono_ms + topic.config.lease_ms", "topic.config.lease_ms"),
)
def a_lease_is_granted_for_the_topic_s_time(given: Given) -> bool:
    """A delivery under a lease gets an id that no other has, a deadline `lease_ms` from now by both clocks and a timer
    for it; one without is settled as it is sent. Either way its messages count against the member's credit. Who reads
    alone is of no generation, and what it settles is recorded nowhere."""
    first, last, offset = given.integer("first", 0), given.integer("last"), given.integer("offset", 0)
    given.assume(first <= last)
    attempt, expires_at = given.integer("attempt", 1), given.integer("expires_at", 0)
    leased = given.choice("leased", (True, False))
    owner = given.choice("owner", (GROUP, ALONE))
    member = replace(_member(given, MEMBERS[0]), owner=owner)
    turn = _turn((member,))
    turn.ephemeral[ALONE, LOG] = Cursor(0)
    turn.next_lease = 5
    given.call(leases.deliver, turn, member, LOG, first, last, attempt, expires_at, leased=leased)
    (sent,) = (effect for effect in turn.effects if isinstance(effect, Deliver))
    now, settled = turn.subscriptions[MEMBERS[0]], turn.cursor(owner, LOG)
    counted = now.in_flight - member.in_flight == last - first + 1
    said = every(sent.ranges == ((first, last),), sent.attempt == attempt, sent.log == LOG, sent.lane == -1)
    if not leased:
        at_once = same(is_settled(settled, offset), within(offset, first, last))
        unleased = not _leases(turn) and sent.lease == 0 == sent.deadline_ms and not now.leases
        return every(counted, said, at_once, unleased, bool(turn.records) == (owner == GROUP))
    (lease,) = _leases(turn)
    return every(
        counted,
        said,
        lease.id == sent.lease == (INCARNATION << 32) + 5,
        turn.next_lease == 6,
        lease.deadline_ms == MONO_MS + 30_000,
        sent.deadline_ms == WALL_MS + 30_000,
        timers.due(turn.timers, MONO_MS + 30_000)[1] == [(timers.LEASE, lease.id, 0)],
        lease.ranges == ((first, last),),
        every(lease.attempt == attempt, lease.expires_at_ms == expires_at, lease.granted_ms == MONO_MS),
        lease.generation == (GENERATION if owner == GROUP else 0),
        dict(now.leases) == {lease.id: None},
        not turn.records,
    )


@proof(
    "I-FAIR",
    about=dispatch._deal,
    scope="bounded: 3 members, 1 batch, any integers in them",
    sabotage=("(dealt - 1) % len(eligible)", "dealt % len(eligible)"),
)
def the_ring_goes_on_after_whoever_was_served_last(given: Given) -> bool:
    """After dealing, the turn has gone round the ring as if the messages had been dealt one by one."""
    first, last = given.integer("first", 0), given.integer("last")
    given.assume(first <= last)
    members = tuple(_member(given, number) for number in (11, 12, 13))
    for member in members:
        given.assume(member.in_flight < member.credit_max)
    most = given.integer("most", 1)
    turn = _turn(members, progress=Progress(first))
    batches = (BatchMeta(first, last, 1, 0, 0),)
    given.call(dispatch._deal, turn, GROUP, LOG, (first, last, 0, True), batches, list(members), most)
    dealt = turn.progress[GROUP, LOG].next - first
    served = turn.served_last[GROUP]
    return every(
        *(implies(dealt % 3 == place, served == f"m{number}") for place, number in ((1, 11), (2, 12), (0, 13)))
    )


@proof(
    "I-RETAIN",
    about=topics.trim,
    scope="bounded: 2 groups; floors, log and proposal any integers",
    sabotage=("start = min(start, turn.durable.cursors", "start = max(start, turn.durable.cursors"),
)
def retention_never_passes_a_floor(given: Given) -> bool:
    """However much is proposed, a log's start moves only forward, as far as it may, and neither past a live group's
    floor nor past what is stored; a session's own cursor does not hold it back."""
    start, stored, end = given.integer("start", 0), given.integer("stored"), given.integer("end")
    floors = given.integer("floor"), given.integer("other_floor")
    given.assume(every(start <= stored, stored <= end, *(start <= floor for floor in floors)))
    cursors: Map[tuple[int, int], Cursor] = Map({(1, LOG): Cursor(floors[0]), (2, LOG): Cursor(floors[1])})
    turn = _turn((), log=Log(LOG, 1, 0, 0, start, end), stored=stored, cursors=cursors)
    turn.readers[LOG] = (-9, 1, 2)
    proposed = given.integer("proposed", 0)
    given.call(topics.trim, turn, TrimLog(LOG, proposed))
    now = turn.durable.logs[LOG].start
    bound = every(start <= now, now <= stored, *(now <= floor for floor in floors))
    most = some(now == proposed, now == stored, now == start, *(now == floor for floor in floors))
    return every(bound, most, same(len(turn.records) > 0, now > start))


@proof(
    "I-RETAIN",
    about=topics.trim,
    scope="bounded: 1 group without leases; floors, log and proposals any integers",
    sabotage=("min(request.hard_start, turn.tails[log.id].stored)", "request.hard_start"),
)
def a_hard_limit_takes_what_it_must_and_moves_the_floor(given: Given) -> bool:
    """Where a hard limit asks for more than floors allow, the start goes there, never past what is stored, and no floor
    is left behind it."""
    start, stored, end, floor = (given.integer(name, 0) for name in ("start", "stored", "end", "floor"))
    proposed, hard = given.integer("proposed", 0), given.integer("hard", 0)
    given.assume(every(start <= stored, stored <= end, start <= floor, floor <= stored, hard >= start))
    cursors: Map[tuple[int, int], Cursor] = Map({(GROUP, LOG): Cursor(floor)})
    turn = _turn((), log=Log(LOG, 1, 0, 0, start, end), stored=stored, cursors=cursors)
    given.call(topics.trim, turn, TrimLog(LOG, proposed, hard))
    now, after = turn.durable.logs[LOG].start, turn.durable.cursors[GROUP, LOG].floor
    return every(now <= stored, now <= after, floor <= after, some(now >= hard, now == stored))


@proof(
    "I-RETAIN",
    about=topics.trim,
    scope="bounded: a replay of 2 dead letters and one of another log; offsets and proposal any integers",
    sabotage=("replay.state <= ReplayState.PAUSED", "replay.state < ReplayState.PAUSED"),
)
def what_a_replay_has_yet_to_send_stays(given: Given) -> bool:
    """While a replay runs or is paused, what it has yet to send holds the log's start back, and nothing else of it
    does; one that is over, or of another log, holds nothing back."""
    start, stored, proposed = given.integer("start", 0), given.integer("stored"), given.integer("proposed", 0)
    given.assume(start <= stored)
    sent, next_one, elsewhere = (given.integer(name, 0) for name in ("sent", "next_one", "elsewhere"))
    state = given.choice("state", tuple(ReplayState))
    turn = _turn((), log=Log(LOG, 1, 0, 0, start, stored), stored=stored)
    turn.readers[LOG] = ()
    items = ((sent, "", 0), (next_one, "", 0))
    replays = {1: Replay(1, LOG, items, 1, 0, 0, 0, 0, done=1, state=state)}
    replays[2] = Replay(2, LOG + 1, ((elsewhere, "", 0),), 1, 0, 0, 0, 0)
    turn.durable = replace(turn.durable, replays=Map(replays))
    given.call(topics.trim, turn, TrimLog(LOG, proposed))
    now = turn.durable.logs[LOG].start
    limits = [proposed, stored, *([next_one] if state in (ReplayState.RUNNING, ReplayState.PAUSED) else [])]
    may = every(*(now <= limit for limit in limits))
    return every(start <= now, some(now == start, may), some(*(now >= limit for limit in limits)))
