"""The default plan of a seed: a random crowd of clients, and a random subset of the faults at random rates.

Promises  a seed gives the same plan for ever; each kind of fault is left out of some plans and frequent in others,
          because faults that are always all there hide each other's bugs.
Never     asks for what the broker is not meant to survive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from msgspec.structs import replace

from dovetail.sim import dice, plan
from dovetail.sim.checkers.levels import WORDS

CHAOS_MS = 8_000
TOPICS = ("orders", "users.created", "metrics")
_PLACES: tuple[plan.Place, ...] = ("earliest", "time", "offset")
_WAYS: tuple[plan.Way, ...] = ("both", "to", "from")
Maker = Callable[[Random, int, plan.Plan], plan.AnyEvent]


def swarm(
    seed: int,
    *,
    chaos_ms: int = CHAOS_MS,
    scale: int = 1,
    faults: Sequence[str] | None = None,
    name: str = "swarm",
) -> plan.Plan:
    """The plan of a seed; `scale` multiplies the number of messages, `faults` names the only kinds that strike."""
    random = dice.stream(seed, "swarm")
    topics = tuple(plan.Topic(name, random.choice((1, 1, 2, 3))) for name in TOPICS[: random.randint(1, 3)])
    forgiving = dice.stream(seed, "forgiving")
    repair = forgiving.random() < 0.1
    if faults is not None:
        repair = plan.Damage.__name__ in faults
    topics = tuple(_special(forgiving, topic) for topic in topics)
    producers = tuple(
        plan.Producer(
            name=f"p{n}",
            window=random.choice((1, 4, 16)),
            idempotent=random.choice((0, 0, 7 + n)),
            legacy=dice.draw(seed, "legacy", n) < 250,
        )
        for n in range(random.randint(1, 3))
    )
    crowd = plan.Plan(
        name=name,
        seed=seed,
        chaos_ms=chaos_ms,
        broker=_broker(random),
        topics=topics,
        producers=producers,
        consumers=_consumers(random, topics),
        poison=random.choice((0, 0, 2, 10)),
        repair=repair,
    )
    if repair or any(topic.sync != "always" for topic in topics):
        # A broker that rightly forgot what such a producer sent last refuses what it sends next.
        crowd = replace(crowd, producers=tuple(replace(each, idempotent=0) for each in producers))
    crowd = _ways(dice.stream(seed, "ways"), crowd, scale)
    events = [*_work(random, crowd, scale), *_faults(random, crowd, faults), *_operations(forgiving, crowd)]
    if repair:
        events += [
            _damage(forgiving, forgiving.randrange(1_000, chaos_ms), crowd) for _ in range(forgiving.choice((1, 3)))
        ]
    events += _levels(dice.stream(seed, "levels"), chaos_ms, faults)
    if not repair and not any(isinstance(event, plan.Damage) for event in events):
        events += _looks(dice.stream(seed, "looks"), crowd)
    if dice.draw(seed, "lag") < 250:
        crowd = replace(crowd, broker=replace(crowd.broker, ephemeral_lag_max=20 + dice.draw(seed, "lag") % 80))
    crowd = replace(crowd, reads_along=dice.draw(seed, "reads") < 300)
    crowd, moves = _moving(dice.stream(seed, "moves"), crowd, faults)
    events += moves
    events.sort(key=lambda event: event.at_ms)
    return replace(crowd, events=tuple(events))


def _special(random: Random, topic: plan.Topic) -> plan.Topic:
    """Some topics have lanes, some a limit on lag, some confirm before they sync."""
    kind = random.choice(("", "", "", "lanes", "limit", "relaxed"))
    if kind == "lanes":
        return replace(topic, lanes=True)
    if kind == "limit":
        return replace(topic, lag_critical=random.choice((20, 100, 500)))
    if kind == "relaxed":
        return replace(topic, sync=random.choice(("interval", "os")))
    return topic


def _ways(random: Random, crowd: plan.Plan, scale: int) -> plan.Plan:
    """Now and then a way to read, to fail or to be limited that is not everybody's."""
    way = random.choice((*[""] * 8, "keys", "group", "cling", "later", "toxic", "quota"))
    broker, consumers = crowd.broker, crowd.consumers
    group = random.choice([each.group for each in consumers if each.group])
    strategy = random.choice(("round-robin", "least-loaded", "key-ordered", "partitioned-round-robin"))
    match way:
        case "keys" | "group":
            strategy = "key-ordered" if way == "keys" else strategy
            keys = random.choice((2, 5, 20)) if way == "keys" else 0
            topics = tuple(replace(each, keys=keys) for each in crowd.topics)
            return replace(crowd, topics=topics, consumers=_team(consumers, group, strategy=strategy, legacy=False))
        case "cling":
            broker = replace(broker, lease_max_ms=broker.lease_ms * random.choice((1, 2)))
            return replace(crowd, broker=broker, consumers=_team(consumers, group, cling=100))
        case "later":
            return replace(crowd, consumers=_team(consumers, group, nack=100, later=500))
        case "toxic":
            return replace(crowd, toxic=random.choice((5, 30)))
        case "quota" if scale == 1:
            return replace(crowd, broker=replace(broker, quota_messages=random.choice((300, 1_000))))
        case _:
            return crowd


