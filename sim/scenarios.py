"""Named scenarios: faults that strike at the worst moment, faults that come together, and those that users write.

Promises  a scenario and a seed give a plan; a user's file (YAML, JSON or Python) is checked when it is read, and
          what is wrong in it is said with its place.
Never     runs anything.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from random import Random
from typing import Literal, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from dovetail.sim import dice, plan
from dovetail.sim.checkers.levels import WORDS
from dovetail.sim.choices import is_swarm, read_choice
from dovetail.sim.plan import (
    AnyEvent,
    Crash,
    CrashClient,
    Damage,
    FailDisk,
    FillDisk,
    JumpClock,
    Leave,
    Partition,
    PauseBroker,
    PauseClient,
    Plan,
    Publish,
    Reset,
    Slow,
    SlowDisk,
)

CHAOS_MS = 6_000
WORKERS = ("w0", "w1", "w2", "w3")
MOMENTS_OF_MEMBERS: tuple[plan.Turn, ...] = ("assign", "assign", "deliver")
_WAYS: tuple[plan.Way, ...] = ("both", "to", "from")


class Scenario(Struct, frozen=True):
    """What a scenario is about, and what it adds to the usual crowd."""

    story: str
    make: Callable[[Random], list[AnyEvent]]
    broker: plan.Broker = plan.Broker()
    habits: dict[str, int | str] = {}
    expect: plan.Outcome = "ok"
    topic: plan.Topic = plan.Topic("orders", 2)
    repair: bool = False
    toxic: int = 0
    odd: dict[str, int] = {}
    """What the last of the workers does otherwise than the others."""
    reaches: tuple[str, ...] = ()
    """The marks by which is seen that what it is about did happen: some seed or other takes each (a test tries)."""


def plan_of(name: str, seed: int) -> Plan:
    """The plan of a scenario by name; `swarm` is the default one, `swarm:…` what was chosen of it."""
    if is_swarm(name):
        return read_choice(name).plan(seed)
    scenario = SCENARIOS[name]
    random = dice.stream(seed, f"scenario {name}")
    events = [*_traffic(random, lanes=scenario.topic.lanes), *scenario.make(random)]
    may_forget = scenario.repair or scenario.topic.sync != "always"
    consumers = tuple(
        plan.Consumer(
            name=each,
            pattern="orders",
            group="workers",
            credit=random.choice((5, 20, 100)),
            process_ms=random.choice((1, 10, 50)),
            member=place % 2 == 0,
            stale=1000,
            **{**scenario.habits, **(scenario.odd if each == WORKERS[-1] else {})},  # type: ignore[arg-type]  # by name
        )
        for place, each in enumerate(WORKERS)
    )
    return Plan(
        name=name,
        seed=seed,
        chaos_ms=CHAOS_MS,
        broker=scenario.broker,
        topics=(scenario.topic,),
        producers=(plan.Producer(name="p0", idempotent=int(not may_forget)), plan.Producer(name="p1")),
        consumers=(*consumers, plan.Consumer(name="audit", pattern="orders", group="audit", durable=500)),
        poison=random.choice((0, 5)),
        toxic=scenario.toxic,
        events=tuple(sorted(events, key=_at)),
        expect=scenario.expect,
        repair=scenario.repair,
        reads_along=True,
    )


def _at(event: AnyEvent) -> int:
    return event.at_ms


def _traffic(random: Random, *, lanes: bool) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for who in ("p0", "p1"):
        at_ms = random.randint(0, 50)
        while at_ms < CHAOS_MS - 500:
            size = random.choice((40, 40, 700))
            ttl_ms = 700 if random.random() < 0.1 else 0
            count = random.randint(1, 8)
            priority = random.randrange(6) if lanes else 0
            event = Publish(at_ms=at_ms, who=who, topic="orders", count=count, size=size, ttl_ms=ttl_ms)
            events.append(replace(event, priority=priority))
            at_ms += random.randint(5, 60)
    return events


def _moments(random: Random, count: int) -> list[int]:
    return sorted(random.randrange(500, CHAOS_MS - 1_000) for _ in range(count))


def _crash_after_delivery(random: Random) -> list[AnyEvent]:
    return [Crash(at_ms=at, on="deliver", power=random.random() < 0.5) for at in _moments(random, 5)]


def _crash_after_confirm(random: Random) -> list[AnyEvent]:
    return [Crash(at_ms=at, on="confirm") for at in _moments(random, 5)]


def _crash_after_settle(random: Random) -> list[AnyEvent]:
    return [Crash(at_ms=at, on=random.choice(("settle", "settled"))) for at in _moments(random, 5)]


def _member_crash_after_assignment(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 4):
        who = random.choice(WORKERS)
        moment = random.choice(MOMENTS_OF_MEMBERS)
        events.append(CrashClient(at_ms=at, who=who, for_ms=50))
        events.append(CrashClient(at_ms=at + 10, who=who, for_ms=200, on=moment, silent=random.random() < 0.7))
    return events


def _partition_during_rebalance(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 4):
        leaver, *others = random.sample(WORKERS, 4)
        moment: plan.Turn = random.choice(("revoke", "revoke", "assign"))
        for who in others[:2]:
            way, for_ms = random.choice(_WAYS), random.choice((900, 2_500, 4_000))
            events.append(Partition(at_ms=at, who=who, for_ms=for_ms, way=way, on=moment))
        events.append(Leave(at_ms=at + 1, who=leaver, for_ms=random.choice((200, 400))))
    return events


def _revoke_unanswered(random: Random) -> list[AnyEvent]:
    """Members come and go, and some do not let go of what they had; the clock jumps while they are waited for."""
    events: list[AnyEvent] = []
    for at in _moments(random, 6):
        events.append(Leave(at_ms=at, who=random.choice(WORKERS), for_ms=random.choice((200, 400))))
        if random.random() < 0.5:
            events.append(JumpClock(at_ms=at + 700, by_ms=random.choice((-60_000, 60_000))))
    return events


def _drop_during_ack(random: Random) -> list[AnyEvent]:
    return [Reset(at_ms=at, who=random.choice(WORKERS), on="settle") for at in _moments(random, 10)]


def _disk_error_during_settle(random: Random) -> list[AnyEvent]:
    return [
        FailDisk(at_ms=at, op=random.choice(("write", "sync")), on=random.choice(("settle", "settled")), path="journal")
        for at in _moments(random, 4)
    ]


def _skew_during_session_timeout(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 3):
        events.append(PauseClient(at_ms=at, who=random.choice(WORKERS), for_ms=4_500))
        jump_ms = random.choice((1_000, 2_900))
        events.append(JumpClock(at_ms=at + jump_ms, by_ms=random.choice((-30_000, 30_000, 3_600_000))))
    return events


def _zombie_member(random: Random) -> list[AnyEvent]:
    return [
        PauseClient(at_ms=at, who=random.choice(WORKERS), for_ms=for_ms)
        for at, for_ms in zip(_moments(random, 4), (4_500, 2_600, 4_500, 2_600), strict=True)
    ]


def _ghost_member(random: Random) -> list[AnyEvent]:
    return [
        CrashClient(at_ms=at, who=random.choice(WORKERS), for_ms=30, on="deliver", silent=True)
        for at in _moments(random, 8)
    ]


def _disk_full_during_recovery(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 3):
        events.append(Crash(at_ms=at, down_ms=20))
        events.append(FillDisk(at_ms=at + 10, for_ms=600, free_bytes=random.choice((0, 600, 9_000))))
    return events


def _broker_and_half_the_consumers(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 2):
        events.append(Crash(at_ms=at, down_ms=300))
        events += [
            CrashClient(at_ms=at, who=who, for_ms=500, silent=random.random() < 0.5)
            for who in random.sample(WORKERS, 2)
        ]
    return events


def _disk_and_partition(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 3):
        events.append(FailDisk(at_ms=at, op=random.choice(("write", "sync", "create")), times=2))
        who = random.choice((*WORKERS, "p0"))
        events.append(
            Partition(at_ms=at, who=who, for_ms=random.choice((300, 3_000)), way=random.choice(("both", "to", "from")))
        )
    return events


def _memory_and_consumer_crashes(random: Random) -> list[AnyEvent]:
    return [CrashClient(at_ms=at, who=random.choice(WORKERS), for_ms=300, on="deliver") for at in _moments(random, 8)]


def _skew_and_consumer_failures(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 4):
        events.append(JumpClock(at_ms=at, by_ms=random.choice((-5_000, 5_000, 86_400_000))))
        events.append(CrashClient(at_ms=at + 5, who=random.choice(WORKERS), for_ms=400, silent=True))
    return events


def _slow_consumer_spiral(random: Random) -> list[AnyEvent]:
    return [
        Slow(at_ms=at, who=who, for_ms=1_500, delay_ms=100, bytes_per_s=3_000)
        for at, who in zip(_moments(random, 4), WORKERS, strict=True)
    ]


def _rebalance_storm(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in range(500, CHAOS_MS - 1_000, 150):
        who = random.choice(WORKERS)
        away_ms = random.choice((20, 80, 400))
        storm = (
            Leave(at_ms=at, who=who, for_ms=away_ms),
            Reset(at_ms=at, who=who),
            CrashClient(at_ms=at, who=who, for_ms=away_ms),
        )
        events.append(random.choice(storm))
    return events


def _crash_during_rebalance(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 4):
        moment: plan.Moment = random.choice(("join", "revoke", "revoke", "assign"))
        events.append(Leave(at_ms=at, who=random.choice(WORKERS), for_ms=random.choice((200, 400))))
        events.append(Crash(at_ms=at + 1, on=moment, power=random.random() < 0.5))
    return events


def _producer_partition(random: Random) -> list[AnyEvent]:
    return [
        Partition(at_ms=at, who="p0", for_ms=3_000, way=random.choice(("to", "from"))) for at in _moments(random, 2)
    ]


def _consumer_partition(random: Random) -> list[AnyEvent]:
    return [
        Partition(at_ms=at, who=random.choice(WORKERS), for_ms=random.choice((900, 4_000)))
        for at in _moments(random, 4)
    ]


def _flapping(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in range(500, CHAOS_MS - 1_000, 120):
        events.append(Partition(at_ms=at, who="w0", for_ms=60))
        events.append(Partition(at_ms=at + 30, who="p0", for_ms=60))
    return events


def _crash_during_recovery(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 4):
        events.append(Crash(at_ms=at, down_ms=1))
        events.append(Crash(at_ms=at + 1, down_ms=1, after_ops=random.randint(1, 40)))
    return events


def _torn_writes(random: Random) -> list[AnyEvent]:
    return [Crash(at_ms=at, down_ms=1, on="sync") for at in _moments(random, 30)]


def _slow_disk(random: Random) -> list[AnyEvent]:
    return [SlowDisk(at_ms=at, for_ms=800, factor=300) for at in _moments(random, 3)]


def _repeated_before_sync(random: Random) -> list[AnyEvent]:
    """What is repeated on a new connection comes while the first is not on the disk yet, and then the power fails."""
    events: list[AnyEvent] = []
    for at in _moments(random, 8):
        events.append(SlowDisk(at_ms=at, for_ms=400, factor=400))
        events.append(Reset(at_ms=at + random.randrange(40, 120), who="p0"))
        events.append(Crash(at_ms=at + 121, down_ms=1, on="confirm"))
    return events


def _failed_sync_and_power_loss(random: Random) -> list[AnyEvent]:
    """A sync fails, and what it was to save is saved by no later one: the next power loss tells."""
    events: list[AnyEvent] = []
    for at in _moments(random, 6):
        events.append(FailDisk(at_ms=at, op="sync", on="sync", path="journal"))
        events.append(Crash(at_ms=at + random.choice((20, 400)), down_ms=1, on="confirm"))
    return events


def _slow_reads(random: Random) -> list[AnyEvent]:
    """Nobody is there for a while, and what has come meanwhile has to be read when they are back."""
    events: list[AnyEvent] = []
    for at in (1_500, 3_500):
        events += [CrashClient(at_ms=at, who=each, for_ms=random.randrange(500, 900)) for each in WORKERS]
        events.append(SlowDisk(at_ms=at + 450, for_ms=1_200, factor=random.choice((8_000, 12_000))))
    return events


def _long_pause(random: Random) -> list[AnyEvent]:
    return [PauseBroker(at_ms=at, for_ms=2_500) for at in _moments(random, 2)]


def _damaged(path: str) -> Callable[[Random], list[AnyEvent]]:
    def make(random: Random) -> list[AnyEvent]:
        at = random.randrange(3_000, 4_000)
        hit = Damage(at_ms=at, path=path, place=random.randrange(1000), lost_sector=random.random() < 0.5)
        return [hit, Crash(at_ms=at + 500, power=False)]

    return make


def _topic_deleted(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 4):
        events.append(plan.DeleteTopic(at_ms=at, topic="orders"))
        events.append(plan.CreateTopic(at_ms=at + random.choice((0, 1, 200)), topic="orders"))
    return [*events, *(Crash(at_ms=at) for at in _moments(random, 2))]


def _dead_letters_replayed(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = [Crash(at_ms=at) for at in _moments(random, 3)]
    for at in range(1_500, CHAOS_MS, 600):
        if random.random() < 0.7:
            events.append(
                plan.ReplayDead(at_ms=at, topic="orders", every=random.choice((1, 2)), rate=random.choice((0, 20)))
            )
        else:
            events.append(plan.PurgeDead(at_ms=at, topic="orders", count=2))
    return events


def _crashes(random: Random) -> list[AnyEvent]:
    return [
        Crash(at_ms=at, power=random.random() < 0.7, on=random.choice(("", "confirm"))) for at in _moments(random, 5)
    ]


def _lanes(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = [*_crashes(random), *_zombie_member(random)]
    for at in _moments(random, 12):
        count, delay_ms, priority = random.randint(1, 4), random.choice((200, 1_500)), random.randrange(6)
        event = Publish(at_ms=at, who="p1", topic="orders", count=count, delay_ms=delay_ms)
        events.append(replace(event, priority=priority))
    for at in _moments(random, 3):
        group, partition, lane = random.choice(("workers", "audit")), random.randrange(2), random.randrange(6)
        if lane == 5:
            lane = 0
        place: plan.Place = random.choice(("earliest", "time", "time"))
        value = random.randrange(at)
        seek = plan.Seek(at_ms=at, group=group, topic="orders", partition=partition, lane=lane, to=place, value=value)
        events.append(seek)
    return events


def _lag(random: Random) -> list[AnyEvent]:
    # Important and unimportant messages that come together: of another size, and so other messages than the rest.
    together = [
        Publish(at_ms=at, who="p1", topic="orders", size=60 + priority, priority=priority)
        for at in range(1_000, CHAOS_MS - 500, 250)
        for priority in random.sample((1, 2, 3, 4, 5), 3)
    ]
    return [*_slow_consumer_spiral(random), *together, Crash(at_ms=_moments(random, 1)[0])]


def _ways(random: Random) -> list[AnyEvent]:
    """Keys, clinging members, poison and quotas, while members come and go and the broker dies."""
    bursts = [Publish(at_ms=at, who="p1", topic="orders", size=90, count=120) for at in _moments(random, 6)]
    return [*_crashes(random)[:2], *_zombie_member(random)[:2], *_drop_during_ack(random)[:3], *bursts]


def _looked_at(random: Random) -> list[AnyEvent]:
    """An operator looks again and again at members, lags and lives, while the broker and a member come and go."""
    looks = [plan.Look(at_ms=at, topic="orders") for at in range(300, CHAOS_MS, 150)]
    return [*_crashes(random)[:2], *_zombie_member(random)[:1], *_slow_consumer_spiral(random)[:2], *looks]


def _levels(random: Random) -> list[AnyEvent]:
    """Operators, memory and lateness ask for levels, over each other; the last one stays while the world drains."""
    asked = [
        plan.SetLevel(at_ms=at, level=random.choice(WORDS[1:]), for_ms=random.choice((200, 600)))
        for at in _moments(random, 3)
    ]
    # Memory goes over a limit, and then so little below it that nothing may change.
    high, less = random.choice(((86, 81), (97, 92)))
    short = [
        plan.Pressure(at_ms=600, for_ms=1_100, memory_percent=high),
        plan.Pressure(at_ms=1_750, for_ms=1_400, memory_percent=less),
    ]
    # Of another size, and so other messages than what is published at the same time.
    special = [
        Publish(at_ms=at, who="p1", topic="orders", size=50, delay_ms=random.choice((0, 300)), priority=priority)
        for at, priority in zip(range(400, CHAOS_MS, 150), random.choices((0, 4, 5), k=CHAOS_MS), strict=False)
    ]
    lasting = plan.SetLevel(at_ms=CHAOS_MS - 700, level=random.choice(WORDS[1:4]))
    return [*asked, *short, *special, lasting, *_rebalance_storm(random)]


def _overloaded(random: Random) -> list[AnyEvent]:
    """The loop is late for seconds on end, and nothing may come of a few late looks."""
    short = [plan.Pressure(at_ms=100, for_ms=4_500, late_ms=1_200, memory_percent=random.choice((0, 84, 90)))]
    late = [plan.Pressure(at_ms=300, for_ms=5_500, late_ms=1_200, memory_percent=random.choice((0, 84, 90)))]
    return [*(late if random.random() < 0.7 else short), *_zombie_member(random)]


def _repaired(random: Random) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for at in _moments(random, 2):
        path = random.choice(("journal", "topics", "topics", "checkpoints"))
        events += [
            Damage(at_ms=at, path=path, place=random.randrange(1000), lost_sector=random.random() < 0.5),
            Crash(at_ms=at + 200, power=random.random() < 0.5),
        ]
    return events


_PARTITIONED: dict[str, int | str] = {"strategy": "cooperative-sticky"}
_MANY = plan.Topic("orders", 6)
_QUICK_ANSWERS = plan.Broker(rebalance_answer_ms=800)
_TIGHT = plan.Broker(tail_bytes_max=2 << 10, send_window_bytes=4 << 10, journal_segment_bytes=8 << 10)

SCENARIOS: dict[str, Scenario] = {
    "crash-after-delivery": Scenario(
        "the broker dies after a delivery, before its ack", _crash_after_delivery, reaches=("Crash at deliver",)
    ),
    "crash-after-confirm": Scenario(
        "power fails just after a publish was confirmed", _crash_after_confirm, reaches=("Crash at confirm",)
    ),
    "crash-after-settle": Scenario(
        "the broker dies with a settle under way or just answered",
        _crash_after_settle,
        habits={"durable": 500},
        reaches=("Crash at settle", "Crash at settled"),
    ),
    "crash-during-recovery": Scenario(
        "the broker dies again while it recovers", _crash_during_recovery, reaches=("crash during recovery",)
    ),
    "crash-during-rebalance": Scenario(
        "the broker dies while partitions move from member to member",
        _crash_during_rebalance,
        habits=_PARTITIONED,
        topic=_MANY,
        reaches=("Crash at revoke", "Crash at assign"),
    ),
    "partition-during-rebalance": Scenario(
        "the network is cut while a member is told to give partitions up, or gets some",
        _partition_during_rebalance,
        habits=_PARTITIONED,
        topic=_MANY,
        reaches=("Partition at revoke", "Partition at assign"),
    ),
    "revoke-unanswered": Scenario(
        "members do not give up what is asked back, while the clock jumps",
        _revoke_unanswered,
        replace(_QUICK_ANSWERS, max_retries=5),
        {**_PARTITIONED, "deaf": 700},
        topic=_MANY,
        reaches=("member removed for not answering",),
    ),
    "member-crash-after-assignment": Scenario(
        "a member vanishes between its assignment and its first ack",
        _member_crash_after_assignment,
        habits=_PARTITIONED,
        topic=_MANY,
        reaches=("CrashClient at assign", "CrashClient at deliver"),
    ),
    "drop-during-ack": Scenario(
        "the connection breaks exactly while an ack is sent", _drop_during_ack, reaches=("Reset at settle",)
    ),
    "disk-error-during-settle": Scenario(
        "the disk fails while a settle is written",
        _disk_error_during_settle,
        reaches=("FailDisk at settle", "disk failure ended the broker"),
    ),
    "skew-during-session-timeout": Scenario(
        "the clock jumps while a session times out",
        _skew_during_session_timeout,
        reaches=("member removed for its silence",),
    ),
    "zombie-member": Scenario(
        "a member stands still past its session, and comes back with old acks",
        _zombie_member,
        reaches=("member removed for its silence", "lease timed out"),
    ),
    "ghost-member": Scenario(
        "a member's machine vanishes; it is back at once and settles what its ghost still holds",
        _ghost_member,
        reaches=("CrashClient at deliver", "member removed for its silence"),
    ),
    "disk-full-during-recovery": Scenario(
        "no space is left while the broker recovers",
        _disk_full_during_recovery,
        reaches=("disk refused: full", "failed during recovery"),
    ),
    "broker-and-half-the-consumers": Scenario(
        "the broker and half of a group die together", _broker_and_half_the_consumers
    ),
    "disk-and-partition": Scenario("the disk fails while the network is cut", _disk_and_partition),
    "memory-and-consumer-crashes": Scenario(
        "hardly any memory for tails and windows, and consumers crash", _memory_and_consumer_crashes, _TIGHT
    ),
    "skew-and-consumer-failures": Scenario("the clock jumps while consumers vanish", _skew_and_consumer_failures),
    "slow-consumer-spiral": Scenario(
        "one member after the other becomes slow",
        _slow_consumer_spiral,
        plan.Broker(lease_ms=900),
        {"ignore": 50, "extend": 100},
    ),
    "rebalance-storm": Scenario(
        "members come and go all the time, and partitions with them",
        _rebalance_storm,
        habits={"strategy": "range"},
        topic=_MANY,
        reaches=("partition asked back",),
    ),
    "producer-partition": Scenario("a producer is cut off, in one direction", _producer_partition),
    "consumer-partition": Scenario("consumers are cut off while producers go on", _consumer_partition),
    "flapping": Scenario("the network comes and goes many times a second", _flapping),
    "torn-writes": Scenario("power fails while commits are written, again and again", _torn_writes),
    "repeated-before-sync": Scenario(
        "a producer repeats on a new connection what is still on its way to a slow disk",
        _repeated_before_sync,
        reaches=("Crash at confirm",),
    ),
    "failed-sync-and-power-loss": Scenario(
        "a sync fails, and the power soon after",
        _failed_sync_and_power_loss,
        reaches=("disk failure ended the broker", "Crash at confirm"),
    ),
    "slow-disk": Scenario("syncs take a tenth of a second", _slow_disk),
    "reads-slower-than-leases": Scenario(
        "leases run out while what they hold is read from a slow disk",
        _slow_reads,
        replace(_TIGHT, lease_ms=400, max_retries=1),
    ),
    "long-pause": Scenario("the broker stands still past all deadlines", _long_pause),
    "topic-deleted": Scenario("an operator deletes a topic under its readers, and makes it anew", _topic_deleted),
    "dead-letters-replayed": Scenario(
        "an operator replays and purges dead letters while the broker dies",
        _dead_letters_replayed,
        habits={"reject": 30},
    ),
    "relaxed-sync": Scenario(
        "power fails where confirms do not wait for a sync", _crashes, topic=plan.Topic("orders", 2, sync="interval")
    ),
    "lanes": Scenario(
        "five priorities, delays and seeks in them, while the broker and its members fail",
        _lanes,
        topic=plan.Topic("orders", 2, lanes=True),
    ),
    "ways-to-fail": Scenario(
        "members cling to leases, ask for later tries and call messages poison; keys and publishers have their limits",
        _ways,
        broker=plan.Broker(lease_ms=400, lease_max_ms=700, quota_messages=100),
        habits={"cling": 60, "nack": 60, "later": 500, "strategy": "key-ordered"},
        topic=plan.Topic("orders", 2, keys=5, bury=True),
        toxic=20,
    ),
    "lag": Scenario(
        "consumers fall behind: publishers are slowed, then refused",
        _lag,
        topic=plan.Topic("orders", 2, lag_critical=40),
        habits={"ignore": 100},
    ),
    "looked-at": Scenario(
        "an operator is shown members, lags and the lives of messages; one member fails every time",
        _looked_at,
        habits={"ignore": 30},
        topic=plan.Topic("orders", 2, lag_critical=60),
        odd={"nack": 1_000, "ignore": 0},
    ),
    "levels": Scenario("operators and a lack of memory have the broker do less, over each other", _levels),
    "overloaded": Scenario("the broker's loop is late for seconds on end", _overloaded),
    "damage-repaired": Scenario("synced bytes change, and an operator goes on without them", _repaired, repair=True),
    "damaged-journal": Scenario("synced bytes of the journal change", _damaged("journal"), expect="any"),
    "damaged-log": Scenario("synced bytes of the logs change", _damaged("topics"), expect="any"),
    "damaged-checkpoint": Scenario("synced bytes of the checkpoints change", _damaged("checkpoints")),
}


class _Yaml(yaml.SafeLoader):
    """YAML in which `on` is a word, as in YAML 1.2, and not a way to say true."""


_Yaml.yaml_implicit_resolvers = {
    first: [(tag, words) for tag, words in resolvers if first in "tTfF" or not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Stream(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """In a user's file: a producer that publishes again and again."""

    who: str
    topic: str
    every_ms: plan.Count = 50
    count: plan.Count = 5
    from_ms: plan.Ms = 0
    until_ms: plan.Ms = 0


