"""When frames go to the journal, and with what."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.core import journal_format
from dovetail.core.committer import Commit, Committer
from dovetail.core.ids import Bug
from dovetail.core.journal_format import Frame
from dovetail.core.records import LogTrimmed

LINGER_MS, INTERVAL_MS, SALT = 50, 1_000, 7


def committer() -> Committer:
    return Committer(lsn=10, crc=99, salt=SALT, linger_ms=LINGER_MS, sync_interval_ms=INTERVAL_MS)


def add(to: Committer, lsn: int, at_ms: int = 0, *, urgent: bool = True, sync: bool = True, timed: bool = True) -> None:
    to.add(at_ms, lsn, 5_000 + lsn, [LogTrimmed(1, lsn)], urgent=urgent, sync=sync, timed=timed)


def lsns(commit: Commit | None) -> list[int]:
    assert commit is not None
    assert commit.last_lsn == commit.frames[-1].lsn
    return [frame.lsn for frame in commit.frames]


def test_what_is_urgent_goes_at_once_and_takes_all_that_waits_with_it() -> None:
    line = committer()
    add(line, 11, 0, urgent=False)
    assert (line.wake_ms, line.next_commit(LINGER_MS - 1)) == (LINGER_MS, None)
    add(line, 12, 20)
    assert line.wake_ms == 20
    assert lsns(line.next_commit(20)) == [11, 12]


def test_what_may_linger_goes_when_the_oldest_of_it_has_waited_long_enough() -> None:
    line = committer()
    add(line, 11, 0, urgent=False)
    add(line, 12, 30, urgent=False)
    assert line.next_commit(LINGER_MS - 1) is None
    assert lsns(line.next_commit(LINGER_MS)) == [11, 12]


def test_one_commit_at_a_time_and_what_comes_meanwhile_goes_with_the_next() -> None:
    line = committer()
    add(line, 11)
    first = line.next_commit(0)
    add(line, 12)
    add(line, 13, sync=False)
    assert (line.next_commit(10_000), line.wake_ms) == (None, None)
    assert line.done() is first
    assert line.synced_lsn == 11
    assert lsns(line.next_commit(0)) == [12, 13]
    assert line.synced_lsn == 11
    line.done()
    assert (line.synced_lsn, line.wake_ms, line.next_commit(10_000)) == (13, None, None)


def test_bytes_wait_until_their_commit_is_done() -> None:
    line = committer()
    assert line.bytes_waiting == 0
    add(line, 11)
    one = line.bytes_waiting
    assert one > 0
    commit = line.next_commit(0)
    assert commit is not None
    assert commit.size_bytes == line.bytes_waiting == one
    add(line, 12)
    assert line.bytes_waiting == 2 * one
    line.done()
    assert line.bytes_waiting == one


def test_a_commit_syncs_if_one_of_its_frames_asks_for_it() -> None:
    for asked in ([True, False], [False, True], [False, False]):
        line = committer()
        for lsn, sync in enumerate(asked, 11):
            add(line, lsn, sync=sync)
        commit = line.next_commit(0)
        assert commit is not None
        assert commit.sync == any(asked)
        line.done()
        assert line.synced_lsn == (12 if any(asked) else 10)
        add(line, 13, sync=False)
        again = line.next_commit(0)
        assert again is not None
        assert not again.sync


def test_what_is_only_written_is_synced_within_the_interval_although_nothing_follows() -> None:
    line = committer()
    add(line, 11, sync=False)
    line.next_commit(0)
    line.done()
    add(line, 12, 300, sync=False)
    line.next_commit(300)
    line.done()
    assert (line.wake_ms, line.next_commit(INTERVAL_MS - 1), line.synced_lsn) == (INTERVAL_MS, None, 10)
    late = line.next_commit(INTERVAL_MS)
    assert late == Commit((), sync=True, last_lsn=12)
    line.done()
    assert (line.synced_lsn, line.wake_ms) == (12, None)


def test_the_interval_begins_with_the_first_frame_that_is_to_be_synced_in_time() -> None:
    line = committer()
    add(line, 11, sync=False, timed=False)
    line.next_commit(0)
    line.done()
    assert (line.wake_ms, line.next_commit(10 * INTERVAL_MS)) == (None, None)
    add(line, 12, 400, sync=False, timed=False)
    add(line, 13, 400, sync=False)
    add(line, 14, 400, sync=False, timed=False)
    line.next_commit(400)
    line.done()
    assert line.wake_ms == 400 + INTERVAL_MS
    add(line, 15, 500)
    assert line.wake_ms == 500
    line.next_commit(500)
    line.done()
    assert line.wake_ms is None


def test_frames_are_chained_from_the_journals_last_one_and_say_what_was_synced_before_them() -> None:
    line = committer()
    add(line, 11)
    add(line, 12)
    commit = line.next_commit(0)
    assert commit is not None
    crc: int = 99
    for lsn, frame in enumerate(commit.frames, 11):
        found: Any = journal_format.read_frame(b"".join(frame.buffers), 0, lsn, crc)
        assert isinstance(found, Frame)
        assert (found.lsn, found.wall_ms, found.synced_lsn) == (lsn, 5_000 + lsn, 10)
        crc = found.crc


def test_nothing_is_done_that_was_not_under_way() -> None:
    with pytest.raises(Bug, match="I-CONFIRM"):
        committer().done()
