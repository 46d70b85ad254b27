"""A checkpoint: the durable state as bytes, in order, in small pieces, with a hash at the end.

Promises  equal states give equal bytes; a piece costs about two milliseconds at most, so that messages pass
          between two of them; what was damaged or cut anywhere never decodes.
Never     writes: the pieces go to whoever does.

    magic "DVTC" · version u8 · reserved 3 · sections · end
    section: kind u8 · length u32 · msgpack       end: kind 0 u8 · length u32 = 32 · BLAKE2b-256 of all before
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from heapq import merge
from itertools import islice
from struct import Struct as Layout
from typing import Any, Final, TypeVar

import msgspec
from immutables import Map
from msgspec import Struct

from dovetail.core.cursor import Cursor
from dovetail.core.journal_format import FormatError, NewerFormat
from dovetail.core.state import Durable, Group, Log, Topic

MAGIC: Final = b"DVTC"
VERSION: Final = 1
SLICE_ITEMS: Final = 500
"""Items encoded, or keys sorted, in one piece."""

_HEAD: Final = Layout(">4sB3x")
_SECTION: Final = Layout(">BI")
_HASH_BYTES: Final = 32
_END, _NUMBERS, _TOPICS, _LOGS, _GROUPS, _CURSORS, _RETIRED = range(7)


class _Numbers(Struct, frozen=True):
    lsn: int
    incarnation: int
    wall_ms: int
    next_topic: int
    next_log: int
    next_group: int


K = TypeVar("K", int, str, tuple[int, int])
V = TypeVar("V")


def encode(durable: Durable) -> Iterator[bytes]:
    """The checkpoint's bytes, piece by piece; a piece may be empty."""
    digest = blake2b(digest_size=_HASH_BYTES)
    for piece in _sections(durable):
        digest.update(piece)
        yield piece
    end = _SECTION.pack(_END, _HASH_BYTES)
    digest.update(end)
    yield end + digest.digest()


def _sections(durable: Durable) -> Iterator[bytes]:
    numbers = _Numbers(*(getattr(durable, name) for name in _Numbers.__struct_fields__))
    yield _HEAD.pack(MAGIC, VERSION) + _section(_NUMBERS, numbers)
    yield from _map_sections(_TOPICS, durable.topics, lambda _, topic: topic)
    yield from _map_sections(_LOGS, durable.logs, lambda _, log: log)
    yield from _map_sections(_GROUPS, durable.groups, lambda _, group: group)
    yield from _map_sections(_CURSORS, durable.cursors, lambda key, cursor: (*key, cursor))
    yield from _map_sections(_RETIRED, durable.retired_by_name, lambda name, ends: (name, ends))


def _section(kind: int, content: object) -> bytes:
    data = msgspec.msgpack.encode(content)
    return _SECTION.pack(kind, len(data)) + data


def _map_sections(kind: int, mapping: Map[K, V], item: Callable[[K, V], object]) -> Iterator[bytes]:
    """Sorting a large map takes longer than a piece may: sort runs of it, then merge them."""
    runs: list[list[K]] = []
    keys = iter(mapping)
    while run := sorted(islice(keys, SLICE_ITEMS)):
        runs.append(run)
        yield b""
    in_order = merge(*runs)
    while chosen := list(islice(in_order, SLICE_ITEMS)):
        yield _section(kind, [item(key, mapping[key]) for key in chosen])


def decode(data: bytes) -> Durable:
    """The state a checkpoint holds; `FormatError` says what is wrong with it."""
    if len(data) < _HEAD.size + _SECTION.size + _HASH_BYTES:
        raise FormatError(f"the checkpoint is cut short: it has {len(data)} bytes")
    magic, version = _HEAD.unpack_from(data)
    found = blake2b(memoryview(data)[:-_HASH_BYTES], digest_size=_HASH_BYTES).digest()
    if magic != MAGIC or found != data[-_HASH_BYTES:]:
        raise FormatError("the checkpoint's hash does not hold")
    if version != VERSION:
        raise NewerFormat(f"the checkpoint has format version {version}, this program reads {VERSION}")
    sections = _split(memoryview(data))
    (numbers,) = sections[_NUMBERS]
    counted = msgspec.msgpack.decode(numbers, type=_Numbers)
    topics = _items(sections[_TOPICS], Topic)
    groups = _items(sections[_GROUPS], Group)
    cursors = _items(sections[_CURSORS], tuple[int, int, Cursor])
    return Durable(
        **msgspec.structs.asdict(counted),
        topics=Map({topic.id: topic for topic in topics}),
        topics_by_name=Map({topic.name: topic.id for topic in topics}),
        retired_by_name=Map(dict(_items(sections[_RETIRED], tuple[str, tuple[int, ...]]))),
        logs=Map({log.id: log for log in _items(sections[_LOGS], Log)}),
        groups=Map({group.id: group for group in groups}),
        groups_by_name=Map({group.name: group.id for group in groups}),
        cursors=Map({(group, log): cursor for group, log, cursor in cursors}),
    )


def _split(data: memoryview) -> dict[int, list[memoryview]]:
    sections: dict[int, list[memoryview]] = {kind: [] for kind in range(1, 7)}
    at = _HEAD.size
    while True:
        kind, length = _SECTION.unpack_from(data, at)
        at += _SECTION.size
        if kind == _END:
            return sections
        if kind not in sections:
            raise NewerFormat(f"a section of kind {kind} is not known to this version")
        sections[kind].append(data[at : at + length])
        at += length


def _items(pieces: Iterable[memoryview], kind: Any) -> list[Any]:
    decoder = msgspec.msgpack.Decoder(list[kind])
    return [item for piece in pieces for item in decoder.decode(piece)]
