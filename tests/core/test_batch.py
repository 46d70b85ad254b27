"""Record batches: the same bytes as other makers of the format, and no trust in anybody's."""

import json
import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import crc32c
import pytest
import zstandard
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.core import batch, varint
from dovetail.core.batch import BatchError, BatchTooLarge, NewRecord, Record
from dovetail.core.compression import Compression, CompressionError
from dovetail.runtime.storage import codecs

build = partial(batch.build, codecs=codecs.CODECS)
parse = partial(batch.parse, codecs=codecs.CODECS)
check_produced = partial(batch.check_produced, codecs=codecs.CODECS)
single = partial(batch.single, codecs=codecs.CODECS)

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "batches.json").read_text())
NOW = 1_700_000_000_000

BLOB = st.none() | st.binary(max_size=20)
NAME = st.text(st.characters(codec="utf-8"), max_size=5)
HEADERS = st.lists(st.tuples(NAME, BLOB), max_size=2).map(tuple)
VARIED: st.SearchStrategy[NewRecord] = st.tuples(BLOB, BLOB, HEADERS)
UNIFORM: st.SearchStrategy[NewRecord] = st.tuples(
    st.just(None), st.binary(min_size=3, max_size=3), st.sampled_from([(), (("a", b"b"),)])
)
RECORDS = st.lists(VARIED, min_size=1, max_size=6) | st.lists(UNIFORM, min_size=2, max_size=80)
TIMES = st.integers(0, 2**42)
CODECS = st.sampled_from([Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD])


def of(*values: bytes) -> list[NewRecord]:
    return [(None, value, ()) for value in values]


def as_read(records: Sequence[NewRecord], *, base_offset: int = 0, timestamp_ms: int = NOW) -> list[Record]:
    return [
        Record(base_offset + delta, timestamp_ms, key, value, headers)
        for delta, (key, value, headers) in enumerate(records)
    ]


def resealed(data: bytes) -> bytes:
    """The bytes with their CRC made right, as a liar would send them."""
    return data[:17] + crc32c.crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def with_field(data: bytes, layout: str, at: int, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(layout, out, at, value)
    return resealed(bytes(out))


def with_section(data: bytes, section: bytes) -> bytes:
    length = struct.pack(">i", 49 + len(section))
    return resealed(data[:8] + length + data[12:61] + section)


def read_naively(data: bytes) -> list[Record]:
    """The records of an uncompressed batch, one number after the other, as the format's description reads."""
    base, _, _, _, _, _, last, base_ms, _, _, _, _, count = struct.unpack_from(">qiibIhiqqqhii", data)
    at = 61

    def number() -> int:
        nonlocal at
        total = shift = 0
        while True:
            byte = data[at]
            at += 1
            total |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                assert total < 2**64
                return total // 2 if total % 2 == 0 else -(total // 2) - 1
            assert shift < 70

    def blob() -> bytes | None:
        nonlocal at
        size = number()
        assert size >= -1
        at += max(size, 0)
        assert at <= len(data)
        return None if size == -1 else data[at - size : at]

    records: list[Record] = []
    for _ in range(count):
        length = number()
        end = at + length
        assert length > 0
        at += 1
        timestamp_ms, delta = base_ms + number(), number()
        assert -(2**63) <= timestamp_ms < 2**63
        assert (records[-1].offset if records else base - 1) < base + delta <= base + last
        key, value = blob(), blob()
        headers = []
        headers_left = number()
        assert headers_left >= 0
        while headers_left:
            headers_left -= 1
            name = blob()
            assert name is not None
            headers.append((name.decode(), blob()))
        assert at == end
        records.append(Record(base + delta, timestamp_ms, key, value, tuple(headers)))
    assert at == len(data)
    return records


def aiokafka_build(records: Sequence[NewRecord], times: Sequence[int], codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, 7, 1, 100, 1 << 24)
    for delta, ((key, value, headers), timestamp_ms) in enumerate(zip(records, times, strict=True)):
        added = builder.append(delta, timestamp=timestamp_ms, key=key, value=value, headers=list(headers))
        assert added is not None
    return bytes(builder.build())


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_comes_back_from_its_bytes(number: int) -> None:
    data = varint.encode(number)
    assert varint.decode(data, 0) == (number, len(data))


def test_a_varint_has_at_most_64_bits() -> None:
    with pytest.raises(varint.VarintError):
        varint.encode(2**63)
    for data in (b"\xff" * 20, b"\xff" * 9 + b"\x7f"):
        with pytest.raises(varint.VarintError):
            varint.decode(data, 0)


@given(RECORDS, CODECS, st.integers(0, 2**62))
def test_records_come_back_from_their_batch(records: list[NewRecord], codec: Compression, base_offset: int) -> None:
    data = build(records, timestamp_ms=NOW, base_offset=base_offset, compression=codec)
    assert parse(data) == as_read(records, base_offset=base_offset)
    header = check_produced(data)
    assert header == batch.read_header(data)
    assert header.size_bytes == len(data)
    assert header.last_offset == base_offset + len(records) - 1
    assert header.compression == codec


@given(RECORDS, st.data())
def test_our_bytes_are_those_of_an_independent_builder(records: list[NewRecord], data: st.DataObject) -> None:
    times = data.draw(st.lists(TIMES, min_size=len(records), max_size=len(records)))
    ours = build(
        records,
        timestamp_ms=0,
        timestamps_ms=times,
        producer_id=7,
        producer_epoch=1,
        base_sequence=100,
    )
    theirs = aiokafka_build(records, times)
    assert batch.patch(ours, 0) == batch.patch(theirs, 0)
    check_produced(theirs)


@given(RECORDS, st.sampled_from([Compression.NONE, Compression.GZIP]))
def test_an_independent_reader_reads_our_batches(records: list[NewRecord], codec: Compression) -> None:
    data = build(records, timestamp_ms=NOW, base_offset=50, compression=codec)
    theirs = DefaultRecordBatch(data)
    assert theirs.validate_crc()
    read = [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(map(tuple, each.headers))) for each in theirs
    ]
    assert read == parse(data) == as_read(records, base_offset=50)


