"""The one place where durable state changes: record by record.

Promises  `fold(evolve, checkpoint, journal)` is the state; what a record says is taken as decided, and a record
          that can't follow from the state is a `Bug` of ours.
Never     decides anything, answers anybody, or touches what is not durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from dovetail.core import cursor as cursors
from dovetail.core import intervals, names, producers, stories
from dovetail.core.cursor import Cursor
from dovetail.core.ids import check, ordered
from dovetail.core.kernels import clamp_wall
from dovetail.core.names import is_hidden
from dovetail.core.records import (
    AnyRecord,
    AttemptFailed,
    BatchAppended,
    BrokerStarted,
    CursorOpened,
    DeadLettered,
    DeadRemoved,
    Expired,
    FloorReset,
    GroupConfigured,
    GroupCreated,
    GroupDeleted,
    LogTrimmed,
    MemberJoined,
    MemberLeft,
    Moved,
    PatternAdded,
    PatternRemoved,
    Rebalanced,
    ReplayChanged,
    Replayed,
    ReplayStarted,
    ReplayState,
    Settled,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from dovetail.core.state import Durable, Group, Log, MovedBatches, Replay, Topic
from dovetail.core.stories import Attempt, Stories

REPLAYS_KEPT = 100
"""Jobs that are over and can still be looked at."""


def evolve(durable: Durable, record: AnyRecord) -> Durable:
    """The durable state after `record`."""
    match record:
        case BatchAppended():
            return _batch_appended(durable, record)
        case Settled():
            return _settled(durable, record)
        case AttemptFailed():
            return _attempt_failed(durable, record)
        case Expired():
            return _expired(durable, record)
        case DeadLettered():
            return _dead_lettered(durable, record)
        case CursorOpened():
            check((record.group, record.log) not in durable.cursors, "I-CURSOR", record)
            return _with_cursor(durable, record.group, record.log, Cursor(record.floor))
        case FloorReset():
            found = durable.cursors[record.group, record.log]
            durable = _with_stories(durable, (record.group, record.log), ())
            return _with_cursor(durable, record.group, record.log, cursors.reset(found, record.floor))
        case MemberJoined() | MemberLeft():
            return _generation(durable, record)
        case Rebalanced():
            return _rebalanced(durable, record)
        case GroupCreated():
            return _group_created(durable, record)
        case GroupConfigured():
            group = durable.groups[record.group]
            check(group.member_count == 0, "I-MODE", group, record)
            return _with_group(durable, replace(group, mode=record.mode, strategy=record.strategy, shares=()))
        case GroupDeleted():
            return _group_deleted(durable, record)
        case PatternAdded():
            group = durable.groups[record.group]
            return _with_group(durable, replace(group, patterns=(*group.patterns, record.pattern)))
        case PatternRemoved():
            group = durable.groups[record.group]
            patterns = tuple(pattern for pattern in group.patterns if pattern != record.pattern)
            return _with_group(durable, replace(group, patterns=patterns))
        case TopicCreated():
            return _topic_created(durable, record)
        case TopicConfigured():
            topic = replace(durable.topics[record.topic], config=record.config)
            return replace(durable, topics=durable.topics.set(record.topic, topic))
        case TopicDeleted():
            return _topic_deleted(durable, record)
        case LogTrimmed():
            return _log_trimmed(durable, record)
        case Moved():
            return _moved(durable, record)
        case ReplayStarted() | Replayed() | ReplayChanged():
            return _replay(durable, record)
        case DeadRemoved():
            return _removed(durable, record.log, record.first, record.last)
        case BrokerStarted():
            return _broker_started(durable, record)
        case _:
            assert_never(record)


def evolve_frame(durable: Durable, lsn: int, wall_ms: int, records: Iterable[AnyRecord]) -> Durable:
    """The durable state after the journal frame `lsn`: all its records, then its number and time."""
    check(lsn == durable.lsn + 1, "I-LSN", durable.lsn, lsn)
    for record in records:
        durable = evolve(durable, record)
    return replace(durable, lsn=lsn, wall_ms=clamp_wall(durable.wall_ms, wall_ms))


def _batch_appended(durable: Durable, record: BatchAppended) -> Durable:
    log = durable.logs[record.log]
    check(record.base == log.end and record.count > 0, "I-DENSE", log, record)
    grown = replace(log, end=log.end + record.count, appended_bytes=log.appended_bytes + record.size_bytes)
    return producers.remember(replace(durable, logs=durable.logs.set(record.log, grown)), record)


def _moved(durable: Durable, record: Moved) -> Durable:
    found = durable.moved[record.log]
    check(record.base not in found.bases, "I-DELAY", record)
    moved = MovedBatches(found.bases.set(record.base, None), found.messages + record.count)
    return replace(durable, moved=durable.moved.set(record.log, moved))


def _settled(durable: Durable, record: Settled) -> Durable:
    key = (record.group, record.log)
    before = durable.cursors[key]
    after = cursors.settle(before, record.first, record.last)
    check(after.floor >= before.floor, "I-FLOOR", before, after)
    count = after.settled_count + record.last - record.first + 1
    durable = _forget_stories(durable, key, record.first, record.last)
    return replace(durable, cursors=durable.cursors.set(key, replace(after, settled_count=count)))


def _forget_stories(durable: Durable, key: tuple[int, int], first: int, last: int) -> Durable:
    told = durable.stories.get(key)
    return durable if told is None else _with_stories(durable, key, stories.forget(told, first, last))


def _attempt_failed(durable: Durable, record: AttemptFailed) -> Durable:
    found = durable.cursors[record.group, record.log]
    failed = cursors.fail(found, record.first, record.last, record.attempt)
    told = Attempt(record.member, record.delivered_ms, record.ended_ms, record.reason, record.error)
    key = (record.group, record.log)
    after = durable.stories.get(key, ())
    for first, last in cursors.unsettled(found, record.first, record.last):
        after = stories.tell(after, first, last, told)
    durable = _with_stories(durable, key, after)
    return _with_cursor(durable, record.group, record.log, failed)


def _with_stories(durable: Durable, key: tuple[int, int], after: Stories) -> Durable:
    if after:
        return replace(durable, stories=durable.stories.set(key, after))
    return replace(durable, stories=durable.stories.delete(key)) if key in durable.stories else durable


def _replay(durable: Durable, record: ReplayStarted | Replayed | ReplayChanged) -> Durable:
    if isinstance(record, ReplayStarted):
        limits = (record.rate, record.pause_lag, record.pause_deaths, record.dead_end, record.at_ms)
        job = Replay(record.replay, record.log, record.items, *limits)
        kept = durable.replays.set(job.id, job)
        over = [number for number, each in ordered(kept) if each.state > ReplayState.PAUSED]
        for number in over[:-REPLAYS_KEPT]:
            kept = kept.delete(number)
        return replace(durable, replays=kept, next_replay=job.id + 1)
    job = durable.replays[record.replay]
    if isinstance(record, Replayed):
        check(job.items[job.done][0] == record.offset, "I-REPLAY", job, record)
        job = replace(job, done=job.done + 1)
        durable = _removed(durable, record.log, record.offset, record.offset)
    else:
        job = replace(job, state=record.state, reason=record.reason)
        if record.state == ReplayState.RUNNING:
            job = replace(job, dead_end=deaths(durable, job.items))
    return replace(durable, replays=durable.replays.set(job.id, job))


def deaths(durable: Durable, items: tuple[tuple[int, str, int], ...]) -> int:
    """How many messages of the topics that a replay goes to have died, ever."""
    targets = dict.fromkeys([target for _, target, _ in items])
    found = [durable.topics_by_name.get(names.dead_letters_of(names.topic_name(target)) or "") for target in targets]
    return sum(durable.logs[durable.topics[topic].first_log].end for topic in found if topic is not None)


def _removed(durable: Durable, log: int, first: int, last: int) -> Durable:
    gone = intervals.add(durable.removed.get(log, ()), first, last)
    return replace(durable, removed=durable.removed.set(log, gone))


def _expired(durable: Durable, record: Expired) -> Durable:
    settled = cursors.settle(durable.cursors[record.group, record.log], record.first, record.last)
    count = settled.expired_count + record.last - record.first + 1
    durable = _forget_stories(durable, (record.group, record.log), record.first, record.last)
    return _with_cursor(durable, record.group, record.log, replace(settled, expired_count=count))


def _dead_lettered(durable: Durable, record: DeadLettered) -> Durable:
    settled = cursors.settle(durable.cursors[record.group, record.log], record.offset, record.offset)
    durable = _forget_stories(durable, (record.group, record.log), record.offset, record.offset)
    return _with_cursor(durable, record.group, record.log, replace(settled, dead_count=settled.dead_count + 1))


def _with_cursor(durable: Durable, group: int, log: int, cursor: Cursor) -> Durable:
    return replace(durable, cursors=durable.cursors.set((group, log), cursor))


def _with_group(durable: Durable, group: Group) -> Durable:
    return replace(durable, groups=durable.groups.set(group.id, group))


def _generation(durable: Durable, record: MemberJoined | MemberLeft) -> Durable:
    group = durable.groups[record.group]
    check(record.generation == group.generation + 1, "I-GENERATION", group, record)
    count = group.member_count + (1 if isinstance(record, MemberJoined) else -1)
    return _with_group(
        durable, replace(group, generation=record.generation, changed_ms=record.at_ms, member_count=count)
    )


def _rebalanced(durable: Durable, record: Rebalanced) -> Durable:
    group = durable.groups[record.group]
    check(record.generation == group.generation + 1, "I-GENERATION", group, record)
    return _with_group(
        durable,
        replace(
            group,
            generation=record.generation,
            changed_ms=record.at_ms,
            member_count=len(record.shares),
            shares=record.shares,
        ),
    )


def _broker_started(durable: Durable, record: BrokerStarted) -> Durable:
    """Memberships end with the process that knew them; a group is without members from this moment."""
    check(record.incarnation == durable.incarnation + 1, "I-INCARNATION", record)
    groups = durable.groups.mutate()
    for number, group in ordered(durable.groups):
        if group.member_count:
            groups[number] = replace(group, member_count=0, changed_ms=record.at_ms)
    return replace(durable, incarnation=record.incarnation, groups=groups.finish())


def _group_created(durable: Durable, record: GroupCreated) -> Durable:
    check(record.name not in durable.groups_by_name, "I-NAMES", record)
    group = Group(record.group, record.name, record.mode, record.strategy, (), 0, record.at_ms)
    return replace(
        durable,
        next_group=max(durable.next_group, record.group + 1),
        groups=durable.groups.set(record.group, group),
        groups_by_name=durable.groups_by_name.set(record.name, record.group),
    )


def _group_deleted(durable: Durable, record: GroupDeleted) -> Durable:
    cursors_left = durable.cursors.mutate()
    for key, _ in ordered(durable.cursors):
        if key[0] == record.group:
            del cursors_left[key]
            durable = _with_stories(durable, key, ())
    return replace(
        durable,
        groups=durable.groups.delete(record.group),
        groups_by_name=durable.groups_by_name.delete(durable.groups[record.group].name),
        cursors=cursors_left.finish(),
    )


def _topic_created(durable: Durable, record: TopicCreated) -> Durable:
    check(record.name not in durable.topics_by_name, "I-NAMES", record)
    lanes = max(1, record.lanes)
    check(len(record.starts) == record.partitions * lanes, "I-NAMES", record)
    topic = Topic(
        record.topic,
        record.name,
        record.partitions,
        record.lanes,
        record.first_log,
        record.config,
        record.automatic,
        record.at_ms,
    )
    logs = durable.logs.mutate()
    for place, start in enumerate(record.starts):
        number = record.first_log + place
        logs[number] = Log(number, record.topic, place // lanes, place % lanes, start, start)
    if is_hidden(record.name):
        durable = replace(durable, moved=durable.moved.set(record.first_log, MovedBatches()))
    return replace(
        durable,
        next_topic=max(durable.next_topic, record.topic + 1),
        next_log=max(durable.next_log, record.first_log + len(record.starts)),
        topics=durable.topics.set(record.topic, topic),
        topics_by_name=durable.topics_by_name.set(record.name, record.topic),
        logs=logs.finish(),
    )


def _topic_deleted(durable: Durable, record: TopicDeleted) -> Durable:
    topic = durable.topics[record.topic]
    logs = durable.logs.mutate()
    numbers = range(topic.first_log, topic.first_log + topic.log_count)
    ends = tuple(durable.logs[number].end for number in numbers)
    for number in numbers:
        del logs[number]
        if number in durable.removed:
            durable = replace(durable, removed=durable.removed.delete(number))
    cursors_left = durable.cursors.mutate()
    for group, _ in ordered(durable.groups):
        for number in numbers:
            cursors_left.pop((group, number), None)
            durable = _with_stories(durable, (group, number), ())
    if is_hidden(topic.name):
        durable = replace(durable, moved=durable.moved.delete(topic.first_log))
    else:
        durable = replace(durable, retired_by_name=durable.retired_by_name.set(topic.name, ends))
    return replace(
        durable,
        topics=durable.topics.delete(record.topic),
        topics_by_name=durable.topics_by_name.delete(topic.name),
        logs=logs.finish(),
        cursors=cursors_left.finish(),
    )


def _log_trimmed(durable: Durable, record: LogTrimmed) -> Durable:
    log = durable.logs[record.log]
    check(log.start <= record.start <= log.end, "I-RETAIN", log, record)
    if record.log in durable.removed:
        rest = intervals.remove(durable.removed[record.log], 0, record.start - 1)
        durable = replace(durable, removed=durable.removed.set(record.log, rest))
    return replace(durable, logs=durable.logs.set(record.log, replace(log, start=record.start)))
