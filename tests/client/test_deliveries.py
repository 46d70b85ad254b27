"""What a DELIVER holds for a consumer: the leased records, and the holes that compaction left."""

from hypothesis import given
from hypothesis import strategies as st

from dovetail.core import batch
from dovetail.core.batch import Record
from dovetail.core.compression import Compression
from dovetail.core.wire import Deliver, Range
from dovetail.runtime.client.subscription import LastBatch, holes, lease_length_ms, leased
from dovetail.runtime.storage.codecs import CODECS


def stored(first: int, count: int, compression: Compression = Compression.NONE) -> bytes:
    records = [(None, b"%d" % (first + place), ()) for place in range(count)]
    return batch.build(records, timestamp_ms=0, base_offset=first, compression=compression, codecs=CODECS)


def delivered(*ranges: Range, batches: bytes) -> Deliver:
    return Deliver("s", "orders", 0, 0, 7, 1, 1000, ranges, batches)


def values(deliver: Deliver) -> list[int]:
    return [int(record.value or b"") for record in leased(deliver, LastBatch())]


def test_a_lease_on_whole_batches_gives_all_their_records() -> None:
    assert values(delivered((0, 5), batches=stored(0, 3) + stored(3, 3))) == [0, 1, 2, 3, 4, 5]


def test_records_outside_the_leased_ranges_are_skipped() -> None:
    assert values(delivered((1, 1), (4, 5), batches=stored(0, 3) + stored(3, 5))) == [1, 4, 5]


def test_compressed_batches_are_read() -> None:
    for compression in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        assert values(delivered((0, 2), batches=stored(0, 3, compression))) == [0, 1, 2]


def test_no_batches_give_no_records_and_one_hole() -> None:
    deliver = delivered((3, 9), batches=b"")
    assert leased(deliver, LastBatch()) == []
    assert holes(deliver.ranges, []) == [(3, 9)]


def test_a_lease_s_length_is_told_from_its_deadline_unless_the_clocks_are_far_apart() -> None:
    assert lease_length_ms(101_000, 100_000) == 1000
    assert lease_length_ms(90_000, 100_000) == 30_000
    assert lease_length_ms(99_999_999, 100_000) == 30_000


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40), min_size=1))
def test_records_and_holes_together_are_exactly_the_leased_ranges(kept: set[int], leased: set[int]) -> None:
    ranges: list[Range] = []
    for offset in sorted(leased):
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    records = [Record(offset, 0, None, b"") for offset in sorted(kept & leased)]
    empty = [offset for first, last in holes(tuple(ranges), records) for offset in range(first, last + 1)]
    assert sorted(empty + sorted(kept & leased)) == sorted(leased)


def test_a_batch_that_comes_again_for_another_range_is_read_once() -> None:
    last = LastBatch()
    data = batch.build([(None, b"x", ()), (None, b"y", ())], timestamp_ms=1, base_offset=5)
    assert last.read(data) is last.read(bytes(data))
    moved = batch.build([(None, b"x", ()), (None, b"y", ())], timestamp_ms=1, base_offset=7)
    assert [record.offset for record in last.read(moved)] == [7, 8]
