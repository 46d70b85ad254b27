"""The bytes of the journal: frames, the items in them, and the entries that journal and logs share.

Promises  what was encoded decodes to itself; a frame that was damaged, cut or left over from a segment's
          former life is never taken for a frame of the chain; batches are not copied on the way to the disk.
Never     opens a file or decides what to do about damage: `read_frame` says what lies at a position,
          `evidence` says what later bytes prove about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct as Layout
from typing import Final

import msgspec
from crc32c import crc32c
from msgspec import Struct

from dovetail.core.ids import check
from dovetail.core.records import AnyRecord, BatchAppended

MAGIC: Final = b"DVTL"
VERSION: Final = 1
FRAME_HEADER_BYTES: Final = 44
FRAME_BODY_BYTES_MAX: Final = 2**32 - 1
ENTRY_VERSION: Final = 1
ENTRY_HEADER_BYTES: Final = 64
BATCH_HEADER_BYTES: Final = 61
SEGMENT_MAGIC: Final = b"DVTJ"
SEGMENT_VERSION: Final = 1
SEGMENT_HEADER_BYTES: Final = 48

# A batch's own CRC covers it from this byte on; the entry's CRC covers what comes before.
_BATCH_UNCOVERED_BYTES: Final = 21

_FRAME: Final = Layout(">4sBBHIQQQII")
_FRAME_CHECKED: Final = Layout(">4sBBHIQQQI")
_CRC: Final = Layout(">I")
_ITEM: Final = Layout(">BI")
_MARK: Final = Layout(">BIQ")
_ENTRY: Final = Layout(">BBHIQIQQQIQII")
_ENTRY_CHECKED: Final = Layout(">BBHIQIQQQIQI")
_ENTRY_MARK: Final = Layout(">HI")
_ENTRY_MARK_AT: Final = 2
_BATCH_PREFIX: Final = Layout(">qiibI")
_BATCH_TAIL: Final = Layout(">hiqqqhii")
_BATCH_PRODUCER: Final = Layout(">qhi")
_BATCH_PRODUCER_AT: Final = 43
_RECORD_COUNT_AT: Final = 57
_NO_RECORDS: Final = bytes(4)
_SEGMENT: Final = Layout(">4sBBHQQQQI")
_SEGMENT_CHECKED_BYTES: Final = 44

_RECORDS: Final = 1
_ENTRY_ITEM: Final = 2
_MARK_ITEM: Final = 3

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[AnyRecord, ...])

Buffer = bytes | bytearray | memoryview


class FormatError(ValueError):
    """Bytes that are not what they should be; the text says what is wrong with them."""


class NewerFormat(FormatError):
    """Whole and intact, but written by a later version than this one."""


class Short(FormatError):
    """The bytes end before the thing they start does: `need` bytes in all would show it."""

    def __init__(self, text: str, need: int) -> None:
        super().__init__(text)
        self.need = need


class Entry(Struct, frozen=True, gc=False):
    """A stored batch: the broker's own header, then the batch as its producer sent it."""

    record: BatchAppended
    header: bytes
    batch: bytes | memoryview

    @property
    def base(self) -> int:
        return self.record.base

    @property
    def last(self) -> int:
        return self.record.base + self.record.count - 1

    @property
    def is_hole(self) -> bool:
        """Whether no record is left in it."""
        return self.batch[_RECORD_COUNT_AT:BATCH_HEADER_BYTES] == _NO_RECORDS

    @property
    def size_bytes(self) -> int:
        """What it takes in a journal or log."""
        return len(self.header) + len(self.batch)


Item = AnyRecord | Entry


class EncodedFrame(Struct, frozen=True):
    """A frame ready to be written: its buffers in order, their size, and the CRC the next frame chains to."""

    lsn: int
    buffers: list[bytes | memoryview]
    size_bytes: int
    crc: int


class Frame(Struct, frozen=True):
    """A whole frame of the chain, and the position after it."""

    lsn: int
    wall_ms: int
    synced_lsn: int
    previous_crc: int
    crc: int
    body: memoryview
    end: int


class NoFrame(Struct, frozen=True):
    """No frame begins here: the journal's end, as far as these bytes tell."""


class Damage(Struct, frozen=True):
    """The next frame begins here but is not whole. Torn or corrupt: that depends on what was synced."""

    reason: str


class Evidence(Struct, frozen=True):
    """What whole frames further on say: the highest lsn one of them names as synced, their own highest lsn,
    and where the last of them ends (0: there are none)."""

    synced_lsn: int = 0
    last_lsn: int = 0
    extent: int = 0


class SegmentHeader(Struct, frozen=True):
    """The head of a journal segment. Everything before `first_lsn` was synced before it was written; a file
    smaller than `size_bytes` was cut behind our back."""

    number: int
    first_lsn: int
    salt: int
    size_bytes: int
    previous_crc: int


