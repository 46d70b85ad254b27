"""Many messages delayed over a month: what they cost in memory, that a restart keeps them, that each fires once.

    python -m tests.soak.delayed [--messages 1000000] [--days 30] [--data DIR]

A real broker process takes the messages, each with a delay of its own; its memory is compared with what it was when it
had just started, and with that of a process that was started again on the same data. Then the month passes: the same
node and storage engine go on from that data in a time of their own, and a consumer counts what comes.

Promises  memory is the process's own (`VmRSS`); a message is told from another by its number, not by what the broker
          says of it.
Never     waits for real time to pass.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from dovetail.core import batch, frames, inputs, wire
from dovetail.core.awaken import awaken
from dovetail.core.codes import Acks
from dovetail.core.committer import Committer
from dovetail.core.connection import Terms
from dovetail.core.effects import Deliver
from dovetail.core.frames import FrameType
from dovetail.core.ids import Now
from dovetail.core.journal_format import Entry
from dovetail.core.node import Node
from dovetail.core.state import Settings
from dovetail.runtime.bench.loads import Place
from dovetail.runtime.bench.raw import Line, expect_success
from dovetail.runtime.storage.disk import run
from dovetail.runtime.storage.lanes import Checkpointer, commit_task, job_task
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.real_disk import RealDisk
from dovetail.runtime.storage.store import open_store

TOPIC = "later"
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MARGIN_MS = 30 * 60_000
"""Nothing is due before so long: publishing takes its time."""
OUTSTANDING = 512
HOP_MS = 600_000
START_S = 120.0


class Report(Struct, frozen=True):
    """What came out; memory in kilobytes."""

    messages: int
    days: int
    empty_kb: int
    full_kb: int
    restarted_kb: int
    fired: int
    twice: int
    missing: int
    early: int
    late_ms_max: int
    left_topics: int

    @property
    def added_mb(self) -> float:
        """What the delayed messages cost the process that took them, and the one that found them at its start."""
        return (max(self.full_kb, self.restarted_kb) - self.empty_kb) / 1024


class Broker:
    """A broker process on a data directory."""

    def __init__(self, data: str) -> None:
        command = [sys.executable, "-m", "dovetail", "serve", "--data", data, "--listen", "127.0.0.1:0", "--http", ""]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.port = self._await_port()

    def _await_port(self) -> int:
        assert self._process.stderr is not None
        deadline = time.monotonic() + START_S
        for line in self._process.stderr:
            _, found, rest = line.partition("127.0.0.1:")
            digits = "".join(each for each in rest[:6] if each.isdigit())
            if found and digits and "ready" in line:
                return int(digits)
            if time.monotonic() > deadline:
                break
        raise RuntimeError("the broker did not start")

    def memory_kb(self) -> int:
        """Its resident memory."""
        with open(f"/proc/{self._process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(START_S)


def publish(port: int, messages: int, days: int, seed: int) -> list[tuple[int, int]]:
    """Publish each message with a delay of its own; gives when each is due at the earliest and at the latest, by the
    wall clock: it was taken between being sent and being confirmed."""
    draw = random.Random(seed)
    line = Line(Place(port, TOPIC), "soak")
    due_ms: list[tuple[int, int]] = []
    under_way: deque[int] = deque()
    for number in range(messages):
        delay_ms = draw.randrange(MARGIN_MS, days * DAY_MS)
        due_ms.append((_wall_ms() + delay_ms, delay_ms))
        data = batch.build([(None, b"%d" % number, ())], timestamp_ms=0)
        ask = wire.Produce(TOPIC, -1, Acks.STORED, delay_ms, 0, data)
        line.send(frames.encode(FrameType.PRODUCE, ask.encode()))
        under_way.append(number)
        if len(under_way) >= OUTSTANDING:
            _read(line, under_way, due_ms)
    while under_way:
        _read(line, under_way, due_ms)
    line.socket.close()
    return due_ms


def _read(line: Line, under_way: deque[int], due_ms: list[tuple[int, int]]) -> None:
    for frame in line.read():
        expect_success(frame)
        number = under_way.popleft()
        earliest_ms, delay_ms = due_ms[number]
        due_ms[number] = (earliest_ms, _wall_ms() + delay_ms)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Month:
    """The same node on the same data, in a time of its own."""

    def __init__(self, data: str, wall_ms: int) -> None:
        self.disk = RealDisk(data)
        settings = Settings(session_timeout_ms=1 << 50)
        opening = open_store(StoreOptions(), holder="a month in a hurry", wall_ms=wall_ms, new_salt=1)
        self.store, opened = run(self.disk, opening)
        committer = Committer(lsn=opened.durable.lsn, crc=opened.crc, salt=opened.salt, linger_ms=50)
        self.node = Node(awaken(opened.durable, settings), committer, Terms())
        self.now = Now(1_000, wall_ms)
        self.checkpointer = Checkpointer(self.store, self.node, HOUR_MS, self.now)
        self.fired: dict[int, list[int]] = {}
        self.local = self.node.open_local("reader", self._take)
        request = self.local.register(lambda answer, entries: None)
        self.node.submit(inputs.Subscribe(self.local.session, request, TOPIC, "readers", 100_000, True))
        self.settle_down()

    def _take(self, delivery: Deliver, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            for record in batch.parse(entry.batch):
                if any(first <= record.offset <= last for first, last in delivery.ranges):
                    self.fired.setdefault(int(record.value or b""), []).append(self.now.wall_ms)

    def settle_down(self) -> None:
        """Do all there is to do at this moment."""
        while True:
            self.node.tick(self.now)
            more = self.checkpointer.advance(self.now)
            self.node.wrote(self.local.session, 0)
            for session, _, _ in self.node.outgoing():
                self.node.wrote(session, 0)
            commit = self.node.next_commit(self.now)
            if commit is not None:
                run(self.disk, commit_task(self.store, commit))
                self.node.committed()
            job = self.node.next_job()
            if job is not None:
                self.node.job_done(run(self.disk, job_task(self.store, job)))
            if commit is None and job is None and not more and not self.node.has_arrivals:
                return

    def pass_until(self, wall_ms: int) -> None:
        """Let time pass in hops."""
        while self.now.wall_ms < wall_ms:
            self.now = Now(self.now.mono_ms + HOP_MS, self.now.wall_ms + HOP_MS)
            self.settle_down()

    @property
    def hidden_topics(self) -> int:
        """Topics of hours that are left."""
        return sum(topic.name.startswith("~") for topic in self.node.state.durable.topics.values())


def soak(
    data: str, messages: int, days: int, seed: int = 1, on_progress: Callable[[str], None] = lambda text: None
) -> Report:
    """Run all of it."""
    with Broker(data) as broker:
        empty_kb = broker.memory_kb()
        due_ms = publish(broker.port, messages, days, seed)
        full_kb = broker.memory_kb()
    on_progress(f"memory: empty {empty_kb / 1024:.1f} MB, with {messages} messages {full_kb / 1024:.1f} MB")
    with Broker(data) as broker:
        restarted_kb = broker.memory_kb()
    on_progress(f"started again {restarted_kb / 1024:.1f} MB; now time passes")
    wall_ms = _wall_ms()
    month = Month(data, wall_ms)
    month.pass_until(max(latest_ms for _, latest_ms in due_ms) + 2 * HOUR_MS)
    counts = [len(month.fired.get(number, ())) for number in range(messages)]
    early = [at < due_ms[number][0] for number, times in month.fired.items() for at in times]
    lateness = [at - due_ms[number][1] for number, times in month.fired.items() for at in times]
    return Report(
        messages,
        days,
        empty_kb,
        full_kb,
        restarted_kb,
        sum(counts),
        sum(count > 1 for count in counts),
        sum(count == 0 for count in counts),
        sum(early),
        max(lateness, default=0),
        month.hidden_topics,
    )


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Many messages delayed over a month.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--data", default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dovetail-soak-") as beside:
        report = soak(asked.data or os.path.join(beside, "data"), asked.messages, asked.days, on_progress=_say)
    print(
        f"{report.messages} messages delayed over {report.days} days\n"
        f"memory: empty {report.empty_kb / 1024:.1f} MB, with them {report.full_kb / 1024:.1f} MB, "
        f"started again {report.restarted_kb / 1024:.1f} MB: {report.added_mb:.1f} MB more (at most 50)\n"
        f"fired {report.fired}: {report.twice} twice, {report.missing} missing, {report.early} early, "
        f"the latest {report.late_ms_max} ms after it was due (time passed in hops of {HOP_MS} ms); "
        f"{report.left_topics} hours left over"
    )
    kept = report.added_mb <= 50 and not (report.twice or report.missing or report.early or report.left_topics)
    raise SystemExit(0 if kept else 1)


if __name__ == "__main__":
    main()
