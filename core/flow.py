"""Flow control: publishers of a topic whose consumers lag are slowed, then refused; clients have quotas.

Promises  only publishers of the topic that lags feel it (all of them while the broker is throttled), the least
          important first; a level ends later than it began, so that it does not flap; a refusal says when to try again
          (I-FLOW). Settles are never held back.
Never     stops reading from anybody, and never loses what was accepted.
"""

from __future__ import annotations

from enum import IntEnum

from dovetail.core import intervals, kernels, routing, timers
from dovetail.core.codes import Priority, Status
from dovetail.core.effects import Reply
from dovetail.core.ids import Refusal
from dovetail.core.inputs import Publish
from dovetail.core.state import Bucket, Flow, Topic
from dovetail.core.turn import Turn

CHECK_MS = 100
"""A topic's lag is looked at this often at most."""
SLOW_MS_MAX = 2_000
"""The longest that a confirm is held back."""
THROTTLED_MS = 100
"""How long each confirm is held back while the whole broker is throttled: who waits for confirms publishes slower."""
MARK_MS = 1_000
MARKS_MAX = 128


class Level(IntEnum):
    """How a topic's consumers keep up."""

    NORMAL = 0
    WARNING = 1
    CRITICAL = 2
    OVERLOADED = 3


def admit(turn: Turn, topic: Topic, batch: Publish) -> int:
    """How long the confirm of a batch is held back, in milliseconds; raises `Refusal` if it is not taken at all."""
    if turn.read_only:
        raise Refusal(Status.READ_ONLY, f"the broker takes no messages: {turn.read_only}", 1_000)
    _charge(turn, batch)
    priority = batch.priority or Priority.NORMAL
    held_ms = 0
    if turn.throttled:
        if priority > Priority.NORMAL:
            raise Refusal(
                Status.BUSY, f"the broker is throttled, less important messages wait: {turn.throttled}", 1_000
            )
        held_ms = THROTTLED_MS
    config = topic.config
    if not (config.lag_warning or config.lag_critical or config.lag_critical_ms):
        return held_ms
    flow = _checked(turn, topic)
    if flow.level < Level.CRITICAL:
        return held_ms
    if flow.load >= kernels.refused_at(priority):
        reason = f"consumers of topic {topic.name!r} are {flow.lag} messages behind: try again later"
        raise Refusal(Status.BUSY, reason, kernels.retry_after_ms(flow.lag, flow.drain))
    left, wait_ms = kernels.spend(flow.tokens, batch.count, flow.drain, SLOW_MS_MAX)
    turn.flows[topic.id] = Flow(flow.level, flow.checked_ms, flow.lag, flow.load, flow.settled, flow.drain, left)
    return max(wait_ms, held_ms)


def _checked(turn: Turn, topic: Topic) -> Flow:
    """A topic's flow state, looked at anew when that was long enough ago."""
    before = turn.flows.get(topic.id) or Flow()
    elapsed_ms = turn.mono_ms - before.checked_ms
    if elapsed_ms < CHECK_MS and before.checked_ms:
        return before
    behind, settled, age_ms = _lag(turn, topic)
    config = topic.config
    load = max(kernels.percent(behind, config.lag_critical), kernels.percent(age_ms, config.lag_critical_ms))
    level = kernels.flow_level(before.level, load, kernels.percent(behind, config.lag_warning))
    drain = before.drain
    if before.checked_ms:
        drain = kernels.smoothed_rate(before.drain, settled - before.settled, elapsed_ms)
    tokens = kernels.refill(before.tokens, drain, elapsed_ms)
    flow = Flow(level, turn.mono_ms, behind, load, settled, drain, tokens)
    turn.flows[topic.id] = flow
    return flow


