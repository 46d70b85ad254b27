"""Reading a journal back: which frames are there, where they end, and what is wrong with the rest.

Promises  frames are visited in the order of their lsns, each once; damage at or below an lsn that is known to be
          synced is a finding LOST (or UNNEEDED when a checkpoint covers it), only frames of the last, unsynced
          commit are CUT.
Never     writes.

What is known to be synced: what a checkpoint covers, what a frame names, everything before a later segment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dovetail.core.files import Loss, judge_loss
from dovetail.core.journal_format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Damage,
    Evidence,
    FormatError,
    Frame,
    Item,
    NewerFormat,
    NoFrame,
    SegmentHeader,
    decode_items,
    decode_segment_header,
    evidence,
    find_frame,
    first_frame_of,
    is_of,
    read_frame,
    whole_frames,
)
from dovetail.runtime.storage.disk import Read, Task, list_dir
from dovetail.runtime.storage.findings import Finding, Outcome, Unusable
from dovetail.runtime.storage.layout import BROKER, JOURNAL, SPARE, journal_path, number_of

Visit = Callable[[Frame], None]

_OUTCOMES: Final = {Loss.CUT: Outcome.CUT, Loss.UNNEEDED: Outcome.UNNEEDED, Loss.LOST: Outcome.LOST}


class FoundSegment(Struct, frozen=True):
    """A named segment as it lies in the directory; without a header it is damaged."""

    number: int
    path: str
    size_bytes: int
    header: SegmentHeader | None
    problem: str = ""


class Span(Struct, frozen=True):
    """A run of chained frames in one segment: where it begins, its first and last lsn, what it chains to."""

    path: str
    position: int
    end: int
    first_lsn: int
    last_lsn: int
    previous_crc: int


class Scanned(Struct, frozen=True):
    """The journal as it can be used: spans in order, the end of the chain, and what was found wrong."""

    spans: tuple[Span, ...]
    last_lsn: int
    crc: int
    synced_lsn: int
    tail: bytes
    tail_crc: int
    """The frames after `synced_lsn` as they lie there, and the CRC they chain to."""
    findings: tuple[Finding, ...]

    @property
    def is_lost(self) -> bool:
        return any(finding.outcome is Outcome.LOST for finding in self.findings)


def list_segments() -> Task[tuple[list[FoundSegment], list[str]]]:
    """The segments by number, and the paths of spares; whatever else people put there is left alone."""
    segments: list[FoundSegment] = []
    others: list[str] = []
    for info in (yield from list_dir(JOURNAL)):
        number = number_of(info.name, ".wal")
        if info.is_dir:
            continue
        if number is None:
            if info.name.startswith(SPARE):
                others.append(f"{JOURNAL}/{info.name}")
            continue
        path = journal_path(number)
        head: bytes = yield Read(path, 0, SEGMENT_HEADER_BYTES)
        segments.append(_found(number, path, info.size, head))
    return segments, others


def _found(number: int, path: str, size_bytes: int, head: bytes) -> FoundSegment:
    try:
        header = decode_segment_header(head)
    except NewerFormat as error:
        raise Unusable(f"{path}: {error}: use a newer version of dovetail") from error
    except FormatError as error:
        return FoundSegment(number, path, size_bytes, None, str(error))
    if header.number != number:
        return FoundSegment(number, path, size_bytes, None, f"it says it is segment {header.number}")
    return FoundSegment(number, path, size_bytes, header)


def claim(segments: list[FoundSegment], salt: int) -> list[FoundSegment]:
    """The segments, those of other data directories without their headers."""
    claimed = [
        replace(each, header=None, problem="it belongs to another data directory") if _is_strange(each, salt) else each
        for each in segments
    ]
    if any(each.header for each in segments) and not any(each.header for each in claimed):
        raise Unusable(
            f"{BROKER} and the journal belong to different data directories: put back the one that belongs here. If "
            f"the journal is right, remove {BROKER}, which is made anew; if it is not, move its files away, and "
            "`dovetail log verify` says what is lost without them"
        )
    return claimed


def _is_strange(segment: FoundSegment, salt: int) -> bool:
    return segment.header is not None and segment.header.salt != salt


def scan(segments: list[FoundSegment], salt: int, older_lsn: int, covered_lsn: int, visit: Visit) -> Task[Scanned]:
    """Go through the frames after `older_lsn`; visit those after `covered_lsn`, up to the end of the chain."""
    scanner = _Scanner(salt, older_lsn, covered_lsn, visit)
    for place, segment in enumerate(segments):
        later = [other.header for other in segments[place + 1 :]]
        bound = min((header.first_lsn for header in later if header), default=None)
        if bound is not None and bound <= older_lsn + 1:
            continue
        data: bytes = yield Read(segment.path, 0, segment.size_bytes)
        if not scanner.go_through(segment, data, bound, next_is_headless=bool(later) and later[0] is None):
            break
    return scanner.result()


def read_span(span: Span) -> Task[list[Frame]]:
    """The frames of a span once more."""
    data: bytes = yield Read(span.path, span.position, span.end - span.position)
    frames: list[Frame] = []
    at, crc = 0, span.previous_crc
    for lsn in range(span.first_lsn, span.last_lsn + 1):
        frame = read_frame(data, at, lsn, crc)
        if not isinstance(frame, Frame):
            raise Unusable(f"{span.path}: frame {lsn} was whole a moment ago and can't be read now")
        frames.append(frame)
        at, crc = frame.end, frame.crc
    return frames


def frames_after(segments: list[FoundSegment], salt: int, lsn: int) -> Task[list[Frame]]:
    """Whole frames after `lsn`, whether or not they are chained: what can be salvaged behind damage."""
    frames: list[Frame] = []
    for place, segment in enumerate(segments):
        bound = min((other.header.first_lsn for other in segments[place + 1 :] if other.header), default=None)
        data: bytes = yield Read(segment.path, 0, segment.size_bytes)
        for frame in whole_frames(data, 0, lsn + 1, salt):
            if frame.lsn > lsn and (bound is None or frame.lsn < bound):
                frames.append(frame)
                lsn = frame.lsn
    return frames


def items_of(frame: Frame) -> list[Item]:
    """A whole frame's items; a version of the format that is not known stops here."""
    try:
        return decode_items(frame.body)
    except NewerFormat as error:
        raise Unusable(f"the journal frame {frame.lsn}: {error}: use a newer version of dovetail") from error
    except FormatError as error:
        raise Unusable(f"the journal frame {frame.lsn} is whole but makes no sense: {error}") from error


