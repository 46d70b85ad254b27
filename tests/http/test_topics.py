"""Topics over HTTP."""

from __future__ import annotations

import pytest

from dovetail.core.state import TopicRule
from tests.http.api import Api, Refused, text
from tests.http.conftest import Start


def test_a_topic_is_made_shown_listed_changed_and_deleted(api: Api) -> None:
    made = api.post("/v1/topics", name="orders.eu", partitions=3, retention={"hours": 24}, lease="5s")
    assert api.status == 201
    assert (made["name"], made["partitions"], len(made["logs"])) == ("orders.eu", 3, 3)
    assert (made["settings"]["retention"]["hours"], made["settings"]["lease"]) == (24, "5s")
    changed = api.call("PATCH", "/v1/topics/orders.eu", {"max_retries": 7, "ttl": "1h"})
    assert (changed["settings"]["max_retries"], changed["settings"]["ttl"]) == (7, "1h")
    assert changed["settings"]["lease"] == "5s", "what was not said stays"
    assert [each["name"] for each in api.get("/v1/topics", pattern="orders.*")["topics"]] == ["orders.eu"]
    api.call("DELETE", "/v1/topics/orders.eu")
    with pytest.raises(Refused) as refused:
        api.get("/v1/topics/orders.eu")
    assert refused.value.status == 404


def test_a_topic_takes_what_is_not_said_from_its_pattern_and_then_from_the_defaults(start: Start) -> None:
    rule = TopicRule("logs.#", (("retention_ms", 3_600_000), ("retention_count", 5), ("compact", True)))
    api = start(topic_rules=(rule,))
    made = api.post("/v1/topics", name="logs/web", retention={"count": 9})["settings"]
    assert (made["retention"], made["compact"]) == ({"hours": 1, "bytes": 0, "count": 9}, True)
    assert api.post("/v1/topics", name="orders")["settings"]["retention"]["hours"] == 168


def test_a_topic_that_exists_is_a_conflict_and_a_bad_name_says_why(api: Api) -> None:
    api.post("/v1/topics", name="orders")
    with pytest.raises(Refused) as twice:
        api.post("/v1/topics", name="orders")
    assert (twice.value.status, twice.value.error["code"]) == (409, "conflict")
    with pytest.raises(Refused) as bad:
        api.post("/v1/topics", name="or ders")
    assert bad.value.status == 422
    assert "letters" in bad.value.error["message"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": 1},
        {"name": "t", "partitions": 0},
        {"name": "t", "partitions": 10**9},
        {"name": "t", "lease": "soon"},
        {"name": "t", "lease": "0s"},
        {"name": "t", "leese": "5s"},
        {"name": "t", "retention": {"hours": -1}},
        {"name": "t", "sync": "sometimes"},
        {"name": "t", "lease": "2h", "lease_max": "1h"},
        [],
        "orders",
        None,
    ],
)
def test_a_body_that_is_not_right_changes_nothing_and_is_told_why(api: Api, body: object) -> None:
    with pytest.raises(Refused) as refused:
        api.call("POST", "/v1/topics", body)
    assert refused.value.status == 422
    assert refused.value.error["message"]
    assert api.get("/v1/topics")["topics"] == []


def test_delete_is_refused_while_somebody_subscribes_unless_forced(api: Api) -> None:
    api.join("billing", "orders")
    with pytest.raises(Refused) as refused:
        api.call("DELETE", "/v1/topics/orders")
    assert refused.value.status == 409
    assert "force" in refused.value.error["suggestions"][0]
    (subscriber,) = api.get("/v1/topics/orders/subscribers")["subscribers"]
    assert (subscriber["group"], subscriber["member"]) == ("billing", "abel")
    api.call("DELETE", "/v1/topics/orders", force="true")


def test_long_lists_come_in_pages(api: Api) -> None:
    for number in range(5):
        api.post("/v1/topics", name=f"t{number}")
    first = api.get("/v1/topics", limit=3)
    rest = api.get("/v1/topics", limit=3, after=first["next"])
    assert [each["name"] for each in first["topics"] + rest["topics"]] == [f"t{number}" for number in range(5)]
    assert first["total"] == 5
    assert "next" not in rest


def test_settings_of_a_topic_outlive_the_broker(api: Api) -> None:
    api.post("/v1/topics", name="orders")
    api.call("PATCH", "/v1/topics/orders", {"max_retries": 9})
    config = api.house.call(lambda: api.house.server.node.state.durable.topics)
    assert [topic.config.max_retries for topic in config.values()] == [9]


def test_browse_goes_by_offset_by_time_and_by_lane(api: Api) -> None:
    api.post("/v1/topics", name="jobs", lanes=True)
    api.publish("jobs", "later", priority="low")
    api.publish("jobs", "now", priority="critical")
    urgent = api.get("/v1/topics/jobs/messages", priority="critical")["messages"]
    assert [(text(each), each["priority"]) for each in urgent] == [("now", "critical")]
    stamps = [api.publish("plain", str(number))["timestamp"] for number in range(3)]
    assert [text(each) for each in api.get("/v1/topics/plain/messages", offset=1)["messages"]] == ["1", "2"]
    assert text(api.get("/v1/topics/plain/messages", since=stamps[0])["messages"][0]) == "0"
    assert len(api.get("/v1/topics/plain/messages", since="1h")["messages"]) == 3
    assert api.get("/v1/topics/plain/messages", since=stamps[-1] + 60_000)["messages"] == []


def test_topics_are_found_by_a_part_of_their_name_page_by_page(api: Api) -> None:
    for number in range(5):
        api.publish(f"orders.{number}.eu", "x")
    api.publish("stock", "x")
    found = api.get("/v1/topics", contains="ers.", limit=3)
    assert (found["total"], [each["name"] for each in found["topics"]]) == (5, [f"orders.{n}.eu" for n in range(3)])
    rest = api.get("/v1/topics", contains="ers.", limit=3, after=found["next"])
    assert [each["name"] for each in rest["topics"]] == ["orders.3.eu", "orders.4.eu"]
    assert "next" not in rest
    assert rest["topics"][0]["capacity"]["status"] == "normal"
    assert api.get("/v1/topics", contains="STO")["total"] == 1
    assert api.get("/v1/topics", contains="*")["total"] == 0
