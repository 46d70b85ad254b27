"""How consumers keep up: a level that flow control decides by, a trend, and when they will have caught up."""

from __future__ import annotations

from dovetail.core.capacity import lags_of
from dovetail.core.codes import Priority
from dovetail.core.records import TopicConfig
from dovetail.core.state import State, Topic
from dovetail.runtime.http.capacity import capacity
from dovetail.runtime.http.models import CapacityView, Rates
from tests.core.running import Running
from tests.http.api import Api

LIMITS = TopicConfig(lag_warning=50, lag_critical=100)


def behind(count: int, config: TopicConfig = LIMITS) -> tuple[State, Topic, Running]:
    broker = Running()
    broker.create("slow", config)
    broker.consumer().subscribe("slow", "g", credit=1)
    if count:
        broker.publish("slow", *["x"] * count, priority=Priority.CRITICAL)
    durable = broker.node.state.durable
    return broker.node.state, durable.topics[durable.topics_by_name["slow"]], broker


def seen(count: int, change: float, config: TopicConfig = LIMITS) -> CapacityView:
    state, topic, broker = behind(count, config)
    rates = Rates(change, change, change)
    return capacity(state, topic, lags_of(state).by_topic.get(topic.id, 0), rates, broker.now.wall_ms)


def test_the_status_is_the_level_that_publishers_feel() -> None:
    assert [seen(count, 0.0).status for count in (0, 49, 50, 99, 100, 199, 200)] == [
        "normal",
        "normal",
        "warning",
        "warning",
        "critical",
        "critical",
        "overloaded",
    ]


def test_a_lag_that_shrinks_says_when_it_will_be_gone() -> None:
    assert seen(60, -7.0) == CapacityView("warning", 60, "shrinking", -7.0, 9)
    assert seen(60, 3.0) == CapacityView("warning", 60, "growing", 3.0)
    assert seen(60, 0.0).trend == "steady"
    assert seen(0, -7.0) == CapacityView("normal", 0, "shrinking", -7.0)


def test_messages_that_wait_too_long_count_too() -> None:
    state, topic, broker = behind(1, TopicConfig(lag_critical_ms=1_000))
    late = capacity(state, topic, 1, Rates(0.0, 0.0, 0.0), broker.now.wall_ms + 1_500)
    assert late.status == "critical"


def test_each_topic_shows_its_capacity(api: Api) -> None:
    api.publish("orders", "hello")
    assert api.get("/v1/stats")["topics"]["orders"]["capacity"] == {
        "status": "normal",
        "lag": 0,
        "trend": "steady",
        "change": 0.0,
    }


def test_a_member_shows_its_health_and_a_suggested_lease(api: Api) -> None:
    api.join("g", "orders")
    for number in range(25):
        api.publish("orders", str(number))
    count = 0
    while count < 25:
        for message in api.poll("g", timeout="5s", max=1):
            verb = "nack" if count % 2 else "ack"
            api.post(f"/v1/groups/g/{verb}", receipts=[message["receipt"]])
            count += 1
    (member,) = api.get("/v1/groups/g/members")["members"]
    assert member["health"] in ("warning", "suspicious")
    assert 0.3 < member["error_rate"] < 0.6
    assert member["suggested_lease_ms"] is not None or member["mean_processing_ms"] == 0
