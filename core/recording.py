"""A broker's life on record: what its core was told, step by step, so that it can be lived again.

Promises  from the state it began with and the inputs on record `step` gives the same records and effects; each step has
          a digest of them to compare with; a torn end is left out.
Never     holds payloads: inputs do not have them.

    magic "DVTR" · version u8 · reserved 3 · frames       frame: length u32 · crc32c u32 · msgpack
    the first frame is a `Began`, the others are `Stepped`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct as Layout
from typing import Final

import msgspec
from crc32c import crc32c
from msgspec import Struct

from dovetail.core.effects import AnyEffect
from dovetail.core.ids import Now
from dovetail.core.inputs import AnyInput
from dovetail.core.records import AnyRecord
from dovetail.core.state import Settings, State
from dovetail.core.step import step

MAGIC: Final = b"DVTR"
VERSION: Final = 1
DIGEST_BYTES: Final = 8

_HEAD: Final = Layout(">4sB3x")
_FRAME: Final = Layout(">II")
_ENCODER: Final = msgspec.msgpack.Encoder()


class Began(Struct, frozen=True):
    """What a recording begins with: a checkpoint's bytes, and the settings."""

    checkpoint: bytes
    settings: Settings


class Stepped(Struct, frozen=True, array_like=True):
    """One step: when, what arrived, and the digest of what came out."""

    mono_ms: int
    wall_ms: int
    inputs: tuple[AnyInput, ...]
    digest: bytes


class Differs(Struct, frozen=True):
    """A step that did not give what it gave when it was recorded."""

    number: int
    stepped: Stepped
    digest: bytes
    records: tuple[AnyRecord, ...]
    effects: tuple[AnyEffect, ...]


class NotARecording(ValueError):
    """A file that is none, or of a version that this program does not read."""


_BEGAN: Final = msgspec.msgpack.Decoder(Began)
_STEPPED: Final = msgspec.msgpack.Decoder(Stepped)


def head() -> bytes:
    """How a recording's first file begins."""
    return _HEAD.pack(MAGIC, VERSION)


def encode(frame: Began | Stepped) -> bytes:
    """One frame of a recording."""
    body = _ENCODER.encode(frame)
    return _FRAME.pack(len(body), crc32c(body)) + body


def digest(records: tuple[AnyRecord, ...], effects: tuple[AnyEffect, ...]) -> bytes:
    """What came out of a step, in a few bytes."""
    found = blake2b(_ENCODER.encode(records), digest_size=DIGEST_BYTES)
    found.update(_ENCODER.encode(effects))
    return found.digest()


def read(data: bytes) -> tuple[Began, Iterator[Stepped]]:
    """A recording's beginning, and its steps as far as they are whole."""
    if len(data) < _HEAD.size or data[:4] != MAGIC:
        raise NotARecording("this is not a recording of a broker: those are made by `dovetail serve --record DIR`")
    _, version = _HEAD.unpack_from(data)
    if version != VERSION:
        raise NotARecording(f"the recording has version {version}, this program reads {VERSION}")
    bodies = _bodies(data)
    first = next(bodies, None)
    if first is None:
        raise NotARecording("the recording ends before it began")
    return _BEGAN.decode(first), (_STEPPED.decode(body) for body in bodies)


def _bodies(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    at = _HEAD.size
    while at + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        body = view[at : at + length]
        if len(body) < length or crc32c(body) != crc:
            return
        yield body
        at += length


def live_again(state: State, steps: Iterable[Stepped]) -> Iterator[tuple[State, Stepped, Differs | None]]:
    """Run recorded steps through `step`; ends with the first that does not come out as it did."""
    for number, stepped in enumerate(steps, 1):
        now = Now(stepped.mono_ms, stepped.wall_ms)
        state, records, effects = step(state, now, stepped.inputs)
        found = digest(records, effects)
        if found != stepped.digest:
            yield state, stepped, Differs(number, stepped, found, records, effects)
            return
        yield state, stepped, None
