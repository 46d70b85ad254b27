"""A running broker's events, handed to a process of their own that makes a trace of them: `serve --trace DIR`.

What a step took in and gave out is encoded and written into a pipe; the process at its other end makes rows and files
of it, at its own pace and on a core of its own (`dovetail/tracing.py`).

Promises  a message waits for nothing here: where the other end does not keep up, steps are left out, counted and said;
          memory is a pipe and `BUFFER_BYTES_MAX`. What is in the pipe outlives the broker.
Never     sees a payload, decides anything, or ends the broker when tracing ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Sequence

import msgspec
import structlog
from msgspec import Struct

from dovetail.core import inputs
from dovetail.core.effects import (
    AnyEffect,
    Appended,
    Assign,
    CloseSession,
    Deliver,
    Done,
    Fetched,
    Joined,
    LeaseEnded,
    Overtaken,
    Refused,
    Reply,
    Revoke,
    Settlement,
    Sought,
    Subscribed,
)
from dovetail.core.ids import Now, ordered
from dovetail.core.inputs import AnyInput
from dovetail.core.records import AnyRecord, DeadLettered
from dovetail.core.state import Durable

log = structlog.get_logger("tracing")

BUFFER_BYTES_MAX = 4 << 20
PIPE_BYTES = 1 << 20
FLUSH_BYTES = 32 << 10
FLUSH_S = 0.1
"""How long an event may lie here before it is in the pipe, and with it safe from an end of this process."""
CLOSE_S = 10.0
"""How long a stop waits for the last file."""


class LogState(Struct, frozen=True, array_like=True):
    """What a log holds when a trace begins."""

    topic: str
    partition: int
    lane: int
    start: int
    end: int


class Began(Struct, frozen=True, array_like=True, tag=1):
    """A life of a broker begins."""

    wall_us: int
    broker: str
    life: int
    recovery_us: int
    terms: str
    """As JSON, what whoever judges the trace has to know."""
    logs: tuple[LogState, ...]


class Stepped(Struct, frozen=True, array_like=True, tag=2):
    """What of a step's inputs and effects anybody could see from outside."""

    wall_us: int
    inputs: tuple[AnyInput, ...]
    effects: tuple[AnyEffect, ...]


class Died(Struct, frozen=True, array_like=True, tag=3):
    """Messages became dead letters."""

    wall_us: int
    letters: tuple[tuple[str, int, int, int, str], ...]
    """Topic, partition, lane, offset and group of each."""


class Dropped(Struct, frozen=True, array_like=True, tag=4):
    """So many steps are not told of."""

    wall_us: int
    steps: int


class Ended(Struct, frozen=True, array_like=True, tag=5):
    """The broker stops as it should."""

    wall_us: int


Told = Began | Stepped | Died | Dropped | Ended

_INPUTS: frozenset[type] = frozenset(
    {
        inputs.SessionOpened,
        inputs.SessionClosed,
        inputs.Publish,
        inputs.Subscribe,
        inputs.Unsubscribe,
        inputs.JoinGroup,
        inputs.LeaveGroup,
        inputs.Settle,
        inputs.Release,
        inputs.Commit,
        inputs.Seek,
        inputs.Fetch,
    }
)
_EFFECTS: frozenset[type] = frozenset({Deliver, LeaseEnded, Revoke, Assign, Overtaken, CloseSession})
_ANSWERS: frozenset[type] = frozenset({Appended, Subscribed, Joined, Settlement, Fetched, Sought, Refused, Done})


class Tracer:
    """Tells a process, started with `command`, what a broker does. Used in the loop's thread only."""

    def __init__(self, command: Sequence[str]) -> None:
        self.dropped = 0
        """Steps that are missing in the trace."""
        self._writer = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        assert self._writer.stdin is not None
        self._pipe = self._writer.stdin.fileno()
        os.set_blocking(self._pipe, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._encode_into = msgspec.msgpack.Encoder().encode_into
        self._buffer = bytearray()
        self._untold = 0
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, broker: str, durable: Durable, terms: str, recovery_us: int) -> None:
        """Say what there is when the broker begins."""
        logs = []
        for _, each in ordered(durable.logs):
            topic = durable.topics[each.topic]
            logs.append(LogState(topic.name, each.partition, each.lane + 1 if topic.lanes else 0, each.start, each.end))
        self._tell(Began(_wall_us(), broker, durable.incarnation + 1, recovery_us, terms, tuple(logs)))

    def observe(
        self,
        now: Now,
        arrived: tuple[AnyInput, ...],
        records: tuple[AnyRecord, ...],
        effects: tuple[AnyEffect, ...],
        durable: Durable,
    ) -> None:
        """Pass on one step; `durable` is the state after it."""
        if self._over:
            return
        seen = tuple([each for each in arrived if type(each) in _INPUTS])
        given = tuple([each for each in effects if _is_visible(each)])
        if seen or given:
            self._tell(Stepped(_wall_us(), seen, given))
        for record in records:
            if type(record) is DeadLettered:
                self._tell(_died(records, durable))
                break

    def close(self) -> None:
        """Say that the broker stops, and wait until the trace is whole."""
        if not self._over:
            self._tell(Ended(_wall_us()))
            os.set_blocking(self._pipe, True)
            with contextlib.suppress(OSError):
                os.write(self._pipe, self._buffer)
        self._end()
        try:
            code = self._writer.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            log.warning("the trace is still being written", process=self._writer.pid)
        else:
            if code:
                log.warning("the trace's writer has failed", exit_code=code)
        if self.dropped:
            log.warning("the trace has gaps: its writer did not keep up", steps_missing=self.dropped)

    def _tell(self, told: Told) -> None:
        if len(self._buffer) > BUFFER_BYTES_MAX:
            if not self.dropped:
                log.warning("the trace's writer does not keep up: steps are left out")
            self._untold += 1
            self.dropped += 1
            return
        if self._untold:
            untold, self._untold = self._untold, 0
            self._add(Dropped(_wall_us(), untold))
        self._add(told)
        if len(self._buffer) >= FLUSH_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def _add(self, told: Told) -> None:
        start = len(self._buffer)
        self._buffer += b"\0\0\0\0"
        self._encode_into(told, self._buffer, -1)
        self._buffer[start : start + 4] = (len(self._buffer) - start - 4).to_bytes(4, "big")

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._over:
            return
        try:
            with memoryview(self._buffer) as waiting:
                written = os.write(self._pipe, waiting)
        except BlockingIOError:
            written = 0
        except OSError as error:
            log.warning("tracing ends: its writer is gone", reason=str(error))
            self._end()
            return
        del self._buffer[:written]
        if self._buffer:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._buffer.clear()
            if self._timer is not None:
                self._timer.cancel()
            assert self._writer.stdin is not None
            with contextlib.suppress(OSError):
                self._writer.stdin.close()


def _is_visible(effect: AnyEffect) -> bool:
    return type(effect.answer) in _ANSWERS if isinstance(effect, Reply) else type(effect) in _EFFECTS


def _died(records: tuple[AnyRecord, ...], durable: Durable) -> Died:
    letters = []
    for record in records:
        if isinstance(record, DeadLettered):
            found, group = durable.logs.get(record.log), durable.groups.get(record.group)
            if found is not None and group is not None:
                topic = durable.topics[found.topic]
                lane = found.lane + 1 if topic.lanes else 0
                letters.append((topic.name, found.partition, lane, record.offset, group.name))
    return Died(_wall_us(), tuple(letters))


def _wall_us() -> int:
    return time.time_ns() // 1_000
