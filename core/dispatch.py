"""From stored to leased: which range goes to which member next.

Promises  retries that are due come before fresh messages; fresh messages go out in order of offset (I-ORDER), spread
          over the ring as if dealt one by one; nobody gets more than their credit (I-CREDIT); nothing that is not
          stored is sent (I-STORED); what is past its time to live is never sent (I-TTL).
Never     reads a payload: batch boundaries come from the tail or from `Loaded`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.core import choosing, intervals, kernels, keys, leases, routing, stories
from dovetail.core.cursor import Cursor
from dovetail.core.effects import Overtaken, Read
from dovetail.core.inputs import Loaded, Sent
from dovetail.core.records import EntryFlag, FailReason
from dovetail.core.state import BatchMeta, Progress, Retry, Subscription
from dovetail.core.turn import Turn

READ_BYTES = 4 << 20
"""How much backlog one `Read` asks metadata for."""
UNLIMITED = 1 << 60
RETRIES_MAX = 1_000
"""Ranges of one cursor that may wait for another try before fresh messages wait for them."""
ISLANDS_MAX = 10_000
"""Settled ranges above one cursor's floor before fresh messages wait for what lies between: each settle copies them."""

Chunk = tuple[int, int, int, bool]
"""`(first, last, expires_at_ms, leased)`: offsets that may go out alike."""


def run(turn: Turn) -> None:
    """Look at every cursor that this step touched, then serve those that wait for credit."""
    while turn.dirty or turn.woken:
        while turn.dirty:
            owner, log = next(iter(turn.dirty))
            del turn.dirty[owner, log]
            _serve(turn, owner, log)
        while turn.woken:
            owner = next(iter(turn.woken))
            del turn.woken[owner]
            _serve_waiting(turn, owner)


def _serve_waiting(turn: Turn, owner: int) -> None:
    queue = turn.queues.get(owner)
    for _ in range(queue.tail - queue.head if queue else 0):
        team = turn.teams.get(owner, ())
        if not any(turn.has_credit(turn.subscriptions[number]) for number in team):
            return
        log = turn.dequeue(owner)
        if log is None:
            return
        progress = turn.progress.get((owner, log))
        if progress is not None and progress.waiting:
            turn.progress[owner, log] = replace(progress, waiting=False)
            _serve(turn, owner, log)


def _serve(turn: Turn, owner: int, log: int) -> None:
    progress = turn.progress.get((owner, log))
    if progress is None:
        return
    ring = routing.ring_of(turn, owner, log)
    if not ring:
        return
    if turn.topic_of(log).lanes:
        _serve_lanes(turn, owner, log - turn.durable.logs[log].lane, ring)
    elif _serve_log(turn, owner, log, ring, UNLIMITED).starved:
        turn.enqueue(owner, log, turn.progress[owner, log])


def _serve_lanes(turn: Turn, owner: int, first: int, ring: tuple[int, ...]) -> None:
    """Serve the lanes of a partition, whose logs begin at `first`, by their weights (I-LANES)."""
    lane, left = turn.lane_turns.get((owner, first), (0, kernels.lane_weight(0)))
    resting = 0
    while work := _lanes_with_work(turn, owner, first) & ~resting:
        lane, left = kernels.lane_turn(lane, left, work)
        served = _serve_log(turn, owner, first + lane, ring, left)
        left -= served.sent
        if served.starved:
            turn.enqueue(owner, first, turn.progress[owner, first])
            break
        if served.sent == 0:
            # It waits for metadata, or had only to skip: not before the next wake-up.
            resting |= 1 << lane
    turn.lane_turns[owner, first] = (lane, left)


def _lanes_with_work(turn: Turn, owner: int, first: int) -> int:
    work = 0
    for lane in range(kernels.LANES):
        progress = turn.progress[owner, first + lane]
        due = bool(progress.retries) and progress.retries[0].due_ms <= turn.mono_ms
        if due or (progress.next < turn.tails[first + lane].stored and not progress.reading):
            work |= 1 << lane
    return work


class Served(NamedTuple):
    """How many messages went out, and whether credit ran out before the work did."""

    sent: int
    starved: bool


