"""Reading the journal of a broker that runs: what it decided a while ago, for people.

Promises  only whole, chained frames are shown, in their order and each once; at most `PIECE_BYTES_MAX` of a segment are
          in memory; may run beside commits, in a thread of its own.
Never     reports damage: a segment that is recycled while it is read just ends. Recovery and `verify` judge.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.core.journal_format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Frame,
    NoFrame,
    SegmentHeader,
    read_frame,
)
from dovetail.runtime.storage.disk import DiskError, Read, Task
from dovetail.runtime.storage.findings import Unusable
from dovetail.runtime.storage.scan import list_segments

PIECE_BYTES = 1 << 20
PIECE_BYTES_MAX = 64 << 20
LSN_MAX = 1 << 62

Show = Callable[[Frame], None]


def look_back(show: Show) -> Task[None]:
    """Show every frame that is still in the journal, oldest first."""
    try:
        segments, _ = yield from list_segments()
    except (DiskError, Unusable):
        return
    known = [(segment.path, segment.header) for segment in segments if segment.header is not None]
    for place, (path, header) in enumerate(known):
        # A recovery writes the end of a segment again into the next one: what counts is there.
        until_lsn = min((later.first_lsn for _, later in known[place + 1 :]), default=LSN_MAX)
        try:
            yield from _walk(path, header, until_lsn, show)
        except DiskError:
            continue


def _walk(path: str, header: SegmentHeader, until_lsn: int, show: Show) -> Task[None]:
    lsn, crc = header.first_lsn, header.previous_crc
    position, at, size = SEGMENT_HEADER_BYTES, 0, PIECE_BYTES
    piece: bytes = yield Read(path, position, size)
    while lsn < until_lsn:
        frame = read_frame(piece, at, lsn, crc)
        if isinstance(frame, Frame):
            show(frame)
            lsn, crc, at = frame.lsn + 1, frame.crc, frame.end
            continue
        # It may only be cut off by the end of the piece.
        is_end = isinstance(frame, NoFrame) and len(piece) - at >= FRAME_HEADER_BYTES
        if is_end or len(piece) < size or (at == 0 and size >= PIECE_BYTES_MAX):
            return
        size = size * 2 if at == 0 else PIECE_BYTES
        position, at = position + at, 0
        piece = yield Read(path, position, size)
