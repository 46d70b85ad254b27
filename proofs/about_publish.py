"""Proofs about publishing: places in logs, and nothing confirmed or shown before it is stored."""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from dovetail.core import append as appending
from dovetail.core import kernels, publish
from dovetail.core.committer import Committer
from dovetail.core.effects import Done, Reply
from dovetail.core.ids import Bug, Now, Refusal
from dovetail.core.inputs import Publish
from dovetail.core.records import BatchAppended, BrokerStarted, SyncPolicy, TopicConfig
from dovetail.core.state import BatchMeta, Durable, Line, Live, Log, State, Tail, Topic, Waiting
from dovetail.core.turn import Turn
from dovetail.proofs.engine import Given, every, implies, negated, some, unchanged
from dovetail.proofs.registry import Sabotage, proof
from dovetail.proofs.shapes import within

LSN, WALL_MS = 4, 500_000


def _turn(topic: Topic, logs: dict[int, Log], tails: dict[int, Tail], live: Live | None = None) -> Turn:
    durable = Durable(lsn=LSN, topics=Map({1: topic}), topics_by_name=Map({"a": 1}), logs=Map(logs))
    return Turn(State(durable, replace(live or Live(), tails=Map(tails))), Now(0, WALL_MS))


def _topic(partitions: int = 1, lanes: int = 0, sync: SyncPolicy = SyncPolicy.ALWAYS, ttl_ms: int = 0) -> Topic:
    return Topic(1, "a", partitions, lanes, 1, TopicConfig(sync=sync, ttl_ms=ttl_ms), False, 0)


@proof(
    "I-PARTITION",
    about=publish._choose_log,
    through=(publish._find_topic,),
    scope="bounded: 1 to 3 partitions, with or without lanes; any wish, after any number of publishes",
    sabotage=Sabotage(publish._find_topic, "partition >= count", "partition > count"),
)
def a_batch_goes_to_a_partition_that_exists(given: Given) -> bool:
    """A partition that was named is taken, or refused because there are not so many; without one it is any that there
    is. Where there are lanes the priority decides, and normal is the default."""
    partitions, lanes = given.choice("partitions", (1, 2, 3)), given.choice("lanes", (0, 5))
    wanted, priority = given.integer("wanted"), given.choice("priority", range(6))
    places = [(partition, lane) for partition in range(partitions) for lane in range(lanes or 1)]
    logs = {number: Log(number, 1, *place, 0, 0) for number, place in enumerate(places, start=1)}
    turn = _turn(_topic(partitions, lanes), logs, {}, Live(next_spread=given.integer("spread", 0)))
    batch = Publish("a", wanted, 1, 1, 100, (), priority=priority)
    try:
        topic = given.call(publish._find_topic, turn, batch)
    except Refusal:
        return wanted >= partitions
    log = given.call(publish._choose_log, turn, topic, batch)
    lane = ((priority or 3) - 1) if lanes else 0
    return every(wanted < partitions, log.lane == lane, implies(wanted >= 0, log.partition == wanted))


@proof("I-PARTITION", about=kernels.partition_of_hash, sabotage=(") % partitions", ") % (partitions + 1)"))
def a_key_goes_to_a_partition_that_exists(given: Given) -> bool:
    """A key's partition is one of those that there are, whatever its hash and however many they are."""
    hash, partitions = given.integer("hash"), given.integer("partitions", 1)
    return within(given.call(kernels.partition_of_hash, hash, partitions), 0, partitions - 1)


@proof(
    "I-PARTITION",
    about=kernels.partition_of_hash,
    scope="bounded: 1, 2, 3, 5, 12 or 100 partitions, any hash",
    sabotage=("0x7FFFFFFF", "0xFFFFFFFF"),
)
def a_key_goes_where_kafka_s_clients_put_it(given: Given) -> bool:
    """Of a hash only the lowest 31 bits count, as in Kafka's clients: signed or not, it means the same partition."""
    hash, partitions = given.integer("hash"), given.choice("partitions", (1, 2, 3, 5, 12, 100))
    return given.call(kernels.partition_of_hash, hash, partitions) == hash % (1 << 31) % partitions


@proof(
    "I-PARTITION",
    about=publish._choose_log,
    scope="bounded: 1 to 4 partitions, after any number of publishes",
    sabotage=("turn.next_spread += 1", "turn.next_spread += 2"),
)
def batches_without_a_partition_take_turns(given: Given) -> bool:
    """As many publishes in a row as there are partitions, none of them named, go to each partition once."""
    partitions = given.choice("partitions", (1, 2, 3, 4))
    logs = {number: Log(number, 1, number - 1, 0, 0, 0) for number in range(1, partitions + 1)}
    turn = _turn(_topic(partitions), logs, {}, Live(next_spread=given.integer("spread", 0)))
    topic, batch = turn.durable.topics[1], Publish("a", -1, 1, 1, 100, ())
    chosen = {given.call(publish._choose_log, turn, topic, batch).partition for _ in range(partitions)}
    return chosen == set(range(partitions))


