"""Flow control: publishers of a topic whose consumers lag are slowed, then refused; clients have quotas.

Promises  only publishers of the topic that lags feel it (all of them while the broker is throttled), the least
          important first; a level ends later than it began, so that it does not flap; a refusal says when to try again
          (I-FLOW). Settles are never held back.
Never     stops reading from anybody, and never loses what was accepted.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec.structs import replace

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


def check(turn: Turn, batch: Publish) -> None:
    """Raise `Refusal` for a batch that is not taken whatever its topic: nothing may be made for it."""
    if turn.read_only:
        raise Refusal(Status.READ_ONLY, f"the broker takes no messages: {turn.read_only}", 1_000)
    _check_quota(turn, batch)
    if turn.throttled and batch.priority > Priority.NORMAL:
        raise Refusal(Status.BUSY, f"the broker is throttled, less important messages wait: {turn.throttled}", 1_000)


def admit(turn: Turn, topic: Topic, batch: Publish) -> int:
    """How long the confirm of a batch is held back, in milliseconds; raises `Refusal` if it is not taken at all. Only
    what is taken counts against its client's quota."""
    check(turn, batch)
    held_ms = max(_slow_down(turn, topic, batch), THROTTLED_MS if turn.throttled else 0)
    _charge(turn, batch)
    return held_ms


def _slow_down(turn: Turn, topic: Topic, batch: Publish) -> int:
    """How long the topic's lag holds a confirm back; raises `Refusal` where it is too far behind for this priority."""
    config = topic.config
    if not (config.lag_warning or config.lag_critical or config.lag_critical_ms):
        return 0
    flow = _checked(turn, topic)
    if flow.level < Level.CRITICAL:
        return 0
    if flow.load >= kernels.refused_at(batch.priority or Priority.NORMAL):
        reason = f"consumers of topic {topic.name!r} are {flow.lag} messages behind: try again later"
        raise Refusal(Status.BUSY, reason, kernels.retry_after_ms(flow.lag, flow.drain))
    left, wait_ms = kernels.spend(flow.tokens, batch.count, flow.drain, SLOW_MS_MAX)
    turn.flows[topic.id] = replace(flow, tokens=left)
    return wait_ms


def _checked(turn: Turn, topic: Topic) -> Flow:
    """A topic's flow state, looked at anew when that was long enough ago."""
    before = turn.flows.get(topic.id) or Flow()
    elapsed_ms = turn.mono_ms - before.checked_ms
    if elapsed_ms < CHECK_MS and before.checked_ms:
        return before
    lags, settled, age_ms = _lags(turn, topic)
    slowest = max(sorted(lags), key=lags.__getitem__, default=0)
    behind = lags.get(slowest, 0)
    config = topic.config
    load = max(kernels.percent(behind, config.lag_critical), kernels.percent(age_ms, config.lag_critical_ms))
    level = kernels.flow_level(before.level, load, kernels.percent(behind, config.lag_warning))
    drain = before.drain
    known = dict(before.settled)
    if slowest in known:
        # What it has settled itself since then, whoever was the slowest; a group that is moved back settles nothing.
        drain = kernels.smoothed_rate(drain, max(0, settled[slowest] - known[slowest]), elapsed_ms)
    tokens = kernels.refill(before.tokens, drain, elapsed_ms)
    flow = Flow(level, turn.mono_ms, behind, load, tuple(sorted(settled.items())), drain, tokens)
    turn.flows[topic.id] = flow
    return flow


def _lags(turn: Turn, topic: Topic) -> tuple[dict[int, int], dict[int, int], int]:
    """Of each group: messages not settled, and settled ever; and the age of the oldest that any has not settled."""
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
    return lag_by_group, settled_by_group, age_ms


def lag(turn: Turn, topic: Topic) -> int:
    """How many messages the group that is furthest behind has not settled."""
    return max(_lags(turn, topic)[0].values(), default=0)


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


def _bucket(turn: Turn, session: int) -> Bucket:
    """What a client may publish now."""
    messages, size = turn.settings.quota_messages, turn.settings.quota_bytes
    before = turn.buckets.get(session)
    if before is None:
        return Bucket(messages * 1000, size * 1000, turn.mono_ms)
    elapsed_ms = turn.mono_ms - before.at_ms
    return Bucket(
        kernels.refill(before.messages, messages, elapsed_ms),
        kernels.refill(before.bytes, size, elapsed_ms),
        turn.mono_ms,
    )


def _client(turn: Turn, batch: Publish) -> int:
    """Whose quota a batch counts against; 0 where there are none."""
    settings = turn.settings
    return batch.asks[0].session if (settings.quota_messages or settings.quota_bytes) and batch.asks else 0


def _check_quota(turn: Turn, batch: Publish) -> None:
    session = _client(turn, batch)
    if not session:
        return
    settings, left = turn.settings, _bucket(turn, session)
    if (settings.quota_messages and left.messages <= 0) or (settings.quota_bytes and left.bytes <= 0):
        wait_ms = max(
            kernels.debt_ms(left.messages, settings.quota_messages), kernels.debt_ms(left.bytes, settings.quota_bytes)
        )
        reason = (
            f"this client's quota is {settings.quota_messages or 'any number of'} messages and "
            f"{settings.quota_bytes or 'any number of'} bytes a second: try again later"
        )
        raise Refusal(Status.QUOTA, reason, wait_ms)


def _charge(turn: Turn, batch: Publish) -> None:
    """Take a batch from its client's quota."""
    session = _client(turn, batch)
    if session:
        left = _bucket(turn, session)
        messages, size = left.messages - batch.count * 1000, left.bytes - batch.size_bytes * 1000
        turn.buckets[session] = Bucket(messages, size, turn.mono_ms)


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
