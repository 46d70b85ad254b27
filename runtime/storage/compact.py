"""Compaction by key: of each key only its latest record stays, in the place where it was.

Promises  no record changes its offset; the latest record of a key stays, a tombstone (a record without a value) for
          `tombstone_ms` after it arrived; a record without a key stays; each part is replaced all at once.
Never     touches the part that is written to, or one that recovery might have to write again.

A compaction is done in steps, each a task of its own: the caller decides how fast they follow each other, and what
else the log lane does in between.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from dovetail.core import batch
from dovetail.core.batch import Record
from dovetail.core.compression import Codecs
from dovetail.core.journal_format import Entry, encode_entry
from dovetail.runtime.storage.codecs import CODECS
from dovetail.runtime.storage.disk import Task
from dovetail.runtime.storage.log import CHUNK_BYTES, LogFiles, Part, Walk
from dovetail.runtime.storage.salvage import holes

KEYS_MAX: Final = 5_000_000
"""Keys that are looked at in one compaction; records of further keys stay until the next."""
TOMBSTONE_MS: Final = 86_400_000
_DIGEST_BYTES: Final = 16


class Compaction:
    """One compaction of one log, up to offset `limit`."""

    def __init__(
        self,
        files: LogFiles,
        limit: int,
        wall_ms: int,
        *,
        tombstone_ms: int = TOMBSTONE_MS,
        keys_max: int = KEYS_MAX,
        codecs: Codecs = CODECS,
    ) -> None:
        self.bytes_before = 0
        self.bytes_after = 0
        self._files = files
        self._limit = limit
        self._oldest_tombstone_ms = wall_ms - tombstone_ms
        self._keys_max = keys_max
        self._codecs = codecs
        self._latest: dict[bytes, int] = {}
        self._to_read = [part.base for part in files.parts]
        self._to_write: list[int] = []

    def step(self) -> Task[bool]:
        """Work on one part; False when nothing is left to do."""
        if self._to_read:
            part = self._part(self._to_read.pop(0))
            if part is not None:
                yield from self._learn(part)
                self._to_write.append(part.base)
        elif self._to_write:
            part = self._part(self._to_write.pop(0))
            if part is not None:
                yield from self._rewrite(part)
        return bool(self._to_read or self._to_write)

    def _part(self, base: int) -> Part | None:
        """The part, unless it was trimmed between two steps."""
        return next((part for part in self._files.parts if part.base == base), None)

    def _learn(self, part: Part) -> Task[None]:
        walk = Walk(self._files, part, 0, CHUNK_BYTES)
        latest = self._latest
        while (entry := (yield from walk.next())) is not None:
            for record in self._records(entry):
                if record.key is not None:
                    digest = _digest(record.key)
                    if digest in latest or len(latest) < self._keys_max:
                        latest[digest] = record.offset

    def _rewrite(self, part: Part) -> Task[None]:
        if part is self._files.parts[-1] or self._files.end_of(self._files.parts.index(part)) > self._limit:
            return
        before = part.size
        changed = False
        entries: list[Entry] = []
        gap: tuple[int, int, int] | None = None  # first offset, end and arrival of what is left out
        walk = Walk(self._files, part, 0, CHUNK_BYTES)
        while (entry := (yield from walk.next())) is not None:
            kept = self._without_old(entry)
            changed = changed or kept is not entry
            if kept.is_hole:
                gap = (gap[0] if gap else kept.base, kept.last + 1, kept.record.arrival_ms)
                continue
            if gap is not None:
                entries += holes(self._files.log, *gap)
                gap = None
            entries.append(kept)
        if gap is not None:
            entries += holes(self._files.log, *gap)
        if changed:
            yield from self._files.replace_part(part, entries)
        self.bytes_before += before
        self.bytes_after += part.size

    def _without_old(self, entry: Entry) -> Entry:
        """The entry with what stays of it; the very same when all does."""
        records = self._records(entry)
        keep = {record.offset for record in records if self._stays(record, entry.record.arrival_ms)}
        if len(keep) == len(records):
            return entry
        if not keep:
            return holes(entry.record.log, entry.base, entry.last + 1, entry.record.arrival_ms)[0]
        data = batch.select(entry.batch, keep, codecs=self._codecs)
        return encode_entry(replace(entry.record, size_bytes=len(data)), data)

    def _stays(self, record: Record, arrival_ms: int) -> bool:
        if record.key is None:
            return True
        latest = self._latest.get(_digest(record.key), record.offset)
        if record.offset < latest:
            return False
        return record.value is not None or arrival_ms > self._oldest_tombstone_ms

    def _records(self, entry: Entry) -> list[Record]:
        return [] if entry.is_hole else batch.parse(entry.batch, codecs=self._codecs)


def _digest(key: bytes) -> bytes:
    """A key's stand-in of fixed size, so that long keys cost no memory."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
