"""Proofs about fencing: who may settle what, and that a refused settle changes nothing."""

from __future__ import annotations

from immutables import Map

from dovetail.core import leases, settling
from dovetail.core.codes import SettleAction, Status
from dovetail.core.cursor import Cursor
from dovetail.core.effects import Reply, Settlement
from dovetail.core.ids import Now
from dovetail.core.inputs import Settle, SettleItem
from dovetail.core.intervals import Intervals
from dovetail.core.records import TopicConfig
from dovetail.core.state import (
    Durable,
    Group,
    Lease,
    Live,
    Log,
    Progress,
    Retry,
    State,
    Subscription,
    Topic,
)
from dovetail.core.turn import Turn
from dovetail.proofs.engine import Given, every, implies, some, unchanged
from dovetail.proofs.registry import Sabotage, proof
from dovetail.proofs.shapes import is_in, is_settled, ranges, same, within

HELD, HOLDER, SUBSCRIPTION = 900, 7, 11
OWN = "bounded: 1 lease of 1 range; sessions any integers, offsets 0 to 7"


def _turn(held: Intervals, cursor: Cursor, *, end: int, progress: Progress | None = None) -> Turn:
    total = 0
    for first, last in held:
        total = total + last - first + 1
    lease = Lease(HELD, 1, 1, held, SUBSCRIPTION, "m", 1, 0, 5_000, 0)
    durable = Durable(
        topics=Map({1: Topic(1, "a", 1, 0, 1, TopicConfig(), False, 0)}),
        logs=Map({1: Log(1, 1, 0, 0, 0, end)}),
        groups=Map({1: Group(1, "g", "shared", "", (), 1, 0)}),
        cursors=Map({(1, 1): cursor}),
    )
    holder = Subscription(SUBSCRIPTION, HOLDER, 1, "m", "a", total + 1, total, False, Map({HELD: None}))
    live = Live(
        subscriptions=Map({SUBSCRIPTION: holder}),
        teams=Map({1: (SUBSCRIPTION,)}),
        leases=Map({HELD: lease}),
        progress=Map({(1, 1): progress or Progress(end)}),
    )
    return Turn(State(durable, live), Now(0, 0))


@proof(
    "I-FENCE",
    about=settling.settle,
    through=(settling._settle_item, settling._held),
    scope=OWN,
    sabotage=Sabotage(settling._held, ".session != session", ".session > session"),
)
def a_fenced_settle_changes_nothing(given: Given) -> bool:
    """A settle is applied when its session holds the lease and the lease holds the whole range; any other, of
    whatever action, is refused as lost and leaves leases, credit, retries and durable state as they were."""
    held = ((2, given.choice("held_last", (2, 4, 5))),)
    turn = _turn(held, Cursor(2), end=8)
    session = given.integer("session")
    lease = given.choice("lease", (HELD, HELD + 1))
    first, last = given.choice("first", range(8)), given.choice("last", range(8))
    action = given.choice("action", tuple(SettleAction))
    before = turn.durable, turn.leases[HELD], turn.subscriptions[SUBSCRIPTION], turn.progress[1, 1], turn.timers
    given.call(settling.settle, turn, Settle(session, 1, (SettleItem(lease, action, first, last),)))
    after = turn.durable, turn.leases.get(HELD), turn.subscriptions[SUBSCRIPTION], turn.progress[1, 1], turn.timers
    reply = turn.effects[-1]
    assert isinstance(reply, Reply)
    assert isinstance(reply.answer, Settlement)
    status = reply.answer.results[0][0]
    allowed = lease == HELD and 2 <= first <= last <= held[0][1]
    untouched = all(map(unchanged, after, before))
    fine = every(session == HOLDER, allowed)
    return every(
        implies(fine, status == Status.OK),
        some(fine, every(status == Status.LEASE_LOST, untouched, not turn.records)),
    )


@proof(
    "I-FENCE",
    about=settling._settle_item,
    scope="bounded: 1 lease of up to 2 ranges, any integers in them",
    sabotage=("turn.settle(lease.owner, lease.log, first, last)", "turn.settle(lease.owner, lease.log, first, first)"),
)
def an_acknowledged_range_leaves_its_lease_and_is_settled(given: Given) -> bool:
    """An acknowledgment settles exactly its range and takes it out of the lease: no offset is both, none is lost."""
    held = ranges(given, "held", 2, least=1, above=-1)
    end, offset = given.integer("end"), given.integer("offset", 0)
    given.assume(held[-1][1] < end)
    place = given.choice("place", range(len(held)))
    first, last = given.integer("first"), given.integer("last")
    given.assume(every(held[place][0] <= first, first <= last, last <= held[place][1]))
    turn = _turn(held, Cursor(0), end=end)
    given.call(settling._settle_item, turn, HOLDER, SettleItem(HELD, SettleAction.ACK, first, last))
    left = turn.leases.get(HELD)
    settled = is_settled(turn.durable.cursors[1, 1], offset)
    leased = is_in(left.ranges, offset) if left is not None else False
    return every(
        same(settled, within(offset, first, last)),
        same(leased, every(is_in(held, offset), settled == False)),  # noqa: E712  # `not` would fork
    )


@proof(
    "I-FLOOR",
    about=settling._advance,
    through=(leases.take_below, leases._cut_below),
    scope="bounded: 1 lease of up to 2 ranges, 1 retry, any integers in them",
    sabotage=Sabotage(leases._cut_below, "offset - 1", "offset"),
)
def a_commit_takes_back_everything_below_it(given: Given) -> bool:
    """After a commit the floor is at least where it was told, and nothing below it is leased, waits for a retry or
    is read again, while what is above stays leased and waits as before."""
    retry_first, retry_last = given.integer("retry_first"), given.integer("retry_last")
    floor, end, to, offset = (
        given.integer("floor", 0),
        given.integer("end"),
        given.integer("to"),
        given.integer("offset", 0),
    )
    held = ranges(given, "held", 2, least=1, above=floor - 1)
    given.assume(every(retry_first <= retry_last, retry_last < end))
    given.assume(every(floor <= retry_first, *(some(last < retry_first, retry_last < first) for first, last in held)))
    following = given.integer("next")
    given.assume(every(retry_last < following, held[-1][1] < following, following <= end))
    given.assume(every(floor < to, to <= end))
    progress = Progress(following, (Retry(0, retry_first, retry_last, "", 0),))
    turn = _turn(held, Cursor(floor), end=end, progress=progress)
    given.call(settling._advance, turn, 1, 1, to)
    now, after = turn.progress[1, 1], turn.durable.cursors[1, 1]
    left = turn.leases.get(HELD)
    leased = is_in(left.ranges, offset) if left is not None else False
    waits = some(False, *(within(offset, retry.first, retry.last) for retry in now.retries))
    return every(
        after.floor == to,
        some(every(now.next == following, following >= to), every(now.next == to, following < to)),
        same(leased, every(is_in(held, offset), offset >= to)),
        same(waits, every(within(offset, retry_first, retry_last), offset >= to)),
    )
