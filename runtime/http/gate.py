"""The way from HTTP into the node: requests as a local session, reads of the immutable state, stored bytes.

Promises  asks like any other client; long walks over the state give the loop back every few hundred steps.
Never     changes the state: it submits inputs.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from dovetail.core import inputs, names
from dovetail.core.effects import Answer, Refused
from dovetail.core.journal_format import Entry
from dovetail.core.names import BadName
from dovetail.core.node import Local, Node
from dovetail.core.state import Group, Log, State, Topic
from dovetail.runtime.http.aside import Aside
from dovetail.runtime.http.consumers import Consumers
from dovetail.runtime.http.errors import Trouble, refused
from dovetail.runtime.http.history import EVERY_S, History
from dovetail.runtime.process import resident_bytes
from dovetail.runtime.security import Bucket
from dovetail.runtime.storage.real_disk import space_of

if TYPE_CHECKING:
    from dovetail.core.codes import Status
    from dovetail.runtime.http.models import ComponentView
    from dovetail.runtime.server import Server

T = TypeVar("T")
Make = Callable[[int, int], inputs.AnyInput]
"""Makes an input of a session and the number of its request."""
ANSWER_SECONDS_MAX = 60.0
TIME_READ_BYTES = 1 << 20
PACE = 256
"""Steps of a long walk between two chances for everybody else."""


class Gate:
    """One for the whole HTTP side."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.local = server.node.open_local("http")
        self.consumers = Consumers()
        self.history = History(server.metrics)
        self.started = time.monotonic()
        self.limits: dict[tuple[str, int], Bucket] = {}
        """By the name of a token and its rate: another rate begins anew."""
        self.aside = Aside(lambda: server.metrics.steps)
        self.deep_look: asyncio.Future[ComponentView] | None = None
        """The last deep look at the broker's health."""

    @property
    def node(self) -> Node:
        return self.server.node

    @property
    def state(self) -> State:
        """The state as it is now: immutable, so a handler may look at it across awaits."""
        return self.server.node.state

    async def ask(
        self,
        make: Make,
        *,
        local: Local | None = None,
        meanings: dict[Status, tuple[int, str]] | None = None,
    ) -> Answer:
        """The answer to `make(session, request)`; a refusal is raised as `Trouble`."""
        who = local or self.local
        if who.closing:
            raise Trouble(409, "session_over", who.ended or "the session is over", "join again")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def then(answer: Answer, entries: tuple[Entry, ...]) -> None:
            if not future.done():
                future.set_result(answer)

        self.submit(make(who.session, who.register(then)))
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                answer = await future
        except TimeoutError:
            text = f"the broker did not answer within {ANSWER_SECONDS_MAX:.0f} s; whether it was done is not known"
            raise Trouble(503, "unavailable", text, "look at /health", retry_after_ms=1_000) from None
        if isinstance(answer, Refused):
            raise refused(answer, meanings)
        return answer

    def submit(self, *said: inputs.AnyInput) -> None:
        """Inputs whose answer nobody waits for."""
        for each in said:
            self.node.submit(each)
        self.server.wake()

    async def entries(self, log: int, offset: int, bytes_max: int) -> tuple[Entry, ...]:
        """Stored entries of a log from `offset` on: at least one, if there is any."""
        future: asyncio.Future[tuple[Entry, ...]] = asyncio.get_running_loop().create_future()
        self.node.read(log, offset, bytes_max, lambda found: None if future.done() else future.set_result(found))
        self.server.wake()
        return await future

    async def offset_at(self, log: int, arrival_ms: int) -> int:
        """The first offset of a log that arrived at or after a time."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.node.find_time(log, arrival_ms, lambda found: None if future.done() else future.set_result(found))
        self.server.wake()
        found = await future
        offset = found if isinstance(found, int) else 0
        # The newest messages are not in the files yet: what is found there is where to go on in memory.
        while entries := await self.entries(log, offset, TIME_READ_BYTES):
            for entry in entries:
                if entry.record.arrival_ms >= arrival_ms:
                    return max(offset, entry.base)
            offset = entries[-1].last + 1
        return offset

    async def keep_time(self) -> None:
        """Feed the history; runs until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += EVERY_S
            await asyncio.sleep(max(0.0, due - loop.time()))
            if loop.time() - due > EVERY_S:
                due = loop.time()
            self.history.tick(self.state, time.time_ns() // 1_000_000, self.server.connection_count)

    @property
    def disk_used_ratio(self) -> float:
        """The part of the disk that is in use."""
        space = space_of(self.server.config.data)
        return 1 - space.free_bytes / max(1, space.total_bytes)

    def gauges(self) -> dict[str, float]:
        """What only HTTP knows, for the metrics."""
        return {
            "loop_lag_seconds": self.server.late_ms / 1000,
            "uptime_seconds": time.monotonic() - self.started,
            "disk_used_ratio": self.disk_used_ratio,
            "journal_bytes": self.server.journal_bytes,
            "recovery_seconds": self.server.recovery_s,
            "quarantined_files": self.server.opened.quarantined,
            "read_only": 1 if self.state.live.read_only else 0,
            "process_cpu_seconds_total": time.process_time(),
            "process_resident_bytes": resident_bytes(),
            "process_memory_limit_bytes": self.server.memory_bytes,
            "checkpoint_age_seconds": self.server.checkpoint_age_ms / 1000,
            "http_connections": self.server.http_connection_count,
            "level": self.server.levels.level,
            "process_open_files": _open_files(),
            "gc_collections_total": gc.get_stats()[-1]["collections"],
        }

    def topic(self, text: str) -> Topic:
        """The topic called `text`; a `Trouble` if there is none."""
        try:
            name = names.topic_name(text)
        except BadName as error:
            raise Trouble(422, "invalid", str(error)) from None
        number = self.state.durable.topics_by_name.get(name)
        if number is None:
            raise Trouble(404, "not_found", f"topic {name!r} does not exist", "GET /v1/topics lists those there are")
        return self.state.durable.topics[number]

    def group(self, name: str) -> Group:
        """The group called `name`; a `Trouble` if there is none."""
        number = self.state.durable.groups_by_name.get(name)
        if number is None:
            raise Trouble(404, "not_found", f"group {name!r} does not exist", "GET /v1/groups lists those there are")
        return self.state.durable.groups[number]


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def logs_of(state: State, topic: Topic) -> list[Log]:
    """A topic's logs, partition by partition, lane by lane."""
    return [state.durable.logs[topic.first_log + each] for each in range(topic.log_count)]


def stored_end(state: State, log: Log) -> int:
    """Where what may be shown of a log ends."""
    tail = state.live.tails.get(log.id)
    return tail.stored if tail is not None else log.end


async def paced(many: Iterable[T]) -> AsyncIterator[T]:
    """`many`, giving the loop back now and then: admin work never delays messages."""
    for count, each in enumerate(many, 1):
        yield each
        if count % PACE == 0:
            await asyncio.sleep(0)
