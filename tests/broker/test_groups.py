"""Groups over the wire: who gets what, who is a member, and whose place is whose."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dovetail.core.state import Settings
from tests.broker.conftest import Start
from tests.broker.house import House, wait_until
from tests.broker.raw import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, PUBLISH, Delivery, Raw, frame, join, publish, text


def members(broker: House, count: int, pattern: str, group: str = "workers", max_inflight: int = 0) -> list[Raw]:
    """Connections that read a pattern as one group."""
    clients = [broker.client() for _ in range(count)]
    for client in clients:
        client.subscribe(pattern, group, max_inflight)
    return clients


def numbers(deliveries: Sequence[Delivery]) -> list[int]:
    return [int(each.value) for each in deliveries]


def test_nine_messages_in_one_write_are_three_for_each_of_three_members(broker: House) -> None:
    team = members(broker, 3, "jobs")
    broker.client().publish_all("jobs", [b"%d" % number for number in range(9)])
    got = [numbers(each.so_far()) for each in team]
    assert [len(each) for each in got] == [3, 3, 3]
    assert sorted(number for each in got for number in each) == list(range(9))


def test_nine_messages_one_by_one_go_round_the_ring(broker: House) -> None:
    team = members(broker, 3, "jobs")
    publisher = broker.client()
    for number in range(9):
        publisher.publish("jobs", b"%d" % number)
    got = sorted(numbers(each.so_far()) for each in team)
    assert got == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


@pytest.mark.parametrize("topics", [3, 9])
def test_one_ring_goes_round_over_all_topics_of_the_group(broker: House, topics: int) -> None:
    team = members(broker, 3, "jobs.*")
    publisher = broker.client()
    for number in range(9):
        publisher.publish(f"jobs.t{number % topics}", b"%d" % number)
    assert [len(each.so_far()) for each in team] == [3, 3, 3]


def test_the_ring_goes_round_over_topics_that_come_in_one_write_too(broker: House) -> None:
    team = members(broker, 3, "jobs.*")
    publisher = broker.client()
    publisher.send(b"".join(frame(PUBLISH, publish(f"jobs.t{number}")) for number in range(9)))
    assert all(publisher.answer().status == 0 for _ in range(9))
    assert [len(each.so_far()) for each in team] == [3, 3, 3]


def test_two_groups_get_everything_each_also_on_one_connection(broker: House) -> None:
    client = broker.client()
    first, second = client.subscribe("jobs", "billing"), client.subscribe("jobs", "shipping")
    ids = client.publish_all("jobs", [b"0", b"1"])
    got = client.so_far()
    for subscription in (first, second):
        assert numbers([each for each in got if each.subscription == subscription]) == [0, 1]
    refused = client.ack(ids[0])
    assert refused != 0, "a bare id names neither of the two deliveries"
    assert [client.ack(each.id) for each in got] == [0, 0, 0, 0]


def test_one_group_through_several_patterns_of_one_connection_is_one_copy(broker: House) -> None:
    client = broker.client()
    oldest = client.subscribe("jobs.#", "workers")
    client.subscribe("jobs.a", "workers")
    client.publish("jobs.a", b"0")
    assert [each.subscription for each in client.so_far()] == [oldest]


def test_a_new_group_starts_at_the_earliest_message(broker: House) -> None:
    client = broker.client()
    client.publish_all("jobs", [b"0", b"1", b"2"])
    client.subscribe("jobs", "workers")
    assert numbers(client.deliveries(3)) == [0, 1, 2]


def test_a_topic_made_later_is_read_from_its_start_by_a_group_without_members(broker: House) -> None:
    with broker.client() as client:
        client.subscribe("jobs.#", "workers")
    publisher = broker.client()
    publisher.publish("jobs.new", b"0")
    after = broker.client()
    after.subscribe("jobs.#", "workers")
    assert numbers([after.delivery()]) == [0]


def test_a_group_goes_on_where_it_was(broker: House) -> None:
    with broker.client() as client:
        client.subscribe("jobs", "workers")
        client.publish_all("jobs", [b"0", b"1", b"2"])
        for delivery in client.deliveries(2):
            assert client.ack(delivery.id) == 0
    after = broker.client()
    after.subscribe("jobs", "workers")
    assert numbers([after.delivery()]) == [2]
    assert after.so_far() == []


def test_nobody_holds_more_than_max_inflight(broker: House) -> None:
    client = broker.client()
    client.subscribe("jobs", "workers", max_inflight=2)
    client.publish_all("jobs", [b"%d" % number for number in range(5)])
    held = client.so_far()
    assert numbers(held) == [0, 1]
    for expected in (2, 3, 4):
        assert client.ack(held.pop(0).id) == 0
        held.append(client.delivery())
        assert numbers(held[-1:]) == [expected]
        assert client.so_far() == []


def test_without_a_max_inflight_the_default_holds(start: Start) -> None:
    client = start(settings=Settings(max_inflight=7)).client()
    client.subscribe("jobs", "workers")
    client.publish_all("jobs", [b"%d" % number for number in range(20)])
    assert numbers(client.so_far()) == list(range(7))


def test_a_full_member_is_skipped_and_the_others_go_on(broker: House) -> None:
    full, free = broker.client(), broker.client()
    full.subscribe("jobs", "workers", max_inflight=1)
    free.subscribe("jobs", "workers")
    publisher = broker.client()
    for number in range(10):
        publisher.publish("jobs", b"%d" % number)
    assert (len(full.so_far()), len(free.so_far())) == (1, 9)


def test_a_leavers_messages_go_to_another_member_at_once(broker: House) -> None:
    leaver, other = members(broker, 2, "jobs")
    broker.client().publish_all("jobs", [b"%d" % number for number in range(4)])
    assert len(leaver.so_far()) == len(other.so_far()) == 2
    leaver.close()
    assert len(other.deliveries(2)) == 2


def test_unsubscribe_returns_what_was_held(broker: House) -> None:
    leaver, other = broker.client(), broker.client()
    subscription = leaver.subscribe("jobs", "workers")
    leaver.publish("jobs", b"0")
    held = leaver.delivery()
    other.subscribe("jobs", "workers")
    leaver.unsubscribe(subscription)
    assert numbers([other.delivery()]) == [0]
    assert leaver.ack(held.id) == 2


def test_every_change_of_membership_raises_the_generation(broker: House) -> None:
    first, second = broker.client(), broker.client()
    one = first.join("workers", "a")
    assert first.join("workers", "a") == one, "a member that is there already changes nothing"
    two = second.join("workers", "b")
    assert two > one > 0
    assert first.heartbeat() == first.heartbeat("a") == two
    second.leave("workers", "b")
    three = first.heartbeat("a")
    assert three > two
    with broker.client() as third:
        assert third.join("workers", "c") > three
    wait_until(lambda: first.heartbeat("a") == three + 2, "the generation rises when a connection is lost")


def test_the_generation_survives_a_member_less_group(broker: House) -> None:
    with broker.client() as client:
        generation = client.join("workers", "a")
        client.leave("workers", "a")
    assert broker.client().join("workers", "a") == generation + 2


def test_a_heartbeat_of_a_connection_in_no_group_is_answered_with_0(broker: House) -> None:
    client = broker.client()
    assert client.heartbeat() == 0
    refused = client.ask(HEARTBEAT, text("nobody"))
    assert refused.status == 2
    assert "nobody" in refused.reason


def test_a_subscribe_that_names_a_group_joins_it_and_goes_with_its_last_subscription(broker: House) -> None:
    client, watcher = broker.client(), broker.client()
    before = watcher.join("workers", "watcher")
    first, second = client.subscribe("a", "workers"), client.subscribe("b", "workers")
    assert client.heartbeat() == watcher.heartbeat() == before + 1
    client.unsubscribe(first)
    assert watcher.heartbeat() == before + 1
    client.unsubscribe(second)
    assert watcher.heartbeat() == before + 2
    assert client.heartbeat() == 0


def test_members_are_served_in_the_order_of_their_names(broker: House) -> None:
    team = {name: broker.client() for name in ("cleo", "abel", "bert")}
    for name, client in team.items():
        client.join("workers", name)
        client.subscribe("jobs", "workers")
    publisher = broker.client()
    for number in range(6):
        publisher.publish("jobs", b"%d" % number)
    got = {name: numbers(client.so_far()) for name, client in team.items()}
    assert got == {"abel": [0, 3], "bert": [1, 4], "cleo": [2, 5]}


def test_leaving_ends_the_subscriptions_in_that_group_alone(broker: House) -> None:
    client = broker.client()
    client.join("workers", "abel")
    client.subscribe("jobs", "workers")
    alone = client.subscribe("jobs")
    client.leave("workers", "abel")
    client.publish("jobs", b"0")
    assert [each.subscription for each in client.so_far()] == [alone]


def test_leaving_what_one_is_not_in_is_refused(broker: House) -> None:
    client = broker.client()
    client.join("workers", "abel")
    for group, member in (("workers", "bert"), ("others", "abel")):
        refused = client.ask(LEAVE_GROUP, text(group) + text(member))
        assert refused.status == 2
        assert member in refused.reason


def test_a_strategy_that_the_group_does_not_have_is_refused_with_the_reason(broker: House) -> None:
    client = broker.client()
    refused = client.ask(JOIN_GROUP, join("workers", "abel", "astrology"))
    assert refused.status == 2
    assert "astrology" in refused.reason
    assert client.join("workers", "abel", "round-robin") > 0


@pytest.mark.parametrize(("group", "member"), [("workers", ""), ("", "abel"), ("workers", "a\nb"), ("w" * 241, "abel")])
def test_names_of_groups_and_members_are_refused_with_the_reason(broker: House, group: str, member: str) -> None:
    refused = broker.client().ask(JOIN_GROUP, join(group, member))
    assert refused.status == 2


def test_the_same_member_on_a_new_connection_takes_its_place_without_a_new_generation(broker: House) -> None:
    old, new = broker.client(), broker.client()
    generation = old.join("workers", "abel")
    old.subscribe("jobs", "workers")
    old.publish("jobs", b"0")
    assert numbers([old.delivery()]) == [0]
    assert new.join("workers", "abel") == generation
    new.subscribe("jobs", "workers")
    assert numbers([new.delivery()]) == [0]
    assert "another connection" in old.mistake().text
    old.wait_closed()
    assert new.heartbeat("abel") == generation, "the old connection's end is not the member's"


def test_a_member_that_falls_silent_loses_its_place_and_its_messages(start: Start) -> None:
    broker = start(settings=Settings(session_timeout_ms=400))
    silent, lively = broker.client(), broker.client()
    silent.subscribe("jobs", "workers")
    silent.publish("jobs", b"0")
    assert numbers([silent.delivery()]) == [0]
    lively.subscribe("jobs", "workers")

    def heir_has_it() -> bool:
        return numbers(lively.so_far()) == [0]

    wait_until(heir_has_it, "a silent member's messages go to a member that sends heartbeats")
    mistake = silent.mistake()
    assert "heartbeat" in mistake.text
    silent.wait_closed()


def test_any_frame_is_a_sign_of_life(start: Start) -> None:
    broker = start(settings=Settings(session_timeout_ms=400))
    busy, silent = broker.client(), broker.client()
    generation = busy.join("workers", "busy")
    silent.join("workers", "silent")

    def other_is_gone() -> bool:
        busy.publish("elsewhere")
        return busy.heartbeat("busy") == generation + 2

    wait_until(other_is_gone, "the silent one is removed, the busy one stays")


def test_a_quiet_subscriber_in_no_group_stays(start: Start) -> None:
    broker = start(settings=Settings(session_timeout_ms=100))
    quiet, silent = broker.client(), broker.client()
    quiet.subscribe("news")
    silent.join("workers", "silent")
    silent.mistake()
    silent.wait_closed()
    broker.client().publish("news", b"0")
    assert numbers([quiet.delivery()]) == [0]
