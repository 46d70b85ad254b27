"""Dead letters: the copy and the settling of the original are one, and a dead letter does not die again."""

from __future__ import annotations

import pytest

from dovetail.core import stories
from dovetail.core.codes import NackReason, Outcome, SettleAction
from dovetail.core.effects import Settlement
from dovetail.core.inputs import Copied, Settle, SettleItem
from dovetail.core.leases import DYING_MAX
from dovetail.core.records import BatchAppended, DeadLettered, FailReason, TopicConfig, TopicCreated
from dovetail.core.stories import Attempt
from tests.core.broker import DYING, PENDING, SETTLED, Broker


def a_dying_message() -> tuple[Broker, int]:
    broker = Broker()
    member = broker.consumer("t", "g")
    broker.publish("t", 3)
    (lease,) = broker.state.live.leases
    broker.reject(member, lease, 1)
    return broker, member


def test_a_rejected_message_is_copied_with_its_story() -> None:
    broker, _ = a_dying_message()
    (copy,) = broker.copies
    story = dict(copy.headers)
    assert copy.offset == 1
    assert (story["dovetail-topic"], story["dovetail-offset"], story["dovetail-group"]) == ("t", "1", "g")
    assert (story["dovetail-attempts"], story["dovetail-reason"]) == ("1", "rejected")


def test_the_copy_and_the_settling_of_the_original_are_one_frame() -> None:
    broker, _ = a_dying_message()
    assert broker.state_of("g", "t", 1) == DYING
    broker.answer_copy()
    kinds = [type(record) for record in broker.frames[-1][2]]
    assert kinds == [TopicCreated, BatchAppended, DeadLettered]
    assert broker.state_of("g", "t", 1) == SETTLED
    assert broker.state.durable.cursors[1, 1].dead_count == 1


def test_the_dead_letters_can_be_read() -> None:
    broker, _ = a_dying_message()
    broker.answer_copy()
    broker.store()
    broker.taken()
    reader = broker.consumer("*.dlq", "undertaker")
    assert broker.got() == [(reader, "t.dlq", 0)]


def test_the_second_dead_letter_goes_to_the_same_topic() -> None:
    broker, member = a_dying_message()
    broker.answer_copy()
    (lease,) = broker.state.live.leases
    broker.reject(member, lease, 2)
    broker.answer_copy()
    assert [type(record) for record in broker.frames[-1][2]] == [BatchAppended, DeadLettered]


def test_a_message_that_was_dying_at_a_crash_dies_again() -> None:
    broker, _ = a_dying_message()
    broker.crash(broker.frames[-1][0])
    assert broker.state_of("g", "t", 1) == PENDING
    broker.consumer("t", "g")
    broker.heal_reads()
    assert [copy.offset for copy in broker.copies] == [1]
    broker.answer_copy()
    assert broker.state_of("g", "t", 1) == SETTLED


def test_what_was_committed_meanwhile_makes_no_dead_letter() -> None:
    broker, _ = a_dying_message()
    broker.commit("g", "t", 3)
    broker.answer_copy()
    assert "t.dlq" not in broker.state.durable.topics_by_name


def test_what_was_sought_again_meanwhile_makes_no_dead_letter() -> None:
    broker, _ = a_dying_message()
    broker.seek("g", "t", 0)
    broker.answer_copy()
    assert "t.dlq" not in broker.state.durable.topics_by_name
    assert broker.state_of("g", "t", 1) == "leased"


def test_a_copy_for_a_topic_that_is_gone_is_ignored() -> None:
    broker, _ = a_dying_message()
    broker.delete("t", force=True)
    broker.answer_copy()
    assert not broker.state.durable.topics


def test_an_original_that_is_gone_from_disk_is_expired() -> None:
    broker, _ = a_dying_message()
    broker.step(Copied(broker.copies.pop().ticket, 0, 0))
    assert broker.state_of("g", "t", 1) == SETTLED
    assert broker.state.durable.cursors[1, 1].expired_count == 1


def test_a_copy_nobody_asked_for_is_ignored() -> None:
    broker = Broker()
    before = broker.state
    broker.step(Copied(7, 7, 100))
    assert broker.state == before


def test_a_dead_letter_that_fails_is_dropped() -> None:
    broker = Broker()
    member = broker.consumer("t.dlq", "g")
    broker.publish("t.dlq")
    (lease,) = broker.state.live.leases
    answer = broker.reject(member, lease, 0)
    assert isinstance(answer, Settlement)
    assert answer.results[0][1] == Outcome.DROPPED
    assert not broker.copies
    assert broker.state_of("g", "t.dlq", 0) == SETTLED


def test_a_topic_may_do_without_dead_letters() -> None:
    broker = Broker()
    broker.create("t", config=TopicConfig(max_retries=0, dead_letters=False))
    member = broker.consumer("t", "g")
    broker.publish("t")
    (lease,) = broker.state.live.leases
    broker.nack(member, lease, 0)
    assert not broker.copies
    assert broker.state_of("g", "t", 0) == SETTLED


