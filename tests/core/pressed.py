"""A whole node under pressure, every offer and every answer told to the naive model of flow control.

Publishers of five priorities, two groups that settle when they like, quotas, a broker that is read-only or throttled
for a while, and that dies. Who picks decides how: Hypothesis, or a seed.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.core import batch, inputs
from dovetail.core.codes import Priority, SettleAction, Whence
from dovetail.core.effects import Answer, Appended, Deliver, Refused
from dovetail.core.journal_format import Entry
from dovetail.core.kernels import LANES
from dovetail.core.node import Local
from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from dovetail.spec.pressure import OK, Disagreement, Pressure
from tests.core.actions import Pick, Seeded
from tests.core.running import Consumer, Running

LEASE_MS = 1 << 40
LIMITS = {"slow": (20, 40, 0), "old": (0, 0, 4_000), "laned": (10, 30, 20_000), "free": (0, 0, 0)}
"""Topic to its limits: warning and critical in messages, critical in milliseconds."""
CLIENTS = ("anna", "ben")
QUOTAS = ((0, 0), (0, 0), (30, 0), (0, 2_000), (60, 3_000))


Held = tuple[int, int, str, int]
"""Lease, offset, topic, number of the message."""


class Reader(Consumer):
    """Holds messages one by one."""

    def __init__(self, broker: Running, name: str) -> None:
        self.one_by_one: list[Held] = []
        super().__init__(broker, name)

    def _take(self, delivery: Deliver, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            for record in batch.parse(entry.batch):
                if any(first <= record.offset <= last for first, last in delivery.ranges):
                    self.one_by_one.append((delivery.lease, record.offset, delivery.topic, int(record.value or b"")))


class Pressed:
    """The node, its clients, the model."""

    def __init__(self, quotas: tuple[int, int]) -> None:
        messages, size = quotas
        settings = Settings(
            session_timeout_ms=1 << 50,
            quota_messages=messages,
            quota_bytes=size,
            topic_defaults=TopicConfig(lease_ms=LEASE_MS),
        )
        self.broker = Running(settings)
        self.model = Pressure(messages, size)
        self.messages = self.topics = self.offers = 0
        for name, (warning, critical, critical_ms) in LIMITS.items():
            self.model.topic(name, warning, critical, critical_ms)
            config = TopicConfig(
                lease_ms=LEASE_MS, lag_warning=warning, lag_critical=critical, lag_critical_ms=critical_ms
            )
            self.broker.create(name, config, lanes=LANES if name == "laned" else 0)
        self.readers: dict[str, Reader] = {}
        self._connect()

    def _connect(self) -> None:
        self.clients: dict[str, Local] = {name: self.broker.node.open_local(name) for name in CLIENTS}
        for group in sorted(self.readers):
            self.read(group)

    @property
    def now_ms(self) -> int:
        return self.broker.now.mono_ms

    def read(self, group: str) -> None:
        """A group's reader, made anew after a crash."""
        is_new = group not in self.readers
        self.readers[group] = Reader(self.broker, group)
        for topic in LIMITS:
            if is_new:
                self.model.group(group, topic)
            self.readers[group].subscribe(topic, group, credit=1_000)

    def publish(self, client: str, topic: str, priority: Priority, count: int) -> None:
        local, model, durable = self.clients[client], self.model, self.broker.node.state.durable
        self.offers += 1
        offer = self.offers
        texts = [str(self.messages + place) for place in range(count)]
        data = batch.build([(None, text.encode(), ()) for text in texts], timestamp_ms=0)
        heard: list[tuple[int, Answer]] = []
        told = False

        def then(answer: Answer, entries: tuple[Entry, ...]) -> None:
            heard.append((self.now_ms, answer))
            if told:
                model.confirmed(self.now_ms, offer)

        number = local.register(then)
        handle = self.broker.node._keep(data)
        asks = (inputs.Ask(local.session, number, 0, count),)
        self.broker.node.submit(inputs.Publish(topic, -1, handle, count, len(data), asks, priority=priority))
        self.broker.settle_down()
        refused = next((answer for _, answer in heard if isinstance(answer, Refused)), None)
        is_taken = refused is None
        if refused is not None:
            if self.broker.node.state.durable is not durable:
                raise Disagreement(f"what is refused changes nothing: {refused}")
            said = int(refused.status), refused.retry_after_ms, refused.reason
        else:
            self.messages += count
            said = OK, 0, ""
            if topic not in model.topics:
                model.topic(topic, 100_000, 0, 0)
        known = topic if topic in model.topics else "free"
        messages = [int(text) for text in texts] if is_taken else []
        model.published(self.now_ms, client, known, priority, (count, len(data)), said, offer, messages)
        told = True
        for at_ms, answer in heard:
            if isinstance(answer, Appended):
                model.confirmed(at_ms, offer)
        self._compare()

    def settle(self, group: str, most: int) -> None:
        self._settle(group, self.readers[group].one_by_one[:most])

    def settle_down(self, group: str, topic: str, left: int) -> None:
        """Settle of a topic what is more than `left`."""
        held = [each for each in self.readers[group].one_by_one if each[2] == topic]
        self._settle(group, held[: max(0, len(self.model.unsettled[group][topic]) - left)])

    def _settle(self, group: str, done: list[Held]) -> None:
        reader, said = self.readers[group], set(done)
        reader.one_by_one = [each for each in reader.one_by_one if each not in said]
        for _, _, topic, message in done:
            if topic in LIMITS:
                self.model.settled(group, topic, message)
        items = tuple(inputs.SettleItem(lease, SettleAction.ACK, at, at, 0, 0, "") for lease, at, _, _ in done)
        if items:
            reader.say(lambda me, number: inputs.Settle(me, number, items, True))

    def move_back(self, group: str, topic: str) -> None:
        """The group reads a topic from its start again."""
        reader = self.readers[group]
        reader.one_by_one = [each for each in reader.one_by_one if each[2] != topic]
        self.model.moved_back(group, topic)
        reader.say(lambda me, number: inputs.Seek(me, number, group, topic, 0, Whence.EARLIEST, 0))

    def pass_time(self, by_ms: int) -> None:
        self.broker.advance(by_ms)
        self.model.overdue(self.now_ms)

    def crash(self) -> None:
        self.broker.crash()
        self.model.crashed(self.now_ms)
        self._connect()

    def set_read_only(self, on: bool) -> None:
        self.model.is_read_only = on
        self.broker.ask(lambda me, number: inputs.SetReadOnly("the disk is full" if on else ""))

    def set_throttled(self, on: bool) -> None:
        self.model.is_throttled = on
        self.broker.ask(lambda me, number: inputs.SetThrottle("memory is short" if on else ""))

    def _compare(self) -> None:
        """What the node says of its topics is what the model found when it looked at the same time."""
        state = self.broker.node.state
        for name, topic in self.model.topics.items():
            number = state.durable.topics_by_name.get(name)
            flow = state.live.flows.get(number) if number is not None else None
            if flow is not None and topic.looked_ms >= 0:
                found = (flow.lag, flow.level in topic.levels, topic.loads[0] <= flow.load <= topic.loads[1])
                if found != (topic.lag, True, True):
                    raise Disagreement(f"{name}: {flow} is not {topic.lag}, {topic.levels}, {topic.loads}")


