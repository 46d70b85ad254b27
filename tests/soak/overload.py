"""Five times the load that consumers manage, for hours: what gives way, what doesn't, and how it recovers.

    python -m tests.soak.overload [--hours 10]

A whole node in a time of its own. Publishers of three priorities offer a topic five times what its group settles; they
do as they are told: they wait for their confirms, and come back when a refusal says so. A second topic of which the
same broker knows has a publisher and a reader of its own. Then the load falls below what consumers manage.

Promises  books are kept from answers and deliveries alone; memory is what the node holds (state, shelf, committer,
          connections), object by object, and beside it the process's own, these books included.
Never     waits for real time to pass.
"""

from __future__ import annotations

import argparse
import resource

from msgspec import Struct

from dovetail.core import batch, inputs
from dovetail.core.codes import Priority, SettleAction, Status
from dovetail.core.effects import Answer, AnyEffect, Appended, Deliver, Refused
from dovetail.core.flow import Level
from dovetail.core.ids import Now
from dovetail.core.inputs import AnyInput
from dovetail.core.invariants import check_state
from dovetail.core.journal_format import Entry
from dovetail.core.node import Local, WriteBehind
from dovetail.core.records import AnyRecord, TopicConfig
from dovetail.core.shelf import Shelf
from tests.core.running import Running
from tests.soak.weight import weight

SETTLED_PER_S = 20
OFFERED = {Priority.HIGH: 20, Priority.NORMAL: 40, Priority.BACKGROUND: 40}
"""Messages a second that publishers of each priority offer: five times what is settled, in all."""
LAG_WARNING, LAG_CRITICAL = 500, 1_000
LAG_MAX = 2 * LAG_CRITICAL + sum(OFFERED.values())
"""All publishers are refused from twice the critical lag on."""
CALM_PER_S = 5
KEPT_ENTRIES = 5_000
SHELF_BYTES = 1 << 20
"""Small, so that its bound is reached within the first hour."""
HOUR_S = 3_600
RECOVERY_S = 600


class Report(Struct, frozen=True):
    """What came out."""

    hours: float
    offered: int
    confirmed: int
    delivered: int
    lost: int
    twice: int
    refused: dict[str, int]
    accepted: dict[str, float]
    """The part of what was offered that was taken, by priority."""
    first_refused_s: dict[str, int | None]
    lag_max: int
    held_max: int
    """Confirms that were held back at once."""
    broker_kb: tuple[int, ...]
    """What the broker held after each hour (or half of a shorter run), but for the shelf."""
    shelf_kb: tuple[int, ...]
    """What its shelf held, the memory of stored messages, which is filled up to its bound."""
    process_kb: int
    calm_confirms: int
    calm_delayed: int
    calm_late: int
    levels_on_recovery: tuple[int, ...]
    recovered_s: int


class Lean(Running):
    """A running node that forgets what nobody will ask for."""

    def _observe(
        self,
        now: Now,
        arrived: tuple[AnyInput, ...],
        records: tuple[AnyRecord, ...],
        effects: tuple[AnyEffect, ...],
    ) -> None:
        return

    def settle_down(self) -> None:
        """As always, but without keeping the journal, and without checking the state each time."""
        while True:
            self.node.tick(self.now)
            for session, _, _ in self.node.outgoing():
                self.node.wrote(session, 0)
            commit = self.node.next_commit(self.now)
            if commit is not None:
                self.node.committed()
            job = self.node.next_job()
            if job is not None:
                self.node.job_done(self._do(job))
                if isinstance(job, WriteBehind):
                    self._forget()
            if commit is None and job is None and not self.node.has_arrivals:
                return

    def _forget(self) -> None:
        for entries in self._files.values():
            if len(entries) > 2 * KEPT_ENTRIES:
                del entries[:-KEPT_ENTRIES]


