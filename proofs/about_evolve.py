"""Inductive invariants on the core's own `evolve`: if they hold before a record, they hold after it.

The durable state has two logs, two groups and a cursor of each group in the first log; ids are fixed, everything else
in it is any integer its invariant allows.
"""

from __future__ import annotations

from typing import get_args

from immutables import Map
from msgspec.structs import replace

from dovetail.core import cursor as cursors
from dovetail.core import evolve as evolving
from dovetail.core.cursor import Cursor
from dovetail.core.evolve import evolve, evolve_frame
from dovetail.core.ids import Bug
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
    Settled,
    TopicConfig,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from dovetail.core.state import Durable, Group, Log, MovedBatches, Replay, Topic
from dovetail.proofs.engine import Given, every, negated, some, unchanged
from dovetail.proofs.registry import Sabotage, proof
from dovetail.proofs.shapes import is_in, is_settled, is_well_formed, ranges, runs, same, settled_total, within

SHAPE = "bounded: 2 logs, 2 groups, 2 cursors, up to 2 islands and 1 run of attempts, any integers in them"

OURS, THEIRS = (1, 1), (2, 1)
"""The keys of the cursor that records are about, and of another group's in the same log."""


def _durable(given: Given) -> Durable:
    start, end, other_end = given.integer("start", 0), given.integer("end"), given.integer("other_end", 0)
    floor, theirs = given.integer("floor", 0), given.integer("their_floor", 0)
    given.assume(every(start <= end, floor <= end, theirs <= end))
    islands = ranges(given, "island", 2, above=floor)
    attempts = runs(given, "attempt", 1)
    counts = [given.integer(name, 0) for name in ("settled", "expired", "dead")]
    generation = given.integer("generation", 0)
    durable = Durable(
        lsn=given.integer("lsn", 0),
        incarnation=given.integer("incarnation", 0),
        wall_ms=given.integer("wall", 0),
        next_topic=2,
        next_log=3,
        next_group=3,
        topics=Map({1: Topic(1, "a", 2, 0, 1, TopicConfig(), False, 0)}),
        topics_by_name=Map({"a": 1}),
        logs=Map({1: Log(1, 1, 0, 0, start, end), 2: Log(2, 1, 1, 0, 0, other_end)}),
        groups=Map({1: Group(1, "g", "shared", "", (), generation, 0), 2: Group(2, "h", "shared", "", (), 7, 0)}),
        groups_by_name=Map({"g": 1, "h": 2}),
        cursors=Map({OURS: Cursor(floor, islands, attempts, *counts), THEIRS: Cursor(theirs)}),
    )
    given.assume(_is_sound(durable))
    return durable


def _is_sound(durable: Durable) -> bool:
    """Logs have a start before their end; cursors are well-formed and speak only of offsets that exist."""
    logs = [every(log.start >= 0, log.start <= log.end) for log in durable.logs.values()]
    found = []
    for (_, log), cursor in durable.cursors.items():
        end = durable.logs[log].end
        lasts = [last for _, last in cursor.islands] + [last for _, last, _ in cursor.attempts]
        found += [is_well_formed(cursor), cursor.floor >= 0, cursor.floor <= end, *(last < end for last in lasts)]
        found += [cursor.settled_count >= 0, cursor.expired_count >= 0, cursor.dead_count >= 0]
    return every(*logs, *found)


def _range(given: Given, durable: Durable) -> tuple[int, int]:
    """Any range of offsets that were published."""
    first, last = given.integer("first", 0), given.integer("last")
    given.assume(every(first <= last, last < durable.logs[1].end))
    return first, last


def _settling(given: Given, durable: Durable) -> tuple[AnyRecord, int, int]:
    """Any record that settles offsets, and which."""
    first, last = _range(given, durable)
    kind = given.choice("kind", ("settled", "expired", "dead"))
    if kind == "dead":
        given.assume(first == last)
        return DeadLettered(1, 1, first, 9, 0, 1), first, last
    return (Settled(1, 1, first, last) if kind == "settled" else Expired(1, 1, first, last)), first, last


def _is_bug(given: Given, durable: Durable, record: AnyRecord) -> tuple[bool, Durable]:
    """Whether `record` is taken for a bug of ours, and the state after it."""
    try:
        return False, given.call(evolve, durable, record)
    except Bug:
        return True, durable


