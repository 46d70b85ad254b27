"""Publishing and fan-out, as a client on a plain socket sees them."""

from __future__ import annotations

import base64
import json
import struct
import time
import urllib.request

import pytest

from dovetail.core import batch
from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from tests.broker import raw
from tests.broker.conftest import Start
from tests.broker.house import House
from tests.broker.raw import PRODUCE, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, Raw, frame, publish, subscribe, text


def stored(broker: House, topic: str) -> list[bytes]:
    """What the broker keeps of a topic, oldest first."""
    url = f"http://127.0.0.1:{broker.http_port}/v1/topics/{topic}/messages?limit=1000"
    with urllib.request.urlopen(url, timeout=20) as answer:
        return [base64.b64decode(each["value"]) for each in json.load(answer)["messages"]]


def test_a_confirm_has_the_position_of_the_message_and_the_time_of_its_arrival(broker: House) -> None:
    client = broker.client()
    before_ms = time.time_ns() // 1_000_000
    fields = client.done(PUBLISH, publish("orders.created", b"one"))
    assert fields.text() == "orders.created:0:0"
    assert before_ms <= fields.number(8) <= time.time_ns() // 1_000_000
    fields.end()
    assert client.publish("orders.created", b"two") == "orders.created:0:1"


def test_every_subscriber_without_a_group_gets_every_message(broker: House) -> None:
    first, second, publisher = broker.client(), broker.client(), broker.client()
    subscriptions = [each.subscribe("news") for each in (first, second)]
    sent = [b"a", b"", bytes(range(256)) * 300]
    publisher.publish_all("news", sent)
    for each, subscription in zip((first, second), subscriptions, strict=True):
        got = each.deliveries(3)
        assert [delivery.value for delivery in got] == sent
        assert [delivery.id for delivery in got] == ["news:0:0#1", "news:0:1#2", "news:0:2#3"]
        assert {(delivery.subscription, delivery.topic) for delivery in got} == {(subscription, "news")}


def test_headers_arrive_as_they_were_sent(broker: House) -> None:
    client = broker.client()
    client.subscribe("news")
    headers = (("trace", "ü-✓"), ("empty", ""), ("trace", "again"))
    client.publish("news", b"x", headers=headers)
    assert client.delivery().headers == headers


def test_headers_of_a_batch_that_a_delivery_has_no_room_for_are_cut(broker: House) -> None:
    reader, producer = broker.client(), broker.client()
    reader.subscribe("news")
    wide = (("k" * 70_000, b"v"), ("many bytes", b"x" * 70_000), ("not text", b"\xff" * 70_000), ("fine", b"yes"))
    many = tuple((str(place), b"") for place in range(70_000))
    for headers in (wide, many):
        producer.done(PRODUCE, raw.produce("news", batch.build([(None, b"x", headers)], timestamp_ms=1)))
    name, long, not_text, fine = reader.delivery().headers
    assert (len(name[0]), name[1]) == (65_535, "v")
    assert long == ("many bytes", "x" * 65_535)
    assert not_text == ("not text", "\ufffd" * 21_845)
    assert fine == ("fine", "yes")
    assert len(reader.delivery().headers) == 65_535


def test_a_subscriber_without_a_group_gets_nothing_older_than_its_subscription(broker: House) -> None:
    client = broker.client()
    client.publish("news", b"old")
    client.subscribe("news")
    client.publish("news", b"new")
    assert [each.value for each in client.so_far()] == [b"new"]


def test_a_star_stands_for_exactly_one_level(broker: House) -> None:
    client = broker.client()
    client.subscribe("sensors.*.temperature")
    topics = "sensors.attic.temperature sensors.temperature sensors.a.b.temperature sensors.attic.humidity"
    for topic in topics.split():
        client.publish(topic)
    assert [each.topic for each in client.so_far()] == ["sensors.attic.temperature"]


def test_a_hash_stands_for_zero_or_more_levels_and_slashes_are_dots(broker: House) -> None:
    client = broker.client()
    client.subscribe("test/#")
    for topic in ("test", "test.a", "test/a/b", "testing", "other.test"):
        client.publish(topic)
    assert [each.topic for each in client.so_far()] == ["test", "test.a", "test.a.b"]


def test_who_matches_through_several_patterns_gets_one_copy_under_the_oldest(broker: House) -> None:
    client = broker.client()
    oldest = client.subscribe("a.#")
    for pattern in ("a.*", "a.b", "#"):
        client.subscribe(pattern)
    client.publish("a.b", b"x")
    client.publish("z", b"y")
    got = client.so_far()
    assert [each.value for each in got] == [b"x", b"y"]
    assert got[0].subscription == oldest
    assert got[1].subscription not in (oldest, got[0].subscription)


