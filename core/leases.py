"""Leases: granted, shrunk, ended, given back; and what becomes of a range whose attempt failed.

Promises  one live lease per offset and owner (I-LEASE); credit is taken when a lease is granted and returned when it
          shrinks (I-CREDIT); a leaver's lease, and one that ran out unsent, is given back uncounted (I-ATTEMPTS); the
          attempt that fails last sends a message to the dead letters, and only that message.
Never     looks at who asked: whether a settle is allowed was decided before.
"""

from __future__ import annotations

from msgspec import json
from msgspec.structs import replace

from dovetail.core import intervals, kernels, members, names, stories, timers
from dovetail.core.codes import Outcome
from dovetail.core.effects import Copy, Deliver, LeaseEnded
from dovetail.core.ids import check
from dovetail.core.records import FailReason
from dovetail.core.state import Dying, Lease, Progress, Retry, Subscription
from dovetail.core.stories import Attempt, Stories
from dovetail.core.turn import Turn

DYING_MAX = 1_000
"""Messages of a cursor that may be on their way to the dead letters when further expired ones are looked at."""


def deliver(
    turn: Turn,
    to: Subscription,
    log_id: int,
    first: int,
    last: int,
    attempt: int,
    expires_at_ms: int,
    *,
    leased: bool,
    keys: tuple[int, ...] = (),
) -> None:
    """Send `first..last` to a subscription, under a new lease or settled as it is sent."""
    count = last - first + 1
    log = turn.durable.logs[log_id]
    topic = turn.durable.topics[log.topic]
    lease_id = deadline_wall_ms = 0
    if leased:
        lease_id = (turn.durable.incarnation << 32) + turn.next_lease
        turn.next_lease += 1
        deadline_ms = turn.mono_ms + topic.config.lease_ms
        deadline_wall_ms = turn.wall_ms + topic.config.lease_ms
        turn.leases[lease_id] = Lease(
            lease_id,
            to.owner,
            log_id,
            ((first, last),),
            to.id,
            to.member,
            attempt,
            turn.mono_ms,
            deadline_ms,
            expires_at_ms,
            turn.durable.groups[to.owner].generation if to.owner > 0 else 0,
            keys,
        )
        turn.set_timer(deadline_ms, (timers.LEASE, lease_id, 0))
        held = to.leases.set(lease_id, None)
        turn.subscriptions[to.id] = replace(to, in_flight=to.in_flight + count, leases=held)
    else:
        turn.settle(to.owner, log_id, first, last)
        turn.subscriptions[to.id] = replace(to, in_flight=to.in_flight + count)
    turn.effects.append(
        Deliver(
            to.session,
            to.id,
            topic.name,
            log.partition,
            log.lane if topic.lanes else -1,
            log_id,
            lease_id,
            attempt,
            deadline_wall_ms,
            ((first, last),),
        )
    )


def shrink(turn: Turn, lease: Lease, first: int, last: int) -> Lease | None:
    """The lease without `first..last`, which was decided; None when nothing of it is left."""
    check(intervals.contains(lease.ranges, first, last), "I-LEASE", lease, first, last)
    rest = intervals.remove(lease.ranges, first, last)
    holder = turn.subscriptions[lease.subscription]
    in_flight = holder.in_flight - (last - first + 1)
    check(in_flight >= 0, "I-CREDIT", holder, first, last)
    turn.woken[lease.owner] = None
    if rest:
        smaller = replace(lease, ranges=rest)
        turn.leases[lease.id] = smaller
        turn.subscriptions[holder.id] = replace(holder, in_flight=in_flight)
        return smaller
    del turn.leases[lease.id]
    turn.clear_timer(lease.deadline_ms, (timers.LEASE, lease.id, 0))
    turn.subscriptions[holder.id] = replace(holder, in_flight=in_flight, leases=holder.leases.delete(lease.id))
    return None


def _end(turn: Turn, lease: Lease) -> None:
    session = turn.subscriptions[lease.subscription].session
    rest: Lease | None = lease
    for first, last in lease.ranges:
        check(rest is not None, "I-LEASE", lease)
        rest = shrink(turn, rest, first, last) if rest is not None else None
    turn.effects.append(LeaseEnded(session, lease.id))


def end_all(turn: Turn, owner: int, log: int) -> None:
    """End every lease that `owner`'s members hold in a log that goes away."""
    for number in turn.teams.get(owner, ()):
        for lease_id in sorted(turn.subscriptions[number].leases):
            lease = turn.leases[lease_id]
            if lease.log == log:
                _end(turn, lease)


