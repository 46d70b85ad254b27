"""Kafka's RecordBatch v2: what producers send, the broker stores and consumers get, byte for byte.

Promises  a batch that `check_produced` accepted can be parsed; no reader here allocates more than
          `decoded_bytes_max` for what a batch expands to; nothing is rebuilt from bytes whose CRC is wrong.
Never     changes records: only base offset and leader epoch, which lie outside the CRC, are ever patched.
"""

from collections.abc import Container, Iterator, Sequence
from struct import Struct as Layout
from typing import Final, TypeAlias, cast

import crc32c
from msgspec import Struct
from msgspec.structs import replace

from dovetail.core import varint
from dovetail.core.compression import (
    STANDARD,
    Codecs,
    Compression,
    CompressionError,
    ExpandsTooFar,
    compress,
    decompress,
)

Bytes: TypeAlias = bytes | bytearray | memoryview
"""They are read alike here where nothing that is cut out of them is kept."""
RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]
NewRecord: TypeAlias = tuple[bytes | None, bytes | None, RecordHeaders]

MAGIC: Final = 2
HEADER_BYTES: Final = 61
PATCHED_BYTES: Final = 16
DECODED_BYTES_MAX: Final = 64 * 1024 * 1024
RECORD_BYTES_MIN: Final = 7

_HEADER: Final = Layout(">qiibIhiqqqhii")
_CRC_PART: Final = Layout(">hiqqqhii")
_OUTSIDE_CRC: Final = Layout(">qii")
_CRC_AT: Final = 21
_LENGTH_COUNTS_FROM: Final = 12
_BATCH_LENGTH_MIN: Final = HEADER_BYTES - _LENGTH_COUNTS_FROM
_COMPRESSION_BITS: Final = 0x07
_LOG_APPEND_TIME_BIT: Final = 0x08
_TRANSACTIONAL_BIT: Final = 0x10
_CONTROL_BIT: Final = 0x20
_RECORD_HEADER_BYTES_MIN: Final = 2
_I64_MIN: Final = -(1 << 63)
_I64_MAX: Final = (1 << 63) - 1


class BatchError(Exception):
    """What whoever made these bytes got wrong."""


class BatchTooLarge(BatchError):
    """A batch, or a record in it, over a limit."""


class BatchHeader(Struct, frozen=True, gc=False):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + _LENGTH_COUNTS_FROM

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        return self.attributes & _COMPRESSION_BITS

    @property
    def log_append_time(self) -> bool:
        return self.attributes & _LOG_APPEND_TIME_BIT != 0

    @property
    def transactional(self) -> bool:
        return self.attributes & _TRANSACTIONAL_BIT != 0

    @property
    def control(self) -> bool:
        return self.attributes & _CONTROL_BIT != 0


class Record(Struct, frozen=True, gc=False):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()