class _Scanner:
    """Where the scan is: `lsn` comes next, and chains to `crc`."""

    def __init__(self, salt: int, older_lsn: int, covered_lsn: int, visit: Visit) -> None:
        self.salt = salt
        self.covered = covered_lsn
        self.visit = visit
        self.begun = False
        self.lsn = older_lsn + 1
        self.crc = 0
        self.synced = covered_lsn
        self.spans: list[Span] = []
        self.findings: list[Finding] = []
        self.data = b""
        self.marks: list[tuple[int, int, int]] = []
        """`(lsn, position, previous crc)` of each frame of the segment read last."""

    def go_through(self, segment: FoundSegment, data: bytes, bound: int | None, next_is_headless: bool) -> bool:
        """Take the frames of one segment, up to `bound`; False when the chain ends here."""
        self.data, self.marks = data, []
        if not self._enter(segment, data):
            return False
        at: int | None = SEGMENT_HEADER_BYTES
        while at is not None:
            at, problem = self._walk(segment, data, at, bound)
            if problem is None:
                return True
            proof = evidence(data, at, self.lsn, self.salt)
            if next_is_headless and isinstance(problem, NoFrame) and proof.last_lsn == 0:
                return True
            self.synced = max(self.synced, proof.synced_lsn, bound - 1 if bound else 0)
            if not self._judge(segment, data, at, problem, proof):
                return False
            at = self._resume(segment, data, at, bound, isinstance(problem, NoFrame))
        return bound is not None and self.lsn >= bound

    def _enter(self, segment: FoundSegment, data: bytes) -> bool:
        """Find what the segment's first frame must be."""
        header = segment.header
        if header is None:
            if not self.begun and len(data) >= SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES:
                self.lsn, self.crc = first_frame_of(memoryview(data)[SEGMENT_HEADER_BYTES:])
            whole = isinstance(self._frame(data, SEGMENT_HEADER_BYTES), Frame)
            self._note(Outcome.UNNEEDED if whole else Outcome.LOST, segment, 0, segment.problem, self.lsn)
            self.begun = True
            return whole
        missing = self.lsn if self.begun or header.first_lsn > self.lsn else header.first_lsn
        self.begun = True
        self.lsn, self.crc = header.first_lsn, header.previous_crc
        self.synced = max(self.synced, self.lsn - 1)
        if missing == self.lsn:
            return True
        lost = self.lsn - 1 > self.covered
        reason = f"the frames {missing} to {self.lsn - 1} are missing before this segment"
        self._note(Outcome.LOST if lost else Outcome.UNNEEDED, segment, 0, reason, missing)
        if lost:
            self.lsn = max(missing, self.covered + 1)
        return not lost

    def _walk(
        self, segment: FoundSegment, data: bytes, at: int, bound: int | None
    ) -> tuple[int, NoFrame | Damage | None]:
        """Take chained frames from `at` on; gives where it stopped, and why unless it was the bound."""
        first, position, chained = self.lsn, at, self.crc
        problem: NoFrame | Damage | None = None
        while bound is None or self.lsn < bound:
            found = self._frame(data, at)
            if not isinstance(found, Frame):
                problem = found
                break
            self.marks.append((self.lsn, at, self.crc))
            if self.lsn > self.covered:
                self.visit(found)
            self.synced = max(self.synced, found.synced_lsn)
            self.lsn, self.crc, at = self.lsn + 1, found.crc, found.end
        if self.lsn > first:
            self.spans.append(Span(segment.path, position, at, first, self.lsn - 1, chained))
        return at, problem

    def _frame(self, data: bytes, at: int) -> Frame | NoFrame | Damage:
        """What lies at `at`, where the next frame would begin."""
        found = read_frame(data, at, self.lsn, self.crc)
        if isinstance(found, Frame) and not is_of(found, self.salt):
            return Damage("the frame belongs to another data directory")
        return found

    def _judge(self, segment: FoundSegment, data: bytes, at: int, problem: NoFrame | Damage, proof: Evidence) -> bool:
        """Whether to go on without the frame that is not there; notes what that means."""
        reason = problem.reason if isinstance(problem, Damage) else "no frame where one must be"
        size_then = segment.header.size_bytes if segment.header else 0
        is_cut = len(data) < size_then and (isinstance(problem, Damage) or len(data) - at < FRAME_HEADER_BYTES)
        if is_cut:
            reason = f"the file was cut to {len(data)} bytes, it had {size_then}"
        is_begun = isinstance(problem, Damage) or proof.last_lsn > 0
        loss = judge_loss(self.lsn, self.covered, self.synced, is_cut, is_begun)
        if loss is Loss.CUT:
            reason = f"an unfinished commit: {reason}"
        if loss is not Loss.NONE:
            self._note(_OUTCOMES[loss], segment, at, reason, self.lsn)
        return loss is Loss.UNNEEDED

    def _resume(self, segment: FoundSegment, data: bytes, at: int, bound: int | None, is_end: bool) -> int | None:
        """After damage that a checkpoint covers: where the first frame that is needed begins, if it is here.
        `is_end`: nothing lies where the chain breaks off."""
        wanted = self.covered + 1
        if bound is not None and wanted >= bound:
            self.lsn = bound
            return None
        found = find_frame(data, at, wanted, self.salt)
        self.lsn, self.crc = wanted, found[1] if found else 0
        if found is not None:
            return found[0]
        proof = evidence(data, at, wanted, self.salt)
        is_cut = segment.header is not None and len(data) < segment.header.size_bytes
        if bound is not None or is_cut or proof.synced_lsn >= wanted:
            self._note(Outcome.LOST, segment, at, "no frame where one must be", wanted)
        elif proof.last_lsn:
            self._note(Outcome.CUT, segment, at, "an unfinished commit", wanted)
        elif is_end:
            # All that a checkpoint covers was synced before it: what is gone may have gone further.
            reason = "the journal ends before the checkpoint: whatever was decided after that is lost"
            self._note(Outcome.LOST, segment, at, reason, wanted)
        return None

    def _note(self, outcome: Outcome, segment: FoundSegment, position: int, reason: str, lsn: int) -> None:
        self.findings.append(Finding(outcome, segment.path, position, reason, lsn))

    def result(self) -> Scanned:
        last = max(self.lsn - 1, self.covered)
        synced = min(self.synced, last)
        tail, tail_crc = b"", self.crc
        for lsn, position, chained in self.marks:
            if lsn == synced + 1:
                tail, tail_crc = self.data[position : self.spans[-1].end], chained
        return Scanned(tuple(self.spans), last, self.crc, synced, tail, tail_crc, tuple(self.findings))