def take_below(turn: Turn, owner: int, log: int, offset: int) -> None:
    """Everything of a log below `offset` is done: shorten what members hold of it and what waits for a retry."""
    for number in turn.teams.get(owner, ()):
        for lease_id in sorted(turn.subscriptions[number].leases):
            lease = turn.leases[lease_id]
            if lease.log == log:
                _cut_below(turn, lease, offset)
    progress = turn.progress[owner, log]
    kept = [replace(retry, first=max(retry.first, offset)) for retry in progress.retries if retry.last >= offset]
    turn.progress[owner, log] = replace(progress, retries=tuple(kept))


def expire_below(turn: Turn, owner: int, log: int, offset: int) -> None:
    """Everything of a log below `offset` is gone: whoever has not settled it will not get it any more (I-RETAIN)."""
    floor = turn.cursor(owner, log).floor
    if floor >= offset:
        return
    take_below(turn, owner, log, offset)
    progress = turn.progress[owner, log]
    turn.progress[owner, log] = replace(progress, next=max(progress.next, offset))
    for first, last in intervals.gaps(turn.cursor(owner, log).islands, floor, offset - 1):
        turn.expire(owner, log, first, last)
    turn.wake(owner, log)


def _cut_below(turn: Turn, lease: Lease, offset: int) -> None:
    if lease.ranges[-1][1] < offset:
        return _end(turn, lease)
    rest: Lease | None = lease
    for first, last in lease.ranges:
        if rest is not None and first < offset:
            rest = shrink(turn, rest, first, min(last, offset - 1))
    return None


def give_back(turn: Turn, lease_id: int, avoid: str = "") -> None:
    """End a lease without blame: what is left of it waits for anybody (better not `avoid`), at the same attempt."""
    lease = turn.leases[lease_id]
    _end(turn, lease)
    retries = [Retry(turn.mono_ms, first, last, avoid, lease.expires_at_ms, lease.keys) for first, last in lease.ranges]
    add_retries(turn, lease.owner, lease.log, retries)


def not_sent(turn: Turn, lease_id: int) -> None:
    """A lease whose messages were not sent yet: past its deadline it is given back, for nobody failed at them."""
    lease = turn.leases.get(lease_id)
    if lease is not None and lease.deadline_ms <= turn.mono_ms:
        give_back(turn, lease_id, lease.member)


def time_out(turn: Turn, lease_id: int) -> None:
    """A lease's deadline passed: a failed attempt for everything that is left of it."""
    lease = turn.leases.get(lease_id)
    if lease is None or lease.deadline_ms > turn.mono_ms:
        return
    members.note(turn, lease, failed=True)
    _end(turn, lease)
    for first, last in lease.ranges:
        fail(turn, lease, first, last, FailReason.TIMEOUT, 0, "no acknowledgment before the deadline")


def fail(turn: Turn, lease: Lease, first: int, last: int, reason: int, delay_ms: int, error: str) -> Outcome:
    """An attempt of `first..last` ended without success; says what becomes of it."""
    attempts_max = turn.topic_of(lease.log).config.max_retries + 1
    turn.fail(lease.owner, lease.log, first, last, lease.attempt, _told(turn, lease, reason, error))
    outcome = Outcome.REQUEUED
    told = turn.durable.stories.get((lease.owner, lease.log), ())
    for left, right, story in stories.pieces(told, first, last):
        rule = stories.poison_rule(story, turn.topic_of(lease.log).config, turn.wall_ms)
        if rule:
            outcome = die(turn, lease.owner, lease.log, left, right, lease.attempt, FailReason.POISON, rule)
        elif lease.attempt >= attempts_max:
            outcome = die(turn, lease.owner, lease.log, left, right, lease.attempt, reason, error)
        else:
            _try_again(turn, lease, left, right, delay_ms, attempts_max)
    return outcome


def _told(turn: Turn, lease: Lease, reason: int, error: str) -> Attempt:
    delivered_ms = turn.wall_ms - (turn.mono_ms - lease.granted_ms)
    return Attempt(lease.member, delivered_ms, turn.wall_ms, reason, error[: stories.ERROR_CHARS_MAX])


def _try_again(turn: Turn, lease: Lease, first: int, last: int, delay_ms: int, attempts_max: int) -> None:
    length = kernels.retry_length(last - first + 1, lease.attempt, attempts_max)
    retries = []
    for start in range(first, last + 1, length):
        salt = (lease.log << 40) + (start << 8) + lease.attempt
        wait_ms = delay_ms or kernels.backoff_ms(lease.attempt, salt)
        end = min(last, start + length - 1)
        retries.append(Retry(turn.mono_ms + wait_ms, start, end, lease.member, lease.expires_at_ms, lease.keys))
    add_retries(turn, lease.owner, lease.log, retries)


