"""The files of one log: entries one after the other, in parts named by their first offset.

Promises  an entry follows the one before without a gap in offsets (what was compacted away or quarantined is an
          entry without records); what `read` gives has been checked against its CRCs; a retried append
          writes nothing twice.
Never     syncs by itself, and never trusts an index it has not checked against the entry it leads to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from dovetail.core import files
from dovetail.core.ids import check
from dovetail.core.journal_format import Entry, FormatError, Short, entry_at
from dovetail.core.retention import PartInfo
from dovetail.runtime.storage import index as indexes
from dovetail.runtime.storage.disk import (
    Buffer,
    Create,
    FileInfo,
    MakeDir,
    Read,
    Task,
    Truncate,
    Write,
    parent,
    read_all,
    remove_file,
    replace_file,
)
from dovetail.runtime.storage.findings import Corrupted, Finding, Outcome
from dovetail.runtime.storage.index import Index, Point
from dovetail.runtime.storage.layout import BESIDE, StoreOptions, number_of

CHUNK_BYTES = 256 << 10
NO_OFFSET = 2**63
"""Beyond every offset there is."""


class LogDamaged(Corrupted):
    """An entry that can't be read as it was written."""

    def __init__(self, log: int, path: str, position: int, offset: int, reason: str, last: int = -1) -> None:
        found = Finding(Outcome.LOST, path, position, reason, log=log, first=offset, last=max(offset, last))
        super().__init__((found,))
        self.position = position
        self.reason = reason


class Part:
    """One file of entries; `index` is None until it is needed."""

    def __init__(self, directory: str, base: int, size: int = 0, index: Index | None = None) -> None:
        self.base = base
        self.stem = f"{directory}/{base:020}"
        self.size = size
        self.index = index
        self.has_index_files = False
        self.first_arrival_ms: int | None = None
        self.is_dirty = False

    @property
    def path(self) -> str:
        return self.stem + ".log"

    def paths(self) -> tuple[str, str, str]:
        return self.path, self.stem + ".index", self.stem + ".timeindex"


class Loaded:
    """The closed parts whose indexes are in memory: the ones used last, over all logs."""

    def __init__(self, parts_max: int) -> None:
        self._max = parts_max
        self._parts: OrderedDict[str, Part] = OrderedDict()

    def used(self, part: Part) -> None:
        """Keep this part's index for now; the one that was used longest ago may have to go."""
        self._parts[part.stem] = part
        self._parts.move_to_end(part.stem)
        if len(self._parts) > self._max:
            _, oldest = self._parts.popitem(last=False)
            oldest.index = None