@given(RECORDS)
def test_we_read_the_compressed_batches_of_an_independent_builder(records: list[NewRecord]) -> None:
    data = aiokafka_build(records, [NOW] * len(records), codec=Compression.GZIP)
    assert parse(data) == as_read(records)
    assert check_produced(data).record_count == len(records)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_the_frozen_batches_parse_and_build_again(vector: dict[str, Any]) -> None:
    def unhex(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    data = bytes.fromhex(vector["batch"])
    expected = [
        Record(
            each["offset"],
            each["timestamp_ms"],
            unhex(each["key"]),
            unhex(each["value"]),
            tuple((name, unhex(value)) for name, value in each["headers"]),
        )
        for each in vector["records"]
    ]
    assert parse(data) == expected
    check_produced(data)
    again = build(
        [(each.key, each.value, each.headers) for each in expected],
        timestamp_ms=0,
        timestamps_ms=[each.timestamp_ms for each in expected],
        compression=Compression(vector["compression"]),
        producer_id=vector["producer_id"],
        producer_epoch=vector["producer_epoch"],
        base_sequence=vector["base_sequence"],
    )
    if vector["compression"] == Compression.NONE:
        assert batch.patch(again, 0) == batch.patch(data, 0)
    assert parse(again) == expected


def test_a_batch_needs_a_record_and_a_time_for_each() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build([], timestamp_ms=NOW)
    with pytest.raises(ValueError, match="1 records but 2 timestamps"):
        build(of(b"x"), timestamp_ms=NOW, timestamps_ms=[1, 2])


@given(RECORDS, st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_a_patch_changes_base_offset_and_epoch_and_nothing_else(
    records: list[NewRecord], base_offset: int, epoch: int
) -> None:
    data = build(records, timestamp_ms=NOW)
    patched = batch.patch(data, base_offset, epoch)
    assert parse(patched) == as_read(records, base_offset=base_offset)
    assert batch.read_header(patched).leader_epoch == epoch
    assert patched[batch.PATCHED_BYTES :] == data[batch.PATCHED_BYTES :]
    assert patched[: batch.PATCHED_BYTES] == batch.patch_head(data, base_offset, epoch)


GOOD = build(of(b"one", b"two", b"three"), timestamp_ms=NOW)


def test_a_batch_that_may_be_written_to_is_patched_where_it_lies_and_sealed() -> None:
    memory = bytearray(b"head" + GOOD)
    patched = batch.patch(memoryview(memory)[4:], 77, 3)
    assert patched == batch.patch(GOOD, 77, 3) == memory[4:]
    assert isinstance(patched, memoryview)
    assert patched.readonly
    assert batch.patch(patched, 5) == batch.patch(GOOD, 5)
    assert memory[4:] == patched
    assert parse(patched)[0].offset == 77


def test_a_mistake_in_a_batch_that_lies_among_other_bytes_is_told_as_if_it_lay_alone() -> None:
    for lie in (GOOD[:40], GOOD[:-1], GOOD[:-1] + b"\xff"):
        with pytest.raises(BatchError) as alone:
            check_produced(lie)
        with pytest.raises(BatchError) as among:
            check_produced(bytearray(b"in front" + lie), 8)
        assert str(among.value) == str(alone.value)
    assert check_produced(bytearray(b"in front" + GOOD), 8) == check_produced(GOOD)


LIES = [
    (b"", "61 bytes"),
    (GOOD[:60], "61 bytes"),
    (GOOD[:-1], "exactly one batch"),
    (GOOD + b"\0", "exactly one batch"),
    (GOOD + GOOD, "exactly one batch"),
    (GOOD[:16] + b"\1" + GOOD[17:], "magic 2, this has 1"),
    (GOOD[:-1] + b"\1", "CRC-32C"),
    (with_field(GOOD, ">i", 8, 48), "a batch length is 49 or more"),
    (with_field(GOOD, ">i", 8, -1), "a batch length is 49 or more"),
    (with_field(GOOD, ">i", 57, 2), "2 records and last offset delta 2"),
    (with_field(GOOD, ">i", 57, 4), "4 records do not fit a last offset delta of 2"),
    (with_field(GOOD, ">i", 57, -1), "records do not fit a last offset delta"),
    (with_field(GOOD, ">i", 23, -1), "records do not fit a last offset delta of -1"),
    (with_field(with_field(GOOD, ">i", 57, 2), ">i", 23, 1), "bytes follow the 2 records"),
    (with_field(with_field(GOOD, ">i", 57, 4), ">i", 23, 3), "the record section ends"),
    (with_field(with_field(GOOD, ">i", 57, 2**31 - 1), ">i", 23, 2**31 - 2), "do not fit the"),
    (with_field(with_section(GOOD, b""), ">i", 57, 0), "1 or more records"),
    (with_field(GOOD, ">h", 21, 0x10), "transactional"),
    (with_field(GOOD, ">h", 21, 0x20), "control"),
    (with_field(GOOD, ">h", 21, 0x08), "timestamp type"),
    (with_field(GOOD, ">h", 21, -0x8000), "compression bits only"),
    (with_field(GOOD, ">h", 21, 2), "snappy is not supported: use gzip, lz4, zstd"),
    (with_field(GOOD, ">h", 21, 5), "compression 5 is not known"),
    (with_field(GOOD, ">h", 21, 1), "not gzip data"),
    (with_field(GOOD, ">h", 21, 3), "lz4 data"),
    (with_field(GOOD, ">h", 21, 4), "not zstd data"),
    (with_field(GOOD, ">i", 12, 1), "leader epoch -1 or 0, this has 1"),
    (with_field(GOOD, ">q", 43, 5), "producer id 5, epoch -1, sequence -1"),
    (with_field(GOOD, ">q", 43, -2), "producer id -2"),
    (with_section(GOOD, GOOD[61:71] + GOOD[61:71] + GOOD[81:]), "record 1 has offset delta 0"),
]


@pytest.mark.parametrize(("data", "says"), LIES, ids=[says for _, says in LIES])
def test_a_producer_that_lies_is_told_about_what(data: bytes, says: str) -> None:
    with pytest.raises(BatchError, match=says):
        check_produced(data)


def test_an_idempotent_producer_is_accepted() -> None:
    data = build(of(b"x"), timestamp_ms=NOW, producer_id=0, producer_epoch=0, base_sequence=0)
    assert check_produced(data).producer_id == 0


def test_a_leader_epoch_of_zero_or_none_is_accepted() -> None:
    for epoch in (-1, 0):
        check_produced(batch.patch(GOOD, 0, epoch))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_batch_that_expands_beyond_the_limit_is_refused(codec: Compression) -> None:
    records = of(bytes(100_000))
    data = build(records, timestamp_ms=NOW, compression=codec)
    assert len(data) < 2000
    check_produced(data, decoded_bytes_max=100_020)
    for read in (check_produced, parse):
        with pytest.raises(BatchTooLarge):
            read(data, decoded_bytes_max=100_000)


def test_zstd_that_does_not_say_its_size_is_bounded_and_must_be_whole() -> None:
    plain = build(of(bytes(5000)), timestamp_ms=NOW)
    packer = zstandard.ZstdCompressor().compressobj()
    packed = packer.compress(plain[61:]) + packer.flush()
    data = with_section(with_field(plain, ">h", 21, Compression.ZSTD), packed)
    assert parse(data) == as_read(of(bytes(5000)))
    with pytest.raises(BatchTooLarge):
        parse(data, decoded_bytes_max=5000)
    with pytest.raises(BatchError, match="ends too early"):
        parse(with_section(data, packed[:-1]))
    with pytest.raises(BatchError, match="zstd data"):
        parse(with_section(data, packed + b"\0"))


def test_plain_records_are_bounded_too() -> None:
    data = build(of(bytes(1000)), timestamp_ms=NOW)
    with pytest.raises(BatchTooLarge):
        check_produced(data, decoded_bytes_max=1000)


def test_a_single_record_over_its_limit_is_refused() -> None:
    data = build(of(*[bytes(10)] * 5, bytes(1000)), timestamp_ms=NOW)
    check_produced(data, record_bytes_max=1100)
    with pytest.raises(BatchTooLarge, match="over the limit of 500"):
        check_produced(data, record_bytes_max=500)


def test_snappy_can_not_be_built() -> None:
    with pytest.raises(CompressionError, match="snappy"):
        build(of(b"x"), timestamp_ms=NOW, compression=Compression.SNAPPY)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_flipped_bits_inside_the_crc_are_noticed(at: int, flip: int) -> None:
    damaged = bytearray(GOOD)
    damaged[17 + at % (len(GOOD) - 17)] ^= flip
    for read in (check_produced, parse):
        with pytest.raises(BatchError):
            read(bytes(damaged))


@given(RECORDS, CODECS, st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=3))
def test_what_was_accepted_from_a_liar_can_be_parsed(
    records: list[NewRecord], codec: Compression, damage: list[tuple[int, int]]
) -> None:
    out = bytearray(build(records, timestamp_ms=NOW, compression=codec))
    for at, byte in damage:
        out[21 + at % (len(out) - 21)] = byte
    data = resealed(bytes(out))
    try:
        header = check_produced(data, decoded_bytes_max=10_000)
    except BatchError:
        return
    read = parse(data, decoded_bytes_max=10_000)
    assert [record.offset for record in read] == list(range(header.record_count))
    for record in read:
        assert parse(single(data, record.offset))[0].value == record.value


@given(RECORDS, st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=3))
@example(of(*[b"abc"] * 70), [(64 * 11 + 3, 0x80)])
@example(of(b"abc", b"abc"), [(12, 0x80), (13, 0x02)])
def test_whatever_is_in_the_record_section_we_read_what_a_naive_reader_reads(
    records: list[NewRecord], damage: list[tuple[int, int]]
) -> None:
    out = bytearray(build(records, timestamp_ms=NOW))
    for at, byte in damage:
        out[61 + at % (len(out) - 61)] = byte
    data = resealed(bytes(out))
    naive: list[Record] | None
    try:
        naive = read_naively(data)
    except (AssertionError, IndexError, UnicodeDecodeError):
        naive = None
    ours: list[Record] | None
    try:
        ours = parse(data)
    except BatchError:
        ours = None
    assert ours == naive


