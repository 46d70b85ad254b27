"""The bytes on the disk: frozen by vectors, decoded to what was encoded, and never mistaken for something else."""

from __future__ import annotations

import base64
import json
import os
import zlib
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from dovetail.core import batch
from dovetail.core.journal_format import (
    SEGMENT_HEADER_BYTES,
    Damage,
    Entry,
    FormatError,
    Frame,
    NewerFormat,
    NoFrame,
    SegmentHeader,
    Short,
    decode_items,
    decode_segment_header,
    encode_entry,
    encode_frame,
    encode_segment_header,
    entry_at,
    evidence,
    find_entries,
    find_frame,
    hole,
    read_frame,
    records_of,
)
from dovetail.core.records import AnyRecord, BatchAppended, Settled
from dovetail.core.state import Durable
from dovetail.runtime.storage import checkpoint, identity, index, tools
from dovetail.runtime.storage.disk import Create, MakeDir, Write, run
from dovetail.runtime.storage.index import Index
from dovetail.runtime.storage.layout import journal_path
from dovetail.runtime.storage.real_disk import RealDisk
from dovetail.runtime.storage.scan import FoundSegment, frames_after
from dovetail.runtime.storage.store import open_store
from tests.storage.build import sim_disk
from tests.storage.freeze_directory import OPTIONS, VECTORS_PATH, plain

VECTORS: dict[str, Any] = json.loads((VECTORS_PATH / "storage.json").read_text())
FORMATS = Path(__file__).parents[2] / "spec" / "formats.md"
SALT = 0x0102_0304_0506_0708


def an_entry() -> Entry:
    news = [(b"key", b"value", (("header", b"x"),)), (None, b"", ())]
    data = batch.build(news, timestamp_ms=1_700_000_000_000, base_offset=42, producer_id=9, producer_epoch=1)
    record = BatchAppended(
        log=7,
        base=42,
        count=2,
        arrival_ms=1_700_000_000_123,
        deliver_at_ms=1_700_000_060_000,
        expires_at_ms=1_700_000_120_000,
        flags=1,
        size_bytes=len(data),
        producer_id=9,
        producer_epoch=1,
        base_sequence=-1,
        handle=0,
        other_log=3,
        other_base=5,
    )
    return encode_entry(record, data)


def a_frame() -> bytes:
    items = [Settled(1, 7, 0, 41), an_entry(), Settled(1, 7, 42, 42)]
    return b"".join(encode_frame(5, 1_700_000_000_200, 4, 0xDEADBEEF, items, salt=SALT).buffers)


def an_index() -> Index:
    made = Index(100)
    made.add(120, 4096, 1_700_000_000_000)
    made.add(150, 9000, 1_700_000_000_500)
    return made


def samples() -> dict[str, bytes]:
    entry = an_entry()
    points, times = an_index().encode()
    return {
        "entry": entry.header + entry.batch,
        "hole": b"".join((hole(7, 44, 6, 1_700_000_000_123).header, hole(7, 44, 6, 1_700_000_000_123).batch)),
        "frame": a_frame(),
        "segment header": encode_segment_header(SegmentHeader(3, 5, SALT, 64 << 20, 0xDEADBEEF)),
        "index": points,
        "timeindex": times,
        "broker.json": identity.encode(identity.new_identity(SALT, 1_700_000_000_000)),
    }


@pytest.mark.parametrize("name", samples())
def test_the_bytes_are_the_frozen_ones(name: str) -> None:
    assert samples()[name].hex() == VECTORS["bytes"][name]


def test_every_kind_of_record_has_a_vector_that_decodes() -> None:
    """Fields are only ever appended, with defaults: what was written once can always be read."""
    decoder = msgspec.msgpack.Decoder(AnyRecord)
    for kind in get_args(AnyRecord):
        if kind is not BatchAppended:
            frozen = VECTORS["records"].get(kind.__name__)
            assert frozen, f"{kind.__name__} has no vector: run `python -m tests.storage.freeze`"
            assert type(decoder.decode(bytes.fromhex(frozen))) is kind


def test_a_frozen_checkpoint_decodes() -> None:
    durable = checkpoint.decode(bytes.fromhex(VECTORS["checkpoint"]))
    assert durable.lsn == 12
    assert durable.topics[1].name == "orders"
    assert durable.cursors[1, 1].floor == 7
    assert durable.retired_by_name == Map({"old": (9,)})


