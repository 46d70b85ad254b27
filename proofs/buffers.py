"""Bytes of any length and content, for decoders that proofs run as they are.

Promises  lengths, slices and struct fields mean what they mean for `bytes`, and reading a field past the end raises as
          there; whatever a field says, the code under proof sees all of it.
Never     knows what the bytes are: each field read is any number its format has, each CRC any CRC.
"""

from __future__ import annotations

import builtins
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from dovetail.proofs.engine import Given

_RANGES = {"b": 8, "h": 16, "i": 32, "q": 64}


class Buffer:
    """`size` bytes of which nothing is known."""

    def __init__(self, given: Given, size: int) -> None:
        self.given = given
        self.size = size

    def __getitem__(self, part: slice) -> Buffer:
        start = 0 if part.start is None else part.start
        stop = self.size if part.stop is None else part.stop
        if start < 0 or stop < 0:
            raise IndexError("counted from the end")
        stop = self.size if stop > self.size else stop
        return Buffer(self.given, stop - start if start < stop else 0)

    def __eq__(self, other: object) -> Any:
        """Whether the bytes are these: they may be."""
        return _Fresh.either(self.given)

    __hash__ = None  # type: ignore[assignment]  # nobody keeps bytes that are not known as a key


class _Fresh:
    """Numbers off the inputs of a claim that have no name of their own."""

    count = 0

    @classmethod
    def integer(cls, given: Given, low: int, high: int) -> int:
        cls.count += 1
        return given.integer(f"read_{cls.count}", low, high)

    @classmethod
    def either(cls, given: Given) -> bool:
        return cls.integer(given, 0, 1) == 1


class Layout:
    """A `struct.Struct` that reads any values its format can hold; a text in it is one of those that are named."""

    def __init__(self, plain: struct.Struct, texts: tuple[bytes, ...] = ()) -> None:
        self.size = plain.size
        self._codes = plain.format.lstrip(">")
        self._texts = texts

    def unpack_from(self, buffer: Buffer, at: int = 0) -> tuple[Any, ...]:
        if at < 0 or at + self.size > buffer.size:
            raise struct.error("past the end of the buffer")
        return tuple(self._field(buffer.given, code) for code in self._codes if not code.isdigit())

    def _field(self, given: Given, code: str) -> Any:
        if code == "s":
            _Fresh.count += 1
            return given.choice(f"text_{_Fresh.count}", self._texts)
        bits = _RANGES[code.lower()]
        if code.isupper():
            return _Fresh.integer(given, 0, (1 << bits) - 1)
        return _Fresh.integer(given, -(1 << bits - 1), (1 << bits - 1) - 1)


def _length(value: Any) -> int:
    return value.size if isinstance(value, Buffer) else builtins.len(value)


def _unchanged(value: Any) -> Any:
    return value


def any_crc(value: Buffer, before: int = 0) -> int:
    """A checksum that may be any number."""
    return _Fresh.integer(value.given, 0, (1 << 32) - 1)


@contextmanager
def unknown_bytes(module: ModuleType, **others: Any) -> Iterator[None]:
    """Let the functions of `module` read `Buffer`s until the block ends; `others` are its layouts."""
    _Fresh.count = 0
    names = {"len": _length, "memoryview": _unchanged, "bytes": _unchanged, "crc32c": any_crc, **others}
    before = {name: vars(module)[name] for name in names if name in vars(module)}
    vars(module).update(names)
    try:
        yield
    finally:
        for name in names:
            del vars(module)[name]
        vars(module).update(before)