@given(st.binary(max_size=150))
def test_arbitrary_bytes_raise_nothing_but_batch_errors(data: bytes) -> None:
    padded = resealed(data[:16] + b"\2" + data[17:]) if len(data) >= 61 else data
    for read in (check_produced, parse, batch.split):
        try:
            read(padded)
        except BatchError:
            continue


def test_a_timestamp_of_more_than_64_bits_is_refused() -> None:
    data = build(of(b"x", b"y"), timestamp_ms=0, timestamps_ms=[0, 100])
    late = with_field(data, ">q", 27, 2**63 - 50)
    for read in (check_produced, parse):
        with pytest.raises(BatchError, match="more than 64 bits"):
            read(late)


def test_a_broker_stamped_batch_gives_all_its_records_the_same_time() -> None:
    data = build(of(b"x", b"y"), timestamp_ms=0, timestamps_ms=[5, 9])
    stamped = with_field(data, ">h", 21, 0x08)
    assert [record.timestamp_ms for record in parse(stamped)] == [9, 9]


def test_concatenated_batches_are_split_with_their_headers() -> None:
    first = build(of(b"a", b"b"), timestamp_ms=NOW, base_offset=10)
    second = build(of(b"c"), timestamp_ms=NOW, base_offset=12, compression=Compression.LZ4)
    assert batch.split(b"") == []
    assert batch.split(first + second) == [
        (batch.read_header(first), first),
        (batch.read_header(second), second),
    ]
    with pytest.raises(BatchError, match="are there"):
        batch.split(first + second[:-1])


