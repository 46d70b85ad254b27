"""Proofs about publishing: places in logs, and nothing confirmed or shown before it is stored."""

from __future__ import annotations

from immutables import Map

from dovetail.core import publish
from dovetail.core.codes import Acks
from dovetail.core.committer import Committer
from dovetail.core.effects import Done, Reply
from dovetail.core.ids import Bug, Now, Refusal
from dovetail.core.inputs import Publish
from dovetail.core.records import BrokerStarted, TopicConfig
from dovetail.core.state import Durable, Line, Live, Log, State, Tail, Topic, Waiting
from dovetail.core.turn import Turn
from dovetail.proofs.engine import Given, every, implies, some
from dovetail.proofs.registry import ALL, proof
from dovetail.proofs.shapes import within


def _turn(log: Log, tail: Tail, *, partitions: int = 1, spread: int = 0, **live: object) -> Turn:
    durable = Durable(
        lsn=4,
        topics=Map({1: Topic(1, "a", partitions, 0, 1, TopicConfig(), False, 0)}),
        topics_by_name=Map({"a": 1}),
        logs=Map({1: log}),
    )
    return Turn(State(durable, Live(tails=Map({1: tail}), next_spread=spread, **live)), Now(0, 0))  # type: ignore[arg-type]  # fields of Live


@proof("I-PARTITION", about=publish._choose_partition, scope=ALL, sabotage=("wanted >= topic", "wanted > topic"))
def a_batch_goes_to_a_partition_that_exists(given: Given) -> bool:
    """A partition that was named is taken or refused as there are so many; one that was not is in range."""
    partitions, wanted = given.integer("partitions", 1), given.integer("wanted")
    turn = _turn(Log(1, 1, 0, 0, 0, 0), Tail(0), partitions=partitions, spread=given.integer("spread", 0))
    try:
        chosen = given.call(publish._choose_partition, turn, turn.durable.topics[1], wanted)
    except Refusal:
        return wanted >= partitions
    return every(within(chosen, 0, partitions - 1), implies(wanted >= 0, chosen == wanted))


@proof(
    "I-PARTITION",
    about=publish._choose_partition,
    scope="bounded: 1 to 4 partitions, any count of publishes",
    sabotage=("turn.next_spread += 1", "turn.next_spread += 2"),
)
def batches_without_a_partition_take_turns(given: Given) -> bool:
    """As many publishes in a row as there are partitions, none of them named, go to each partition once."""
    partitions = given.choice("partitions", (1, 2, 3, 4))
    turn = _turn(Log(1, 1, 0, 0, 0, 0), Tail(0), partitions=partitions, spread=given.integer("spread", 0))
    topic = turn.durable.topics[1]
    chosen = [given.call(publish._choose_partition, turn, topic, -1) for _ in range(partitions)]
    pairs = [one != other for place, one in enumerate(chosen) for other in chosen[:place]]
    return every(True, *pairs)


@proof("I-DENSE", about=publish.append, scope=ALL, sabotage=("base = log.end", "base = log.start"))
def a_batch_gets_the_next_offsets_and_is_not_shown_yet(given: Given) -> bool:
    """A batch begins where its log ended, the log ends behind it, and what readers may see is as before."""
    end, stored, count, size = (
        given.integer("end", 0),
        given.integer("stored"),
        given.integer("count", 1),
        given.integer("size"),
    )
    ttl = given.integer("ttl", 0)
    given.assume(stored <= end)
    turn = _turn(Log(1, 1, 0, 0, 0, end), Tail(stored))
    batch = Publish("a", 0, 1, count, size, (), Acks.STORED, ttl_ms=ttl)
    base = given.call(publish.append, turn, turn.durable.topics[1], 0, batch)
    tail = turn.tails[1]
    meta = tail.batches[-1]
    return every(
        base == end,
        turn.durable.logs[1].end == end + count,
        meta.base == base,
        meta.last == base + count - 1,
        meta.size_bytes == size,
        tail.stored == stored,
        turn.ends[1] == end + count,
        implies(ttl == 0, meta.expires_at_ms == 0),
        implies(ttl > 0, meta.expires_at_ms == ttl),
    )


