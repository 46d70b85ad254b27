"""Disks that fail, and two lanes that run at once: what was promised stays, what failed is said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.core.evolve import evolve_frame
from dovetail.core.journal_format import Item, encode_frame, records_of
from dovetail.core.records import SyncPolicy, TopicDeleted
from dovetail.core.state import Durable
from dovetail.runtime.storage import checkpoint
from dovetail.runtime.storage.disk import (
    Create,
    DiskError,
    Kind,
    List,
    Lock,
    MakeDir,
    Op,
    Read,
    Remove,
    Sync,
    SyncDir,
    SyncFailed,
    Task,
    Write,
    list_dir,
    remove_file,
    replace_file,
    run,
)
from dovetail.runtime.storage.findings import Corrupted, Outcome, Unusable
from dovetail.runtime.storage.identity import encode, new_identity
from dovetail.runtime.storage.real_disk import RealDisk
from dovetail.runtime.storage.salvage import fill_front
from dovetail.runtime.storage.store import open_store
from dovetail.sim.disk import SimDisk, fail
from tests.storage.build import SALT, SMALL, Broker, sim_disk
from tests.storage.test_crashes import TINY, History, Recorded, Watched, check_recovered, outcomes


@pytest.mark.parametrize("seed", range(12))
def test_after_a_failed_sync_recovery_makes_durable_what_it_shows(seed: int) -> None:
    """The system may forget what a failed sync should have written, while reads still show it."""
    disk = sim_disk(seed)
    history = History()
    history.note(Durable())
    broker = Recorded(disk, history, TINY)
    log = broker.create("orders")
    for _ in range(3):
        broker.publish(log, b"x" * 100)
    disk.fault = fail(Kind.IO, lambda op: isinstance(op, Sync))
    with pytest.raises(SyncFailed):
        broker.checkpoint() if seed % 2 else broker.publish(log, b"y" * 300)
    disk.kill()
    shown = Broker(disk, TINY)
    entries = shown.read_all(log)
    history.confirmed = shown.durable.lsn
    disk.crash()
    again = check_recovered(disk, history)
    assert again.durable == shown.durable
    assert again.read_all(log) == entries


@pytest.mark.parametrize("kind", [Kind.FULL, Kind.DENIED, Kind.DESCRIPTORS, Kind.IO])
@pytest.mark.parametrize("operation", [Create, Write, Read, List, SyncDir, Sync, Lock])
def test_a_start_that_fails_says_so_and_the_next_one_finds_everything(kind: Kind, operation: type[Op]) -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    published = [broker.publish(log, b"x" * 100) for _ in range(10)]
    disk.kill()
    for at in range(1, 1000, 3):
        twin = disk.copy()
        twin.fault = _fail_at(at, operation, kind)
        try:
            Broker(twin)
        except DiskError as error:
            failed = error.kind
        else:
            if kind is not Kind.FULL or operation is not Write:
                break
            failed = kind  # it did without: a journal segment need not be preallocated
        assert failed is kind
        twin.fault = None
        twin.kill()
        again = Broker(twin)
        assert again.durable == broker.durable
        assert again.read_all(log) == published
        assert all(finding.outcome is not Outcome.LOST for finding in again.opened.report.findings)


@pytest.mark.parametrize("at", range(1, 40, 2))
def test_a_write_behind_that_fails_anywhere_may_be_repeated(at: int) -> None:
    disk = sim_disk()
    broker = Broker(disk)
    gone = broker.create("gone")
    broker.publish(gone, b"x")
    log = broker.create("orders")
    entries: list[Item] = []
    for number in range(12):
        entries.append(broker.entry(log, b"%d" % number * 100))
        broker.commit([entries[-1]], write_behind=False)
    items = [*entries, TopicDeleted(broker.durable.topics_by_name["gone"])]
    broker.commit(items[-1:], write_behind=False)
    disk.fault = _fail_at(at, Op, Kind.FULL)
    with suppress(DiskError):
        run(disk, broker.store.write_behind(broker.durable.lsn, items))
    disk.fault = None
    run(disk, broker.store.write_behind(broker.durable.lsn, items))
    assert broker.read_all(log) == entries
    assert [info.name for info in run(disk, list_dir("topics"))] == ["orders"]


def _fail_at(at: int, operation: Any, kind: Kind) -> Callable[[Op], DiskError | None]:
    """A fault: the operation number `at` of the given type fails."""
    seen = 0

    def fault(op: Op) -> DiskError | None:
        nonlocal seen
        seen += isinstance(op, operation)
        hit = isinstance(op, operation) and seen == at
        return DiskError(kind, "somewhere", "injected") if hit else None

    return fault


def test_the_two_lanes_may_run_at_once_and_stop_anywhere() -> None:
    """Commits go on while entries are written behind and checkpoints are taken, one operation at a time."""
    for seed in range(4):
        random = Random(seed)
        disk = Watched(Random(seed))
        history = History()
        history.note(Durable())
        broker = Recorded(disk, history, TINY)
        log = broker.create("orders")
        lanes = _Lanes(broker, history, log, random)
        while lanes.step():
            if random.random() < 0.15:
                for left in outcomes(disk, random, 4):
                    check_recovered(left, history)
        disk.kill()
        assert check_recovered(disk, history).durable == broker.durable


class _Lanes:
    """A committer and a log lane, interleaved by chance."""

    def __init__(self, broker: Recorded, history: History, log: int, random: Random) -> None:
        self.broker, self.history, self.log, self.random = broker, history, log, random
        self.commits = 0
        self.behind: list[tuple[int, list[Item], Durable]] = []
        self.journal: Task[None] | None = None
        self.logs: Task[None] | None = None
        self.journal_result: Any = None
        self.logs_result: Any = None
        self.after_commit: Any = None

    def step(self) -> bool:
        if self.journal is None and self.commits < 30:
            self._begin_commit()
        if self.logs is None:
            self._begin_log_task()
        if self.journal is not None and (self.logs is None or self.random.random() < 0.5):
            self.journal, self.journal_result = self._advance(self.journal, self.journal_result)
            if self.journal is None:
                self.after_commit()
            return True
        if self.logs is not None:
            self.logs, self.logs_result = self._advance(self.logs, self.logs_result)
            return True
        return False

    def _advance(self, task: Task[None], result: Any) -> tuple[Task[None] | None, Any]:
        try:
            return task, self.broker.disk.execute(task.send(result))
        except StopIteration:
            return None, None

    def _begin_commit(self) -> None:
        broker = self.broker
        self.commits += 1
        made: list[Item] = [broker.entry(self.log, b"%d" % self.commits * 60)]
        lsn = broker.durable.lsn + 1
        frame = encode_frame(lsn, broker.now_ms, broker.synced_lsn, broker.crc, made, salt=broker.opened.salt)
        durable = evolve_frame(broker.durable, lsn, broker.now_ms, records_of(made))
        self.history.note(durable)
        self.history.entries.setdefault(self.log, []).extend(made)  # type: ignore[arg-type]
        self.journal, self.journal_result = broker.store.commit([frame]), None

        def done() -> None:
            broker.durable, broker.crc, broker.synced_lsn = durable, frame.crc, lsn
            self.history.confirmed = lsn
            self.behind.append((lsn, made, durable))

        self.after_commit = done

    def _begin_log_task(self) -> None:
        store = self.broker.store
        self.logs_result = None
        if self.behind:
            lsn, items, durable = self.behind.pop(0)
            self.logs = store.write_behind(lsn, items)
            self.last = durable
        elif store.wants_checkpoint and self.last.lsn == store.written_lsn:
            self.logs = store.checkpoint(self.last, checkpoint.encode(self.last))


def test_a_directory_that_is_a_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("not a directory")
    with pytest.raises(DiskError, match="is a file: a directory is needed there: move the file away") as caught:
        run(RealDisk(os.fspath(path)), open_store(SMALL, "a test", 1, SALT))
    assert caught.value.kind is Kind.NOT_A_DIRECTORY
    with pytest.raises(DiskError, match="data: it is a file: a directory is needed there: move the file away"):
        run(RealDisk(os.fspath(path / "deeper")), open_store(SMALL, "a test", 1, SALT))


def test_a_newer_format_is_refused_with_the_reason() -> None:
    disk = sim_disk()
    Broker(disk).close()
    later = encode(new_identity(SALT, 1), version=2)
    disk.execute(Create("broker.json"))
    disk.execute(Write("broker.json", 0, (later,)))
    with pytest.raises(Unusable, match="format 2, this program reads up to 1"):
        Broker(disk)


def test_a_lost_broker_json_is_made_anew_from_the_journal() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    broker.create("orders")
    broker.close()
    disk.remove("broker.json")
    again = Broker(disk)
    assert again.opened.broker_id == broker.opened.broker_id
    assert again.durable == broker.durable
    assert [finding.outcome for finding in again.opened.report.findings] == [Outcome.REPAIRED]


def test_directories_that_are_gone_are_made_again(tmp_path: Path) -> None:
    broker = Broker(RealDisk(os.fspath(tmp_path)))
    log = broker.create("orders")
    published = [broker.publish(log, b"x" * 100) for _ in range(3)]
    broker.close()
    shutil.rmtree(tmp_path / "topics")
    shutil.rmtree(tmp_path / "checkpoints")
    again = Broker(RealDisk(os.fspath(tmp_path)))
    assert again.durable == broker.durable
    assert again.read_all(log) == published


def test_a_journal_whose_files_are_all_gone_is_missed_although_a_checkpoint_is_there() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    group = broker.join("billing", log)
    broker.publish(log, b"x", b"y")
    broker.checkpoint()
    broker.settle(group, log, 0, 1)
    disk.kill()
    for path, _ in list(disk.files()):
        if path.startswith("journal/"):
            disk.remove(path)
    before = dict(disk.files())
    with pytest.raises(Corrupted, match="the journal's files are missing") as caught:
        Broker(disk)
    assert [finding.lsn for finding in caught.value.findings] == [broker.durable.lsn]
    disk.execute(Remove("lock"))
    before.pop("lock")
    assert dict(disk.files()) == before
    assert Broker(disk, go_on_without_damage=True).durable.topics == broker.durable.topics


def test_a_start_that_finds_damage_changes_nothing_not_even_who_it_is() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    broker.create("orders")
    broker.publish(1, b"x")
    broker.close()
    for path, _ in list(disk.files()):
        if not path.startswith("topics/"):
            disk.remove(path)
    before = dict(disk.files())
    with pytest.raises(Corrupted, match="topics/orders"):
        Broker(disk)
    assert {path: data for path, data in disk.files() if path != "lock"} == before


def test_what_can_not_be_a_topic_is_left_alone_beside_them() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    broker.create("orders")
    broker.close()
    disk.execute(MakeDir("topics/lost+found"))
    disk.execute(Create("topics/lost+found/#1234"))
    again = Broker(disk)
    assert again.opened.report.findings == ()
    assert "topics/lost+found/#1234" in dict(disk.files())


def test_both_checkpoints_damaged_and_the_whole_journal_there_is_repaired() -> None:
    disk: SimDisk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    published = [broker.publish(log, b"x" * 100) for _ in range(5)]
    disk.kill()
    for path, _ in list(disk.files()):
        if path.startswith("checkpoints/"):
            disk.flip(path, 77)
    again = Broker(disk)
    assert again.durable == broker.durable
    assert again.read_all(log) == published
    assert {finding.outcome for finding in again.opened.report.findings} == {Outcome.REPAIRED}


def test_when_the_newest_checkpoint_is_damaged_the_older_and_the_journal_give_the_same() -> None:
    disk = sim_disk()
    broker = Broker(disk, TINY)
    log = broker.create("orders")
    published = []
    for number in range(40):
        published.append(broker.publish(log, b"%d" % number * 60))
        if broker.store.wants_checkpoint:
            broker.checkpoint()
    broker.checkpoint()
    disk.kill()
    newest = [path for path, _ in disk.files() if path.startswith("checkpoints/")][-1]
    disk.flip(newest, 99)
    again = Broker(disk, TINY)
    assert again.durable == broker.durable
    assert again.read_all(log) == published
    assert [finding.path for finding in again.opened.report.findings] == [newest]
    assert again.opened.report.findings[0].outcome is Outcome.REPAIRED


def test_a_checkpoint_is_never_ahead_of_the_journal_on_the_disk() -> None:
    disk = sim_disk()
    broker = Broker(disk, TINY)
    log = broker.create("orders", sync=SyncPolicy.OS)
    published = [broker.entry(log, b"never synced by its own commit")]
    broker.commit(published, sync=False)
    broker.checkpoint()
    disk.crash(lambda size: 0)
    disk.flip([path for path, _ in disk.files() if path.startswith("checkpoints/")][-1], 99)
    again = Broker(disk, TINY)
    assert again.durable == broker.durable
    assert again.read_all(log) == published


@pytest.mark.parametrize("gone", ["flip", "cut", "remove"])
def test_what_a_log_lost_since_the_older_checkpoint_is_written_again_from_the_journal(gone: str) -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    published = [broker.publish(log, b"x" * 100) for _ in range(4)]
    broker.checkpoint()
    disk.kill()
    path = next(path for path, _ in disk.files() if path.endswith(".log"))
    {"flip": lambda: disk.flip(path, 5000), "cut": lambda: disk.cut(path, 500), "remove": lambda: disk.remove(path)}[
        gone
    ]()
    again = Broker(disk)
    assert [finding.outcome for finding in again.opened.report.findings] == [Outcome.REPAIRED]
    assert again.read_all(log) == published
    again.close()
    assert Broker(disk).opened.report.findings == ()


def test_a_disk_without_room_for_a_spare_segment_or_a_checkpoint_is_left_as_it_was() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    disk.fault = fail(Kind.FULL, lambda op: isinstance(op, Write) and "spare" in op.path)
    entry = broker.publish(log, b"y" * (SMALL.journal_segment_bytes // 2))
    disk.fault = fail(Kind.FULL, lambda op: isinstance(op, Write) and op.path.endswith(".tmp"))
    with pytest.raises(DiskError):
        broker.checkpoint()
    disk.fault = None
    assert not [path for path, _ in disk.files() if path.endswith((".tmp", ".new"))]
    broker.checkpoint()
    assert broker.read(log, entry.base) == (entry,)


def test_a_full_disk_does_not_keep_a_broker_from_starting() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    published = [broker.publish(log, b"x" * 100) for _ in range(10)]
    disk.kill()
    segment = SMALL.journal_segment_bytes
    disk.fault = fail(Kind.FULL, lambda op: isinstance(op, Write) and sum(map(len, op.buffers)) == segment)
    again = Broker(disk)
    assert again.read_all(log) == published
    again.publish(log, b"and on")
    disk.kill()
    assert len(Broker(disk).read_all(log)) == 11


def test_what_was_found_in_spite_of_damage_is_deleted_with_its_topic_like_anything_else() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    for log in (broker.create("kept"), broker.create("orders")):
        broker.publish(log, b"x" * 100)
    broker.checkpoint()
    disk.kill()
    for path, _ in list(disk.files()):
        if path.startswith("journal/"):
            disk.remove(path)
    again = Broker(disk, go_on_without_damage=True)
    assert len(again.read_all(log)) == 1
    again.delete("orders")
    assert [info.name for info in run(disk, list_dir("topics"))] == ["kept"]


def test_a_journal_segment_that_a_checkpoint_covers_may_be_missing_in_the_middle() -> None:
    disk = sim_disk()
    broker = Broker(disk, TINY)
    log = broker.create("orders")
    for most in (5, 30, 3):
        for number in range(most):
            broker.publish(log, b"%d" % number * 60)
        if most > 3:
            broker.checkpoint()
    disk.kill()
    segments = [path for path, _ in disk.files() if path.endswith(".wal")]
    found = []
    for path in segments:
        twin = disk.copy()
        twin.remove(path)
        try:
            again = Broker(twin, TINY)
        except Corrupted:
            found.append("refused")
            continue
        assert again.durable == broker.durable
        assert again.read_all(log) == broker.read_all(log)
        found += {finding.outcome.name for finding in again.opened.report.findings}
    assert {"UNNEEDED", "refused"} <= set(found), found


def test_a_segment_whose_header_is_damaged_is_read_by_its_frames() -> None:
    disk = sim_disk()
    broker = Broker(disk, TINY)
    log = broker.create("orders")
    for number in range(20):
        broker.publish(log, b"%d" % number * 60)
    disk.kill()
    segments = [path for path, _ in disk.files() if path.endswith(".wal")]
    assert len(segments) > 3
    for path in segments[1:]:
        twin = disk.copy()
        twin.flip(path, 100)
        again = Broker(twin, TINY)
        assert again.durable == broker.durable
        assert [finding.outcome for finding in again.opened.report.findings] == [Outcome.UNNEEDED]


def test_what_neither_its_log_nor_the_journal_has_is_missed() -> None:
    disk = sim_disk()
    broker = Broker(disk, TINY)
    log, other = broker.create("orders"), broker.create("other")
    broker.publish(log, b"x" * 60)
    for _ in range(3):
        for _ in range(10):
            broker.publish(other, b"y" * 300)
        broker.checkpoint()
    disk.kill()
    (path,) = [path for path, _ in disk.files() if "/orders/" in path and path.endswith(".log")]
    disk.cut(path, 0)
    with pytest.raises(Corrupted, match="lost, log 1"):
        Broker(disk, TINY)


def test_a_read_that_has_all_it_was_asked_for_does_not_look_at_what_lies_behind() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    first, second = broker.publish(log, b"x" * 100), broker.publish(log, b"y" * 100)
    (path,) = [path for path, _ in disk.files() if path.endswith(".log")]
    disk.flip(path, (first.size_bytes + second.size_bytes - 1) * 8)
    assert broker.read(log, 0, first.size_bytes) == (first,)
    with pytest.raises(Corrupted):
        broker.read(log, 1)


def test_frames_that_are_gone_from_the_journals_beginning_are_missed_once() -> None:
    disk = sim_disk()
    broker = Broker(disk, TINY)
    log = broker.create("orders")
    for number in range(20):
        broker.publish(log, b"%d" % number * 60)
    disk.kill()
    segments = [path for path, _ in disk.files() if path.endswith(".wal")]
    for path in segments[:2]:
        disk.remove(path)
    with pytest.raises(Corrupted) as caught:
        Broker(disk, TINY)
    (found,) = [finding for finding in caught.value.findings if finding.path.startswith("journal/")]
    assert (found.outcome, found.path) == (Outcome.LOST, segments[2])
    assert "are missing before this segment" in found.reason


def test_a_file_that_is_gone_is_removed_already_and_one_that_can_not_be_removed_is_told_of() -> None:
    disk = sim_disk()
    Broker(disk)
    run(disk, remove_file("topics/nothing"))
    disk.fault = fail(Kind.DENIED, lambda op: isinstance(op, Remove))
    with pytest.raises(DiskError) as caught:
        run(disk, remove_file("broker.json"))
    assert caught.value.kind is Kind.DENIED


def test_a_part_of_holes_in_front_of_a_log_is_synced_with_its_name() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    for _ in range(30):
        broker.publish(log, b"x" * 200)
    broker.checkpoint()
    files = broker.store._logs.files[log]
    run(disk, files.remove_part(files.parts.pop(0)))
    files.has_new_names = False
    (found,) = run(disk, fill_front(files, 0))
    assert (found.first, found.last) == (0, files.parts[1].base - 1)
    assert (files.parts[0].base, files.parts[0].is_dirty, files.has_new_names) == (0, True, True)


def brought(disk: SimDisk, other: SimDisk, prefix: str) -> None:
    """Put the other directory's files of this kind in the place of our own."""
    for path, _ in list(disk.files()):
        if path.startswith(prefix):
            disk.remove(path)
    for path, data in other.files():
        if path.startswith(prefix):
            run(disk, replace_file(path, (data,)))