@proof(
    "I-DENSE",
    about=evolve,
    through=(evolving._batch_appended,),
    scope=SHAPE,
    sabotage=Sabotage(evolving._batch_appended, "record.base == log.end", "record.base >= log.end"),
)
def offsets_are_dense(given: Given) -> bool:
    """A batch is appended exactly at its log's end and moves it by its count; anything else is a bug, and
    starts, other logs and cursors stay as they are."""
    before = _durable(given)
    base, count = given.integer("base"), given.integer("count")
    is_bug, after = _is_bug(given, before, BatchAppended(1, base, count, 0, 0, 0, 0, 100, -1, -1, -1, 0))
    log = after.logs[1]
    if is_bug:
        return some(base != before.logs[1].end, count <= 0)
    return every(
        _is_sound(after),
        base == before.logs[1].end,
        log.end == base + count,
        log.end > before.logs[1].end,
        log.start == before.logs[1].start,
        log.appended_bytes == 100,
        unchanged(after.logs[2], before.logs[2]),
        unchanged(after.cursors, before.cursors),
    )


@proof(
    "I-FLOOR",
    about=evolve,
    scope=SHAPE,
    through=(evolving._settled, evolving._expired, evolving._dead_lettered),
    sabotage=Sabotage(cursors.settle, "max(first, cursor.floor)", "first"),
)
def settling_records_keep_the_state_sound(given: Given) -> bool:
    """After an acknowledgment, an expiry or a dead letter of any published range the state is sound, the floor
    has not gone back, and exactly the range is settled on top of what was."""
    before = _durable(given)
    record, first, last = _settling(given, before)
    offset = given.integer("offset", 0)
    after = given.call(evolve, before, record)
    was, now = before.cursors[OURS], after.cursors[OURS]
    settled = some(is_settled(was, offset), within(offset, first, last))
    return every(_is_sound(after), now.floor >= was.floor, same(is_settled(now, offset), settled))


@proof(
    "I-BOOKS",
    about=evolve,
    scope=SHAPE,
    through=(evolving._settled, evolving._expired, evolving._dead_lettered),
    sabotage=Sabotage(evolving._expired, "record.last - record.first + 1", "1"),
)
def the_books_balance(given: Given) -> bool:
    """When a range that waited is settled, the books grow by its length: acknowledged, expired and dead together
    count as many offsets as moved below the floor or onto islands, each under its own name."""
    before = _durable(given)
    record, first, last = _settling(given, before)
    was = before.cursors[OURS]
    apart = [some(last < left, right < first) for left, right in was.islands]
    given.assume(every(was.floor <= first, *apart))
    now = given.call(evolve, before, record).cursors[OURS]
    length = last - first + 1
    grown = {
        "Settled": now.settled_count - was.settled_count,
        "Expired": now.expired_count - was.expired_count,
        "DeadLettered": now.dead_count - was.dead_count,
    }
    named = grown.pop(record.__class__.__name__)
    return every(settled_total(now) - settled_total(was) == length, named == length, *(n == 0 for n in grown.values()))


@proof(
    "I-ATTEMPTS",
    about=evolve,
    through=(evolving._attempt_failed,),
    scope=SHAPE,
    sabotage=Sabotage(cursors.fail, "unsettled(cursor, first, last)", "((first, last),)"),
)
def a_failed_attempt_keeps_the_state_sound(given: Given) -> bool:
    """After a failed attempt of any published range the state is sound, and nothing is settled by it."""
    before = _durable(given)
    first, last = _range(given, before)
    after = given.call(evolve, before, AttemptFailed(1, 1, first, last, given.integer("attempt_number", 1), 1))
    was, now = before.cursors[OURS], after.cursors[OURS]
    counts = now.settled_count - was.settled_count, now.expired_count - was.expired_count
    return every(
        _is_sound(after), now.floor == was.floor, unchanged(now.islands, was.islands), *(n == 0 for n in counts)
    )


@proof(
    "I-FLOOR",
    about=evolve,
    scope=SHAPE,
    sabotage=(" cursors.reset(found, record.floor)", " cursors.settle(found, 0, record.floor - 1)"),
)
def a_reset_moves_the_floor_where_it_was_told(given: Given) -> bool:
    """A reset is the one record that may move a floor back: exactly what lies below its floor is settled then."""
    before = _durable(given)
    floor, offset = given.integer("to", 0), given.integer("offset", 0)
    given.assume(floor <= before.logs[1].end)
    after = given.call(evolve, before, FloorReset(1, 1, floor))
    now = after.cursors[OURS]
    return every(_is_sound(after), now.floor == floor, same(is_settled(now, offset), offset < floor))


