"""The journal's bytes against a second reader, written from `spec/formats.md` alone: any contents, any damage."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.journal_format import Damage, Entry, Frame, Item, NoFrame, decode_items, encode_frame, read_frame
from dovetail.core.records import DeadRemoved, Expired, GroupCreated, Record, ReplayStarted, Settled
from tests.storage.build import entry

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
OFFSET = st.integers(0, 2**62)
VALUES = st.lists(st.binary(max_size=30), min_size=1, max_size=4)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(Settled, U32, U32, OFFSET, OFFSET),
    st.builds(Expired, U32, U32, OFFSET, OFFSET),
    st.builds(DeadRemoved, U32, OFFSET, OFFSET),
    st.builds(GroupCreated, U32, st.text(max_size=9), st.text(max_size=9), st.text(max_size=9), OFFSET),
    st.builds(
        ReplayStarted,
        *(U32, U32, st.lists(st.tuples(OFFSET, st.text(max_size=5), U32), max_size=3).map(tuple)),
        *(U32, U32, U32, OFFSET, OFFSET),
    ),
)
ITEMS = st.lists(RECORDS | st.builds(entry, U32, st.integers(0, 2**40), VALUES, st.integers(0, 2**50)), max_size=6)
DAMAGE = st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), min_size=1, max_size=4)


def _crc(data: bytes) -> int:
    """CRC-32C bit by bit, by its polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _numbers(data: bytes, *sizes: int) -> list[int]:
    found, at = [], 0
    for size in sizes:
        found.append(int.from_bytes(data[at : at + size], "big"))
        at += size
    return found


def _read_naively(data: bytes) -> tuple[list[int], list[Any]] | None:
    """The numbers of a frame's header, and its items: records as lists, entries as their fields and their batch."""
    length = int.from_bytes(data[8:12], "big")
    if data[:4] != b"DVTL" or len(data) != 44 + length or _crc(data[:40] + data[44:]) != _numbers(data[40:], 4)[0]:
        return None
    items: list[Any] = []
    at = 44
    while at < len(data):
        kind, size = _numbers(data[at:], 1, 4)
        content = data[at + 5 : at + 5 + size]
        match kind:
            case 1:
                items += msgspec.msgpack.decode(content)
            case 2:
                fields = _numbers(content, 1, 1, 2, 4, 8, 4, 8, 8, 8, 4, 8, 4, 4)
                assert fields[-1] == _crc(content[:60] + content[64:85])
                assert _numbers(content[81:], 4)[0] == _crc(content[85:])
                items.append((*fields[:-1], content[64:]))
            case 3:
                items.append(("salt", *_numbers(content, 8)))
        at += 5 + size
    return _numbers(data, 4, 1, 1, 2, 4, 8, 8, 8, 4), items


def _told(item: Item) -> Any:
    if isinstance(item, Entry):
        record = item.record
        times = record.arrival_ms, record.deliver_at_ms, record.expires_at_ms
        others = record.other_log, record.other_base
        size = len(item.batch)
        return (1, record.flags, 0, record.log, record.base, record.count, *times, *others, size, bytes(item.batch))
    return msgspec.to_builtins(item)


@given(ITEMS, st.integers(1, 2**63), U64, U32, st.integers(1, 2**64 - 1))
def test_a_second_reader_finds_in_a_frame_what_was_put_into_it(
    items: list[Item], lsn: int, wall_ms: int, chained: int, salt: int
) -> None:
    data = b"".join(encode_frame(lsn, wall_ms, lsn - 1, chained, items, salt=salt).buffers)
    read = _read_naively(data)
    assert read is not None
    header, found = read
    assert header == [0x4456544C, 1, 0, 0, len(data) - 44, lsn, wall_ms, lsn - 1, chained]
    assert found[0] == ("salt", salt)
    assert msgspec.json.encode(found[1:]) == msgspec.json.encode([_told(item) for item in items])


@given(ITEMS, st.integers(1, 2**63), U32, st.binary(max_size=60), st.integers(0, 2**16))
def test_a_frame_is_read_from_between_any_bytes(
    items: list[Item], lsn: int, chained: int, noise: bytes, cut: int
) -> None:
    data = b"".join(encode_frame(lsn, 5, lsn - 1, chained, items).buffers)
    found = read_frame(noise + data + noise, len(noise), lsn, chained)
    assert isinstance(found, Frame)
    assert decode_items(found.body) == items
    assert found.end == len(noise) + len(data)
    short = noise + data[: cut % len(data)]
    assert isinstance(read_frame(short, len(noise), lsn, chained), Damage | NoFrame)


@given(ITEMS, st.integers(1, 2**63), U32, DAMAGE)
def test_a_damaged_frame_is_taken_by_neither_reader(
    items: list[Item], lsn: int, chained: int, damage: list[tuple[int, int]]
) -> None:
    data = b"".join(encode_frame(lsn, 5, lsn - 1, chained, items).buffers)
    damaged = bytearray(data)
    for at, flip in damage:
        damaged[at % len(data)] ^= flip
    is_whole = bytes(damaged) == data
    assert (_read_naively(bytes(damaged)) is not None) is is_whole
    assert isinstance(read_frame(bytes(damaged), 0, lsn, chained), Frame) is is_whole
