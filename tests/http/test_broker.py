"""The broker itself over HTTP: health, figures, dead letters, a message's whereabouts, what operators do."""

from __future__ import annotations

import gc
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import get_args

import pytest

from dovetail.core.records import FailReason, TopicConfig
from dovetail.runtime.http.app import ROUTES
from dovetail.runtime.http.history import EVERY_S, RECENT_MAX, History, Meter
from dovetail.runtime.http.models import ResultName
from tests.broker.house import wait_until
from tests.http.api import Api, Refused, text
from tests.http.conftest import Start


def test_health_names_its_components_and_a_deep_look_goes_through_the_journal(api: Api) -> None:
    api.publish("orders", "x")
    found = api.get("/health", deep="true")
    assert {each["name"] for each in found["components"]} == {
        "journal",
        "disk",
        "loop",
        "memory",
        "publishing",
        "recovery",
        "round trip",
    }
    assert api.get("/ready") == {"ready": True}


def test_what_a_repair_kept_aside_is_seen_until_somebody_removes_it(start: Start, tmp_path: Path) -> None:
    aside = tmp_path / "0" / "quarantine" / "00000000000000000007"
    (aside / "topics" / "orders" / "0").mkdir(parents=True)
    (aside / "findings.json").write_text("[]")
    (aside / "topics" / "orders" / "0" / "00000000000000000000.log.whole").write_bytes(b"damaged")
    api = start()
    recovery = next(each for each in api.get("/health")["components"] if each["name"] == "recovery")
    assert recovery["status"] == "warn"
    assert recovery["says"].startswith("1 damaged file")
    assert "dovetail_quarantined_files 1" in api.metrics()


def test_maintenance_takes_the_broker_out_of_the_balance(api: Api) -> None:
    assert api.post("/admin/maintenance", reason="new disk")["level"] == "maintenance"
    with pytest.raises(Refused) as refused:
        api.get("/ready")
    assert refused.value.status == 503
    assert "Retry-After" in refused.value.headers
    assert any("new disk" in each for each in api.get("/health")["recommendations"])
    api.post("/admin/maintenance", on=False)
    assert api.get("/ready") == {"ready": True}


def test_stats_tell_depth_and_lag_of_each_topic_and_group(api: Api) -> None:
    api.join("billing", "orders")
    for number in range(3):
        api.publish("orders", str(number))
    api.poll("billing", max=1)
    found = api.get("/v1/stats")
    assert found["topics"]["orders"]["depth"] == 3
    assert (found["groups"]["billing"]["lag"], found["groups"]["billing"]["in_flight"]) == (3, 1)
    assert (found["totals"]["messages"], found["totals"]["lag"]) == (3, 3)


def test_stats_of_the_few_that_matter_most_still_count_all(api: Api) -> None:
    for topic, many in (("quiet", 1), ("orders", 3)):
        api.join(f"readers-of-{topic}", topic)
        for number in range(many):
            api.publish(topic, str(number))
    metrics = api.house.server.metrics
    history = History(metrics)
    api.house.call(lambda: history.tick(api.house.server.node.state, 0, 0))
    numbers = {topic.name: topic.id for topic in api.house.server.node.state.durable.topics.values()}
    assert history.activity(numbers["orders"]) > history.activity(numbers["quiet"])
    found = api.get("/v1/stats", top=1)
    assert (len(found["topics"]), list(found["groups"])) == (1, ["readers-of-orders"])
    assert {name: found["totals"][name] for name in ("topics", "groups", "messages", "lag")} == {
        "topics": 2,
        "groups": 2,
        "messages": 4,
        "lag": 4,
    }


def test_a_dead_letter_tells_each_try_with_its_result_and_a_made_up_story_is_none(start: Start) -> None:
    api = start(TopicConfig(max_retries=1))
    api.join("billing", "orders")
    api.publish("orders", "x")
    for reason in ("no stock", "no such goods"):
        (message,) = api.poll("billing", timeout="5s")
        api.post("/v1/groups/billing/nack", receipts=[message["receipt"]], reason=reason)
    wait_until(lambda: api.get("/v1/dlq")["total"] == 1, "it is dead")
    (entry,) = api.get("/v1/dlq/orders")["entries"]
    told = [(each["member"], each["result"], each["error"]) for each in entry["history"]]
    assert told == [("abel", "unspecified", "no stock"), ("abel", "unspecified", "no such goods")]
    assert all(each["delivered"] <= each["ended"] for each in entry["history"])
    for story in (
        '{"a": 1}',
        '[{"member": 1}]',
        '[{"member":"","delivered_ms":0,"ended_ms":0,"reason":99,"error":""}]',
    ):
        api.publish("orders.dlq", "y", headers={"dovetail-history": story})
    assert [each["history"] for each in api.get("/v1/dlq/orders")["entries"][1:]] == [[], [], []]