@proof("I-CURSOR", about=evolve, scope=SHAPE, sabotage=("not in durable.cursors", "in durable.cursors"))
def a_cursor_is_opened_once(given: Given) -> bool:
    """A cursor opens at the floor it was told, with nothing settled above; opening one again is a bug."""
    before = _durable(given)
    floor, offset = given.integer("to", 0), given.integer("offset", 0)
    given.assume(floor <= before.logs[2].end)
    again, _ = _is_bug(given, before, CursorOpened(1, 1, floor))
    is_bug, after = _is_bug(given, before, CursorOpened(1, 2, floor))
    if is_bug or not again:
        return False
    return every(_is_sound(after), same(is_settled(after.cursors[1, 2], offset), offset < floor))


@proof(
    "I-ISOLATION",
    about=evolve,
    scope=SHAPE,
    through=(
        evolving._settled,
        evolving._expired,
        evolving._dead_lettered,
        evolving._attempt_failed,
        evolving._with_cursor,
    ),
    sabotage=Sabotage(evolving._settled, "durable.cursors.set(key,", "durable.cursors.set((2, record.log),"),
)
def a_record_of_one_group_leaves_the_others_alone(given: Given) -> bool:
    """A settle, an expiry, a dead letter, a failure or a reset touches its own group's cursor and nothing else."""
    before = _durable(given)
    first, last = _range(given, before)
    records = (
        Settled(1, 1, first, last),
        Expired(1, 1, first, last),
        DeadLettered(1, 1, first, 9, 0, 1),
        AttemptFailed(1, 1, first, last, 1, 1),
        FloorReset(1, 1, first),
    )
    after = given.call(evolve, before, given.choice("record", records))
    kept = ("logs", "groups", "topics", "retired_by_name")
    counted = after.lsn == before.lsn, after.incarnation == before.incarnation
    untouched = [unchanged(getattr(after, name), getattr(before, name)) for name in kept]
    return every(
        unchanged(after.cursors[THEIRS], before.cursors[THEIRS]), len(after.cursors) == 2, *untouched, *counted
    )


@proof(
    "I-GENERATION",
    about=evolve,
    through=(evolving._generation, evolving._rebalanced),
    scope=SHAPE,
    sabotage=Sabotage(evolving._generation, "== group.generation + 1", ">= group.generation"),
)
def every_change_of_membership_raises_the_generation(given: Given) -> bool:
    """A join, a leave or a new plan raises its group's generation by exactly one, counts the members, and touches no
    other group; else it is a bug."""
    before = _durable(given)
    generation, how = given.integer("to"), given.choice("how", ("joins", "leaves", "is planned"))
    record: AnyRecord = Rebalanced(1, generation, (("m", (1,)), ("n", ())), 5)
    if how != "is planned":
        record = MemberJoined(1, "m", generation, 5) if how == "joins" else MemberLeft(1, "m", generation, 5)
    is_bug, after = _is_bug(given, before, record)
    next_one = before.groups[1].generation + 1
    if is_bug:
        return generation != next_one
    members = after.groups[1].member_count
    wanted = {"joins": before.groups[1].member_count + 1, "leaves": before.groups[1].member_count - 1, "is planned": 2}
    raised = every(generation == next_one, after.groups[1].generation == next_one, after.groups[1].changed_ms == 5)
    return every(raised, members == wanted[how], unchanged(after.groups[2], before.groups[2]))


@proof(
    "I-RETAIN",
    about=evolve,
    through=(evolving._log_trimmed,),
    scope=SHAPE,
    sabotage=Sabotage(evolving._log_trimmed, "<= record.start <= log.end", "<= record.start"),
)
def a_trim_stays_within_the_log(given: Given) -> bool:
    """Retention moves a log's start forward, never back and never past its end; the end and all cursors stay."""
    before = _durable(given)
    start = given.integer("to")
    is_bug, after = _is_bug(given, before, LogTrimmed(1, start))
    log, was = after.logs[1], before.logs[1]
    if is_bug:
        return some(start < was.start, start > was.end)
    return every(
        _is_sound(after),
        was.start <= log.start,
        log.start == start,
        log.end == was.end,
        unchanged(after.cursors, before.cursors),
    )


