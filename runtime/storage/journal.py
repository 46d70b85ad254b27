"""The journal's files: segments that frames are committed to, recycled once a checkpoint covers them.

Promises  `commit` is one write and one sync; a segment has its name only once its first bytes are synced, so a
          segment that has one but no header was damaged; all before a segment's first frame was synced.
Never     moves its position for a commit that failed: the same frames may be tried again.

`commit` runs in the journal lane, all else in the log lane; they share two deques, of spares and of segments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dovetail.core import files
from dovetail.core.ids import check
from dovetail.core.journal_format import (
    SEGMENT_HEADER_BYTES,
    EncodedFrame,
    SegmentHeader,
    encode_segment_header,
)
from dovetail.runtime.storage.disk import (
    Buffer,
    Create,
    DiskError,
    Kind,
    Remove,
    Rename,
    Sync,
    SyncDir,
    SyncFailed,
    Task,
    Write,
    remove_file,
)
from dovetail.runtime.storage.layout import JOURNAL, StoreOptions, journal_path, spare_path

_ZEROS = bytes(1 << 20)


class Segment(Struct, frozen=True):
    """A begun segment: its number, its first frame, and the size its file has at least."""

    number: int
    first_lsn: int
    size_bytes: int


class Spare(Struct, frozen=True):
    """A file that is ready to become a segment."""

    path: str
    size_bytes: int


class Journal:
    """The open journal."""

    def __init__(
        self, options: StoreOptions, salt: int, segments: Iterable[Segment], position: int, lsn: int, crc: int
    ) -> None:
        self.segments = deque(segments)
        """Oldest first; the last one is written to."""
        self.spares: deque[Spare] = deque()
        self.committed_lsn = lsn
        """The last frame that was written."""
        self.synced_lsn = lsn
        """The last frame that is known to be on the disk."""
        self.committed_bytes = 0
        self._options = options
        self._salt = salt
        self._position = position
        self._crc = crc
        self._preparing: tuple[Spare, int] | None = None
        self._prepared = 0

    def commit(self, frames: Sequence[EncodedFrame], *, sync: bool = True) -> Task[None]:
        """Put the frames on the disk: they are durable when this returns, or with the next sync."""
        check(frames[0].lsn == self.committed_lsn + 1, "I-LSN", self.committed_lsn, frames[0].lsn)
        size = sum(frame.size_bytes for frame in frames)
        buffers = [buffer for frame in frames for buffer in frame.buffers]
        if files.is_full(self._position, SEGMENT_HEADER_BYTES, size, self._options.journal_segment_bytes):
            if self.synced_lsn < self.committed_lsn:
                yield Sync(journal_path(self.segments[-1].number))
            yield from self._roll(frames[0].lsn, buffers)
            self._position = SEGMENT_HEADER_BYTES + size
            sync = True
        else:
            path = journal_path(self.segments[-1].number)
            yield Write(path, self._position, buffers)
            if sync:
                yield Sync(path)
            self._position += size
        self._crc = frames[-1].crc
        self.committed_lsn = frames[-1].lsn
        self.committed_bytes += size
        if sync:
            self.synced_lsn = self.committed_lsn

    def sync(self) -> Task[None]:
        """Put on the disk what commits only wrote."""
        if self.synced_lsn < self.committed_lsn:
            yield Sync(journal_path(self.segments[-1].number))
            self.synced_lsn = self.committed_lsn

    def sync_to(self, lsn: int) -> Task[None]:
        """Log lane: make sure that the frames up to `lsn`, written before, are on the disk. What is done because
        of a frame and can't be undone must not outlive it."""
        if lsn > self.synced_lsn:
            yield Sync(journal_path(self.segments[-1].number))

    def _roll(self, first_lsn: int, buffers: Sequence[Buffer]) -> Task[None]:
        number = self.segments[-1].number + 1
        path = journal_path(number)
        spare = self.spares.popleft() if self.spares else Spare(spare_path(number), 0)
        if spare.size_bytes == 0:
            yield Create(spare.path)
        header = SegmentHeader(number, first_lsn, self._salt, spare.size_bytes, self._crc)
        try:
            yield Write(spare.path, 0, [encode_segment_header(header), *buffers])
            yield Sync(spare.path)
            if spare.path != path:
                yield Rename(spare.path, path)
                spare = replace(spare, path=path)
            yield SyncDir(JOURNAL)
        except SyncFailed:
            raise
        except DiskError:
            # When the directory could not be synced it has its new name already: the next try finds it there.
            self.spares.appendleft(spare)
            raise
        # What was appended to a segment that was not prewritten has its blocks now: it can be recycled like any other.
        full = self.segments[-1]
        self.segments[-1] = replace(full, size_bytes=max(full.size_bytes, self._position))
        self.segments.append(Segment(number, first_lsn, spare.size_bytes))

    @property
    def wants_spare(self) -> bool:
        """Whether the segment in use is half full and nothing is ready to follow it."""
        half = self._options.journal_segment_bytes // 2
        return self._options.preallocate and not self.spares and self._position > half

    def prepare(self, budget_bytes: int) -> Task[None]:
        """Go on with writing a spare full of zeros, at most `budget_bytes` of it now. A disk that has no room for it
        is no reason to fail: the journal does without."""
        size = self._options.journal_segment_bytes
        if self._preparing is None:
            self._prepared += 1
            self._preparing = (Spare(f"{spare_path(self._prepared)}.new", size), 0)
        spare, position = self._preparing
        stop = min(size, position + budget_bytes)
        try:
            if position == 0:
                yield Create(spare.path)
            yield from _write_zeros(spare.path, position, stop)
            self._preparing = (spare, stop)
            if stop == size:
                yield Sync(spare.path)
                self._preparing = None
                self.spares.append(spare)
        except SyncFailed:
            raise
        except DiskError:
            self._preparing = None
            yield from remove_file(spare.path)

    def free(self, lsn: int) -> Task[None]:
        """Recycle the segments whose frames are all at or below `lsn`."""
        recycled: list[Spare] = []
        while len(self.segments) > 1 and files.is_spent(self.segments[1].first_lsn, lsn):
            segment = self.segments[0]
            path = journal_path(segment.number)
            if segment.size_bytes and len(self.spares) + len(recycled) < self._options.spare_segments_max:
                spare = Spare(spare_path(segment.number), segment.size_bytes)
                yield Rename(path, spare.path)
                recycled.append(spare)
            else:
                yield Remove(path)
            self.segments.popleft()
        # A spare is handed over only when its old name is gone for good: a segment has one name.
        if recycled:
            yield SyncDir(JOURNAL)
        self.spares.extend(recycled)


def begin_segment(header: SegmentHeader, tail: bytes) -> Task[Segment]:
    """Make a segment that starts with the frames in `tail`, preallocated if the disk has room for it; it has its name
    when all of it is synced."""
    beside = spare_path(header.number)
    yield Create(beside)
    if header.size_bytes:
        try:
            yield from _write_zeros(beside, 0, header.size_bytes)
        except DiskError as error:
            if error.kind is not Kind.FULL:
                raise
            # A full disk must not keep the broker from starting: room is made by a broker that runs.
            header = replace(header, size_bytes=0)
            yield Create(beside)
    yield Write(beside, 0, [encode_segment_header(header), tail])
    yield Sync(beside)
    yield Rename(beside, journal_path(header.number))
    yield SyncDir(JOURNAL)
    return Segment(header.number, header.first_lsn, header.size_bytes)


def _write_zeros(path: str, position: int, stop: int) -> Task[None]:
    while position < stop:
        size = min(len(_ZEROS), stop - position)
        yield Write(path, position, (memoryview(_ZEROS)[:size],))
        position += size
