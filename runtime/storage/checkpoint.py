"""A checkpoint: the durable state as bytes, in order, in small pieces, with a hash at the end.

Promises  equal states give equal bytes; a piece costs about two milliseconds at most, so that messages pass
          between two of them; what was damaged or cut anywhere never decodes; every field of `Durable` is in it.
Never     writes: the pieces go to whoever does.

    magic "DVTC" · version u8 · reserved 3 · sections · u32 0 · BLAKE2b-256 of all before
    section: length u32 · msgpack [field, [[key, value] …]], or ["", {field: number …}]
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from heapq import merge
from itertools import islice
from struct import Struct as Layout
from types import GenericAlias
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from immutables import Map

from dovetail.core.ids import ordered
from dovetail.core.journal_format import FormatError, NewerFormat
from dovetail.core.state import Durable

MAGIC: Final = b"DVTC"
VERSION: Final = 1
SLICE_ITEMS: Final = 250
"""Items encoded, or keys sorted, in one piece at most."""
SLICE_BYTES: Final = 32 << 10
"""A piece ends when it has grown to this: what a single item may hold is bounded where it grows."""

_HEAD: Final = Layout(">4sB3x")
_LENGTH: Final = Layout(">I")
_HASH_BYTES: Final = 32
_TYPES: Final = get_type_hints(Durable)
_DERIVED: Final = {"topics_by_name": "topics", "groups_by_name": "groups"}
"""Maps from the names of what another map holds: made anew, not written."""
_MAPS: Final = [name for name, kind in _TYPES.items() if get_origin(kind) is Map and name not in _DERIVED]
_NUMBERS: Final = [name for name, kind in _TYPES.items() if kind is int]


def encode(durable: Durable) -> Iterator[bytes]:
    """The checkpoint's bytes, piece by piece; a piece may be empty."""
    digest = blake2b(digest_size=_HASH_BYTES)
    for piece in _sections(durable):
        digest.update(piece)
        yield piece
    end = _LENGTH.pack(0)
    digest.update(end)
    yield end + digest.digest()


def _sections(durable: Durable) -> Iterator[bytes]:
    numbers = {name: getattr(durable, name) for name in _NUMBERS}
    yield _HEAD.pack(MAGIC, VERSION) + _section("", numbers)
    for name in _MAPS:
        yield from _map_sections(name, getattr(durable, name))


def _section(name: str, content: object) -> bytes:
    data = _encode((name, content))
    return _LENGTH.pack(len(data)) + data


def _section_of_pairs(name: str, pairs: list[bytes]) -> bytes:
    """The section that `_section` would make of pairs that are encoded already."""
    data = b"".join((b"\x92", _encode(name), _array_head(len(pairs)), *pairs))
    return _LENGTH.pack(len(data)) + data


def _array_head(count: int) -> bytes:
    """How msgpack begins an array; a piece has fewer than 65,536 items."""
    return bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2)


def _encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value, enc_hook=_map_to_pairs)


def _map_sections(name: str, mapping: Map[Any, Any]) -> Iterator[bytes]:
    """Sorting a large map takes longer than a piece may: sort runs of it, then merge them."""
    runs: list[list[Any]] = []
    keys = iter(mapping)
    while run := sorted(islice(keys, SLICE_ITEMS)):
        runs.append(run)
        yield b""
    in_order = merge(*runs)
    pairs: list[bytes] = []
    size = 0
    for key in in_order:
        pair = _encode((key, mapping[key]))
        pairs.append(pair)
        size += len(pair)
        if len(pairs) == SLICE_ITEMS or size >= SLICE_BYTES:
            yield _section_of_pairs(name, pairs)
            pairs, size = [], 0
    if pairs:
        yield _section_of_pairs(name, pairs)


def decode(data: bytes) -> Durable:
    """The state a checkpoint holds; `FormatError` says what is wrong with it."""
    if len(data) < _HEAD.size + _LENGTH.size + _HASH_BYTES:
        raise FormatError(f"the checkpoint is cut short: it has {len(data)} bytes")
    magic, version = _HEAD.unpack_from(data)
    found = blake2b(memoryview(data)[:-_HASH_BYTES], digest_size=_HASH_BYTES).digest()
    if magic != MAGIC or found != data[-_HASH_BYTES:]:
        raise FormatError("the checkpoint's hash does not hold")
    if version != VERSION:
        raise NewerFormat(f"the checkpoint has format version {version}, this program reads {VERSION}")
    numbers: dict[str, int] = {}
    maps: dict[str, list[tuple[Any, Any]]] = {}
    for name, content in _split(memoryview(data)):
        if name == "":
            numbers = msgspec.msgpack.decode(content, type=dict[str, int])
        elif name in _MAPS:
            pairs = msgspec.msgpack.decode(content, type=_pairs_of(_TYPES[name]), dec_hook=_pairs_to_map)
            maps.setdefault(name, []).extend(pairs)
    unknown = numbers.keys() - set(_NUMBERS)
    if unknown:
        raise NewerFormat(f"the checkpoint holds {', '.join(sorted(unknown))}, not known to this version")
    fields: dict[str, Any] = {**numbers, **{name: Map(pairs) for name, pairs in maps.items()}}
    for name, source in _DERIVED.items():
        fields[name] = Map((value.name, key) for key, value in maps.get(source, ()))
    return Durable(**fields)


def _split(data: memoryview) -> Iterator[tuple[str, msgspec.Raw]]:
    decoder = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
    at = _HEAD.size
    while True:
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length == 0:
            return
        name, content = decoder.decode(data[at : at + length])
        if name and name not in _MAPS:
            raise NewerFormat(f"the checkpoint holds {name}, not known to this version")
        yield name, content
        at += length


def _map_to_pairs(value: object) -> object:
    """A map inside a value is written as sorted pairs, as the maps of the state are."""
    if isinstance(value, Map):
        return ordered(value)
    raise NotImplementedError(f"a checkpoint can't hold {type(value)}")


def _pairs_to_map(kind: type, pairs: Any) -> object:
    if get_origin(kind) is not Map:
        raise NotImplementedError(f"a checkpoint can't hold {kind}")
    return Map(msgspec.convert(pairs, _pairs_of(kind)))


def _pairs_of(kind: Any) -> Any:
    """The type of the pairs that a map is written as: `Map[K, V]` gives `list[tuple[K, V]]`."""
    return GenericAlias(list, (GenericAlias(tuple, get_args(kind)),))