def build(
    records: Sequence[NewRecord],
    *,
    timestamp_ms: int,
    timestamps_ms: Sequence[int] | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    codecs: Codecs = STANDARD,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One batch of `records`, all of `timestamp_ms` unless `timestamps_ms` gives each its own."""
    if not records:
        raise ValueError("a batch needs at least one record")
    if timestamps_ms is None:
        base = newest = timestamp_ms
    else:
        if len(timestamps_ms) != len(records):
            raise ValueError(f"{len(records)} records but {len(timestamps_ms)} timestamps")
        base, newest = timestamps_ms[0], max(timestamps_ms)
    attributes = int(compression)
    attributes |= _TRANSACTIONAL_BIT if transactional else 0
    attributes |= _CONTROL_BIT if control else 0
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp_ms=base,
        max_timestamp_ms=newest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return _assemble(header, compress(codecs, compression, _record_section(records, timestamps_ms, base)))


def _record_section(records: Sequence[NewRecord], timestamps_ms: Sequence[int] | None, base_ms: int) -> bytes:
    parts: list[bytes] = []
    number = varint.encode
    prefix = b"\0\0"
    for delta, (key, value, headers) in enumerate(records):
        if timestamps_ms is not None:
            prefix = b"\0" + number(timestamps_ms[delta] - base_ms)
        if key is None:
            front = prefix + number(delta) + varint.MINUS_ONE
        else:
            front = prefix + number(delta) + number(len(key)) + key
        if value is None:
            front += varint.MINUS_ONE
            value = b""
        else:
            front += number(len(value))
        back = _header_section(headers) if headers else b"\0"
        parts += (number(len(front) + len(value) + len(back)), front, value, back)
    return b"".join(parts)


def _header_section(headers: RecordHeaders) -> bytes:
    number = varint.encode
    parts = [number(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (number(len(name)), name)
        if value is None:
            parts.append(varint.MINUS_ONE)
        else:
            parts += (number(len(value)), value)
    return b"".join(parts)


def _assemble(header: BatchHeader, section: bytes | memoryview) -> bytes:
    """The batch of a header, whose length and CRC are set here, and a record section."""
    checked = _CRC_PART.pack(
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    crc = crc32c.crc32c(section, crc32c.crc32c(checked))
    length = _BATCH_LENGTH_MIN + len(section)
    outside = _OUTSIDE_CRC.pack(header.base_offset, length, header.leader_epoch)
    return b"".join((outside, b"\2", crc.to_bytes(4, "big"), checked, section))


def read_header(data: Bytes, at: int = 0) -> BatchHeader:
    """The header of the batch at `at`, of which more need not be there; its CRC is not looked at."""
    left = len(data) - at
    if left < HEADER_BYTES:
        raise BatchError(f"a batch header has {HEADER_BYTES} bytes, but only {left} are there")
    header = BatchHeader(*_HEADER.unpack_from(data, at))
    if header.magic != MAGIC:
        raise BatchError(f"record batches have magic {MAGIC}, this has {header.magic}: use a newer producer")
    if header.batch_length < _BATCH_LENGTH_MIN:
        raise BatchError(f"a batch length is {_BATCH_LENGTH_MIN} or more, this says {header.batch_length}")
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise BatchError(f"{header.record_count} records do not fit a last offset delta of {header.last_offset_delta}")
    return header


def _read_whole(data: Bytes, at: int = 0) -> BatchHeader:
    """The header of what `data` holds from `at` on, which is exactly one batch with the right CRC."""
    header = read_header(data, at)
    size = len(data) - at
    if header.batch_length + _LENGTH_COUNTS_FROM != size:
        raise BatchError(f"exactly one batch is expected: its header says {header.size_bytes} bytes, {size} are there")
    crc = crc32c.crc32c(memoryview(data)[at + _CRC_AT :])
    if crc != header.crc:
        raise BatchError(f"the batch's CRC-32C is {crc:#010x}, its header says {header.crc:#010x}: damaged bytes")
    return header


def _decoded(
    data: Bytes, header: BatchHeader, decoded_bytes_max: int, codecs: Codecs, at: int = 0
) -> tuple[bytes, int]:
    """The bytes that hold the record section, plain, and where it starts in them."""
    if not header.attributes & _COMPRESSION_BITS:
        size = len(data) - at - HEADER_BYTES
        if size > decoded_bytes_max:
            raise BatchTooLarge(f"{size} bytes of records are over the limit of {decoded_bytes_max}")
        return cast(bytes, data), at + HEADER_BYTES
    try:
        codec = Compression(header.compression)
    except ValueError:
        raise BatchError(f"compression {header.compression} is not known: use gzip, lz4 or zstd") from None
    try:
        return decompress(codecs, codec, memoryview(data)[at + HEADER_BYTES :], decoded_bytes_max), 0
    except ExpandsTooFar as error:
        raise BatchTooLarge(str(error)) from None
    except CompressionError as error:
        raise BatchError(str(error)) from None


def check_produced(
    data: Bytes,
    at: int = 0,
    *,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    record_bytes_max: int | None = None,
    codecs: Codecs = STANDARD,
) -> BatchHeader:
    """The header of a batch that a producer sent, if all of it is as it must be; `data` holds it from `at` on."""
    try:
        return _check_produced(data, at, decoded_bytes_max, record_bytes_max, codecs)
    except BatchError:
        if at == 0:
            raise
    # A mistake is told again with places counted from the batch's own beginning.
    return _check_produced(bytes(data[at:]), 0, decoded_bytes_max, record_bytes_max, codecs)


def _check_produced(
    data: Bytes, at: int, decoded_bytes_max: int, record_bytes_max: int | None, codecs: Codecs
) -> BatchHeader:
    header = _read_whole(data, at)
    count = header.record_count
    if count < 1 or count != header.last_offset_delta + 1:
        raise BatchError(
            f"a produced batch holds 1 or more records and no gaps, this says {count} records "
            f"and last offset delta {header.last_offset_delta}"
        )
    if header.attributes & ~_COMPRESSION_BITS:
        raise BatchError(
            f"attributes {header.attributes:#06x}: a producer sets the compression bits only, not timestamp "
            "type, transactional or control"
        )
    if header.leader_epoch not in (-1, 0):
        raise BatchError(f"a produced batch has leader epoch -1 or 0, this has {header.leader_epoch}")
    if header.producer_id < -1 or (header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0)):
        raise BatchError(
            f"producer id {header.producer_id}, epoch {header.producer_epoch}, sequence "
            f"{header.base_sequence}: all three are 0 or more, or the id is -1"
        )
    section, start = _decoded(data, header, decoded_bytes_max, codecs, at)
    _walk(section, start, header, len(section) if record_bytes_max is None else record_bytes_max)
    return header


_Shape: TypeAlias = tuple[bytes, bytes, bytes, int, int, int]
_NO_SHAPE: Final[_Shape] = (b"", b"", b"", 0, 0, 0)


def _walk(section: bytes, at: int, header: BatchHeader, record_bytes_max: int) -> None:
    """Check that `section` holds the header's number of well-formed records and nothing else."""
    end = len(section)
    count = header.record_count
    deltas = varint.SMALL
    starts = section.startswith
    before, after, back, front_size, value_size, size = shape = _NO_SHAPE
    previous_size = 0
    tried = False  # whether records of this shape were looked at all at once
    _check_room(count, end - at)
    delta = 0
    while delta < count:
        if size and delta <= varint.SMALL_MAX:
            front = before + deltas[delta] + after
            if len(front) == front_size and starts(front, at) and starts(back, at + front_size + value_size):
                at += size
                delta += 1
                if not tried:
                    tried = True
                    alike = _alike(section, at, shape, delta, count)
                    at += alike * size
                    delta += alike
                continue
        found, value_at, value_size, stop = _skim(section, at, end)
        if found != delta:
            record, value_at, stop = _read_record(section, at, end, header)
            if record.offset - header.base_offset != delta:
                raise BatchError(f"record {delta} has offset delta {record.offset - header.base_offset}")
            value_size = -1 if record.value is None else len(record.value)
        if stop - at > record_bytes_max:
            raise BatchTooLarge(f"a record of {stop - at} bytes is over the limit of {record_bytes_max}")
        # Only where two neighbours are of one size it is worth to look for more of the kind.
        if stop - at == previous_size:
            shape = _shape(section, at, value_at, stop, delta, value_size)
        else:
            shape = _NO_SHAPE
        before, after, back, front_size, value_size, size = shape
        previous_size = stop - at
        tried = False
        at = stop
        delta += 1
    _check_nothing_left(count, end - at)


def _alike(section: bytes, at: int, shape: _Shape, delta: int, count: int) -> int:
    """How many records from `at` on have this shape: all that are left of those whose offset deltas are as wide as the
    first one's, or none. They are compared column by column, for a third of what one by one costs."""
    before, after, back, front_size, value_size, size = shape
    narrow = delta < _NARROW_DELTAS
    most = min(_NARROW_DELTAS if narrow else varint.SMALL_MAX + 1, count) - delta
    width = front_size - len(before) - len(after)
    if most < _ALIKE_MIN or width != (1 if narrow else 2) or at + most * size > len(section):
        return 0
    stop = at + most * size
    for place, byte in enumerate(before, at):
        if section[place:stop:size] != _COLUMNS[byte] * most:
            return 0
    place = at + len(before)
    if section[place:stop:size] != _DELTA_FIRST[delta : delta + most]:
        return 0
    if not narrow and section[place + 1 : stop : size] != _DELTA_SECOND[delta : delta + most]:
        return 0
    value_at = at + front_size
    for place, byte in enumerate(after, value_at - len(after)):
        if section[place:stop:size] != _COLUMNS[byte] * most:
            return 0
    for place, byte in enumerate(back, value_at + value_size):
        if section[place:stop:size] != _COLUMNS[byte] * most:
            return 0
    return most


_ALIKE_MIN: Final = 8
_NARROW_DELTAS: Final = 64
_COLUMNS: Final = tuple(bytes([byte]) for byte in range(256))
_DELTA_FIRST: Final = bytes(varint.SMALL[delta][0] for delta in range(varint.SMALL_MAX + 1))
_DELTA_SECOND: Final = bytes(varint.SMALL[delta][-1] for delta in range(varint.SMALL_MAX + 1))


def _skim(section: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Offset delta, value's place and size, and the end of a record that has nothing unusual about it; else a delta
    of -1, and `_read_record` has to say what it is."""
    try:
        # Varints of two bytes at most are read in place here: a call costs more than they do.
        low, high = section[at], section[at + 1]
        if low < 0x80:
            length, start = low, at + 1
        elif high < 0x80:
            length, start = low & 0x7F | high << 7, at + 2
        else:
            return _UNUSUAL
        stop = start + (length >> 1)
        if length & 1 or stop > end or section[start + 1] != 0:
            return _UNUSUAL
        low, high = section[start + 2], section[start + 3]
        if low & 1:
            return _UNUSUAL
        if low < 0x80:
            delta, place = low >> 1, start + 3
        elif high < 0x80:
            delta, place = (low & 0x7F | high << 7) >> 1, start + 4
        else:
            return _UNUSUAL
        key = section[place]
        if key == 1:
            place += 1
        elif key < 0x80 and not key & 1:
            place += 1 + (key >> 1)
        else:
            return _UNUSUAL
        low, high = section[place], section[place + 1]
        if low < 0x80:
            size, place = low, place + 1
        elif high < 0x80:
            size, place = low & 0x7F | high << 7, place + 2
        else:
            return _UNUSUAL
        if size & 1:
            return _UNUSUAL
        size >>= 1
        if place + size + 1 != stop or section[stop - 1] != 0:
            return _UNUSUAL
    except IndexError:
        return _UNUSUAL
    return delta, place, size, stop


_UNUSUAL: Final = (-1, 0, 0, 0)


def _read_records(section: bytes, at: int, header: BatchHeader) -> Iterator[Record]:
    """The records of `section`; the loop of `_walk`, for readers, who allow gaps between offsets."""
    end = len(section)
    count = header.record_count
    deltas = varint.SMALL
    starts = section.startswith
    timestamp_ms: int = 0
    key: bytes | None = None
    headers: RecordHeaders = ()
    before, after, back, front_size, value_size, size = _NO_SHAPE
    offset = header.base_offset - 1
    _check_room(count, end - at)
    for delta in range(count):
        if size and delta <= varint.SMALL_MAX:
            front = before + deltas[delta] + after
            value_at = at + front_size
            if len(front) == front_size and starts(front, at) and starts(back, value_at + value_size):
                offset = header.base_offset + delta
                value = section[value_at : value_at + value_size]
                yield Record(offset, timestamp_ms, key, value, headers)
                at += size
                continue
        record, value_at, stop = _read_record(section, at, end, header)
        if record.offset <= offset:
            raise BatchError(f"offset {record.offset} follows {offset}: offsets must rise")
        offset, timestamp_ms, key, headers = record.offset, record.timestamp_ms, record.key, record.headers
        value_size = -1 if record.value is None else len(record.value)
        before, after, back, front_size, value_size, size = _shape(section, at, value_at, stop, delta, value_size)
        yield record
        at = stop
    _check_nothing_left(count, end - at)


def _shape(section: bytes, at: int, value_at: int, stop: int, delta: int, value_size: int) -> _Shape:
    """What a record just read has before its offset delta, from there to its value, and behind it; then the
    sizes of all that is in front of the value, of the value, and of the whole.

    The next record most often differs in the delta and the value alone. Then two comparisons of bytes show
    that it is as well-formed as this one, at a fifth of what reading it costs.
    """
    if value_size < 0 or delta > varint.SMALL_MAX:
        return _NO_SHAPE
    length_bytes = 1 if section[at] < 0x80 else 2
    split_at = at + length_bytes + 2
    if section[at + length_bytes - 1] > 0x7F or section[split_at - 1] > 0x7F:
        return _NO_SHAPE
    if not section.startswith(varint.SMALL[delta], split_at):
        return _NO_SHAPE
    after = bytes(section[split_at + len(varint.SMALL[delta]) : value_at])
    back = bytes(section[value_at + value_size : stop])
    return bytes(section[at:split_at]), after, back, value_at - at, value_size, stop - at


def _check_room(count: int, size_bytes: int) -> None:
    if count * RECORD_BYTES_MIN > size_bytes:
        raise BatchError(f"{count} records do not fit the {size_bytes} bytes of the record section")


def _check_nothing_left(count: int, size_bytes: int) -> None:
    if size_bytes:
        raise BatchError(f"{size_bytes} bytes follow the {count} records that the batch says it holds")


def _read_record(section: bytes, at: int, end: int, header: BatchHeader) -> tuple[Record, int, int]:
    """The record whose length is at `at`, read with every check there is; where its value starts; its end."""
    begin = at
    number = varint.decode
    headers: RecordHeaders = ()
    at, stop = _record_bounds(section, at, end)
    try:
        timestamp_delta = section[at + 1]
        if timestamp_delta == 0:
            at += 2
        else:
            timestamp_delta, at = number(section, at + 1)
        offset_delta, at = number(section, at)
        if section[at] == 1:
            key, at = None, at + 1
        else:
            key, at = _read_blob(section, at, stop)
        value, at = _read_blob(section, at, stop)
        value_at = at - len(value) if value is not None else at
        if section[at] == 0:
            at += 1
        else:
            headers, at = _read_headers(section, at, stop)
    except IndexError:
        raise BatchError(f"the record at byte {begin} ends inside a field") from None
    except varint.VarintError as error:
        raise BatchError(f"the record at byte {begin}: {error}") from None
    if at != stop:
        raise BatchError(f"the fields of the record at byte {begin} end at byte {at}, its length says {stop}")
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise BatchError(f"offset delta {offset_delta} is outside 0 to {header.last_offset_delta}")
    timestamp_ms = header.base_timestamp_ms + timestamp_delta
    if header.attributes & _LOG_APPEND_TIME_BIT:
        timestamp_ms = header.max_timestamp_ms
    elif not _I64_MIN <= timestamp_ms <= _I64_MAX:
        raise BatchError(f"timestamp {timestamp_ms} of the record at byte {begin} has more than 64 bits")
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers), value_at, stop


def _record_bounds(section: bytes, at: int, end: int) -> tuple[int, int]:
    """Where the record whose length is at `at` starts after that, and where it ends."""
    try:
        length, start = varint.decode(section, at)
    except IndexError:
        raise BatchError(f"a record should start at byte {at}, but the record section ends") from None
    except varint.VarintError as error:
        raise BatchError(f"a record's length can't be read: {error}") from None
    if length < 0 or start + length > end:
        raise BatchError(f"a record's length is {length}, but {end - start} bytes are left")
    return start, start + length


def _read_blob(section: bytes, at: int, stop: int) -> tuple[bytes | None, int]:
    size = section[at]
    if size < 0x80:
        size = size >> 1 ^ -(size & 1)
        at += 1
    else:
        size, at = varint.decode(section, at)
    if size == -1:
        return None, at
    end = at + size
    if size < 0 or end > stop:
        raise BatchError(f"a field of {size} bytes at byte {at} does not fit a record that ends at byte {stop}")
    return section[at:end], end


def _read_headers(section: bytes, at: int, stop: int) -> tuple[RecordHeaders, int]:
    count, at = varint.decode(section, at)
    if count < 0 or count * _RECORD_HEADER_BYTES_MIN > stop - at:
        raise BatchError(f"{count} headers do not fit the {stop - at} bytes that the record has left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_blob(section, at, stop)
        value, at = _read_blob(section, at, stop)
        if name is None:
            raise BatchError(f"a record header before byte {at} has no name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise BatchError(f"a record header's name before byte {at} is not UTF-8: {error.reason}") from None
    return tuple(headers), at


def patch_head(data: bytes | memoryview, base_offset: int, leader_epoch: int = 0) -> bytes:
    """The first `PATCHED_BYTES` of the batch with another base offset and leader epoch."""
    return _OUTSIDE_CRC.pack(base_offset, len(data) - _LENGTH_COUNTS_FROM, leader_epoch)


def patch(data: bytes | memoryview, base_offset: int, leader_epoch: int = 0) -> bytes | memoryview:
    """The batch with another base offset and leader epoch; its CRC stays right. What may be written to is patched where
    it lies, and what comes back may not be written to any more."""
    if isinstance(data, memoryview) and not data.readonly:
        _OUTSIDE_CRC.pack_into(data, 0, base_offset, len(data) - _LENGTH_COUNTS_FROM, leader_epoch)
        return data.toreadonly()
    return b"".join((patch_head(data, base_offset, leader_epoch), memoryview(data)[PATCHED_BYTES:]))


def parse(
    data: bytes | memoryview, *, decoded_bytes_max: int = DECODED_BYTES_MAX, codecs: Codecs = STANDARD
) -> list[Record]:
    """The records of one batch. After compaction there may be gaps between them, or none left."""
    return list(each_record(data, decoded_bytes_max=decoded_bytes_max, codecs=codecs))


def each_record(
    data: bytes | memoryview, *, decoded_bytes_max: int = DECODED_BYTES_MAX, codecs: Codecs = STANDARD
) -> Iterator[Record]:
    """The records that `parse` gives, each read when it is asked for; the CRC is looked at before."""
    data = bytes(data)
    header = _read_whole(data)
    section, at = _decoded(data, header, decoded_bytes_max, codecs)
    return _read_records(section, at, header)


def split(data: bytes) -> list[tuple[BatchHeader, bytes]]:
    """The batches that lie one after the other in `data`, each with its header; CRCs are not looked at."""
    batches: list[tuple[BatchHeader, bytes]] = []
    at = 0
    while at < len(data):
        header = read_header(data, at)
        stop = at + header.size_bytes
        if stop > len(data):
            raise BatchError(f"the batch at byte {at} has {header.size_bytes} bytes, {len(data) - at} are there")
        batches.append((header, data[at:stop]))
        at = stop
    return batches


def single(
    data: bytes | memoryview,
    offset: int,
    extra_headers: RecordHeaders = (),
    *,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    codecs: Codecs = STANDARD,
) -> bytes:
    """A new batch that holds only the record at `offset`, with its own time, and `extra_headers` added."""
    data = bytes(data)
    header = _read_whole(data)
    section, at = _decoded(data, header, decoded_bytes_max, codecs)
    end = len(section)
    for _ in range(header.record_count):
        begin = at
        delta, at = _place(section, begin, end)
        if delta == offset - header.base_offset:
            record, _, _ = _read_record(section, begin, end, header)
            new = (record.key, record.value, record.headers + tuple(extra_headers))
            return build([new], timestamp_ms=record.timestamp_ms)
    raise BatchError(
        f"there is no record at offset {offset} in the batch of offsets {header.base_offset} "
        f"to {header.last_offset}: it was compacted away, or this is the wrong batch"
    )


def trim(data: bytes | memoryview, first: int, last: int) -> bytes | memoryview:
    """The batch with only its records in `first..last`, its offsets and times as they were.

    A compressed batch, and one that lies wholly inside the range, is returned as it is.
    """
    header = _read_whole(data)
    if header.compression != Compression.NONE or (first <= header.base_offset and header.last_offset <= last):
        return data
    data = cast(bytes, data)
    at, end = HEADER_BYTES, len(data)
    if header.record_count == header.last_offset_delta + 1:
        # No gaps: records are as many as their offsets say, and are passed over by their lengths alone.
        skipped = min(max(0, first - header.base_offset), header.record_count)
        count = max(0, min(last, header.last_offset) - header.base_offset - skipped + 1)
        begin = _after(data, at, end, skipped)
        stop = _after(data, begin, end, count)
        return _assemble(replace(header, record_count=count), memoryview(data)[begin:stop])
    begin = stop = count = 0
    for _ in range(header.record_count):
        before = at
        delta, at = _place(data, at, end)
        offset = header.base_offset + delta
        if offset > last:
            break
        if offset >= first:
            begin = before if count == 0 else begin
            stop = at
            count += 1
    return _assemble(replace(header, record_count=count), memoryview(data)[begin:stop])


def select(
    data: bytes | memoryview,
    keep: Container[int],
    *,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    codecs: Codecs = STANDARD,
) -> bytes:
    """The batch with only its records at the offsets in `keep`; its own offsets, times and codec stay."""
    data = bytes(data)
    header = _read_whole(data)
    section, at = _decoded(data, header, decoded_bytes_max, codecs)
    kept: list[bytes] = []
    for _ in range(header.record_count):
        before = at
        delta, at = _place(section, at, len(section))
        if header.base_offset + delta in keep:
            kept.append(section[before:at])
    packed = compress(codecs, Compression(header.compression), b"".join(kept)) if kept else b""
    return _assemble(replace(header, record_count=len(kept)), packed)


def _after(section: bytes, at: int, end: int, count: int) -> int:
    """Where the record begins that follows `count` others."""
    for _ in range(count):
        # Lengths of two bytes at most are read in place here: a call costs more than they do.
        low, high = (section[at], section[at + 1]) if at + 1 < end else (1, 0xFF)
        if low & 1:
            _, at = _record_bounds(section, at, end)
        elif low < 0x80:
            at += 1 + (low >> 1)
        elif high < 0x80:
            at += 2 + ((low & 0x7F | high << 7) >> 1)
        else:
            _, at = _record_bounds(section, at, end)
    if at > end:
        raise BatchError(f"a record ends at byte {at}, the batch at {end}")
    return at


def _place(section: bytes, at: int, end: int) -> tuple[int, int]:
    """The offset delta of the record whose length is at `at`, and where it ends."""
    delta, _, _, stop = _skim(section, at, end)
    if delta >= 0:
        return delta, stop
    start, stop = _record_bounds(section, at, end)
    return _offset_delta(section, start), stop


def _offset_delta(section: bytes, start: int) -> int:
    """The offset delta of the record whose fields start at `start`."""
    try:
        _, at = varint.decode(section, start + 1)
        return varint.decode(section, at)[0]
    except IndexError:
        raise BatchError(f"the record at byte {start} ends inside a field") from None
    except varint.VarintError as error:
        raise BatchError(f"the record at byte {start}: {error}") from None
