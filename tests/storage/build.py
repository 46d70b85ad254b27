"""A broker that only stores: frames go through the real committer format, the state through the real `evolve`."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from dovetail.core import batch
from dovetail.core.evolve import evolve_frame
from dovetail.core.journal_format import EncodedFrame, Entry, Item, encode_entry, encode_frame, records_of
from dovetail.core.records import (
    AnyRecord,
    BatchAppended,
    CursorOpened,
    GroupCreated,
    Settled,
    SyncPolicy,
    TopicConfig,
    TopicCreated,
    TopicDeleted,
)
from dovetail.core.state import Durable
from dovetail.runtime.storage import checkpoint
from dovetail.runtime.storage.disk import Disk, run
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.store import Opened, Store, open_store
from dovetail.sim.disk import SimDisk

SALT = 0x5A17_5A17_5A17_5A17
SMALL = StoreOptions(
    journal_segment_bytes=4096, log_segment_bytes=2048, index_every_bytes=256, checkpoint_journal_bytes=8192
)

T = TypeVar("T")


def sim_disk(seed: int = 1) -> SimDisk:
    return SimDisk(Random(seed))


def entry(log: int, base: int, values: Sequence[bytes], arrival_ms: int = 1, key: bytes | None = None) -> Entry:
    """A stored batch of `values`."""
    data = batch.build([(key, value, ()) for value in values], timestamp_ms=arrival_ms, base_offset=base)
    record = BatchAppended(log, base, len(values), arrival_ms, 0, 0, 0, len(data), -1, -1, -1, 0)
    return encode_entry(record, data)


class Broker:
    """Commits what it is told, and remembers what was promised."""

    def __init__(self, disk: Disk, options: StoreOptions = SMALL, salt: int = SALT, **kwargs: bool) -> None:
        self.disk = disk
        self.store: Store
        self.opened: Opened
        self.store, self.opened = run(disk, open_store(options, "a test", 1, salt, **kwargs))
        self.durable: Durable = self.opened.durable
        self.crc = self.opened.crc
        self.synced_lsn = self.durable.lsn
        self.now_ms = self.durable.wall_ms + 1

    def commit(self, *steps: Sequence[Item], write_behind: bool = True, sync: bool = True) -> None:
        """Each step is a frame; all frames are one commit."""
        frames: list[EncodedFrame] = []
        durable, crc = self.durable, self.crc
        for items in steps:
            lsn = durable.lsn + 1
            frame = encode_frame(lsn, self.now_ms, self.synced_lsn, crc, items, salt=self.opened.salt)
            durable = evolve_frame(durable, lsn, self.now_ms, records_of(items))
            frames.append(frame)
            crc = frame.crc
        run(self.disk, self.store.commit(frames, sync=sync))
        self.durable, self.crc = durable, crc
        if sync:
            self.synced_lsn = durable.lsn
        if write_behind:
            run(self.disk, self.store.write_behind(durable.lsn, [item for items in steps for item in items]))

    def create(self, name: str, partitions: int = 1, lanes: int = 0, sync: SyncPolicy = SyncPolicy.ALWAYS) -> int:
        """Gives the topic's first log."""
        count = partitions * max(1, lanes)
        first = self.durable.next_log
        starts = self.durable.retired_by_name.get(name, (0,) * count)
        topic = self.durable.next_topic
        record = TopicCreated(topic, name, partitions, lanes, first, starts, TopicConfig(sync=sync), False, self.now_ms)
        self.commit([record])
        return first

    def delete(self, name: str) -> None:
        self.commit([TopicDeleted(self.durable.topics_by_name[name])])

    def publish(self, log: int, *values: bytes) -> Entry:
        """One batch, in a commit of its own."""
        made = self.entry(log, *values)
        self.commit([made])
        return made

    def entry(self, log: int, *values: bytes) -> Entry:
        self.now_ms += 1
        return entry(log, self.durable.logs[log].end, values, self.now_ms)

    def join(self, name: str, log: int) -> int:
        """A group with a cursor at the log's start."""
        group = self.durable.next_group
        records: list[AnyRecord] = [
            GroupCreated(group, name, "shared", "", self.now_ms),
            CursorOpened(group, log, self.durable.logs[log].start),
        ]
        self.commit(records)
        return group

    def settle(self, group: int, log: int, first: int, last: int) -> None:
        self.commit([Settled(group, log, first, last)])

    def checkpoint(self) -> None:
        run(self.disk, self.store.checkpoint(self.durable, checkpoint.encode(self.durable)))

    def read(self, log: int, offset: int = 0, bytes_max: int = 1 << 20) -> tuple[Entry, ...]:
        return run(self.disk, self.store.read(log, offset, bytes_max))

    def read_all(self, log: int) -> list[Entry]:
        """Every entry, in small reads."""
        found: list[Entry] = []
        offset = 0
        while some := self.read(log, offset, 600):
            found += some
            offset = some[-1].last + 1
        return found

    def close(self) -> None:
        run(self.disk, self.store.close())


def values_of(entries: Sequence[Entry]) -> list[bytes | None]:
    """The values of all records, in order."""
    return [record.value for each in entries for record in batch.parse(each.batch)]