@given(RECORDS, st.integers(0, 90), st.integers(0, 90))
def test_a_trimmed_batch_keeps_its_offsets_and_only_the_records_in_the_range(
    records: list[NewRecord], low: int, high: int
) -> None:
    data = build(records, timestamp_ms=NOW, base_offset=1000)
    first, last = 1000 + min(low, high), 1000 + max(low, high)
    trimmed = batch.trim(data, first, last)
    inside = [each for each in parse(data) if first <= each.offset <= last]
    assert parse(trimmed) == inside
    before, after = batch.read_header(data), batch.read_header(trimmed)
    assert after.record_count == len(inside)
    assert (after.base_offset, after.last_offset_delta) == (before.base_offset, before.last_offset_delta)
    assert (after.base_timestamp_ms, after.max_timestamp_ms) == (NOW, NOW)
    assert batch.trim(trimmed, first, last) == trimmed


def test_a_batch_inside_the_range_and_a_compressed_one_are_left_as_they_are() -> None:
    assert batch.trim(GOOD, 0, 2) is GOOD
    packed = build(of(b"a", b"b"), timestamp_ms=NOW, compression=Compression.ZSTD)
    assert batch.trim(packed, 1, 1) is packed


def test_a_trimmed_batch_is_readable_by_others_but_not_a_produced_one() -> None:
    trimmed = batch.trim(GOOD, 1, 1)
    assert [(each.offset, each.value) for each in DefaultRecordBatch(trimmed)] == [(1, b"two")]
    with pytest.raises(BatchError):
        check_produced(trimmed)


