"""`dovetail publish` and `dovetail consume`: messages in from the shell, and out to it."""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli.output import URL, Json, Url, fail, print_json, reach, run
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.core.batch import Record
    from dovetail.runtime.client import Client, Message, Receipt

FETCH_BYTES = 1 << 20
FOLLOW_MS = 1_000


class Lane(StrEnum):
    """A message's priority."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    BACKGROUND = "background"


def publish(
    topic: Annotated[str, typer.Argument(help="The topic; made on first use.")],
    value: Annotated[
        str | None, typer.Argument(help="The message. Without it, or as -, each line of stdin is one.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Messages of one key keep their order.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be repeated.")] = None,
    delay: Annotated[str, typer.Option(help="Deliver it after this long, for example 5s or 1d.")] = "0s",
    ttl: Annotated[str, typer.Option(help="Forget it if not delivered by then, for example 60s.")] = "0s",
    priority: Annotated[Lane, typer.Option(help="Its lane, in a topic that has them.")] = Lane.NORMAL,
    partition: Annotated[int | None, typer.Option(min=0, help="Into this partition.")] = None,
    url: Url = URL,
    json: Json = False,
) -> None:
    """Publish a message, or each line of standard input. Ends when the broker has stored them all."""
    headers = dict(_headers(header or []))
    _check_duration("--delay", delay)
    _check_duration("--ttl", ttl)
    options = {
        "key": key,
        "headers": headers,
        "delay": delay,
        "ttl": ttl,
        "priority": priority.value,
        "partition": partition,
    }
    if value is not None and value != "-":
        run(_publish_one(url, topic, value, options, json))
    else:
        run(_publish_lines(url, topic, options, json))


def _check_duration(option: str, text: str) -> None:
    """A wrong duration is wrong usage: said before anything is sent."""
    from dovetail.runtime.client.durations import milliseconds

    try:
        milliseconds(text)
    except ValueError as error:
        fail(f"{option}: {error}", Exit.USAGE)


def _headers(texts: list[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            fail(f"--header {text!r} is not NAME=VALUE", Exit.USAGE)
        yield name, value


async def _publish_one(url: str, topic: str, value: str, options: dict[str, Any], json: bool) -> None:
    async with reach(url) as client:
        receipt = await client.publish(topic, value, **options)
    if json:
        print_json(receipt)
    else:
        typer.echo(receipt.message_id)


async def _publish_lines(url: str, topic: str, options: dict[str, Any], json: bool) -> None:
    from dovetail.runtime.client import Disconnected

    count = failed = 0
    first: BaseException | None = None

    def note(future: asyncio.Future[Receipt]) -> None:
        nonlocal failed, first
        if not future.cancelled() and (error := future.exception()) is not None:
            failed += 1
            first = first or error

    async with reach(url) as client, client.producer(topic) as producer:
        for line in sys.stdin.buffer:
            future = await producer.send(line.rstrip(b"\r\n"), **options)
            future.add_done_callback(note)
            count += 1
    if failed:
        code = Exit.UNAVAILABLE if isinstance(first, Disconnected) else Exit.FAILED
        fail(f"{failed} of {count} messages were not published to {topic}; the first: {first}", code)
    if json:
        print_json({"topic": topic, "published": count})
    else:
        typer.echo(f"{count} messages published to {topic}")


def consume(
    pattern: Annotated[str, typer.Argument(help="A topic, or a pattern: * is one level, # at the end any number.")],
    group: Annotated[str, typer.Option(help="Share the messages with the other members of this group.")] = "",
    start: Annotated[
        str,
        typer.Option(
            "--from", help="earliest, latest, an offset, a time (ISO 8601) or how long ago (5m); moves a group there."
        ),
    ] = "",
    count: Annotated[int, typer.Option(min=0, help="End after so many; 0: when interrupted.")] = 0,
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="Acknowledge what was printed.")] = True,
    url: Url = URL,
    json: Json = False,
) -> None:
    """Print messages as they come, one a line. Without a group: a copy of everything from now on."""
    from dovetail.core import names

    try:
        names.pattern(pattern)
    except names.BadName as error:
        fail(f"{pattern!r} is no pattern: {error}", Exit.USAGE)
    place = _place(start)
    if place is None or group:
        run(_consume(url, pattern, group, place, count, ack, json))
    else:
        run(_read(url, pattern, place, count, json))


Place = tuple[str, int]
"""("earliest" | "latest" | "offset" | "time", value)"""


def _place(text: str) -> Place | None:
    from dovetail.runtime.client.durations import seconds

    if not text:
        return None
    if text in ("earliest", "latest"):
        return text, 0
    if text.isdecimal():
        return "offset", int(text)
    try:
        return "time", int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except ValueError:
        pass
    try:
        return "time", int((time.time() - seconds(text)) * 1000)
    except ValueError:
        fail(f"--from {text!r} is not earliest, latest, an offset, a time like 2026-01-31T12:00 or 5m", Exit.USAGE)


async def _consume(url: str, pattern: str, group: str, place: Place | None, count: int, ack: bool, json: bool) -> None:
    async with reach(url) as client:
        if place is not None:
            await _move_group(client, pattern, group, place)
        printed = 0
        inflight = min(count, 100) if count else 100
        async with client.subscribe(pattern, group=group, max_inflight=inflight) as messages:
            async for message in messages:
                _print(_from_message(message), message.value, json)
                if ack:
                    await message.ack()
                printed += 1
                if printed == count:
                    return


async def _move_group(client: Client, pattern: str, group: str, place: Place) -> None:
    """Set a group's place in every log that the pattern matches, before anything is read."""
    from dovetail.core.codes import Whence
    from dovetail.core.wire import Seek, SeekAnswer

    async with client.subscribe(pattern, group=group, max_inflight=1):
        pass
    whence = {"earliest": Whence.EARLIEST, "latest": Whence.LATEST, "offset": Whence.OFFSET, "time": Whence.TIME}
    kind, value = place
    for topic in await client.topics(pattern):
        for log in topic.partitions:
            request = Seek(group, topic.name, log.partition, whence[kind], value)
            await client.call(request, SeekAnswer)