def encode_entry(record: BatchAppended, batch: bytes | memoryview) -> Entry:
    """The entry that stands for `record`: producer fields stay in the batch, the handle is forgotten."""
    check(record.size_bytes == len(batch) >= BATCH_HEADER_BYTES, "I-ENTRY", record, len(batch))
    checked = _ENTRY_CHECKED.pack(
        ENTRY_VERSION,
        record.flags,
        0,
        record.log,
        record.base,
        record.count,
        record.arrival_ms,
        record.deliver_at_ms,
        record.expires_at_ms,
        record.other_log,
        record.other_base,
        len(batch),
    )
    crc = crc32c(batch[:_BATCH_UNCOVERED_BYTES], crc32c(checked))
    return Entry(record, checked + _CRC.pack(crc), batch)


def hole(log: int, base: int, count: int, arrival_ms: int) -> Entry:
    """An entry without records: it stands for `count` offsets that are compacted away or can't be read."""
    tail = _BATCH_TAIL.pack(0, count - 1, arrival_ms, arrival_ms, -1, -1, -1, 0)
    batch = _BATCH_PREFIX.pack(base, BATCH_HEADER_BYTES - 12, 0, 2, crc32c(tail)) + tail
    record = BatchAppended(log, base, count, arrival_ms, 0, 0, 0, len(batch), -1, -1, -1, 0)
    return encode_entry(record, batch)


def entry_at(buffer: Buffer, at: int, *, verify: bool = True) -> Entry:
    """The entry that begins at `at`; `Short` when the buffer ends first, `FormatError` when it is damaged.

    Without `verify` (inside a frame whose CRC holds) no CRC is computed again.
    """
    if len(buffer) - at < ENTRY_HEADER_BYTES:
        raise Short("the entry's header is cut short", ENTRY_HEADER_BYTES)
    fields = _ENTRY.unpack_from(buffer, at)
    version, flags, reserved, log, base, count, arrival, deliver_at, expires_at, *rest = fields
    other_log, other_base, length, crc = rest
    body = at + ENTRY_HEADER_BYTES
    if verify:
        if len(buffer) < body + _BATCH_UNCOVERED_BYTES:
            raise Short("the entry is cut short", ENTRY_HEADER_BYTES + BATCH_HEADER_BYTES)
        found = crc32c(memoryview(buffer)[at : body - 4])
        found = crc32c(memoryview(buffer)[body : body + _BATCH_UNCOVERED_BYTES], found)
        if found != crc:
            raise FormatError(f"the entry's header has CRC {found:08x}, it says {crc:08x}")
    if version != ENTRY_VERSION or reserved != 0:
        raise NewerFormat(f"the entry has format version {version}, this program reads {ENTRY_VERSION}")
    if length < BATCH_HEADER_BYTES:
        raise FormatError(f"the entry's batch has {length} bytes, a batch has at least {BATCH_HEADER_BYTES}")
    end = body + length
    if len(buffer) < end:
        raise Short("the entry's batch is cut short", ENTRY_HEADER_BYTES + length)
    batch = bytes(memoryview(buffer)[body:end])
    _check_batch(batch, base, verify)
    producer_id, producer_epoch, base_sequence = _BATCH_PRODUCER.unpack_from(batch, _BATCH_PRODUCER_AT)
    record = BatchAppended(
        log=log,
        base=base,
        count=count,
        arrival_ms=arrival,
        deliver_at_ms=deliver_at,
        expires_at_ms=expires_at,
        flags=flags,
        size_bytes=length,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        handle=0,
        other_log=other_log,
        other_base=other_base,
    )
    return Entry(record, bytes(memoryview(buffer)[at:body]), batch)


def find_entries(data: bytes, log: int) -> Iterator[tuple[int, Entry]]:
    """Every whole entry of `log` in `data` with its position, looked for at every byte: for salvage."""
    mark = _ENTRY_MARK.pack(0, log)
    at = 0
    while (found := data.find(mark, at)) >= 0:
        position = found - _ENTRY_MARK_AT
        try:
            entry = entry_at(data, position) if position >= 0 else None
        except FormatError:
            entry = None
        if entry is not None:
            yield position, entry
            at = position + entry.size_bytes
        else:
            at = found + 1


def _check_batch(batch: bytes, base: int, verify: bool) -> None:
    offset, length, _, _, crc = _BATCH_PREFIX.unpack_from(batch)
    size = length + 12
    if offset != base or size != len(batch):
        raise FormatError(
            f"the entry at offset {base} with {len(batch)} bytes holds a batch at offset {offset} with {size} bytes"
        )
    if verify:
        found = crc32c(memoryview(batch)[_BATCH_UNCOVERED_BYTES:])
        if found != crc:
            raise FormatError(f"the batch at offset {base} has CRC {found:08x}, it says {crc:08x}")


