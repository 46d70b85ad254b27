"""Who gets what next: fair shares, order, credit, and reading older batches."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.codes import SettleAction
from dovetail.core.effects import Deliver, Overtaken
from dovetail.core.ids import Now
from dovetail.core.inputs import Loaded, Publish, Sent, SetCredit
from dovetail.core.kernels import LANES
from dovetail.core.records import EntryFlag
from dovetail.core.state import TAIL_BATCHES_MAX, BatchMeta, Settings
from dovetail.core.step import step
from tests.core.broker import Broker
from tests.core.running import Running
from tests.depth import DEPTH


def parts_of(total: int) -> st.SearchStrategy[list[int]]:
    """Ways to cut `total` messages into batches."""
    cuts = st.sets(st.integers(1, total - 1))
    return cuts.map(lambda at: [b - a for a, b in zip([0, *sorted(at)], [*sorted(at), total], strict=True)])


@given(parts_of(9), st.lists(st.tuples(st.sampled_from(("t.a", "t.b")), st.integers(0, 1)), min_size=9, max_size=9))
@settings(max_examples=60 * DEPTH, deadline=None)
def test_nine_messages_for_three_members_are_three_each(batches: list[int], places: list[tuple[str, int]]) -> None:
    broker = Broker()
    broker.create("t.a", 2)
    broker.create("t.b", 2)
    members = [broker.consumer("t.*", "g") for _ in range(3)]
    for count, (topic, partition) in zip(batches, places, strict=False):
        broker.publish(topic, count, partition)
    assert Counter(session for session, _, _ in broker.got()) == dict.fromkeys(members, 3)


@given(parts_of(9))
@settings(max_examples=30 * DEPTH, deadline=None)
def test_a_backlog_of_nine_for_three_members_with_credit_for_three_is_three_each(batches: list[int]) -> None:
    broker = Broker()
    for count in batches:
        broker.publish("t", count)
    members = [broker.consumer("t", "g", credit=3) for _ in range(3)]
    assert Counter(session for session, _, _ in broker.got()) == dict.fromkeys(members, 3)


def test_the_ring_is_in_order_of_member_names_and_goes_on_where_it_stopped() -> None:
    broker = Broker()
    late, early = broker.consumer("t", "g", name="z"), broker.consumer("t", "g", name="a")
    for _ in range(4):
        broker.publish("t")
    assert [session for session, _, _ in broker.got()] == [early, late, early, late]


def test_who_has_no_credit_is_skipped() -> None:
    broker = Broker()
    small, large = broker.consumer("t", "g", credit=1, name="a"), broker.consumer("t", "g", name="b")
    broker.publish("t", 4)
    assert Counter(session for session, _, _ in broker.got()) == {small: 1, large: 3}


def test_when_everyone_is_full_messages_wait_and_go_out_with_the_next_credit() -> None:
    broker = Broker()
    member = broker.consumer("t", "g", credit=2)
    broker.publish("t", 5)
    assert len(broker.got()) == 2
    broker.ack_everything(member)
    assert broker.got() == [(member, "t", 2), (member, "t", 3)]


def test_more_credit_lets_more_out_at_once() -> None:
    broker = Broker()
    member = broker.consumer("t", "g", credit=1)
    broker.publish("t", 5)
    broker.taken()
    broker.step(SetCredit(member, broker.request(), 1, 4))
    assert broker.got() == [(member, "t", 1), (member, "t", 2), (member, "t", 3)]


def test_logs_that_wait_for_credit_take_turns() -> None:
    broker = Broker()
    broker.create("t", 2)
    member = broker.consumer("t", "g", credit=1)
    for partition in (0, 1):
        broker.publish("t", 9, partition)
    order = []
    for _ in range(7):
        order += [each.partition for each in broker.taken()]
        broker.ack_everything(member)
    assert order == [0, 0, 1, 0, 1, 0, 1]


def test_first_deliveries_come_in_order_across_batches() -> None:
    broker = Broker()
    member = broker.consumer("t", "g", credit=3)
    for count in (2, 1, 3, 1):
        broker.publish("t", count)
    seen = []
    while got := broker.got():
        seen += [offset for _, _, offset in got]
        broker.ack_everything(member)
    assert seen == list(range(7))


def test_what_is_due_for_another_try_comes_before_fresh_messages() -> None:
    broker = Broker()
    member = broker.consumer("t", "g", credit=1)
    broker.publish("t", 3)
    (lease,) = broker.state.live.leases
    broker.taken()
    broker.nack(member, lease, 0)
    assert broker.got() == [(member, "t", 0)]


def test_every_subscriber_without_a_group_gets_every_message() -> None:
    broker = Broker()
    one, two = broker.consumer("t"), broker.consumer("t")
    broker.publish("t", 2)
    assert sorted(broker.got()) == [(one, "t", 0), (one, "t", 1), (two, "t", 0), (two, "t", 1)]


def test_a_session_that_matches_through_several_patterns_gets_one_copy_under_the_oldest() -> None:
    broker = Broker()
    session = broker.session()
    oldest = broker.subscribe(session, "a.*")
    broker.subscribe(session, "a.#")
    broker.subscribe(session, "a.b")
    broker.publish("a.b")
    assert [(each.session, each.subscription) for each in broker.taken()] == [(session, oldest)]


def test_a_session_reads_from_now_on_and_a_group_from_the_start() -> None:
    broker = Broker()
    broker.publish("t", 2)
    alone, member = broker.consumer("t"), broker.consumer("t", "g")
    broker.publish("t")
    assert sorted(broker.got()) == [(alone, "t", 2), (member, "t", 0), (member, "t", 1), (member, "t", 2)]


def test_what_needs_no_acknowledgment_is_settled_as_it_is_sent_and_returns_credit_when_it_left() -> None:
    broker = Broker()
    member = broker.consumer("t", "g", credit=2, auto_ack=True)
    broker.publish("t", 5)
    assert [each.lease for each in broker.taken()] == [0]
    broker.step(Sent(*broker.unsent.pop()))
    assert broker.got() == [(member, "t", 2), (member, "t", 3)]


def test_a_publisher_may_say_that_no_acknowledgment_is_needed() -> None:
    broker = Broker()
    broker.consumer("t", "g")
    broker.publish("t", flags=EntryFlag.NO_ACK)
    assert [(each.lease, each.deadline_ms) for each in broker.taken()] == [(0, 0)]
    assert broker.state_of("g", "t", 0) == "settled"


def test_nothing_is_sent_before_it_is_stored() -> None:
    broker = Broker()
    member = broker.consumer("t", "g")
    broker.step(Publish("t", -1, 1, 1, 100, ()))
    assert broker.taken() == []
    broker.store()
    assert broker.got() == [(member, "t", 0)]


def test_what_is_past_its_time_to_live_is_never_sent() -> None:
    broker = Broker()
    member = broker.consumer("t", "g", credit=1)
    broker.publish("t")
    broker.publish("t", ttl_ms=1_000)
    broker.publish("t")
    broker.taken()
    broker.pass_time(1_000)
    broker.ack_everything(member)
    assert broker.got() == [(member, "t", 2)]
    assert broker.state.durable.cursors[1, 1].expired_count == 1


def a_broker_with_a_long_backlog() -> Broker:
    broker = Broker()
    for _ in range(TAIL_BATCHES_MAX + 5):
        broker.publish("t")
    return broker


def test_what_the_tail_does_not_know_is_asked_for_once() -> None:
    broker = a_broker_with_a_long_backlog()
    member = broker.consumer("t", "g", credit=10)
    assert [read.from_offset for read in broker.reads] == [0]
    broker.publish("t")
    assert len(broker.reads) == 1
    broker.answer_read()
    assert broker.got() == [(member, "t", offset) for offset in range(4)]
    assert [read.from_offset for read in broker.reads] == [4]


def test_what_is_gone_from_the_store_is_passed_over() -> None:
    broker = a_broker_with_a_long_backlog()
    broker.consumer("t", "g")
    (read,) = broker.reads
    answer = Loaded(read.owner, read.log, (BatchMeta(3, 3, 100, 0, 0),))
    # Not told to the model, whose store never loses anything.
    state, _, effects = step(broker.state, Now(broker.mono_ms, broker.wall_ms), (answer,))
    assert [each.ranges for each in effects if isinstance(each, Deliver)] == [((3, 3),)]
    assert state.durable.cursors[read.owner, read.log].expired_count == 3


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    broker = a_broker_with_a_long_backlog()
    broker.consumer("t", "g", credit=1)
    broker.answer_read()
    before = broker.state
    broker.step(Loaded(1, 1, ()))
    broker.step(Loaded(7, 7, ()))
    assert broker.state == before


@pytest.mark.parametrize("members", [1, 2, 3])
def test_a_large_batch_is_dealt_in_whole_batches_where_that_is_close_to_fair(members: int) -> None:
    broker = Broker()
    sessions = [broker.consumer("t", "g", credit=1_000) for _ in range(members)]
    broker.publish("t", 60)
    counts = Counter(session for session, _, _ in broker.got())
    assert set(counts) == set(sessions)
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(("batch", "dealt"), [(8, 10), (9, 9), (10, 10)])
def test_a_share_is_cut_back_to_whole_batches_unless_that_takes_more_than_an_eighth_of_it(
    batch: int, dealt: int
) -> None:
    broker = Running()
    for _ in range(2):
        broker.publish("t", *["x"] * batch)
    reader = broker.consumer()
    reader.subscribe("t", "g", credit=10)
    assert reader.held[0].ranges == ((0, dealt - 1),)


def test_batches_that_are_alike_go_out_in_one_lease() -> None:
    broker = Running()
    for _ in range(4):
        broker.publish("t", "x", "x")
    reader = broker.consumer()
    reader.subscribe("t", "g", credit=100)
    assert [each.ranges for each in reader.held] == [((0, 7),)]


@pytest.mark.parametrize(("lanes", "named"), [(0, -1), (LANES, 2)])
def test_a_reader_that_is_too_far_behind_is_told_what_it_will_not_get(lanes: int, named: int) -> None:
    broker = Running(Settings(session_timeout_ms=1 << 50, ephemeral_lag_max=10))
    broker.create("t", lanes=lanes)
    reader = broker.consumer()
    reader.subscribe("t", credit=1)
    for _ in range(30):
        broker.publish("t", "x")
    told = [each for each in broker.effects if isinstance(each, Overtaken)]
    assert {(each.session, each.topic, each.lane) for each in told} == {(reader.local.session, "t", named)}
    assert reader.local.overtaken_count == sum(each.last - each.first + 1 for each in told) > 0
    while reader.held:
        reader.settle(SettleAction.ACK)
    assert len(reader.texts) == 30 - reader.local.overtaken_count