def test_compaction_may_leave_no_record_at_all() -> None:
    emptied = batch.trim(GOOD, 7, 9)
    assert parse(emptied) == []
    assert batch.read_header(emptied).last_offset == 2
    assert len(batch.split(emptied + GOOD)) == 2


@given(RECORDS, CODECS, st.integers(0, 100), HEADERS)
def test_a_single_record_leaves_with_its_bytes_its_time_and_more_headers(
    records: list[NewRecord], codec: Compression, choice: int, extra: batch.RecordHeaders
) -> None:
    data = build(records, timestamp_ms=NOW, base_offset=500, compression=codec)
    chosen = choice % len(records)
    key, value, headers = records[chosen]
    alone = single(data, 500 + chosen, extra)
    assert parse(alone) == [Record(0, NOW, key, value, headers + extra)]
    check_produced(alone)


def test_a_record_that_is_not_there_is_not_invented() -> None:
    for offset in (-1, 3, 10**9):
        with pytest.raises(BatchError, match=f"no record at offset {offset}"):
            single(GOOD, offset)
    with pytest.raises(BatchError, match="no record at offset 0"):
        single(batch.trim(GOOD, 1, 2), 0)


def test_damaged_bytes_are_never_given_a_new_crc() -> None:
    damaged = GOOD[:-3] + b"X" + GOOD[-2:]
    with pytest.raises(BatchError, match="CRC-32C"):
        batch.trim(damaged, 1, 1)
    with pytest.raises(BatchError, match="CRC-32C"):
        single(damaged, 1)


