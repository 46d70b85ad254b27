"""Publishing over HTTP."""

from __future__ import annotations

import base64

import pytest

from tests.http.api import Api, Refused, text
from tests.http.conftest import Start


def test_a_message_keeps_its_bytes_key_and_headers(api: Api) -> None:
    value = base64.b64encode(b"\x00\xff").decode()
    stored = api.post("/v1/topics/orders/publish", value=value, key="k", headers={"a": "ü"})
    assert api.status == 201
    assert stored["message_id"] == "orders:0:0"
    assert (stored["partition"], stored["offset"]) == (0, 0)
    (found,) = api.get("/v1/topics/orders/messages")["messages"]
    assert (found["value"], found["key"], found["headers"]) == (value, "k", {"a": "ü"})


def test_a_batch_is_answered_in_its_order_wherever_its_messages_go(start: Start) -> None:
    api = start(partitions=4)
    messages = [{"text": str(number), "key": f"k{number}"} for number in range(20)]
    stored = api.post("/v1/topics/orders/publish/batch", messages=messages)["messages"]
    assert len({each["partition"] for each in stored}) > 1
    for number, place in enumerate(stored):
        (found,) = api.get("/v1/topics/orders/messages", partition=place["partition"], offset=place["offset"], limit=1)[
            "messages"
        ]
        assert text(found) == str(number)


def test_one_key_keeps_one_partition(start: Start) -> None:
    api = start(partitions=8)
    assert len({api.publish("orders", "x", key="same")["partition"] for _ in range(5)}) == 1


def test_the_same_idempotency_key_stores_once(start: Start) -> None:
    api = start(partitions=3)
    api.headers["Idempotency-Key"] = "order-7"
    first = api.publish("orders", "x")
    again = api.publish("orders", "x")
    assert (first["message_id"], again["message_id"]) == (first["message_id"], first["message_id"])
    del api.headers["Idempotency-Key"]
    other = api.publish("orders", "x", idempotency_key="order-8")
    assert other["message_id"] != first["message_id"]
    assert sum(each["messages"] for each in api.get("/v1/topics")["topics"]) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"value": "!!!"},
        {"value": "eA==", "text": "x"},
        {"text": "x", "delay": "never"},
        {"text": "x", "delay": "800d"},
        {"text": "x", "ttl": -1},
        {"text": "x", "partition": 5},
        {"text": "x", "partition": -1},
        {"text": "x", "priority": "urgent"},
        {"text": "x", "headers": {"a": 1}},
        {"text": "x", "kee": "k"},
    ],
)
def test_a_message_that_is_not_right_is_refused(api: Api, body: object) -> None:
    with pytest.raises(Refused) as refused:
        api.call("POST", "/v1/topics/orders/publish", body)
    assert refused.value.status == 422, refused.value.error


def test_too_large_is_413_and_a_topic_that_may_not_be_made_404(start: Start) -> None:
    api = start(message_bytes_max=100, auto_create=False)
    with pytest.raises(Refused) as large:
        api.publish("orders", "x" * 101)
    assert large.value.status == 413
    with pytest.raises(Refused) as missing:
        api.publish("orders", "x")
    assert missing.value.status == 404


def test_a_quota_is_429_with_retry_after_and_read_only_503(start: Start) -> None:
    api = start(quota_messages=1)
    api.post("/v1/topics/orders/publish/batch", messages=[{"text": "x"}] * 100)
    with pytest.raises(Refused) as refused:
        api.publish("orders", "x")
    assert (refused.value.status, refused.value.error["code"]) == (429, "quota_exceeded")
    assert int(refused.value.headers["Retry-After"]) >= 1
    api = start()
    api.post("/admin/readonly", reason="a test")
    with pytest.raises(Refused) as closed:
        api.publish("orders", "x")
    assert (closed.value.status, closed.value.error["code"]) == (503, "read_only")
    assert api.get("/health")["level"] == "read-only"
    api.post("/admin/readonly", on=False)
    api.publish("orders", "x")


def test_every_answer_has_its_request_id(api: Api) -> None:
    api.headers["X-Request-Id"] = "mine-1"
    api.get("/v1/topics")
    assert api.answer_headers["X-Request-Id"] == "mine-1"
    with pytest.raises(Refused) as refused:
        api.get("/v1/topics/missing")
    assert refused.value.error["request_id"] == "mine-1"
    assert refused.value.headers["X-Request-Id"] == "mine-1"
