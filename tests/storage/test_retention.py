"""Retention proposes whole parts; compaction keeps the latest of each key; a nearly full disk has levels."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core import batch
from dovetail.core.compression import Compression
from dovetail.core.journal_format import Entry, encode_entry
from dovetail.core.records import BatchAppended, TopicConfig
from dovetail.core.retention import PartInfo, Proposal, propose
from dovetail.runtime.storage.codecs import CODECS
from dovetail.runtime.storage.disk import DiskError, Kind, Op, Rename, Space, list_dir, run
from dovetail.runtime.storage.space import Level, SpaceLimits, level_of, room_bytes
from dovetail.sim.disk import SimDisk
from tests.storage.build import SMALL, Broker, sim_disk
from tests.storage.test_crashes import Watched

PARTS = tuple(PartInfo(base, base + 10, 1000, base * 100, base * 100 + 1000) for base in (0, 10, 20, 30))


@pytest.mark.parametrize(
    ("config", "wall_ms", "start"),
    [
        (TopicConfig(retention_ms=0), 10**12, 0),
        (TopicConfig(retention_ms=1500), 3600, 20),
        (TopicConfig(retention_ms=1500), 10**12, 40),
        (TopicConfig(retention_ms=0, retention_bytes=2000), 0, 20),
        (TopicConfig(retention_ms=0, retention_bytes=2001), 0, 10),
        (TopicConfig(retention_ms=0, retention_count=15), 0, 20),
        (TopicConfig(retention_ms=0, retention_count=40), 0, 0),
    ],
)
def test_each_limit_proposes_what_it_allows(config: TopicConfig, wall_ms: int, start: int) -> None:
    expected = Proposal(1, start, 0) if start else None
    assert propose(1, PARTS, config, wall_ms, None) == expected


def test_on_ack_whole_parts_below_every_floor_may_go() -> None:
    config = TopicConfig(retention_ms=0, retain_on_ack=False)
    assert propose(1, PARTS, config, 0, 29) == Proposal(1, 20, 0)
    assert propose(1, PARTS, config, 0, 40) == Proposal(1, 40, 0)
    assert propose(1, PARTS, config, 0, None) is None


def test_a_hard_limit_holds_whatever_groups_wait_for() -> None:
    config = TopicConfig(retention_ms=0, bytes_max_hard=2500)
    assert propose(1, PARTS, config, 0, 0) == Proposal(1, 20, 20)


def test_a_store_proposes_from_its_own_parts_also_after_a_restart() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    for _ in range(40):
        broker.publish(log, b"x" * 300)
    expected = run(disk, broker.store.proposals(broker.durable, broker.now_ms + TopicConfig().retention_ms))
    assert [each.log for each in expected] == [log]
    broker.close()
    again = Broker(disk)
    at = broker.now_ms + TopicConfig().retention_ms
    assert run(disk, again.store.proposals(again.durable, at)) == expected
    assert run(disk, again.store.proposals(again.durable, again.now_ms)) == []


def keyed(broker: Broker, log: int, records: Sequence[tuple[bytes | None, bytes | None]], codec: Compression) -> None:
    broker.now_ms += 1
    base = broker.durable.logs[log].end
    news = [(key, value, ()) for key, value in records]
    data = batch.build(news, timestamp_ms=1, base_offset=base, compression=codec, codecs=CODECS)
    count = len(records)
    record = BatchAppended(log, base, count, broker.now_ms, 0, 0, 0, len(data), -1, -1, -1, 0)
    broker.commit([encode_entry(record, data)])


def records_of(entries: Sequence[Entry]) -> list[tuple[int, bytes | None, bytes | None]]:
    found = [record for entry in entries for record in batch.parse(entry.batch, codecs=CODECS)]
    return [(record.offset, record.key, record.value) for record in found]


def compacted(broker: Broker, log: int, wall_ms: int = 0) -> tuple[int, int]:
    """Compact everything; gives the bytes before and after."""
    for _ in range(2):
        broker.checkpoint()
        broker.commit([])
    work = broker.store.compaction(log, wall_ms)
    assert work is not None
    while run(broker.disk, work.step()):
        pass
    return work.bytes_before, work.bytes_after


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD, Compression.LZ4])
def test_compaction_keeps_the_latest_of_each_key_at_its_offset(codec: Compression) -> None:
    random = Random(1)
    broker = Broker(sim_disk())
    log = broker.create("orders")
    for number in range(60):
        batches = [(b"key %d" % random.randrange(7), b"%d.%d" % (number, k) * 20) for k in range(4)]
        keyed(broker, log, batches, codec)
    keyed(broker, log, [(None, b"without a key" * 30)], codec)
    before = records_of(broker.read_all(log))
    active = run(broker.disk, broker.store.parts(log))[-1].base
    latest = {key: offset for offset, key, _ in before if key is not None}
    expected = [each for each in before if each[1] is None or latest[each[1]] == each[0] or each[0] >= active]
    size_before, size_after = compacted(broker, log)
    assert records_of(broker.read_all(log)) == expected
    assert size_after < size_before / 2
    broker.close()
    again = Broker(broker.disk)
    assert records_of(again.read_all(log)) == expected
    assert again.opened.report.findings == ()
    assert [each.base for each in again.read(log, expected[0][0], 1)] <= [expected[0][0]]


def test_a_tombstone_goes_with_its_key_once_it_is_old() -> None:
    broker = Broker(sim_disk())
    log = broker.create("orders")
    keyed(broker, log, [(b"k", b"v" * 100), (b"other", b"w")], Compression.NONE)
    keyed(broker, log, [(b"k", None)], Compression.NONE)
    for _ in range(10):
        keyed(broker, log, [(None, b"x" * 500)], Compression.NONE)
    compacted(broker, log, wall_ms=broker.now_ms)
    assert [each[:2] for each in records_of(broker.read_all(log))[:2]] == [(1, b"other"), (2, b"k")]
    compacted(broker, log, wall_ms=broker.now_ms + 86_400_001)
    assert [each[:2] for each in records_of(broker.read_all(log))[:2]] == [(1, b"other"), (3, None)]


def test_compaction_leaves_alone_what_recovery_might_have_to_write_again() -> None:
    broker = Broker(sim_disk())
    log = broker.create("orders")
    for number in range(30):
        keyed(broker, log, [(b"key", b"%d" % number * 60)], Compression.NONE)
    broker.checkpoint()
    limit = broker.durable.logs[log].end
    for number in range(30):
        keyed(broker, log, [(b"key", b"%d" % number * 60)], Compression.NONE)
    before = run(broker.disk, broker.store.parts(log))
    broker.checkpoint()
    work = broker.store.compaction(log, 0)
    assert work is not None
    while run(broker.disk, work.step()):
        pass
    after = run(broker.disk, broker.store.parts(log))
    assert [part for part in after if part.end > limit] == [part for part in before if part.end > limit]
    assert after[0].size_bytes < before[0].size_bytes


def test_a_crash_in_a_compaction_leaves_every_latest_record() -> None:
    random = Random(3)
    disk = Watched(Random(3))
    broker = Broker(disk)
    log = broker.create("orders")
    for number in range(40):
        keyed(broker, log, [(b"key %d" % (number % 5), b"%d" % number * 60)], Compression.NONE)
    latest = {key: (offset, key, value) for offset, key, value in records_of(broker.read_all(log))}
    tried = 0

    def after() -> None:
        nonlocal tried
        tried += 1
        twin: SimDisk = disk.copy()
        twin.crash(random.randrange)
        again = Broker(twin)
        found = records_of(again.read_all(log))
        assert {key: (offset, key, value) for offset, key, value in found} == latest
        names = [info.name for info in run(twin, list_dir("topics/orders/0"))]
        assert not any(name.endswith(".tmp") for name in names)

    disk.after = after  # type: ignore[method-assign]
    compacted(broker, log)
    assert tried > 50


@given(st.integers(0, 100), st.sampled_from(Level))
def test_the_level_rises_at_its_limit_and_falls_only_below_it(used: int, before: Level) -> None:
    limits = SpaceLimits(kept_back_bytes=1)
    space = Space(1000, 1000 - used * 10)
    level = level_of(space, limits, before)
    fresh = level_of(space, limits, Level.FINE)
    assert fresh == sum(used >= limit for limit in (80, 90, 95))
    assert fresh <= level <= max(fresh, before)
    assert level_of(space, limits, level) == level


@given(st.integers(1, 10_000), st.data(), st.integers(1, 100), st.integers(1, 5_000))
def test_while_there_is_room_the_level_is_not_read_only(
    total: int, data: st.DataObject, percent: int, kept_back: int
) -> None:
    limits = SpaceLimits(read_only_percent=percent, kept_back_bytes=kept_back)
    space = Space(total, data.draw(st.integers(0, total)))
    room = room_bytes(space, limits)
    assert (room == 0) or level_of(space, limits, Level.FINE) is not Level.READ_ONLY
    full = Space(total, space.free_bytes - room)
    assert level_of(full, limits, Level.FINE) is Level.READ_ONLY or full.free_bytes == kept_back


def test_what_is_kept_back_is_kept_to_the_byte() -> None:
    limits = SpaceLimits(read_only_percent=100, kept_back_bytes=100)
    assert level_of(Space(1_000, 100), limits, Level.FINE) is not Level.READ_ONLY
    assert level_of(Space(1_000, 99), limits, Level.FINE) is Level.READ_ONLY


def test_space_is_kept_back_on_a_large_disk_that_is_nearly_full() -> None:
    limits = SpaceLimits(read_only_percent=100, kept_back_bytes=1 << 30)
    assert level_of(Space(10 << 40, 1 << 29), limits, Level.FINE) is Level.READ_ONLY


def test_a_full_disk_stops_a_commit_and_the_same_commit_goes_on_when_there_is_room() -> None:
    disk = sim_disk()
    broker = Broker(disk, SMALL)
    log = broker.create("orders")
    broker.commit([broker.entry(log, b"x" * 3000)], write_behind=False)
    disk.capacity_bytes = disk.used_bytes()
    more = [broker.entry(log, b"y" * 3000)]
    with pytest.raises(DiskError) as caught:
        broker.commit(more)
    assert caught.value.kind is Kind.FULL
    disk.capacity_bytes = 1 << 40
    broker.commit(more, write_behind=False)
    disk.kill()
    again = Broker(disk)
    assert again.durable == broker.durable
    assert again.opened.report.findings == ()


def test_a_refused_rename_in_a_roll_leaves_the_journal_usable() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    refused = 1

    def fault(op: Op) -> DiskError | None:
        nonlocal refused
        if isinstance(op, Rename) and refused:
            refused -= 1
            return DiskError(Kind.DENIED, op.path, "injected")
        return None

    disk.fault = fault
    for number in range(60):
        items = [broker.entry(log, b"%d" % number * 100)]
        try:
            broker.commit(items)
        except DiskError:
            broker.commit(items)
    assert refused == 0
    disk.kill()
    assert Broker(disk).durable == broker.durable
