"""What consumers say about what they hold: ack, nack, reject, extend; and where a group's place is set by hand.

Promises  a settle is judged by its lease alone, in a partitioned group also by who has the partition: one that ended,
          moved, shrank or belongs to somebody else is refused and changes nothing (I-FENCE); each item has its own
          answer; a floor goes back only by `seek` (I-FLOOR).
Never     trusts a range that does not lie within the lease.
"""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from dovetail.core import cursor as cursors
from dovetail.core import intervals, kernels, leases, members, polls, timers
from dovetail.core.codes import Outcome, SettleAction, Status, Whence
from dovetail.core.effects import Done, Find, Hurry, Settlement, Sought
from dovetail.core.ids import Refusal
from dovetail.core.inputs import Commit, Found, Release, Seek, Settle, SettleItem
from dovetail.core.rebalance import PARTITIONED, slot_of
from dovetail.core.records import FailReason, FloorReset
from dovetail.core.state import Lease, Log, Retry, Seeking, Tenure
from dovetail.core.turn import Turn


def settle(turn: Turn, request: Settle) -> None:
    """Apply each item in order; the answer says what became of each."""
    results: list[tuple[int, int]] = []
    reasons: list[str] = []
    for item in request.items:
        try:
            results.append((Status.OK, _settle_item(turn, request.session, item)))
            reasons.append("")
        except Refusal as refusal:
            results.append((refusal.status, Outcome.SETTLED))
            reasons.append(refusal.reason)
    answer = Settlement(tuple(results), tuple(reasons))
    if request.wait:
        turn.effects.append(Hurry())
        return turn.reply_stored(request.session, request.request, answer)
    return turn.reply(request.session, request.request, answer)


def _settle_item(turn: Turn, session: int, item: SettleItem) -> Outcome:
    lease = _held(turn, session, item)
    first, last = item.first, item.last
    reason = FailReason(item.reason) if item.reason in _REASONS else FailReason.UNSPECIFIED
    match item.action:
        case SettleAction.ACK:
            members.note(turn, lease, failed=False)
            leases.shrink(turn, lease, first, last)
            turn.settle(lease.owner, lease.log, first, last)
            return Outcome.SETTLED
        case SettleAction.NACK:
            members.note(turn, lease, failed=True)
            leases.shrink(turn, lease, first, last)
            return leases.fail(turn, lease, first, last, reason, item.delay_ms, item.error)
        case SettleAction.REJECT:
            members.note(turn, lease, failed=True)
            leases.shrink(turn, lease, first, last)
            return leases.reject(turn, lease, first, last, reason or FailReason.REJECTED, item.error)
        case SettleAction.EXTEND:
            return _extend(turn, lease, item.delay_ms)
        case _:
            raise Refusal(
                Status.INVALID, f"settle action {item.action} is not known: 1 ack, 2 nack, 3 reject, 4 extend"
            )


_REASONS = frozenset({FailReason.PROCESSING, FailReason.POISON, FailReason.TIMEOUT})


def _held(turn: Turn, session: int, item: SettleItem) -> Lease:
    lease = turn.leases.get(item.lease)
    if lease is None or turn.subscriptions[lease.subscription].session != session:
        raise Refusal(Status.LEASE_LOST, f"lease {item.lease} is not held here: it ended, or moved to another member")
    check_fence(turn, lease)
    if not (item.first <= item.last and intervals.contains(lease.ranges, item.first, item.last)):
        held = ", ".join(f"{first}-{last}" for first, last in lease.ranges)
        asked = f"{item.first}-{item.last}"
        raise Refusal(Status.LEASE_LOST, f"offsets {asked} are not all held under lease {item.lease}: it has {held}")
    return lease


def release(turn: Turn, request: Release) -> None:
    """What was leased and not looked at waits for anybody again, at the same attempt."""
    lease = turn.leases.get(request.lease)
    if lease is None or turn.subscriptions[lease.subscription].session != request.session:
        return
    if request.first <= request.last and intervals.contains(lease.ranges, request.first, request.last):
        leases.shrink(turn, lease, request.first, request.last)
        again = Retry(turn.mono_ms, request.first, request.last, "", lease.expires_at_ms, lease.keys)
        leases.add_retries(turn, lease.owner, lease.log, [again])


def check_fence(turn: Turn, lease: Lease) -> None:
    """Refuse what is said under a lease older than its member's hold on the partition (I-FENCE)."""
    if lease.owner < 0 or turn.durable.groups[lease.owner].mode != PARTITIONED:
        return
    tenure = _tenure(turn, lease.owner, turn.durable.logs[lease.log])
    current = turn.durable.groups[lease.owner].generation
    held = tenure is not None and tenure.member == lease.member
    if tenure is None or not held or kernels.is_fenced(tenure.since, lease.generation, current):
        raise Refusal(Status.FENCED, f"lease {lease.id} is of generation {lease.generation}: its partition has moved")


def _tenure(turn: Turn, group: int, log: Log) -> Tenure | None:
    tenures = turn.tenures.get(group)
    return tenures.get(slot_of(log)) if tenures else None


def _check_holder(turn: Turn, session: int, group: int, log: Log) -> None:
    """Refuse a member of a partitioned group what only the partition's holder may do."""
    if turn.durable.groups[group].mode != PARTITIONED:
        return
    tenure = _tenure(turn, group, log)
    mine = (turn.rosters.get(group) or Map()).get(session)
    if tenure is None or mine != tenure.member:
        name = turn.topic_of(log.id).name
        raise Refusal(Status.FENCED, f"{name}:{log.partition} is another member's, or nobody's: wait for its ASSIGN")