def _serve_log(turn: Turn, owner: int, log: int, ring: tuple[int, ...], most: int) -> Served:
    """Send at most `most` messages of one log: retries that are due, then fresh ones."""
    retries = _serve_retries(turn, owner, log, ring, most)
    if retries.starved or retries.sent == most:
        return retries
    fresh = _serve_fresh(turn, owner, log, ring, most - retries.sent)
    return Served(retries.sent + fresh.sent, fresh.starved)


def _serve_retries(turn: Turn, owner: int, log: int, ring: tuple[int, ...], most: int) -> Served:
    sent = 0
    while (progress := turn.progress[owner, log]).retries and progress.retries[0].due_ms <= turn.mono_ms:
        if sent == most:
            return Served(sent, False)
        retry = progress.retries[0]
        if kernels.is_expired(retry.expires_at_ms, turn.wall_ms):
            turn.progress[owner, log] = leases.without_next_retry(progress)
            leases.outlive(turn, owner, log, retry.first, retry.last)
            continue
        member = _pick(turn, owner, keys.allowed(turn, owner, log, ring, retry.keys), retry.avoid)
        if member is None:
            return Served(sent, True)
        sent += _send_retry(turn, owner, log, progress, retry, member, most - sent)
    return Served(sent, False)


def _send_retry(
    turn: Turn, owner: int, log: int, progress: Progress, retry: Retry, member: Subscription, most: int
) -> int:
    failures, _ = intervals.lookup(turn.cursor(owner, log).attempts, retry.first)
    last = min(retry.last, retry.first + min(most, member.credit_max - member.in_flight) - 1)
    progress = leases.without_next_retry(progress)
    if last < retry.last:
        progress = replace(progress, retries=(replace(retry, first=last + 1), *progress.retries))
    turn.progress[owner, log] = progress
    turn.served_last[owner] = member.member
    leased = not member.auto_ack
    expires_at_ms, attempt = retry.expires_at_ms, failures + 1
    leases.deliver(turn, member, log, retry.first, last, attempt, expires_at_ms, leased=leased, keys=retry.keys)
    return last - retry.first + 1


def _pick(turn: Turn, owner: int, ring: tuple[int, ...], avoid: str) -> Subscription | None:
    """The next member in the ring with credit, somebody else than `avoid` where that is possible."""
    eligible = choosing.eligible(turn, owner, ring)
    return next((member for member in eligible if member.member != avoid), eligible[0] if eligible else None)


def _serve_fresh(turn: Turn, owner: int, log: int, ring: tuple[int, ...], most: int) -> Served:
    sent = 0
    while (progress := turn.progress[owner, log]).next < turn.tails[log].stored:
        if sent == most or len(progress.retries) >= RETRIES_MAX or progress.dying >= leases.DYING_MAX:
            return Served(sent, False)
        if len(turn.cursor(owner, log).islands) >= ISLANDS_MAX:
            return Served(sent, True)
        by_key = keys.are_ordered(turn, owner)
        batches = _known_batches(turn, log, progress, by_key=by_key)
        if batches is None:
            _ask_for_batches(turn, owner, log, progress)
            return Served(sent, False)
        chunk = _next_chunk(turn, owner, log, progress, batches)
        if chunk is None:
            continue
        eligible = choosing.eligible(turn, owner, ring)
        if not eligible:
            _keep_up(turn, owner, log, ring)
            return Served(sent, True)
        deal = _deal_by_key if by_key else _deal
        dealt = deal(turn, owner, log, chunk, batches, eligible, most - sent)
        if dealt == 0:
            return Served(sent, True)
        sent += dealt
    return Served(sent, False)


def _keep_up(turn: Turn, owner: int, log_id: int, ring: tuple[int, ...]) -> None:
    """A subscriber without a group that is too far behind goes on nearer to the end, and is told (I-LAG)."""
    progress, log = turn.progress[owner, log_id], turn.durable.logs[log_id]
    target = kernels.caught_up(progress.next, turn.tails[log_id].stored, turn.settings.ephemeral_lag_max)
    if owner > 0 or target == progress.next:
        return
    first, reader, topic = progress.next, turn.subscriptions[ring[0]], turn.durable.topics[log.topic]
    _skip(turn, owner, log_id, progress, first, target - 1)
    lane = log.lane if topic.lanes else -1
    turn.effects.append(Overtaken(reader.session, reader.id, topic.name, log.partition, lane, first, target - 1))


