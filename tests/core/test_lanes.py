"""Lanes share a member by their weights, and none starves."""

from collections import Counter
from itertools import pairwise

from dovetail.core import inputs
from dovetail.core.codes import Priority, SettleAction, Status, Whence
from dovetail.core.effects import Done, Fetched, Sought
from dovetail.core.kernels import LANES, lane_weight
from tests.core.running import Consumer, Running, refusal

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


def two_lanes_read(count: int) -> tuple[Running, Consumer]:
    """A group that has settled `count` messages of the first lane and of the last."""
    broker = Running()
    broker.create("a", lanes=LANES)
    reader = broker.consumer()
    reader.subscribe("a", "g", credit=1_000)
    for priority in (Priority.CRITICAL, Priority.BACKGROUND) if count else ():
        broker.publish("a", *["x"] * count, priority=priority)
    reader.settle(SettleAction.ACK)
    return broker, reader


def floors(broker: Running) -> list[int]:
    durable = broker.node.state.durable
    first = durable.topics[durable.topics_by_name["a"]].first_log
    return [durable.cursors[1, first + lane].floor for lane in range(LANES)]


def seek(broker: Running, whence: Whence, value: int = 0, lane: int = 0) -> object:
    return broker.ask(lambda me, number: inputs.Seek(me, number, "g", "a", 0, whence, value, lane))


def test_a_seek_moves_every_lane_unless_it_names_one() -> None:
    broker, _ = two_lanes_read(10)
    assert floors(broker) == [10, 0, 0, 0, 10]
    assert seek(broker, Whence.OFFSET, 4, lane=5) == Sought(4)
    assert floors(broker) == [10, 0, 0, 0, 4]
    assert isinstance(seek(broker, Whence.EARLIEST), Sought)
    assert floors(broker) == [0] * 5
    assert isinstance(seek(broker, Whence.LATEST), Sought)
    assert floors(broker) == [10, 0, 0, 0, 10]
    assert seek(broker, Whence.TIME, 1, lane=1) == Sought(0)
    assert floors(broker) == [0, 0, 0, 0, 10]
    assert isinstance(seek(broker, Whence.TIME, 1), Sought)
    assert floors(broker) == [0] * 5


def test_an_offset_needs_its_lane_and_a_lane_has_to_be_there() -> None:
    broker, _ = two_lanes_read(3)
    broker.create("plain")
    for answer in (
        seek(broker, Whence.OFFSET, 1),
        seek(broker, Whence.EARLIEST, lane=6),
        broker.ask(lambda me, number: inputs.Commit(me, number, "g", "a", 0, 1)),
        broker.ask(lambda me, number: inputs.Fetch(me, number, "plain", 0, 0, 1_000, 0, 1)),
    ):
        refused = refusal(answer)  # type: ignore[arg-type]  # what was asked is of several kinds
        assert refused.status == Status.INVALID
        assert "lane" in refused.reason
    assert floors(broker) == [3, 0, 0, 0, 3]


def test_a_commit_and_a_read_name_their_lane() -> None:
    broker, _ = two_lanes_read(0)
    reader = broker.consumer("slow")
    for priority in (Priority.HIGH, Priority.LOW):
        broker.publish("a", *["x"] * 5, priority=priority)
    assert reader.say(lambda me, number: inputs.Commit(me, number, "g", "a", 0, 3, 4)) == Done()
    assert floors(broker) == [0, 0, 0, 3, 0]
    answer = broker.ask(lambda me, number: inputs.Fetch(me, number, "a", 0, 2, 1_000, 0, 2))
    assert isinstance(answer, Fetched)
    log = broker.node.state.durable.logs[answer.log]
    assert (log.lane, answer.offset, answer.end) == (1, 2, 5)


def test_a_round_of_a_hundred_is_fifty_twenty_five_fifteen_seven_and_three() -> None:
    assert [lane_weight(lane) for lane in range(LANES)] == [50, 25, 15, 7, 3]