def test_a_subscriber_without_a_group_has_dead_letters_too() -> None:
    broker = Broker()
    session = broker.consumer("t")
    broker.publish("t")
    (lease,) = broker.state.live.leases
    broker.reject(session, lease, 0)
    broker.answer_copy()
    assert broker.state.durable.logs[2].end == 1


def a_message_called_poison_twice() -> Broker:
    broker = Broker()
    members = [broker.consumer("t", "g"), broker.consumer("t", "g")]
    broker.publish("t")
    for member in members:
        (lease,) = broker.state.live.leases
        item = SettleItem(lease, SettleAction.NACK, 0, 0, NackReason.POISON)
        broker.ask(Settle(member, broker.request(), (item,)))
    return broker


def test_what_two_members_call_poison_dies_although_tries_are_left() -> None:
    broker = a_message_called_poison_twice()
    (copy,) = broker.copies
    assert dict(copy.headers)["dovetail-reason"] == "poison"


def test_what_was_called_poison_before_a_crash_is_not_tried_again_after_it() -> None:
    broker = a_message_called_poison_twice()
    broker.crash(broker.frames[-1][0])
    broker.taken()
    broker.consumer("t", "g")
    broker.heal_reads()
    assert broker.taken() == []
    assert [copy.offset for copy in broker.copies] == [0]


@pytest.mark.parametrize(
    ("config", "reasons", "called"),
    [
        (TopicConfig(), "PP", "called poison by 2 members"),
        (TopicConfig(), "PT", ""),
        (TopicConfig(poison_members=0), "PP", ""),
        (TopicConfig(), "TTTT", ""),
        (TopicConfig(poison_timeouts=2), "T", ""),
        (TopicConfig(poison_timeouts=2), "UTU", ""),
        (TopicConfig(poison_timeouts=2), "TT", "timed out at 2 members"),
        (TopicConfig(poison_failures=3, poison_window_ms=10), "UUU", "failed 3 times within 10 ms"),
        (TopicConfig(poison_failures=3, poison_window_ms=9), "UUU", ""),
    ],
)
def test_a_message_is_poison_by_the_rules_its_topic_has(config: TopicConfig, reasons: str, called: str) -> None:
    kinds = {"P": FailReason.POISON, "T": FailReason.TIMEOUT, "U": FailReason.UNSPECIFIED}
    story = tuple(Attempt(f"member {number}", 0, number, kinds[each], "") for number, each in enumerate(reasons))
    assert stories.poison_rule(story, config, 10) == called


def with_expired(count: int, *, to_dead_letters: bool = True) -> Broker:
    broker = Broker()
    broker.create("t", config=TopicConfig(expired_to_dead_letters=to_dead_letters))
    broker.publish("t", count, ttl_ms=1_000)
    broker.pass_time(2_000)
    broker.consumer("t", "g")
    return broker


def test_what_expired_goes_to_the_dead_letters_where_its_topic_says_so() -> None:
    broker = with_expired(2)
    stories_told = [dict(copy.headers) for copy in broker.copies]
    assert [copy.offset for copy in broker.copies] == [0, 1]
    assert {story["dovetail-reason"] for story in stories_told} == {"expired"}
    assert {story["dovetail-attempts"] for story in stories_told} == {"0"}
    while broker.copies:
        broker.answer_copy()
    assert [broker.state_of("g", "t", offset) for offset in (0, 1)] == [SETTLED, SETTLED]
    assert broker.state.durable.cursors[1, 1].dead_count == 2


def test_what_expired_is_dropped_otherwise() -> None:
    broker = with_expired(2, to_dead_letters=False)
    assert not broker.copies
    assert broker.state.durable.cursors[1, 1].expired_count == 2


def test_a_retry_that_expires_tells_of_its_attempts() -> None:
    broker = Broker()
    broker.create("t", config=TopicConfig(expired_to_dead_letters=True))
    member = broker.consumer("t", "g")
    broker.publish("t", 1, ttl_ms=1_000)
    broker.store()
    (lease,) = broker.state.live.leases
    broker.nack(member, lease, 0, delay_ms=2_000)
    broker.pass_time(2_500)
    (copy,) = broker.copies
    assert (dict(copy.headers)["dovetail-reason"], dict(copy.headers)["dovetail-attempts"]) == ("expired", "1")


def test_so_many_expired_messages_are_on_their_way_to_the_dead_letters_at_once_and_no_more() -> None:
    broker = with_expired(2_500)
    assert len(broker.copies) == len(broker.state.live.dying) == DYING_MAX
    while broker.copies:
        broker.answer_copy()
        assert len(broker.state.live.dying) <= DYING_MAX
    assert broker.state.durable.cursors[1, 1].dead_count == 2_500
