"""A whole node against the ledger: delays, lanes, idempotent producers, dead letters and replays, with crashes between.

The same machine is driven by Hypothesis, which shrinks what fails, and checked to notice planted bugs.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dovetail.core import inputs, kernels, producers, replays, timers
from dovetail.core.codes import Priority, SettleAction, Status
from dovetail.core.effects import Appended, Deliver, Refused, ReplayBegun
from dovetail.core.journal_format import Entry
from dovetail.core.records import TopicConfig
from dovetail.spec.ledger import Disagreement, Ledger
from tests.core.running import HOUR_MS, Consumer, Running
from tests.depth import DEPTH

TOPIC = "a"
PRIORITIES = st.sampled_from([each for each in Priority if each is not Priority.DEFAULT])
DELAYS = (0, 0, 0, 300, 20_000, 2 * HOUR_MS)


class Reader(Consumer):
    """Holds messages one by one, and tells the ledger of each."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.one_by_one: list[tuple[int, int, str]] = []
        """(lease, offset, text)"""
        super().__init__(machine.broker, "reader")

    def _take(self, delivery: Deliver, entries: tuple[Entry, ...]) -> None:
        from dovetail.core import batch

        now_ms = self.running.now.wall_ms
        for entry in entries:
            for record in batch.parse(entry.batch):
                if any(first <= record.offset <= last for first, last in delivery.ranges):
                    text = (record.value or b"").decode()
                    self.machine.ledger.delivered(text, delivery.lane, now_ms)
                    if delivery.attempt == 1 and text not in self.machine.seen:
                        self.machine.ledger.first_time(text)
                    self.machine.seen[text] = None
                    self.one_by_one.append((delivery.lease, record.offset, text))


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = Running()
        self.broker.create(TOPIC, TopicConfig(max_retries=100, lease_ms=1 << 40), lanes=kernels.LANES)
        self.ledger = Ledger()
        self.count = 0
        self.seen: dict[str, None] = {}
        self.reader = self._reader()

    def _reader(self) -> Reader:
        reader = Reader(self)
        reader.subscribe(TOPIC, "g", credit=50)
        return reader

    def _texts(self, count: int) -> list[str]:
        self.count += count
        return [f"message {number}" for number in range(self.count - count, self.count)]

    @rule(priority=PRIORITIES, count=st.integers(1, 6), delay_ms=st.sampled_from(DELAYS))
    def publish(self, priority: Priority, count: int, delay_ms: int) -> None:
        texts = self._texts(count)
        for text in texts:
            self.ledger.published(text, priority - 1, self.broker.now.wall_ms, delay_ms)
        answer = self.broker.publish(TOPIC, *texts, priority=priority, delay_ms=delay_ms)
        assert isinstance(answer, Appended), answer

    @rule(
        producer=st.integers(1, 2),
        epoch=st.integers(0, 2),
        sequence=st.integers(0, 6),
        count=st.integers(1, 2),
        priority=st.sampled_from((Priority.HIGH, Priority.LOW)),
        delay_ms=st.sampled_from(DELAYS),
    )
    def send(self, producer: int, epoch: int, sequence: int, count: int, priority: Priority, delay_ms: int) -> None:
        expected = self.ledger.judge(producer, priority - 1, epoch, sequence, count)
        texts = self._texts(count)
        if expected == "new":
            for text in texts:
                self.ledger.published(text, priority - 1, self.broker.now.wall_ms, delay_ms)
        answer = self.broker.publish(
            TOPIC,
            *texts,
            priority=priority,
            delay_ms=delay_ms,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        statuses = {"fenced": Status.FENCED, "gap": Status.INVALID, "stored": Status.EXISTS}
        found = answer.status if isinstance(answer, Refused) else Status.OK
        assert found == statuses.get(expected, Status.OK), (expected, answer)

    @rule(by_ms=st.sampled_from((10, 400, 30_000, HOUR_MS)))
    def wait(self, by_ms: int) -> None:
        self._pass(by_ms)

    def _pass(self, by_ms: int) -> None:
        """A long time passes in one go: while anything is due later, each second of it would be a step."""
        if by_ms > 1_000:
            self.broker.jump(by_ms)
        self.broker.advance(min(by_ms, 100))

    @rule(most=st.integers(1, 20), action=st.sampled_from((SettleAction.ACK, SettleAction.ACK, SettleAction.NACK)))
    def settle(self, most: int, action: SettleAction) -> None:
        self._settle(most, action)

    @rule()
    def reject(self) -> None:
        self._settle(1, SettleAction.REJECT)

    def _settle(self, most: int, action: SettleAction) -> None:
        said, self.reader.one_by_one = self.reader.one_by_one[:most], self.reader.one_by_one[most:]
        note = {
            SettleAction.ACK: self.ledger.settled,
            SettleAction.NACK: self.ledger.failed,
            SettleAction.REJECT: self.ledger.rejected,
        }[action]
        for _, _, text in said:
            note(text)
        if said:
            items = tuple(inputs.SettleItem(lease, action, offset, offset, 0, 0, "") for lease, offset, _ in said)
            # What waits for the next commit may be lost at a crash: here every settle waits for it.
            self.reader.say(lambda me, number: inputs.Settle(me, number, items, True))

    @rule()
    def replay(self) -> None:
        number = self.broker.node.state.durable.topics_by_name.get(f"{TOPIC}.dlq")
        if number is None:
            return
        state = self.broker.node.state
        log = state.durable.logs[state.durable.topics[number].first_log]
        gone = {each for first, last in state.durable.removed.get(log.id, ()) for each in range(first, last + 1)}
        dead = [offset for offset in range(log.start, log.end) if offset not in gone]
        if not dead:
            return
        texts = self.ledger.replayed(Priority.NORMAL - 1, self.broker.now.wall_ms)
        assert len(texts) == len(dead)
        items = tuple((offset, TOPIC, 0) for offset in dead)
        answer = self.broker.ask(lambda me, number: inputs.StartReplay(me, number, f"{TOPIC}.dlq", items))
        assert isinstance(answer, ReplayBegun), answer
        self.broker.advance(200)

    @rule()
    def crash(self) -> None:
        self.ledger.crashed()
        self.broker.crash()
        self.reader = self._reader()

    @invariant()
    def what_is_held_is_what_the_ledger_says(self) -> None:
        held = sorted(text for _, _, text in self.reader.one_by_one)
        assert held == sorted(each.text for each in self.ledger.messages.values() if each.state == "held")

    def teardown(self) -> None:
        """Everything comes in the end, once."""
        for _ in range(4):
            self._pass(HOUR_MS)
            while self.reader.one_by_one:
                self._settle(50, SettleAction.ACK)
        assert not self.ledger.missing()


def run(examples: int, phases: tuple[Phase, ...] = tuple(Phase)) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, print_blob=False, phases=phases, database=None
    )
    run_state_machine_as_test(Machine, settings=chosen)  # type: ignore[no-untyped-call]


def test_whatever_happens_the_ledger_agrees() -> None:
    run(30 * DEPTH)


PLANTED = {
    "a delay ends early": (timers, "bucket_of", lambda at_ms: at_ms // timers.BUCKET_MS - 20),
    "a replay takes the first lane": (replays, "NORMAL_LANE", 0),
    "nothing is remembered of producers": (producers, "judge", lambda durable, log, batch: None),
}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, attribute, wrong = PLANTED[name]
    monkeypatch.setattr(module, attribute, wrong)
    with pytest.raises((AssertionError, Disagreement)):
        run(200, (Phase.generate,))
