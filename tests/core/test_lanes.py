"""Lanes share a member by their weights, and none starves."""

from collections import Counter
from itertools import pairwise

from dovetail.core.codes import Priority, SettleAction
from dovetail.core.kernels import LANES, lane_weight
from tests.core.running import Running

ROUND = 100


def saturated(credit: int, messages: int) -> list[int]:
    """The lanes of `messages` deliveries, in order, while every lane has more than enough to send."""
    broker = Running()
    broker.create("a", lanes=LANES)
    for priority in range(Priority.CRITICAL, Priority.BACKGROUND + 1):
        for _ in range(messages // 100):
            broker.publish("a", *["x"] * 100, priority=priority)
    reader = broker.consumer()
    reader.subscribe("a", "g", credit=credit)
    lanes: list[int] = []
    while len(lanes) < messages:
        for each in reader.held:
            lanes += [each.lane] * sum(last - first + 1 for first, last in each.ranges)
        reader.settle(SettleAction.ACK)
    return lanes[:messages]


def test_shares_under_saturation_match_the_weights_within_one_percent() -> None:
    lanes = saturated(credit=7, messages=3_000)
    shares = Counter(lanes)
    for lane in range(LANES):
        assert abs(shares[lane] / len(lanes) - lane_weight(lane) / ROUND) <= 0.01


def test_the_lowest_lane_never_waits_longer_than_a_round_without_its_own_turn() -> None:
    lanes = saturated(credit=1, messages=1_000)
    for lane in range(LANES):
        places = [place for place, each in enumerate(lanes) if each == lane]
        waits = [after - before - 1 for before, after in pairwise(places)]
        assert max([places[0], *waits]) <= ROUND - lane_weight(lane)


def test_a_lane_without_work_leaves_its_share_to_the_others() -> None:
    broker = Running()
    broker.create("a", lanes=LANES)
    broker.publish("a", *["x"] * 300, priority=Priority.BACKGROUND)
    reader = broker.consumer()
    reader.subscribe("a", "g", credit=300)
    assert sum(last - first + 1 for each in reader.held for first, last in each.ranges) == 300


def test_a_topic_without_lanes_takes_any_priority_into_its_one_log() -> None:
    broker = Running()
    broker.publish("a", "urgent", priority=Priority.CRITICAL)
    broker.publish("a", "whenever", priority=Priority.BACKGROUND)
    reader = broker.consumer()
    reader.subscribe("a", "g")
    assert reader.texts == ["urgent", "whenever"]
