"""The group committer: which frames go to the journal next, and when.

Promises  frames go out in order of lsn, one commit at a time; everything that waits goes with the next one; what may
          linger waits at most `linger_ms`; nothing counts as stored before its commit is done (I-CONFIRM).
Never     writes: a shell takes `next_commit`, has the storage engine write it, and says `done`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from dovetail.core import journal_format
from dovetail.core.ids import check
from dovetail.core.journal_format import EncodedFrame, Item


class Commit(Struct, frozen=True):
    """Frames to be written at once and, if `sync`, synced; without frames, what was written before is synced."""

    frames: tuple[EncodedFrame, ...]
    sync: bool
    last_lsn: int

    @property
    def size_bytes(self) -> int:
        return sum(frame.size_bytes for frame in self.frames)


class Committer:
    """Holds the frames that are not stored yet; `crc` and `salt` go on from the journal's last frame."""

    __slots__ = (
        "_bytes",
        "_chain",
        "_frames",
        "_last_lsn",
        "_linger_ms",
        "_needs_sync",
        "_salt",
        "_synced_lsn",
        "_timed",
        "_under_way",
        "_unsynced_ms",
        "_urgent_ms",
        "sync_interval_ms",
    )

    def __init__(self, *, lsn: int, crc: int, salt: int, linger_ms: int, sync_interval_ms: int = 1_000) -> None:
        self._chain = crc
        self._salt = salt
        self._linger_ms = linger_ms
        self.sync_interval_ms = sync_interval_ms
        self._frames: list[EncodedFrame] = []
        self._bytes = 0
        self._needs_sync = False
        self._urgent_ms: int | None = None  # when the oldest frame that waits must go out
        self._under_way: Commit | None = None
        self._synced_lsn = lsn
        self._last_lsn = lsn
        self._timed = False  # whether a frame that waits is to be synced within the interval
        self._unsynced_ms: int | None = None  # since when frames that are to be synced in time are only written

    @property
    def bytes_waiting(self) -> int:
        """Bytes that are not stored yet, those under way included."""
        return self._bytes + (self._under_way.size_bytes if self._under_way else 0)

    @property
    def synced_lsn(self) -> int:
        """Everything up to here is on the disk."""
        return self._synced_lsn

    def add(
        self,
        mono_ms: int,
        lsn: int,
        wall_ms: int,
        items: Sequence[Item],
        *,
        urgent: bool,
        sync: bool,
        timed: bool = True,
    ) -> None:
        """Take the frame of one step: `urgent` if somebody waits for it, `sync` if that needs more than a write,
        `timed` if it is to be synced within the interval all the same."""
        frame = journal_format.encode_frame(lsn, wall_ms, self._synced_lsn, self._chain, items, salt=self._salt)
        self._chain = frame.crc
        self._frames.append(frame)
        self._bytes += frame.size_bytes
        self._needs_sync = self._needs_sync or sync
        self._timed = self._timed or timed
        due_ms = mono_ms if urgent else mono_ms + self._linger_ms
        self._urgent_ms = due_ms if self._urgent_ms is None else min(self._urgent_ms, due_ms)

    def next_commit(self, mono_ms: int) -> Commit | None:
        """The next commit to be carried out; None while one is under way or nothing is due."""
        if self._under_way is not None:
            return None
        overdue = self._unsynced_ms is not None and mono_ms - self._unsynced_ms >= self.sync_interval_ms
        if not overdue and (self._urgent_ms is None or mono_ms < self._urgent_ms):
            return None
        if self._frames:
            self._last_lsn = self._frames[-1].lsn
        self._under_way = Commit(tuple(self._frames), self._needs_sync or overdue, self._last_lsn)
        if not self._under_way.sync and self._timed and self._unsynced_ms is None:
            self._unsynced_ms = mono_ms
        self._frames = []
        self._bytes = 0
        self._needs_sync = False
        self._timed = False
        self._urgent_ms = None
        return self._under_way

    def done(self) -> Commit:
        """The commit under way is on the disk (or written, if it asked for no more)."""
        commit = self._under_way
        check(commit is not None, "I-CONFIRM", "a commit ended that was not under way")
        assert commit is not None  # for the type checker: the line above has seen to it
        self._under_way = None
        if commit.sync:
            self._synced_lsn = commit.last_lsn
            self._unsynced_ms = None
        return commit

    @property
    def wake_ms(self) -> int | None:
        """When `next_commit` is worth asking again, if nothing else happens."""
        if self._under_way is not None:
            return None
        overdue_ms = None if self._unsynced_ms is None else self._unsynced_ms + self.sync_interval_ms
        return min((each for each in (self._urgent_ms, overdue_ms) if each is not None), default=None)