def _others(given: Given) -> tuple[AnyRecord, ...]:
    """One record of each type that settles nothing, fails nothing, moves no floor and deletes nothing."""
    first, last = given.integer("first"), given.integer("last")
    there = given.choice("there", (5, 6))
    record: dict[type, AnyRecord] = {
        each.__class__: each
        for each in (
            BrokerStarted(first, 0),
            TopicCreated(2, "b", 1, 0, 3, (first,), TopicConfig(), False, 0),
            TopicConfigured(1, TopicConfig()),
            BatchAppended(1, first, last, 0, 0, 0, 0, 100, -1, -1, -1, 0),
            LogTrimmed(1, first),
            GroupCreated(3, "i", "shared", "", 0),
            PatternAdded(1, "a"),
            PatternRemoved(1, "a"),
            MemberJoined(1, "m", first, 5),
            MemberLeft(1, "m", first, 5),
            CursorOpened(1, 2, first),
            Rebalanced(1, first, (("m", (1,)),), 5),
            GroupConfigured(1, "partitioned", "range"),
            Moved(2, there, last),
            ReplayStarted(2, 1, ((first, "a", 0),), 1, 0, 0, last, 0),
            Replayed(1, 1, first),
            ReplayChanged(1, 1, ""),
            DeadRemoved(1, first, last),
        )
    }
    given.assume(first <= last)
    proved_elsewhere = {Settled, AttemptFailed, DeadLettered, Expired, FloorReset, TopicDeleted, GroupDeleted}
    return tuple(record[each] for each in get_args(AnyRecord) if each not in proved_elsewhere)


@proof(
    "I-FLOOR",
    about=evolve,
    scope=SHAPE,
    sabotage=("topics=durable.topics.set(record.topic, topic)", "cursors=durable.stories"),
)
def no_other_record_moves_a_floor(given: Given) -> bool:
    """What is settled, and how often what is not has failed, changes by a settle, an expiry, a death, a failure, a
    reset, and the end of its topic or group: a record of any other type leaves every cursor as it was, or is a bug."""
    before = _durable(given)
    job = Replay(1, 1, ((given.integer("letter"), "a", 0),), 1, 0, 0, 0, 0)
    moved = MovedBatches(Map({5: None}), 1)
    before = replace(before, moved=Map({2: moved}), replays=Map({1: job}), next_replay=2)
    is_bug, after = _is_bug(given, before, given.choice("record", _others(given)))
    if is_bug:
        return unchanged(after, before)
    opened = [key for key in sorted(after.cursors) if key not in before.cursors]
    kept = [unchanged(after.cursors[key], cursor) for key, cursor in sorted(before.cursors.items())]
    return every(*kept, opened in ([], [(1, 2)]))


@proof("I-PATTERNS", about=evolve, scope="bounded: up to 3 patterns", sabotage=("pattern != record.pattern", "True"))
def a_group_s_patterns_are_those_added_and_not_removed(given: Given) -> bool:
    """A pattern that is added comes last, one that is removed is gone, and the others stay in their order."""
    had = given.choice("had", ((), ("a",), ("a", "b.*"), ("b.*", "a", "#")))
    pattern = given.choice("pattern", ("a", "b.*", "c"))
    before = Durable(groups=Map({1: Group(1, "g", "shared", "", had, 0, 0)}))
    added = given.call(evolve, before, PatternAdded(1, pattern)).groups[1].patterns
    removed = given.call(evolve, before, PatternRemoved(1, pattern)).groups[1].patterns
    return every(added == (*had, pattern), removed == tuple(each for each in had if each != pattern))


@proof(
    "I-INCARNATION",
    about=evolve,
    through=(evolving._broker_started,),
    scope=SHAPE,
    sabotage=Sabotage(evolving._broker_started, "durable.incarnation + 1", "durable.incarnation + 2"),
)
def every_start_is_a_new_incarnation(given: Given) -> bool:
    """A start raises the incarnation by exactly one, so that no lease id is ever given twice, and nobody is a member
    of a group any more; else it is a bug."""
    before = _durable(given)
    incarnation, members = given.integer("to"), given.integer("members", 0)
    before = replace(before, groups=before.groups.set(1, replace(before.groups[1], member_count=members)))
    is_bug, after = _is_bug(given, before, BrokerStarted(incarnation, 0))
    if is_bug:
        return incarnation != before.incarnation + 1
    raised = every(after.incarnation == before.incarnation + 1, after.incarnation == incarnation)
    return every(raised, *(group.member_count == 0 for group in after.groups.values()))


@proof(
    "I-LSN",
    about=evolve_frame,
    scope="bounded: a frame of up to 2 records; lsn and clock any integers",
    sabotage=("lsn == durable.lsn + 1", "lsn >= durable.lsn + 1"),
)
def frames_follow_each_other_without_a_gap(given: Given) -> bool:
    """A frame is applied only right after the one before it; then all of it is, and the clock has not gone back."""
    before = Durable(
        lsn=given.integer("before", 0), wall_ms=given.integer("wall"), logs=Map({1: Log(1, 1, 0, 0, 0, 0)})
    )
    lsn, wall = given.integer("lsn"), given.integer("frame_wall")
    count = given.choice("records", range(3))
    records = [BatchAppended(1, at, 1, 0, 0, 0, 0, 100, -1, -1, -1, 0) for at in range(count)]
    try:
        after = given.call(evolve_frame, before, lsn, wall, records)
    except Bug:
        return lsn != before.lsn + 1
    return every(
        lsn == before.lsn + 1,
        after.lsn == lsn,
        after.logs[1].end == count,
        after.wall_ms >= before.wall_ms,
        after.wall_ms >= wall,
    )