@proof(
    "I-TTL",
    about=publish.record_of,
    scope="all integers",
    sabotage=("batch.ttl_ms or topic.config.ttl_ms", "batch.ttl_ms"),
)
def a_batch_is_stamped_when_it_arrives(given: Given) -> bool:
    """A batch goes to its log's end, is stamped with the broker's clock, and lives as long as it says itself, else as
    long as its topic says."""
    end, ttl, topic_ttl = given.integer("end", 0), given.integer("ttl", 0), given.integer("topic_ttl", 0)
    count, size = given.integer("count", 1), given.integer("size")
    log, topic = Log(1, 1, 0, 0, 0, end), _topic(ttl_ms=topic_ttl)
    turn = _turn(topic, {1: log}, {})
    record = given.call(publish.record_of, turn, topic, log, Publish("a", 0, 77, count, size, (), ttl_ms=ttl))
    return every(
        every(record.log == 1, record.base == end, record.count == count, record.size_bytes == size),
        every(record.arrival_ms == WALL_MS, record.deliver_at_ms == 0, record.handle == 77),
        implies(ttl > 0, record.expires_at_ms == kernels.expiry(WALL_MS, ttl)),
        implies(every(ttl == 0, topic_ttl > 0), record.expires_at_ms == kernels.expiry(WALL_MS, topic_ttl)),
        implies(every(ttl == 0, topic_ttl == 0), record.expires_at_ms == 0),
    )


@proof(
    "I-DENSE",
    about=appending.append,
    scope="bounded: an empty or a full tail, each sync policy; any integers in them",
    sabotage=("Tail(tail.stored,", "Tail(end,"),
)
def a_batch_gets_the_next_offsets_and_is_not_shown_yet(given: Given) -> bool:
    """The log ends behind its new batch, the tail knows it and stays bounded, and what readers may see is as before,
    until the frame is stored as the topic's sync policy asks."""
    end, stored = given.integer("end", 0), given.integer("stored")
    count, size, expires_at = given.integer("count", 1), given.integer("size"), given.integer("expires_at")
    given.assume(stored <= end)
    sync, known = given.choice("sync", tuple(SyncPolicy)), given.choice("known", (0, 1, 128))
    metas = tuple(BatchMeta(place, place, 1, 0, 0) for place in range(known))
    topic = _topic(sync=sync)
    turn = _turn(topic, {1: Log(1, 1, 0, 0, 0, end)}, {1: Tail(stored, metas)})
    record = BatchAppended(1, end, count, WALL_MS, 0, expires_at, 0, size, -1, -1, -1, 77)
    given.call(appending.append, turn, topic, record)
    tail = turn.tails[1]
    meta = tail.batches[-1]
    waits, other = (turn.ends, turn.ends_written) if sync == SyncPolicy.ALWAYS else (turn.ends_written, turn.ends)
    return every(
        turn.durable.logs[1].end == end + count,
        turn.records == [record],
        every(meta.base == end, meta.last == end + count - 1, meta.size_bytes == size),
        meta.expires_at_ms == expires_at,
        tail.batches[:-1] == metas[-127:],
        tail.stored == stored,
        list(waits) == [1] and not other,
        waits[1] == end + count,
    )


def _frames(given: Given) -> tuple[dict[int, Waiting], Tail]:
    """Frames 1 to 3 of which any may have something that waits: the end of a log, and an answer."""
    ends = [given.integer(f"end_{lsn}", 0) for lsn in (1, 2, 3)]
    given.assume(every(ends[0] <= ends[1], ends[1] <= ends[2]))
    frames = {lsn: Waiting(((1, ends[lsn - 1]),), (Reply(lsn, lsn, Done()),)) for lsn in (1, 2, 3)}
    return {lsn: frame for lsn, frame in frames.items() if given.choice(f"waits_{lsn}", (True, False))}, Tail(0)


def _is_released(turn: Turn, line: Line, waiting: dict[int, Waiting], lsn: int) -> bool:
    told = [effect.request for effect in turn.effects if isinstance(effect, Reply)]
    shown = [waiting[number].ends[0][1] for number in sorted(waiting) if number <= lsn]
    return every(
        told == [number for number in sorted(waiting) if number <= lsn],
        sorted(line.waiting) == [number for number in sorted(waiting) if number > lsn],
        line.first == max(1, lsn + 1),
        turn.tails[1].stored == (shown[-1] if shown else 0),
    )


RELEASES = "bounded: up to 3 frames that wait, lsns 0 to 6; ends any integers"


