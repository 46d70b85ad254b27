"""A broker to make claims about: a `World` (so the model watches here too) with words for what a test does to it."""

from __future__ import annotations

from dovetail.core import cursor as cursors
from dovetail.core import inputs as ask
from dovetail.core.codes import SettleAction, Whence
from dovetail.core.effects import Answer, Deliver, Reply
from dovetail.core.ids import ordered
from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from tests.core.world import World

PENDING, LEASED, RETRYING, DYING, SETTLED = "pending", "leased", "retrying", "dying", "settled"


class Broker(World):
    """One broker, one call per thing that is said to it."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings or Settings(session_timeout_ms=3_600_000))
        self.operator = self.session("operator")

    def ask(self, request: ask.AnyInput) -> Answer | None:
        """Say it in a step of its own; the answer, if it came at once."""
        number = request.asks[0].request if isinstance(request, ask.Publish) else getattr(request, "request", 0)
        for effect in self.step(request):
            if isinstance(effect, Reply) and effect.request == number:
                return effect.answer
        return None

    def publish(self, topic: str, count: int = 1, partition: int = -1, ttl_ms: int = 0, flags: int = 0) -> None:
        """A batch, stored."""
        request = self.request()
        asks = (ask.Ask(self.operator, request, 0, count),)
        self.step(ask.Publish(topic, partition, request, count, 100, asks, 1, 0, ttl_ms, flags))
        self.store()

    def subscribe(self, session: int, pattern: str, group: str = "", credit: int = 0, auto_ack: bool = False) -> int:
        """A subscription's number."""
        self.step(ask.Subscribe(session, self.request(), pattern, group, credit, auto_ack))
        return self.state.live.next_subscription - 1

    def consumer(self, pattern: str, group: str = "", credit: int = 0, auto_ack: bool = False, name: str = "c") -> int:
        """A new session that subscribes."""
        session = self.session(name)
        self.subscribe(session, pattern, group, credit, auto_ack)
        return session

    def create(self, topic: str, partitions: int = 1, config: TopicConfig | None = None) -> None:
        """A topic, stored."""
        self.step(ask.CreateTopic(self.operator, self.request(), topic, partitions, 0, config or TopicConfig()))
        self.store()

    def delete(self, topic: str, *, force: bool = False) -> Answer | None:
        return self.ask(ask.DeleteTopic(self.operator, self.request(), topic, force))

    def seek(self, group: str, topic: str, offset: int, whence: Whence = Whence.OFFSET) -> Answer | None:
        return self.ask(ask.Seek(self.operator, self.request(), group, topic, 0, whence, offset))

    def commit(self, group: str, topic: str, offset: int) -> Answer | None:
        return self.ask(ask.Commit(self.operator, self.request(), group, topic, 0, offset))

    def settle(
        self, session: int, action: SettleAction, lease: int, first: int, last: int | None = None, delay_ms: int = 0
    ) -> Answer | None:
        item = ask.SettleItem(lease, action, first, first if last is None else last, 0, delay_ms)
        return self.ask(ask.Settle(session, self.request(), (item,)))

    def ack(self, session: int, lease: int, first: int, last: int | None = None) -> Answer | None:
        return self.settle(session, SettleAction.ACK, lease, first, last)

    def nack(self, session: int, lease: int, first: int, last: int | None = None, delay_ms: int = 0) -> Answer | None:
        return self.settle(session, SettleAction.NACK, lease, first, last, delay_ms)

    def reject(self, session: int, lease: int, first: int, last: int | None = None) -> Answer | None:
        return self.settle(session, SettleAction.REJECT, lease, first, last)

    def ack_everything(self, session: int) -> None:
        """The session acknowledges all it holds."""
        for number, lease in ordered(self.state.live.leases):
            if self.state.live.subscriptions[lease.subscription].session == session:
                for first, last in lease.ranges:
                    self.ack(session, number, first, last)

    def wake(self) -> None:
        """Time goes by until the core has something to do."""
        wake_ms = self.state.live.timers.wake_ms
        self.pass_time(max(0, wake_ms - self.mono_ms) if wake_ms is not None else 0)

    def heal_reads(self) -> None:
        """The store answers every read under way."""
        while self.reads:
            self.answer_read()

    def taken(self) -> list[Deliver]:
        """What was delivered since this was asked last."""
        taken, self.deliveries = self.deliveries, []
        return taken

    def got(self) -> list[tuple[int, str, int]]:
        """Who got which message since this was asked last: session, topic, offset."""
        return [
            (each.session, each.topic, offset)
            for each in self.taken()
            for first, last in each.ranges
            for offset in range(first, last + 1)
        ]

    def state_of(self, group: str, topic: str, offset: int) -> str:
        """Where a message stands for a group, in partition 0."""
        live = self.state.live
        owner = self.state.durable.groups_by_name[group]
        log = self.state.durable.topics[self.state.durable.topics_by_name[topic]].first_log
        if cursors.is_settled(self.state.durable.cursors[owner, log], offset):
            return SETTLED
        for _, lease in ordered(live.leases):
            if (lease.owner, lease.log) == (owner, log) and any(a <= offset <= b for a, b in lease.ranges):
                return LEASED
        progress = live.progress[owner, log]
        if any(retry.first <= offset <= retry.last for retry in progress.retries):
            return RETRYING
        for _, dying in ordered(live.dying):
            if (dying.owner, dying.log, dying.offset, dying.era) == (owner, log, offset, progress.era):
                return DYING
        return PENDING