def publish(world: Pressed, pick: Pick) -> None:
    if pick.integer(0, 19) == 0:
        world.topics += 1
        topic = f"new-{world.topics}"
    else:
        topic = pick.choice(("slow", "slow", "slow", "old", "laned", "free"))
    priority = pick.choice([each for each in Priority if each is not Priority.DEFAULT])
    world.publish(pick.choice(CLIENTS), topic, priority, pick.integer(1, 12))


def settle(world: Pressed, pick: Pick) -> None:
    if world.readers:
        world.settle(pick.choice(sorted(world.readers)), pick.choice((1, 5, 20, 200)))


def settle_everything(world: Pressed, pick: Pick) -> None:
    for group in sorted(world.readers):
        world.settle(group, 1 << 30)


def read(world: Pressed, pick: Pick) -> None:
    group = pick.choice(("g", "h"))
    if group not in world.readers:
        world.read(group)


def move_back(world: Pressed, pick: Pick) -> None:
    if world.readers:
        world.move_back(pick.choice(sorted(world.readers)), pick.choice(("slow", "old")))


def a_moment(world: Pressed, pick: Pick) -> None:
    world.pass_time(pick.choice((10, 50, 100, 110, 250, 1_000)))


def a_while(world: Pressed, pick: Pick) -> None:
    world.pass_time(pick.choice((2_000, 3_000, 6_000)))


def waits_in_vain(world: Pressed, pick: Pick) -> None:
    """Nobody settles anything for long, and somebody asks again and again."""
    for _ in range(45):
        world.pass_time(110)
        world.publish("anna", "slow", Priority.CRITICAL, 1)


def near_the_limit(world: Pressed, pick: Pick) -> None:
    """A topic's lag goes over a limit and comes down to a little below it."""
    limit, priority = pick.choice((20, 40, 80)), pick.choice((Priority.CRITICAL, Priority.NORMAL))
    for left in (limit, limit * 9 // 10, limit * 4 // 5 - 1):
        for _ in range(8):
            if "g" in world.readers and len(world.model.unsettled["g"]["slow"]) < left:
                world.publish("ben", "slow", Priority.CRITICAL, 10)
        for group in sorted(world.readers):
            world.settle_down(group, "slow", left)
        world.pass_time(110)
        world.publish("anna", "slow", priority, 1)


def read_only(world: Pressed, pick: Pick) -> None:
    world.set_read_only(not world.model.is_read_only and pick.integer(0, 1) == 0)


def throttled(world: Pressed, pick: Pick) -> None:
    world.set_throttled(not world.model.is_throttled)


def crash(world: Pressed, pick: Pick) -> None:
    world.crash()


Action = Callable[[Pressed, Pick], None]
WEIGHTS: dict[Action, int] = {
    publish: 40,
    settle: 10,
    settle_everything: 2,
    read: 3,
    move_back: 1,
    a_moment: 20,
    a_while: 3,
    waits_in_vain: 1,
    near_the_limit: 3,
    read_only: 1,
    throttled: 1,
    crash: 1,
}


def run(seed: int, actions: int) -> Pressed:
    pick = Seeded(seed)
    world = Pressed(QUOTAS[seed % len(QUOTAS)])
    world.read("g")
    deck = [action for action, weight in WEIGHTS.items() for _ in range(weight)]
    for _ in range(actions):
        pick.choice(deck)(world, pick)
    return world
