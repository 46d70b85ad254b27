"""A broker that does less: what each level refuses, what goes on, who is told; and limits of connections."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dovetail.core.frames import ErrorCode, FrameType
from dovetail.core.levels import Level
from dovetail.core.wire import Hello
from tests.broker.house import House, wait_until
from tests.http.api import Api, Refused, text
from tests.http.conftest import Start


def set_level(api: Api, level: str, reason: str = "a test") -> None:
    assert api.call("PUT", "/admin/level", {"level": level, "reason": reason})["level"] == level


def test_in_an_emergency_nobody_new_gets_in_and_who_is_there_is_served(api: Api) -> None:
    api.join("billing", "orders")
    api.publish("orders", "x")
    there = api.house.client()
    assert there.ask(FrameType.HEARTBEAT, b"").status == 0
    set_level(api, "emergency", "no memory")
    new = api.house.client()
    error = new.mistake()
    assert error.code == ErrorCode.LIMIT
    assert "no memory" in error.text
    for call in (lambda: api.publish("orders", "y"), lambda: api.join("billing", "orders", member="new")):
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.status == 503
        assert "no memory" in refused.value.error["message"]
    assert there.ask(FrameType.HEARTBEAT, b"").status == 0
    (message,) = api.poll("billing")
    assert text(message) == "x"
    api.post("/v1/groups/billing/ack", receipts=[message["receipt"]])
    assert api.get("/health")["level"] == "emergency"
    set_level(api, "normal")
    assert api.house.client().ask(FrameType.HEARTBEAT, b"").status == 0
    api.publish("orders", "y")


def test_clients_that_said_hello_are_told_of_each_change(api: Api) -> None:
    client = api.house.client()
    assert client.ask(FrameType.HELLO, Hello("t", "").encode()).status == 0
    for level, reason in (("throttled", "slowly"), ("read-only", "no more"), ("normal", "")):
        set_level(api, level, reason)
        said = client.mistake()
        assert said.code == ErrorCode.LEVEL
        assert level in said.text
        assert reason in said.text
    assert client.ask(FrameType.HEARTBEAT, b"").status == 0


def test_who_connects_later_is_told_of_the_level_that_lasts(api: Api) -> None:
    set_level(api, "read-only", "no more")
    late = api.house.client()
    assert late.ask(FrameType.HELLO, Hello("late", "").encode()).status == 0
    assert "read-only: no more" in late.mistake().text
    set_level(api, "normal")
    assert "normal" in late.mistake().text
    later = api.house.client()
    assert later.ask(FrameType.HELLO, Hello("later", "").encode()).status == 0
    assert later.ask(FrameType.HEARTBEAT, b"").status == 0


def test_a_publish_that_is_refused_leaves_no_topic_behind(api: Api) -> None:
    for level, more in (("read-only", {}), ("throttled", {"priority": "low"})):
        set_level(api, level)
        with pytest.raises(Refused):
            api.publish("never-seen", "x", **more)
    set_level(api, "normal")
    assert api.get("/v1/topics")["topics"] == []


def test_a_throttled_broker_refuses_the_less_important_over_http_too(api: Api) -> None:
    set_level(api, "throttled")
    api.publish("orders", "x")
    with pytest.raises(Refused) as refused:
        api.publish("orders", "x", priority="low")
    assert refused.value.status == 429
    assert "Retry-After" in refused.value.headers


def test_health_says_how_an_operators_level_ends_and_not_that_of_the_disk(api: Api) -> None:
    set_level(api, "maintenance")
    (advice,) = [each for each in api.get("/health")["recommendations"] if "maintenance" in each]
    assert "dovetail admin level normal" in advice
    set_level(api, "normal")
    levels = api.house.server.levels
    api.house.call(lambda: levels.ask("disk", Level.READ_ONLY, "the disk is 96% full"))
    (advice,) = [each for each in api.get("/health")["recommendations"] if "96%" in each]
    assert "dovetail admin" not in advice
    api.house.call(lambda: levels.ask("disk", Level.NORMAL))


def test_an_operator_does_not_end_what_the_disk_asked_for(api: Api) -> None:
    levels = api.house.server.levels
    api.house.call(lambda: levels.ask("disk", Level.READ_ONLY, "the disk is 96% full"))
    set_level(api, "read-only")
    found = api.call("PUT", "/admin/level", {"level": "normal"})
    assert (found["level"], [each["source"] for each in found["asked"]]) == ("read-only", ["disk"])
    with pytest.raises(Refused) as refused:
        api.publish("orders", "x")
    assert "96% full" in refused.value.error["message"]
    api.house.call(lambda: levels.ask("disk", Level.NORMAL))
    api.publish("orders", "x")
    assert api.get("/admin/level") == {"level": "normal", "reason": "", "asked": []}


def test_a_deep_look_publishes_and_reads_back_and_nobody_else_sees_it(api: Api) -> None:
    api.join("all", "#")
    for _ in range(3):
        found = {each["name"]: each for each in api.get("/health", deep="true")["components"]}
        assert "published, stored and read back" in found["round trip"]["says"]
    assert api.get("/v1/topics")["topics"] == []
    assert api.get("/v1/stats")["totals"]["messages"] == 0
    assert api.poll("all") == []
    durable = api.house.call(lambda: api.house.server.node.state.durable)
    kept = durable.logs[durable.topics[durable.topics_by_name["~health"]].first_log]
    assert (kept.start, kept.end) == (3, 3)
    api.post("/admin/readonly")
    found = {each["name"]: each for each in api.get("/health", deep="true")["components"]}
    assert found["round trip"]["status"] == "ok"


def test_those_who_ask_for_a_deep_look_at_once_share_one(api: Api) -> None:
    def look(_: int) -> str:
        components = Api(api.house).get("/health", deep="true")["components"]
        return str(next(each["says"] for each in components if each["name"] == "round trip"))

    with ThreadPoolExecutor(8) as pool:
        assert all("read back" in each for each in pool.map(look, range(24)))


def test_one_http_connection_too_many_is_told_so_and_the_others_go_on(tmp_path: Path) -> None:
    house = House(str(tmp_path / "data"), http_connections_max=2)
    try:
        there = [http.client.HTTPConnection("127.0.0.1", house.http_port, timeout=20) for _ in range(2)]
        for each in there:
            each.request("GET", "/ready")
            assert each.getresponse().read() == b'{"ready":true}'
        more = http.client.HTTPConnection("127.0.0.1", house.http_port, timeout=20)
        more.request("GET", "/ready")
        answer = more.getresponse()
        assert answer.status == 503
        assert "http_connections_max" in json.loads(answer.read())["error"]["suggestions"][0]
        there[0].request("GET", "/ready")
        assert there[0].getresponse().status == 200
        there[1].close()
        wait_until(lambda: _is_ready(house), "there is room again")
    finally:
        house.stop()


def _is_ready(house: House) -> bool:
    new = http.client.HTTPConnection("127.0.0.1", house.http_port, timeout=20)
    new.request("GET", "/ready")
    status = new.getresponse().status
    new.close()
    return status == 200


def test_a_broker_without_memory_is_in_emergency_by_itself(start: Start) -> None:
    api = start()
    pressure, most = api.house.server._pressure, api.house.server.memory_bytes
    api.house.call(lambda: pressure.look(most, 0.0))
    found = api.get("/admin/level")
    assert (found["level"], found["asked"][0]["source"]) == ("emergency", "memory")
    wait_until(lambda: bool(api.get("/admin/level")["level"] == "normal"), "the next look finds enough memory")