def used(salt: int, messages: int = 30) -> tuple[SimDisk, Broker]:
    """A directory with messages before and after its checkpoint, whose process was killed."""
    disk = sim_disk()
    broker = Broker(disk, TINY, salt)
    log = broker.create("orders")
    group = broker.join("billing", log)
    for number in range(messages):
        broker.publish(log, b"%d of %d" % (number, salt))
        if number == messages // 2:
            broker.checkpoint()
    broker.settle(group, log, 0, 4)
    disk.kill()
    return disk, broker


@pytest.mark.parametrize("prefix", ["journal/", "broker.json"])
def test_a_journal_or_broker_json_of_another_directory_is_refused(prefix: str) -> None:
    disk, _ = used(SALT)
    other, _ = used(SALT + 2)
    brought(disk, other, prefix)
    before = dict(disk.files())
    for go_on_without_damage in (False, True):
        with pytest.raises(Unusable, match="belong to different data directories: put back the one that belongs here"):
            Broker(disk, TINY, go_on_without_damage=go_on_without_damage)
    before.pop("lock")
    assert {path: data for path, data in disk.files() if path != "lock"} == before


def test_a_segment_of_another_directory_is_none_of_the_journal_and_is_put_aside() -> None:
    disk, broker = used(SALT)
    entries = broker.read_all(1)
    other, _ = used(SALT + 2)
    segments = [path for path, _ in disk.files() if path.endswith(".wal")]
    run(disk, replace_file(segments[-1], (dict(other.files())[segments[-1]],)))
    with pytest.raises(Corrupted, match="it belongs to another data directory") as caught:
        Broker(disk, TINY)
    assert caught.value.findings[0].path == segments[-1]
    again = Broker(disk, TINY, go_on_without_damage=True)
    assert again.read_all(1) == entries
    assert any(path.endswith(segments[-1]) for path in again.opened.report.quarantined)


