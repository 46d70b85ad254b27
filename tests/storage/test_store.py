"""The store's promises on a disk that works."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.core import delay
from dovetail.core.records import LogTrimmed, TopicDeleted
from dovetail.runtime.storage.disk import (
    Create,
    Disk,
    DiskError,
    Kind,
    Op,
    Read,
    Remove,
    Task,
    Truncate,
    Write,
    list_dir,
    read_all,
    replace_file,
    run,
)
from dovetail.runtime.storage.findings import Corrupted, Outcome
from dovetail.runtime.storage.layout import BESIDE, StoreOptions
from dovetail.runtime.storage.log import Walk
from dovetail.runtime.storage.real_disk import RealDisk
from dovetail.runtime.storage.store import open_store
from dovetail.sim.disk import SimDisk
from tests.storage.build import SALT, SMALL, Broker, sim_disk, values_of


@pytest.fixture(params=["real", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "sim":
        yield sim_disk()
    else:
        real = RealDisk(os.fspath(tmp_path / "data"))
        yield real
        real.close()


def test_a_new_directory_is_empty_and_keeps_its_identity(disk: Disk) -> None:
    broker = Broker(disk)
    assert broker.opened.report.created
    assert broker.durable.lsn == 0
    broker.close()
    again = Broker(disk)
    assert not again.opened.report.created
    assert again.opened.broker_id == broker.opened.broker_id
    assert again.opened.salt == SALT


def test_what_was_committed_is_there_after_a_restart(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    group = broker.join("billing", log)
    published = [broker.publish(log, b"value %d" % number, b"x" * 100) for number in range(40)]
    broker.settle(group, log, 3, 5)
    broker.close()
    again = Broker(disk)
    assert again.durable == broker.durable
    assert again.read_all(log) == published
    assert again.opened.report.findings == ()


def test_frames_that_never_reached_the_logs_are_written_there_by_recovery(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    made = broker.entry(log, b"only in the journal")
    broker.commit([made], write_behind=False)
    broker.close()
    again = Broker(disk)
    assert again.read(log) == (made,)


def test_a_restart_after_each_commit_changes_nothing(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    expected = []
    for number in range(30):
        expected.append(broker.publish(log, b"%d" % number * 50))
        if number % 4 == 0:
            broker.checkpoint()
        broker.close()
        after = Broker(disk)
        assert after.durable == broker.durable
        assert after.opened.report.findings == ()
        broker = after
    assert broker.read_all(log) == expected


def test_a_read_begins_with_the_entry_that_contains_the_offset(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    entries = [broker.publish(log, *(b"%d.%d" % (number, k) * 9 for k in range(3))) for number in range(50)]
    for offset in range(150):
        assert broker.read(log, offset, 1)[0] == entries[offset // 3]
    assert broker.read(log, 150) == ()
    assert broker.read(log + 1, 0) == ()


def test_a_read_gives_no_more_bytes_than_asked_for_but_at_least_one_entry(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    sizes = [broker.publish(log, b"x" * 50).size_bytes for _ in range(5)]
    assert len(broker.read(log, 0, sizes[0] * 2)) == 2
    assert len(broker.read(log, 0, 1)) == 1
    broker.publish(log, b"y" * 10_000)
    assert len(broker.read(log, 5, 1)) == 1


def test_one_commit_may_hold_many_frames_and_logs(disk: Disk) -> None:
    broker = Broker(disk)
    first = broker.create("orders", partitions=3)
    frames = [[broker.entry(first + place, b"%d" % place)] for place in range(3)]
    broker.commit(*frames)
    assert [values_of(broker.read(first + place)) for place in range(3)] == [[b"0"], [b"1"], [b"2"]]


def test_the_first_offset_at_or_after_a_time_is_found(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    arrivals = []
    for _ in range(60):
        broker.now_ms += 6
        arrivals.append(broker.publish(log, b"x" * 60).record.arrival_ms)
    for reopened in (broker, None):
        if reopened is None:
            broker.close()
            broker = Broker(disk)
        for offset, arrival in enumerate(arrivals):
            assert run(disk, broker.store.offset_at(log, arrival)) == offset
            assert run(disk, broker.store.offset_at(log, arrival - 3)) == offset
        assert run(disk, broker.store.offset_at(log, arrivals[-1] + 1)) == 60
        assert run(disk, broker.store.offset_at(log, 0)) == 0


def test_journal_segments_are_recycled_once_the_older_checkpoint_covers_them(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    for number in range(300):
        broker.publish(log, b"%d" % number * 40)
        if broker.store.wants_checkpoint:
            broker.checkpoint()
    segments = [info for info in run(disk, list_dir("journal")) if info.name.endswith(".wal")]
    assert len(segments) <= 8
    assert {info.size for info in segments} == {SMALL.journal_segment_bytes}
    assert len(run(disk, list_dir("checkpoints"))) == 2


def test_trimming_removes_whole_parts_below_the_start(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    entries = [broker.publish(log, b"x" * 200) for _ in range(40)]
    parts = run(disk, broker.store.parts(log))
    start = parts[2].base + 1
    broker.commit([LogTrimmed(log, start)])
    assert run(disk, broker.store.parts(log)) == parts[2:]
    assert broker.read(log, 0, 1) == (entries[parts[2].base],)
    broker.close()
    again = Broker(disk)
    assert run(disk, again.store.parts(log)) == parts[2:]
    assert again.opened.report.findings == ()


HOUR_5 = f"{delay.PREFIX}5"


def with_a_dropped_hour(at_ms: int) -> SimDisk:
    """A disk after a crash between the end of an hour's log and that of its files; `at_ms` is when the log ended."""
    disk = sim_disk()
    broker = Broker(disk)
    broker.publish(broker.create(HOUR_5), b"later")
    broker.now_ms = at_ms
    broker.commit([TopicDeleted(broker.durable.topics_by_name[HOUR_5])], write_behind=False)
    disk.kill()
    return disk