class LogFiles:
    """One log: its parts in order, and `end`, the offset that is appended next."""

    def __init__(self, log: int, directory: str, end: int, options: StoreOptions, loaded: Loaded) -> None:
        self.log = log
        self.directory = directory
        self.end = end
        self.parts: list[Part] = []
        self.has_new_names = False
        self.leftovers: list[str] = []
        """Files that were never finished."""
        self._newest_ms: int | None = None
        self._options = options
        self._loaded = loaded

    @property
    def is_dirty(self) -> bool:
        return self.has_new_names or any(part.is_dirty for part in self.parts)

    def adopt(self, infos: Sequence[FileInfo]) -> None:
        """Take over the parts that lie in the directory."""
        self.parts = []
        names = {info.name for info in infos if not info.is_dir}
        for info in infos:
            base = number_of(info.name, ".log") if not info.is_dir else None
            if info.name.endswith(BESIDE):
                self.leftovers.append(f"{self.directory}/{info.name}")
            if base is not None:
                part = Part(self.directory, base, info.size)
                part.has_index_files = all(path.rpartition("/")[2] in names for path in part.paths())
                self.parts.append(part)

    def append(self, entries: Sequence[Entry]) -> Task[None]:
        """Write the entries behind the last one; those that are there already are passed over."""
        at = 0
        while at < len(entries) and entries[at].base < self.end:
            at += 1
        while at < len(entries):
            part = yield from self._part_for(entries[at])
            stop = self._fitting(part, entries, at)
            buffers: list[Buffer] = []
            for entry in entries[at:stop]:
                buffers += (entry.header, entry.batch)
            yield Write(part.path, part.size, buffers)
            self._appended(part, entries[at:stop])
            at = stop

    def _part_for(self, entry: Entry) -> Task[Part]:
        check(entry.base == self.end, "I-DENSE", self.log, self.end, entry.base)
        if self.parts:
            last = self.parts[-1]
            first_arrival = yield from self.first_arrival_ms(last)
            if not self._is_full(last.size, entry, first_arrival):
                yield from self.index_of(last)
                return last
            yield from self._write_index(last)
            if last.has_index_files:
                self._loaded.used(last)
        else:
            yield MakeDir(parent(self.directory))
            yield MakeDir(self.directory)
        part = Part(self.directory, entry.base, 0, Index(entry.base))
        yield Create(part.path)
        self.has_new_names = True
        self.parts.append(part)
        return part

    def _fitting(self, part: Part, entries: Sequence[Entry], at: int) -> int:
        """Up to where entries fit into the part; the first always does."""
        size = part.size + entries[at].size_bytes
        stop = at + 1
        oldest = part.first_arrival_ms
        if oldest is None:
            oldest = entries[at].record.arrival_ms
        while stop < len(entries):
            if self._is_full(size, entries[stop], oldest):
                break
            size += entries[stop].size_bytes
            stop += 1
        return stop

    def _is_full(self, size: int, entry: Entry, first_arrival_ms: int) -> bool:
        """Whether the entry begins a part of its own behind one of `size` bytes."""
        age_ms = entry.record.arrival_ms - first_arrival_ms
        options = self._options
        return files.is_part_full(size, entry.size_bytes, options.log_segment_bytes, age_ms, options.log_segment_ms)

    def _appended(self, part: Part, entries: Sequence[Entry]) -> None:
        index = part.index
        assert index is not None
        for entry in entries:
            check(entry.base == self.end and entry.record.log == self.log, "I-DENSE", self.log, self.end)
            if part.size == 0:
                part.first_arrival_ms = entry.record.arrival_ms
            elif part.size - index.last_position >= self._options.index_every_bytes:
                index.add(entry.base, part.size, entry.record.arrival_ms)
            part.size += entry.size_bytes
            self.end = entry.last + 1
            self._newest_ms = entry.record.arrival_ms
        part.is_dirty = True

    def read(self, offset: int, bytes_max: int) -> Task[tuple[Entry, ...]]:
        """Whole entries from the one that contains `offset`, or the next there is; () at the end."""
        first = max(0, files.last_up_to(self.parts, offset, key=_base))
        for place in range(first, len(self.parts)):
            found = yield from self._read_part(place, offset, bytes_max)
            if found:
                return found
        return ()

    def _read_part(self, place: int, offset: int, bytes_max: int) -> Task[tuple[Entry, ...]]:
        part = self.parts[place]
        point = yield from self.landing(part, offset)
        chunk = min(max(bytes_max, 4096) + self._options.index_every_bytes, 8 << 20)
        found: list[Entry] = []
        size = 0
        walk = Walk(self, part, point.position, chunk)
        while (entry := (yield from walk.next())) is not None:
            if entry.last < offset or entry.is_hole:
                continue
            if found and size + entry.size_bytes > bytes_max:
                break
            found.append(entry)
            size += entry.size_bytes
            if size >= bytes_max:
                break
        if not found:
            walk.check_end(self.end_of(place))
        return tuple(found)

    def end_of(self, place: int) -> int:
        """The offset after a part's last one."""
        return self.parts[place + 1].base if place + 1 < len(self.parts) else self.end

    def base_after(self, part: Part) -> int:
        """Where the part after this one begins; beyond every offset for the last."""
        place = files.last_up_to(self.parts, part.base, key=_base) + 1
        return self.parts[place].base if place < len(self.parts) else NO_OFFSET

    def landing(self, part: Part, offset: int) -> Task[Point]:
        """Where to begin looking for `offset`, checked against what lies there."""
        index = yield from self.index_of(part)
        point = index.place(offset)
        if not (yield from self._holds(part, point)):
            index = yield from self.rebuild_index(part)
            point = index.place(offset)
        return point

    def offset_at(self, arrival_ms: int) -> Task[int]:
        """The first offset that arrived at or after the time."""
        low, high = 0, len(self.parts)
        while low < high:
            middle = (low + high) // 2
            if (yield from self.first_arrival_ms(self.parts[middle])) < arrival_ms:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return self.parts[0].base if self.parts else self.end
        part = self.parts[low - 1]
        index = yield from self.index_of(part)
        point = index.place_at_time(arrival_ms)
        if not (yield from self._holds(part, point)):
            index = yield from self.rebuild_index(part)
            point = index.place_at_time(arrival_ms)
        walk = Walk(self, part, point.position, CHUNK_BYTES)
        while (entry := (yield from walk.next())) is not None:
            if entry.record.arrival_ms >= arrival_ms:
                return entry.base
        return self.parts[low].base if low < len(self.parts) else self.end

    def _holds(self, part: Part, point: Point) -> Task[bool]:
        """Whether the entry at an index's point is the one it says."""
        if point.position == 0:
            return True
        try:
            entry = yield from Walk(self, part, point.position, 4096).next()
        except LogDamaged:
            return False
        return entry is not None and entry.base == point.offset and entry.record.arrival_ms == point.arrival_ms

    def index_of(self, part: Part) -> Task[Index]:
        """The part's index: from memory, from its files, or made anew."""
        if part.index is None:
            if part.has_index_files:
                _, points, times = part.paths()
                part.index = indexes.decode(part.base, (yield from read_all(points)), (yield from read_all(times)))
            elif part.size <= 2 * self._options.index_every_bytes:
                part.index = Index(part.base)
        if part.index is None:
            return (yield from self.rebuild_index(part))
        if part is not self.parts[-1] and part.has_index_files:
            self._loaded.used(part)
        return part.index

    def rebuild_index(self, part: Part) -> Task[Index]:
        """Make the index anew from the entries, as far as they can be read."""
        index = Index(part.base)
        walk = Walk(self, part, 0, CHUNK_BYTES)
        try:
            position = 0
            while (entry := (yield from walk.next())) is not None:
                if position - index.last_position >= self._options.index_every_bytes:
                    index.add(entry.base, position, entry.record.arrival_ms)
                position = walk.position
        except LogDamaged:
            pass
        part.index = index
        return index

    def first_arrival_ms(self, part: Part) -> Task[int]:
        """When the part's first entry arrived."""
        if part.first_arrival_ms is None:
            entry = yield from Walk(self, part, 0, 4096).next()
            part.first_arrival_ms = entry.record.arrival_ms if entry else 0
        return part.first_arrival_ms

    def infos(self) -> Task[tuple[PartInfo, ...]]:
        """All parts, oldest first."""
        arrivals: list[int] = []
        for part in self.parts:
            arrivals.append((yield from self.first_arrival_ms(part)))
        if self.parts:
            arrivals.append((yield from self.last_arrival_ms()))
        return tuple(
            PartInfo(part.base, self.end_of(place), part.size, arrivals[place], arrivals[place + 1])
            for place, part in enumerate(self.parts)
        )

    def last_arrival_ms(self) -> Task[int]:
        """When the newest entry arrived."""
        if self._newest_ms is None:
            point = yield from self.landing(self.parts[-1], self.end - 1)
            walk = Walk(self, self.parts[-1], point.position, CHUNK_BYTES)
            self._newest_ms = 0
            while (entry := (yield from walk.next())) is not None:
                self._newest_ms = entry.record.arrival_ms
        return self._newest_ms

    def trim(self, start: int) -> Task[None]:
        """Remove the parts that lie wholly below `start`."""
        while self.parts and self.end_of(0) <= start:
            yield from self.remove_part(self.parts[0])
            del self.parts[0]

    def remove_part(self, part: Part) -> Task[None]:
        for path in part.paths():
            yield from remove_file(path)
        self.has_new_names = True

    def replace_behind(self, part: Part | None, position: int, start: int, entries: Sequence[Entry]) -> Task[None]:
        """Put entries that begin at offset `start` in the place of all that lies behind `position` of `part` (None: of
        everything): a crash leaves what was there, or the entries, with parts behind them that are there again."""
        kept = b""
        if part is not None:
            if not entries and part is self.parts[-1] and part.size == position:
                self.end = start
                return
            if position:
                kept = yield Read(part.path, 0, position)
        elif entries:
            yield MakeDir(parent(self.directory))
            yield MakeDir(self.directory)
            part = next((each for each in self.parts if each.base == start), Part(self.directory, start))
        if part is not None:
            yield from self.replace_part(part, entries, kept)
            part.first_arrival_ms = part.first_arrival_ms if kept else None
        for each in self.parts:
            if each is not part and (part is None or each.base > part.base):
                yield from self.remove_part(each)
        self.parts = [each for each in self.parts if part is not None and each.base < part.base]
        self.parts += [part] if part is not None else []
        self.end = entries[-1].last + 1 if entries else start
        self._newest_ms = None
        self.has_new_names = True

    def replace_part(self, part: Part, entries: Sequence[Entry], kept: bytes = b"") -> Task[None]:
        """Put other entries for the same offsets in a part's place, behind what is kept of it, all at once."""
        buffers = [kept, *(entry.header + entry.batch for entry in entries)]
        yield from replace_file(part.path, buffers)
        part.size = sum(map(len, buffers))
        index = yield from self.rebuild_index(part)
        yield from self._write_index(part)
        if not index.last_position and part.has_index_files:
            for path in part.paths()[1:]:
                yield from remove_file(path)
            part.has_index_files = False

    def cut(self, part: Part | None, position: int) -> Task[None]:
        """Remove everything after `position` of `part`; None: everything."""
        place = self.parts.index(part) if part is not None else -1
        for later in self.parts[place + 1 :]:
            yield from self.remove_part(later)
        del self.parts[place + 1 :]
        if part is None:
            return
        yield Truncate(part.path, position)
        part.size = position
        part.is_dirty = True
        if part.index is not None:
            part.index.cut(position)

    def write_indexes(self) -> Task[None]:
        """Write the indexes of the parts that were appended to."""
        for part in self.parts:
            if part.is_dirty:
                yield from self._write_index(part)

    def mark_synced(self) -> None:
        """Everything up to now is on the disk."""
        self.has_new_names = False
        for part in self.parts:
            part.is_dirty = False

    def _write_index(self, part: Part) -> Task[None]:
        if part.index is None or not part.index.last_position:
            return
        for path, data in zip(part.paths()[1:], part.index.encode(), strict=True):
            yield Create(path)
            yield Write(path, 0, (data,))
        part.has_index_files = True


