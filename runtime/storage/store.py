"""The storage engine as the shell sees it: commit frames, write logs behind, read, checkpoint.

Promises  what `commit` returned for is durable; `read` gives what was appended, byte for byte, or raises; after a
          crash at any point `open_store` gives a state that holds every commit that returned.
Never     starts a thread or does an operation itself: each procedure is a task. `commit` is the journal lane;
          everything else is the log lane, one task at a time. The two may run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dovetail.core.ids import check
from dovetail.core.journal_format import EncodedFrame, Entry, Item
from dovetail.core.records import LogTrimmed, TopicDeleted
from dovetail.core.retention import PartInfo, Proposal, lowest_floor, propose
from dovetail.core.state import Durable
from dovetail.runtime.storage import checkpoint as checkpoints
from dovetail.runtime.storage.compact import Compaction
from dovetail.runtime.storage.disk import Lock, MakeDir, Task, Unlock, list_dir, remove_file, replace_file
from dovetail.runtime.storage.findings import Finding, Progress, Reading, RecoveryReport
from dovetail.runtime.storage.layout import CHECKPOINTS, LOCK, StoreOptions, checkpoint_path, number_of
from dovetail.runtime.storage.recover import Recovered, recover
from dovetail.runtime.storage.salvage import astray, count_aside, damages, mend, move_aside, write_findings

PREPARE_BYTES = 1 << 20
"""How much of a spare segment is written at a time, at least: it must be ready when the other half is full."""
BUSY_BYTES = 256 << 10
"""From this much at once on, the metadata of a sync costs less than writing the same bytes as zeros before; the segment
is recycled later all the same."""
CHECKPOINTS_KEPT = 2


class Opened(Struct, frozen=True):
    """What recovery gave: the next frame has lsn `durable.lsn + 1` and chains to `crc`."""

    durable: Durable
    crc: int
    salt: int
    broker_id: str
    report: RecoveryReport
    quarantined: int = 0
    """Files that a repair could not use, of this start or an earlier one, and that nobody has removed since."""


def open_store(
    options: StoreOptions,
    holder: str,
    wall_ms: int,
    new_salt: int,
    on_progress: Callable[[Progress], None] | None = None,
    go_on_without_damage: bool = False,
) -> Task[tuple[Store, Opened]]:
    """Take the data directory for this process, recover it, and write a checkpoint of what was recovered."""
    yield MakeDir("")
    yield Lock(LOCK, holder)
    try:
        recovered = yield from recover(options, wall_ms, new_salt, on_progress, go_on_without_damage)
        store = Store(options, recovered)
        yield from store.checkpoint(recovered.durable, checkpoints.encode(recovered.durable))
        report = recovered.report
        if recovered.aside:
            listed = yield from write_findings(report.findings, recovered.durable.lsn)
            moved = yield from move_aside(recovered.aside, recovered.durable.lsn)
            report = replace(report, quarantined=(listed, *moved))
        kept_aside = yield from count_aside()
    except Exception:
        yield Unlock(LOCK)
        raise
    opened = Opened(
        recovered.durable,
        recovered.crc,
        recovered.identity.salt,
        recovered.identity.broker_id,
        report,
        kept_aside,
    )
    return store, opened


class Store:
    """An open data directory."""

    def __init__(self, options: StoreOptions, recovered: Recovered) -> None:
        self._options = options
        self._journal = recovered.journal
        self._logs = recovered.logs
        self._written_lsn = recovered.durable.lsn
        self._checkpoint_bytes = 0
        self._kept: tuple[Durable, ...] = ()

    @property
    def written_lsn(self) -> int:
        """All frames up to this one have reached the logs' files."""
        return self._written_lsn

    @property
    def committed_bytes(self) -> int:
        """What was committed since the start."""
        return self._journal.committed_bytes

    @property
    def journal_bytes(self) -> int:
        """What was committed since the last checkpoint began."""
        return self._journal.committed_bytes - self._checkpoint_bytes

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the journal has grown enough since the last one."""
        return self.journal_bytes >= self._options.checkpoint_journal_bytes

    def commit(self, frames: Sequence[EncodedFrame], *, sync: bool = True) -> Task[None]:
        """Journal lane: write frames at once and, if `sync`, put them and all before them on the disk. After
        `SyncFailed` the process must end; after any other failure the same frames may be tried again."""
        yield from self._journal.commit(frames, sync=sync)

    def sync(self) -> Task[None]:
        """Journal lane: put on the disk what commits only wrote."""
        yield from self._journal.sync()

    def write_behind(self, lsn: int, items: Sequence[Item]) -> Task[None]:
        """Do to the logs' files what committed frames up to `lsn` say; may be repeated after a failure."""
        check(self._written_lsn <= lsn <= self._journal.committed_lsn, "I-STORED", self._written_lsn, lsn)
        if any(isinstance(item, TopicDeleted | LogTrimmed) for item in items):
            yield from self._journal.sync_to(lsn)
        yield from self._logs.apply(items)
        self._written_lsn = lsn
        if self._journal.wants_spare:
            size = sum(item.size_bytes for item in items if isinstance(item, Entry))
            if size < BUSY_BYTES:
                yield from self._journal.prepare(max(PREPARE_BYTES, 3 * size))

    def read(self, log: int, offset: int, bytes_max: int) -> Task[tuple[Entry, ...]]:
        """Whole entries from the one that contains `offset` on, or the next one there is, at least one if there
        is any; () at the end of the log, or when there is no such log."""
        files = self._logs.files.get(log)
        return (yield from files.read(offset, bytes_max)) if files else ()

    def offset_at(self, log: int, arrival_ms: int) -> Task[int]:
        """The first offset that arrived at or after the time; the log's end when none did."""
        files = self._logs.files.get(log)
        return (yield from files.offset_at(arrival_ms)) if files else 0

    def parts(self, log: int) -> Task[tuple[PartInfo, ...]]:
        """The files of a log, oldest first, for retention to judge."""
        files = self._logs.files.get(log)
        return (yield from files.infos()) if files else ()

    def proposals(self, durable: Durable, wall_ms: int) -> Task[list[Proposal]]:
        """What retention would remove now, for the core to decide."""
        found: list[Proposal] = []
        for number, files in sorted(self._logs.files.items()):
            log = durable.logs.get(number)
            if log is not None and files.parts:
                parts = yield from files.infos()
                floor = lowest_floor(durable, number)
                proposal = propose(number, parts, durable.topics[log.topic].config, wall_ms, floor)
                if proposal is not None:
                    found.append(proposal)
        return found

    def compaction(self, log: int, wall_ms: int) -> Compaction | None:
        """A compaction of a log, to be done step by step in the log lane; None while there is nothing it may
        touch: recovery from the older of the two checkpoints must find its entries as they were appended."""
        files = self._logs.files.get(log)
        then = self._kept[0].logs.get(log) if len(self._kept) == CHECKPOINTS_KEPT else None
        return Compaction(files, then.end, wall_ms) if files and then else None

    def checkpoint(self, durable: Durable, pieces: Iterable[bytes]) -> Task[None]:
        """Keep `durable`, whose bytes are `pieces`; then the journal before the older of the two kept is free."""
        check(durable.lsn <= self._written_lsn, "I-STORED", durable.lsn, self._written_lsn)
        begun_bytes = self._journal.committed_bytes
        yield from self._journal.sync_to(durable.lsn)
        yield from self._logs.sync()
        yield from replace_file(checkpoint_path(durable.lsn), pieces)
        self._checkpoint_bytes = begun_bytes
        self._kept = (*self._kept[-1:], durable)
        infos = yield from list_dir(CHECKPOINTS)
        lsns = [lsn for info in infos if (lsn := number_of(info.name, ".ckpt")) is not None]
        for lsn in lsns[:-CHECKPOINTS_KEPT]:
            yield from remove_file(checkpoint_path(lsn))
        if len(lsns) >= CHECKPOINTS_KEPT:
            yield from self._journal.free(lsns[-CHECKPOINTS_KEPT])

    def mend(
        self, known: Mapping[int, dict[int, Entry]], on_progress: Callable[[Progress], None] | None = None
    ) -> Task[tuple[list[Finding], list[str]]]:
        """Read every entry of every log and make whole what can't be read, from the entries of each log that are
        `known` and from what lies in the wrong file; what neither gives becomes a hole. Gives what was found and where
        the damaged bytes are kept. Takes long: it is for repairs."""
        findings: list[Finding] = []
        kept: list[str] = []
        reading = Reading(sum(part.size for files in self._logs.files.values() for part in files.parts), on_progress)
        for number, files in sorted(self._logs.files.items()):
            found = yield from damages(files, files.end, reading.has_read)
            places = sorted({damage.place for damage in found})
            have = {**known.get(number, {}), **(yield from astray(files, places))}
            findings += (damage.made_whole_by(have) for damage in found)
            for place in places:
                kept += yield from mend(files, place, self._written_lsn, have)
        if kept:
            kept.insert(0, (yield from write_findings(tuple(findings), self._written_lsn)))
        return findings, kept

    def close(self) -> Task[None]:
        """Put what was written behind on the disk and give the directory up."""
        yield from self._journal.sync_to(self._journal.committed_lsn)
        yield from self._logs.sync()
        yield Unlock(LOCK)