def test_a_checkpoint_of_another_directory_that_does_not_fit_the_journal_is_told_of() -> None:
    disk, broker = used(SALT)
    other, _ = used(SALT + 2, messages=20)
    entries = broker.read_all(1)
    for path, _ in list(disk.files()):
        if path.startswith("checkpoints/"):
            disk.remove(path)
    state = replace(broker.durable, lsn=broker.durable.lsn - 3, logs=Broker(other, TINY).durable.logs)
    run(disk, replace_file(f"checkpoints/{state.lsn:020}.ckpt", tuple(checkpoint.encode(state))))
    with pytest.raises(Corrupted, match="makes no sense") as caught:
        Broker(disk, TINY)
    assert caught.value.findings[0].lsn == state.lsn + 1
    again = Broker(disk, TINY, go_on_without_damage=True)
    assert set(again.read_all(1)) <= set(entries)
    assert again.read_all(1)[-1] == entries[-1]


def test_a_journal_that_ends_before_the_checkpoint_is_missed() -> None:
    disk, _ = used(SALT)
    older = disk.copy()
    broker = Broker(disk, TINY)
    broker.settle(1, 1, 5, 9)
    broker.checkpoint()
    broker.settle(1, 1, 10, 14)
    disk.kill()
    brought(disk, older, "journal/")
    with pytest.raises(Corrupted, match="the journal ends before the checkpoint") as caught:
        Broker(disk, TINY)
    assert [each.lsn for each in caught.value.findings if each.outcome is Outcome.LOST] == [broker.durable.lsn]
    assert len(Broker(disk, TINY, go_on_without_damage=True).read_all(1)) == 30


