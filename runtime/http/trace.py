"""A message's life over HTTP: where it is now for each group, and what happened to it until then.

Promises  told from the newest steps and the journal before them; what is in neither any more is said to be missing;
          the journal is read in a thread of its own, one reader at a time.
Never     delays messages, and never shows a topic that the caller may not read.
"""

from __future__ import annotations

from msgspec import UNSET

from dovetail.core import names
from dovetail.core.access import Access, Role
from dovetail.core.ids import ordered
from dovetail.core.journal_format import Frame
from dovetail.core.lives import Event, Follower, Place, place_name
from dovetail.core.names import BadName
from dovetail.core.state import Log, State, Topic
from dovetail.runtime.http.errors import Trouble
from dovetail.runtime.http.gate import Gate
from dovetail.runtime.http.groups import attempts_of
from dovetail.runtime.http.messages import log_at, read_messages
from dovetail.runtime.http.models import GroupTrace, LifeEvent, MessageView, Trace
from dovetail.runtime.http.routing import Call, Nothing, Route


async def trace(gate: Gate, call: Call[Nothing, None]) -> Trace:
    """Where a message is now, and what happened to it."""
    text = call.path["message_id"]
    topic, log, offset = _find(gate, text)
    call.demand(Role.READ, await _belongs_to(gate, topic, log, offset))
    if offset >= log.end:
        raise Trouble(404, "not_found", f"{text} does not exist yet: that partition ends before offset {log.end}")
    found = await read_messages(gate, topic, log, offset, 1)
    message = found[0] if found and found[0].offset == offset else None
    origins = _origins(gate.state, call.access, message)
    follower = Follower(*origins, *await _delayed_origin(gate, log, offset, message))
    follower.places[log.id, offset] = None
    events = await _life(gate, follower)
    if message is None and not events:
        raise Trouble(404, "not_found", f"{text} is not stored here: it was removed, or never was")
    state = gate.state
    groups = [_group_trace(state, owner, log.id, offset) for owner in state.live.readers.get(log.id, ()) if owner > 0]
    life = [_shown(state, event) for event in events]
    return Trace(UNSET if message is None else message, groups, life, follower.has_beginning)


def _find(gate: Gate, text: str) -> tuple[Topic, Log, int]:
    """The place that a message id names; raises `Trouble`."""
    name, _, rest = text.partition(":")
    partition, _, offset_text = rest.partition(":")
    partition_text, _, lane_text = partition.partition(".")
    numbers = (partition_text, offset_text, lane_text or "0")
    if not all(each.isascii() and each.isdecimal() and len(each) < 19 for each in numbers):
        raise Trouble(422, "invalid", f"{text!r} is not a message id: topic:partition:offset")
    topic = _topic(gate, name)
    log = log_at(gate, topic, int(partition_text), int(lane_text or "0"))
    if log is None:
        raise Trouble(404, "not_found", f"topic {topic.name!r} has no partition {partition_text}")
    return topic, log, int(offset_text)


def _topic(gate: Gate, name: str) -> Topic:
    """The topic called `name`, also one that delayed messages wait in."""
    number = gate.state.durable.topics_by_name.get(name) if names.is_hidden(name) else None
    if number is not None:
        return gate.state.durable.topics[number]
    if names.is_hidden(name):
        text = f"what waited in {name} is due and has moved: look for it in its topic"
        raise Trouble(404, "not_found", text)
    return gate.topic(name)


async def _belongs_to(gate: Gate, topic: Topic, log: Log, offset: int) -> str:
    """The topic that a token must count for: for what waits until it is due, the one that it goes to."""
    if not names.is_hidden(topic.name):
        return topic.name
    state = gate.state
    targets = [entry.record.other_log for entry in (await gate.entries(log.id, offset, 1))[:1]]
    return next((state.durable.topics[state.durable.logs[each].topic].name for each in targets if each), names.REST)


