"""`dovetail publish` and `dovetail consume`: messages in from the shell, and out to it."""

from __future__ import annotations

import asyncio
import base64
import os
import stat
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli import complete
from dovetail.cli.output import URL, Json, Url, fail, print_json, reach, run
from dovetail.core import names
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.core.batch import Record
    from dovetail.runtime.client import Client, Message, Receipt

FETCH_BYTES = 1 << 20
FOLLOW_MS = 1_000
LINE_BYTES_MAX = 16 << 20
Separator = Annotated[
    str, typer.Option("--key-separator", "-K", help="What divides a line's key from its message, for example ':'.")
]
Show = Callable[[dict[str, Any], bytes | None, bytes], None]


class Lane(StrEnum):
    """A message's priority."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    BACKGROUND = "background"


def publish(
    topic: Annotated[str, typer.Argument(help="The topic; made on first use.", autocompletion=complete.topics)],
    value: Annotated[
        str | None, typer.Argument(help="The message. Without it, or as -, each line of stdin is one.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Messages of one key keep their order.")] = None,
    key_separator: Separator = "",
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
        run(_publish_lines(url, topic, options, key_separator.encode(), json))


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


async def _publish_lines(url: str, topic: str, options: dict[str, Any], separator: bytes, json: bool) -> None:
    from dovetail.runtime.client import Disconnected

    count = failed = 0
    first: BaseException | None = None

    def note(future: asyncio.Future[Receipt]) -> None:
        nonlocal failed, first
        if not future.cancelled() and (error := future.exception()) is not None:
            failed += 1
            first = first or error

    async with reach(url) as client, client.producer(topic) as producer:
        async for line in _lines():
            key, divided, value = line.rstrip(b"\r\n").partition(separator) if separator else (b"", b"", b"")
            said = {**options, "key": key} if divided else options
            future = await producer.send(value if divided else line.rstrip(b"\r\n"), **said)
            future.add_done_callback(note)
            count += 1
    if failed:
        code = Exit.UNAVAILABLE if isinstance(first, Disconnected) else Exit.FAILED
        fail(f"{failed} of {count} messages were not published to {topic}; the first: {first}", code)
    if json:
        print_json({"topic": topic, "published": count})
    else:
        typer.echo(f"{count} messages published to {topic}")


async def _lines() -> AsyncIterator[bytes]:
    """Standard input, line by line. A pipe is not waited for: what came before has to leave meanwhile."""
    source = sys.stdin.buffer
    try:
        is_pipe = not stat.S_ISREG(os.fstat(source.fileno()).st_mode) and (
            source.isatty() or not stat.S_ISCHR(os.fstat(source.fileno()).st_mode)
        )
    except OSError:  # no file of the system's, as in a test
        is_pipe = False
    if not is_pipe:
        for line in source:
            yield line
        return
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        while line := await reader.readline():
            yield line
        transport.close()
    finally:
        # Others have this end of a terminal too, and expect to wait for it.
        with suppress(OSError, ValueError):
            os.set_blocking(source.fileno(), True)


def consume(
    pattern: Annotated[
        str,
        typer.Argument(
            help="A topic, or a pattern: * is one level, # at the end any number.", autocompletion=complete.topics
        ),
    ],
    group: Annotated[
        str, typer.Option(help="Share the messages with the other members.", autocompletion=complete.groups)
    ] = "",
    start: Annotated[
        str,
        typer.Option(
            "--from", help="earliest, latest, an offset, a time (ISO 8601) or how long ago (5m); moves a group there."
        ),
    ] = "",
    count: Annotated[int, typer.Option(min=0, help="End after so many; 0: when interrupted.")] = 0,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="End when what is there now was printed; without a group.")
    ] = False,
    key_separator: Separator = "",
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
    if until_end and group:
        fail("--until-end is for reading without a group: others may settle what is left of it", Exit.USAGE)
    if until_end and place is None:
        place = ("earliest", 0)
    show = partial(_print, json=json, separator=key_separator.encode())
    if place is None or group:
        run(_consume(url, pattern, group, place, count, ack, show))
    else:
        run(_read(url, pattern, place, count, until_end, show))


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


async def _consume(url: str, pattern: str, group: str, place: Place | None, count: int, ack: bool, show: Show) -> None:
    async with reach(url) as client:
        if place is not None:
            await _move_group(client, pattern, group, place)
        printed = 0
        inflight = min(count, 100) if count else 100
        async with client.subscribe(pattern, group=group, max_inflight=inflight) as messages:
            async for message in messages:
                show(_from_message(message), message.key, message.value)
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


Log = tuple[str, int, int]
"""A topic, a partition, and a lane: -1 where there are none."""


async def _read(url: str, pattern: str, place: Place, count: int, until_end: bool, show: Show) -> None:
    """Read logs without a group, from somewhere on, and follow them, or end where they end now."""
    printed = 0
    async with reach(url) as client, aclosing(_follow(client, pattern, place, until_end)) as records:
        async for log, record in records:
            show(_from_record(log, record), record.key, record.value or b"")
            printed += 1
            if printed == count:
                return


async def _follow(
    client: Client, pattern: str, place: Place, until_end: bool
) -> AsyncGenerator[tuple[Log, Record], None]:
    from dovetail.core import batch
    from dovetail.core.wire import Fetch, FetchAnswer
    from dovetail.runtime.storage.codecs import CODECS

    kind, value = place
    after_ms = value if kind == "time" else 0
    next_offsets: dict[Log, int] = {}
    ends: dict[Log, int] = {}
    while True:
        topics = await client.topics(pattern)
        if not topics:
            fail(f"no topic matches {pattern!r}; `dovetail topic list` shows those there are")
        logs = {(topic.name, log.partition, log.lane - 1): log for topic in topics for log in topic.partitions}
        ends = ends or {where: log.end for where, log in logs.items()}
        idle = True
        for where, log in logs.items():
            begin = {"offset": max(value, log.start), "latest": log.end}.get(kind, log.start)
            offset = next_offsets.setdefault(where, begin)
            if until_end and offset >= ends.get(where, 0):
                continue
            wait_ms = FOLLOW_MS // len(logs) if offset >= log.end else 0
            topic, partition, lane = where
            request = Fetch(topic, partition, offset, FETCH_BYTES, wait_ms, lane + 1)
            answer = await client.call(request, FetchAnswer)
            for _, data in batch.split(answer.batches):
                for record in batch.parse(data, codecs=CODECS):
                    if record.offset < next_offsets[where]:
                        continue
                    idle = False
                    next_offsets[where] = record.offset + 1
                    if record.timestamp_ms >= after_ms and (not until_end or record.offset < ends.get(where, 0)):
                        yield where, record
        if until_end and (idle or all(next_offsets[where] >= end for where, end in ends.items() if where in logs)):
            return
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


def _from_record(log: Log, record: Record) -> dict[str, Any]:
    topic, partition, lane = log
    return {
        "message_id": names.message_id(topic, partition, lane, record.offset),
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "headers": {name: (value or b"").decode(errors="backslashreplace") for name, value in record.headers},
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _print(about: dict[str, Any], key: bytes | None, value: bytes, *, json: bool, separator: bytes) -> None:
    if json:
        print_json({**about, "value": base64.b64encode(value).decode()})
        return
    sys.stdout.buffer.write(((key or b"") + separator if separator else b"") + value + b"\n")
    sys.stdout.buffer.flush()