def _extend(turn: Turn, lease: Lease, by_ms: int) -> Outcome:
    lease_max_ms = turn.topic_of(lease.log).config.lease_max_ms
    deadline_ms = kernels.extended_deadline(lease.granted_ms, lease.deadline_ms, turn.mono_ms, by_ms, lease_max_ms)
    turn.clear_timer(lease.deadline_ms, (timers.LEASE, lease.id, 0))
    turn.set_timer(deadline_ms, (timers.LEASE, lease.id, 0))
    turn.leases[lease.id] = replace(lease, deadline_ms=deadline_ms)
    return Outcome.SETTLED


def commit(turn: Turn, request: Commit) -> None:
    """Everything below an offset is done: the floor moves ahead to it, never back."""
    try:
        group, log = _cursor_of(turn, request.group, request.topic, request.partition, request.lane)
        _check_lane(turn, log, request.lane)
        _check_holder(turn, request.session, group, log)
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    stored = turn.tails[log.id].stored
    if request.offset > stored:
        reason = f"offset {request.offset} is past the end of the log, {stored}"
        return turn.refuse(request.session, request.request, Status.INVALID, reason)
    if request.offset > turn.durable.cursors[group, log.id].floor:
        _advance(turn, group, log.id, request.offset)
    return turn.reply(request.session, request.request, Done())


def _advance(turn: Turn, group: int, log: int, offset: int) -> None:
    leases.take_below(turn, group, log, offset)
    progress = turn.progress[group, log]
    turn.progress[group, log] = replace(progress, next=max(progress.next, offset))
    cursor = turn.durable.cursors[group, log]
    for first, last in cursors.unsettled(cursor, cursor.floor, offset - 1):
        turn.settle(group, log, first, last)
    turn.wake(group, log)


def seek(turn: Turn, request: Seek) -> None:
    """Move a group's place in a log, or in all lanes of a partition; what its members hold there is taken from them."""
    try:
        group, log = _cursor_of(turn, request.group, request.topic, request.partition, request.lane)
        if request.whence == Whence.OFFSET:
            _check_lane(turn, log, request.lane)
        if request.session in (turn.rosters.get(group) or ()):
            _check_holder(turn, request.session, group, log)
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    lanes = turn.topic_of(log.id).lanes if request.lane == 0 else 0
    last = log.id + max(0, lanes - 1)
    for number in range(log.id, last + 1):
        seeking = Seeking(request.session, request.request, group, number, number == last)
        _seek_log(turn, request, seeking, turn.durable.logs[number])
    return None


def _seek_log(turn: Turn, request: Seek, seeking: Seeking, log: Log) -> None:
    stored = turn.tails[log.id].stored
    match request.whence:
        case Whence.EARLIEST:
            offset = log.start
        case Whence.LATEST:
            offset = stored
        case Whence.TIME:
            ticket = turn.next_ticket
            turn.next_ticket += 1
            turn.seeking[ticket] = seeking
            turn.effects.append(Find(ticket, log.id, request.value))
            return None
        case _:
            offset = request.value
    if not log.start <= offset <= stored:
        reason = f"offset {offset} is outside what the log has, {log.start} to {stored}"
        return turn.refuse(request.session, request.request, Status.INVALID, reason)
    return _move(turn, seeking, offset)


def found(turn: Turn, answer: Found) -> None:
    """The offset that a seek by time asked for."""
    seeking = turn.seeking.pop(answer.ticket, None)
    if seeking is None:
        return
    log = turn.durable.logs.get(seeking.log)
    if log is None or (seeking.group, seeking.log) not in turn.durable.cursors:
        reason = "the topic or the group was deleted meanwhile"
        if not seeking.is_last:
            return None
        return turn.refuse(seeking.session, seeking.request, Status.NOT_FOUND, reason)
    return _move(turn, seeking, min(max(answer.offset, log.start), turn.tails[log.id].stored))


def _move(turn: Turn, seeking: Seeking, offset: int) -> None:
    group, log = seeking.group, seeking.log
    leases.end_all(turn, group, log)
    turn.emit(FloorReset(group, log, offset))
    progress = turn.progress[group, log]
    turn.progress[group, log] = replace(progress, next=offset, retries=(), window=(), era=progress.era + 1, dying=0)
    turn.wake(group, log)
    if seeking.is_last:
        turn.reply_stored(seeking.session, seeking.request, Sought(offset))


def _check_lane(turn: Turn, log: Log, lane: int) -> None:
    """Refuse an offset that could be meant in any of a topic's lanes."""
    topic = turn.topic_of(log.id)
    if topic.lanes and not lane:
        reason = f"topic {topic.name!r} has lanes, and each counts its own offsets: name one, 1 to {topic.lanes}"
        raise Refusal(Status.INVALID, reason)


def _cursor_of(turn: Turn, group_name: str, topic: str, partition: int, lane: int) -> tuple[int, Log]:
    group = turn.durable.groups_by_name.get(group_name)
    if group is None:
        raise Refusal(Status.NOT_FOUND, f"group {group_name!r} does not exist")
    log = polls.find_log(turn, topic, partition, lane)
    if (group, log.id) not in turn.durable.cursors:
        raise Refusal(Status.GROUP_ERROR, f"group {group_name!r} does not read topic {topic!r}: subscribe first")
    return group, log
