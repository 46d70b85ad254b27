"""Topics: made on first use, listed, deleted and made again, trimmed; and publishing to them."""

from __future__ import annotations

import pytest

from dovetail.core.codes import Acks, SettleAction, Status
from dovetail.core.effects import Appended, LogInfo, Refused, Reply, TopicInfo, Topics
from dovetail.core.inputs import Ask, CreateTopic, ListTopics, Publish, Stored, Subscribe, TrimLog, Written
from dovetail.core.names import HEALTH
from dovetail.core.records import SyncPolicy, TopicConfig
from dovetail.core.state import Settings, TopicRule
from tests.core.broker import Broker
from tests.core.running import Running


def publish(broker: Broker, topic: str, partition: int = -1, acks: int = Acks.STORED, delay_ms: int = 0) -> Publish:
    request = broker.request()
    return Publish(topic, partition, request, 1, 100, (Ask(broker.operator, request, 0, 1),), acks, delay_ms)


def test_a_batch_is_confirmed_when_its_frame_is_stored_and_not_before() -> None:
    broker = Broker()
    assert broker.ask(publish(broker, "t")) is None
    (reply,) = broker.step(Stored(broker.frames[-1][0]))
    assert isinstance(reply, Reply)
    assert isinstance(reply.answer, Appended)
    assert (reply.answer.topic, reply.answer.partition, reply.answer.offset) == ("t", 0, 0)


def test_a_topic_that_asks_for_no_sync_confirms_when_written() -> None:
    broker = Broker()
    broker.create("t", config=TopicConfig(sync=SyncPolicy.OS))
    broker.step(publish(broker, "t"))
    (reply,) = broker.step(Written(broker.frames[-1][0]))
    assert isinstance(reply, Reply)


def test_who_wants_no_confirmation_gets_none() -> None:
    broker = Broker()
    broker.step(publish(broker, "t", acks=Acks.NONE))
    assert broker.step(Stored(broker.frames[-1][0])) == ()


def test_durability_arrives_in_steps() -> None:
    broker = Broker()
    broker.step(publish(broker, "t"))
    middle = broker.frames[-1][0]
    broker.step(publish(broker, "t"))
    assert len(broker.step(Stored(middle))) == 1
    assert len(broker.step(Stored(middle))) == 0
    assert len(broker.step(Stored(middle + 1))) == 1


def test_a_topic_gets_what_its_pattern_says_when_it_is_made_and_keeps_it() -> None:
    rules = (TopicRule("logs.#", (("retention_ms", 5), ("sync", 2))), TopicRule("logs.audit", (("retention_ms", 9),)))
    broker = Running(Settings(topic_rules=rules))
    for name in ("orders", "logs/web", "logs.audit", "logs.web.dlq"):
        broker.publish(name, "x")
    durable = broker.node.state.durable
    configs = {name: durable.topics[number].config for name, number in durable.topics_by_name.items()}
    assert configs == {
        "orders": TopicConfig(),
        "logs.web": TopicConfig(retention_ms=5, sync=SyncPolicy.OS),
        "logs.audit": TopicConfig(retention_ms=9, sync=SyncPolicy.OS),
        "logs.web.dlq": TopicConfig(),
    }


def test_the_brokers_own_topics_are_made_although_there_are_as_many_as_there_may_be() -> None:
    broker = Running(Settings(topics_max=1))
    reader = broker.consumer()
    reader.subscribe("t", "g")
    broker.publish("t", "x")
    assert isinstance(broker.publish("t", "later", delay_ms=60_000), Appended)
    assert isinstance(broker.publish(HEALTH, "ping"), Appended)
    reader.settle(SettleAction.REJECT)
    assert "t.dlq" in broker.node.state.durable.topics_by_name


def test_what_is_removed_for_good_counts_as_expired_for_its_own_group_and_log() -> None:
    broker = Running()
    broker.publish("first", "x", "y", "z")
    broker.consumer("earlier").subscribe("other", "earlier")
    broker.publish("t", *"abcde")
    broker.consumer().subscribe("t", "g")
    durable = broker.node.state.durable
    group, log = durable.groups_by_name["g"], durable.topics[durable.topics_by_name["t"]].first_log
    assert group != log
    broker.ask(lambda me, number: TrimLog(log, 0, hard_start=3))
    assert broker.node.state.durable.logs[log].start == 3
    assert broker.node.state.durable.cursors[group, log].floor == 3


@pytest.mark.parametrize(("topic", "partition"), [("a..b", -1), ("t", 1), ("a b", 0), ("", -1)])
def test_a_refused_batch_changes_nothing(topic: str, partition: int) -> None:
    broker = Broker()
    before = broker.state
    answer = broker.ask(publish(broker, topic, partition))
    assert isinstance(answer, Refused)
    assert answer.status == Status.INVALID
    assert broker.state == before