class Publisher:
    """Publishes a batch a second, one at a time, and does what refusals say."""

    def __init__(self, broker: Lean, topic: str, priority: Priority) -> None:
        self.broker = broker
        self.topic = topic
        self.priority = priority
        self.local: Local = broker.node.open_local(f"{topic} {priority.name.lower()}")
        self.waiting_since_ms: int | None = None
        self.not_before_ms = 0
        self.offered = self.refusals = self.delayed = 0
        self.first_refused_ms: int | None = None
        self.confirms = self.taken = 0
        self.confirmed = bytearray()
        """Which offsets were confirmed."""

    def offer(self, count: int) -> None:
        """Publish `count` messages, unless the last ones are not confirmed or it was told to wait."""
        now_ms = self.broker.now.mono_ms
        self.offered += count
        if self.waiting_since_ms is not None or now_ms < self.not_before_ms:
            return
        data = batch.build([(None, b"x", ())] * count, timestamp_ms=0)
        self.waiting_since_ms = now_ms
        number = self.local.register(lambda answer, entries: self._answered(answer, count))
        asks = (inputs.Ask(self.local.session, number, 0, count),)
        handle = self.broker.node.keep(data)
        priority = int(self.priority)
        self.broker.node.submit(inputs.Publish(self.topic, 0, handle, count, len(data), asks, priority=priority))
        self.broker.settle_down()

    def _answered(self, answer: Answer, count: int) -> None:
        now_ms = self.broker.now.mono_ms
        if isinstance(answer, Appended):
            self.confirms += 1
            self.taken += count
            self.confirmed.extend(bytes(max(0, answer.offset + count - len(self.confirmed))))
            self.confirmed[answer.offset : answer.offset + count] = b"\1" * count
            self.delayed += now_ms != self.waiting_since_ms
        else:
            assert isinstance(answer, Refused), answer
            assert answer.status == Status.BUSY, answer
            assert answer.retry_after_ms > 0
            assert self.topic in answer.reason
            self.refusals += 1
            if self.first_refused_ms is None:
                self.first_refused_ms = now_ms
            self.not_before_ms = now_ms + answer.retry_after_ms
        self.waiting_since_ms = None


class Reader:
    """A member that settles so many messages a second, and counts what it is sent."""

    def __init__(self, broker: Lean, topic: str, credit: int) -> None:
        self.broker = broker
        self.held: list[Deliver] = []
        self.seen = bytearray()
        """How often each offset was delivered."""
        self.last_seen_ms = 0
        self.local = broker.node.open_local(f"reader of {topic}", self._take)
        number = self.local.register(lambda answer, entries: None)
        broker.node.submit(inputs.Subscribe(self.local.session, number, topic, f"{topic}-g", credit, False))
        broker.settle_down()

    def _take(self, delivery: Deliver, entries: tuple[Entry, ...]) -> None:
        self.held.append(delivery)
        self.last_seen_ms = self.broker.now.mono_ms
        for first, last in delivery.ranges:
            self.seen.extend(bytes(max(0, last + 1 - len(self.seen))))
            for offset in range(first, last + 1):
                self.seen[offset] = min(255, self.seen[offset] + 1)

    def settle(self, most: int) -> None:
        """Acknowledge up to `most` messages, oldest first."""
        items: list[inputs.SettleItem] = []
        while self.held and most > 0:
            each = self.held.pop(0)
            (first, last), *_ = each.ranges
            stop = min(last, first + most - 1)
            items.append(inputs.SettleItem(each.lease, SettleAction.ACK, first, stop, 0, 0, ""))
            most -= stop - first + 1
            if stop < last:
                rest = Deliver(
                    each.session,
                    each.subscription,
                    each.topic,
                    each.partition,
                    each.lane,
                    each.log,
                    each.lease,
                    each.attempt,
                    each.deadline_ms,
                    ((stop + 1, last),),
                )
                self.held.insert(0, rest)
        if items:
            number = self.local.register(lambda answer, entries: None)
            self.broker.node.submit(inputs.Settle(self.local.session, number, tuple(items)))
            self.broker.settle_down()