@proof(
    "I-CONFIRM",
    about=appending.stored,
    through=(appending._release, appending._show),
    scope=RELEASES,
    sabotage=(
        "turn.unsynced = _release(turn, turn.unsynced, lsn)",
        "turn.unsynced = _release(turn, turn.unsynced, lsn + 1)",
    ),
)
def nothing_is_confirmed_before_it_is_stored(given: Given) -> bool:
    """Exactly the answers of frames up to the synced lsn go out, in order; readers see the logs as those frames left
    them and no further; an lsn that was never written, or one below the last, is a bug."""
    waiting, tail = _frames(given)
    before, lsn = given.choice("before", (0, 1)), given.choice("lsn", range(-1, 7))
    live = Live(unsynced=Line(Map(waiting)), stored_lsn=before)
    turn = _turn(_topic(), {1: Log(1, 1, 0, 0, 0, 0)}, {1: tail}, live)
    try:
        given.call(appending.stored, turn, lsn)
    except Bug:
        return not before <= lsn <= LSN
    return every(before <= lsn <= LSN, turn.stored_lsn == lsn, _is_released(turn, turn.unsynced, waiting, lsn))


@proof(
    "I-CONFIRM",
    about=appending.written,
    through=(appending._release, appending._show),
    scope=RELEASES,
    sabotage=("check(lsn < turn.lsn", "check(lsn <= turn.lsn"),
)
def what_asks_for_no_sync_waits_for_its_write(given: Given) -> bool:
    """Topics that ask for no sync are confirmed up to the written lsn and no further; what waits for a sync goes on
    waiting."""
    waiting, tail = _frames(given)
    lsn = given.choice("lsn", range(-1, 7))
    live = Live(unwritten=Line(Map(waiting)), unsynced=Line(Map({1: Waiting((), (Reply(9, 9, Done()),))})))
    turn = _turn(_topic(), {1: Log(1, 1, 0, 0, 0, 0)}, {1: tail}, live)
    try:
        given.call(appending.written, turn, lsn)
    except Bug:
        return lsn > LSN
    return every(lsn <= LSN, _is_released(turn, turn.unwritten, waiting, lsn), unchanged(turn.unsynced, live.unsynced))


@proof(
    "I-CONFIRM",
    about=Committer.next_commit,
    through=(Committer.add,),
    scope="bounded: 2 frames; clocks and linger any integers",
    sabotage=("mono_ms < self._urgent_ms", "mono_ms <= self._urgent_ms"),
)
def what_lingers_goes_out_in_time(given: Given) -> bool:
    """A frame somebody waits for goes out at once, any other after its linger at the latest, and all that wait go
    together, in order."""
    linger, now = given.integer("linger", 0), given.integer("now")
    first_ms, second_ms = given.integer("first"), given.integer("second")
    given.assume(every(first_ms <= second_ms, second_ms <= now))
    urgent = given.either("urgent")
    committer = Committer(lsn=0, crc=0, salt=1, linger_ms=linger)
    given.call(committer.add, first_ms, 1, 0, [BrokerStarted(1, 0)], urgent=False, sync=True)
    given.call(committer.add, second_ms, 2, 0, [BrokerStarted(2, 0)], urgent=urgent, sync=False)
    commit = given.call(committer.next_commit, now)
    due = some(urgent, first_ms + linger <= now)
    if commit is None:
        return every(negated(due), committer.wake_ms == first_ms + linger)
    whole = [frame.lsn for frame in commit.frames] == [1, 2] and commit.last_lsn == 2
    return every(due, commit.sync, whole, committer.bytes_waiting == commit.size_bytes, committer.wake_ms is None)


@proof(
    "I-CONFIRM",
    about=Committer.done,
    through=(Committer.next_commit, Committer.add),
    scope="bounded: 3 commits of 1 frame; clocks any integers",
    sabotage=("if commit.sync", "if commit"),
)
def only_a_sync_moves_the_synced_lsn(given: Given) -> bool:
    """The synced lsn moves when a commit that asked for a sync is done, to its last frame and no further; one commit
    is under way at a time; what was only written, and is to be synced in time, is synced by the first commit after
    the interval."""
    interval = given.integer("interval", 1)
    committer = Committer(lsn=0, crc=0, salt=1, linger_ms=0, sync_interval_ms=interval)
    since: int | None = None
    before, synced = given.integer("start"), 0
    kept = []
    for lsn in (1, 2, 3):
        now, sync, timed = given.integer(f"now_{lsn}"), given.either(f"sync_{lsn}"), given.either(f"timed_{lsn}")
        given.assume(before <= now)
        committer.add(now, lsn, 0, [BrokerStarted(lsn, 0)], urgent=True, sync=sync, timed=timed)
        commit = given.call(committer.next_commit, now)
        meanwhile = committer.next_commit(now), committer.synced_lsn
        given.call(committer.done)
        must = sync if since is None else some(sync, now - since >= interval)
        kept += [commit is not None, meanwhile == (None, synced)]
        if must:
            since, synced = None, lsn
        elif since is None and timed:
            since = now
        kept.append(committer.synced_lsn == synced)
        before = now
    return every(*kept)
