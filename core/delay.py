"""Delayed messages: they wait in logs of their own, one for each hour they are due in, and move when it is time.

Promises  a delayed batch moves to its log once, not before it is due and within a tick of it (I-DELAY): its append
          there and the mark that it moved are one frame; it pins nobody's floor; only near hours are in memory.
Never     reads a payload: `Pick` has the shell hand the stored batch over as it is.
"""

from __future__ import annotations

from dovetail.core import timers, topics
from dovetail.core.append import append
from dovetail.core.codes import Status
from dovetail.core.effects import Pick, Read
from dovetail.core.ids import Refusal
from dovetail.core.inputs import Loaded, Picked, Publish
from dovetail.core.kernels import due_hour, expiry
from dovetail.core.names import HIDDEN
from dovetail.core.records import BatchAppended, Moved, TopicConfig, TopicDeleted
from dovetail.core.state import Moving, Topic
from dovetail.core.timers import Timer
from dovetail.core.turn import Turn

DELAY_MS_MAX = 366 * 86_400_000
HOUR_MS = 3_600_000
NEAR_MS = 300_000
"""How long before an hour begins what is due in it is read into memory."""
READ_BYTES = 4 << 20
OWNER = 0
"""Who asks for metadata of delay logs: nobody's cursor."""
PREFIX = f"{HIDDEN}delay."


def check(batch: Publish) -> None:
    """Raise `Refusal` for what is to wait for longer than anything may."""
    if batch.delay_ms > DELAY_MS_MAX:
        reason = f"a delay of {batch.delay_ms} ms is over the most there is, {DELAY_MS_MAX} ms"
        raise Refusal(Status.INVALID, reason)


def schedule(turn: Turn, target: int, batch: Publish) -> tuple[Topic, int]:
    """Let a batch wait for its time; says the hidden topic it waits in, and its offset there."""
    deliver_at_ms = turn.wall_ms + batch.delay_ms
    topic = _hour(turn, due_hour(deliver_at_ms))
    log = turn.durable.logs[topic.first_log]
    base = log.end
    expires_at_ms = expiry(deliver_at_ms, batch.ttl_ms)
    append(
        turn,
        topic,
        BatchAppended(
            log.id,
            base,
            batch.count,
            turn.wall_ms,
            deliver_at_ms,
            expires_at_ms,
            batch.flags,
            batch.size_bytes,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.handle,
            target,
        ),
    )
    if log.id in turn.near:
        turn.set_alarm(deliver_at_ms, (timers.DELAYED, log.id, base))
    return topic, base


def _hour(turn: Turn, hour: int) -> Topic:
    """The hidden topic for what is due in an hour, made when the first such message comes."""
    name = f"{PREFIX}{hour}"
    number = turn.durable.topics_by_name.get(name)
    if number is not None:
        return turn.durable.topics[number]
    config = TopicConfig(retention_ms=0, dead_letters=False)
    topic = topics.create(turn, name, 1, 0, config, automatic=False, limited=False)
    for at_ms, alarm in alarms_of(topic):
        turn.set_alarm(at_ms, alarm)
    if turn.wall_ms >= hour * HOUR_MS - NEAR_MS:
        turn.near[topic.first_log] = None
    return topic


def is_delay(name: str) -> bool:
    """Whether delayed messages wait in a topic."""
    return name.startswith(PREFIX)


def is_over(name: str, wall_ms: int) -> bool:
    """Whether the hour of a delay topic has passed: before that its log stays, however much of it has moved."""
    return wall_ms >= (int(name.removeprefix(PREFIX)) + 1) * HOUR_MS


def alarms_of(topic: Topic) -> tuple[tuple[int, Timer], ...]:
    """When a delay log is read, because its hour is near, and when it is dropped, because the hour is over."""
    hour = int(topic.name.removeprefix(PREFIX))
    near = (timers.HOUR_NEAR, topic.first_log, 0)
    over = (timers.HOUR_OVER, topic.first_log, 0)
    return (max(0, hour * HOUR_MS - NEAR_MS), near), ((hour + 1) * HOUR_MS, over)


def come_near(turn: Turn, log: int) -> None:
    """An hour is near: ask for what is due in it."""
    if log in turn.durable.logs and log not in turn.near:
        turn.near[log] = None
        turn.effects.append(Read(OWNER, log, turn.durable.logs[log].start, READ_BYTES))


def loaded(turn: Turn, answer: Loaded) -> None:
    """Set an alarm for each batch that has not moved, and ask for more."""
    log = turn.durable.logs.get(answer.log)
    if log is None or not answer.batches:
        return
    moved = turn.durable.moved[log.id]
    for batch in answer.batches:
        if batch.base not in moved.bases:
            turn.set_alarm(batch.deliver_at_ms, (timers.DELAYED, log.id, batch.base))
    following = answer.batches[-1].last + 1
    if following < turn.tails[log.id].stored:
        turn.effects.append(Read(OWNER, log.id, following, READ_BYTES))


def fall_due(turn: Turn, log: int, base: int) -> None:
    """A delayed batch is due: have it handed over."""
    tail = turn.tails.get(log)
    if tail is None or base in turn.durable.moved[log].bases or (log, base) in turn.moving_by_place:
        return
    if base >= tail.stored:
        turn.set_alarm(turn.wall_ms + 1, (timers.DELAYED, log, base))
        return
    ticket = turn.next_ticket
    turn.next_ticket += 1
    turn.moving[ticket] = Moving(log, base)
    turn.moving_by_place[log, base] = ticket
    turn.effects.append(Pick(ticket, log, base))


def picked(turn: Turn, answer: Picked) -> None:
    """The batch is here: append it where it belongs, and note that it moved."""
    moving = turn.moving.pop(answer.ticket, None)
    if moving is None:
        return
    del turn.moving_by_place[moving.log, moving.base]
    if moving.log not in turn.durable.logs:
        return
    target = turn.durable.logs.get(answer.target)
    if target is not None and answer.size_bytes:
        topic = turn.durable.topics[target.topic]
        append(
            turn,
            topic,
            BatchAppended(
                target.id,
                target.end,
                answer.count,
                turn.wall_ms,
                0,
                answer.expires_at_ms,
                answer.flags,
                answer.size_bytes,
                -1,
                -1,
                -1,
                answer.handle,
                moving.log,
                moving.base,
            ),
        )
    turn.emit(Moved(moving.log, moving.base, answer.count))
    _drop_if_done(turn, moving.log)


def hour_over(turn: Turn, log: int) -> None:
    """An hour has passed: its log goes when all of it has moved."""
    _drop_if_done(turn, log)


def _drop_if_done(turn: Turn, number: int) -> None:
    log = turn.durable.logs.get(number)
    if log is None:
        return
    topic = turn.durable.topics[log.topic]
    if is_over(topic.name, turn.wall_ms) and turn.durable.moved[number].messages == log.end - log.start:
        del turn.tails[number]
        turn.near.pop(number, None)
        turn.emit(TopicDeleted(topic.id))
