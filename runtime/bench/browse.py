"""What publishers feel while somebody browses a topic over HTTP, page after page: admin work must not delay messages.

Promises  publish latency with and without browsing, measured in turns against one broker, so that what else the machine
          does falls on both; the browser is a process of its own.
Never     judges: it prints both.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import msgspec
from msgspec import Struct

from dovetail.runtime.bench.processes import server
from dovetail.runtime.client import connect

TOPIC = "browsed"
PAGE = 1_000
VALUE = b"x" * 1_024


class Felt(Struct, frozen=True):
    """Publish latencies in milliseconds, of so many publishes, and pages browsed meanwhile."""

    publishes: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    pages: int


class Browsed(Struct, frozen=True):
    """The same broker with nobody browsing, and with somebody who browses as fast as it goes."""

    kept: int
    alone: Felt
    browsing: Felt


def run(messages: int, seconds: float, rounds: int, data: Path | None, say: Callable[[str], None]) -> Browsed:
    """Fill a topic with `messages`, then publish for `seconds` without and with a browser, `rounds` times."""
    with tempfile.TemporaryDirectory(prefix="dovetail-browse-", dir=data) as place:
        http = f"127.0.0.1:{_free_port()}"
        words = ["-m", "dovetail", "serve", "--data", f"{place}/data", "--listen", "127.0.0.1:0", "--http", http]
        with server([*words, "--log-format", "json"], Path(place)) as broker:
            return asyncio.run(_measure(broker.port, f"http://{http}", messages, seconds, rounds, say))


async def _measure(
    port: int, api: str, messages: int, seconds: float, rounds: int, say: Callable[[str], None]
) -> Browsed:
    alone: list[float] = []
    browsing: list[float] = []
    pages = 0
    context = multiprocessing.get_context("spawn")
    go, over = context.Event(), context.Event()
    mine, theirs = context.Pipe()
    browser = context.Process(target=_browse, args=(api, go, over, theirs), daemon=True)
    async with connect(f"127.0.0.1:{port}") as client:
        say(f"filling a topic with {messages:,} messages")
        async with client.producer(TOPIC) as producer:
            for _ in range(messages):
                await producer.send(VALUE)
        browser.start()
        try:
            await asyncio.to_thread(mine.recv)
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                alone += await _publish(client.publish, seconds)
                go.set()
                browsing += await _publish(client.publish, seconds)
                go.clear()
                pages += await asyncio.to_thread(mine.recv)
        finally:
            over.set()
            go.set()
            browser.join(10)
            browser.kill()
    return Browsed(messages, _felt(alone, 0), _felt(browsing, pages))


async def _publish(publish: Callable[[str, bytes], Awaitable[object]], seconds: float) -> list[float]:
    """One publish after the other; how long each took, in seconds."""
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end or not took:
        await publish("measured", VALUE)
        took.append(time.perf_counter() - begun)
    return took


def _felt(took: list[float], pages: int) -> Felt:
    ordered = sorted(took)

    def at(part: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000, 3)

    return Felt(len(took), at(0.5), at(0.99), at(1.0), pages)


def _browse(api: str, go: Event, over: Event, line: Connection) -> None:
    """Read the topic page by page while `go` is set; say how many pages after each turn."""
    line.send(0)
    offset = 0
    while not over.is_set():
        go.wait()
        pages = 0
        while go.is_set() and not over.is_set():
            url = f"{api}/v1/topics/{TOPIC}/messages?limit={PAGE}&offset={offset}"
            with urllib.request.urlopen(url, timeout=60) as answer:
                offset = msgspec.json.decode(answer.read()).get("next", 0)
            pages += 1
        line.send(pages)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port