async def _read(url: str, pattern: str, place: Place, count: int, json: bool) -> None:
    """Read logs without a group, from somewhere on, and follow them."""
    printed = 0
    async with reach(url) as client, aclosing(_follow(client, pattern, place)) as records:
        async for topic, partition, record in records:
            _print(_from_record(topic, partition, record), record.value or b"", json)
            printed += 1
            if printed == count:
                return


async def _follow(client: Client, pattern: str, place: Place) -> AsyncGenerator[tuple[str, int, Record], None]:
    from dovetail.core import batch
    from dovetail.core.wire import Fetch, FetchAnswer
    from dovetail.runtime.storage.codecs import CODECS

    kind, value = place
    after_ms = value if kind == "time" else 0
    next_offsets: dict[tuple[str, int], int] = {}
    while True:
        topics = await client.topics(pattern)
        if not topics:
            fail(f"no topic matches {pattern!r}; `dovetail topic list` shows those there are")
        idle = True
        logs = [(topic.name, log) for topic in topics for log in topic.partitions]
        for name, log in logs:
            begin = {"earliest": log.start, "time": log.start, "latest": log.end}.get(kind, value)
            offset = next_offsets.setdefault((name, log.partition), begin)
            wait_ms = FOLLOW_MS // len(logs) if offset >= log.end else 0
            request = Fetch(name, log.partition, offset, FETCH_BYTES, wait_ms)
            answer = await client.call(request, FetchAnswer)
            for _, data in batch.split(answer.batches):
                for record in batch.parse(data, codecs=CODECS):
                    if record.offset >= offset and record.timestamp_ms >= after_ms:
                        idle = False
                        next_offsets[name, log.partition] = record.offset + 1
                        yield name, log.partition, record
        if idle:
            await asyncio.sleep(0.05)


def _from_message(message: Message) -> dict[str, Any]:
    return {
        "message_id": message.id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        "key": _text(message.key),
        "headers": message.headers,
        "attempt": message.attempt,
    }


def _from_record(topic: str, partition: int, record: Record) -> dict[str, Any]:
    return {
        "message_id": f"{topic}:{partition}:{record.offset}",
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "headers": {name: (value or b"").decode(errors="backslashreplace") for name, value in record.headers},
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _print(about: dict[str, Any], value: bytes, json: bool) -> None:
    if json:
        print_json({**about, "value": base64.b64encode(value).decode()})
    else:
        sys.stdout.buffer.write(value + b"\n")
        sys.stdout.buffer.flush()
