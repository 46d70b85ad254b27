"""Recovery: from what lies in a data directory to the state and files the broker goes on with.

The order matters, because a crash may come at any point of it: read everything and judge, before anything is
changed; then put the journal's tail, which may be in the system's memory alone, into a segment of its own; then
write again what the logs got since the checkpoint, for the same reason; the caller writes a checkpoint last.

Promises  `fold(evolve, checkpoint, journal)` is the state; nothing that was promised is lost in silence; a crash
          during recovery leaves a directory from which recovery gives the same.
Never     changes anything when it finds damage, unless told to go on without the damaged part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from dovetail.core.evolve import evolve_frame
from dovetail.core.ids import Bug, ordered
from dovetail.core.journal_format import (
    SEGMENT_HEADER_BYTES,
    Entry,
    FormatError,
    Frame,
    Item,
    NewerFormat,
    SegmentHeader,
    records_of,
)
from dovetail.core.records import TopicCreated
from dovetail.core.state import Durable
from dovetail.runtime.storage import checkpoint, identity, salvage
from dovetail.runtime.storage.disk import MakeDir, SyncDir, Task, list_dir, read_all, remove_file, remove_tree
from dovetail.runtime.storage.findings import Corrupted, Finding, Outcome, Progress, RecoveryReport, Unusable
from dovetail.runtime.storage.identity import Identity
from dovetail.runtime.storage.journal import Journal, Segment, begin_segment
from dovetail.runtime.storage.layout import (
    BESIDE,
    CHECKPOINTS,
    JOURNAL,
    TOPICS,
    StoreOptions,
    checkpoint_path,
    number_of,
    topic_path,
)
from dovetail.runtime.storage.logs import Logs
from dovetail.runtime.storage.scan import (
    FoundSegment,
    Scanned,
    claim,
    frames_after,
    items_of,
    list_segments,
    read_span,
    scan,
)
from dovetail.runtime.storage.survey import Survey, judge_logs, rescue, survey_logs, was_deleted

Report = Callable[[Progress], None]
PROGRESS_BYTES = 8 << 20


class Recovered(Struct, frozen=True):
    """What the store is made of."""

    durable: Durable
    identity: Identity
    journal: Journal
    logs: Logs
    crc: int
    report: RecoveryReport
    aside: tuple[str, ...] = ()
    """What is to be moved into quarantine once a checkpoint stands for the rest."""


class Checkpoints(Struct, frozen=True):
    """The newest checkpoint that can be read, and how far the one before it reaches."""

    newest: Durable
    older_lsn: int
    lsns: tuple[int, ...]
    damaged: tuple[str, ...]
    findings: tuple[Finding, ...]


class Examined(Struct, frozen=True):
    """Everything that recovery needs to know, before anything is changed."""

    identity: Identity
    created: bool
    kept: Checkpoints
    segments: list[FoundSegment]
    leftovers: list[str]
    fold: Fold
    scanned: Scanned
    surveys: list[Survey]
    strangers: list[str]
    rescued: dict[int, list[Entry]]
    findings: tuple[Finding, ...]

    @property
    def is_lost(self) -> bool:
        return any(finding.outcome is Outcome.LOST for finding in self.findings)

    def report(self, lsn: int, findings: tuple[Finding, ...]) -> RecoveryReport:
        fold = self.fold
        before = self.kept.newest.lsn
        return RecoveryReport(self.created, before, lsn, fold.frames, fold.messages, fold.done_bytes, findings)


def recover(
    options: StoreOptions, wall_ms: int, new_salt: int, on_progress: Report | None, go_on_without_damage: bool
) -> Task[Recovered]:
    """Bring a data directory to the state it stands for; `Corrupted` when something that was promised is gone."""
    whose, created, findings = yield from _identify(wall_ms, new_salt)
    found = yield from examine(options, whose, created, findings, on_progress)
    if found.is_lost and not go_on_without_damage:
        raise Corrupted(found.findings)
    for directory in (JOURNAL, CHECKPOINTS, TOPICS):
        yield MakeDir(directory)
    yield SyncDir("")
    if created or findings:
        yield from identity.write(whose)
    return (yield from (_go_on_without if found.is_lost else _resume)(options, found))


def examine(
    options: StoreOptions,
    whose: Identity,
    created: bool,
    findings: tuple[Finding, ...],
    on_progress: Report | None,
) -> Task[Examined]:
    """Read checkpoints, journal and the ends of all logs; changes nothing."""
    kept = yield from load_checkpoints()
    segments, leftovers = yield from list_segments()
    segments = claim(segments, whose.salt)
    fold = Fold(kept.newest, sum(segment.size_bytes for segment in segments), on_progress)
    first = next((segment.header.first_lsn for segment in segments if segment.header), 1)
    older = min(kept.newest.lsn, max(kept.older_lsn, first - 1)) if kept.newest.lsn else 0
    scanned = yield from scan(segments, whose.salt, older, kept.newest.lsn, fold.visit)
    fold.say("looking at the logs")
    surveys, strangers = yield from survey_logs(options, kept.newest, fold.durable, fold.starts)
    rescued = yield from rescue(surveys, scanned, kept.newest.lsn)
    findings += kept.findings + _missing_journal(kept, segments) + scanned.findings + fold.findings
    findings += judge_logs(surveys, rescued, strangers, fold.durable)
    return Examined(whose, created, kept, segments, leftovers, fold, scanned, surveys, strangers, rescued, findings)


def _missing_journal(kept: Checkpoints, segments: list[FoundSegment]) -> tuple[Finding, ...]:
    """A journal has a segment before there is a checkpoint, and never gives its last one up."""
    if segments or not (kept.lsns or kept.damaged):
        return ()
    reason = "the journal's files are missing: whatever was decided after the checkpoint is lost"
    return (Finding(Outcome.LOST, JOURNAL, 0, reason, kept.newest.lsn + 1),)


def _resume(options: StoreOptions, found: Examined) -> Task[Recovered]:
    """Go on from a directory that holds everything it promised."""
    yield from _remove_unfinished(found.leftovers)
    journal = yield from _go_on(options, found.identity, found.segments, found.scanned)
    found.fold.say("writing the logs")
    logs = yield from _write_logs(options, found.kept.newest, found.fold, found.scanned, found.surveys, found.rescued)
    durable = found.fold.durable
    yield from _set_damaged_aside(found.kept, durable.lsn)
    for info in (yield from list_dir(TOPICS)):
        if info.is_dir and info.name not in durable.topics_by_name and was_deleted(durable, info.name):
            yield from remove_tree(topic_path(info.name))
    report = found.report(durable.lsn, found.findings)
    headless = tuple(segment.path for segment in found.segments if segment.header is None)
    return Recovered(durable, found.identity, journal, logs, found.scanned.crc, report, headless)


def _go_on_without(options: StoreOptions, found: Examined) -> Task[Recovered]:
    """Go on with what can be read; the journal and its checkpoints end here, a new one begins."""
    fold, before, whose = found.fold, found.kept.newest, found.identity
    yield from _remove_unfinished(found.leftovers)
    have: dict[int, dict[int, Entry]] = {}
    findings = list(found.findings)
    for span in found.scanned.spans:
        for frame in (yield from read_span(span)):
            _collect(have, items_of(frame))
    for frame in (yield from frames_after(found.segments, whose.salt, fold.durable.lsn)):
        items = items_of(frame)
        _collect(have, items)
        dropped = fold.visit_leniently(frame, items)
        if dropped:
            reason = f"{dropped} records make no sense without what is missing"
            findings.append(Finding(Outcome.LOST, JOURNAL, 0, reason, frame.lsn))
    durable = fold.durable = salvage.reach_cursors(fold.durable)
    surveys, strangers = yield from survey_logs(options, before, durable, fold.starts)
    logs = Logs(options)
    logs.know(durable)
    for each in surveys:
        files, log = each.files, durable.logs[each.files.log]
        behind = yield from salvage.entries_behind(files, each.part, each.position)
        start = each.found if each.part else min(log.start, each.end)
        entries, lost = salvage.fill(files, behind | have.get(log.id, {}), start, log.end)
        findings += lost
        if not salvage.is_all_of(files, each.part, each.position, behind, entries):
            yield from salvage.put_aside(files, each.part, each.position, durable.lsn)
        yield from files.replace_behind(each.part, each.position, start, entries)
        findings += yield from salvage.fill_front(files, log.start)
        durable = salvage.with_end(durable, log, files.end)
        logs.files[log.id] = files
        logs.touch(files)
        yield from files.trim(log.start)
    number = found.segments[-1].number + 1 if found.segments else 0
    size = options.journal_segment_bytes if options.preallocate else 0
    header = SegmentHeader(number, durable.lsn + 1, whose.salt, size, 0)
    begun = yield from begin_segment(header, b"")
    journal = Journal(options, whose.salt, [begun], SEGMENT_HEADER_BYTES, durable.lsn, 0)
    yield from _set_damaged_aside(found.kept, durable.lsn)
    aside = [segment.path for segment in found.segments]
    aside += [checkpoint_path(lsn) for lsn in found.kept.lsns if lsn != durable.lsn]
    aside += map(topic_path, strangers)
    report = found.report(durable.lsn, tuple(findings))
    return Recovered(durable, whose, journal, logs, 0, report, tuple(aside))


def _collect(have: dict[int, dict[int, Entry]], items: Iterable[Item]) -> None:
    for item in items:
        if isinstance(item, Entry):
            have.setdefault(item.record.log, {})[item.base] = item


class Fold:
    """The state so far, and what else the journal's frames tell on the way."""

    def __init__(self, durable: Durable, total_bytes: int, on_progress: Report | None) -> None:
        self.durable = durable
        self.frames = 0
        self.messages = 0
        self.done_bytes = 0
        self.starts: dict[int, int] = {}
        """Where logs that are younger than the checkpoint began."""
        self.findings: tuple[Finding, ...] = ()
        """The frame that makes no sense after what came before it: the state ends there."""
        self._total = total_bytes
        self._said = 0
        self._on_progress = on_progress

    def visit(self, frame: Frame) -> None:
        if self.findings:
            return
        items = items_of(frame)
        try:
            self.durable = evolve_frame(self.durable, frame.lsn, frame.wall_ms, records_of(items))
        except (Bug, KeyError) as error:
            reason = f"what was decided makes no sense after what the checkpoint and the frames before say: {error}"
            self.findings = (Finding(Outcome.LOST, JOURNAL, 0, reason, frame.lsn),)
            return
        self._note(frame, items)

    def visit_leniently(self, frame: Frame, items: list[Item]) -> int:
        """Take a frame behind damage; gives how many of its records could not be used."""
        self.durable, dropped = salvage.fold_leniently(self.durable, frame, items)
        self._note(frame, items)
        return dropped

    def _note(self, frame: Frame, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, Entry):
                self.messages += item.record.count
            elif isinstance(item, TopicCreated):
                self.starts.update(enumerate(item.starts, item.first_log))
        self.frames += 1
        self.done_bytes += len(frame.body)
        if self.done_bytes - self._said >= PROGRESS_BYTES:
            self._said = self.done_bytes
            self.say("reading the journal")

    def say(self, stage: str) -> None:
        """Tell whoever watches how far it is."""
        if self._on_progress is not None:
            self._on_progress(Progress(stage, min(self.done_bytes, self._total), self._total))


