"""Publishing: whether a batch is welcome, and where it goes.

Promises  a refused batch changes nothing and is told why; one that was sent before is confirmed where it is (I-ONCE).
Never     sees a payload.
"""

from __future__ import annotations

from dovetail.core import delay, flow, producers, topics
from dovetail.core.append import append
from dovetail.core.codes import Acks, Priority, Status
from dovetail.core.effects import Appended, Reply
from dovetail.core.ids import Refusal
from dovetail.core.inputs import Publish
from dovetail.core.kernels import expiry
from dovetail.core.records import NO_TIME, BatchAppended, SyncPolicy
from dovetail.core.state import Log, Topic
from dovetail.core.turn import Turn


def publish(turn: Turn, request: Publish) -> None:
    """Append a batch, or refuse it with the reason."""
    try:
        topic = _find_topic(turn, request)
        log = _choose_log(turn, topic, request)
        sent = producers.judge(turn.durable, log.id, request)
        if sent is not None:
            return _confirm_again(turn, request, sent.log, sent.base)
        delay.check(request)
        hold_ms = flow.admit(turn, topic, request)
        if request.delay_ms:
            waiting, base = delay.schedule(turn, log.id, request)
            return _confirm(turn, waiting, turn.durable.logs[waiting.first_log], base, request, hold_ms)
    except Refusal as refusal:
        for ask in request.asks:
            turn.refuse(ask.session, ask.request, refusal.status, refusal.reason, refusal.retry_after_ms)
        return None
    append(turn, topic, record_of(turn, topic, log, request))
    return _confirm(turn, topic, log, log.end, request, hold_ms)


def record_of(turn: Turn, topic: Topic, log: Log, batch: Publish) -> BatchAppended:
    """The record of a batch that goes to the end of `log`."""
    return BatchAppended(
        log.id,
        log.end,
        batch.count,
        turn.wall_ms,
        NO_TIME,
        expiry(turn.wall_ms, batch.ttl_ms or topic.config.ttl_ms),
        batch.flags,
        batch.size_bytes,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.handle,
    )


def _confirm(turn: Turn, topic: Topic, log: Log, base: int, request: Publish, hold_ms: int) -> None:
    """Have the publisher told when this step's frame is stored, and not before it was held back long enough."""
    if request.acks == Acks.NONE:
        return
    if hold_ms:
        found = _replies(turn, topic, log, base, request)
        turn.held_replies.extend((turn.mono_ms + hold_ms, reply) for reply in found)
        return
    replies = turn.replies if topic.config.sync == SyncPolicy.ALWAYS else turn.replies_written
    replies.extend(_replies(turn, topic, log, base, request))


def _replies(turn: Turn, topic: Topic, log: Log, base: int, request: Publish) -> list[Reply]:
    lane = log.lane if topic.lanes else -1
    place = (topic.name, log.partition, lane)
    return [
        Reply(ask.session, ask.request, Appended(*place, base + ask.index, ask.count, turn.wall_ms))
        for ask in request.asks
    ]


def _confirm_again(turn: Turn, request: Publish, log_id: int, base: int) -> None:
    """A batch that was sent before: confirmed now if it is stored, else when everything decided so far is."""
    log = turn.durable.logs.get(log_id)
    if log is None or request.acks == Acks.NONE:
        return
    replies = _replies(turn, turn.durable.topics[log.topic], log, base, request)
    if base < turn.tails[log_id].stored:
        turn.effects.extend(replies)
    else:
        turn.reply_after_all(replies)


def _find_topic(turn: Turn, request: Publish) -> Topic:
    """The topic to append to, made now if need be, but only for a batch that is welcome and fits."""
    found = topics.find(turn, request.topic)
    count = found.partitions if found else turn.settings.partitions
    if request.partition >= count and (found or turn.settings.auto_create):
        reason = f"topic {request.topic!r} has partitions 0 to {count - 1}, not {request.partition}"
        raise Refusal(Status.INVALID, reason)
    if found is not None:
        return found
    flow.check(turn, request)
    delay.check(request)
    return topics.find_or_create(turn, request.topic)


def _choose_log(turn: Turn, topic: Topic, request: Publish) -> Log:
    """The log of the partition and lane that a batch goes to."""
    partition = request.partition
    if partition < 0:
        if request.producer_id >= 0:
            # Sent again it would come to another log, which has not heard of it.
            raise Refusal(Status.INVALID, "an idempotent producer's batch names its partition, this one leaves it open")
        turn.next_spread += 1
        partition = turn.next_spread % topic.partitions
    lane = (request.priority or Priority.NORMAL) - 1 if topic.lanes else 0
    return turn.durable.logs[topic.first_log + partition * max(1, topic.lanes) + lane]
