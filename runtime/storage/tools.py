"""Looking at a data directory offline: verify all of it, dump what is in it, repair what can be.

Promises  `verify` and `dump` read every byte that matters and change nothing; `repair` keeps what it cuts in
          `quarantine/`; all of them hold the directory's lock, so that no broker changes it under them.
Never     guesses: an entry or frame is either whole or reported.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from dovetail.core import batch
from dovetail.core.batch import BatchError
from dovetail.core.ids import ordered
from dovetail.core.journal_format import Entry, Frame
from dovetail.core.state import Durable
from dovetail.runtime.storage import identity
from dovetail.runtime.storage.codecs import CODECS
from dovetail.runtime.storage.disk import Lock, Task, Unlock, list_dir
from dovetail.runtime.storage.findings import Finding, Outcome, Progress, Reading, RecoveryReport, Unusable
from dovetail.runtime.storage.identity import Identity
from dovetail.runtime.storage.layout import CHECKPOINTS, LOCK, TOPICS, StoreOptions
from dovetail.runtime.storage.log import LogDamaged, LogFiles, Walk
from dovetail.runtime.storage.recover import Examined, examine
from dovetail.runtime.storage.salvage import damages
from dovetail.runtime.storage.scan import items_of, read_span
from dovetail.runtime.storage.store import open_store

Report = Callable[[Progress], None]
Row = dict[str, Any]
Emit = Callable[[Row], None]
HOLDER = "dovetail log"

T = TypeVar("T")


class Verified(Struct, frozen=True):
    """What a data directory holds, and what is wrong with it."""

    broker_id: str
    checkpoint_lsn: int
    last_lsn: int
    topics: int
    logs: int
    log_bytes: int
    messages: int
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether everything that was promised can be read."""
        return all(finding.outcome is not Outcome.LOST for finding in self.findings)


class Repaired(Struct, frozen=True):
    """What a repair did."""

    report: RecoveryReport
    findings: tuple[Finding, ...]
    """What was found wrong with the parts of logs that a start does not look at."""
    quarantined: tuple[str, ...]


def verify(options: StoreOptions, on_progress: Report | None = None) -> Task[Verified]:
    """Read the whole directory; gives what it holds and every damage."""
    return _locked(_verify(options, on_progress))


def _verify(options: StoreOptions, on_progress: Report | None) -> Task[Verified]:
    found = yield from _examine(options, on_progress)
    durable = found.fold.durable
    findings = list(found.findings)
    seen = {(finding.path, finding.position) for finding in findings}
    size = sum(part.size for each in found.surveys for part in each.files.parts)
    reading = Reading(size, on_progress)
    for each in found.surveys:
        log = durable.logs[each.files.log]
        for damage in (yield from damages(each.files, each.end, reading.has_read)):
            finding = damage.finding(log.start)
            if (finding.path, finding.position) not in seen:
                findings.append(finding)
    messages = sum(log.end - log.start for _, log in ordered(durable.logs))
    return Verified(
        found.identity.broker_id,
        found.kept.newest.lsn,
        durable.lsn,
        len(durable.topics),
        len(durable.logs),
        size,
        messages,
        tuple(findings),
    )


def repair(options: StoreOptions, wall_ms: int, salt: int, on_progress: Report | None = None) -> Task[Repaired]:
    """Go on without what is damaged: afterwards a broker starts, and `verify` finds nothing lost."""
    known = yield from _locked(_journalled(options, on_progress))
    store, opened = yield from open_store(options, HOLDER, wall_ms, salt, on_progress, go_on_without_damage=True)
    try:
        findings, kept = yield from store.mend(known, on_progress)
    except Exception:
        yield Unlock(LOCK)
        raise
    yield from store.close()
    return Repaired(opened.report, tuple(findings), (*opened.report.quarantined, *kept))


def _journalled(options: StoreOptions, on_progress: Report | None) -> Task[dict[int, dict[int, Entry]]]:
    """Of each log that is damaged, what the journal has and no compaction has seen: by log and base offset."""
    found = yield from _examine(options, on_progress)
    reading = Reading(0, None)
    known: dict[int, dict[int, Entry]] = {}
    for each in found.surveys:
        if (yield from damages(each.files, each.end, reading.has_read)):
            known[each.files.log] = {}
    for span in found.scanned.spans if known else ():
        for frame in (yield from read_span(span)):
            for item in items_of(frame) if frame.lsn > found.kept.older_lsn else ():
                if isinstance(item, Entry) and item.record.log in known:
                    known[item.record.log][item.base] = item
    return known


def dump_journal(options: StoreOptions, emit: Emit, with_records: bool = False) -> Task[None]:
    """Every frame that is still in the journal, one row per record."""
    return _locked(_dump_journal(options, emit, with_records))


