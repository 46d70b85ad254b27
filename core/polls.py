"""Reading a log without a group: at once, or waiting for the next message.

Promises  an answer never reaches past what is stored (I-STORED); a poll that waits is answered when something comes
          or when its time is over, once.
Never     holds more than `POLLS_MAX` waiting polls of one log.
"""

from __future__ import annotations

from dovetail.core import names, timers
from dovetail.core.codes import Status
from dovetail.core.effects import Fetched
from dovetail.core.ids import Refusal
from dovetail.core.inputs import Fetch
from dovetail.core.names import BadName
from dovetail.core.state import Log, Poll
from dovetail.core.turn import Turn

POLLS_MAX = 1_000


def find_log(turn: Turn, topic_text: str, partition: int, lane: int = 0) -> Log:
    """The log of an existing topic's partition, in its lane `lane` from 1 or the first; raises `Refusal`."""
    try:
        name = names.topic_name(topic_text)
    except BadName as error:
        raise Refusal(Status.INVALID, str(error)) from None
    number = turn.durable.topics_by_name.get(name)
    if number is None:
        raise Refusal(Status.NOT_FOUND, f"topic {name!r} does not exist")
    topic = turn.durable.topics[number]
    if not 0 <= partition < topic.partitions:
        raise Refusal(Status.INVALID, f"topic {name!r} has partitions 0 to {topic.partitions - 1}, not {partition}")
    if not 0 <= lane <= topic.lanes:
        has = f"lanes 1 to {topic.lanes}" if topic.lanes else "no lanes"
        raise Refusal(Status.INVALID, f"topic {name!r} has {has}: there is no lane {lane}")
    return turn.durable.logs[topic.first_log + partition * max(1, topic.lanes) + max(0, lane - 1)]


def fetch(turn: Turn, request: Fetch) -> None:
    """Answer with what is stored from an offset on, or wait for it."""
    try:
        log = find_log(turn, request.topic, request.partition, request.lane)
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    waiting = turn.polls.get(log.id, ())
    if request.offset < turn.tails[log.id].stored or request.wait_ms == 0:
        return _answer(turn, log, request.session, request.request, request.offset, request.bytes_max)
    if len(waiting) >= POLLS_MAX:
        reason = f"{POLLS_MAX} reads wait for topic {request.topic!r} already: try again later"
        return turn.refuse(request.session, request.request, Status.BUSY, reason, 1_000)
    poll = Poll(turn.next_poll, request.session, request.request, request.offset, request.bytes_max)
    turn.next_poll += 1
    turn.polls[log.id] = (*waiting, poll)
    return turn.set_timer(turn.mono_ms + request.wait_ms, (timers.POLL, log.id, poll.id))


def _answer(turn: Turn, log: Log, session: int, request: int, offset: int, bytes_max: int) -> None:
    end = turn.tails[log.id].stored
    turn.reply(session, request, Fetched(log.id, max(log.start, offset), bytes_max, log.start, end))


def answer_waiting(turn: Turn, log_id: int) -> None:
    """Something new is stored in a log: answer the polls that waited for it."""
    waiting = turn.polls.get(log_id)
    if waiting is None:
        return
    stored = turn.tails[log_id].stored
    _keep(turn, log_id, tuple(poll for poll in waiting if poll.offset >= stored))
    for poll in waiting:
        if poll.offset < stored:
            log = turn.durable.logs[log_id]
            _answer(turn, log, poll.session, poll.request, poll.offset, poll.bytes_max)


def time_out(turn: Turn, log_id: int, poll_id: int) -> None:
    """A poll has waited long enough: it is answered with nothing."""
    waiting = turn.polls.get(log_id, ())
    for poll in waiting:
        if poll.id == poll_id:
            log = turn.durable.logs[log_id]
            _answer(turn, log, poll.session, poll.request, poll.offset, poll.bytes_max)
    _keep(turn, log_id, tuple(poll for poll in waiting if poll.id != poll_id))


def end_all(turn: Turn, log_id: int, reason: str) -> None:
    """A log goes away: whoever waits for it is told."""
    for poll in turn.polls.pop(log_id, ()):
        turn.refuse(poll.session, poll.request, Status.NOT_FOUND, reason)


def _keep(turn: Turn, log_id: int, rest: tuple[Poll, ...]) -> None:
    if rest:
        turn.polls[log_id] = rest
    else:
        turn.polls.pop(log_id, None)
