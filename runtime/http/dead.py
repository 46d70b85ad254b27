"""Dead letters over HTTP: where there are some, what happened to each, and to be rid of them.

Promises  an entry shows the message as it was and why it died; a purge can be tried dry.
Never     removes what a group still has to read from the dead letters (I-RETAIN).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import UNSET

from dovetail.core import inputs, names
from dovetail.core.state import Topic
from dovetail.runtime.http.errors import Trouble
from dovetail.runtime.http.gate import Gate, paced, stored_end
from dovetail.runtime.http.messages import read_messages
from dovetail.runtime.http.models import (
    DeadEntry,
    DeadList,
    DeadQuery,
    DeadTopic,
    DeadTopics,
    MessageView,
    Purge,
    Purged,
)
from dovetail.runtime.http.routing import Call, Nothing, Role, Route
from dovetail.runtime.http.texts import as_time_ms
from dovetail.runtime.http.topics import depth

PAGE = 500
SUFFIX = f".{names.DEAD}"
MARK = "dovetail-"
TRIM_SECONDS_MAX = 5.0


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def show_all(gate: Gate, call: Call[Nothing, None]) -> DeadTopics:
    """Topics that have dead letters."""
    state = gate.state
    found = []
    async for topic in paced(state.durable.topics.values()):
        if topic.name.endswith(SUFFIX):
            found.append(DeadTopic(topic.name.removesuffix(SUFFIX), topic.name, depth(state, topic)))
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
    wanted = _Filter(query)
    found: list[DeadEntry] = []
    total = 0
    following = None
    async for entry in entries(gate, topic, 0):
        if not wanted.accepts(entry):
            continue
        total += 1
        if entry.offset >= query.offset:
            if len(found) < query.limit:
                found.append(entry)
            elif following is None:
                following = entry.offset
    return DeadList(found, total, UNSET if following is None else following)


class _Filter:
    def __init__(self, query: DeadQuery) -> None:
        self._reason = query.reason
        self._group = query.group
        self._before_ms = as_time_ms(query.older_than, "older_than", _wall_ms()) if query.older_than else 1 << 62
        self._after_ms = as_time_ms(query.newer_than, "newer_than", _wall_ms()) if query.newer_than else 0

    def accepts(self, entry: DeadEntry) -> bool:
        """Whether an entry is asked for."""
        is_named = self._reason in ("", entry.reason) and self._group in ("", entry.group)
        return is_named and self._after_ms <= entry.died <= self._before_ms


async def entries(gate: Gate, topic: Topic, offset: int) -> AsyncIterator[DeadEntry]:
    """All dead letters of a topic from `offset` on, read in pages."""
    log = gate.state.durable.logs[topic.first_log]
    while True:
        page = await read_messages(gate, topic, log, offset, PAGE)
        for message in page:
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
        said.get("topic", topic.name.removesuffix(SUFFIX)),
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
        message.timestamp + kept_ms if kept_ms else None,
    )


def _whole(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() else default


def _history(text: str) -> list[Any]:
    try:
        found = msgspec.json.decode(text or "[]")
    except msgspec.DecodeError:
        return []
    return found if isinstance(found, list) else []


async def show_entry(gate: Gate, call: Call[Nothing, None]) -> DeadEntry:
    """One dead letter."""
    topic = dead_topic(gate, call.path["topic"])
    offset = _whole(call.path["offset"], -1)
    log = gate.state.durable.logs[topic.first_log]
    found = await read_messages(gate, topic, log, offset, 1) if 0 <= offset < 1 << 63 else []
    if not found or found[0].offset != offset:
        raise Trouble(404, "not_found", f"{topic.name} has no entry at offset {call.path['offset']}")
    return entry_of(topic, found[0])


async def purge(gate: Gate, call: Call[Nothing, Purge]) -> Purged:
    """Remove the oldest dead letters: those below an offset, those that died before a time, or all."""
    body = call.body
    topic = dead_topic(gate, call.path["topic"])
    log = gate.state.durable.logs[topic.first_log]
    until = stored_end(gate.state, log) if body.before is None else min(body.before, stored_end(gate.state, log))
    if body.older_than:
        moment_ms = as_time_ms(body.older_than, "older_than", _wall_ms())
        until = min(until, await gate.offset_at(log.id, moment_ms))
    count = max(0, until - log.start)
    if count and not body.dry_run:
        gate.submit(inputs.TrimLog(log.id, until))
        await _until_trimmed(gate, topic, log.id, until)
    return Purged(topic.name, count, body.dry_run)


async def _until_trimmed(gate: Gate, topic: Topic, log: int, start: int) -> None:
    deadline = time.monotonic() + TRIM_SECONDS_MAX
    while (known := gate.state.durable.logs.get(log)) is not None and known.start < start:
        if time.monotonic() > deadline:
            text = f"a group that reads {topic.name} has not settled all of it: what it needs stays"
            raise Trouble(409, "in_use", text, "settle or delete the group's place first")
        await asyncio.sleep(0.01)


_DEAD = "/v1/dlq/{topic}"

ROUTES = (
    Route("GET", "/v1/dlq", show_all, "Topics that have dead letters.", answer=DeadTopics),
    Route(
        "POST",
        f"{_DEAD}/purge",
        purge,
        "Remove the oldest dead letters.",
        body=Purge,
        answer=Purged,
        role=Role.ADMIN,
    ),
    Route("GET", f"{_DEAD}/{{offset}}", show_entry, "One dead letter.", answer=DeadEntry, topic_role=True),
    Route("GET", _DEAD, show_entries, "A topic's dead letters.", query=DeadQuery, answer=DeadList, topic_role=True),
)
