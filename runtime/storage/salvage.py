"""Going on without what is damaged, when an operator says so: keep all that can be read, put the rest aside.

Promises  every whole frame behind the damage is used as far as it makes sense without what is missing; every whole
          entry that lies in a log or in the journal keeps its offset; offsets that can't be read any more are
          holes, each reported; what is not used is kept in `quarantine/`.
Never     runs by itself, and never removes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dovetail.core.evolve import evolve
from dovetail.core.ids import Bug, ordered
from dovetail.core.journal_format import Entry, Frame, Item, find_entries, hole, records_of
from dovetail.core.kernels import clamp_wall
from dovetail.core.records import AnyRecord, BatchAppended
from dovetail.core.state import Durable, Log
from dovetail.runtime.storage.disk import (
    Create,
    DiskError,
    Kind,
    MakeDir,
    Read,
    Rename,
    SyncDir,
    Task,
    Write,
    list_dir,
    parent,
    replace_file,
)
from dovetail.runtime.storage.findings import Finding, Outcome
from dovetail.runtime.storage.layout import QUARANTINE
from dovetail.runtime.storage.log import LogDamaged, LogFiles, Part, Walk
from dovetail.runtime.storage.survey import covers

FINDINGS = "findings.json"
HOLE_OFFSETS_MAX = 2**31 - 1
"""A batch counts its offsets in 31 bits."""


def fold_leniently(durable: Durable, frame: Frame, items: Iterable[Item]) -> tuple[Durable, int]:
    """The state after a frame some of whose predecessors are missing, and how many records made no sense."""
    dropped = 0
    for record in records_of(items):
        try:
            durable = evolve(_reach(durable, record), record)
        except (Bug, KeyError):
            dropped += 1
    wall_ms = clamp_wall(durable.wall_ms, frame.wall_ms)
    return replace(durable, lsn=max(durable.lsn, frame.lsn), wall_ms=wall_ms), dropped


def _reach(durable: Durable, record: AnyRecord) -> Durable:
    """A batch that lies beyond the log's end shows that those between are missing: the log goes on after them."""
    if isinstance(record, BatchAppended):
        log = durable.logs.get(record.log)
        if log is not None and record.base > log.end:
            return with_end(durable, log, record.base)
    return durable


def with_end(durable: Durable, log: Log, end: int) -> Durable:
    """The state with another end of a log."""
    return replace(durable, logs=durable.logs.set(log.id, replace(log, end=end)))


def reach_cursors(durable: Durable) -> Durable:
    """No cursor may be beyond its log's end."""
    for (_, number), cursor in ordered(durable.cursors):
        log = durable.logs[number]
        reach = max(cursor.floor, cursor.islands[-1][1] + 1 if cursor.islands else 0)
        if reach > log.end:
            durable = with_end(durable, log, reach)
    return durable


def entries_behind(files: LogFiles, part: Part | None, position: int) -> Task[dict[int, Entry]]:
    """Every whole entry from a position on, by base offset, damage in between or not."""
    found: dict[int, Entry] = {}
    place = files.parts.index(part) if part is not None else 0
    for each in files.parts[place:]:
        start = position if each is part else 0
        for _, entry in find_entries((yield from _rest(each, start)), files.log):
            found.setdefault(entry.base, entry)
    return found


def is_all_of(
    files: LogFiles, part: Part | None, position: int, behind: dict[int, Entry], used: Iterable[Entry]
) -> bool:
    """Whether all that lies behind a position of a log's files is in the entries that are used."""
    place = files.parts.index(part) if part is not None else 0
    size = sum(each.size for each in files.parts[place:]) - position
    return size == sum(entry.size_bytes for entry in used if behind.get(entry.base) == entry)


def put_aside(files: LogFiles, part: Part | None, position: int, lsn: int) -> Task[list[str]]:
    """Copy what a cut would remove into `quarantine/`; gives the copies' paths."""
    kept: list[str] = []
    place = files.parts.index(part) if part is not None else 0
    for each in files.parts[place:]:
        start = position if each is part else 0
        if start >= each.size:
            continue
        path = yield from room_aside(f"{each.path}.from-{start}", lsn)
        data: bytes = yield Read(each.path, start, each.size - start)
        yield from replace_file(path, (data,))
        kept.append(path)
    return kept


