"""Acknowledged, given back, forgotten: what becomes of a delivery."""

from __future__ import annotations

import pytest

from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from tests.broker.conftest import Start
from tests.broker.house import House
from tests.broker.raw import ACK, DEAD_LETTERED, DROPPED, NACK, REQUEUED, ack, frame, nack

LEASE_MS = 200


@pytest.fixture
def hasty(start: Start) -> House:
    """A broker whose leases are short."""
    return start(settings=Settings(topic_defaults=TopicConfig(lease_ms=LEASE_MS)))


def bare(delivery_id: str) -> str:
    return delivery_id.rpartition("#")[0]


def test_an_acknowledged_message_is_over(broker: House) -> None:
    client = broker.client()
    client.subscribe("jobs", "workers")
    client.publish("jobs")
    delivery = client.delivery()
    assert client.ack(delivery.id) == 0
    refused = client.ask(ACK, ack(delivery.id))
    assert refused.status == 2
    assert delivery.id in refused.reason
    assert client.ask(NACK, nack(delivery.id)).status == 2


def test_a_bare_id_works_while_one_delivery_has_it(broker: House) -> None:
    client = broker.client()
    client.subscribe("jobs", "workers")
    message_id = client.publish("jobs")
    assert bare(client.delivery().id) == message_id
    assert client.ack(message_id) == 0
    assert client.ack(message_id) == 2


def test_acks_of_messages_that_never_came_are_not_found(broker: House) -> None:
    client, other = broker.client(), broker.client()
    other.subscribe("jobs", "workers")
    message_id = client.publish("jobs")
    for wrong in (message_id, f"{message_id}#1", "jobs:0:99", "jobs:0:99#7", "", "#", "nonsense", "jobs:0:0#-1"):
        refused = client.ask(ACK, ack(wrong))
        assert refused.status == 1, wrong
    assert other.ack(other.delivery().id) == 0


def test_a_delivery_number_with_another_messages_id_is_not_found(broker: House) -> None:
    client = broker.client()
    client.subscribe("jobs", "workers")
    client.publish("jobs")
    delivery = client.delivery()
    assert client.ask(ACK, ack("other:0:0#1")).status == 1
    assert client.ack(delivery.id) == 0


def test_an_ack_twice_in_one_write_succeeds_once(broker: House) -> None:
    client = broker.client()
    client.subscribe("jobs", "workers")
    client.publish("jobs")
    again = frame(ACK, ack(client.delivery().id))
    client.send(again + again)
    assert [client.answer().status for _ in range(2)] == [0, 2]


def test_a_message_given_back_goes_at_once_to_another_member(broker: House) -> None:
    team = [broker.client() for _ in range(3)]
    for client in team:
        client.subscribe("jobs", "workers")
    broker.client().publish("jobs", b"0")
    got = [client.so_far() for client in team]
    holder = next(client for client, found in zip(team, got, strict=True) if found)
    delivery = next(found[0] for found in got if found)
    assert holder.nack(delivery.id) == REQUEUED
    others = [client for client in team if client is not holder]
    again = [found for client in others for found in client.so_far()]
    assert [bare(each.id) for each in again] == [bare(delivery.id)]
    assert holder.ack(delivery.id) == 2, "it is somebody else's now"


def test_a_message_given_back_by_the_only_member_comes_back_to_it(broker: House) -> None:
    client = broker.client()
    client.subscribe("jobs", "workers")
    message_id = client.publish("jobs")
    first = client.delivery()
    assert client.nack(first.id) == REQUEUED
    second = client.delivery()
    assert (first.id, second.id) == (f"{message_id}#1", f"{message_id}#2")
    assert client.ack(first.id) == 2
    assert client.ack(message_id) == 0


def test_what_is_not_acknowledged_comes_again_at_its_deadline(hasty: House) -> None:
    first, second = hasty.client(), hasty.client()
    early_ms = []
    for turn in range(5):
        first.subscribe(f"jobs{turn}", f"g{turn}")
        message_id = first.publish(f"jobs{turn}", b"%d" % turn)
        delivery = first.delivery()
        second.subscribe(f"jobs{turn}", f"g{turn}")
        again = second.delivery()
        assert bare(again.id) == message_id
        assert again.value == delivery.value
        granted_ms = again.deadline_ms - LEASE_MS
        assert granted_ms >= delivery.deadline_ms - 1, "never before the deadline, but for a clock's last digit"
        early_ms.append(granted_ms - delivery.deadline_ms)
        late = first.ask(ACK, ack(delivery.id))
        assert late.status == 2
        assert second.ack(again.id) == 0
    assert min(early_ms) <= 100, "a busy machine may be late, but not each time"