def _known_batches(turn: Turn, log: int, progress: Progress, *, by_key: bool) -> tuple[BatchMeta, ...] | None:
    """Metadata that covers the next fresh offset: the log's tail, which knows no keys, or what this cursor loaded."""
    for batches in (progress.window,) if by_key else (turn.tails[log].batches, progress.window):
        if batches and batches[0].base <= progress.next <= batches[-1].last:
            return batches
    return None


def _ask_for_batches(turn: Turn, owner: int, log: int, progress: Progress) -> None:
    if not progress.reading:
        turn.progress[owner, log] = replace(progress, reading=True, asked=progress.next, window=())
        by_key = keys.are_ordered(turn, owner)
        turn.effects.append(Read(owner, log, progress.next, keys.READ_BYTES if by_key else READ_BYTES, by_key))


def _next_chunk(turn: Turn, owner: int, log: int, progress: Progress, batches: tuple[BatchMeta, ...]) -> Chunk | None:
    """The fresh offsets that may go out alike; None when there was something to skip instead."""
    cursor = turn.cursor(owner, log)
    if cursor.floor > progress.next:
        # After a restart the floor may leap over what was settled before it and not yet passed.
        turn.progress[owner, log] = replace(progress, next=cursor.floor)
        return None
    at = bisect_right(batches, progress.next, key=_base) - 1
    batch = batches[at]
    first, last = progress.next, min(batch.last, turn.tails[log].stored - 1)
    if first > batch.last:
        _skip(turn, owner, log, progress, first, batches[at + 1].base - 1)
        return None
    size = batch.size_bytes
    for later in batches[at + 1 :]:
        alike = later.expires_at_ms == batch.expires_at_ms and later.flags == batch.flags and later.base == last + 1
        size += later.size_bytes
        if not alike or size > turn.settings.deliver_bytes_max or later.last >= turn.tails[log].stored:
            break
        last = later.last
    if kernels.is_expired(batch.expires_at_ms, turn.wall_ms):
        _outlived(turn, owner, log, progress, first, last)
        return None
    if cursor.islands or cursor.attempts:
        return _recovered_chunk(turn, owner, log, progress, cursor, first, last, batches[at:])
    return first, last, batch.expires_at_ms, not batch.flags & EntryFlag.NO_ACK


def _outlived(turn: Turn, owner: int, log: int, progress: Progress, first: int, last: int) -> None:
    """Fresh offsets past their time to live; those that go to the dead letters go so many at a time."""
    if leases.buries_expired(turn, owner, log):
        last = min(last, first + leases.DYING_MAX - progress.dying - 1)
    turn.progress[owner, log] = replace(progress, next=last + 1)
    for left, right in intervals.gaps(turn.cursor(owner, log).islands, first, last):
        leases.outlive(turn, owner, log, left, right)


def _skip(turn: Turn, owner: int, log: int, progress: Progress, first: int, last: int) -> None:
    """Offsets that nobody will get: jumped over, or quarantined on disk."""
    turn.progress[owner, log] = replace(progress, next=last + 1)
    for left, right in intervals.gaps(turn.cursor(owner, log).islands, first, last):
        turn.expire(owner, log, left, right)


def _recovered_chunk(
    turn: Turn,
    owner: int,
    log: int,
    progress: Progress,
    cursor: Cursor,
    first: int,
    last: int,
    batches: tuple[BatchMeta, ...],
) -> Chunk | None:
    """Fresh offsets after a restart: some are settled already, some have failed attempts behind them."""
    batch = batches[0]
    open_ranges = intervals.gaps(cursor.islands, first, last)
    if not open_ranges:
        turn.progress[owner, log] = replace(progress, next=last + 1)
        return None
    start, last = open_ranges[0]
    if start != first:
        turn.progress[owner, log] = replace(progress, next=start)
        return None
    failures, limit = intervals.lookup(cursor.attempts, first)
    if limit >= 0:
        last = min(last, limit)
    if failures:
        config = turn.topic_of(log).config
        _, last, story = stories.pieces(turn.durable.stories.get((owner, log), ()), first, last)[0]
        turn.progress[owner, log] = replace(progress, next=last + 1)
        attempts_max = config.max_retries + 1
        rule = stories.poison_rule(story, config, turn.wall_ms)
        if rule or failures >= attempts_max:
            reason = FailReason.POISON if rule else FailReason.UNSPECIFIED
            error = rule or "its attempts were used up before a restart"
            leases.die(turn, owner, log, first, last, failures, reason, error)
            return None
        length = kernels.retry_length(last - first + 1, failures, attempts_max)
        retries = [
            Retry(turn.mono_ms, left, right, "", batch.expires_at_ms, keys.between(batches, left, right))
            for left in range(first, last + 1, length)
            for right in [min(last, left + length - 1)]
        ]
        leases.add_retries(turn, owner, log, retries)
        return None
    return first, last, batch.expires_at_ms, not batch.flags & EntryFlag.NO_ACK