def fill(files: LogFiles, have: dict[int, Entry], at: int, end: int) -> tuple[list[Entry], list[Finding]]:
    """The entries from offset `at` up to `end`, and those that follow without a gap; what is missing is a hole."""
    findings: list[Finding] = []
    entries: list[Entry] = []
    arrival_ms = 0
    for base in [*sorted(base for base in have if base >= at), end]:
        entry = have.get(base)
        if at < base and at < end:
            upto = min(base, end)
            entries += holes(files.log, at, upto, entry.record.arrival_ms if entry else arrival_ms)
            reason = "can't be read any more"
            findings.append(Finding(Outcome.LOST, files.directory, 0, reason, log=files.log, first=at, last=upto - 1))
            at = upto
        if entry is not None and entry.base == at:
            entries.append(entry)
            at, arrival_ms = entry.last + 1, entry.record.arrival_ms
    return entries, findings


class Damage(Struct, frozen=True):
    """Offsets `first..last` of a log that can't be read, and where they should be."""

    log: int
    place: int
    path: str
    position: int
    first: int
    last: int
    reason: str

    def finding(self, start: int) -> Finding:
        """What it means for a log that begins at `start`."""
        outcome = Outcome.LOST if self.last >= start else Outcome.UNNEEDED
        return self._finding(outcome)

    def made_whole_by(self, known: dict[int, Entry]) -> Finding:
        """What it means when these entries take the place of what can't be read."""
        within = [entry for base, entry in sorted(known.items()) if self.first <= base <= entry.last <= self.last]
        return self._finding(Outcome.REPAIRED if covers(within, self.first, self.last + 1) else Outcome.LOST)

    def _finding(self, outcome: Outcome) -> Finding:
        return Finding(outcome, self.path, self.position, self.reason, log=self.log, first=self.first, last=self.last)


def damages(files: LogFiles, end: int, has_read: Callable[[int], None]) -> Task[list[Damage]]:
    """Every damage in a log's files below offset `end`: each entry is read and checked; `has_read` is told the size of
    each part that was."""
    found: list[Damage] = []
    for place, part in enumerate(files.parts):
        if part.base >= end:
            break
        stop = min(end, files.parts[place + 1].base if place + 1 < len(files.parts) else end)
        walk = Walk(files, part, 0, 1 << 20)
        while walk.offset < stop:
            try:
                entry = yield from walk.next()
                reason = "the entries end here"
            except LogDamaged as damage:
                entry, reason = None, damage.reason
            if entry is None:
                position, first = walk.position, walk.offset
                yield from _skip(files, part, walk)
                last = min(walk.offset, stop) - 1
                found.append(Damage(files.log, place, part.path, position, first, last, reason))
        has_read(part.size)
    return found


def _skip(files: LogFiles, part: Part, walk: Walk) -> Task[None]:
    """Move a walk behind damage, to the next whole entry; to the end of everything when there is none."""
    data = yield from _rest(part, walk.position)
    for at, entry in find_entries(data, files.log):
        if entry.base > walk.offset:
            walk.position, walk.offset = walk.position + at, entry.base
            return
    walk.position, walk.offset = part.size, 2**63


def _rest(part: Part, position: int) -> Task[bytes]:
    """What a part holds from a position on; a link to nowhere, which can't even be opened, holds nothing."""
    data: bytes = (yield Read(part.path, position, part.size - position)) if part.size > position else b""
    return data


def astray(files: LogFiles, places: Iterable[int]) -> Task[dict[int, Entry]]:
    """Whole entries that lie in the wrong one of these parts, by base offset: somebody mixed files up."""
    found: dict[int, Entry] = {}
    for place in places:
        part = files.parts[place]
        for _, entry in find_entries((yield from _rest(part, 0)), files.log):
            if not part.base <= entry.base <= entry.last < files.end_of(place):
                found.setdefault(entry.base, entry)
    return found