def test_the_next_oldest_pattern_takes_over_when_the_oldest_is_given_up(broker: House) -> None:
    client = broker.client()
    oldest, younger = client.subscribe("a.#"), client.subscribe("a.b")
    client.unsubscribe(oldest)
    client.publish("a.b", b"x")
    client.publish("a.c", b"y")
    assert [(each.subscription, each.value) for each in client.so_far()] == [(younger, b"x")]


def test_nothing_comes_after_unsubscribe(broker: House) -> None:
    client = broker.client()
    subscription = client.subscribe("news")
    client.publish("news", b"1")
    client.unsubscribe(subscription)
    client.publish("news", b"2")
    assert [each.value for each in client.so_far()] == [b"1"]
    assert client.ask(UNSUBSCRIBE, text(subscription)).status == 1
    assert client.ask(UNSUBSCRIBE, text("no number")).status == 1


def test_somebody_elses_subscription_cannot_be_given_up(broker: House) -> None:
    mine, other = broker.client(), broker.client()
    subscription = mine.subscribe("news")
    assert other.ask(UNSUBSCRIBE, text(subscription)).status == 1
    mine.publish("news", b"1")
    assert mine.delivery().value == b"1"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "empty"),
        ("a..b", "empty level"),
        (".a", "empty level"),
        ("a/", "empty level"),
        ("a b", "may hold only"),
        ("a.*", "may hold only"),
        ("a.#", "may hold only"),
        ("ä", "may hold only"),
        ("a" * 241, "240"),
    ],
)
def test_a_topic_name_that_is_not_one_is_refused_with_the_reason(broker: House, topic: str, reason: str) -> None:
    client = broker.client()
    refused = client.ask(PUBLISH, publish(topic))
    assert refused.status == 3
    assert reason in refused.reason
    assert client.publish("a" * 240) == "a" * 240 + ":0:0"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("", "empty"), ("a..b", "empty level"), ("#.a", "last"), ("a.b*", "alone"), ("a" * 241, "240")],
)
def test_a_pattern_that_is_not_one_is_refused_with_the_reason(broker: House, pattern: str, reason: str) -> None:
    refused = broker.client().ask(SUBSCRIBE, subscribe(pattern))
    assert refused.status == 1
    assert reason in refused.reason


def test_a_topic_that_nobody_made_is_not_found_where_topics_are_not_made_on_first_use(start: Start) -> None:
    client = start(settings=Settings(auto_create=False)).client()
    refused = client.ask(PUBLISH, publish("news"))
    assert refused.status == 1
    assert "news" in refused.reason


def test_a_message_over_the_limit_is_refused_and_one_at_the_limit_is_taken(start: Start) -> None:
    client = start(settings=Settings(message_bytes_max=1000)).client()
    assert client.ask(PUBLISH, publish("news", b"x" * 1001)).status == 11
    assert client.ask(PUBLISH, publish("news", b"", headers=(("k", "v" * 1000),))).status == 11
    assert client.publish("news", b"x" * 1000) == "news:0:0"


def test_a_frame_of_exactly_10_mib_is_read(broker: House) -> None:
    client = broker.client()
    shell = len(publish("news"))
    refused = client.ask(PUBLISH, publish("news", b"x" * ((10 << 20) - shell)))
    assert refused.status == 11
    assert client.publish("news") == "news:0:0"