def test_a_late_ack_of_an_earlier_delivery_is_refused_and_changes_nothing(hasty: House) -> None:
    client = hasty.client()
    client.subscribe("jobs", "workers")
    client.publish("jobs")
    first = client.delivery()
    second = client.delivery()
    refused = client.ask(ACK, ack(first.id))
    assert refused.status == 2
    assert first.id in refused.reason
    assert client.ack(second.id) == 0
    assert client.ack(bare(second.id)) == 2


def test_a_subscriber_without_a_group_is_sent_again_what_it_does_not_acknowledge(hasty: House) -> None:
    client = hasty.client()
    client.subscribe("jobs")
    message_id = client.publish("jobs")
    assert [bare(each.id) for each in client.deliveries(2)] == [message_id, message_id]


@pytest.mark.parametrize("topic", ["jobs", "j" * 240])
def test_a_message_that_is_not_wanted_again_goes_to_the_dead_letters(broker: House, topic: str) -> None:
    client, undertaker = broker.client(), broker.client()
    client.subscribe(topic, "workers")
    undertaker.subscribe(f"{topic}.dlq", "undertakers")
    message_id = client.publish(topic, b"bad", headers=(("k", "v"),))
    assert client.nack(client.delivery().id, reason=2, retry_requested=0) == DEAD_LETTERED
    dead = undertaker.delivery()
    assert (dead.topic, dead.value, dead.headers[0]) == (f"{topic}.dlq", b"bad", ("k", "v"))
    assert ("dovetail-id", message_id) in dead.headers
    assert ("dovetail-group", "workers") in dead.headers
    assert ("dovetail-reason", "poison") in dead.headers
    assert client.so_far() == []


@pytest.mark.parametrize("max_retries", [0, 1])
def test_a_message_is_dead_after_its_last_retry_failed(start: Start, max_retries: int) -> None:
    config = TopicConfig(max_retries=max_retries)
    client = start(settings=Settings(topic_defaults=config)).client()
    client.subscribe("jobs", "workers")
    client.subscribe("jobs.dlq", "undertakers")
    client.publish("jobs", b"bad")
    for attempt in range(max_retries + 1):
        expected = DEAD_LETTERED if attempt == max_retries else REQUEUED
        assert client.nack(client.delivery().id) == expected
    dead = client.delivery()
    assert (dead.topic, dead.value) == ("jobs.dlq", b"bad")
    assert ("dovetail-attempts", str(max_retries + 1)) in dead.headers


def test_a_deadline_missed_on_the_last_attempt_is_a_death_too(start: Start) -> None:
    config = TopicConfig(max_retries=1, lease_ms=50)
    client = start(settings=Settings(topic_defaults=config)).client()
    client.subscribe("jobs", "workers")
    client.subscribe("jobs.dlq", "undertakers", auto_ack=1)
    client.publish("jobs", b"slow")
    dead = client.deliveries(3)[-1]
    assert (dead.topic, dead.value) == ("jobs.dlq", b"slow")
    assert ("dovetail-reason", "timeout") in dead.headers


def test_one_poison_message_takes_no_neighbour_with_it(start: Start) -> None:
    client = start(settings=Settings(topic_defaults=TopicConfig(max_retries=1))).client()
    client.subscribe("jobs", "workers")
    client.subscribe("jobs.dlq", "undertakers")
    client.publish_all("jobs", [b"%d" % number for number in range(20)])
    acked = []
    while True:
        delivery = client.delivery()
        if delivery.topic == "jobs.dlq":
            break
        if delivery.value == b"7":
            client.nack(delivery.id, reason=2)
        else:
            assert client.ack(delivery.id) == 0
            acked.append(int(delivery.value))
    assert delivery.value == b"7"
    acked += [int(each.value) for each in client.so_far()]
    assert sorted(acked) == [number for number in range(20) if number != 7]


def test_a_dead_letter_that_dies_is_dropped(broker: House) -> None:
    client = broker.client()
    client.subscribe("jobs.dlq", "undertakers")
    client.publish("jobs.dlq")
    assert client.nack(client.delivery().id, retry_requested=0) == DROPPED


def test_reasons_that_are_not_known_are_taken_as_unspecified(broker: House) -> None:
    client = broker.client()
    client.subscribe("jobs", "workers")
    client.publish("jobs")
    assert client.nack(client.delivery().id, reason=200) == REQUEUED


def test_a_lost_connection_is_no_failed_attempt(start: Start) -> None:
    broker = start(settings=Settings(topic_defaults=TopicConfig(max_retries=0)))
    broker.client().publish("jobs", b"0")
    for _ in range(4):
        with broker.client() as client:
            client.subscribe("jobs", "workers")
            assert client.delivery().value == b"0"
    survivor = broker.client()
    survivor.subscribe("jobs", "workers")
    assert survivor.ack(survivor.delivery().id) == 0
