"""What messages that wait cost a broker in memory.

Promises  a real broker, as people run it; its resident memory is read before a message came and when all are stored and
          nobody reads; the group that they wait for is there.
Never     counts what the system keeps of the files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from dovetail.core import wire
from dovetail.runtime.bench.loads import Load, Place, frame_of
from dovetail.runtime.bench.processes import ServerProcess, broker_arguments, server
from dovetail.runtime.bench.raw import Line, expect_success

TOPIC = "bench"
BATCH = 100
OUTSTANDING = 16
PARTS = 10
"""How often it is said how far it is."""


class Backlog(Struct, frozen=True):
    """The broker's resident memory, in bytes."""

    messages: int
    empty_bytes: int
    full_bytes: int

    @property
    def per_message(self) -> float:
        """Above the empty broker."""
        return (self.full_bytes - self.empty_bytes) / self.messages


def run(messages: int, directory: Path | None, say: Callable[[str], None]) -> Backlog:
    """Publish `messages` of 1 KiB, rounded up to batches of 100, for a group that nobody is a member of."""
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-", dir=directory) as scratch:
        data = Path(scratch)
        with server(broker_arguments(data / "data", 1), data) as broker:
            place = Place(broker.port, TOPIC)
            member = Line(place, "member")
            member.ask(wire.Subscribe(TOPIC, "absent", 1))
            member.socket.close()
            empty = _resident(broker)
            batches = -(-messages // BATCH)
            _publish(Line(place, "publisher"), batches, say)
            return Backlog(batches * BATCH, empty, _resident(broker))


def _publish(line: Line, batches: int, say: Callable[[str], None]) -> None:
    frame = frame_of(Load("backlog", batch=BATCH), TOPIC, 0)
    sent = confirmed = 0
    while confirmed < batches:
        while sent < batches and sent - confirmed < OUTSTANDING:
            line.send(frame)
            sent += 1
        for answer in line.read():
            expect_success(answer)
            confirmed += 1
            if confirmed * PARTS // batches > (confirmed - 1) * PARTS // batches:
                say(f"{confirmed * BATCH:,} messages are stored")
    line.socket.close()


def _resident(broker: ServerProcess) -> int:
    return int(Path(f"/proc/{broker.pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