def _team(consumers: tuple[plan.Consumer, ...], group: str, **habits: int | str) -> tuple[plan.Consumer, ...]:
    """The consumers, those of one group with other habits."""
    return tuple(replace(each, **habits) if each.group == group else each for each in consumers)


def _operations(random: Random, crowd: plan.Plan) -> list[plan.AnyEvent]:
    """What an operator does to topics and dead letters."""
    events: list[plan.AnyEvent] = []
    for topic in crowd.topics:
        is_plain = topic == plan.Topic(topic.name, topic.partitions)
        if is_plain and random.random() < 0.15:
            for _ in range(random.choice((1, 1, 4))):
                at_ms = random.randrange(500, crowd.chaos_ms)
                events.append(plan.DeleteTopic(at_ms=at_ms, topic=topic.name))
                events.append(plan.CreateTopic(at_ms=at_ms + random.choice((0, 1, 300)), topic=topic.name))
        if random.random() < 0.2:
            for _ in range(random.choice((1, 3))):
                at_ms = random.randrange(1_500, crowd.chaos_ms)
                rate, every = random.choice((0, 0, 20)), random.choice((1, 2))
                events.append(plan.ReplayDead(at_ms=at_ms, topic=topic.name, every=every, rate=rate))
        if random.random() < 0.1:
            at_ms, count = random.randrange(1_500, crowd.chaos_ms), random.choice((1, 5))
            events.append(plan.PurgeDead(at_ms=at_ms, topic=topic.name, count=count))
        if random.random() < 0.15:
            at_ms, retries = random.randrange(500, crowd.chaos_ms), random.choice((0, 1, 5))
            events.append(plan.Configure(at_ms=at_ms, topic=topic.name, max_retries=retries))
    return events


def _looks(random: Random, crowd: plan.Plan) -> list[plan.AnyEvent]:
    """Now and then an operator looks again and again at how everything stands."""
    every_ms = random.choice((*[0] * 9, 200))
    topic = random.choice(crowd.topics).name
    return [plan.Look(at_ms=at, topic=topic) for at in range(500, crowd.chaos_ms, every_ms)] if every_ms else []


def _levels(random: Random, chaos_ms: int, only: Sequence[str] | None) -> list[plan.AnyEvent]:
    """Now and then the broker does less, because an operator asks for it or memory is short, which is a fault."""
    wanted = only is not None and plan.Pressure.__name__ in only
    if random.random() >= 0.15 and not wanted:
        return []
    events: list[plan.AnyEvent] = []
    for _ in range(random.choice((1, 3))):
        at_ms = random.randrange(500, chaos_ms)
        if random.random() < 0.6 and not wanted:
            for_ms = random.choice((0, 100, 700, 2_000))
            events.append(plan.SetLevel(at_ms=at_ms, level=random.choice(WORDS[1:]), for_ms=for_ms))
        elif only is None or wanted:
            percent = random.choice((86, 92, 97))
            events.append(plan.Pressure(at_ms=at_ms, for_ms=random.choice((1_200, 2_500)), memory_percent=percent))
    return events