def _deal(
    turn: Turn,
    owner: int,
    log: int,
    chunk: Chunk,
    batches: tuple[BatchMeta, ...],
    eligible: list[Subscription],
    most: int,
) -> int:
    """Give each eligible member its share of at most `most` messages of a chunk, in order of offset."""
    first, last, expires_at_ms, need_ack = chunk
    available = min(most, last - first + 1)
    dealt = 0
    for member, fair in zip(eligible, choosing.shares(turn, owner, available, eligible), strict=True):
        count = min(fair, member.credit_max - member.in_flight)
        if count == 0:
            continue
        count = _to_batch_end(batches, first, count)
        end = first + count - 1
        leases.deliver(turn, member, log, first, end, 1, expires_at_ms, leased=need_ack and not member.auto_ack)
        first = end + 1
        dealt += count
    turn.served_last[owner] = eligible[(dealt - 1) % len(eligible)].member
    turn.progress[owner, log] = replace(turn.progress[owner, log], next=first)
    return dealt


def _deal_by_key(
    turn: Turn,
    owner: int,
    log: int,
    chunk: Chunk,
    batches: tuple[BatchMeta, ...],
    eligible: list[Subscription],
    most: int,
) -> int:
    """Send the next run of messages whose keys may go to one member (I-KEY); 0 when that member has no credit."""
    first, last, expires_at_ms, need_ack = chunk
    pins = keys.pins(turn, owner, log)
    holder = pins.get(keys.at(batches, first))
    member = next((each for each in eligible if holder in (None, each.member)), None)
    if member is None:
        return 0
    available = min(most, last - first + 1)
    fair = min(kernels.share(available, len(eligible), 0), member.credit_max - member.in_flight)
    end = first
    while end - first + 1 < fair and pins.get(keys.at(batches, end + 1), member.member) == member.member:
        end += 1
    leased, held = need_ack and not member.auto_ack, keys.between(batches, first, end)
    leases.deliver(turn, member, log, first, end, 1, expires_at_ms, leased=leased, keys=held)
    turn.served_last[owner] = member.member
    turn.progress[owner, log] = replace(turn.progress[owner, log], next=end + 1)
    return end - first + 1


def _to_batch_end(batches: tuple[BatchMeta, ...], first: int, count: int) -> int:
    """`count` cut back to a batch boundary that is close to it: whole batches travel once."""
    boundary = batches[bisect_right(batches, first + count, key=_base) - 1].base
    return boundary - first if boundary - first >= count - count // 8 else count


def _base(batch: BatchMeta) -> int:
    return batch.base


def loaded(turn: Turn, answer: Loaded) -> None:
    """Metadata that a cursor asked for has come; where nothing is stored any more, the cursor moves on."""
    progress = turn.progress.get((answer.owner, answer.log))
    if progress is None or not progress.reading:
        return
    turn.wake(answer.owner, answer.log)
    if progress.asked > progress.next:
        # A seek went back meanwhile: the answer says nothing about what lies before the place it was asked for.
        turn.progress[answer.owner, answer.log] = replace(progress, reading=False)
        return
    progress = replace(progress, reading=False, window=answer.batches)
    turn.progress[answer.owner, answer.log] = progress
    tail = turn.tails[answer.log]
    beyond = answer.batches[0].base if answer.batches else tail.batches[0].base if tail.batches else tail.stored
    if not any(batch.last >= progress.next for batch in answer.batches) or beyond > progress.next:
        _skip(turn, answer.owner, answer.log, progress, progress.next, max(progress.next, beyond) - 1)


def sent(turn: Turn, done: Sent) -> None:
    """Messages that need no acknowledgment are on their way: the next may follow."""
    found = turn.subscriptions.get(done.subscription)
    if found is not None:
        turn.subscriptions[found.id] = replace(found, in_flight=max(0, found.in_flight - done.count))
        turn.woken[found.owner] = None