def mend(files: LogFiles, place: int, lsn: int, known: dict[int, Entry]) -> Task[list[str]]:
    """Make a part whole from what can be read of it and from the entries that are `known`, the rest of it holes; gives
    where the damaged bytes are kept."""
    part = files.parts[place]
    end = files.end_of(place)
    data = yield from _rest(part, 0)
    path = yield from room_aside(f"{part.path}.whole", lsn)
    yield from replace_file(path, (data,))
    found = {base: entry for base, entry in known.items() if part.base <= base <= entry.last < end}
    found.update((entry.base, entry) for _, entry in find_entries(data, files.log) if part.base <= entry.last < end)
    entries: list[Entry] = []
    at, arrival_ms = part.base, (yield from _arrival_near(files, place))
    for base, entry in sorted(found.items()):
        if base >= at:
            entries += [*holes(files.log, at, base, entry.record.arrival_ms), entry]
            at, arrival_ms = entry.last + 1, entry.record.arrival_ms
    entries += holes(files.log, at, end, arrival_ms)
    yield from files.replace_part(part, entries)
    return [path]


def _arrival_near(files: LogFiles, place: int) -> Task[int]:
    """About when a part began of which nothing can be read: retention must not take it, or the one before it, for older
    than it is."""
    for near in (place + 1, place - 1):
        if 0 <= near < len(files.parts):
            try:
                return (yield from files.first_arrival_ms(files.parts[near]))
            except LogDamaged:
                continue
    return 0


def holes(log: int, first: int, end: int, arrival_ms: int) -> list[Entry]:
    """Entries without records for `first..end`, the end excluded."""
    found: list[Entry] = []
    while first < end:
        count = min(end - first, HOLE_OFFSETS_MAX)
        found.append(hole(log, first, count, arrival_ms))
        first += count
    return found


def fill_front(files: LogFiles, start: int) -> Task[list[Finding]]:
    """A part of holes in the place of parts that are gone."""
    if not files.parts or files.parts[0].base <= start:
        return []
    base = files.parts[0].base
    part = Part(files.directory, start)
    entries = holes(files.log, start, base, (yield from files.first_arrival_ms(files.parts[0])))
    yield Create(part.path)
    yield Write(part.path, 0, [buffer for entry in entries for buffer in (entry.header, entry.batch)])
    part.size = sum(entry.size_bytes for entry in entries)
    part.is_dirty = True
    files.parts.insert(0, part)
    files.has_new_names = True
    reason = "can't be read any more"
    return [Finding(Outcome.LOST, files.directory, 0, reason, log=files.log, first=start, last=base - 1)]


def room_aside(path: str, lsn: int) -> Task[str]:
    """Where to keep a file of this path aside: under the lsn at which a repair ends, never in the place of what an
    earlier one kept."""
    target = f"{QUARANTINE}/{lsn:020}/{path}"
    levels = target.split("/")
    for depth in range(1, len(levels)):
        yield MakeDir("/".join(levels[:depth]))
        yield SyncDir("/".join(levels[: depth - 1]))
    taken = {info.name for info in (yield from list_dir(parent(target)))}
    again = count(2)
    while target.rpartition("/")[2] in taken:
        target = f"{QUARANTINE}/{lsn:020}/{path}.{next(again)}"
    return target


def move_aside(paths: Iterable[str], lsn: int) -> Task[list[str]]:
    """Move whole files and directories into `quarantine/`; gives where they are now."""
    moved: list[str] = []
    for path in paths:
        target = yield from room_aside(path, lsn)
        try:
            yield Rename(path, target)
        except DiskError as error:
            if error.kind is not Kind.MISSING:
                raise
        else:
            moved.append(target)
            yield SyncDir(parent(target))
            yield SyncDir(parent(path))
    return moved


def write_findings(findings: tuple[Finding, ...], lsn: int) -> Task[str]:
    """Put a list of what was found beside what is kept; gives its path."""
    path = yield from room_aside(FINDINGS, lsn)
    yield from replace_file(path, (msgspec.json.format(msgspec.json.encode(findings), indent=2),))
    return path


def count_aside(directory: str = QUARANTINE) -> Task[int]:
    """How many files are kept in quarantine, the lists of findings not counted."""
    found = 0
    for info in (yield from list_dir(directory)):
        if info.is_dir:
            found += yield from count_aside(f"{directory}/{info.name}")
        else:
            found += ".json" not in info.name
    return found
