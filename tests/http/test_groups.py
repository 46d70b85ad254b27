"""Consumers over HTTP are members like any other."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from dovetail.core.records import TopicConfig
from tests.broker.house import wait_until
from tests.http.api import Api, Refused, text
from tests.http.conftest import Start


def test_join_poll_ack_leaves_nothing_behind(api: Api) -> None:
    joined = api.join("billing", "orders")
    assert joined["memberId"] == "abel"
    assert joined["assignments"] == [{"topic": "orders", "partition": 0}]
    for number in range(3):
        api.publish("orders", str(number))
    messages = api.poll("billing", max=10, timeout="5s")
    assert [text(each) for each in messages] == ["0", "1", "2"]
    assert [each["attempt"] for each in messages] == [1, 1, 1]
    assert all(each["receipt"].startswith(each["message_id"]) and each["deadline"] for each in messages)
    done = api.post("/v1/groups/billing/ack", receipts=[each["receipt"] for each in messages])
    assert done["settled"] == 3
    assert api.get("/v1/groups/billing/lag")["lag"] == 0
    assert api.get("/v1/groups/billing/pending")["total"] == 0


def test_nothing_is_leased_between_polls(api: Api) -> None:
    api.join("billing", "orders")
    api.publish("orders", "x")
    assert api.get("/v1/groups/billing/pending")["total"] == 0
    assert len(api.poll("billing", max=1)) == 1
    api.publish("orders", "y")
    assert api.get("/v1/groups/billing/pending")["total"] == 1


def test_a_poll_waits_for_the_first_message_and_then_returns(api: Api) -> None:
    api.join("billing", "orders")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.poll, "billing", timeout="20s")
        wait_until(lambda: not waiting.done(), "the poll is under way")
        Api(api.house).publish("orders", "late")
        assert [text(each) for each in waiting.result(10)] == ["late"]


def test_a_poll_repeated_with_its_number_gives_the_same_leases(api: Api) -> None:
    api.join("billing", "orders")
    for number in range(4):
        api.publish("orders", str(number))
    first = api.poll("billing", max=2, seq=1)
    assert api.poll("billing", max=2, seq=1) == first
    second = api.poll("billing", max=2, seq=2)
    assert [text(each) for each in first + second] == ["0", "1", "2", "3"]


def test_a_member_of_several_topics_gets_no_more_than_it_asked_for(api: Api) -> None:
    api.join("billing", "orders", "returns", "refunds")
    for topic in ("orders", "returns", "refunds"):
        for number in range(5):
            api.publish(topic, f"{topic}{number}")
    seen: list[str] = []
    for _ in range(20):
        messages = api.poll("billing", max=4)
        assert len(messages) <= 4
        seen += [text(each) for each in messages]
        assert all(each["attempt"] == 1 for each in messages), "what was given back is uncounted"
        if messages:
            api.post("/v1/groups/billing/ack", receipts=[each["receipt"] for each in messages])
    assert sorted(seen) == sorted(
        f"{topic}{number}" for topic in ("orders", "returns", "refunds") for number in range(5)
    )


def test_nack_tries_again_and_reject_goes_to_the_dead_letters(api: Api) -> None:
    api.join("billing", "orders")
    api.publish("orders", "x")
    (first,) = api.poll("billing")
    again = api.post("/v1/groups/billing/nack", receipts=[first["receipt"]], reason="no stock")
    assert again["results"][0]["outcome"] == "requeued"
    (second,) = api.poll("billing", timeout="5s")
    assert second["attempt"] == 2
    dead = api.post("/v1/groups/billing/reject", receipts=[second["receipt"]], reason="hopeless")
    assert dead["results"][0]["outcome"] == "dead_lettered"


def test_a_settle_of_what_is_not_held_is_a_conflict_and_changes_nothing(api: Api) -> None:
    api.join("billing", "orders")
    api.publish("orders", "x")
    (message,) = api.poll("billing")
    forged = message["receipt"][:-1] + ("0" if message["receipt"][-1] != "0" else "1")
    for receipt in (forged, "nonsense", ""):
        with pytest.raises(Refused) as refused:
            api.post("/v1/groups/billing/ack", receipts=[receipt])
        assert (refused.value.status, refused.value.error["code"]) == (409, "lease_lost")
    api.post("/v1/groups/billing/ack", receipts=[message["receipt"]])
    with pytest.raises(Refused) as twice:
        api.post("/v1/groups/billing/ack", receipts=[message["receipt"]])
    assert twice.value.status == 409


def test_a_receipt_settles_in_its_own_group_only(api: Api) -> None:
    api.join("billing", "orders")
    api.join("audit", "orders")
    api.publish("orders", "x")
    (message,) = api.poll("billing")
    with pytest.raises(Refused) as refused:
        api.post("/v1/groups/audit/ack", receipts=[message["receipt"]])
    assert refused.value.status == 409
    assert api.get("/v1/groups/billing/pending")["total"] == 1


def test_a_message_is_settled_by_its_place_too_and_extended(api: Api) -> None:
    api.join("billing", "orders")
    api.publish("orders", "x")
    api.poll("billing")
    place = {"topic": "orders", "partition": 0, "offset": 0, "member": "abel"}
    api.post("/v1/groups/billing/extend", **place, by="5m")
    (pending,) = api.get("/v1/groups/billing/pending")["pending"]
    assert pending["seconds"] > 60
    assert api.post("/v1/groups/billing/ack", **place)["settled"] == 1


def test_what_is_not_settled_in_time_comes_again(start: Start) -> None:
    api = start(TopicConfig(lease_ms=50))
    api.join("billing", "orders")
    api.publish("orders", "x")
    (first,) = api.poll("billing", timeout="5s")
    (second,) = api.poll("billing", timeout="5s")
    assert (first["attempt"], second["attempt"]) == (1, 2)
    with pytest.raises(Refused) as refused:
        api.post("/v1/groups/billing/ack", receipts=[first["receipt"]])
    assert refused.value.status == 409


def test_leases_of_a_poll_whose_client_vanished_return_uncounted(api: Api) -> None:
    api.join("billing", "orders")
    with socket.create_connection(("127.0.0.1", api.house.http_port)) as connection:
        body = b'{"member":"abel","timeout":"30s"}'
        head = f"POST /v1/groups/billing/poll HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        wait_until(lambda: _credit(api) > 0, "the poll is under way")
    wait_until(lambda: _credit(api) == 0, "the poll is given up")
    api.publish("orders", "x")
    assert api.get("/v1/groups/billing/pending")["total"] == 0
    assert [each["attempt"] for each in api.poll("billing", timeout="5s")] == [1]


def _credit(api: Api) -> int:
    state = api.house.call(lambda: api.house.server.node.state)
    return max((each.credit_max for each in state.live.subscriptions.values()), default=0)


def test_a_silent_member_is_out_and_a_poll_is_a_sign_of_life(start: Start) -> None:
    api = start(session_timeout_ms=300)
    api.join("billing", "orders")
    assert api.poll("billing", timeout="900ms") == []
    api.post("/v1/groups/billing/heartbeat", member="abel")
    wait_until(lambda: api.get("/v1/groups/billing")["members"] == 0, "silence ends the membership")
    with pytest.raises(Refused) as refused:
        api.poll("billing")
    assert (refused.value.status, refused.value.error["code"]) == (404, "not_a_member")
    api.join("billing", "orders")
    api.publish("orders", "x")
    assert len(api.poll("billing", timeout="5s")) == 1


def test_a_leaver_gives_back_what_it_held(api: Api) -> None:
    api.join("billing", "orders")
    api.publish("orders", "x")
    api.poll("billing")
    api.post("/v1/groups/billing/leave", member="abel")
    api.join("billing", "orders", member="berta")
    (message,) = api.poll("billing", "berta", timeout="5s")
    assert message["attempt"] == 1


def test_the_same_consumer_id_takes_its_place_over(api: Api) -> None:
    api.join("billing", "orders")
    api.publish("orders", "x")
    api.poll("billing")
    api.join("billing", "orders")
    assert api.get("/v1/groups/billing")["members"] == 1
    assert len(api.poll("billing", timeout="5s")) == 1


def test_partitions_are_assigned_and_given_up_when_another_joins(start: Start) -> None:
    api = start(partitions=4, quiet_ms=20)
    api.join("billing", "orders", strategy="sticky")
    wait_until(lambda: len(_assigned(api, "abel")) == 4, "the first member has all")
    api.join("billing", "orders", strategy="sticky", member="berta")
    wait_until(lambda: len(_assigned(api, "abel")) == 2, "half is given up by polling")
    wait_until(lambda: len(_assigned(api, "berta")) == 2, "and taken over")
    assert {tuple(each.items()) for each in _assigned(api, "abel")}.isdisjoint(
        tuple(each.items()) for each in _assigned(api, "berta")
    )
    with pytest.raises(Refused) as refused:
        api.join("billing", "orders", strategy="range", member="carl")
    assert refused.value.status == 409


def _assigned(api: Api, member: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = api.post("/v1/groups/billing/poll", member=member)["assignments"]
    return found


def test_commit_moves_the_floor_and_offsets_move_it_back(api: Api) -> None:
    api.join("billing", "orders")
    for number in range(5):
        api.publish("orders", str(number))
    offsets = [{"topic": "orders", "partition": 0, "offset": 3}]
    assert api.post("/v1/groups/billing/commit", member="abel", offsets=offsets)["committed"] == 1
    (row,) = api.get("/v1/groups/billing/lag")["partitions"]
    assert (row["floor"], row["lag"]) == (3, 2)
    moved = api.post("/v1/groups/billing/offsets", to="earliest")
    assert moved["offsets"] == [{"topic": "orders", "partition": 0, "offset": 0}]
    assert len(api.poll("billing", timeout="5s")) == 5
    assert api.post("/v1/groups/billing/offsets", to="latest", topic="orders")["offsets"][0]["offset"] == 5
    assert api.post("/v1/groups/billing/offsets", to="1h")["offsets"][0]["offset"] == 0
    with pytest.raises(Refused) as refused:
        api.post("/v1/groups/billing/offsets", to="yesterday")
    assert refused.value.status == 422


def test_a_group_goes_to_all_the_places_it_is_sent_to_or_to_none(api: Api) -> None:
    api.post("/v1/topics", name="orders", partitions=2)
    for number in range(4):
        api.publish("orders", str(number), partition=0)
    api.join("billing", "orders")
    places = [{"topic": "orders", "partition": 0, "offset": 3}, {"topic": "orders", "partition": 1, "offset": 3}]
    for asked in ({"to": 3}, {"offsets": places}, {"offsets": [places[0], {**places[1], "topic": "nonsense"}]}):
        with pytest.raises(Refused) as refused:
            api.post("/v1/groups/billing/offsets", **asked)
        assert refused.value.status in (404, 422)
        assert [each["floor"] for each in api.get("/v1/groups/billing/lag")["partitions"]] == [0, 0]
    assert api.post("/v1/groups/billing/offsets", to=3, partition=0)["offsets"][0]["offset"] == 3


def test_operators_see_members_and_take_them_out(api: Api) -> None:
    api.join("billing", "orders")
    client = api.house.client()
    client.subscribe("orders", "billing")
    api.publish("orders", "x")
    members = api.get("/v1/groups/billing/members")["members"]
    assert [each["address"] == "http" for each in members].count(True) == 1
    assert all(each["health"] == "healthy" for each in members)
    api.call("DELETE", "/v1/groups/billing/members/abel")
    assert api.get("/v1/groups/billing")["members"] == 1
    with pytest.raises(Refused):
        api.poll("billing")
    (connection,) = api.get("/v1/connections")["connections"]
    assert (connection["groups"], connection["in_flight"]) == (["billing"], 1)
    assert [each["name"] for each in api.get("/v1/groups")["groups"]] == ["billing"]


def test_a_group_without_members_is_given_another_strategy(api: Api) -> None:
    assert api.call("PATCH", "/v1/groups/billing", {"strategy": "range"})["mode"] == "partitioned"
    api.join("billing", "orders")
    with pytest.raises(Refused) as refused:
        api.call("PATCH", "/v1/groups/billing", {"strategy": "round-robin"})
    assert refused.value.status == 409
    assert api.post("/v1/groups/billing/rebalance")["generation"] > 0


@pytest.mark.parametrize("path", ["", "/lag", "/members", "/pending"])
def test_a_group_that_is_not_there_is_404(api: Api, path: str) -> None:
    with pytest.raises(Refused) as refused:
        api.get(f"/v1/groups/nobody{path}")
    assert refused.value.status == 404


def test_a_group_is_moved_in_all_lanes_or_in_one(api: Api) -> None:
    api.post("/v1/topics", name="urgent", lanes=True)
    api.join("g", "urgent")
    for priority in ("critical", "low"):
        api.publish("urgent", priority, priority=priority)
    receipts = [each["receipt"] for each in api.poll("g", timeout="5s", max=10)]
    while len(receipts) < 2:
        receipts += [each["receipt"] for each in api.poll("g", timeout="5s", max=10)]
    api.post("/v1/groups/g/ack", receipts=receipts, wait=True)
    moved = api.post("/v1/groups/g/offsets", to="earliest", lane="low")["offsets"]
    assert [(each["lane"], each["offset"]) for each in moved] == [("low", 0)]
    assert [each["priority"] for each in api.poll("g", timeout="5s", max=10)] == ["low"]
    moved = api.post("/v1/groups/g/offsets", to="earliest")["offsets"]
    assert [each["lane"] for each in moved] == ["critical", "high", "normal", "low", "background"]
    with pytest.raises(Refused) as caught:
        api.post("/v1/groups/g/offsets", offsets=[{"topic": "urgent", "partition": 0, "offset": 0}])
    assert "lane" in caught.value.error["message"]