def reject(turn: Turn, lease: Lease, first: int, last: int, reason: int, error: str) -> Outcome:
    """No further try is wanted: to the dead letters at once, remembered durably until the copy is made."""
    attempts_max = turn.topic_of(lease.log).config.max_retries + 1
    turn.fail(lease.owner, lease.log, first, last, max(lease.attempt, attempts_max), _told(turn, lease, reason, error))
    return die(turn, lease.owner, lease.log, first, last, lease.attempt, reason, error)


def add_retries(turn: Turn, owner: int, log: int, retries: list[Retry]) -> None:
    """Let ranges wait for another try; the dispatcher looks at them when they are due."""
    progress = turn.progress.get((owner, log))
    if progress is None or not retries:
        return
    merged = tuple(sorted((*progress.retries, *retries), key=retry_order))
    turn.progress[owner, log] = replace(progress, retries=merged)
    for due_ms in sorted({retry.due_ms for retry in retries}):
        if due_ms > turn.mono_ms:
            turn.set_timer(due_ms, (timers.RETRY, owner, log))
    turn.wake(owner, log)


def retry_order(retry: Retry) -> tuple[int, int]:
    """Earlier due first, then lower offset."""
    return retry.due_ms, retry.first


def die(turn: Turn, owner: int, log_id: int, first: int, last: int, attempt: int, reason: int, error: str) -> Outcome:
    """Ask for a copy of each message; with the copy it moves to the dead letters (I-DEAD)."""
    topic = turn.topic_of(log_id)
    log = turn.durable.logs[log_id]
    if names.dead_letters_of(topic.name) is None or not topic.config.dead_letters:
        turn.expire(owner, log_id, first, last)
        return Outcome.DROPPED
    group = turn.durable.groups[owner].name if owner > 0 else ""
    told = turn.durable.stories.get((owner, log_id), ())
    removed_at_ms = turn.wall_ms + turn.settings.dead_letter_retention_ms
    lane = log.lane if topic.lanes else -1
    for offset in range(first, last + 1):
        headers = (
            ("dovetail-topic", topic.name),
            ("dovetail-partition", str(log.partition)),
            ("dovetail-offset", str(offset)),
            ("dovetail-id", names.message_id(topic.name, log.partition, lane, offset)),
            ("dovetail-group", group),
            ("dovetail-attempts", str(attempt)),
            ("dovetail-reason", FailReason(reason).name.lower()),
            ("dovetail-error", error[:1000]),
            ("dovetail-died-ms", str(turn.wall_ms)),
            ("dovetail-remove-at-ms", str(removed_at_ms)),
            ("dovetail-history", _history(told, offset)),
        )
        ticket = turn.next_ticket
        turn.next_ticket += 1
        turn.dying[ticket] = Dying(owner, log_id, offset, reason, attempt, turn.progress[owner, log_id].era)
        turn.effects.append(Copy(ticket, log_id, offset, headers))
    progress = turn.progress[owner, log_id]
    turn.progress[owner, log_id] = replace(progress, dying=progress.dying + last - first + 1)
    return Outcome.DEAD_LETTERED


def buries_expired(turn: Turn, owner: int, log: int) -> bool:
    """Whether what expires for a reader is wanted among the dead letters: a group's is, where its topic says so."""
    return owner > 0 and turn.topic_of(log).config.expired_to_dead_letters


def outlive(turn: Turn, owner: int, log: int, first: int, last: int) -> None:
    """The time to live of `first..last` is over: they are dropped, or dead where the topic wants to see them."""
    if not buries_expired(turn, owner, log):
        return turn.expire(owner, log, first, last)
    attempts = turn.cursor(owner, log).attempts
    at = first
    while at <= last:
        failures, limit = intervals.lookup(attempts, at)
        end = last if limit < 0 else min(last, limit)
        die(turn, owner, log, at, end, failures, FailReason.EXPIRED, "its time to live was over")
        at = end + 1
    return None


def _history(told: Stories, offset: int) -> str:
    """What was tried with a message, as JSON."""
    ((_, _, story),) = stories.pieces(told, offset, offset)
    return json.encode(story).decode()


def without_next_retry(progress: Progress) -> Progress:
    """The progress after the first of what waits for another try was taken up."""
    return replace(progress, retries=progress.retries[1:])
