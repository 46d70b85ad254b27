"""The processes of a benchmark: servers as people run them, and workers that put load on them.

Promises  whatever was started is ended when its `with` block is left; a server that does not start, or a worker that
          fails, says why.
Never     leaves loopback.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from dovetail.runtime.bench import raw, sdk
from dovetail.runtime.bench.loads import Consumed, ConsumeJob, Driver, Published, PublishJob

START_S = 60.0
STOP_S = 20.0
ANSWER_S = 120.0

T = TypeVar("T")


class BenchFailed(Exception):
    """A measurement that could not be taken; the text says why."""


class ServerProcess:
    """A server that runs and listens."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.port = port
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def processor_us(self) -> float | None:
        """The processor time it has used so far, all threads, in microseconds; None where the system does not say."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        user, system = int(fields[11]), int(fields[12])
        return (user + system) * 1e6 / os.sysconf("SC_CLK_TCK")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def server(arguments: Sequence[str], directory: Path) -> Iterator[ServerProcess]:
    """A Python program that logs a JSON line with the event `ready` and its address, while the block runs."""
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    running = ServerProcess(process, 0)
    try:
        running.port = _wait_until_ready(process, log_path)
        yield running
    finally:
        running.stop()


def broker_arguments(data: Path, partitions: int) -> list[str]:
    """How the broker is started: as people do, on a free port, without HTTP."""
    command = ["-m", "dovetail", "serve", "--data", str(data), "--listen", "127.0.0.1:0", "--http", ""]
    return [*command, "--partitions", str(partitions), "--log-format", "json"]


def _wait_until_ready(process: subprocess.Popen[bytes], log_path: Path) -> int:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        for line in log_path.read_bytes().splitlines():
            with suppress(msgspec.DecodeError):
                said = msgspec.json.decode(line)
                if isinstance(said, dict) and said.get("event") == "ready":
                    return int(str(said["tcp"]).rpartition(":")[2])
        time.sleep(0.02)
    said_last = log_path.read_text(errors="replace")[-2000:].strip()
    raise BenchFailed(f"the server did not start: {said_last or 'it said nothing'}")


class Worker:
    """A process of its own that publishes or consumes, one job after the other."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, other = context.Pipe()
        self._process = context.Process(target=_work, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def publish(self, job: PublishJob) -> Published:
        self._line.send(job)
        return self._answer(Published)

    def begin_consuming(self, job: ConsumeJob) -> None:
        """Returns when the consumer is a member of its group."""
        self._line.send(job)
        self._answer(str)

    def finish_consuming(self) -> None:
        """Have the consumer end when nothing more comes."""
        self._line.send("finish")

    def consumed(self) -> Consumed:
        return self._answer(Consumed)

    def _answer(self, kind: type[T]) -> T:
        if not self._line.poll(ANSWER_S):
            raise BenchFailed(f"a worker gave no sign of life for {ANSWER_S:g} s")
        try:
            answer = self._line.recv()
        except EOFError:
            raise BenchFailed(f"a worker ended with exit code {self._process.exitcode}") from None
        if not isinstance(answer, kind):
            raise BenchFailed(str(answer))
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join()


@contextmanager
def workers(count: int) -> Iterator[list[Worker]]:
    """So many workers while the block runs."""
    with ExitStack() as stack:
        yield [stack.enter_context(Worker()) for _ in range(count)]


def _work(parent: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us, after it has seen to the servers
    while True:
        job: PublishJob | ConsumeJob = parent.recv()
        try:
            if isinstance(job, PublishJob):
                parent.send(raw.publish(job) if job.driver is Driver.RAW else sdk.publish(job))
            else:
                parent.send(raw.consume(job, parent) if job.driver is Driver.RAW else sdk.consume(job, parent))
        except Exception as error:
            parent.send(BenchFailed(f"{type(error).__name__}: {error}"))