def _identify(wall_ms: int, new_salt: int) -> Task[tuple[Identity, bool, tuple[Finding, ...]]]:
    """Whose directory it is, and whether it is new; a damaged `broker.json` is known from the journal."""
    found = yield from identity.read()
    if isinstance(found, Identity):
        return found, False, ()
    made = yield from identity.from_journal(wall_ms)
    is_new = found is None and made is None and not (yield from list_dir(CHECKPOINTS))
    made = made or identity.new_identity(new_salt, wall_ms)
    if is_new:
        return made, True, ()
    missing = Finding(Outcome.REPAIRED, "broker.json", 0, "was missing")
    return made, False, (found or missing,)


def load_checkpoints() -> Task[Checkpoints]:
    """The newest checkpoint that can be read; each that can't is a finding."""
    infos = yield from list_dir(CHECKPOINTS)
    named = [lsn for info in infos if (lsn := number_of(info.name, ".ckpt")) is not None]
    readable: list[Durable] = []
    damaged: list[str] = []
    findings: list[Finding] = []
    for lsn in reversed(named):
        path = checkpoint_path(lsn)
        data = yield from read_all(path)
        try:
            durable = checkpoint.decode(data)
            if durable.lsn != lsn:
                raise FormatError(f"it is {checkpoint_path(durable.lsn)} under another name")
        except NewerFormat as error:
            raise Unusable(f"{path}: {error}: use a newer version of dovetail") from error
        except FormatError as error:
            damaged.append(path)
            findings.append(Finding(Outcome.REPAIRED, path, 0, str(error), lsn))
        else:
            readable.append(durable)
    newest = readable[0] if readable else Durable()
    older = readable[1].lsn if len(readable) > 1 else 0
    lsns = tuple(durable.lsn for durable in readable)
    return Checkpoints(newest, older, lsns, tuple(damaged), tuple(findings))


