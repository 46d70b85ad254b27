"""What the disk alone can do: the same bytes written and synced by a bare loop.

Promises  writes into a prewritten file, as the journal does, so that a sync has no metadata to write.
Never     has more than one write under way.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from msgspec import Struct

JOURNAL_BYTES = 64 << 20
APPENDED_BYTES = 1 << 30
"""A file that grows is begun anew after so much."""
NEW_FILE_BYTES = 64 << 20
IN_MEMORY_MS = 0.02
"""A sync that is quicker than this did not reach a disk."""


class Synced(Struct, frozen=True):
    """How often so many bytes can be written and synced in a second, and how long one takes."""

    size_bytes: int
    per_second: float
    p50_ms: float


class Pages(Struct, frozen=True):
    """Processor time of writing a KiB, unsynced: to a new file, and to the same one again. Where new is much dearer,
    the machine gets its memory only as it touches it."""

    new_us: float
    again_us: float


def pages(directory: Path) -> Pages:
    """What the system's memory for files costs here."""
    piece = os.urandom(1 << 20)
    path = directory / "pages"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return Pages(_write_us(descriptor, piece), _write_us(descriptor, piece))
    finally:
        os.close(descriptor)
        path.unlink()


def _write_us(descriptor: int, piece: bytes) -> float:
    begun = time.process_time()
    for position in range(0, NEW_FILE_BYTES, len(piece)):
        os.pwrite(descriptor, piece, position)
    return (time.process_time() - begun) * 1e6 / (NEW_FILE_BYTES >> 10)


def prewritten(path: Path) -> int:
    """An open file that has all its bytes on the disk; one that is there already is used again."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if os.fstat(descriptor).st_size == JOURNAL_BYTES:
        return descriptor
    zeros = bytes(1 << 20)
    for position in range(0, JOURNAL_BYTES, len(zeros)):
        os.pwrite(descriptor, zeros, position)
    os.fsync(descriptor)
    return descriptor


def emptied(path: Path) -> int:
    """An open file with nothing in it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)


def write_and_sync(directory: Path, size_bytes: int, seconds: float) -> Synced:
    """Write and sync pieces of `size_bytes` for so long."""
    descriptor = prewritten(directory / "loop.journal")
    piece = os.urandom(size_bytes)
    times: list[float] = []
    position = 0
    begun = now = time.perf_counter()
    while now < begun + seconds:
        if position + size_bytes > JOURNAL_BYTES:
            position = 0
        os.pwrite(descriptor, piece, position)
        os.fdatasync(descriptor)
        position += size_bytes
        before, now = now, time.perf_counter()
        times.append(now - before)
    os.close(descriptor)
    return Synced(size_bytes, len(times) / (now - begun), sorted(times)[len(times) // 2] * 1000)