def _moving(random: Random, crowd: plan.Plan, only: Sequence[str] | None) -> tuple[plan.Plan, list[plan.AnyEvent]]:
    """Where partitions belong to members: they move, and what fails then fails while they do."""
    members = [each for each in crowd.consumers if each.strategy]
    if not members or random.random() < 0.4:
        return crowd, []
    if random.random() < 0.4:
        deaf, answer_ms = random.choice((100, 600)), random.choice((300, 1_500))
        consumers = tuple(replace(each, deaf=deaf) if each in members else each for each in crowd.consumers)
        broker = replace(crowd.broker, rebalance_answer_ms=answer_ms)
        crowd = replace(crowd, consumers=consumers, broker=broker)
    events: list[plan.AnyEvent] = []
    for _ in range(random.choice((1, 3, 6))):
        at_ms, who = random.randrange(500, crowd.chaos_ms), random.choice(members).name
        leave = plan.Leave(at_ms=at_ms, who=who, for_ms=random.choice((50, 200, 700)))
        events += [leave] if _is_wanted(leave, only) else []
        moment: plan.Turn = random.choice(("assign", "revoke"))
        strikes: tuple[plan.AnyEvent, ...] = (
            plan.Crash(at_ms=at_ms, on=moment, power=random.random() < 0.7, down_ms=random.choice((1, 100))),
            plan.CrashClient(at_ms=at_ms, who=random.choice(members).name, for_ms=300, silent=True, on=moment),
            plan.Partition(
                at_ms=at_ms, who=random.choice(members).name, for_ms=2_500, way=random.choice(_WAYS), on=moment
            ),
        )
        events += [each for each in strikes if random.random() < 0.25 and _is_wanted(each, only)]
    return crowd, events


def _is_wanted(event: plan.AnyEvent, only: Sequence[str] | None) -> bool:
    return only is None or type(event).__name__ in only


def _broker(random: Random) -> plan.Broker:
    small = random.random() < 0.4
    return plan.Broker(
        lease_ms=random.choice((600, 1_500, 3_000)),
        max_retries=random.choice((1, 3, 3)),
        session_timeout_ms=random.choice((1_500, 3_000)),
        settle_linger_ms=random.choice((5, 50, 50, 200)),
        checkpoint_ms=random.choice((500, 2_000, 60_000)),
        journal_segment_bytes=random.choice((8 << 10, 32 << 10, 128 << 10)),
        log_segment_bytes=random.choice((4 << 10, 16 << 10, 64 << 10)),
        preallocate=random.random() < 0.7,
        tail_bytes_max=4 << 10 if small else 32 << 20,
        send_window_bytes=16 << 10 if small else 1 << 20,
        deliver_bytes_max=random.choice((2 << 10, 64 << 10, 1 << 20)),
        checkpoint_journal_bytes=random.choice((16 << 10, 256 << 10)),
    )


def _consumers(random: Random, topics: tuple[plan.Topic, ...]) -> tuple[plan.Consumer, ...]:
    consumers: list[plan.Consumer] = []
    for number in range(random.randint(1, 3)):
        pattern = random.choice(("#", random.choice(topics).name))
        kind = random.choice(("good", "good", "nacking", "mixed"))
        strategy = random.choice(("", "", "", "range", "sticky", "cooperative-sticky"))
        for place in range(random.randint(1, 4)):
            consumers.append(_consumer(random, f"c{number}{'abcd'[place]}", f"g{number}", pattern, kind, strategy))
    for number in range(random.choice((0, 0, 1, 2))):
        consumers.append(plan.Consumer(name=f"f{number}", pattern="#", auto_ack=True, process_ms=1))
    return tuple(consumers)


