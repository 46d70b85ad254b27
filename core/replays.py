"""Replaying and removing dead letters: jobs that survive a crash.

Promises  a dead letter leaves its topic in the frame in which its replay is appended, not before (I-REPLAY); a job goes
          through its plan in order, at its rate, and pauses when consumers lag or messages die again.
Never     makes a plan: whoever starts a job names each entry and where it goes, in the order it wants.
"""

from __future__ import annotations

from dovetail.core import flow, intervals, names, polls, timers, topics
from dovetail.core.append import append
from dovetail.core.codes import Priority, Status
from dovetail.core.effects import Copy, Done, ReplayBegun
from dovetail.core.evolve import deaths
from dovetail.core.ids import Refusal, ordered
from dovetail.core.inputs import ChangeReplay, Copied, Publish, RemoveDead, StartReplay
from dovetail.core.publish import record_of
from dovetail.core.records import DeadRemoved, LogTrimmed, ReplayChanged, Replayed, ReplayStarted, ReplayState
from dovetail.core.state import Durable, Log, Replay, Replaying
from dovetail.core.turn import Turn

ITEMS_MAX = 10_000
"""Entries of one job; more are several jobs."""
TICK_MS = 100
"""A job asks for entries this often at most, slower ones for one at a time."""
RATE_MAX = 10_000
RUNNING_MAX = 16
NORMAL_LANE = Priority.NORMAL - 1
"""Where a topic has lanes a replay is in no hurry, whatever its original was."""


def start(turn: Turn, request: StartReplay) -> None:
    """Begin a job: each item is an entry's offset, and the topic and partition it goes to."""
    try:
        log = _dead_log(turn, request.topic)
        _check_plan(turn, log, request)
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    number = turn.durable.next_replay
    rate = min(request.rate or RATE_MAX, RATE_MAX)
    limits = (rate, request.pause_lag, request.pause_deaths)
    turn.emit(ReplayStarted(number, log.id, request.items, *limits, deaths(turn.durable, request.items), turn.wall_ms))
    turn.set_timer(turn.mono_ms, (timers.REPLAY, number, 0))
    return turn.reply_stored(request.session, request.request, ReplayBegun(number))


def _dead_log(turn: Turn, text: str) -> Log:
    log = polls.find_log(turn, text, 0)
    name = turn.durable.topics[log.topic].name
    if not names.is_dead_letter(name):
        raise Refusal(Status.INVALID, f"topic {name!r} holds no dead letters: those are in topics that end in .dlq")
    return log


def _check_plan(turn: Turn, log: Log, request: StartReplay) -> None:
    if not 1 <= len(request.items) <= ITEMS_MAX:
        raise Refusal(
            Status.INVALID, f"a job replays 1 to {ITEMS_MAX} dead letters, this plan has {len(request.items)}"
        )
    running = [each for _, each in ordered(turn.durable.replays) if each.state <= ReplayState.PAUSED]
    if len(running) >= RUNNING_MAX:
        raise Refusal(Status.BUSY, f"{RUNNING_MAX} replays are under way, the most there may be")
    taken = {offset for each in running if each.log == log.id for offset, _, _ in each.items[each.done :]}
    gone = turn.durable.removed.get(log.id, ())
    seen: set[int] = set()
    for offset, topic, _ in request.items:
        if not log.start <= offset < turn.tails[log.id].stored or intervals.contains(gone, offset, offset):
            raise Refusal(Status.NOT_FOUND, f"there is no dead letter at offset {offset}")
        if offset in taken or offset in seen:
            raise Refusal(Status.EXISTS, f"the dead letter at offset {offset} is being replayed already")
        topics.check_name(topic)
        seen.add(offset)


def change(turn: Turn, request: ChangeReplay) -> None:
    """Pause, go on with or abort a job."""
    replay = turn.durable.replays.get(request.replay)
    if replay is None or replay.state > ReplayState.PAUSED:
        reason = f"there is no replay {request.replay} under way"
        return turn.refuse(request.session, request.request, Status.NOT_FOUND, reason)
    if request.state not in (ReplayState.RUNNING, ReplayState.PAUSED, ReplayState.ABORTED):
        reason = f"a replay can be set running, paused or aborted, not {request.state}"
        return turn.refuse(request.session, request.request, Status.INVALID, reason)
    turn.emit(ReplayChanged(replay.id, request.state, "by an operator"))
    if request.state == ReplayState.RUNNING:
        due_ms = turn.replay_due.get(replay.id, turn.mono_ms)
        turn.set_timer(max(due_ms, turn.mono_ms), (timers.REPLAY, replay.id, 0))
    elif request.state == ReplayState.ABORTED:
        _forget(turn, replay.id)
    return turn.reply_stored(request.session, request.request, Done())