@pytest.mark.parametrize("path", sorted(VECTORS_PATH.glob("directory-*.json")), ids=lambda path: path.stem)
def test_a_directory_that_an_older_version_wrote_is_read_as_it_was(path: Path, tmp_path: Path) -> None:
    """It was killed at work: topics with lanes, delayed and dead messages, a group, a topic that was deleted."""
    frozen = json.loads(path.read_text())
    for name, data in frozen["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(zlib.decompress(base64.b64decode(data)))
    disk = RealDisk(os.fspath(tmp_path))
    assert run(disk, tools.verify(OPTIONS)).findings == ()
    for _ in range(2):
        rows: dict[str, list[tools.Row]] = {"state": [], "logs": []}
        run(disk, tools.dump_state(OPTIONS, rows["state"].append))
        run(disk, tools.dump_logs(OPTIONS, "", rows["logs"].append, with_records=True))
        found = plain(rows)
        assert_holds(found["state"], frozen["state"])
        assert_holds(by_position(found["logs"]), by_position(frozen["logs"]))
        store, opened = run(disk, open_store(OPTIONS, "a test", 1, SALT))
        assert (opened.durable.lsn, opened.report.findings) == (frozen["state"][0]["lsn"], ())
        run(disk, store.close())


def by_position(rows: list[tools.Row]) -> dict[str, tools.Row]:
    return {f"{row['log']}:{row['base']}": row for row in rows}


def assert_holds(found: Any, frozen: Any) -> None:
    """All that is frozen is there; fields that later versions added may be there too."""
    if isinstance(frozen, dict):
        assert found.keys() >= frozen.keys()
        for key, value in frozen.items():
            assert_holds(found[key], value)
    elif isinstance(frozen, list):
        assert len(found) >= len(frozen)
        for each, value in zip(found, frozen, strict=False):
            assert_holds(each, value)
    else:
        assert found == frozen


def test_every_record_and_magic_is_in_the_specification() -> None:
    text = FORMATS.read_text()
    for kind in get_args(AnyRecord):
        assert f"| {kind.__struct_config__.tag} | `{kind.__name__}` |" in text, kind.__name__
    for magic in ("DVTL", "DVTJ", "DVTC"):
        assert magic in text


def test_what_was_encoded_decodes_to_itself() -> None:
    entry = an_entry()
    assert entry_at(entry.header + entry.batch, 0) == entry
    frame = read_frame(a_frame(), 0, 5, 0xDEADBEEF)
    assert isinstance(frame, Frame)
    items = decode_items(frame.body)
    assert items == [Settled(1, 7, 0, 41), entry, Settled(1, 7, 42, 42)]
    assert [type(record).__name__ for record in records_of(items)] == ["Settled", "BatchAppended", "Settled"]
    header = SegmentHeader(3, 5, SALT, 1, 2)
    assert decode_segment_header(encode_segment_header(header)) == header
    decoded = index.decode(100, *an_index().encode())
    assert decoded is not None
    assert decoded.encode() == an_index().encode()


def test_every_cut_and_every_flip_of_a_frame_is_seen() -> None:
    data = a_frame()
    for size in range(len(data)):
        assert isinstance(read_frame(data[:size], 0, 5, 0xDEADBEEF), Damage | NoFrame)
    for bit in range(len(data) * 8):
        assert not isinstance(read_frame(flipped(data, bit), 0, 5, 0xDEADBEEF), Frame)


def test_every_cut_and_every_flip_of_an_entry_is_seen() -> None:
    entry = an_entry()
    data = entry.header + entry.batch
    for size in range(len(data)):
        with pytest.raises(Short):
            entry_at(data[:size], 0)
    for bit in range(len(data) * 8):
        with pytest.raises(FormatError):
            entry_at(flipped(data, bit), 0)


def test_every_flip_of_a_segment_header_is_seen() -> None:
    data = samples()["segment header"]
    assert len(data) == SEGMENT_HEADER_BYTES
    for bit in range(len(data) * 8):
        with pytest.raises(FormatError):
            decode_segment_header(flipped(data, bit))


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_a_payload_that_looks_like_a_frame_is_no_evidence_of_one() -> None:
    """Whoever publishes a frame's bytes does not know the directory's salt."""
    forged = b"".join(encode_frame(900, 1, 899, 0, [Settled(1, 1, 0, 0)], salt=SALT + 1).buffers)
    assert evidence(bytes(50) + forged, 0, 10, SALT).last_lsn == 0
    assert evidence(bytes(50) + forged, 0, 10, SALT + 1).synced_lsn == 899
    assert find_frame(bytes(50) + forged, 0, 900, SALT + 1) == (50, 0)


def test_frames_of_a_former_life_are_no_evidence() -> None:
    assert evidence(a_frame(), 0, 6, SALT).last_lsn == 0
    assert evidence(a_frame(), 0, 5, SALT).last_lsn == 5


def test_a_frame_or_entry_of_a_later_version_is_refused_as_such() -> None:
    later = bytes.fromhex(VECTORS["later"]["frame"])
    with pytest.raises(NewerFormat, match="version 2"):
        read_frame(later, 0, 5, 0xDEADBEEF)
    with pytest.raises(NewerFormat, match="version 2"):
        entry_at(bytes.fromhex(VECTORS["later"]["entry"]), 0)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30)), max_size=12), st.binary(max_size=40))
