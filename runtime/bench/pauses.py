"""How long the loop of a real broker stands still while it takes a checkpoint of many leases.

Promises  the broker is a process of its own, tuned as `dovetail serve` tunes it; its members hold single messages, each
          the neighbour of a settled one, so that every lease is a gap in what the checkpoint writes; the longest time
          between two turns of the loop is what is measured, by the clock and in processor time of the loop's thread.
Never     counts what happens before or after a checkpoint.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import selectors
import tempfile
import time
from collections.abc import Coroutine
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from dovetail.core import batch, frames, wire
from dovetail.core.codes import Acks, SettleAction
from dovetail.core.frames import FrameType
from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from dovetail.runtime.bench.loads import Place
from dovetail.runtime.bench.processes import ANSWER_S, BenchFailed
from dovetail.runtime.bench.raw import Line, expect_success
from dovetail.runtime.config import Config
from dovetail.runtime.process import tune
from dovetail.runtime.server import Server

T = TypeVar("T")

TOPIC = "bench"
PARTITIONS = 20
MEMBERS = 4
CREDIT = 65_535
STEP_MESSAGES = 400
"""Published and delivered before more are."""
LEASES_MAX = MEMBERS * CREDIT // 2
HOUR_MS = 3_600_000


class Pause(Struct, frozen=True):
    """The longest pause of the loop during one checkpoint, in milliseconds."""

    clock_ms: float
    processor_ms: float
    took_ms: float
    """How long the checkpoint took in all."""


class Pauses(Struct, frozen=True):
    """What was measured: one pause a checkpoint."""

    leases: int
    idle: Pause
    """The same probe, for as long, while nothing is done: what machine and probe cause themselves."""
    checkpoints: tuple[Pause, ...]


def run(leases: int, rounds: int, directory: Path | None = None) -> Pauses:
    """Measure `rounds` checkpoints of a broker whose members hold `leases` leases."""
    if not 0 < leases <= LEASES_MAX:
        raise BenchFailed(f"--leases takes a number from 1 to {LEASES_MAX:,}: members can hold no more")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-", dir=directory) as scratch:
        pipe, other = context.Pipe()
        process = context.Process(target=_serve, args=(other, f"{scratch}/data"), daemon=True)
        process.start()
        other.close()
        try:
            lines = _hold(Place(_answer(pipe, int), TOPIC), leases)
            pipe.send(rounds)
            measured = [_answer(pipe, Pause) for _ in range(rounds + 1)]
            for line in lines:
                line.socket.close()
        finally:
            process.kill()
            process.join()
    return Pauses(leases, measured[0], tuple(measured[1:]))


def _answer(pipe: Connection, kind: type[T]) -> T:
    if not pipe.poll(ANSWER_S):
        raise BenchFailed(f"the broker gave no sign of life for {ANSWER_S:g} s")
    try:
        answer = pipe.recv()
    except EOFError:
        raise BenchFailed("the broker ended before it was measured") from None
    assert isinstance(answer, kind), answer
    return answer


def _hold(place: Place, leases: int) -> list[Line]:
    """Publish twice as many messages as leases are wanted, settle every second one, and keep the others."""
    publisher = Line(place, "publisher")
    members = [Line(place, f"member-{number}") for number in range(MEMBERS)]
    for member in members:
        member.ask(wire.Subscribe(TOPIC, "holders", CREDIT))
    selector = selectors.DefaultSelector()
    for line in (publisher, *members):
        selector.register(line.socket, selectors.EVENT_READ, line)
    data = batch.build([(None, b"x", ())], timestamp_ms=0)
    for start in range(0, 2 * leases, STEP_MESSAGES):
        numbers = range(start, min(start + STEP_MESSAGES, 2 * leases))
        publisher.send(b"".join(_produce(number, data) for number in numbers))
        confirmed = delivered = settled = 0
        while min(confirmed, delivered) < len(numbers) or settled < len(numbers) // 2:
            for key, _ in selector.select(ANSWER_S):
                for frame in key.data.read():
                    if frame.type == FrameType.DELIVER:
                        delivered += _settle_every_second(key.data, wire.decode_deliver(frame.payload))
                    else:
                        expect_success(frame)
                        confirmed += key.data is publisher
                        settled += key.data is not publisher
    return [publisher, *members]


def _produce(number: int, data: bytes) -> bytes:
    # Neighbours differ in their time to live, so that each is delivered, and leased, alone.
    ttl_ms = HOUR_MS * (1 + number // PARTITIONS % 2)
    request = wire.Produce(TOPIC, number % PARTITIONS, Acks.STORED, 0, ttl_ms, data)
    return frames.encode(FrameType.PRODUCE, request.encode())


def _settle_every_second(member: Line, delivered: wire.Deliver) -> int:
    count = 0
    for first, last in delivered.ranges:
        for offset in range(first, last + 1):
            count += 1
            if offset % 2:
                item = wire.SettleItem(delivered.lease, SettleAction.ACK, offset, offset)
                member.send(frames.encode(FrameType.SETTLE, wire.Settle((item,)).encode()))
    return count


def _serve(pipe: Connection, data: str) -> None:
    asyncio.run(_measure(pipe, data))


async def _measure(pipe: Connection, data: str) -> None:
    leases = TopicConfig(lease_ms=HOUR_MS, lease_max_ms=HOUR_MS)
    settings = Settings(partitions=PARTITIONS, session_timeout_ms=HOUR_MS, topic_defaults=leases)
    config = Config(data=data, listen="127.0.0.1:0", http="", settings=settings, checkpoint_ms=HOUR_MS)
    server = await Server.start(config)
    tune()
    pipe.send(server.port)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    loop.add_reader(pipe.fileno(), asked.set)
    await asked.wait()
    loop.remove_reader(pipe.fileno())
    rounds = pipe.recv()
    await server.until_quiet()
    pipe.send(await _longest_pause(asyncio.sleep(1)))
    for _ in range(rounds):
        server.ask_checkpoint()
        pipe.send(await _longest_pause(server.until_quiet()))


async def _longest_pause(work: Coroutine[object, object, object]) -> Pause:
    """Until `work` is done, the longest time between two turns of the loop."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    begun = clock = time.perf_counter()
    processor = time.thread_time()
    longest_clock = longest_processor = 0.0

    def look() -> None:
        nonlocal clock, processor, longest_clock, longest_processor
        now, used = time.perf_counter(), time.thread_time()
        longest_clock = max(longest_clock, now - clock)
        longest_processor = max(longest_processor, used - processor)
        clock, processor = now, used
        if not task.done():
            loop.call_soon(look)

    look()
    await task
    return Pause(longest_clock * 1e3, longest_processor * 1e3, (time.perf_counter() - begun) * 1e3)