def test_an_hour_s_log_that_outlived_a_crash_goes_when_the_broker_starts() -> None:
    disk = with_a_dropped_hour(6 * delay.HOUR_MS)
    assert not Broker(disk).durable.topics
    assert not any(HOUR_5 in path for path, _ in disk.files())


def test_a_log_of_an_hour_to_come_that_the_journal_does_not_know_is_damage() -> None:
    disk = with_a_dropped_hour(6 * delay.HOUR_MS - 1)
    with pytest.raises(Corrupted, match="holds a topic that the journal does not know"):
        Broker(disk)


def test_a_deleted_topic_leaves_no_files_and_its_name_goes_on_from_its_old_end(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    for _ in range(7):
        broker.publish(log, b"old")
    broker.delete("orders")
    assert run(disk, list_dir("topics")) == []
    second = broker.create("orders")
    made = broker.publish(second, b"new")
    assert made.base == 7
    broker.close()
    again = Broker(disk)
    assert again.read_all(second) == [made]
    assert again.read(log) == ()


def test_a_topic_that_lies_elsewhere_is_deleted_there_and_nothing_else_behind_a_link(tmp_path: Path) -> None:
    elsewhere, others = tmp_path / "elsewhere", tmp_path / "others"
    others.mkdir()
    (others / "precious").write_text("of somebody else")
    disk = RealDisk(os.fspath(tmp_path / "data"))
    broker = Broker(disk)
    broker.publish(broker.create("orders"), b"x")
    broker.close()
    topic = tmp_path / "data/topics/orders"
    topic.rename(elsewhere)
    topic.symlink_to(elsewhere)
    (topic / "0/backup").symlink_to(others)
    again = Broker(disk)
    assert len(again.read_all(1)) == 1
    again.delete("orders")
    assert not topic.is_symlink()
    assert list(elsewhere.iterdir()) == []
    assert [each.name for each in others.iterdir()] == ["precious"]
    again.publish(again.create("orders"), b"y")
    again.close()
    assert [entry.base for entry in Broker(disk).read_all(2)] == [1]


def test_many_logs_are_synced_all_at_once(disk: Disk) -> None:
    broker = Broker(disk)
    first = broker.create("orders", partitions=20)
    entries = [broker.publish(first + place, b"%d" % place) for place in range(20)]
    broker.checkpoint()
    broker.close()
    again = Broker(disk)
    assert [again.read(first + place) for place in range(20)] == [(each,) for each in entries]


def test_lanes_have_directories_of_their_own(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders", partitions=2, lanes=5)
    for place in range(10):
        broker.publish(log + place, b"%d" % place)
    names = [info.name for info in run(disk, list_dir("topics/orders"))]
    assert names == sorted(
        f"{partition}.{lane}" for partition in (0, 1) for lane in ("critical", "high", "normal", "low", "background")
    )
    broker.close()
    assert values_of(Broker(disk).read_all(log + 9)) == [b"9"]


def test_a_second_broker_is_refused_and_told_who_holds_the_directory(disk: Disk, tmp_path: Path) -> None:
    Broker(disk)
    other = RealDisk(os.fspath(tmp_path / "data")) if isinstance(disk, RealDisk) else disk
    with pytest.raises(DiskError, match="held by a test") as caught:
        run(other, open_store(SMALL, "another", 1, SALT))
    assert caught.value.kind is Kind.LOCKED
    assert caught.value.holder == "a test"


def test_a_commit_larger_than_a_segment_is_kept_whole(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    made = [broker.publish(log, b"x" * size) for size in (10, 20_000, 10)]
    broker.close()
    assert Broker(disk).read_all(log) == made


def test_an_index_that_is_missing_or_wrong_is_made_anew(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    entries = [broker.publish(log, b"%d" % number * 30) for number in range(40)]
    broker.close()
    found = [info.name for info in run(disk, list_dir("topics/orders/0")) if info.name.endswith("index")]
    assert len(found) > 4
    for place, name in enumerate(found):
        run(disk, _spoil(f"topics/orders/0/{name}", place))
    again = Broker(disk)
    assert all(finding.outcome is not Outcome.LOST for finding in again.opened.report.findings)
    for offset, expected in enumerate(entries):
        assert again.read(log, offset, 1) == (expected,)


def test_a_write_behind_that_failed_may_be_repeated(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    items = [broker.entry(log, b"a")]
    broker.commit(items, write_behind=False)
    for _ in range(2):
        run(disk, broker.store.write_behind(broker.durable.lsn, items))
    assert broker.read_all(log) == items


def test_a_write_behind_that_got_half_way_may_be_repeated(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    items = []
    for text in (b"a", b"b", b"c"):
        items.append(broker.entry(log, text))
        broker.commit(items[-1:], write_behind=False)
    run(disk, broker.store.write_behind(broker.durable.lsn, items[:1]))
    run(disk, broker.store.write_behind(broker.durable.lsn, items))
    assert broker.read_all(log) == items


def _spoil(path: str, how: int) -> Task[None]:
    if how % 3 == 0:
        yield Remove(path)
    elif how % 3 == 1:
        yield Truncate(path, 3)
    else:
        yield Write(path, 0, (b"\x00\x00\x00\x07",))


def test_a_checkpoint_is_not_wanted_again_before_the_journal_has_grown(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    while not broker.store.wants_checkpoint:
        broker.publish(log, b"x" * 500)
    assert broker.store.journal_bytes == broker.store.committed_bytes >= SMALL.checkpoint_journal_bytes
    broker.checkpoint()
    assert (broker.store.journal_bytes, broker.store.wants_checkpoint) == (0, False)


def test_what_an_earlier_life_did_not_finish_is_removed(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    broker.publish(log, b"x")
    broker.checkpoint()
    broker.close()
    begun = [f"checkpoints/00000000000000000009.ckpt{BESIDE}", f"broker.json{BESIDE}"]
    for path in begun:
        disk.execute(Create(path))
    Broker(disk)
    left = [info.name for directory in ("", "checkpoints") for info in run(disk, list_dir(directory))]
    assert not any(name.endswith(BESIDE) for name in left)


def test_a_small_file_is_read_whole_whatever_its_size(disk: Disk) -> None:
    data = bytes(range(250))
    Broker(disk)
    run(disk, replace_file("a", (data,)))
    for chunk_bytes in (1, 7, 249, 250, 251, 1_000):
        assert run(disk, read_all("a", chunk_bytes)) == data


def test_an_index_is_written_with_its_part_and_made_anew_as_it_was(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    for number in range(60):
        broker.publish(log, b"x" * (10 + number))
    files = broker.store._logs.files[log]
    made = [part.index.encode() for part in files.parts if part.index is not None]
    assert len(made) == len(files.parts) > 2
    assert any(len(points) >= 16 for points, _ in made)
    broker.close()
    for part, (points, times) in zip(files.parts, made, strict=True):
        if points:
            assert [run(disk, read_all(path)) for path in part.paths()[1:]] == [points, times]
        assert run(disk, files.rebuild_index(part)).encode() == (points, times)


def test_a_walk_reads_no_more_at_a_time_than_it_was_told_unless_an_entry_is_larger() -> None:
    broker = Broker(sim_disk(), StoreOptions(journal_segment_bytes=1 << 16, log_segment_bytes=1 << 16))
    log = broker.create("orders")
    entries = [broker.publish(log, b"x" * size) for size in (50, 3_000, 50, 50, 50)]
    files = broker.store._logs.files[log]
    asked: list[int] = []

    class Watched:
        def execute(self, op: Op) -> object:
            if isinstance(op, Read):
                asked.append(op.size)
            return broker.disk.execute(op)

    walk = Walk(files, files.parts[0], 0, 500)
    found = []
    while (entry := run(Watched(), walk.next())) is not None:  # type: ignore[arg-type]  # only what a walk needs
        found.append(entry.base)
    assert found == [0, 1, 2, 3, 4]
    assert max(asked) <= max(entry.size_bytes for entry in entries)
    assert sorted(asked)[-2] <= 500


def test_what_is_known_of_a_part_is_the_same_after_a_restart_that_had_nothing_to_write(disk: Disk) -> None:
    broker = Broker(disk)
    log = broker.create("orders")
    for _ in range(30):
        broker.publish(log, b"x" * 200)
    parts = run(disk, broker.store.parts(log))
    for _ in range(2):
        broker.checkpoint()
        broker.commit([])
    broker.close()
    assert run(disk, Broker(disk).store.parts(log)) == parts
    assert len(parts) > 2
