"""The journal alone: what it asks of the disk, in which order."""

from __future__ import annotations

import pytest

from dovetail.core.journal_format import SEGMENT_HEADER_BYTES, EncodedFrame
from dovetail.runtime.storage.disk import DiskError, Kind, Op, Rename, Sync, SyncDir, Task, Write
from dovetail.runtime.storage.journal import Journal, Segment, Spare
from dovetail.runtime.storage.layout import JOURNAL, StoreOptions, journal_path, spare_path


def asked_of_the_disk(task: Task[None]) -> list[Op]:
    """Everything a task asks for, each answered at once."""
    found: list[Op] = []
    try:
        while True:
            found.append(task.send(None))
    except StopIteration:
        return found


def a_journal_with_room_for_one_frame() -> Journal:
    options = StoreOptions(journal_segment_bytes=SEGMENT_HEADER_BYTES + 100)
    return Journal(options, 7, [Segment(3, 1, 0)], SEGMENT_HEADER_BYTES, 0, 0)


def a_frame(lsn: int) -> EncodedFrame:
    return EncodedFrame(lsn, [bytes(80)], 80, lsn)


def test_a_segment_that_was_only_written_is_synced_before_the_next_one_begins() -> None:
    journal = a_journal_with_room_for_one_frame()
    assert [type(each) for each in asked_of_the_disk(journal.commit([a_frame(1)], sync=False))] == [Write]
    asked = asked_of_the_disk(journal.commit([a_frame(2)], sync=False))
    assert asked[0] == Sync(journal_path(3))
    assert any(isinstance(each, Rename) for each in asked)
    assert journal.synced_lsn == 2


def test_a_segment_that_was_synced_is_not_synced_again() -> None:
    journal = a_journal_with_room_for_one_frame()
    assert Sync(journal_path(3)) in asked_of_the_disk(journal.commit([a_frame(1)]))
    assert Sync(journal_path(3)) not in asked_of_the_disk(journal.commit([a_frame(2)]))


def test_a_segment_whose_name_could_not_be_synced_is_written_again_under_that_name() -> None:
    journal = a_journal_with_room_for_one_frame()
    asked_of_the_disk(journal.commit([a_frame(1)]))
    journal.spares.append(Spare(spare_path(9), 4096))
    task = journal.commit([a_frame(2)])
    while task.send(None) != SyncDir(JOURNAL):
        pass
    with pytest.raises(DiskError):
        task.throw(DiskError(Kind.DESCRIPTORS, JOURNAL, "too many open files"))
    assert journal.committed_lsn == 1
    wrote, *rest = asked_of_the_disk(journal.commit([a_frame(2)]))
    assert isinstance(wrote, Write)
    assert wrote.path == journal_path(4), "its old name is gone: writing there fails for ever"
    assert rest == [Sync(journal_path(4)), SyncDir(JOURNAL)]
    assert journal.committed_lsn == 2