def soak(hours: float) -> Report:
    """Run all of it."""
    broker = Lean()
    broker.node.shelf = Shelf(SHELF_BYTES, SHELF_BYTES)
    broker.create("busy", TopicConfig(lag_warning=LAG_WARNING, lag_critical=LAG_CRITICAL))
    broker.create("calm")
    publishers = [Publisher(broker, "busy", priority) for priority in OFFERED]
    calm = Publisher(broker, "calm", Priority.NORMAL)
    reader, calm_reader = Reader(broker, "busy", 2 * SETTLED_PER_S), Reader(broker, "calm", 100)
    number = broker.node.state.durable.topics_by_name["busy"]
    lag_max = held_max = calm_late = 0
    broker_kb: list[int] = []
    shelf_kb: list[int] = []
    books = (broker, reader, calm_reader, *publishers, calm)
    seconds = int(hours * HOUR_S)

    def second(part: float) -> None:
        nonlocal lag_max, held_max, calm_late
        for place, each in enumerate(publishers):
            each.offer(int(OFFERED[each.priority] * part))
            broker.advance(100 + place)
        calm.offer(CALM_PER_S)
        calm_late += calm_reader.last_seen_ms != broker.now.mono_ms
        calm_reader.settle(CALM_PER_S)
        reader.settle(SETTLED_PER_S)
        broker.advance(1_000 - broker.now.mono_ms % 1_000)
        live = broker.node.state.live
        held_max = max(held_max, len(live.held))
        flow = live.flows.get(number)
        lag_max = max(lag_max, flow.lag if flow is not None else 0)

    for passed in range(seconds):
        second(1)
        if (passed + 1) % min(HOUR_S, max(1, seconds // 2)) == 0:
            broker_kb.append(weight([broker.node], without=[*books, broker.node.shelf]) // 1024)
            shelf_kb.append(weight([broker.node.shelf], without=books) // 1024)
            check_state(broker.node.state)
    levels: list[int] = []
    recovered_s = 0
    offered, taken = [each.offered for each in publishers], [each.taken for each in publishers]
    for passed in range(RECOVERY_S):
        second(0.1)
        level = broker.node.state.live.flows[number].level
        if not levels or levels[-1] != level:
            levels.append(level)
        if level != Level.NORMAL:
            recovered_s = passed + 1
    for _ in range(LAG_MAX // SETTLED_PER_S + 1):
        reader.settle(SETTLED_PER_S)
        broker.advance(1_000)
    check_state(broker.node.state)
    lost = sum(
        not (reader.seen[offset] if offset < len(reader.seen) else 0)
        for each in publishers
        for offset, wanted in enumerate(each.confirmed)
        if wanted
    )
    named = {each: each.priority.name.lower() for each in publishers}
    return Report(
        hours,
        sum(offered),
        sum(each.taken for each in publishers),
        sum(count > 0 for count in reader.seen),
        lost,
        sum(count > 1 for count in reader.seen),
        {named[each]: each.refusals for each in publishers},
        {named[each]: round(done / asked, 3) for each, asked, done in zip(publishers, offered, taken, strict=True)},
        {named[each]: each.first_refused_ms and each.first_refused_ms // 1_000 for each in publishers},
        lag_max,
        held_max,
        tuple(broker_kb),
        tuple(shelf_kb),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        calm.confirms,
        calm.delayed + calm.refusals,
        calm_late,
        tuple(levels),
        recovered_s,
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Five times the load that consumers manage, for hours.")
    parser.add_argument("--hours", type=float, default=10)
    report = soak(parser.parse_args().hours)
    print(
        f"{report.hours:g} hours at {sum(OFFERED.values()) // SETTLED_PER_S} times what consumers manage\n"
        f"offered {report.offered}, confirmed {report.confirmed}, delivered {report.delivered}: "
        f"{report.lost} lost, {report.twice} delivered again\n"
        f"taken of what was offered: {report.accepted}; refusals {report.refused}; "
        f"first refused after seconds: {report.first_refused_s}\n"
        f"lag at most {report.lag_max} (bound {LAG_MAX}), confirms held back at once {report.held_max}, "
        f"the broker's memory after each hour, in KB: {report.broker_kb}, and its shelf's, bound {SHELF_BYTES >> 10}: "
        f"{report.shelf_kb}; the process's, with the books of this measurement, at most {report.process_kb} KB\n"
        f"the other topic: {report.calm_confirms} confirms, {report.calm_delayed} of them not at once, "
        f"{report.calm_late} messages not delivered at once\n"
        f"recovery: levels {report.levels_on_recovery}, normal after {report.recovered_s} s"
    )


if __name__ == "__main__":
    main()
