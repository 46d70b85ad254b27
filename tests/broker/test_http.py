"""HTTP beside the wire: health, metrics, and a topic's messages by pages."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.broker.house import House
from tests.broker.raw import PRODUCE, produce, record_batch

SAMPLE = re.compile(r'^(dovetail_[a-z_]+)(\{[a-z]+="([^"\\]|\\.)*"(,[a-z]+="([^"\\]|\\.)*")*\})? ([0-9.e+-]+|\+Inf)$')


def get(broker: House, path: str) -> tuple[int, str, bytes]:
    """The status, content type and body of a GET."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}{path}", timeout=20) as answer:
            return answer.status, answer.headers.get_content_type(), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get_content_type(), error.read()


def page(broker: House, path: str) -> dict[str, Any]:
    status, kind, body = get(broker, path)
    assert (status, kind) == (200, "application/json"), body
    found: dict[str, Any] = json.loads(body)
    return found


def refusal(broker: House, path: str, status: int) -> dict[str, Any]:
    """The error of a request that is refused, in the one shape of errors."""
    found, kind, body = get(broker, path)
    assert (found, kind) == (status, "application/json"), body
    error: dict[str, Any] = json.loads(body)["error"]
    assert error.keys() == {"code", "message", "details", "suggestions", "request_id", "timestamp"}
    assert error["message"]
    return error


def metrics(broker: House) -> dict[str, float]:
    """All samples by name and labels."""
    status, kind, body = get(broker, "/metrics")
    assert (status, kind) == (200, "text/plain")
    samples: dict[str, float] = {}
    described: set[str] = set()
    for line in body.decode().splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            assert word in ("HELP", "TYPE")
            assert rest
            described.add(name)
            continue
        assert SAMPLE.match(line), line
        name, _, value = line.rpartition(" ")
        assert name not in samples, "each sample once"
        family = name.partition("{")[0]
        assert family in described or re.sub("_(bucket|sum|count)$", "", family) in described
        samples[name] = float(value)
    return samples


def test_a_broker_that_works_is_healthy_and_ready(broker: House) -> None:
    client = broker.client()
    client.heartbeat()
    health = page(broker, "/health")
    # The machine's disk may be nearly full and its loop late: that is said, and not the broker's doing.
    own = {each["status"] for each in health["components"] if each["name"] in ("journal", "publishing", "recovery")}
    assert own == {"ok"}
    assert health["status"] in ("ok", "warn")
    assert health["connections"] == 1
    assert health["uptime_seconds"] >= 0
    assert get(broker, "/ready")[0] == 200


def test_metrics_parse_and_count_what_happened(broker: House) -> None:
    client = broker.client()
    client.subscribe("orders", "billing")
    client.publish_all("orders", [b"0", b"1", b"2"])
    first, second, _ = client.deliveries(3)
    client.ack(first.id)
    client.nack(second.id, retry_requested=0)
    client.ack("never:0:0")
    found = metrics(broker)
    assert found["dovetail_connections"] == 1
    assert found["dovetail_groups"] == 1
    assert found['dovetail_log_messages{topic="orders",partition="0"}'] == 3
    assert found['dovetail_published_total{topic="orders",partition="0"}'] == 3
    assert found['dovetail_delivered_total{topic="orders",partition="0"}'] == 3
    assert found['dovetail_settled_total{group="billing"}'] >= 1
    assert found['dovetail_dead_letters_total{group="billing"}'] == 1
    assert found['dovetail_group_lag{group="billing"}'] == 1
    assert found["dovetail_commit_seconds_count"] > 0
    assert found["dovetail_stored_lsn"] > 0


def test_metrics_of_a_group_with_a_name_of_any_characters_parse(broker: House) -> None:
    broker.client().join('a "quoted" \\ name', "abel")
    assert metrics(broker)[r'dovetail_group_lag{group="a \"quoted\" \\ name"}'] == 0


def test_a_message_has_its_place_its_time_and_its_bytes(broker: House) -> None:
    client = broker.client()
    message_id = client.publish("orders.eu", b"\x00\xff", headers=(("k", "ü"),))
    (message,) = page(broker, "/v1/topics/orders.eu/messages")["messages"]
    assert message.pop("timestamp") > 1_600_000_000_000
    assert message == {
        "message_id": message_id,
        "topic": "orders.eu",
        "partition": 0,
        "offset": 0,
        "key": None,
        "value": base64.b64encode(b"\x00\xff").decode(),
        "headers": {"k": "ü"},
    }
    assert page(broker, "/v1/topics/orders/eu/messages")["messages"][0]["message_id"] == message_id


def test_pages_follow_each_other_to_the_end_over_batches_of_any_size(broker: House) -> None:
    client = broker.client()
    values = [b"%d" % number for number in range(100)]
    client.done(PRODUCE, produce("orders", record_batch(values[:70])))
    client.publish_all("orders", values[70:])
    seen: list[bytes] = []
    path = "/v1/topics/orders/messages?limit=7"
    pages = 0
    follow: int | None = 0
    while follow is not None:
        found = page(broker, f"{path}&offset={follow}")
        assert len(found["messages"]) <= 7
        seen += [base64.b64decode(each["value"]) for each in found["messages"]]
        follow = found.get("next")
        pages += 1
    assert seen == values
    assert pages == 15


def test_reading_at_the_end_gives_nothing_and_no_next_page(broker: House) -> None:
    client = broker.client()
    client.publish("orders")
    for offset in (1, 2, 1000):
        found = page(broker, f"/v1/topics/orders/messages?offset={offset}")
        assert found["messages"] == []
        assert "next" not in found


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1",
        "offset=x",
        "offset=",
        "offset=1.5",
        "offset=9223372036854775808",
        "offset=" + "9" * 5000,
        "limit=0",
        "limit=1001",
        "limit=%C2%B2",
        "partition=-1",
        "partition=65536",
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(broker: House, query: str) -> None:
    broker.client().publish("orders")
    error = refusal(broker, f"/v1/topics/orders/messages?{query}", 422)
    assert query.partition("=")[0] in error["message"]


def test_a_topic_or_partition_that_is_not_there_is_refused(broker: House) -> None:
    broker.client().publish("orders")
    assert "nothing" in refusal(broker, "/v1/topics/nothing/messages", 404)["message"]
    assert "partitions 0 to 0" in refusal(broker, "/v1/topics/orders/messages?partition=1", 422)["message"]


def test_a_path_that_is_not_there_is_refused_in_the_same_shape(broker: House) -> None:
    refusal(broker, "/no/such/path", 404)


def test_many_readers_at_once_get_what_is_theirs(broker: House) -> None:
    client = broker.client()
    topics = ["a", "b", "c", "d"] * 5
    for topic in topics[:4]:
        client.publish_all(topic, [topic.encode() * 1000] * 50)
    with ThreadPoolExecutor(8) as readers:
        pages = list(readers.map(lambda topic: page(broker, f"/v1/topics/{topic}/messages?limit=50"), topics))
    assert [{each["topic"] for each in found["messages"]} for found in pages] == [{topic} for topic in topics]