def tick(turn: Turn, number: int) -> None:
    """Ask for the next entries of a job, as its rate allows, unless something speaks against it."""
    replay = turn.durable.replays.get(number)
    if replay is None or replay.state != ReplayState.RUNNING or turn.mono_ms < turn.replay_due.get(number, 0):
        return
    log = turn.durable.logs.get(replay.log)
    if log is None:
        _forget(turn, number)
        turn.emit(ReplayChanged(number, ReplayState.ABORTED, "its dead-letter topic was deleted"))
        return
    count = max(1, replay.rate * TICK_MS // 1000)
    turn.replay_due[number] = turn.mono_ms - (-count * 1000 // replay.rate)
    turn.set_timer(turn.replay_due[number], (timers.REPLAY, number, 0))
    died = deaths(turn.durable, replay.items) - replay.dead_end if replay.pause_deaths else 0
    if replay.pause_deaths and died >= replay.pause_deaths:
        turn.emit(ReplayChanged(number, ReplayState.PAUSED, f"{died} messages died again since it last began"))
        return
    if replay.pause_lag and _lag(turn, replay) >= replay.pause_lag:
        return
    asked = max(replay.done, turn.replay_asked.get(number, 0))
    most = asked + count
    for place in range(asked, min(most, len(replay.items))):
        ticket = turn.next_ticket
        turn.next_ticket += 1
        turn.replaying[ticket] = Replaying(number, place)
        offset = replay.items[place][0]
        headers = (("dovetail-replay", str(number)), ("dovetail-replayed-ms", str(turn.wall_ms)))
        turn.effects.append(Copy(ticket, replay.log, offset, headers))
    turn.replay_asked[number] = min(most, len(replay.items))


def _forget(turn: Turn, number: int) -> None:
    """A job is over."""
    turn.replay_asked.pop(number, None)
    turn.replay_due.pop(number, None)


def _lag(turn: Turn, replay: Replay) -> int:
    """How far consumers of the next entry's topic are behind."""
    found = topics.find(turn, replay.items[min(replay.done, len(replay.items) - 1)][1])
    return flow.lag(turn, found) if found is not None else 0


def copied(turn: Turn, replaying: Replaying, answer: Copied) -> None:
    """A copy has come: append it if it is the plan's next; copies come in the order they were asked for."""
    replay = turn.durable.replays.get(replaying.replay)
    if replay is None or replay.state > ReplayState.PAUSED or replaying.place != replay.done:
        turn.replay_asked[replaying.replay] = 0
        return
    offset, name, partition = replay.items[replaying.place]
    if answer.size_bytes:
        try:
            topic = topics.find(turn, name) or topics.find_or_create(turn, name)
        except Refusal as refusal:
            turn.emit(ReplayChanged(replay.id, ReplayState.PAUSED, refusal.reason))
            return
        place = partition % topic.partitions * max(1, topic.lanes) + (NORMAL_LANE if topic.lanes else 0)
        log = turn.durable.logs[topic.first_log + place]
        copy = Publish(name, partition, answer.handle, 1, answer.size_bytes, ())
        append(turn, topic, record_of(turn, topic, log, copy))
    turn.emit(Replayed(replay.id, replay.log, offset))
    _trim(turn, replay.log)
    if replay.done + 1 == len(replay.items):
        _forget(turn, replay.id)
        turn.emit(ReplayChanged(replay.id, ReplayState.DONE, ""))


def under_way(durable: Durable, log: int) -> intervals.Intervals:
    """The dead letters of a log that jobs have yet to replay."""
    busy = intervals.EMPTY
    for _, replay in ordered(durable.replays):
        if replay.log == log and replay.state <= ReplayState.PAUSED:
            for offset, _, _ in replay.items[replay.done :]:
                busy = intervals.add(busy, offset, offset)
    return busy


def remove(turn: Turn, request: RemoveDead) -> None:
    """Purge dead letters; those that are being replayed stay."""
    try:
        log = _dead_log(turn, request.topic)
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    busy = under_way(turn.durable, log.id)
    stored = turn.tails[log.id].stored
    for first, last in request.ranges:
        for left, right in intervals.gaps(busy, max(first, log.start), min(last, stored - 1)):
            turn.emit(DeadRemoved(log.id, left, right))
    _trim(turn, log.id)
    return turn.reply_stored(request.session, request.request, Done())


def _trim(turn: Turn, log_id: int) -> None:
    """What was removed at the log's beginning frees its place."""
    log = turn.durable.logs[log_id]
    removed = turn.durable.removed.get(log_id, ())
    if removed and removed[0][0] <= log.start <= removed[0][1]:
        start = removed[0][1] + 1
        for owner in turn.readers.get(log_id, ()):
            if owner > 0:
                start = min(start, turn.durable.cursors[owner, log_id].floor)
        if start > log.start:
            turn.emit(LogTrimmed(log_id, start))