def test_an_offset_delta_below_zero_is_refused_although_its_bytes_are_those_of_its_neighbour_but_one_bit() -> None:
    for count in (1, 3, 100):
        data = build(of(*[b"same size"] * count), timestamp_ms=NOW)
        for place in range(count):
            delta_at = data.index(varint.encode(place) + varint.MINUS_ONE, 61 + place * 15)
            lie = data[:delta_at] + bytes([data[delta_at] | 1]) + data[delta_at + 1 :]
            with pytest.raises(BatchError):
                check_produced(resealed(lie))


@given(st.lists(st.binary(min_size=5, max_size=6), min_size=1, max_size=150), st.integers(0, 2**32))
def test_checking_a_batch_and_reading_it_agree_about_any_flipped_bit(values: list[bytes], flip: int) -> None:
    data = bytearray(build(of(*values), timestamp_ms=NOW))
    bit = flip % ((len(data) - 61) * 8)
    data[61 + bit // 8] ^= 1 << (bit % 8)
    lie = resealed(bytes(data))
    try:
        read = parse(lie)
        readable = [record.offset for record in read] == list(range(len(values)))
    except BatchError:
        readable = False
    try:
        check_produced(lie)
        accepted = True
    except BatchError:
        accepted = False
    assert accepted == readable


def test_a_header_says_what_its_attributes_are() -> None:
    plain, transactional, control = (
        batch.read_header(batch.build(of(b"x"), timestamp_ms=NOW, transactional=t, control=c))
        for t, c in ((False, False), (True, False), (False, True))
    )
    assert [header.attributes for header in (plain, transactional, control)] == [0, 0x10, 0x20]
    assert [header.transactional for header in (plain, transactional, control)] == [False, True, False]
    assert [header.control for header in (plain, transactional, control)] == [False, False, True]
    stamped = batch.read_header(with_field(batch.build(of(b"x"), timestamp_ms=NOW), ">h", 21, 0x08))
    assert (stamped.log_append_time, plain.log_append_time) == (True, False)


def test_records_may_take_as_much_room_as_is_allowed_and_no_more() -> None:
    for data in (b"front" + build(of(b"x" * 100), timestamp_ms=NOW), build(of(b"x" * 100), timestamp_ms=NOW)):
        at = data.find(build(of(b"x" * 100), timestamp_ms=NOW)[:16])
        size = len(data) - at - batch.HEADER_BYTES
        batch.check_produced(data, at, decoded_bytes_max=size)
        with pytest.raises(BatchTooLarge):
            batch.check_produced(data, at, decoded_bytes_max=size - 1)


def test_a_batch_of_more_records_than_there_are_small_numbers_is_read_like_any_other() -> None:
    records = of(*[b"x"] * (varint.SMALL_MAX + 20))
    data = build(records, timestamp_ms=NOW)
    assert check_produced(data).record_count == len(records)
    assert parse(data) == as_read(records)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_record_that_says_it_is_longer_than_it_is_is_refused_whatever_its_number_of_bytes(place: int) -> None:
    bodies = [b"\0\0" + varint.encode(delta) + b"\x01\x06abc\0" for delta in range(3)]
    lengths = [varint.encode(len(body)) for body in bodies]
    lengths[place] = bytes([lengths[place][0] | 0x80, 0])
    frame = build(of(b"abc", b"abc", b"abc"), timestamp_ms=NOW)
    data = with_section(frame, b"".join(map(bytes.__add__, lengths, bodies)))
    assert parse(data) == read_naively(data)
    for lie in (1, 2, 3):
        lengths[place] = bytes([lengths[place][0], lie])
        wrong = b"".join(map(bytes.__add__, lengths, bodies))
        with pytest.raises(BatchError):
            check_produced(with_section(frame, wrong))


def test_any_record_of_a_large_batch_is_found_by_its_offset() -> None:
    count = 300
    data = build(of(*(b"x" * (number % 7 * 40) for number in range(count))), timestamp_ms=NOW, base_offset=1000)
    for place in (0, 1, 63, 64, 127, 128, 255, count - 1):
        assert parse(single(data, 1000 + place)) == [Record(0, NOW, None, b"x" * (place % 7 * 40), ())]
        assert [each.offset for each in parse(batch.trim(data, 1000 + place, 1000 + place))] == [1000 + place]