def _go_on(options: StoreOptions, whose: Identity, segments: list[FoundSegment], scanned: Scanned) -> Task[Journal]:
    """Begin a new segment with the frames that nobody knows to be synced: read is not the same as durable."""
    number = segments[-1].number + 1 if segments else 0
    first_lsn = scanned.synced_lsn + 1 if scanned.tail else scanned.last_lsn + 1
    size = options.journal_segment_bytes if options.preallocate else 0
    header = SegmentHeader(number, first_lsn, whose.salt, size, scanned.tail_crc)
    begun = yield from begin_segment(header, scanned.tail)
    older = [
        Segment(each.number, each.header.first_lsn, min(each.size_bytes, each.header.size_bytes))
        for each in segments
        if each.header
    ]
    position = SEGMENT_HEADER_BYTES + len(scanned.tail)
    return Journal(options, whose.salt, [*older, begun], position, scanned.last_lsn, scanned.crc)


def _write_logs(
    options: StoreOptions,
    before: Durable,
    fold: Fold,
    scanned: Scanned,
    surveys: Iterable[Survey],
    rescued: dict[int, list[Entry]],
) -> Task[Logs]:
    """Write again what the logs got since the checkpoint, whether or not it can be read there."""
    logs = Logs(options)
    logs.know(before)
    for number in [number for number in logs.files if number not in fold.durable.logs]:
        del logs.files[number]
    for each in surveys:
        logs.files[each.files.log] = each.files
        yield from _cut_back(each, rescued.get(each.files.log, []))
        logs.touch(each.files)
    for span in scanned.spans:
        if span.last_lsn > before.lsn:
            frames = yield from read_span(span)
            items = (item for frame in frames if frame.lsn > before.lsn for item in items_of(frame))
            yield from logs.apply(items)
    for number, log in ordered(fold.durable.logs):
        yield from logs.files[number].trim(log.start)
    return logs