def test_publishes_of_one_connection_keep_their_order_whatever_their_options(broker: House) -> None:
    client = broker.client()
    options = ((0, 1), (60, 1), (0, 0), (0, 1), (60, 1))
    spellings = ("a.b", "a/b")
    values = [b"%d" % number for number in range(40)]
    frames = []
    for number, value in enumerate(values):
        ttl_seconds, require_ack = options[number % len(options)]
        topic = spellings[number // 7 % 2]
        frames.append(frame(PUBLISH, publish(topic, value, ttl_seconds=ttl_seconds, require_ack=require_ack)))
        if number % 10 == 5:
            batch = raw.record_batch([b"batch %d" % number])
            frames.append(frame(raw.PRODUCE, raw.produce("a.b", batch)))
    client.send(b"".join(frames))
    assert all(client.answer().status == 0 for _ in frames)
    expected = []
    for number, value in enumerate(values):
        expected.append(value)
        if number % 10 == 5:
            expected.append(b"batch %d" % number)
    assert stored(broker, "a.b") == expected


def test_auto_ack_shows_as_a_deadline_of_0_and_frees_its_credit_when_sent(broker: House) -> None:
    client, publisher = broker.client(), broker.client()
    client.subscribe("jobs", "workers", max_inflight=2, auto_ack=1)
    publisher.publish_all("jobs", [b"%d" % number for number in range(20)])
    got = client.deliveries(20)
    assert [each.value for each in got] == [b"%d" % number for number in range(20)]
    assert {each.deadline_ms for each in got} == {0}


def test_what_was_sent_with_auto_ack_does_not_come_again(broker: House) -> None:
    with broker.client() as client:
        client.subscribe("jobs", "workers", auto_ack=1)
        client.publish("jobs", b"1")
        client.delivery()
    after = broker.client()
    after.subscribe("jobs", "workers")
    after.publish("jobs", b"2")
    assert after.delivery().value == b"2"


def test_a_message_that_requires_no_ack_is_settled_when_sent(broker: House) -> None:
    with broker.client() as client:
        client.subscribe("jobs", "workers")
        client.publish("jobs", b"1", require_ack=0)
        client.publish("jobs", b"2")
        loose, strict = client.deliveries(2)
        assert (loose.deadline_ms, strict.deadline_ms > 0) == (0, True)
        assert client.ack(loose.id) == 2
    after = broker.client()
    after.subscribe("jobs", "workers")
    assert after.delivery().value == b"2"


def test_the_deadline_is_the_lease_after_the_wall_clock(start: Start) -> None:
    client = start(settings=Settings(topic_defaults=TopicConfig(lease_ms=12_345))).client()
    client.subscribe("jobs")
    before_ms = time.time_ns() // 1_000_000
    client.publish("jobs")
    deadline_ms = client.delivery().deadline_ms
    assert before_ms <= deadline_ms - 12_345 <= time.time_ns() // 1_000_000


def test_a_message_past_its_time_to_live_is_not_delivered(broker: House) -> None:
    client = broker.client()
    client.publish("jobs", b"mortal", ttl_seconds=1)
    expired_ns = time.time_ns() + 1_000_000_000
    client.publish("jobs", b"immortal")
    while time.time_ns() <= expired_ns:
        time.sleep(0.05)
    client.subscribe("jobs", "workers")
    assert client.delivery().value == b"immortal"
    assert client.so_far() == []


def test_a_message_within_its_time_to_live_is_delivered(broker: House) -> None:
    client = broker.client()
    client.publish("jobs", b"mortal", ttl_seconds=60)
    client.subscribe("jobs", "workers")
    assert client.delivery().value == b"mortal"


def test_wildcards_match_dead_letters_only_where_their_own_last_level_is_dlq(broker: House) -> None:
    expected = {
        "#": {"orders", "dlq2"},
        "*": {"orders", "dlq2"},
        "orders.#": {"orders"},
        "orders.*": set(),
        "*.dlq": {"orders.dlq"},
        "orders.dlq": {"orders.dlq"},
    }
    readers: dict[str, Raw] = {pattern: broker.client() for pattern in expected}
    for pattern, reader in readers.items():
        reader.subscribe(pattern)
    publisher = broker.client()
    for topic in ("orders", "orders.dlq", "dlq2"):
        publisher.publish(topic)
    got = {pattern: {each.topic for each in reader.so_far()} for pattern, reader in readers.items()}
    assert got == expected


def test_one_pattern_too_many_is_refused_with_the_limit(start: Start) -> None:
    client = start(settings=Settings(patterns_max=3)).client()
    for number in range(3):
        client.subscribe(f"t{number}")
    refused = client.ask(SUBSCRIBE, subscribe("one.more"))
    assert refused.status == 2
    assert "3" in refused.reason


def test_flags_of_a_request_must_be_0_or_1(broker: House) -> None:
    client = broker.client()
    client.send(frame(PUBLISH, publish("news", require_ack=2)))
    assert "require_ack" in client.mistake().text
    client.send(frame(SUBSCRIBE, text("news") + text("") + struct.pack(">HB", 0, 7)))
    assert "auto_ack" in client.mistake().text
    assert client.publish("news") == "news:0:0"


@pytest.mark.parametrize("topic", ["~health", "~delay.1", "~other"])
def test_the_brokers_own_topics_can_not_be_named(broker: House, topic: str) -> None:
    client = broker.client()
    asked = [
        client.ask(PUBLISH, publish(topic, b"x")),
        client.ask(PRODUCE, raw.produce(topic, raw.record_batch([b"x"]))),
        client.ask(SUBSCRIBE, subscribe(topic)),
    ]
    assert all(answer.status != 0 and answer.reason for answer in asked)
    assert "the broker's own" in asked[0].reason
    assert "the broker's own" in asked[1].reason
    assert client.publish("orders", b"y")