def _origins(state: State, access: Access, message: MessageView | None) -> list[Place]:
    """Where a dead letter, or what was replayed from one, came from, as its headers tell; anybody may write headers."""
    origin = message.headers.get("dovetail-id", "") if message is not None else ""
    name, _, rest = origin.partition(":")
    partition, _, offset = rest.partition(":")
    partition, _, lane = partition.partition(".")
    try:
        number = state.durable.topics_by_name.get(names.topic_name(name))
        numbers = (int(partition), int(lane or "0"), int(offset))
    except (BadName, ValueError):
        return []
    if number is None or not access.may(Role.READ, state.durable.topics[number].name):
        return []
    topic = state.durable.topics[number]
    log = topic.first_log + numbers[0] * max(1, topic.lanes) + numbers[1]
    return [(log, numbers[2])] if log in state.durable.logs else []


async def _delayed_origin(gate: Gate, log: Log, offset: int, message: MessageView | None) -> list[Place]:
    """Where a message waited until it was due, as its entry tells."""
    entries = await gate.entries(log.id, offset, 1) if message is not None else ()
    return [
        (entry.record.other_log, entry.record.other_base + offset - entry.base)
        for entry in entries[:1]
        if entry.record.other_log and not entry.record.deliver_at_ms
    ]


async def _life(gate: Gate, follower: Follower) -> list[Event]:
    """What happened, oldest first: from the journal up to where the newest steps begin, then from those."""
    newest = gate.server.lives.newest()

    def show(frame: Frame) -> None:
        if frame.lsn < newest.first_lsn:
            follower.see_frame(frame)

    await gate.server.look_back(show)
    told = follower.see_newest(newest, gate.state.live.stored_lsn)
    return [*_from_stories(gate.state, follower, told), *told]


def _from_stories(state: State, follower: Follower, told: list[Event]) -> list[Event]:
    """Attempts that are remembered with the message, and are in neither the steps nor the journal any more."""
    known = {(event.place, event.group, event.attempt) for event in told if event.what == "failed"}
    found = []
    for (group, log), stories in ordered(state.durable.stories):
        for place in follower.places:
            for first, last, story in stories:
                if place[0] != log or not first <= place[1] <= last:
                    continue
                failed = attempts_of(state, group, log, place[1])
                for number, attempt in enumerate(story, failed - len(story) + 1):
                    if (place, group, number) not in known:
                        what = Event(attempt.ended_ms, "failed", place, group, attempt.member, number)
                        found.append(what)
    return sorted(found, key=lambda event: event.at_ms)


def _shown(state: State, event: Event) -> LifeEvent:
    group = state.durable.groups.get(event.group)
    is_time = event.what == "delayed"
    return LifeEvent(
        event.at_ms or UNSET,
        event.what,
        place_name(state, event.place),
        group.name if group is not None else UNSET,
        event.member or UNSET,
        event.attempt or UNSET,
        UNSET if is_time else event.reason or UNSET,
        event.error or UNSET,
        place_name(state, event.other) or UNSET,
        int(event.reason) if is_time else UNSET,
    )


def _group_trace(state: State, group: int, log: int, offset: int) -> GroupTrace:
    name = state.durable.groups[group].name
    cursor = state.durable.cursors[group, log]
    if offset < cursor.floor or any(first <= offset <= last for first, last in cursor.islands):
        return GroupTrace(name, "settled", "", 0)
    attempts = attempts_of(state, group, log, offset)
    for number in state.live.teams.get(group, ()):
        for lease_id in state.live.subscriptions[number].leases:
            lease = state.live.leases[lease_id]
            if lease.log == log and any(first <= offset <= last for first, last in lease.ranges):
                return GroupTrace(name, "leased", lease.member, lease.attempt)
    progress = state.live.progress.get((group, log))
    retries = progress.retries if progress else ()
    waits = attempts > 0 and any(retry.first <= offset <= retry.last for retry in retries)
    return GroupTrace(name, "retrying" if waits else "waiting", "", attempts)


ROUTES = (Route("GET", "/v1/trace/{message_id}", trace, "What happened to a message, and where it is.", answer=Trace),)
