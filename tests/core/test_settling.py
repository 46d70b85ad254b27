"""What becomes of a message: every cell of the transition table of `spec/core.md`, and what settles must not do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.core.codes import Outcome, SettleAction, Status, Whence
from dovetail.core.effects import Done, LeaseEnded, Refused, Settlement, Sought
from dovetail.core.ids import ordered
from dovetail.core.inputs import Commit, Found, Seek, SessionClosed, Settle, SettleItem
from dovetail.core.lifecycle import MESSAGE, MessageState
from dovetail.core.records import TopicConfig
from tests.core.broker import LEASED, RETRYING, SETTLED, Broker

SPEC = Path(__file__).parents[2] / "spec" / "core.md"
TTL_MS = 20_000

EVENTS, STATES = tuple(MESSAGE), tuple(MessageState)


class Case:
    """One message, offset 0 of `t`, for group `g`, brought into a state."""

    def __init__(self, state: str, *, attempts: int) -> None:
        self.broker = Broker()
        config = TopicConfig(lease_ms=10_000, max_retries=attempts - 1, ttl_ms=TTL_MS)
        self.broker.create("t", config=config)
        self.member = self.broker.consumer("t", "g", credit=1)
        self.broker.publish("t")
        # The second attempt: after it, another one has to wait.
        self.broker.nack(self.member, held(self.broker), 0)
        self.lease = held(self.broker)
        getattr(self, f"be_{state}")()
        assert self.state == state

    @property
    def state(self) -> str:
        return self.broker.state_of("g", "t", 0)

    def be_pending(self) -> None:
        """After a restart nobody has it."""
        self.broker.crash(self.broker.stored_lsn)
        self.member = self.broker.operator = self.broker.session()

    def be_leased(self) -> None:
        pass

    def be_retrying(self) -> None:
        self.settle(SettleAction.NACK, delay_ms=5_000)

    def be_dying(self) -> None:
        self.settle(SettleAction.REJECT)

    def be_settled(self) -> None:
        self.settle(SettleAction.ACK)
        self.broker.store()

    def settle(self, action: SettleAction, delay_ms: int = 0) -> None:
        self.broker.settle(self.member, action, self.lease, 0, delay_ms=delay_ms)

    def ack(self) -> None:
        self.settle(SettleAction.ACK)

    def nack(self) -> None:
        self.settle(SettleAction.NACK, delay_ms=5_000)

    def last_nack(self) -> None:
        self.settle(SettleAction.NACK)

    def reject(self) -> None:
        self.settle(SettleAction.REJECT)

    def extend(self) -> None:
        self.settle(SettleAction.EXTEND, delay_ms=20_000)

    def deadline(self) -> None:
        """The time of whoever holds it is up."""
        self.broker.mono_ms += 10_000 if self.state == LEASED else 0
        self.broker.step()

    def leaver(self) -> None:
        self.broker.step(SessionClosed(self.member))

    def credit(self) -> None:
        """Somebody comes who has room, and whatever is due goes out."""
        self.broker.mono_ms += 5_000
        self.broker.wall_ms += 5_000
        self.broker.consumer("t", "g", credit=5, name="d")
        self.broker.heal_reads()

    def commit(self) -> None:
        self.broker.step(Commit(self.broker.operator, self.broker.request(), "g", "t", 0, 1))

    def seek_back(self) -> None:
        """Nobody is there to take it at once."""
        self.broker.step(SessionClosed(self.member))
        self.broker.operator = self.broker.session()
        self.broker.seek("g", "t", 0, Whence.EARLIEST)

    def expiry(self) -> None:
        """Its time to live is over, and somebody comes to whom it would have gone."""
        self.broker.wall_ms += TTL_MS
        if self.state == RETRYING:
            self.broker.mono_ms += 5_000
        self.broker.consumer("t", "g", credit=5, name="d")
        self.broker.heal_reads()

    def copy(self) -> None:
        while self.broker.copies:
            self.broker.answer_copy()

    def crash(self) -> None:
        self.broker.crash(self.broker.frames[-1][0])


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_a_message_goes_where_the_table_says(event: str, state: str) -> None:
    case = Case(state, attempts=2 if (event, state) == ("last_nack", LEASED) else 4)
    happen: Callable[[], None] = getattr(case, event)
    happen()
    assert case.state == MESSAGE[event][STATES.index(state)]


def test_the_table_is_the_one_that_people_read() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*((?:\| ?\w* ?)+)\|$", SPEC.read_text(), re.MULTILINE)
    read = {event: tuple(cell.strip() for cell in cells.strip("| ").split("|")) for event, cells in rows}
    assert read == MESSAGE


def held(broker: Broker) -> int:
    """The number of the only lease."""
    (lease,) = broker.state.live.leases
    return int(lease)


def statuses(answer: object) -> list[tuple[int, int]]:
    assert isinstance(answer, Settlement)
    return [(int(status), int(outcome)) for status, outcome in answer.results]


def a_broker_with_five_leased() -> tuple[Broker, int, int]:
    broker = Broker()
    member = broker.consumer("t", "g")
    broker.publish("t", 5)
    return broker, member, held(broker)


def test_a_single_ack_splits_a_lease() -> None:
    broker, member, lease = a_broker_with_five_leased()
    broker.ack(member, lease, 2)
    assert broker.state.live.leases[lease].ranges == ((0, 1), (3, 4))
    assert [broker.state_of("g", "t", offset) for offset in range(5)] == [LEASED, LEASED, SETTLED, LEASED, LEASED]


def test_a_range_that_is_not_all_held_is_refused_and_changes_nothing() -> None:
    broker, member, lease = a_broker_with_five_leased()
    broker.ack(member, lease, 2)
    before = broker.state
    assert statuses(broker.ack(member, lease, 1, 3)) == [(Status.LEASE_LOST, 0)]
    assert broker.state == before


def test_a_second_ack_of_the_same_delivery_is_refused() -> None:
    broker, member, lease = a_broker_with_five_leased()
    assert statuses(broker.ack(member, lease, 0)) == [(Status.OK, Outcome.SETTLED)]
    assert statuses(broker.ack(member, lease, 0)) == [(Status.LEASE_LOST, 0)]


def test_somebody_elses_lease_can_not_be_settled() -> None:
    broker, _, lease = a_broker_with_five_leased()
    before = broker.state
    assert statuses(broker.ack(broker.operator, lease, 0)) == [(Status.LEASE_LOST, 0)]
    assert broker.state == before


def test_a_late_ack_of_an_earlier_delivery_is_refused() -> None:
    broker = Broker()
    slow, _ = broker.consumer("t", "g"), broker.consumer("t", "g")
    broker.publish("t")
    lease = held(broker)
    broker.nack(slow, lease, 0)
    assert statuses(broker.ack(slow, lease, 0)) == [(Status.LEASE_LOST, 0)]
    assert broker.state_of("g", "t", 0) == LEASED


def test_an_action_nobody_knows_is_refused() -> None:
    broker, member, lease = a_broker_with_five_leased()
    request = Settle(member, broker.request(), (SettleItem(lease, 9, 0, 0),))
    assert statuses(broker.ask(request)) == [(Status.INVALID, 0)]


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    broker, member, lease = a_broker_with_five_leased()
    before = broker.state.durable
    request = Settle(member, broker.request(), (SettleItem(lease, SettleAction.ACK, 3, 1),))
    assert statuses(broker.ask(request)) == [(Status.LEASE_LOST, 0)]
    assert broker.state.durable == before


def test_each_item_has_an_answer_of_its_own() -> None:
    broker, member, lease = a_broker_with_five_leased()
    items = (
        SettleItem(lease, SettleAction.ACK, 0, 0),
        SettleItem(lease, SettleAction.ACK, 0, 0),
        SettleItem(lease, SettleAction.NACK, 1, 1),
        SettleItem(lease, SettleAction.REJECT, 2, 2),
    )
    answer = broker.ask(Settle(member, broker.request(), items))
    assert statuses(answer) == [
        (Status.OK, Outcome.SETTLED),
        (Status.LEASE_LOST, Outcome.SETTLED),
        (Status.OK, Outcome.REQUEUED),
        (Status.OK, Outcome.DEAD_LETTERED),
    ]


def test_an_answer_that_waits_for_the_disk_comes_when_the_frame_is_stored() -> None:
    broker, member, lease = a_broker_with_five_leased()
    items = (SettleItem(lease, SettleAction.ACK, 0, 4),)
    assert broker.ask(Settle(member, broker.request(), items, True)) is None
    assert broker.stored_lsn < broker.state.durable.lsn
    broker.store()


def test_extending_goes_no_further_than_the_longest_lease() -> None:
    broker = Broker()
    broker.create("t", config=TopicConfig(lease_ms=10_000, lease_max_ms=15_000))
    member = broker.consumer("t", "g")
    broker.publish("t")
    granted_ms = broker.mono_ms
    broker.settle(member, SettleAction.EXTEND, held(broker), 0, delay_ms=60_000)
    assert broker.state.live.leases[held(broker)].deadline_ms == granted_ms + 15_000


def test_extending_never_brings_a_deadline_nearer() -> None:
    broker, member, lease = a_broker_with_five_leased()
    before = broker.state.live.leases[lease].deadline_ms
    broker.settle(member, SettleAction.EXTEND, lease, 0, delay_ms=1)
    assert broker.state.live.leases[lease].deadline_ms == before


def test_a_lease_runs_out_at_its_deadline_and_not_before() -> None:
    broker, _, lease = a_broker_with_five_leased()
    broker.pass_time(29_990)
    assert lease in broker.state.live.leases
    broker.pass_time(10)
    assert lease not in broker.state.live.leases


def test_the_first_retry_is_immediate_and_goes_to_somebody_else() -> None:
    broker = Broker()
    first, second = broker.consumer("t", "g"), broker.consumer("t", "g")
    broker.publish("t")
    assert broker.got() == [(first, "t", 0)]
    broker.nack(first, held(broker), 0)
    assert broker.got() == [(second, "t", 0)]


def test_alone_a_member_gets_its_own_retry() -> None:
    broker, member, lease = a_broker_with_five_leased()
    broker.got()
    broker.nack(member, lease, 3)
    assert broker.got() == [(member, "t", 3)]


def test_later_retries_wait_longer_each_time() -> None:
    broker = Broker()
    broker.create("t", config=TopicConfig(max_retries=8))
    member = broker.consumer("t", "g")
    broker.publish("t")
    waited = []
    for _ in range(7):
        broker.nack(member, held(broker), 0)
        since_ms = broker.mono_ms
        while not broker.state.live.leases:
            broker.wake()
        waited.append(broker.mono_ms - since_ms)
    assert waited[0] == 0
    for wait_ms, base_ms in zip(waited[1:], (1_000, 2_000, 4_000, 8_000, 16_000, 32_000), strict=True):
        assert base_ms <= wait_ms <= base_ms * 1.2 + 10


def test_a_poison_message_takes_no_neighbour_to_the_dead_letters() -> None:
    broker = Broker()
    member = broker.consumer("t", "g")
    broker.publish("t", 16)
    for _ in range(40):
        for number, lease in ordered(broker.state.live.leases):
            for first, last in lease.ranges:
                if first <= 5 <= last:
                    broker.nack(member, number, first, last)
                else:
                    broker.ack(member, number, first, last)
        if broker.copies:
            break
        broker.wake()
    assert [copy.offset for copy in broker.copies] == [5]


def test_a_crash_is_no_failed_attempt() -> None:
    broker, _, _ = a_broker_with_five_leased()
    broker.crash(broker.stored_lsn)
    broker.taken()
    broker.consumer("t", "g")
    broker.heal_reads()
    assert [(each.ranges, each.attempt) for each in broker.taken()] == [(((0, 4),), 1)]


def test_attempts_that_failed_before_a_crash_are_remembered() -> None:
    broker, member, lease = a_broker_with_five_leased()
    broker.nack(member, lease, 1)
    broker.crash(broker.frames[-1][0])
    broker.taken()
    broker.consumer("t", "g")
    broker.heal_reads()
    attempts = {each.ranges[0][0]: each.attempt for each in broker.taken()}
    assert attempts == {0: 1, 2: 1, 1: 2}


def test_after_a_restart_nothing_that_was_settled_before_it_is_sent_again() -> None:
    broker = Broker()
    member = broker.consumer("t", "g")
    broker.publish("t", 6)
    broker.ack(member, held(broker), 2, 3)
    broker.crash(broker.frames[-1][0])
    member = broker.consumer("t", "g", credit=2)
    broker.heal_reads()
    broker.taken()
    broker.ack(member, held(broker), 0, 1)
    assert broker.got() == [(member, "t", 4), (member, "t", 5)]


def test_a_commit_takes_what_others_hold_below_it_and_tells_them() -> None:
    broker, member, lease = a_broker_with_five_leased()
    assert broker.commit("g", "t", 2) == Done()
    assert broker.state.live.leases[lease].ranges == ((2, 4),)
    effects = broker.step(Commit(broker.operator, broker.request(), "g", "t", 0, 5))
    assert LeaseEnded(member, lease) in effects


def test_a_commit_never_moves_the_floor_back() -> None:
    broker, _, _ = a_broker_with_five_leased()
    broker.commit("g", "t", 3)
    assert broker.commit("g", "t", 1) == Done()
    assert broker.state_of("g", "t", 2) == SETTLED


def test_a_commit_counts_what_was_settled_before_it_once() -> None:
    broker, member, lease = a_broker_with_five_leased()
    broker.ack(member, lease, 1, 2)
    broker.commit("g", "t", 5)
    assert broker.state.durable.cursors[1, 1].settled_count == 5


def test_a_commit_past_the_end_is_refused() -> None:
    broker, _, _ = a_broker_with_five_leased()
    answer = broker.commit("g", "t", 6)
    assert isinstance(answer, Refused)
    assert answer.status == Status.INVALID


def test_a_seek_is_answered_when_it_is_stored() -> None:
    broker, _, _ = a_broker_with_five_leased()
    request = broker.request()
    broker.step(Seek(broker.operator, request, "g", "t", 0, Whence.LATEST))
    assert [each.answer for _, line in ordered(broker.state.live.unsynced.waiting) for each in line.replies] == [
        Sought(5)
    ]
    broker.store()


def test_a_seek_outside_the_log_is_refused() -> None:
    broker, _, _ = a_broker_with_five_leased()
    assert isinstance(broker.seek("g", "t", 6), Refused)
    assert isinstance(broker.seek("g", "t", -1), Refused)


def test_a_seek_by_time_goes_where_the_store_found_it() -> None:
    broker, member, _ = a_broker_with_five_leased()
    broker.taken()
    broker.seek("g", "t", 123, Whence.TIME)
    broker.answer_find(3)
    assert broker.got() == [(member, "t", 3), (member, "t", 4)]


def test_a_seek_by_time_in_a_topic_that_went_meanwhile_is_refused() -> None:
    broker, _, _ = a_broker_with_five_leased()
    broker.seek("g", "t", 123, Whence.TIME)
    broker.delete("t", force=True)
    (refused,) = [each for each in broker.step(Found(broker.finds.pop().ticket, 3)) if hasattr(each, "answer")]
    assert isinstance(refused.answer, Refused)


def test_a_seek_back_while_older_batches_are_read_loses_nothing() -> None:
    broker, _, _ = a_broker_with_five_leased()
    broker.publish("t", 5)
    broker.commit("g", "t", 7)
    broker.crash(broker.frames[-1][0])
    broker.operator = broker.session()
    member = broker.consumer("t", "g")
    assert [read.from_offset for read in broker.reads] == [7]
    broker.taken()
    broker.seek("g", "t", 0)
    broker.heal_reads()
    assert broker.got() == [(member, "t", offset) for offset in range(10)]


@pytest.mark.parametrize(
    ("group", "topic", "partition", "status"),
    [
        ("x", "t", 0, Status.NOT_FOUND),
        ("g", "x", 0, Status.NOT_FOUND),
        ("g", "t..", 0, Status.INVALID),
        ("g", "t", 1, Status.INVALID),
        ("g", "u", 0, Status.GROUP_ERROR),
    ],
)
def test_a_place_that_is_not_there_can_not_be_moved(group: str, topic: str, partition: int, status: Status) -> None:
    broker, _, _ = a_broker_with_five_leased()
    broker.create("u")
    for request in (
        Seek(broker.operator, broker.request(), group, topic, partition, Whence.EARLIEST),
        Commit(broker.operator, broker.request(), group, topic, partition, 0),
    ):
        answer = broker.ask(request)
        assert isinstance(answer, Refused)
        assert answer.status == status