def _consumer(random: Random, name: str, group: str, pattern: str, kind: str, strategy: str) -> plan.Consumer:
    odd = kind == "mixed"
    return plan.Consumer(
        name=name,
        pattern=pattern,
        group=group,
        credit=random.choice((1, 10, 50, 200)),
        process_ms=random.choice((0, 2, 20, 200)),
        auto_ack=odd and random.random() < 0.15,
        legacy=not strategy and random.random() < 0.15,
        strategy=strategy,
        member=random.random() < 0.3,
        nack=random.choice((20, 100)) if kind == "nacking" else 0,
        reject=random.choice((0, 10)) if kind != "good" else 0,
        ignore=random.choice((0, 30, 200)) if odd else 0,
        extend=100 if odd and random.random() < 0.5 else 0,
        durable=random.choice((0, 0, 300)),
        in_parts=200 if random.random() < 0.3 else 0,
        stale=300,
        start_ms=random.choice((0, 0, 0, 2_000)),
    )


def _work(random: Random, crowd: plan.Plan, scale: int) -> list[plan.AnyEvent]:
    """What producers and operators do."""
    events: list[plan.AnyEvent] = []
    ttl_ms = random.choice((0, 0, 600_000, 1_000))
    delay_ms = random.choice((0, 0, 500, 3_000))
    has_lanes = any(topic.lanes for topic in crowd.topics)
    for producer in crowd.producers:
        at_ms = random.randint(0, 200)
        count = random.choice((1, 5, 30)) * scale
        every_ms = random.choice((10, 40, 100))
        singles = random.random() < 0.25
        while at_ms < crowd.chaos_ms:
            events.append(
                plan.Publish(
                    at_ms=at_ms,
                    who=producer.name,
                    topic=random.choice(crowd.topics).name,
                    count=random.randint(1, count),
                    size=random.choice((30, 60, 300)),
                    ttl_ms=ttl_ms if random.random() < 0.1 else 0,
                    delay_ms=delay_ms if random.random() < 0.1 else 0,
                    priority=dice.draw(crowd.seed, "priority", producer.name, at_ms) % 6 if has_lanes else 0,
                    singles=singles,
                )
            )
            at_ms += random.randint(1, 2 * every_ms)
    groups = sorted({consumer.group for consumer in crowd.consumers if consumer.group})
    if random.random() < 0.25:
        for _ in range(random.randint(1, 3)):
            topic = random.choice(crowd.topics)
            lane = random.randrange(6) if topic.lanes else 0
            events.append(
                plan.Seek(
                    at_ms=random.randrange(1_000, crowd.chaos_ms),
                    group=random.choice(groups),
                    topic=topic.name,
                    partition=random.randrange(topic.partitions),
                    to=random.choice(_PLACES[:2] if topic.lanes and not lane else _PLACES),
                    value=random.randrange(0, 1_000),
                    lane=lane,
                )
            )
    return events


def _faults(random: Random, crowd: plan.Plan, only: Sequence[str] | None) -> list[plan.AnyEvent]:
    """A few kinds of faults, or those that were asked for, each at its own rate."""
    events: list[plan.AnyEvent] = []
    makers = [make for make, kind in _MAKERS.items() if only is None or kind.__name__ in only]
    for make in random.sample(makers, random.randint(0, min(6, len(makers)))) if only is None else makers:
        for _ in range(random.choice((1, 1, 3, 8))):
            events.append(make(random, random.randrange(100, crowd.chaos_ms), crowd))
    return events


def _somebody(random: Random, crowd: plan.Plan) -> str:
    names = [producer.name for producer in crowd.producers] + [consumer.name for consumer in crowd.consumers]
    return random.choice(names)