@proof(
    "I-IDS",
    about=evolve,
    through=(evolving._topic_deleted, evolving._topic_created),
    scope=SHAPE,
    sabotage=Sabotage(evolving._topic_deleted, "durable.logs[number].end for", "durable.logs[number].start for"),
)
def a_topic_made_again_goes_on_from_its_old_end(given: Given) -> bool:
    """What a deleted topic leaves behind is its logs' ends; made again from them, under new numbers, it gives no
    offset twice, and no cursor of the old one is left."""
    before = _durable(given)
    offset = given.integer("offset", 0)
    deleted = given.call(evolve, before, TopicDeleted(1))
    ends = deleted.retired_by_name["a"]
    again = TopicCreated(deleted.next_topic, "a", 2, 0, deleted.next_log, ends, TopicConfig(), False, 0)
    after = given.call(evolve, deleted, again)
    old = [within(offset, log.start, log.end - 1) for _, log in sorted(before.logs.items())]
    new = [log.start <= offset for _, log in sorted(after.logs.items())]
    reused = [every(is_old, is_new) for is_old, is_new in zip(old, new, strict=True)]
    numbers = sorted(after.logs), sorted(after.topics), after.next_topic, after.next_log
    logs = [(log.id, log.topic, log.partition, log.lane) for _, log in sorted(after.logs.items())]
    return every(
        negated(some(*reused)),
        *(log.start == log.end for log in after.logs.values()),
        numbers == ([3, 4], [2], 3, 5),
        logs == [(3, 2, 0, 0), (4, 2, 1, 0)],
        not deleted.cursors and not deleted.logs and "a" not in deleted.topics_by_name,
    )


@proof(
    "I-ISOLATION",
    about=evolve,
    through=(evolving._group_deleted,),
    scope=SHAPE,
    sabotage=Sabotage(evolving._group_deleted, "key[0] == record.group", "key[1] == record.group"),
)
def a_deleted_group_takes_only_its_own_cursors(given: Given) -> bool:
    """With a group go its cursors and its name; other groups, their cursors and all logs stay."""
    before = _durable(given)
    after = given.call(evolve, before, GroupDeleted(given.choice("group", (1, 2))))
    left = next(iter(after.groups))
    return every(
        len(after.groups) == 1,
        sorted(after.cursors) == [(left, 1)],
        unchanged(after.cursors[left, 1], before.cursors[left, 1]),
        unchanged(after.groups[left], before.groups[left]),
        dict(after.groups_by_name) == {before.groups[left].name: left},
        unchanged(after.logs, before.logs),
    )


@proof(
    "I-MODE",
    about=evolve,
    scope="bounded: 1 group of any number of members",
    sabotage=("group.member_count == 0", "True"),
)
def a_mode_changes_only_without_members(given: Given) -> bool:
    """A group's mode and strategy change while it has no members; with any it is a bug."""
    members = given.integer("members", 0)
    before = Durable(groups=Map({1: Group(1, "g", "shared", "", (), 0, 0, member_count=members)}))
    is_bug, after = _is_bug(given, before, GroupConfigured(1, "partitioned", "range"))
    group = after.groups[1]
    return members > 0 if is_bug else every(members == 0, (group.mode, group.strategy) == ("partitioned", "range"))


@proof(
    "I-RETAIN",
    about=evolve,
    through=(evolving._log_trimmed,),
    scope="bounded: 1 log with up to 2 ranges removed from it, any integers in them",
    sabotage=Sabotage(evolving._log_trimmed, "record.start - 1", "record.start"),
)
def a_trim_forgets_what_was_removed_below_it(given: Given) -> bool:
    """Of what was removed from the middle of a log, what lies below its new start is forgotten, the rest is not."""
    start, end, to = given.integer("start", 0), given.integer("end"), given.integer("to")
    given.assume(every(start <= to, to <= end))
    removed, offset = ranges(given, "removed", 2, above=-1), given.integer("offset", 0)
    before = Durable(logs=Map({1: Log(1, 1, 0, 0, start, end)}), removed=Map({1: removed}))
    after = given.call(evolve, before, LogTrimmed(1, to)).removed[1]
    return same(is_in(after, offset), every(is_in(removed, offset), offset >= to))