def _cut_back(each: Survey, rescued: list[Entry]) -> Task[None]:
    """Bring a log's files to the checkpoint's end of it, with what was rescued in the place of what they lack."""
    files = each.files
    for path in files.leftovers:
        yield from remove_file(path)
    if each.found < each.end and (not rescued or rescued[0].base != each.found):
        # What lies before the gap is below the log's start: nobody reads it any more.
        yield from files.cut(None, 0)
    elif files.parts and (each.part is not files.parts[-1] or each.position < files.parts[-1].size):
        yield from files.cut(each.part, each.position)
    if rescued:
        files.end = rescued[0].base
        yield from files.append(rescued)
    files.end = each.end


def _remove_unfinished(leftovers: list[str]) -> Task[None]:
    """Remove what an earlier life did not finish, or did not need: on a full disk that is the room to go on in."""
    for path in leftovers:
        yield from remove_file(path)
    for directory in ("", CHECKPOINTS):
        for info in (yield from list_dir(directory)):
            if info.name.endswith(BESIDE):
                yield from remove_file(f"{directory}/{info.name}".lstrip("/"))


def _set_damaged_aside(kept: Checkpoints, lsn: int) -> Task[None]:
    """Keep checkpoints that can't be read where they do no harm."""
    yield from salvage.move_aside(kept.damaged, lsn)