def _crash(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    return plan.Crash(at_ms=at_ms, power=random.random() < 0.7, down_ms=random.choice((1, 50, 500)))


def _crash_at_op(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    ops = random.randint(1, 60)
    return plan.Crash(at_ms=at_ms, power=random.random() < 0.8, down_ms=random.choice((1, 100)), after_ops=ops)


def _crash_on_frame(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    moment: plan.Moment = random.choice(("confirm", "deliver", "settle", "settled", "sync", "sync"))
    return plan.Crash(at_ms=at_ms, power=random.random() < 0.8, down_ms=random.choice((1, 100)), on=moment)


def _pause_broker(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    return plan.PauseBroker(at_ms=at_ms, for_ms=random.choice((20, 300, 2_000)))


def _partition(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    way = random.choice(_WAYS)
    return plan.Partition(at_ms=at_ms, who=_somebody(random, crowd), for_ms=random.choice((50, 500, 4_000)), way=way)


def _slow(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    rate = random.choice((0, 2_000, 20_000))
    delay_ms = random.choice((5, 100, 700))
    return plan.Slow(
        at_ms=at_ms,
        who=_somebody(random, crowd),
        for_ms=random.choice((300, 3_000)),
        delay_ms=delay_ms,
        bytes_per_s=rate,
    )


def _reset(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    return plan.Reset(at_ms=at_ms, who=_somebody(random, crowd))


def _crash_client(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    on: plan.Turn = random.choice(("", "", "deliver", "subscribe", "settle"))
    silent = random.random() < 0.4
    return plan.CrashClient(
        at_ms=at_ms,
        who=random.choice(crowd.consumers).name,
        for_ms=random.choice((1, 200, 3_000)),
        silent=silent,
        on=on,
    )


def _pause_client(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    return plan.PauseClient(
        at_ms=at_ms, who=random.choice(crowd.consumers).name, for_ms=random.choice((100, 1_000, 4_000))
    )


def _leave(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    return plan.Leave(at_ms=at_ms, who=random.choice(crowd.consumers).name, for_ms=random.choice((1, 300)))


def _jump(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    return plan.JumpClock(at_ms=at_ms, by_ms=random.choice((-60_000, -500, 500, 5_000, 3_600_000)))


def _slow_disk(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    return plan.SlowDisk(at_ms=at_ms, for_ms=random.choice((200, 2_000)), factor=random.choice((5, 50, 300)))


def _fail_disk(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    kind: plan.DiskFault = random.choice(("io", "denied", "descriptors", "full"))
    op: plan.DiskOp = random.choice(("sync", "write", "create", "read"))
    return plan.FailDisk(at_ms=at_ms, op=op, kind=kind, times=random.choice((1, 1, 5)))


def _fill_disk(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    return plan.FillDisk(at_ms=at_ms, for_ms=random.choice((300, 2_000)), free_bytes=random.choice((0, 3_000, 30_000)))


def _damage(random: Random, at_ms: int, crowd: plan.Plan) -> plan.AnyEvent:
    path = random.choice(("journal", "checkpoints", "topics"))
    return plan.Damage(at_ms=at_ms, path=path, place=random.randrange(1000), lost_sector=random.random() < 0.3)


_MAKERS: dict[Maker, type[plan.AnyEvent]] = {
    _crash: plan.Crash,
    _crash_at_op: plan.Crash,
    _crash_on_frame: plan.Crash,
    _pause_broker: plan.PauseBroker,
    _partition: plan.Partition,
    _slow: plan.Slow,
    _reset: plan.Reset,
    _crash_client: plan.CrashClient,
    _pause_client: plan.PauseClient,
    _leave: plan.Leave,
    _jump: plan.JumpClock,
    _slow_disk: plan.SlowDisk,
    _fail_disk: plan.FailDisk,
    _fill_disk: plan.FillDisk,
}
_BESIDE = (plan.Damage, plan.Pressure)
KINDS = tuple(sorted({kind.__name__ for kind in (*_MAKERS.values(), *_BESIDE)}))
"""The kinds of faults that a swarm knows, by name."""
