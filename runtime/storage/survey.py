"""How the logs' files stand to a state: how far they are whole, what they lack, and what that means.

Promises  every log of the state is looked at from the checkpoint's end of it on; what it lacks of what was synced is
          looked for in the journal; what can't be had from either is a finding LOST.
Never     writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from dovetail.core import delay, names
from dovetail.core.ids import ordered
from dovetail.core.journal_format import Entry
from dovetail.core.records import SyncPolicy
from dovetail.core.state import Durable, Log
from dovetail.runtime.storage.disk import Task, list_dir
from dovetail.runtime.storage.findings import Finding, Outcome
from dovetail.runtime.storage.layout import TOPICS, StoreOptions, topic_path
from dovetail.runtime.storage.log import LogDamaged, LogFiles, Part, Walk
from dovetail.runtime.storage.logs import Logs
from dovetail.runtime.storage.scan import Scanned, items_of, read_span


class Survey(Struct, frozen=True):
    """One log as it lies on the disk, seen from the checkpoint: `part` is whole up to `position`, which is
    where offset `found` begins; from there to `end` it is missing; from `end` its entries go on to `ahead`."""

    files: LogFiles
    end: int
    found: int
    part: Part | None
    position: int
    ahead: int
    problem: str = ""


def survey_logs(
    options: StoreOptions, before: Durable, durable: Durable, starts: dict[int, int]
) -> Task[tuple[list[Survey], list[str]]]:
    """Every log of the state that has files, and the directories that belong to no topic."""
    found = yield from list_dir(TOPICS)
    present = {info.name for info in found}
    known = Logs(options)
    known.know(durable)
    surveys: list[Survey] = []
    for number, log in ordered(durable.logs):
        then = before.logs.get(number)
        end = then.end if then else starts.get(number, log.start)
        files = known.files[number]
        files.end = end
        name = durable.topics[log.topic].name
        infos = (yield from list_dir(files.directory)) if name in present else []
        files.adopt(infos)
        surveys.append((yield from survey(files, end)))
    directories = sorted(info.name for info in found if info.is_dir)
    strangers = [name for name in directories if _is_topic(name) and name not in durable.topics_by_name]
    return surveys, strangers


def _is_topic(name: str) -> bool:
    """Whether a directory's name can be a topic's: file systems and people put others beside them (`lost+found`)."""
    try:
        return names.topic_name(name.removeprefix(names.HIDDEN)) != ""
    except names.BadName:
        return False


def survey(files: LogFiles, end: int) -> Task[Survey]:
    """Look for the place in the files where offset `end` begins, and how far they go on from there."""
    before = [part for part in files.parts if part.base < end]
    found, position, problem = 0, 0, ""
    part: Part | None = None
    later = list(files.parts)
    if before:
        part = before[-1]
        later = later[len(before) :]
        point = yield from files.landing(part, end - 1)
        found, position = point.offset, point.position
        walk = Walk(files, part, position, 64 << 10)
        try:
            while found < end and (entry := (yield from walk.next())) is not None:
                found, position = entry.last + 1, walk.position
        except LogDamaged as damage:
            problem = damage.reason
        if found == end and position < part.size:
            later.insert(0, part)
    ahead = yield from _ahead(files, later, end, position if part in later else 0)
    return Survey(files, end, found, part, position, ahead, problem)


def _ahead(files: LogFiles, parts: list[Part], end: int, position: int) -> Task[int]:
    """How far entries go on from `end` without a gap."""
    for part in parts:
        if part.base > end:
            break
        walk = Walk(files, part, position, 1 << 20)
        walk.offset = end
        try:
            while (entry := (yield from walk.next())) is not None:
                end = entry.last + 1
        except LogDamaged:
            break
        position = 0
    return end


def rescue(surveys: Iterable[Survey], scanned: Scanned, covered_lsn: int) -> Task[dict[int, list[Entry]]]:
    """What logs lack although it was synced, as far as the journal still has it."""
    short = {each.files.log: each for each in surveys if each.found < each.end}
    rescued: dict[int, list[Entry]] = {number: [] for number in short}
    if not short:
        return rescued
    for span in scanned.spans:
        if span.first_lsn > covered_lsn:
            break
        for frame in (yield from read_span(span)):
            for item in items_of(frame) if frame.lsn <= covered_lsn else ():
                if isinstance(item, Entry) and item.record.log in short:
                    each = short[item.record.log]
                    if each.found <= item.base < each.end:
                        rescued[item.record.log].append(item)
    return rescued


def judge_logs(
    surveys: Iterable[Survey], rescued: dict[int, list[Entry]], strangers: list[str], durable: Durable
) -> tuple[Finding, ...]:
    """What is wrong with the logs, given the state the journal stands for."""
    findings: list[Finding] = []
    for each in surveys:
        log = durable.logs[each.files.log]
        policy = durable.topics[log.topic].config.sync
        findings += _judge_log(each, rescued.get(log.id, []), log, policy)
    for name in strangers:
        if not was_deleted(durable, name):
            reason = "holds a topic that the journal does not know"
            findings.append(Finding(Outcome.LOST, topic_path(name), 0, reason))
    return tuple(findings)


def was_deleted(durable: Durable, name: str) -> bool:
    """Whether what lies under a name that is no topic's was deleted, and a crash came before it was gone for good. No
    name is kept of a delay's topic: it goes when its hour is over, and not before."""
    if delay.is_delay(name):
        return name.removeprefix(delay.PREFIX).isdecimal() and delay.is_over(name, durable.wall_ms)
    return name in durable.retired_by_name


def _judge_log(each: Survey, rescued: list[Entry], log: Log, policy: SyncPolicy) -> Iterable[Finding]:
    files = each.files
    path = each.part.path if each.part else files.directory
    first = max(each.found, log.start)
    if first < each.end:
        outcome = Outcome.REPAIRED if covers(rescued, first, each.end) else Outcome.LOST
        reason = each.problem or "ends before its last entry"
        yield Finding(outcome, path, each.position, reason, log=log.id, first=first, last=each.end - 1)
    front = files.parts[0].base if files.parts else each.end
    if log.start < min(front, each.found):
        reason = "the files before this one are missing"
        yield Finding(Outcome.LOST, files.parts[0].path, 0, reason, log=log.id, first=log.start, last=front - 1)
    if each.ahead > log.end:
        # Frames that asked for a sync are in the journal for good before they reach a log.
        outcome = Outcome.LOST if policy is SyncPolicy.ALWAYS else Outcome.CUT
        reason = "the log goes on where the journal ends"
        yield Finding(outcome, path, each.position, reason, log=log.id, first=log.end, last=each.ahead - 1)


def covers(entries: list[Entry], first: int, end: int) -> bool:
    """Whether entries hold `first..end` (excluded) without a gap."""
    reached = min(first, entries[0].base) if entries else end
    for entry in entries:
        if entry.base != reached:
            return False
        reached = entry.last + 1
    return bool(entries) and reached == end