def test_whole_entries_are_found_between_any_bytes(shape: list[tuple[int, int]], noise: bytes) -> None:
    offset, data, expected = 0, b"", []
    for count, size in shape:
        made = hole(9, offset, count, size)
        expected.append((len(data), made))
        data += made.header + made.batch + noise
        offset += count
    assert [each for each in find_entries(data, 9) if each in expected] == expected
    assert list(find_entries(data, 8)) == []


@given(
    st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99), st.integers(0, 5)), max_size=20), st.integers(0, 2000)
)
def test_an_index_leads_to_the_last_point_at_or_before(steps: list[tuple[int, int, int]], wanted: int) -> None:
    made = Index(10)
    points = [(10, 0)]
    arrival = 0
    for offset, position, passed in steps:
        arrival += passed
        points.append((points[-1][0] + offset, points[-1][1] + position))
        made.add(*points[-1], arrival)
    found = made.place(wanted)
    assert (found.offset, found.position) == max((each for each in points if each[0] <= wanted), default=(10, 0))
    decoded = index.decode(10, *made.encode())
    assert decoded is not None
    assert decoded.place(wanted) == found


def test_a_state_with_nothing_in_it_is_a_checkpoint_too() -> None:
    assert checkpoint.decode(b"".join(checkpoint.encode(Durable()))) == Durable()


def test_a_segment_that_was_prepared_and_not_begun_is_known_whatever_its_frames_were() -> None:
    with pytest.raises(FormatError, match="never begun"):
        decode_segment_header(bytes(SEGMENT_HEADER_BYTES) + b"of an earlier life")


@pytest.mark.parametrize(
    "text", [b"5", b"null", b"[]", b'"x"', b"{}", b'{"crc32c": "00000000"}', b"no JSON", b"", b"[" * 99_999]
)
def test_an_identity_that_is_none_is_known_as_damaged(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"checksum|Expecting|nested"):
        identity.decode(text)


def test_frames_behind_damage_are_each_taken_once_however_often_they_lie_there() -> None:
    frames, crc = [], 0
    for lsn in (5, 6, 7):
        made = encode_frame(lsn, 1, 0, crc, [Settled(1, 1, lsn, lsn)], salt=SALT)
        frames.append(b"".join(made.buffers))
        crc = made.crc
    disk = sim_disk()
    disk.execute(MakeDir("journal"))
    disk.execute(Create(journal_path(0)))
    disk.execute(Write(journal_path(0), 0, (bytes(SEGMENT_HEADER_BYTES), *frames[:2], frames[1], frames[0], frames[2])))
    size = SEGMENT_HEADER_BYTES + sum(map(len, [*frames, *frames[:2]]))
    segments = [FoundSegment(0, journal_path(0), size, None, "damaged")]
    assert [frame.lsn for frame in run(disk, frames_after(segments, SALT, 4))] == [5, 6, 7]
    assert [frame.lsn for frame in run(disk, frames_after(segments, SALT, 5))] == [6, 7]


def test_an_item_that_is_longer_than_what_it_holds_or_than_its_frame_is_refused() -> None:
    entry = an_entry()
    data = entry.header + entry.batch
    whole = (2).to_bytes(1) + len(data).to_bytes(4)
    longer = (2).to_bytes(1) + (len(data) + 1).to_bytes(4)
    assert decode_items(memoryview(whole + data)) == [entry]
    with pytest.raises(FormatError, match="does not fit in the frame's body"):
        decode_items(memoryview(longer + data))
    with pytest.raises(FormatError, match=f"an entry of {len(data)} bytes is in an item of {len(data) + 1}"):
        decode_items(memoryview(longer + data + b"x"))
