"""Reading the journal of a broker that runs: what it decided a while ago, for people.

Promises  only whole, chained frames are shown, in their order; at most `PIECE_BYTES_MAX` of a segment are in memory;
          may run beside commits, in a thread of its own.
Never     reports damage: a segment that is recycled while it is read just ends. Recovery and `verify` judge.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.core.journal_format import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, Frame, NoFrame, read_frame
from dovetail.runtime.storage.disk import DiskError, Read, Task
from dovetail.runtime.storage.findings import Unusable
from dovetail.runtime.storage.scan import FoundSegment, list_segments

PIECE_BYTES = 1 << 20
PIECE_BYTES_MAX = 64 << 20

Show = Callable[[Frame], None]


def look_back(show: Show) -> Task[None]:
    """Show every frame that is still in the journal, oldest first."""
    try:
        segments, _ = yield from list_segments()
    except (DiskError, Unusable):
        return
    for segment in segments:
        try:
            yield from _walk(segment, show)
        except DiskError:
            continue


def _walk(segment: FoundSegment, show: Show) -> Task[None]:
    header = segment.header
    if header is None:
        return
    lsn, crc = header.first_lsn, header.previous_crc
    position, at, size = SEGMENT_HEADER_BYTES, 0, PIECE_BYTES
    piece: bytes = yield Read(segment.path, position, size)
    while True:
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
        piece = yield Read(segment.path, position, size)
