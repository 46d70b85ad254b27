"""Sparse indexes of one part of a log: where to begin looking for an offset or a time.

Promises  `place` and `place_at_time` give a point at or before what is sought, never after, if the index is right;
          whoever reads checks the point against the entry that lies there, so a wrong one only costs time.
Never     is the only copy of anything.

    .index      per point: relative offset u32 · position u32
    .timeindex  per point: arrival time i64 · relative offset u32
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import chain
from struct import Struct as Layout
from struct import pack
from typing import Final

from msgspec import Struct

from dovetail.core import files

_POINT: Final = Layout(">II")
_TIME: Final = Layout(">qI")


class Point(Struct, frozen=True):
    """An entry that begins at `position`: its base offset and its arrival time (-1: not known)."""

    offset: int
    position: int
    arrival_ms: int = -1


class Index:
    """The points of one part, in order, 24 bytes each. Its first entry needs none."""

    def __init__(self, base: int) -> None:
        self.base = base
        self._offsets = array("q")
        self._positions = array("q")
        self._arrivals = array("q")

    def add(self, offset: int, position: int, arrival_ms: int) -> None:
        self._offsets.append(offset)
        self._positions.append(position)
        self._arrivals.append(arrival_ms)

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def place(self, offset: int) -> Point:
        """The last point at or before `offset`."""
        return self._point(files.last_up_to(self._offsets, offset))

    def place_at_time(self, arrival_ms: int) -> Point:
        """The last point that arrived before `arrival_ms`."""
        return self._point(files.last_before(self._arrivals, arrival_ms))

    def _point(self, at: int) -> Point:
        if at < 0:
            return Point(self.base, 0)
        return Point(self._offsets[at], self._positions[at], self._arrivals[at])

    def cut(self, position: int) -> None:
        """Forget the points at and after `position`."""
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:], self._positions[keep:], self._arrivals[keep:]

    def encode(self) -> tuple[bytes, bytes]:
        """The bytes of `.index` and `.timeindex`."""
        relative = [offset - self.base for offset in self._offsets]
        points = chain.from_iterable(zip(relative, self._positions, strict=True))
        times = b"".join(map(_TIME.pack, self._arrivals, relative))
        return pack(f">{2 * len(relative)}I", *points), times


def decode(base: int, points: bytes, times: bytes) -> Index | None:
    """The index that these bytes are; None when they can't be right."""
    index = Index(base)
    if len(points) % _POINT.size or len(times) % _TIME.size:
        return None
    found = list(_POINT.iter_unpack(points))
    timed = list(_TIME.iter_unpack(times))
    if len(found) != len(timed):
        return None
    before = (0, 0, -1)
    for (relative, position), (arrival_ms, same) in zip(found, timed, strict=True):
        if relative != same or (relative, position) <= before[:2] or arrival_ms < before[2]:
            return None
        before = (relative, position, arrival_ms)
        index.add(base + relative, position, arrival_ms)
    return index