def test_what_is_none_of_the_journals_is_left_alone_beside_it() -> None:
    disk, broker = used(SALT)
    strangers = ("README", "00000000000000000000.wal.bak", "٤" * 20 + ".wal", "9" * 20 + ".wal")
    for name in strangers:
        run(disk, replace_file(f"journal/{name}", (b"not ours",)))
    again = Broker(disk, TINY)
    assert again.opened.report.findings == ()
    assert again.durable == broker.durable
    assert {f"journal/{name}" for name in strangers} <= dict(disk.files()).keys()


def test_what_is_told_of_damage_begins_with_what_is_lost_and_leaves_nothing_out() -> None:
    disk, _ = used(SALT)
    for path, _ in list(disk.files()):
        if path.startswith("checkpoints/"):
            disk.flip(path, 99)
        if path.endswith("00.wal"):
            disk.remove(path)
    with pytest.raises(Corrupted) as caught:
        Broker(disk, TINY)
    told = caught.value.about("/srv/my data").splitlines()
    assert "(lost" in told[1]
    assert [line for line in told if line.startswith("  checkpoints/")]
    assert told[-1].endswith("dovetail log repair '/srv/my data' --yes")


def test_a_topics_directory_that_is_a_file_is_refused_at_once(tmp_path: Path) -> None:
    disk = RealDisk(os.fspath(tmp_path))
    broker = Broker(disk)
    broker.publish(broker.create("orders"), b"x")
    broker.checkpoint()
    broker.close()
    shutil.rmtree(tmp_path / "topics/orders")
    (tmp_path / "topics/orders").write_text("not a directory")
    with pytest.raises(DiskError, match=r"topics/orders.* a directory is needed there: move the file away"):
        Broker(disk)