class _File(Plan, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user's file holds."""

    streams: tuple[Stream, ...] = ()


_FIELDS = _File.__struct_fields__
_PARTS: dict[str, type[Struct]] = {
    ".topics": plan.Topic,
    ".producers": plan.Producer,
    ".consumers": plan.Consumer,
    ".broker": plan.Broker,
    ".streams": Stream,
    "": _File,
}


def _words() -> dict[str, set[str]]:
    """For each field that takes a few words, which they are."""
    found: dict[str, set[str]] = {}
    for kind in (*get_args(AnyEvent), *_PARTS.values()):
        for field in msgspec.structs.fields(kind):
            if get_origin(field.type) is Literal:
                found.setdefault(field.name, set()).update(filter(None, get_args(field.type)))
    return found


_WORDS = _words()


class BadScenario(ValueError):
    """A user's file that is no plan; the text says why."""


def load(path: str, seed: int) -> Plan:
    """A user's scenario: YAML or JSON with a plan's fields and `streams`, or Python with `plan(seed)` or `PLAN`."""
    try:
        if path.endswith(".py"):
            found = runpy.run_path(path)
            made = found["plan"](seed) if callable(found.get("plan")) else found.get("PLAN")
            if not isinstance(made, Plan):
                raise BadScenario(f"{path}: define plan(seed) or PLAN, a dovetail.sim.plan.Plan")
            return made
        with open(path, "rb") as file:
            data = yaml.load(file, _Yaml)
        if not isinstance(data, dict):
            raise BadScenario(f"{path}: a scenario is a mapping with the fields of a plan: {', '.join(_FIELDS)}")
        name = os.path.splitext(os.path.basename(path))[0]
        setup = msgspec.convert({"seed": seed, "name": name, **data}, _File)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise BadScenario(f"{path}: {error}{_hint(str(error))}") from error
    except BadScenario:
        raise
    except Exception as error:
        raise BadScenario(f"{path}: {type(error).__name__}: {error}") from error
    events = [*setup.events, *(event for each in setup.streams for event in _expand(each, setup.chaos_ms))]
    fields = {name: getattr(setup, name) for name in _FIELDS if name != "streams"}
    made = Plan(**{**fields, "events": tuple(sorted(events, key=_at))})
    _check_names(path, made)
    return made


def _hint(error: str) -> str:
    """What may stand where something else stood."""
    if error.endswith(".do`"):
        return f"; what happens is one of {', '.join(sorted(kind.__name__ for kind in get_args(AnyEvent)))}"
    place = error.rpartition(" - at `$")[2].rstrip("`")
    if "enum value" in error:
        return f"; it may be {' '.join(sorted(_WORDS[place.rpartition('.')[2]]))}"
    for begin, kind in _PARTS.items():
        if "unknown field" in error and place.startswith(begin):
            return f"; its fields are {', '.join(kind.__struct_fields__)}"
    return ""


def _expand(stream: Stream, chaos_ms: int) -> list[AnyEvent]:
    until_ms = stream.until_ms or chaos_ms
    return [
        Publish(at_ms=at, who=stream.who, topic=stream.topic, count=stream.count)
        for at in range(stream.from_ms, until_ms, stream.every_ms)
    ]


def _check_names(path: str, setup: Plan) -> None:
    producers, consumers = ([each.name for each in crowd] for crowd in (setup.producers, setup.consumers))
    topics, groups = [each.name for each in setup.topics], {each.group for each in setup.consumers}
    for name in {each for each in (*producers, *consumers) if [*producers, *consumers].count(each) > 1}:
        raise BadScenario(f"{path}: two of the producers and consumers are called {name!r}")
    for event in setup.events:
        for field, known, what in (
            ("who", producers if isinstance(event, Publish) else [*producers, *consumers], "who can do this"),
            ("topic", topics, "the plan's topics"),
            ("group", sorted(groups), "the consumers' groups"),
        ):
            said = getattr(event, field, None)
            if said is not None and said not in known:
                there = ", ".join(filter(None, known)) or "none"
                raise BadScenario(f"{path}: {type(event).__name__} names {said!r} as its {field}; {what}: {there}")