def encode_frame(
    lsn: int, wall_ms: int, synced_lsn: int, previous_crc: int, items: Iterable[Item], *, salt: int = 0
) -> EncodedFrame:
    """One frame: all records of one step, in order; an `Entry` stands in the place of its `BatchAppended`.

    `salt` marks the frame as this data directory's own, so that a payload that looks like a frame is never
    taken for evidence of one.
    """
    check(synced_lsn < lsn, "I-LSN", synced_lsn, lsn)
    body: list[bytes | memoryview] = [_mark(salt)] if salt else []
    plain: list[AnyRecord] = []
    for item in items:
        if isinstance(item, Entry):
            if plain:
                body.append(_encode_records(plain))
                plain = []
            body += (_ITEM.pack(_ENTRY_ITEM, item.size_bytes) + item.header, item.batch)
        else:
            check(not isinstance(item, BatchAppended), "I-ENTRY", item)
            plain.append(item)
    if plain:
        body.append(_encode_records(plain))
    length = sum(map(len, body))
    check(length <= FRAME_BODY_BYTES_MAX, "I-FRAME", length)
    head = _FRAME_CHECKED.pack(MAGIC, VERSION, 0, 0, length, lsn, wall_ms, synced_lsn, previous_crc)
    crc = crc32c(head)
    for part in body:
        crc = crc32c(part, crc)
    return EncodedFrame(lsn, [head + _CRC.pack(crc), *body], FRAME_HEADER_BYTES + length, crc)


def _encode_records(records: list[AnyRecord]) -> bytes:
    data = _ENCODER.encode(records)
    return _ITEM.pack(_RECORDS, len(data)) + data


def decode_items(body: memoryview) -> list[Item]:
    """The items of a whole frame's body, in order."""
    items: list[Item] = []
    at = 0
    while at < len(body):
        left = len(body) - at
        if left < _ITEM.size:
            raise FormatError(f"{left} bytes are left over at the end of the frame's body")
        kind, length = _ITEM.unpack_from(body, at)
        at += _ITEM.size
        end = at + length
        if end > len(body):
            raise FormatError(f"an item of {length} bytes does not fit in the frame's body")
        if kind == _ENTRY_ITEM:
            entry = entry_at(body[at:end], 0, verify=False)
            if entry.size_bytes != length:
                raise FormatError(f"an entry of {entry.size_bytes} bytes is in an item of {length} bytes")
            items.append(entry)
        elif kind == _RECORDS:
            items += _decode_records(body[at:end])
        elif kind != _MARK_ITEM:
            raise NewerFormat(f"an item of kind {kind} is not known to this version")
        at = end
    return items


def _decode_records(data: memoryview) -> tuple[AnyRecord, ...]:
    try:
        records = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise FormatError(f"records that can't be decoded: {error}") from error
    if any(isinstance(record, BatchAppended) for record in records):
        raise FormatError("a BatchAppended outside an entry")
    return records


def records_of(items: Iterable[Item]) -> Iterator[AnyRecord]:
    """The records that `items` stand for, entries as their `BatchAppended`."""
    for item in items:
        yield item.record if isinstance(item, Entry) else item


def is_of(frame: Frame, salt: int) -> bool:
    """Whether a frame carries the mark of the data directory with this salt; 0 asks for none."""
    mark = _mark(salt)
    return frame.body[: len(mark)] == mark


def _mark(salt: int) -> bytes:
    return _MARK.pack(_MARK_ITEM, 8, salt) if salt else b""


def first_frame_of(buffer: Buffer) -> tuple[int, int]:
    """The lsn of the frame that `buffer` starts with, and the CRC of the frame before it."""
    header = _FRAME_CHECKED.unpack_from(buffer)
    return header[5], header[8]