def test_topics_are_not_made_on_first_use_where_that_is_switched_off() -> None:
    broker = Broker(Settings(auto_create=False))
    answer = broker.ask(publish(broker, "t"))
    assert isinstance(answer, Refused)
    assert answer.status == Status.NOT_FOUND
    assert broker.ask(Subscribe(broker.operator, broker.request(), "t", "", 0, False)) is not None
    assert not broker.state.durable.topics


def test_there_are_only_so_many_topics() -> None:
    broker = Broker(Settings(topics_max=1))
    broker.publish("t")
    for request in (
        publish(broker, "u"),
        CreateTopic(broker.operator, broker.request(), "u", 1, 0, TopicConfig()),
        Subscribe(broker.operator, broker.request(), "u", "g", 0, False),
    ):
        answer = broker.ask(request)
        assert isinstance(answer, Refused)
        assert answer.status == Status.QUOTA
    assert not broker.state.durable.groups


@pytest.mark.parametrize(
    ("topic", "partitions", "lanes", "status"),
    [
        ("a b", 1, 0, Status.INVALID),
        ("t", 1, 0, Status.EXISTS),
        ("u", 0, 0, Status.INVALID),
        ("u", 1, 3, Status.INVALID),
    ],
)
def test_a_topic_that_can_not_be_is_refused(topic: str, partitions: int, lanes: int, status: Status) -> None:
    broker = Broker()
    broker.publish("t")
    answer = broker.ask(CreateTopic(broker.operator, broker.request(), topic, partitions, lanes, TopicConfig()))
    assert isinstance(answer, Refused)
    assert answer.status == status


def test_slashes_and_dots_name_the_same_topic() -> None:
    broker = Broker()
    broker.publish("a/b")
    broker.publish("a.b")
    assert broker.state.durable.logs[1].end == 2


def test_messages_without_a_partition_are_spread_over_all() -> None:
    broker = Broker()
    broker.create("t", 3)
    for _ in range(9):
        broker.publish("t")
    assert [broker.state.durable.logs[log].end for log in (1, 2, 3)] == [3, 3, 3]


def test_a_list_shows_what_is_stored() -> None:
    broker = Broker()
    broker.publish("t", 2)
    broker.step(publish(broker, "t"))
    answer = broker.ask(ListTopics(broker.operator, broker.request(), ""))
    assert answer == Topics((TopicInfo("t", (LogInfo(0, 0, 0, 2),)),))
    assert isinstance(broker.ask(ListTopics(broker.operator, broker.request(), "#.a")), Refused)


def test_a_topic_with_subscribers_is_deleted_by_force_only() -> None:
    broker = Broker()
    broker.consumer("t", "g")
    answer = broker.delete("t")
    assert isinstance(answer, Refused)
    assert answer.status == Status.EXISTS
    broker.delete("t", force=True)
    assert not broker.state.durable.topics
    assert not broker.state.durable.cursors


def test_a_topic_that_is_made_again_goes_on_from_its_old_end() -> None:
    broker = Broker()
    broker.publish("t", 3)
    broker.delete("t")
    broker.consumer("t", "g")
    broker.publish("t", 2)
    assert [offset for _, _, offset in broker.got()] == [3, 4]


def test_with_another_number_of_partitions_every_one_goes_on_from_the_highest_end() -> None:
    broker = Broker()
    broker.publish("t", 3)
    broker.delete("t")
    broker.create("t", 2)
    assert [broker.state.durable.logs[log].start for log in (2, 3)] == [3, 3]


def test_what_waits_to_be_stored_of_a_deleted_topic_is_still_confirmed() -> None:
    broker = Broker()
    broker.step(publish(broker, "t"))
    broker.delete("t")
    assert len(broker.step(Stored(broker.frames[-1][0]))) == 2


def test_deleting_what_is_not_there_is_refused() -> None:
    assert isinstance(Broker().delete("t"), Refused)


def test_retention_stops_at_the_floor_of_a_group() -> None:
    broker = Broker()
    member = broker.consumer("t", "g")
    broker.publish("t", 5)
    (lease,) = broker.state.live.leases
    broker.ack(member, lease, 0, 1)
    broker.trim(1, 4)
    assert broker.state.durable.logs[1].start == 2


def test_retention_never_reaches_past_what_is_stored() -> None:
    broker = Broker()
    broker.publish("t", 2)
    broker.step(publish(broker, "t"))
    broker.trim(1, 3)
    assert broker.state.durable.logs[1].start == 2


def test_a_trim_below_the_start_or_of_no_log_changes_nothing() -> None:
    broker = Broker()
    broker.publish("t", 2)
    broker.trim(1, 1)
    before = broker.state
    broker.trim(1, 0)
    broker.trim(9, 5)
    assert broker.state == before