def _dump_journal(options: StoreOptions, emit: Emit, with_records: bool) -> Task[None]:
    found = yield from _examine(options, None)
    for span in found.scanned.spans:
        for frame in (yield from read_span(span)):
            for row in _frame_rows(frame, with_records):
                emit(row)
    _emit_findings(found, emit)


def _frame_rows(frame: Frame, with_records: bool) -> Generator[Row, None, None]:
    head = {"lsn": frame.lsn, "wall_ms": frame.wall_ms, "synced_lsn": frame.synced_lsn}
    for item in items_of(frame):
        if isinstance(item, Entry):
            yield {**head, **_entry_row(item, with_records)}
        else:
            yield {**head, "kind": type(item).__name__, **_plain(item)}


def dump_logs(options: StoreOptions, topic: str, emit: Emit, with_records: bool = False) -> Task[None]:
    """Every entry in the logs' files, of one topic or (with "") of all; damage is a row of its own."""
    return _locked(_dump_logs(options, topic, emit, with_records))


def _dump_logs(options: StoreOptions, topic: str, emit: Emit, with_records: bool) -> Task[None]:
    found = yield from _examine(options, None)
    durable = found.fold.durable
    if topic and topic not in durable.topics_by_name:
        raise Unusable(f"there is no topic {topic!r} in this directory")
    for each in found.surveys:
        log = durable.logs[each.files.log]
        name = durable.topics[log.topic].name
        if topic in ("", name):
            where = {"topic": name, "partition": log.partition, "lane": log.lane}
            yield from _dump_log(each.files, where, emit, with_records)
    _emit_findings(found, emit)


def _dump_log(files: LogFiles, where: Row, emit: Emit, with_records: bool) -> Task[None]:
    for part in files.parts:
        walk = Walk(files, part, 0, 1 << 20)
        try:
            while (entry := (yield from walk.next())) is not None:
                emit({**where, **_entry_row(entry, with_records)})
        except LogDamaged as damage:
            emit({**where, "kind": "damage", **_plain(damage.findings[0])})


def dump_state(options: StoreOptions, emit: Emit) -> Task[None]:
    """The state that checkpoint and journal stand for, one row per thing."""
    return _locked(_dump_state(options, emit))


def _dump_state(options: StoreOptions, emit: Emit) -> Task[None]:
    found = yield from _examine(options, None)
    for row in state_rows(found.fold.durable):
        emit(row)
    _emit_findings(found, emit)


def state_rows(durable: Durable) -> Generator[Row, None, None]:
    """The durable state, one row per topic, log, group and cursor."""
    yield {"kind": "state", "lsn": durable.lsn, "incarnation": durable.incarnation, "wall_ms": durable.wall_ms}
    for _, topic in ordered(durable.topics):
        yield {"kind": "topic", **_plain(topic)}
    for _, log in ordered(durable.logs):
        yield {"kind": "log", **_plain(log)}
    for _, group in ordered(durable.groups):
        yield {"kind": "group", **_plain(group)}
    for (group_id, log_id), cursor in ordered(durable.cursors):
        yield {"kind": "cursor", "group": group_id, "log": log_id, **_plain(cursor)}


def _plain(value: Struct) -> Row:
    """A record as its fields by name, those of the records in it too."""
    return {name: _plain(each) if isinstance(each, Struct) else each for name, each in asdict(value).items()}


def _entry_row(entry: Entry, with_records: bool) -> Row:
    row: Row = {"kind": "hole" if entry.is_hole else "entry", **_plain(entry.record)}
    if with_records:
        try:
            row["records"] = [_plain(record) for record in batch.parse(entry.batch, codecs=CODECS)]
        except BatchError as error:
            row["problem"] = str(error)
    return row


def _emit_findings(found: Examined, emit: Emit) -> None:
    for finding in found.findings:
        emit({"kind": "damage", **_plain(finding)})


def _examine(options: StoreOptions, on_progress: Report | None) -> Task[Examined]:
    """Recovery's own look at the directory."""
    whose, findings = yield from _whose()
    return (yield from examine(options, whose, False, findings, on_progress))


def _whose() -> Task[tuple[Identity, tuple[Finding, ...]]]:
    """The directory's identity; one that can't be read is taken from the journal."""
    found = yield from identity.read()
    if isinstance(found, Identity):
        return found, ()
    whose = yield from identity.from_journal(0)
    if whose is None:
        if not ((yield from list_dir(CHECKPOINTS)) or (yield from list_dir(TOPICS))):
            raise Unusable("this is not a data directory: it has no broker.json, journal, checkpoint or topic")
        whose = Identity("unknown", 0, 0)
    return whose, (found or Finding(Outcome.REPAIRED, "broker.json", 0, "is missing"),)


def _locked(task: Task[T]) -> Task[T]:
    """Do the task while holding the directory's lock."""
    yield from _whose()
    yield Lock(LOCK, HOLDER)
    try:
        result = yield from task
    except Exception:
        yield Unlock(LOCK)
        raise
    yield Unlock(LOCK)
    return result