@proof(
    "I-CONFIRM",
    about=publish.stored,
    through=(publish._release, publish._show, publish.written),
    scope="bounded: up to 3 frames that wait, lsns 0 to 6; ends any integers",
    sabotage=(
        "turn.unsynced = _release(turn, turn.unsynced, lsn)",
        "turn.unsynced = _release(turn, turn.unsynced, lsn + 1)",
    ),
)
def nothing_is_confirmed_before_it_is_stored(given: Given) -> bool:
    """Exactly the answers of frames up to the synced lsn go out, in order; readers see the logs as those frames left
    them and no further; an lsn that was never written, or one below the last, is a bug."""
    ends = [given.integer(f"end_{lsn}", 0) for lsn in (1, 2, 3)]
    given.assume(every(ends[0] <= ends[1], ends[1] <= ends[2]))
    frames = {lsn: Waiting(((1, ends[lsn - 1]),), (Reply(lsn, lsn, Done()),)) for lsn in (1, 2, 3)}
    waiting = {lsn: frame for lsn, frame in frames.items() if given.choice(f"waits_{lsn}", (True, False))}
    before, lsn = given.choice("before", (0, 1)), given.choice("lsn", range(-1, 7))
    turn = _turn(Log(1, 1, 0, 0, 0, ends[2]), Tail(0), unsynced=Line(Map(waiting)), stored_lsn=before)
    try:
        given.call(publish.stored, turn, lsn)
    except Bug:
        return not before <= lsn < 5
    told = [effect.request for effect in turn.effects if isinstance(effect, Reply)]
    shown = [waiting[number].ends[0][1] for number in sorted(waiting) if number <= lsn]
    return every(
        before <= lsn < 5,
        told == [number for number in sorted(waiting) if number <= lsn],
        sorted(turn.unsynced.waiting) == [number for number in sorted(waiting) if number > lsn],
        turn.stored_lsn == lsn,
        turn.tails[1].stored == (shown[-1] if shown else 0),
    )


@proof(
    "I-CONFIRM",
    about=Committer.next_commit,
    through=(Committer.add, Committer.done),
    scope="bounded: 2 frames, one commit after the other; clocks and linger any integers",
    sabotage=("mono_ms < self._urgent_ms", "mono_ms <= self._urgent_ms"),
)
def what_lingers_goes_out_in_time(given: Given) -> bool:
    """A frame somebody waits for goes out at once, any other after its linger at the latest, and all that wait go
    together, in order."""
    linger, first_ms, second_ms, now = (
        given.integer("linger", 0),
        given.integer("first"),
        given.integer("second"),
        given.integer("now"),
    )
    given.assume(every(first_ms <= second_ms, second_ms <= now))
    urgent = given.either("urgent")
    committer = Committer(lsn=0, crc=0, salt=1, linger_ms=linger)
    committer.add(first_ms, 1, 0, [BrokerStarted(1, 0)], urgent=False, sync=True)
    given.call(committer.add, second_ms, 2, 0, [BrokerStarted(2, 0)], urgent=urgent, sync=False)
    commit = given.call(committer.next_commit, now)
    due = some(urgent, first_ms + linger <= now)
    if commit is None:
        return every(due == False)  # noqa: E712  # `not` would fork
    return every(due, commit.sync, [frame.lsn for frame in commit.frames] == [1, 2])


@proof(
    "I-CONFIRM",
    about=Committer.done,
    through=(Committer.next_commit, Committer.add),
    scope="bounded: 3 frames in 2 commits; clocks any integers above 0",
    sabotage=("if commit.sync", "if commit"),
)
def only_a_sync_moves_the_synced_lsn(given: Given) -> bool:
    """The synced lsn moves when a commit that asked for a sync is done, to its last frame and no further; one commit
    is under way at a time, and what was only written is synced with the first commit after the interval."""
    first_ms, second_ms, interval = given.integer("first", 1), given.integer("second"), given.integer("interval", 1)
    given.assume(first_ms <= second_ms)
    syncs = given.either("first_syncs"), given.either("second_syncs")
    committer = Committer(lsn=0, crc=0, salt=1, linger_ms=0, sync_interval_ms=interval)
    committer.add(first_ms, 1, 0, [BrokerStarted(1, 0)], urgent=True, sync=syncs[0])
    first = given.call(committer.next_commit, first_ms)
    committer.add(first_ms, 2, 0, [BrokerStarted(2, 0)], urgent=True, sync=syncs[1])
    meanwhile = committer.next_commit(second_ms), committer.synced_lsn
    given.call(committer.done)
    after_first = committer.synced_lsn
    second = given.call(committer.next_commit, second_ms)
    before_second = committer.synced_lsn
    given.call(committer.done)
    overdue = every(syncs[0] == False, second_ms - first_ms >= interval)  # noqa: E712  # `not` would fork
    second_synced = some(syncs[1], overdue)
    one = 1 if syncs[0] else 0
    return every(
        first is not None and second is not None,
        meanwhile == (None, 0),
        after_first == one,
        before_second == one,
        committer.synced_lsn == (2 if second_synced else one),
    )