def test_the_words_of_a_result_are_those_of_the_core() -> None:
    assert get_args(ResultName) == tuple(each.name.lower() for each in FailReason)


def test_a_rate_is_right_from_the_first_look_and_fades() -> None:
    meter = Meter()
    meter.tick({1: int(100 * EVERY_S)})
    assert meter.rates(1).one == pytest.approx(100)
    for _ in range(24):
        meter.tick({1: int(100 * EVERY_S)})
    rates = meter.rates(1)
    assert rates.one < rates.five < rates.fifteen < 100


def test_what_happened_of_late_is_remembered_in_buckets(api: Api) -> None:
    server = api.house.server
    history = History(server.metrics)

    def tick(at_ms: int) -> None:
        api.house.call(lambda: history.tick(server.node.state, at_ms, 3))

    api.join("billing", "orders")
    tick(60_000)
    for number in range(3):
        api.publish("orders", str(number))
    api.poll("billing", max=2)
    tick(65_000)
    tick(120_000)
    first, second = history.recent
    assert (first.at, first.published, first.delivered, first.lag) == (60_000, 3, 2, 3)
    assert (first.in_flight, first.connections) == (2, 3)
    assert (second.at, second.published, second.lag) == (65_000, 0, 3)
    (minute,) = history.minutes
    assert (minute.at, minute.published, minute.delivered) == (60_000, 3, 2)
    for number in range(RECENT_MAX):
        tick(120_000 + number)
    assert len(history.recent) == RECENT_MAX
    assert len(api.get("/v1/stats", recent=RECENT_MAX)["recent"]) <= RECENT_MAX
    with pytest.raises(Refused):
        api.get("/v1/stats", recent=RECENT_MAX + 1)


def test_what_becomes_of_a_message_can_be_followed(api: Api) -> None:
    api.join("billing", "orders")
    message_id = api.publish("orders", "x")["message_id"]
    assert _state_of(api, message_id) == "waiting"
    (message,) = api.poll("billing")
    assert _state_of(api, message_id) == "leased"
    api.post("/v1/groups/billing/nack", receipts=[message["receipt"]], delay="1h")
    assert _state_of(api, message_id) == "retrying"
    for wrong, status in (("orders:0:7", 404), ("orders", 422), ("orders:x:1", 422), ("nowhere:0:0", 404)):
        with pytest.raises(Refused) as refused:
            api.get(f"/v1/trace/{wrong}")
        assert refused.value.status == status


def _state_of(api: Api, message_id: str) -> str:
    (group,) = api.get(f"/v1/trace/{message_id}")["groups"]
    found: str = group["state"]
    return found


def test_dead_letters_tell_their_story_are_filtered_and_purged(start: Start) -> None:
    api = start(TopicConfig(max_retries=0))
    api.join("billing", "orders")
    for number in range(4):
        api.publish("orders", str(number), key=f"k{number}", headers={"a": "b"})
    for message in api.poll("billing", max=4):
        verb = "reject" if int(text(message)) % 2 else "nack"
        api.post(f"/v1/groups/billing/{verb}", receipts=[message["receipt"]], reason=f"no {text(message)}")
    wait_until(lambda: bool(api.get("/v1/dlq")["topics"]) and api.get("/v1/dlq")["total"] == 4, "four are dead")
    assert api.get("/v1/dlq")["topics"] == [{"topic": "orders", "dlq": "orders.dlq", "messages": 4}]
    found = api.get("/v1/dlq/orders")
    assert (found["total"], len(found["entries"])) == (4, 4)
    entry = api.get("/v1/dlq/orders/1")
    assert (entry["topic"], entry["group"], entry["reason"], entry["attempts"]) == ("orders", "billing", "rejected", 1)
    assert (entry["key"], entry["headers"], entry["error"], text(entry)) == ("k1", {"a": "b"}, "no 1", "1")
    assert entry["remove_at"] > entry["died"]
    rejected = api.get("/v1/dlq/orders", reason="rejected", limit=1)
    assert (rejected["total"], len(rejected["entries"])) == (2, 1)
    assert api.get("/v1/dlq/orders", reason="rejected", offset=rejected["next"])["total"] == 2
    assert api.get("/v1/dlq/orders", group="audit")["total"] == 0
    assert api.get("/v1/dlq/orders", older_than="1h")["total"] == 0
    assert api.post("/v1/dlq/orders/purge", reason="rejected", dry_run=True)["messages"] == 2
    assert api.post("/v1/dlq/orders/purge", reason="rejected")["messages"] == 2
    assert api.get("/v1/dlq/orders")["total"] == 2
    assert api.post("/v1/dlq/orders/purge")["messages"] == 2
    with pytest.raises(Refused) as refused:
        api.get("/v1/dlq/orders/0")
    assert refused.value.status == 404