class Walk:
    """Goes from entry to entry of a part, to where the next part begins; `position` is where the next entry does."""

    def __init__(self, files: LogFiles, part: Part, position: int, chunk_bytes: int) -> None:
        self.position = position
        self.offset = -1
        """The offset that must come next; -1 when it is not known."""
        self._files = files
        self._part = part
        self._chunk = chunk_bytes
        self._buffer = b""
        self._start = position
        self._stop = files.base_after(part)
        if position == 0:
            self.offset = part.base

    def next(self) -> Task[Entry | None]:
        """The entry at `position`, None at the part's end; `LogDamaged` when it is not whole."""
        left = self._part.size - self.position
        if left <= 0 or self.offset >= self._stop:
            return None
        while True:
            at = self.position - self._start
            try:
                entry = entry_at(self._buffer, at)
                break
            except Short as short:
                have = len(self._buffer) - at
                if have >= left:
                    raise self._damaged(str(short)) from short
                size = min(left, max(short.need, self._chunk))
                self._buffer = yield Read(self._part.path, self.position, size)
                self._start = self.position
                if len(self._buffer) <= have:
                    raise self._damaged("the file ends here") from short
            except FormatError as error:
                raise self._damaged(str(error)) from error
        if entry.record.log != self._files.log:
            raise self._damaged(f"the entry belongs to log {entry.record.log}")
        if self.offset >= 0 and entry.base != self.offset:
            raise self._damaged(f"the entry has offset {entry.base} where {self.offset} follows")
        self.position += entry.size_bytes
        self.offset = entry.last + 1
        return entry

    def check_end(self, end: int) -> None:
        """`LogDamaged` unless the part's last entry was the one before `end`."""
        if self.offset not in (-1, end):
            raise self._damaged(f"the entries end before offset {self.offset}, they should before {end}", end - 1)

    def _damaged(self, reason: str, last: int = -1) -> LogDamaged:
        return LogDamaged(self._files.log, self._part.path, self.position, max(self.offset, 0), reason, last)


def _base(part: Part) -> int:
    return part.base
