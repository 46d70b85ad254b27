"""Appending: a batch gets its place in a log, and is confirmed and shown when its frame is stored.

Promises  offsets of a log are dense and given once (I-DENSE); nothing is confirmed or shown before the journal has
          it as its topic's sync policy asks (I-CONFIRM).
Never     sees a payload, or asks whether a batch is welcome: that was decided before.
"""

from __future__ import annotations

from dovetail.core import flow, polls
from dovetail.core.ids import check
from dovetail.core.records import BatchAppended, SyncPolicy
from dovetail.core.state import TAIL_BATCHES_MAX, BatchMeta, Line, Tail, Topic
from dovetail.core.turn import Turn


def append(turn: Turn, topic: Topic, record: BatchAppended) -> None:
    """Give a batch the next offsets of its log, which belongs to `topic`."""
    log = record.log
    turn.emit(record)
    end = record.base + record.count
    tail = turn.tails[log]
    if not record.deliver_at_ms:
        # What is delayed is looked at when its hour is near: until then its log costs nothing.
        meta = BatchMeta(record.base, end - 1, record.size_bytes, record.expires_at_ms, record.flags)
        turn.tails[log] = Tail(tail.stored, (*tail.batches[1 - TAIL_BATCHES_MAX :], meta))
        flow.mark(turn, log, record.base)
    ends = turn.ends if topic.config.sync == SyncPolicy.ALWAYS else turn.ends_written
    ends[log] = end


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
            for not_before_ms, reply in found.later:
                flow.hold_back(turn, not_before_ms, reply)
    return Line(waiting.finish(), max(line.first, lsn + 1))


def _show(turn: Turn, log: int, end: int) -> None:
    tail = turn.tails.get(log)
    if tail is None:
        return
    turn.tails[log] = Tail(max(tail.stored, end), tail.batches)
    for owner in turn.readers.get(log, ()):
        turn.wake(owner, log)
    polls.answer_waiting(turn, log)
