"""Dead letters over HTTP: where there are some, what happened to each, to send them again, and to be rid of them.

Promises  an entry shows the message as it was and why it died; a purge and a replay can be tried dry; a replay goes
          in the original order.
Never     moves a dead letter itself: the core does, entry by entry (I-REPLAY).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Literal

import msgspec
from msgspec import UNSET

from dovetail.core import inputs, names
from dovetail.core.access import Role
from dovetail.core.effects import ReplayBegun
from dovetail.core.intervals import EMPTY, add, contains, total
from dovetail.core.records import FailReason, ReplayState
from dovetail.core.replays import under_way
from dovetail.core.state import Replay, Topic
from dovetail.core.stories import Attempt
from dovetail.runtime.http.errors import Trouble
from dovetail.runtime.http.gate import Gate, paced
from dovetail.runtime.http.messages import read_messages
from dovetail.runtime.http.models import (
    AttemptView,
    DeadChoice,
    DeadEntry,
    DeadList,
    DeadQuery,
    DeadTopic,
    DeadTopics,
    MessageView,
    NewReplay,
    Purge,
    Purged,
    ReplayList,
    ReplayPatch,
    ReplayView,
    ResultName,
)
from dovetail.runtime.http.routing import Call, Nothing, Route
from dovetail.runtime.http.texts import as_time_ms
from dovetail.runtime.http.topics import depth

PAGE = 500
SUFFIX = f".{names.DEAD}"
MARK = "dovetail-"


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def show_all(gate: Gate, call: Call[Nothing, None]) -> DeadTopics:
    """Topics that have dead letters."""
    state = gate.state
    found = []
    async for topic in paced(state.durable.topics.values()):
        if topic.name.endswith(SUFFIX):
            gone = total(state.durable.removed.get(topic.first_log, ()))
            found.append(DeadTopic(topic.name.removesuffix(SUFFIX), topic.name, depth(state, topic) - gone))
    found.sort(key=lambda each: each.topic)
    return DeadTopics(found, sum(each.messages for each in found))


def dead_topic(gate: Gate, text: str) -> Topic:
    """The dead-letter topic of a topic, named by either."""
    name = text.replace("/", ".")
    wanted = name if names.is_dead_letter(name) else f"{name}{SUFFIX}"
    try:
        return gate.topic(wanted)
    except Trouble as trouble:
        if trouble.status == 404:
            raise Trouble(404, "not_found", f"topic {name!r} has no dead letters") from None
        raise


async def show_entries(gate: Gate, call: Call[DeadQuery, None]) -> DeadList:
    """A topic's dead letters, oldest first, with how many match in all."""
    query = call.query
    topic = dead_topic(gate, call.path["topic"])
    wanted = _Filter(query.reason, query.group, query.older_than, query.newer_than)
    found: list[DeadEntry] = []
    count = 0
    following = None
    async for entry in entries(gate, topic, 0):
        if not wanted.accepts(entry):
            continue
        count += 1
        if entry.offset >= query.offset:
            if len(found) < query.limit:
                found.append(entry)
            elif following is None:
                following = entry.offset
    return DeadList(found, count, UNSET if following is None else following)


class _Filter:
    def __init__(self, reason: str, group: str, older_than: str, newer_than: str) -> None:
        self._reason = reason
        self._group = group
        self._before_ms = as_time_ms(older_than, "older_than", _wall_ms()) if older_than else 1 << 62
        self._after_ms = as_time_ms(newer_than, "newer_than", _wall_ms()) if newer_than else 0

    def accepts(self, entry: DeadEntry) -> bool:
        """Whether an entry is asked for."""
        is_named = self._reason in ("", entry.reason) and self._group in ("", entry.group)
        return is_named and self._after_ms <= entry.died <= self._before_ms


async def entries(gate: Gate, topic: Topic, offset: int) -> AsyncIterator[DeadEntry]:
    """All dead letters of a topic from `offset` on, read in pages."""
    log = gate.state.durable.logs[topic.first_log]
    while True:
        page = await read_messages(gate, topic, log, offset, PAGE)
        gone = gate.state.durable.removed.get(log.id, ())
        for message in page:
            if not contains(gone, message.offset, message.offset):
                yield entry_of(topic, message)
        if len(page) < PAGE:
            return
        offset = page[-1].offset + 1
        await asyncio.sleep(0)