def test_dead_letters_are_replayed_as_a_job(start: Start) -> None:
    api = start(TopicConfig(max_retries=0))
    api.join("billing", "orders")
    for number in range(5):
        api.publish("orders", str(number))
    for message in reversed(api.poll("billing", max=5)):
        api.post("/v1/groups/billing/nack", receipts=[message["receipt"]])
    wait_until(lambda: bool(api.get("/v1/dlq")["topics"]) and api.get("/v1/dlq")["total"] == 5, "five are dead")
    plan = api.post("/v1/dlq/orders/replay", dry_run=True)
    assert (plan["state"], plan["total"], plan["targets"]) == ("planned", 5, {"orders": 5})
    assert api.get("/v1/replays")["replays"] == []
    (last,) = [each["offset"] for each in api.get("/v1/dlq/orders")["entries"] if text(each) == "4"]
    elsewhere = api.post("/v1/dlq/orders/replay", offsets=[last], to="repairs")
    assert api.status == 202
    wait_until(lambda: api.get(f"/v1/replays/{elsewhere['id']}")["state"] == "done", "one is replayed")
    wait_until(lambda: bool(api.get("/v1/topics/repairs/messages")["messages"]), "it is stored")
    assert [text(each) for each in api.get("/v1/topics/repairs/messages")["messages"]] == ["4"]
    job = api.post("/v1/dlq/orders/replay", rate=1000)
    wait_until(lambda: api.get(f"/v1/replays/{job['id']}")["done"] == 4, "the rest is replayed")
    seen: list[str] = []
    while len(seen) < 4:
        messages = api.poll("billing", max=9, timeout="10s")
        assert messages, seen
        seen += [text(each) for each in messages]
    assert seen == ["0", "1", "2", "3"]
    assert api.get("/v1/dlq")["total"] == 0
    with pytest.raises(Refused) as over:
        api.call("DELETE", f"/v1/replays/{job['id']}")
    assert over.value.status == 409
    for path in ("/v1/replays/77", "/v1/replays/x"):
        with pytest.raises(Refused) as missing:
            api.get(path)
        assert missing.value.status == 404


def test_a_replay_is_paused_gone_on_with_and_aborted(start: Start) -> None:
    api = start(TopicConfig(max_retries=0))
    api.join("billing", "orders")
    for number in range(30):
        api.publish("orders", str(number))
    receipts = [each["receipt"] for each in api.poll("billing", max=30)]
    api.post("/v1/groups/billing/reject", receipts=receipts)
    wait_until(lambda: bool(api.get("/v1/dlq")["topics"]) and api.get("/v1/dlq")["total"] == 30, "all are dead")
    job = api.post("/v1/dlq/orders/replay", rate=1)
    path = f"/v1/replays/{job['id']}"
    assert api.call("PATCH", path, {"state": "paused"})["state"] == "paused"
    purged = api.post("/v1/dlq/orders/purge")
    assert purged["messages"] == 0, "what waits to be replayed is not purged, and not said to be"
    assert purged["replaying"] == api.get("/v1/dlq")["total"] > 20
    assert api.call("PATCH", path, {"state": "running"})["state"] == "running"
    assert api.call("DELETE", path)["state"] == "aborted"
    assert api.get("/v1/dlq")["total"] >= 20, "what was not replayed stays"


def test_admin_actions_are_taken_up(api: Api) -> None:
    api.publish("orders", "x")
    api.post("/admin/checkpoint")
    assert api.status == 202
    settings = {each["key"]: each for each in api.get("/admin/config")["settings"]}
    assert (settings["topic.lease"]["value"], settings["topic.lease"]["origin"]) == ("30s", "default")
    assert api.post("/admin/compact") == {"done": True}
    api.post("/admin/shutdown")
    assert api.house.call(api.house.server.stop_asked.is_set)


def test_settings_are_changed_while_the_broker_runs(api: Api) -> None:
    shown = api.call("PATCH", "/admin/config", {"settings": {"topic.lease": "7s", "auto_create": "false"}})["settings"]
    now = {each["key"]: (each["value"], each["origin"]) for each in shown}
    assert (now["topic.lease"], now["partitions"]) == (("7s", "changed at run time"), ("1", "default"))
    assert api.post("/v1/topics", name="orders")["settings"]["lease"] == "7s"
    with pytest.raises(Refused) as missing:
        api.publish("elsewhere", "x")
    assert missing.value.status == 404
    for settings, status in (
        ({"listen": "127.0.0.1:1"}, 409),
        ({"topic.leese": "1s"}, 422),
        ({"topic.lease": "soon"}, 422),
        ({"topic.lease": "2h"}, 422),
        ({}, 422),
    ):
        with pytest.raises(Refused) as refused:
            api.call("PATCH", "/admin/config", {"settings": settings})
        assert refused.value.status == status, settings