def _lag(turn: Turn, topic: Topic) -> tuple[int, int, int]:
    """Of the group that is furthest behind: messages not settled, messages settled ever, age of the oldest not."""
    lag_by_group: dict[int, int] = {}
    settled_by_group: dict[int, int] = {}
    age_ms = 0
    for number in routing.logs_of(topic):
        end = turn.durable.logs[number].end
        for owner in turn.readers.get(number, ()):
            if owner > 0:
                cursor = turn.durable.cursors[owner, number]
                done = cursor.floor + intervals.total(cursor.islands)
                lag_by_group[owner] = lag_by_group.get(owner, 0) + end - done
                settled_by_group[owner] = settled_by_group.get(owner, 0) + done
                if cursor.floor < end:
                    age_ms = max(
                        age_ms, turn.wall_ms - arrived_ms(turn.marks.get(number, ()), cursor.floor, turn.wall_ms)
                    )
    if not lag_by_group:
        return 0, 0, 0
    slowest = max(sorted(lag_by_group), key=lag_by_group.__getitem__)
    return lag_by_group[slowest], settled_by_group[slowest], age_ms


def lag(turn: Turn, topic: Topic) -> int:
    """How many messages the group that is furthest behind has not settled."""
    return _lag(turn, topic)[0]


def arrived_ms(marks: tuple[tuple[int, int], ...], offset: int, default_ms: int) -> int:
    """About when `offset` arrived, at the earliest: the last mark at or below it tells."""
    found = default_ms
    for end, wall_ms in marks:
        if end > offset:
            break
        found = wall_ms
    return found if marks and marks[0][0] <= offset else (marks[0][1] if marks else default_ms)


def mark(turn: Turn, log: int, base: int) -> None:
    """Remember now and then when an offset arrived, more coarsely the longer ago."""
    marks = turn.marks.get(log, ())
    if marks and turn.wall_ms - marks[-1][1] < MARK_MS:
        return
    if len(marks) >= MARKS_MAX:
        marks = marks[: MARKS_MAX // 2 : 2] + marks[MARKS_MAX // 2 :]
    turn.marks[log] = (*marks, (base, turn.wall_ms))


def _charge(turn: Turn, batch: Publish) -> None:
    """Take a batch from its client's quota; raises `Refusal` when that is used up."""
    settings = turn.settings
    if not (settings.quota_messages or settings.quota_bytes) or not batch.asks:
        return
    session = batch.asks[0].session
    before = turn.buckets.get(session) or Bucket(
        settings.quota_messages * 1000, settings.quota_bytes * 1000, turn.mono_ms
    )
    elapsed_ms = turn.mono_ms - before.at_ms
    messages = kernels.refill(before.messages, settings.quota_messages, elapsed_ms)
    size = kernels.refill(before.bytes, settings.quota_bytes, elapsed_ms)
    if (settings.quota_messages and messages <= 0) or (settings.quota_bytes and size <= 0):
        turn.buckets[session] = Bucket(messages, size, turn.mono_ms)
        wait_ms = max(kernels.debt_ms(messages, settings.quota_messages), kernels.debt_ms(size, settings.quota_bytes))
        reason = (
            f"this client's quota is {settings.quota_messages or 'any number of'} messages and "
            f"{settings.quota_bytes or 'any number of'} bytes a second: try again later"
        )
        raise Refusal(Status.QUOTA, reason, wait_ms)
    turn.buckets[session] = Bucket(messages - batch.count * 1000, size - batch.size_bytes * 1000, turn.mono_ms)


def hold_back(turn: Turn, not_before_ms: int, reply: Reply) -> None:
    """Send an answer when its time has come."""
    if not_before_ms <= turn.mono_ms:
        turn.effects.append(reply)
        return
    ticket = turn.next_ticket
    turn.next_ticket += 1
    turn.held[ticket] = reply
    turn.set_timer(not_before_ms, (timers.HELD, ticket, 0))


def let_go(turn: Turn, ticket: int) -> None:
    """An answer was held back long enough."""
    reply = turn.held.pop(ticket, None)
    if reply is not None:
        turn.effects.append(reply)
