"""What the storage engine costs, beside what the disk costs without it, in one run.

    python -m dovetail.runtime.storage.bench DIR [--messages 1000000] [--topics 10000]

Promises  figures of one run are comparable: engine and bare loop write the same bytes, in turns, to one disk.
Never     asserts a time: machines differ, ratios say more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import median

from msgspec import Struct

from dovetail.core import batch
from dovetail.core.evolve import evolve_frame
from dovetail.core.journal_format import EncodedFrame, Entry, Item, encode_entry, encode_frame, records_of
from dovetail.core.records import BatchAppended, TopicConfig, TopicCreated
from dovetail.runtime.storage import checkpoint
from dovetail.runtime.storage.disk import run
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.real_disk import RealDisk
from dovetail.runtime.storage.store import Opened, Store, open_store

SALT = 0x0D0E_0F10
MESSAGE_BYTES = 1024
BATCH_MESSAGES = 100


class Figure(Struct, frozen=True):
    """One measured thing."""

    name: str
    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.name:<58} {self.value:>12,.2f} {self.unit}"


class Writer:
    """Makes frames as the committer does, and has the store commit them and write them behind in two threads."""

    def __init__(self, directory: str, options: StoreOptions) -> None:
        self.disk = RealDisk(directory)
        self.store: Store
        self.opened: Opened
        self.store, self.opened = run(self.disk, open_store(options, "bench", 1, SALT))
        self.durable = self.opened.durable
        self._crc = self.opened.crc
        self._lanes = ThreadPoolExecutor(1)
        self._behind: Future[None] | None = None
        self._payload = batch.build([(None, b"x" * MESSAGE_BYTES, ())] * BATCH_MESSAGES, timestamp_ms=1)

    def frame(self, items: Sequence[Item], synced_lsn: int) -> EncodedFrame:
        lsn = self.durable.lsn + 1
        made = encode_frame(lsn, 1, synced_lsn, self._crc, items, salt=self.opened.salt)
        self.durable = evolve_frame(self.durable, lsn, 1, records_of(items))
        self._crc = made.crc
        return made

    def create(self, topics: int, prefix: str = "topic") -> list[int]:
        """Topics of one log each, all in one frame."""
        first_topic, first_log = self.durable.next_topic, self.durable.next_log
        records = [
            TopicCreated(first_topic + n, f"{prefix}-{n}", 1, 0, first_log + n, (0,), TopicConfig(), False, 1)
            for n in range(topics)
        ]
        self.commit([self.frame(records, self.durable.lsn)], records)
        return list(range(first_log, first_log + topics))

    def entry(self, log: int) -> Entry:
        base = self.durable.logs[log].end
        size = len(self._payload)
        record = BatchAppended(log, base, BATCH_MESSAGES, 1, 0, 0, 0, size, -1, -1, -1, 0)
        return encode_entry(record, batch.patch(self._payload, base))

    def commit(self, frames: Sequence[EncodedFrame], items: Sequence[Item]) -> None:
        run(self.disk, self.store.commit(frames))
        if self._behind is not None:
            self._behind.result()
        lsn = frames[-1].lsn
        self._behind = self._lanes.submit(lambda: run(self.disk, self.store.write_behind(lsn, items)))

    def append(self, logs: Sequence[int]) -> int:
        """One commit with a batch for each log; gives its size."""
        synced = self.durable.lsn
        entries = [self.entry(log) for log in logs]
        frames = [self.frame([each], synced) for each in entries]
        self.commit(frames, entries)
        return sum(frame.size_bytes for frame in frames)

    def wait(self) -> None:
        if self._behind is not None:
            self._behind.result()

    def checkpoint(self) -> None:
        self.wait()
        run(self.disk, self.store.checkpoint(self.durable, checkpoint.encode(self.durable)))

    def kill(self) -> None:
        """End as a killed process does: nothing is tidied up."""
        self.wait()
        self._lanes.shutdown()
        self.disk.close()


class BareLoop:
    """The limit: the same bytes in one write and one fdatasync, into a file that was written full before."""

    def __init__(self, path: str, size_bytes: int) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
        for position in range(0, size_bytes, 1 << 20):
            os.pwrite(self._file, bytes(1 << 20), position)
        os.fsync(self._file)
        self._size = size_bytes
        self._position = 0

    def append(self, data: bytes) -> None:
        if self._position + len(data) > self._size:
            self._position = 0
        os.pwrite(self._file, data, self._position)
        os.fdatasync(self._file)
        self._position += len(data)

    def close(self) -> None:
        os.close(self._file)


def durable_appends(directory: str, options: StoreOptions, partitions: int, commits: int) -> Iterator[Figure]:
    """Commits of about one batch of 100 messages of 1 KiB, against the same bytes written bare, in turns."""
    writer = Writer(f"{directory}/appends-{partitions}", options)
    bare = BareLoop(f"{directory}/bare", options.journal_segment_bytes)
    logs = writer.create(partitions)
    data = b""
    engine: list[float] = []
    limit: list[float] = []
    for number in range(commits):
        log = logs[number % partitions]
        began = time.perf_counter()
        size = writer.append([log])
        engine.append(time.perf_counter() - began)
        data = data if len(data) == size else os.urandom(size)
        began = time.perf_counter()
        bare.append(data)
        limit.append(time.perf_counter() - began)
    writer.kill()
    bare.close()
    yield Figure(f"append, {partitions} partitions: commit", median(engine) * 1e3, "ms")
    yield Figure(f"append, {partitions} partitions: bare write+fdatasync", median(limit) * 1e3, "ms")
    yield Figure(f"append, {partitions} partitions: engine / bare loop", median(limit) / median(engine), "of its speed")
    yield Figure(f"append, {partitions} partitions", BATCH_MESSAGES * commits / sum(engine), "messages/s")


def recovery_of_messages(directory: str, options: StoreOptions, messages: int) -> Iterator[Figure]:
    """A killed broker with all its messages after the last checkpoint: the slowest case there is."""
    path = f"{directory}/messages"
    writer = Writer(path, options)
    logs = writer.create(12)
    for _ in range(0, messages, BATCH_MESSAGES * len(logs)):
        writer.append(logs)
    writer.kill()
    yield from _reopened(path, options, f"recovery of {messages:,} messages, no checkpoint")
    yield from _reopened(path, options, f"recovery of {messages:,} messages, checkpointed")
    shutil.rmtree(path)


def recovery_of_topics(directory: str, options: StoreOptions, topics: int) -> Iterator[Figure]:
    """A killed broker with many topics, each with a message."""
    path = f"{directory}/topics"
    writer = Writer(path, options)
    writer._payload = batch.build([(None, b"x", ())] * BATCH_MESSAGES, timestamp_ms=1)
    logs = writer.create(topics)
    for start in range(0, topics, 500):
        writer.append(logs[start : start + 500])
    writer.kill()
    yield from _reopened(path, options, f"recovery of {topics:,} topics, no checkpoint")
    yield from _reopened(path, options, f"recovery of {topics:,} topics, checkpointed")
    shutil.rmtree(path)


def _reopened(path: str, options: StoreOptions, name: str) -> Iterator[Figure]:
    disk = RealDisk(path)
    began = time.perf_counter()
    run(disk, open_store(options, "bench", 1, SALT))
    yield Figure(name, time.perf_counter() - began, "s")
    disk.close()


def figures(directory: str, messages: int, topics: int, commits: int, options: StoreOptions) -> Iterator[Figure]:
    """All of it, one figure after the other."""
    os.makedirs(directory, exist_ok=True)
    for partitions in (1, 12, 100):
        yield from durable_appends(directory, options, partitions, commits)
        shutil.rmtree(f"{directory}/appends-{partitions}")
    os.unlink(f"{directory}/bare")
    yield from recovery_of_topics(directory, options, topics)
    yield from recovery_of_messages(directory, options, messages)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the storage engine beside the bare disk.")
    parser.add_argument("directory", help="a scratch directory on the disk to measure")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=1_000)
    asked = parser.parse_args()
    for figure in figures(asked.directory, asked.messages, asked.topics, asked.commits, StoreOptions()):
        print(figure, flush=True)


if __name__ == "__main__":
    main()