def read_frame(buffer: Buffer, at: int, lsn: int, previous_crc: int) -> Frame | NoFrame | Damage:
    """What lies at `at`, where the frame `lsn`, chained to `previous_crc`, would begin."""
    left = len(buffer) - at
    view = memoryview(buffer)
    if left < FRAME_HEADER_BYTES:
        known = min(left, len(MAGIC))
        cut = known > 0 and bytes(view[at : at + known]) == MAGIC[:known]
        return Damage("the frame's header is cut short") if cut else NoFrame()
    fields = _FRAME.unpack_from(buffer, at)
    magic, version, flags, reserved, length, found_lsn, wall_ms, synced_lsn, chained, crc = fields
    if magic != MAGIC:
        is_next = found_lsn == lsn and chained == previous_crc
        return Damage("the frame's magic is damaged") if is_next else NoFrame()
    end = at + FRAME_HEADER_BYTES + length
    whole = end <= len(buffer) and _frame_crc(view, at, end) == crc
    if not whole:
        return Damage(_what_is_wrong(end, len(buffer), found_lsn, lsn))
    if version != VERSION or flags or reserved:
        raise NewerFormat(f"the journal frame has format version {version}, this program reads {VERSION}")
    if found_lsn < lsn:
        return NoFrame()
    if found_lsn != lsn or chained != previous_crc:
        return Damage(f"a frame with lsn {found_lsn} that is not chained to the one before lsn {lsn}")
    body = view[at + FRAME_HEADER_BYTES : end]
    return Frame(lsn, wall_ms, synced_lsn, chained, crc, body, end)


def _frame_crc(view: memoryview, at: int, end: int) -> int:
    head = crc32c(view[at : at + FRAME_HEADER_BYTES - 4])
    return crc32c(view[at + FRAME_HEADER_BYTES : end], head)


def _what_is_wrong(end: int, size: int, found_lsn: int, lsn: int) -> str:
    if found_lsn != lsn:
        return f"the frame's header is damaged: it says lsn {found_lsn} where {lsn} follows"
    if end > size:
        return f"the frame would end at {end}, the segment ends at {size}"
    return "the frame's CRC does not hold"


def evidence(buffer: Buffer, at: int, lsn: int, salt: int = 0) -> Evidence:
    """What whole frames from `at` on, with `lsn` or a higher one, prove."""
    synced = last = extent = 0
    for found in whole_frames(buffer, at, lsn, salt):
        synced, last = max(synced, found.synced_lsn), max(last, found.lsn)
        extent = max(extent, found.end)
    return Evidence(synced, last, extent)


def find_frame(buffer: Buffer, at: int, lsn: int, salt: int = 0) -> tuple[int, int] | None:
    """Where, from `at` on, the frame `lsn` begins, and the CRC of the frame before it."""
    for found in whole_frames(buffer, at, lsn, salt):
        if found.lsn == lsn:
            return found.end - FRAME_HEADER_BYTES - len(found.body), found.previous_crc
    return None


def whole_frames(buffer: Buffer, at: int, lsn: int, salt: int) -> Iterator[Frame]:
    """Frames are looked for at every byte, because the lengths that would lead to them may be damaged; frames
    of the segment's former life have lower lsns and prove nothing."""
    data = buffer if isinstance(buffer, bytes | bytearray) else bytes(buffer)
    view = memoryview(data)
    mark = _mark(salt)
    while (at := data.find(MAGIC, at)) >= 0 and len(data) - at >= FRAME_HEADER_BYTES:
        _, version, _, _, length, found_lsn, wall_ms, synced_lsn, chained, crc = _FRAME.unpack_from(data, at)
        body = at + FRAME_HEADER_BYTES
        end = body + length
        plausible = version == VERSION and found_lsn >= lsn and end <= len(data)
        if plausible and data.startswith(mark, body) and _frame_crc(view, at, end) == crc:
            yield Frame(found_lsn, wall_ms, synced_lsn, chained, crc, view[body:end], end)
            at = end
        else:
            at += 1


def encode_segment_header(header: SegmentHeader) -> bytes:
    """The first bytes of a journal segment."""
    fields = (header.number, header.first_lsn, header.salt, header.size_bytes, header.previous_crc)
    checked = _SEGMENT.pack(SEGMENT_MAGIC, SEGMENT_VERSION, 0, 0, *fields)
    return checked + _CRC.pack(crc32c(checked))


def decode_segment_header(buffer: Buffer) -> SegmentHeader:
    """The header of a segment that was begun; `FormatError` for one that was not, or if it is damaged."""
    if len(buffer) < SEGMENT_HEADER_BYTES:
        raise Short("the segment's header is cut short", SEGMENT_HEADER_BYTES)
    head = memoryview(buffer)[:SEGMENT_HEADER_BYTES]
    if not any(head):
        raise FormatError("the segment was prepared but never begun")
    magic, version, flags, reserved, number, first_lsn, salt, size, previous_crc = _SEGMENT.unpack_from(head)
    (crc,) = _CRC.unpack_from(head, _SEGMENT_CHECKED_BYTES)
    if magic != SEGMENT_MAGIC or crc32c(head[:_SEGMENT_CHECKED_BYTES]) != crc:
        raise FormatError("the segment's header is damaged")
    if version != SEGMENT_VERSION or flags or reserved:
        raise NewerFormat(f"the journal segment has format version {version}, this program reads {SEGMENT_VERSION}")
    return SegmentHeader(number, first_lsn, salt, size, previous_crc)