def entry_of(topic: Topic, message: MessageView) -> DeadEntry:
    """A dead letter as JSON shows it: its story is in its headers."""
    said = {name.removeprefix(MARK): value for name, value in message.headers.items() if name.startswith(MARK)}
    own = {name: value for name, value in message.headers.items() if not name.startswith(MARK)}
    died = _whole(said.get("died-ms", ""), message.timestamp)
    kept_ms = topic.config.retention_ms
    return DeadEntry(
        message.message_id,
        topic.name.removesuffix(SUFFIX),
        message.partition,
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        own,
        said.get("id", ""),
        _whole(said.get("partition", ""), 0),
        _whole(said.get("offset", ""), 0),
        said.get("group", ""),
        said.get("reason", ""),
        said.get("error", ""),
        _whole(said.get("attempts", ""), 0),
        _history(said.get("history", "")),
        died,
        _whole(said.get("remove-at-ms", ""), message.timestamp + kept_ms) if kept_ms else None,
    )


def _whole(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() else default


def _history(text: str) -> list[AttemptView]:
    """The tries that a header tells of; none where somebody else wrote it."""
    try:
        story = msgspec.json.decode(text or "[]", type=list[Attempt])
        return [AttemptView(each.member, each.delivered_ms, each.ended_ms, _result(each), each.error) for each in story]
    except (msgspec.DecodeError, ValueError):
        return []


def _result(attempt: Attempt) -> ResultName:
    word: ResultName = FailReason(attempt.reason).name.lower()  # type: ignore[assignment]  # the type's words, by test
    return word


async def show_entry(gate: Gate, call: Call[Nothing, None]) -> DeadEntry:
    """One dead letter."""
    topic = dead_topic(gate, call.path["topic"])
    offset = _whole(call.path["offset"], -1)
    log = gate.state.durable.logs[topic.first_log]
    found = await read_messages(gate, topic, log, offset, 1) if 0 <= offset < 1 << 63 else []
    gone = gate.state.durable.removed.get(log.id, ())
    if not found or found[0].offset != offset or contains(gone, offset, offset):
        raise Trouble(404, "not_found", f"{topic.name} has no entry at offset {call.path['offset']}")
    return entry_of(topic, found[0])


async def _chosen(gate: Gate, topic: Topic, choice: DeadChoice) -> list[DeadEntry]:
    wanted = _Filter(choice.reason, choice.group, choice.older_than, choice.newer_than)
    named = set(choice.offsets)
    return [
        entry
        async for entry in entries(gate, topic, min(named, default=0))
        if wanted.accepts(entry) and (not named or entry.offset in named)
    ]


async def purge(gate: Gate, call: Call[Nothing, Purge]) -> Purged:
    """Remove dead letters: those that were named, those that match, or all; but for what is being replayed."""
    topic = dead_topic(gate, call.path["topic"])
    chosen = await _chosen(gate, topic, call.body)
    busy = under_way(gate.state.durable, topic.first_log)
    found = [entry for entry in chosen if not contains(busy, entry.offset, entry.offset)]
    if found and not call.body.dry_run:
        ranges = EMPTY
        for entry in found:
            ranges = add(ranges, entry.offset, entry.offset)
        await gate.ask(lambda session, request: inputs.RemoveDead(session, request, topic.name, ranges))
    return Purged(topic.name, len(found), call.body.dry_run, len(chosen) - len(found))


async def replay(gate: Gate, call: Call[Nothing, NewReplay]) -> ReplayView:
    """Begin a job that publishes dead letters again."""
    body = call.body
    topic = dead_topic(gate, call.path["topic"])
    if body.to:
        call.demand(Role.ADMIN, body.to)
    found = await _chosen(gate, topic, body)
    if not found:
        raise Trouble(404, "not_found", f"{topic.name} has no such dead letters")
    found.sort(key=lambda entry: (entry.topic, entry.original_partition, entry.original_offset))
    items = tuple([(entry.offset, body.to or entry.topic, entry.original_partition) for entry in found])
    if body.dry_run:
        plan = Replay(0, topic.first_log, items, body.rate, body.pause_lag, body.pause_deaths, 0, 0)
        return _replay_view(gate, plan, "planned")
    limits = (body.rate, body.pause_lag, body.pause_deaths)
    answer = await gate.ask(lambda session, request: inputs.StartReplay(session, request, topic.name, items, *limits))
    assert isinstance(answer, ReplayBegun)
    return _replay_view(gate, gate.state.durable.replays[answer.replay])


_STATES: dict[int, Literal["running", "paused", "done", "aborted"]] = {
    ReplayState.RUNNING: "running",
    ReplayState.PAUSED: "paused",
    ReplayState.DONE: "done",
    ReplayState.ABORTED: "aborted",
}


def _replay_view(gate: Gate, job: Replay, state: Literal["planned"] | None = None) -> ReplayView:
    log = gate.state.durable.logs.get(job.log)
    name = gate.state.durable.topics[log.topic].name if log is not None else ""
    targets = Counter(target for _, target, _ in job.items)
    return ReplayView(
        job.id,
        name.removesuffix(SUFFIX),
        state or _STATES[job.state],
        job.reason,
        len(job.items),
        job.done,
        job.rate,
        job.started_ms,
        dict(sorted(targets.items())),
    )


async def show_replays(gate: Gate, call: Call[Nothing, None]) -> ReplayList:
    """The jobs that are remembered, newest first."""
    jobs = sorted(gate.state.durable.replays.items(), reverse=True)
    return ReplayList([_replay_view(gate, job) for _, job in jobs])


async def show_replay(gate: Gate, call: Call[Nothing, None]) -> ReplayView:
    """How a job stands."""
    return _replay_view(gate, _job(gate, call.path["id"]))


def _job(gate: Gate, text: str) -> Replay:
    found = gate.state.durable.replays.get(_whole(text[:18], 0))
    if found is None:
        raise Trouble(404, "not_found", f"there is no replay {text!r}", "GET /v1/replays lists those there are")
    return found


async def change_replay(gate: Gate, call: Call[Nothing, ReplayPatch]) -> ReplayView:
    """Pause a job, or go on with it."""
    state = ReplayState.RUNNING if call.body.state == "running" else ReplayState.PAUSED
    return await _set_replay(gate, call.path["id"], state)


async def abort_replay(gate: Gate, call: Call[Nothing, None]) -> ReplayView:
    """Abort a job: what it has not published stays in the dead letters."""
    return await _set_replay(gate, call.path["id"], ReplayState.ABORTED)


async def _set_replay(gate: Gate, text: str, state: ReplayState) -> ReplayView:
    job = _job(gate, text)
    if job.state > ReplayState.PAUSED:
        raise Trouble(409, "conflict", f"replay {job.id} is {_STATES[job.state]} already")
    await gate.ask(lambda session, request: inputs.ChangeReplay(session, request, job.id, state))
    return _replay_view(gate, gate.state.durable.replays[job.id])


_DEAD = "/v1/dlq/{topic}"

ROUTES = (
    Route("GET", "/v1/dlq", show_all, "Topics that have dead letters.", answer=DeadTopics),
    Route(
        "POST",
        f"{_DEAD}/purge",
        purge,
        "Remove dead letters.",
        body=Purge,
        answer=Purged,
        role=Role.ADMIN,
    ),
    Route(
        "POST",
        f"{_DEAD}/replay",
        replay,
        "Publish dead letters again, as a job.",
        body=NewReplay,
        answer=ReplayView,
        status=202,
        role=Role.ADMIN,
    ),
    Route("GET", "/v1/replays", show_replays, "Replays, newest first.", answer=ReplayList),
    Route("GET", "/v1/replays/{id}", show_replay, "How a replay stands.", answer=ReplayView),
    Route(
        "PATCH",
        "/v1/replays/{id}",
        change_replay,
        "Pause a replay, or go on.",
        body=ReplayPatch,
        answer=ReplayView,
        role=Role.ADMIN,
    ),
    Route("DELETE", "/v1/replays/{id}", abort_replay, "Abort a replay.", answer=ReplayView, role=Role.ADMIN),
    Route("GET", f"{_DEAD}/{{offset}}", show_entry, "One dead letter.", answer=DeadEntry),
    Route("GET", _DEAD, show_entries, "A topic's dead letters.", query=DeadQuery, answer=DeadList),
)
