"""Stored entries that are in memory: the tails of logs, and what was read back for somebody.

Promises  an entry that the logs' files do not have yet is never dropped (I-PINNED); beyond that no more than the
          stated bytes are held, each entry counted with what it costs as an object; what is delayed is not held
          beyond that at all.
Never     reads a disk: what is not here is asked for by whoever needs it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque

from dovetail.core.journal_format import Entry

ENTRY_BYTES = 1_000
"""About what an entry costs beside its bytes."""
LAST = 1 << 62
"""Beyond every offset."""


class _Run:
    """Neighbouring entries of one log, oldest first; `gone` of them were dropped from the front."""

    __slots__ = ("bases", "entries", "gone")

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.entries: list[Entry] = []
        self.gone = 0

    def append(self, entry: Entry) -> None:
        self.bases.append(entry.base)
        self.entries.append(entry)

    def drop_first(self) -> None:
        self.gone += 1
        if self.gone * 2 > len(self.bases):
            del self.bases[: self.gone], self.entries[: self.gone]
            self.gone = 0

    def at(self, offset: int) -> int:
        """The place of the entry that holds `offset`; -1 if it is not here."""
        place = bisect_right(self.bases, offset, self.gone) - 1
        return place if place >= self.gone and offset <= self.entries[place].last else -1


class Shelf:
    """Tails by log up to `tail_bytes_max`, and runs that were read back up to `read_bytes_max`."""

    def __init__(self, tail_bytes_max: int, read_bytes_max: int) -> None:
        self._tail_bytes_max = tail_bytes_max
        self._read_bytes_max = read_bytes_max
        self._tails: dict[int, _Run] = {}
        self._order: deque[tuple[int, int, int]] = deque()  # (lsn, log, bytes), oldest first
        self._delayed: deque[tuple[int, int, int]] = deque()
        self._tail_bytes = 0
        self._behind_lsn = 0
        self._reads: OrderedDict[tuple[int, int], tuple[_Run, int]] = OrderedDict()
        self._read_bytes = 0

    @property
    def bytes_pinned_at_most(self) -> int:
        """Bytes of tails, an upper bound of what waits for the logs' files."""
        return self._tail_bytes

    def add(self, lsn: int, entry: Entry) -> None:
        """Keep an entry of the frame `lsn`, which is on its way to the disk."""
        log = entry.record.log
        run = self._tails.get(log)
        if run is None:
            run = self._tails[log] = _Run()
        run.append(entry)
        order = self._delayed if entry.record.deliver_at_ms else self._order
        order.append((lsn, log, entry.size_bytes + ENTRY_BYTES))
        self._tail_bytes += entry.size_bytes + ENTRY_BYTES
        self._shed()

    def written_behind(self, lsn: int) -> None:
        """The logs' files have everything up to the frame `lsn`."""
        self._behind_lsn = lsn
        self._shed()

    def _shed(self) -> None:
        while self._delayed and self._delayed[0][0] <= self._behind_lsn:
            self._drop(self._delayed)
        while self._tail_bytes > self._tail_bytes_max and self._order and self._order[0][0] <= self._behind_lsn:
            self._drop(self._order)

    def _drop(self, order: deque[tuple[int, int, int]]) -> None:
        _, log, size = order.popleft()
        self._tail_bytes -= size
        run = self._tails[log]
        run.drop_first()
        if not run.bases:
            del self._tails[log]

    def keep_read(self, log: int, entries: tuple[Entry, ...]) -> None:
        """Keep what was read back from a log's files for whoever comes next."""
        if not entries:
            return
        run = _Run()
        size = 0
        for entry in entries:
            run.append(entry)
            size += entry.size_bytes + ENTRY_BYTES
        key = (log, entries[0].base)
        _, replaced = self._reads.pop(key, (run, 0))
        self._reads[key] = (run, size)
        self._read_bytes += size - replaced
        while self._read_bytes > self._read_bytes_max and len(self._reads) > 1:
            _, (_, dropped) = self._reads.popitem(last=False)
            self._read_bytes -= dropped

    def entries(self, log: int, offset: int, bytes_max: int, last: int = LAST) -> tuple[Entry, ...]:
        """Neighbouring entries from the one that holds `offset` to the one that holds `last`, at least one if it is
        here, else none."""
        run = self._tails.get(log)
        place = run.at(offset) if run is not None else -1
        if run is None or place < 0:
            run, place = self._read_back(log, offset)
        if run is None:
            return ()
        found: list[Entry] = []
        size = 0
        following = offset
        for at in range(place, len(run.entries)):
            entry = run.entries[at]
            size += entry.size_bytes
            if found and (size > bytes_max or entry.base != following):
                break
            found.append(entry)
            following = entry.last + 1
            if following > last:
                break
        return tuple(found)

    def _read_back(self, log: int, offset: int) -> tuple[_Run | None, int]:
        for key, (run, _) in self._reads.items():
            if key[0] == log and (place := run.at(offset)) >= 0:
                return run, place
        return None, -1
