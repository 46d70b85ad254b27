"""A message's life: what happened to it, in order, from the newest steps and from the journal behind them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dovetail.core import lives
from tests.broker.house import House
from tests.http.api import Api, Refused
from tests.http.conftest import Start


def told(found: dict[str, Any]) -> list[str]:
    return [event["what"] for event in found["life"]]


def trace(api: Api, message_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/v1/trace/{message_id}")
    return found


def test_a_life_is_told_from_the_beginning(api: Api) -> None:
    api.join("g", "orders", member="abel")
    published = api.publish("orders", "hello")
    (message,) = api.poll("g", "abel", timeout="5s")
    api.post("/v1/groups/g/nack", receipts=[message["receipt"]], reason="no stock")
    (again,) = api.poll("g", "abel", timeout="5s")
    api.post("/v1/groups/g/ack", receipts=[again["receipt"]], wait=True)
    found = trace(api, published["message_id"])
    assert told(found) == ["published", "stored", "leased", "failed", "leased", "settled"]
    assert found["complete"]
    assert found["groups"] == [{"group": "g", "state": "settled", "member": "", "attempts": 0}]
    failed = found["life"][3]
    assert (failed["member"], failed["attempt"], failed["error"]) == ("abel", 1, "no stock")
    assert [event["attempt"] for event in found["life"] if event["what"] == "leased"] == [1, 2]
    assert all(event["message_id"] == "orders:0:0" for event in found["life"])
    times = [event["at"] for event in found["life"]]
    assert times == sorted(times)


def test_a_life_goes_on_in_the_dead_letters_and_where_it_is_replayed(api: Api) -> None:
    api.join("g", "orders", member="abel")
    published = api.publish("orders", "bad")
    (message,) = api.poll("g", "abel", timeout="5s")
    api.post("/v1/groups/g/reject", receipts=[message["receipt"]], reason="malformed")
    while not (entries := _dead(api)):
        time.sleep(0.01)
    api.post("/v1/dlq/orders/replay", offsets=[entries[0]["offset"]])
    while (found := trace(api, published["message_id"])) and "replayed" not in told(found):
        time.sleep(0.01)
    kinds = told(found)
    assert [kind for kind in kinds if kind != "stored"] == [
        "published",
        "leased",
        "failed",
        "published",
        "dead_lettered",
        "published",
        "replayed",
    ]
    dead = next(event for event in found["life"] if event["what"] == "dead_lettered")
    replayed = next(event for event in found["life"] if event["what"] == "replayed")
    assert dead["other"] == "orders.dlq:0:0"
    assert (replayed["message_id"], replayed["other"]) == ("orders.dlq:0:0", "orders:0:1")
    # The one that was replayed tells the same life, as soon as it is stored: its headers say where it came from.
    while "message" not in (again := trace(api, "orders:0:1")):
        time.sleep(0.01)
    assert [kind for kind in told(again) if kind != "stored"] == [kind for kind in kinds if kind != "stored"]


def _dead(api: Api) -> list[Any]:
    try:
        found: list[Any] = api.get("/v1/dlq/orders")["entries"]
    except Refused:
        return []
    return found


def test_what_was_given_back_and_what_was_delayed_is_told(api: Api) -> None:
    published = api.publish("later", "x", delay="300ms")
    waits_at = published["message_id"]
    assert waits_at.startswith("~delay.")
    assert told(trace(api, waits_at)) == ["delayed", "stored"]
    api.join("g", "later", member="abel")
    assert len(api.poll("g", "abel", timeout="5s")) == 1
    api.post("/v1/groups/g/leave", member="abel")
    found = trace(api, "later:0:0")
    kinds = [kind for kind in told(found) if kind != "stored"]
    assert kinds == ["delayed", "published", "due", "leased", "given_back"]
    assert found["life"][0]["due"] >= found["life"][0]["at"] + 300
    assert found["groups"][0]["state"] == "waiting"


def test_what_the_newest_steps_no_longer_hold_is_told_from_the_journal(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.join("g", "orders", member="abel")
    published = api.publish("orders", "hello")
    (message,) = api.poll("g", "abel", timeout="5s")
    api.post("/v1/groups/g/nack", receipts=[message["receipt"]], delay="1h", reason="later", wait=True)
    api.house.call(lambda: setattr(api.house.server, "lives", lives.Lives()))
    api.publish("orders", "another")
    found = trace(api, published["message_id"])
    # Deliveries are not journalled: what is told is what was decided for good.
    assert told(found) == ["published", "stored", "failed"]
    assert "at" not in found["life"][1]
    assert found["complete"]


def test_after_a_restart_the_journal_tells_or_the_message_itself(start: Start) -> None:
    api = start()
    api.join("g", "orders", member="abel")
    published = api.publish("orders", "hello")
    (message,) = api.poll("g", "abel", timeout="5s")
    api.post("/v1/groups/g/nack", receipts=[message["receipt"]], delay="1h", reason="later", wait=True)
    api.house.kill()
    house = House(api.house.data)
    try:
        found = trace(Api(house), published["message_id"])
    finally:
        house.stop()
    assert "failed" in told(found)
    assert found["message"]["message_id"] == "orders:0:0"


def test_the_newest_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lives.Lives()._happenings.maxlen == lives.HAPPENINGS_MAX


def test_what_never_was_is_404(api: Api) -> None:
    api.publish("orders", "hello")
    with pytest.raises(Refused) as caught:
        trace(api, "orders:0:7")
    assert caught.value.status == 404
    api.join("billing", "orders")
    api.post("/v1/groups/billing/offsets", to="earliest")
    with pytest.raises(Refused) as caught:
        api.get("/v1/trace/orders:0:99")
    assert (caught.value.status, "not exist yet" in caught.value.error["message"]) == (404, True)


def test_traceparent_passes_untouched(api: Api) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    api.publish("orders", "hello", headers={"traceparent": parent, "tracestate": "a=b,c=d"})
    api.join("g", "orders", member="abel")
    (message,) = api.poll("g", "abel", timeout="5s")
    assert message["headers"] == {"traceparent": parent, "tracestate": "a=b,c=d"}
