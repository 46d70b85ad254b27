"""Publishing and browsing messages over HTTP.

Promises  a published message is stored when it is answered; one with an idempotency key is stored once, also across
          restarts (I-ONCE): the key is the id of a producer that sends one batch. A browse reads in bounded pieces.
Never     re-encodes what is stored.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import AsyncIterator, Callable, Container, Iterator, Sequence
from hashlib import blake2b
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct

from dovetail.core import batch, inputs, names
from dovetail.core.access import Role
from dovetail.core.codes import Priority
from dovetail.core.effects import Appended
from dovetail.core.frames import batch_bytes_max
from dovetail.core.journal_format import Entry
from dovetail.core.names import BadName
from dovetail.core.state import Log, Topic
from dovetail.runtime.client.partitioning import murmur3
from dovetail.runtime.http.errors import QUOTA, Trouble
from dovetail.runtime.http.gate import Gate, logs_of, stored_end
from dovetail.runtime.http.models import (
    BrowseQuery,
    MessageList,
    MessageView,
    NewMessage,
    NewMessages,
    PriorityName,
    Published,
    PublishedMany,
)
from dovetail.runtime.http.routing import Call, Nothing, Pieces, Route
from dovetail.runtime.http.texts import as_ms, as_time_ms
from dovetail.runtime.storage.codecs import CODECS

READ_BYTES = 256 << 10
SLICE = 32
SLICE_BYTES = 32 << 10
"""What is made ready at a time: so many messages, or fewer large ones. A large browse delays nobody."""
LOOKS = 256
"""Records that are looked at meanwhile, where a batch begins before what is asked for."""
T = TypeVar("T")
LANES: tuple[PriorityName, ...] = ("critical", "high", "normal", "low", "background")
PRIORITIES: dict[str, Priority] = {name: Priority(number) for number, name in enumerate(LANES, 1)}


class _Load(Struct, frozen=True):
    """Messages that go into one batch."""

    partition: int
    delay_ms: int
    ttl_ms: int
    priority: int


async def publish(gate: Gate, call: Call[Nothing, NewMessage]) -> Published:
    """Store one message."""
    key = call.headers.get("Idempotency-Key", "") or call.body.idempotency_key
    return (await _publish(gate, call.path["topic"], [call.body], key))[0]


async def publish_batch(gate: Gate, call: Call[Nothing, NewMessages]) -> PublishedMany:
    """Store many messages."""
    key = call.headers.get("Idempotency-Key", "") or call.body.idempotency_key
    return PublishedMany(await _publish(gate, call.path["topic"], call.body.messages, key))


async def _publish(gate: Gate, text: str, messages: list[NewMessage], key: str) -> list[Published]:
    try:
        topic = names.topic_name(text)
    except BadName as error:
        raise Trouble(422, "invalid", str(error)) from None
    loads: dict[_Load, list[int]] = {}
    records: list[batch.NewRecord] = []
    for place, message in enumerate(messages):
        load = _load_of(gate, topic, message, key)
        loads.setdefault(load, []).append(place)
        records.append(_record(gate, message))
    asks = [
        _send(gate, topic, load, [records[place] for place in places], f"{key}\0{load}" if key else "")
        for load, places in loads.items()
    ]
    found: list[Published | None] = [None] * len(messages)
    for places, answer in zip(loads.values(), await asyncio.gather(*asks), strict=True):
        for index, place in enumerate(places):
            found[place] = _published(answer, index)
    return [each for each in found if each is not None]


def _load_of(gate: Gate, topic: str, message: NewMessage, key: str) -> _Load:
    number = gate.state.durable.topics_by_name.get(topic)
    count = gate.state.durable.topics[number].partitions if number else gate.state.settings.partitions
    partition = -1 if message.partition is None else message.partition
    if partition < 0 and message.key is not None:
        partition = murmur3(message.key.encode()) % count
    elif partition < 0 and key:
        partition = murmur3(key.encode()) % count
    priority = PRIORITIES[message.priority] if message.priority else Priority.DEFAULT
    return _Load(partition, as_ms(message.delay, "delay"), as_ms(message.ttl, "ttl"), priority)


def _record(gate: Gate, message: NewMessage) -> batch.NewRecord:
    if (message.value is None) == (message.text is None):
        raise Trouble(422, "invalid", 'a message has either "value", in base64, or "text"')
    if message.text is not None:
        value = message.text.encode("utf-8", "surrogatepass")
    else:
        try:
            value = base64.b64decode(message.value or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise Trouble(422, "invalid", f'"value" is not base64: {error}', 'use "text" for plain text') from None
    headers = tuple([(name, text.encode("utf-8", "surrogatepass")) for name, text in message.headers.items()])
    key = message.key.encode("utf-8", "surrogatepass") if message.key is not None else None
    most = gate.state.settings.message_bytes_max
    size = len(value) + len(key or b"") + sum(len(name.encode()) + len(text) for name, text in headers)
    if size > most:
        raise Trouble(413, "too_large", f"the message has {size} bytes with its key and headers, the most is {most}")
    return key, value, headers


async def _send(gate: Gate, topic: str, load: _Load, records: list[batch.NewRecord], once: str) -> Appended:
    producer = int.from_bytes(blake2b(once.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1
    who = (producer, 0, 0) if once else (-1, -1, -1)
    data = batch.build(
        records,
        timestamp_ms=time.time_ns() // 1_000_000,
        producer_id=who[0],
        producer_epoch=who[1],
        base_sequence=who[2],
    )
    most = batch_bytes_max(gate.server.config.frame_bytes_max)
    if len(data) > most:
        raise Trouble(413, "too_large", f"the messages have {len(data)} bytes together, the most is {most}")

    def make(session: int, request: int) -> inputs.Publish:
        return inputs.Publish(
            topic,
            load.partition,
            gate.node.keep(data),
            len(records),
            len(data),
            (inputs.Ask(session, request, 0, len(records)),),
            delay_ms=load.delay_ms,
            ttl_ms=load.ttl_ms,
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=who[2],
            priority=load.priority,
        )

    answer = await gate.ask(make, meanings=QUOTA)
    assert isinstance(answer, Appended)
    return answer


def _published(answer: Appended, index: int) -> Published:
    offset = answer.offset + index
    found = names.message_id(answer.topic, answer.partition, answer.lane, offset)
    return Published(found, answer.partition, offset, answer.arrival_ms)


async def browse(gate: Gate, call: Call[BrowseQuery, None]) -> Pieces:
    """A topic's stored messages, from an offset or a time on."""
    query = call.query
    topic = gate.topic(call.path["topic"])
    if query.partition >= topic.partitions:
        text = f"topic {topic.name!r} has partitions 0 to {topic.partitions - 1}, not {query.partition}"
        raise Trouble(422, "invalid", text)
    lane = PRIORITIES[query.priority or "normal"] - 1 if topic.lanes else 0
    log = gate.state.durable.logs[topic.first_log + query.partition * max(1, topic.lanes) + lane]
    offset = log.start if query.offset is None else query.offset
    if query.since is not None:
        offset = await gate.offset_at(log.id, as_time_ms(query.since, "since", time.time_ns() // 1_000_000))
    if query.wait_ms and offset >= stored_end(gate.state, log):
        await gate.ask(
            lambda session, request: inputs.Fetch(
                session, request, topic.name, query.partition, offset, 1, query.wait_ms
            )
        )
    return Pieces(_page(gate, topic, log, offset, query.limit))


async def _page(gate: Gate, topic: Topic, log: Log, offset: int, limit: int) -> AsyncIterator[bytes]:
    """A `MessageList` as JSON, piece by piece."""
    between, _, _ = msgspec.json.encode(MessageList([])).partition(b"]")
    found = False
    async for following, texts in _slices(gate, topic, log, offset, limit, msgspec.json.encode):
        yield between + texts[1:-1]
        between, found, offset = b",", True, following
    end = stored_end(gate.state, log)
    last = MessageList([], log.start, end, offset if found and offset < end else UNSET)
    _, _, after = msgspec.json.encode(last).partition(b"[")
    yield after if found else between + after


async def read_messages(gate: Gate, topic: Topic, log: Log, offset: int, limit: int) -> list[MessageView]:
    """Up to `limit` stored messages of a log from `offset` on."""
    return [each async for _, found in _slices(gate, topic, log, offset, limit, list) for each in found]


async def _slices(
    gate: Gate, topic: Topic, log: Log, offset: int, limit: int, shown: Callable[[list[MessageView]], T]
) -> AsyncIterator[tuple[int, T]]:
    """Stored messages as they are `shown`, a few at a time, each time with the offset that follows."""
    offset = max(offset, log.start)
    end = stored_end(gate.state, log)
    while offset < end and limit > 0:
        entries = await gate.entries(log.id, offset, READ_BYTES)
        if not entries:
            return
        records = _each(entries)
        more = True
        while more and limit > 0:
            async with gate.aside:
                few, more = _few(records, offset, end, min(SLICE, limit))
                ready = shown([_view(topic, log, *each) for each in few]) if few else None
            if ready is not None:
                limit -= len(few)
                offset = few[-1][1].offset + 1
                yield offset, ready
        offset = max(offset, entries[-1].last + 1)


def _each(entries: Sequence[Entry]) -> Iterator[tuple[Entry, batch.Record]]:
    return ((entry, record) for entry in entries for record in batch.each_record(entry.batch, codecs=CODECS))


def _few(
    records: Iterator[tuple[Entry, batch.Record]], offset: int, end: int, most: int
) -> tuple[list[tuple[Entry, batch.Record]], bool]:
    """At most `most` of the next records from `offset` on and before `end`, and whether there may be more."""
    found: list[tuple[Entry, batch.Record]] = []
    size = 0
    for _ in range(LOOKS):
        each = next(records, None)
        if each is None or each[1].offset >= end:
            return found, False
        if each[1].offset >= offset:
            found.append(each)
            size += len(each[1].value or b"")
            if len(found) >= most or size >= SLICE_BYTES:
                break
    return found, True


def views(topic: Topic, log: Log, entry: Entry, offsets: Container[int]) -> list[MessageView]:
    """The messages at `offsets` of one stored batch as JSON shows them."""
    records = batch.parse(entry.batch, codecs=CODECS)
    return [_view(topic, log, entry, record) for record in records if record.offset in offsets]


def _view(topic: Topic, log: Log, entry: Entry, record: batch.Record) -> MessageView:
    return MessageView(
        names.message_id(topic.name, log.partition, log.lane if topic.lanes else -1, record.offset),
        topic.name,
        log.partition,
        record.offset,
        entry.record.arrival_ms,
        record.key.decode("utf-8", "replace") if record.key is not None else None,
        base64.b64encode(record.value or b"").decode(),
        {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers},
        LANES[log.lane] if topic.lanes else None,
    )


def log_at(gate: Gate, topic: Topic, partition: int, lane: int) -> Log | None:
    """The log of a topic's partition and lane, if there is one."""
    for log in logs_of(gate.state, topic):
        if log.partition == partition and (log.lane == lane or not topic.lanes):
            return log
    return None


ROUTES = (
    Route(
        "POST",
        "/v1/topics/{topic}/publish",
        publish,
        "Publish a message; answered when it is stored.",
        body=NewMessage,
        answer=Published,
        status=201,
        role=Role.WRITE,
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/publish/batch",
        publish_batch,
        "Publish many messages; answered when all are stored.",
        body=NewMessages,
        answer=PublishedMany,
        status=201,
        role=Role.WRITE,
    ),
    Route(
        "GET",
        "/v1/topics/{topic}/messages",
        browse,
        "Stored messages from an offset or a time on, without a group.",
        query=BrowseQuery,
        answer=MessageList,
    ),
)