def test_the_document_names_every_route_and_the_page_needs_no_network(api: Api) -> None:
    document = api.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    for route in ROUTES:
        assert route.method.lower() in document["paths"][route.path]
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids))
    with urllib.request.urlopen(f"{api.base}/docs", timeout=10) as answer:
        page = answer.read().decode()
    assert page.count("<details") == len(ROUTES) + len(document["components"]["schemas"])
    places = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= places
    assert set(ids) <= places
    assert "http://" not in page
    assert "https://" not in page


def test_what_is_not_there_is_refused_in_the_one_shape(api: Api) -> None:
    for method, path, status in (("GET", "/v2", 404), ("PUT", "/v1/topics", 405), ("DELETE", "/health", 405)):
        with pytest.raises(Refused) as refused:
            api.call(method, path)
        assert refused.value.status == status
        assert refused.value.error.keys() == {
            "code",
            "message",
            "details",
            "suggestions",
            "request_id",
            "timestamp",
        }
    request = urllib.request.Request(f"{api.base}/v1/topics", b"{not json", method="POST")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=10)
    assert raised.value.code == 422
    assert "JSON" in json.loads(raised.value.read())["error"]["message"]


def test_the_specification_lists_every_route_with_its_role() -> None:
    page = (Path(__file__).parents[2] / "spec" / "http.md").read_text()
    for route in ROUTES:
        row = f"| {route.method} | `{route.path}` | {route.role.name.lower()} | {route.status} | {route.says} |"
        assert row in page, row


def figures(api: Api) -> dict[str, float]:
    """The metrics: each line's name with its labels, and its value."""
    with urllib.request.urlopen(f"{api.base}/metrics", timeout=20) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    names = [line.rpartition(" ")[0] for line in lines]
    assert len(names) == len(set(names)), "a series is told twice"
    return {name: float(line.rpartition(" ")[2]) for name, line in zip(names, lines, strict=True)}


def test_metrics_tell_lanes_members_deliveries_and_the_collector_apart(api: Api) -> None:
    api.post("/v1/topics", name="jobs", lanes=True)
    api.publish("jobs", "x", priority="critical")
    api.publish("jobs", "y")
    api.publish("jobs", "later", delay="1h")
    api.get("/health", deep="true")
    api.join("crew", "jobs")
    api.join("crew", "jobs", member="berta")
    (message,) = api.poll("crew", max=1)
    api.post("/v1/groups/crew/ack", receipts=[message["receipt"]])
    (message,) = api.poll("crew", max=1)
    api.post("/v1/groups/crew/nack", receipts=[message["receipt"]], delay="1h")
    gc.collect()
    found = figures(api)
    assert found['dovetail_published_total{topic="jobs",partition="0",lane="critical"}'] == 1
    assert found['dovetail_published_total{topic="jobs",partition="0",lane="normal"}'] == 1
    assert found['dovetail_member_delivered_total{group="crew",member="abel"}'] == 2
    assert found['dovetail_member_settled_total{group="crew",member="abel"}'] == 2
    assert found['dovetail_member_failed_total{group="crew",member="abel"}'] == 1
    assert found['dovetail_member_in_flight{group="crew",member="berta"}'] == 0
    assert found["dovetail_delivery_seconds_count"] == 2
    assert found["dovetail_gc_pause_seconds_count"] >= 1
    assert found["dovetail_http_connections"] >= 1
    assert found["dovetail_level"] == 0
    assert not [name for name in found if "~" in name], "hidden topics are nobody's business"


def test_metrics_tell_how_much_a_plan_moved_and_how_long_it_took(api: Api) -> None:
    api.post("/v1/topics", name="orders", partitions=4)
    api.join("crew", "orders", strategy="range")
    wait_until(lambda: len(api.post("/v1/groups/crew/poll", member="abel")["assignments"]) == 4, "abel has all")
    api.join("crew", "orders", member="berta", strategy="range")

    def shared() -> bool:
        for member in ("abel", "berta"):
            api.post("/v1/groups/crew/poll", member=member)
        return figures(api).get('dovetail_partitions_moved_total{group="crew"}') == 2

    wait_until(shared, "two have moved")
    assert figures(api)["dovetail_assign_seconds_count"] >= 1
