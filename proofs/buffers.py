"""Bytes of any length and content, for decoders that proofs run as they are.

Promises  lengths, indexes, slices and struct fields mean what they mean for `bytes`, and reading past the end raises as
          there, or they are refused; what a claim names is read where it lies, and only by who reads a field of that
          kind there.
Never     knows what has no name: a field read elsewhere is any number of its kind, a checksum of other bytes any
          checksum.
"""

from __future__ import annotations

import builtins
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

from dovetail.proofs.engine import Given, every, negated
from dovetail.proofs.symbolic import Refusal

Table = Mapping[str, tuple[int, str]]
"""The fields of a header by name: where each lies from its beginning on, and its kind in the letters of `struct`."""

Spans = tuple[tuple[int, int], ...]
"""Stretches of bytes, from and to, in the order in which they were summed."""


class Content:
    """What lies in a buffer: fields and checksums that a claim names; all else may be anything."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self._fields: list[tuple[str, int, int]] = []
        self._sums: list[tuple[Spans, int]] = []
        self._unnamed = 0

    def says(self, at: int, table: Table, prefix: str = "") -> SimpleNamespace:
        """The fields of a header that begins at `at`: any numbers of their kinds."""
        found = {name: self._number(prefix + name, kind) for name, (_, kind) in table.items()}
        self._fields += [(kind, at + place, found[name]) for name, (place, kind) in table.items()]
        return SimpleNamespace(**found)

    def checksum(self, name: str, *spans: tuple[int, int]) -> int:
        """The checksum that these stretches have, one after the other."""
        value = self._number(name, "I")
        self._sums.append((spans, value))
        return value

    def field(self, kind: str, place: int) -> int:
        """The number that a field of this kind has at a place."""
        for known, at, value in self._fields:
            if known == kind and at == place:
                return value
        return self._any(kind)

    def sum_of(self, spans: Spans) -> int:
        """The checksum of these stretches."""
        for known, value in self._sums:
            if len(known) == len(spans) and all(map(_is_same, known, spans)):
                return value
        return self._any("I")

    def _any(self, kind: str) -> int:
        self._unnamed += 1
        return self._number(f"read_{self._unnamed}", kind)

    def _number(self, name: str, kind: str) -> int:
        bits = 8 * struct.calcsize(f">{kind}")
        if kind.isupper():
            return self.given.integer(name, 0, (1 << bits) - 1)
        return self.given.integer(name, -(1 << bits - 1), (1 << bits - 1) - 1)


def _is_same(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] == other[0] and one[1] == other[1]


class Buffer:
    """`size` bytes of a content, from `start` on."""

    __hash__ = None  # type: ignore[assignment]  # nobody keeps bytes that are not known as a key

    def __init__(self, content: Content, size: int, start: int = 0) -> None:
        self.content = content
        self.size = size
        self.start = start

    def __bool__(self) -> bool:
        return bool(self.size > 0)

    def __getitem__(self, part: slice | int) -> Any:
        if isinstance(part, int):
            if part < 0:
                raise Refusal("an index counted from the end")
            if part >= self.size:
                raise IndexError("past the end of the buffer")
            return self.content.field("B", self.start + part)
        if part.step is not None:
            raise Refusal("a slice with a step")
        start = 0 if part.start is None else part.start
        stop = self.size if part.stop is None else part.stop
        if start < 0 or stop < 0:
            raise Refusal("a slice counted from the end")
        stop = self.size if stop > self.size else stop
        return Buffer(self.content, stop - start if start < stop else 0, self.start + start)

    def __add__(self, other: Buffer) -> Buffer:
        """Two pieces of a content, the second where the first ends."""
        if self.size == 0:
            return other
        if other.size == 0:
            return self
        if self.start + self.size != other.start:
            raise Refusal("two pieces are joined that do not lie one behind the other")
        return Buffer(self.content, self.size + other.size, self.start)

    def hex(self) -> str:
        return "bytes, which only people read"

    def __eq__(self, other: object) -> Any:
        """Whether the bytes are these."""
        if not isinstance(other, bytes):
            raise Refusal("a buffer compared with what is no bytes")
        if self.size != len(other):
            return False
        return every(True, *(self.content.field("B", self.start + at) == byte for at, byte in enumerate(other)))

    def __ne__(self, other: object) -> Any:
        return negated(self == other)


class Checksum:
    """The CRC of stretches of a content; that of what it sums first is given to the next call, as with numbers."""

    __hash__ = None  # type: ignore[assignment]  # nor a checksum of them

    def __init__(self, content: Content, spans: Spans) -> None:
        self.content = content
        self.spans = spans

    def __eq__(self, other: object) -> Any:
        return self.content.sum_of(self.spans) == other

    def __ne__(self, other: object) -> Any:
        return negated(self == other)

    def __format__(self, spec: str) -> str:
        return "a checksum, which only people read"


def checksum_of(value: Buffer, before: Checksum | int = 0) -> Checksum:
    """Stands for `crc32c`."""
    if not isinstance(before, Checksum) and before != 0:
        raise Refusal("a checksum that goes on from a number")
    spans = before.spans if isinstance(before, Checksum) else ()
    return Checksum(value.content, (*spans, (value.start, value.start + value.size)))


class Layout:
    """Stands for a `struct.Struct`; a text in it is read as a `Buffer`."""

    def __init__(self, plain: struct.Struct) -> None:
        if not re.fullmatch(r">(\d*s|[bBhHiIqQ])*", plain.format):
            raise Refusal(f"a layout of other than big-endian integers and texts: {plain.format!r}")
        self.size = plain.size
        self._codes = re.findall(r"\d*[a-zA-Z]", plain.format)

    def unpack_from(self, buffer: Buffer, at: int = 0) -> tuple[Any, ...]:
        if at < 0:
            raise Refusal("a position counted from the end")
        if at + self.size > buffer.size:
            raise struct.error("past the end of the buffer")
        found: list[Any] = []
        for code in self._codes:
            size = struct.calcsize(f">{code}")
            place = buffer.start + at
            is_text = code.endswith("s")
            found.append(Buffer(buffer.content, size, place) if is_text else buffer.content.field(code, place))
            at = at + size
        return tuple(found)


def _length(value: Any) -> int:
    return value.size if isinstance(value, Buffer) else builtins.len(value)


def _unchanged(value: Any) -> Any:
    return value


@contextmanager
def unknown_bytes(module: ModuleType, **others: Any) -> Iterator[None]:
    """Let the functions of `module` read `Buffer`s until the block ends; `others` are its layouts."""
    names = {"len": _length, "memoryview": _unchanged, "bytes": _unchanged, "crc32c": checksum_of, **others}
    before = {name: vars(module)[name] for name in names if name in vars(module)}
    vars(module).update(names)
    try:
        yield
    finally:
        for name in names:
            del vars(module)[name]
        vars(module).update(before)
