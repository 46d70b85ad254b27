"""Publishing: a batch gets its place in a log, and is confirmed and shown when its frame is stored.

Promises  offsets of a log are dense and given once (I-DENSE); nothing is confirmed or shown before the journal has
          it as its topic's sync policy asks (I-CONFIRM); a refused batch changes nothing.
Never     sees a payload.
"""

from __future__ import annotations

from dovetail.core import polls, topics
from dovetail.core.codes import Acks, Status
from dovetail.core.effects import Appended, Reply
from dovetail.core.ids import Refusal, check
from dovetail.core.inputs import Publish
from dovetail.core.kernels import expiry
from dovetail.core.records import NO_TIME, BatchAppended, SyncPolicy
from dovetail.core.state import TAIL_BATCHES_MAX, BatchMeta, Line, Tail, Topic
from dovetail.core.turn import Turn


def publish(turn: Turn, request: Publish) -> None:
    """Append a batch, or refuse it with the reason."""
    try:
        topic = topics.find_or_create(turn, request.topic)
        partition = _choose_partition(turn, topic, request.partition)
        if request.delay_ms:
            raise Refusal(Status.INVALID, "delayed messages are not supported: publish without a delay")
    except Refusal as refusal:
        for ask in request.asks:
            turn.refuse(ask.session, ask.request, refusal.status, refusal.reason)
        return
    base = append(turn, topic, partition, request)
    if request.acks == Acks.NONE:
        return
    replies = turn.replies if topic.config.sync == SyncPolicy.ALWAYS else turn.replies_written
    for ask in request.asks:
        answer = Appended(topic.name, partition, -1, base + ask.index, ask.count, turn.wall_ms)
        replies.append(Reply(ask.session, ask.request, answer))


def _choose_partition(turn: Turn, topic: Topic, wanted: int) -> int:
    if wanted < 0:
        turn.next_spread += 1
        return turn.next_spread % topic.partitions
    if wanted >= topic.partitions:
        raise Refusal(Status.INVALID, f"topic {topic.name!r} has partitions 0 to {topic.partitions - 1}, not {wanted}")
    return wanted


def append(turn: Turn, topic: Topic, partition: int, batch: Publish) -> int:
    """Give a batch the next offsets of a log; says the first of them."""
    log = turn.durable.logs[topic.first_log + partition * max(1, topic.lanes)]
    base = log.end
    ttl_ms = batch.ttl_ms or topic.config.ttl_ms
    expires_at_ms = expiry(turn.wall_ms, ttl_ms)
    turn.emit(
        BatchAppended(
            log.id,
            base,
            batch.count,
            turn.wall_ms,
            NO_TIME,
            expires_at_ms,
            batch.flags,
            batch.size_bytes,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.handle,
        )
    )
    end = base + batch.count
    tail = turn.tails[log.id]
    meta = BatchMeta(base, end - 1, batch.size_bytes, expires_at_ms, batch.flags)
    turn.tails[log.id] = Tail(tail.stored, (*tail.batches[1 - TAIL_BATCHES_MAX :], meta))
    ends = turn.ends if topic.config.sync == SyncPolicy.ALWAYS else turn.ends_written
    ends[log.id] = end
    return base


def stored(turn: Turn, lsn: int) -> None:
    """Frames up to `lsn` are synced: confirm and show what waited for them."""
    check(turn.stored_lsn <= lsn < turn.lsn, "I-CONFIRM", turn.stored_lsn, lsn, turn.lsn)
    turn.stored_lsn = lsn
    turn.unsynced = _release(turn, turn.unsynced, lsn)
    written(turn, lsn)


def written(turn: Turn, lsn: int) -> None:
    """Frames up to `lsn` are written: enough for topics that ask for no more."""
    check(lsn < turn.lsn, "I-CONFIRM", lsn, turn.lsn)
    turn.unwritten = _release(turn, turn.unwritten, lsn)


def _release(turn: Turn, line: Line, lsn: int) -> Line:
    if not line.waiting:
        return Line(line.waiting, max(line.first, lsn + 1))
    waiting = line.waiting.mutate()
    for number in range(line.first, lsn + 1):
        found = waiting.pop(number, None)
        if found is not None:
            for log, end in found.ends:
                _show(turn, log, end)
            turn.effects.extend(found.replies)
    return Line(waiting.finish(), max(line.first, lsn + 1))


def _show(turn: Turn, log: int, end: int) -> None:
    tail = turn.tails.get(log)
    if tail is None:
        return
    turn.tails[log] = Tail(max(tail.stored, end), tail.batches)
    for owner in turn.readers.get(log, ()):
        turn.wake(owner, log)
    polls.answer_waiting(turn, log)
