"""A topic whose consumers lag slows its publishers, then refuses them; everybody else goes on."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dovetail.core import batch, frames, inputs, timers, wire
from dovetail.core.codes import Priority, SettleAction, Status, Whence
from dovetail.core.effects import Appended, Refused, Reply
from dovetail.core.flow import CHECK_MS, MARK_MS, MARKS_MAX, SLOW_MS_MAX, THROTTLED_MS, Level, arrived_ms
from dovetail.core.frames import FrameType
from dovetail.core.names import HEALTH
from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from tests.core.running import START_WALL_MS, Consumer, Running, refusal

CRITICAL = 100


def lagging(behind: int, settings: Settings | None = None) -> tuple[Running, Consumer]:
    """A broker whose topic `slow` has a group that many messages behind."""
    broker = Running(settings)
    broker.create("slow", TopicConfig(lag_warning=50, lag_critical=CRITICAL))
    reader = broker.consumer()
    reader.subscribe("slow", "g", credit=10)
    while behind:
        count = min(behind, 10)
        broker.publish("slow", *["x"] * count, priority=Priority.CRITICAL)
        broker.advance(110 if settings is None else 1_000)
        behind -= count
    return broker, reader


def test_a_confirm_is_held_back_over_the_critical_lag_but_comes() -> None:
    broker, _ = lagging(CRITICAL + 20)
    broker.effects.clear()
    assert broker.publish("slow", "one more", priority=Priority.CRITICAL) is None
    broker.advance(SLOW_MS_MAX + 10)
    confirmed = [each for each in broker.effects if isinstance(each, Reply) and isinstance(each.answer, Appended)]
    assert [reply.answer.offset for reply in confirmed if isinstance(reply.answer, Appended)][-1] == CRITICAL + 20


def test_over_the_limit_publishers_are_refused_with_the_topic_and_when_to_try_again() -> None:
    broker, _ = lagging(2 * CRITICAL)
    answer = refusal(broker.publish("slow", "too much"))
    assert answer.status == Status.BUSY
    assert "'slow'" in answer.reason
    assert 100 <= answer.retry_after_ms <= 10_000


def test_the_least_important_publishers_are_refused_first() -> None:
    broker, _ = lagging(CRITICAL + 60)
    refused = [
        isinstance(broker.publish("slow", "x", priority=priority), Refused)
        for priority in (Priority.BACKGROUND, Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.CRITICAL)
    ]
    assert refused == [True, True, False, False, False]


def test_publishers_of_another_topic_notice_nothing() -> None:
    broker, _ = lagging(2 * CRITICAL)
    assert isinstance(broker.publish("other", "x"), Appended)


def test_acknowledgments_get_through_and_the_topic_recovers() -> None:
    broker, reader = lagging(2 * CRITICAL)
    while reader.held:
        reader.settle(SettleAction.ACK)
    broker.advance(200)
    assert isinstance(broker.publish("slow", "welcome again"), Appended)
    durable = broker.node.state.durable
    assert broker.node.state.live.flows[durable.topics_by_name["slow"]].level == Level.NORMAL


def test_a_topic_is_slowed_when_its_oldest_message_has_waited_too_long_however_few_there_are() -> None:
    broker = Running()
    broker.create("slow", TopicConfig(lag_critical_ms=10_000))
    broker.consumer().subscribe("slow", "g", credit=10)
    assert isinstance(broker.publish("slow", "x"), Appended)
    broker.advance(9_000)
    assert isinstance(broker.publish("slow", "x"), Appended)
    broker.advance(2_000)
    broker.publish("slow", "x")
    assert broker.node.state.live.flows[1].level == Level.CRITICAL
    broker.advance(10_000)
    assert "3 messages behind" in refusal(broker.publish("slow", "x", priority=Priority.BACKGROUND)).reason


def test_a_level_ends_below_where_it_began() -> None:
    broker, reader = lagging(CRITICAL + 20)
    while broker.node.state.live.flows[1].lag > 85 and reader.held:
        reader.settle(SettleAction.ACK, most=1)
        broker.advance(110)
        broker.publish("slow", "x", priority=Priority.CRITICAL)
    assert broker.node.state.live.flows[1].level == Level.CRITICAL


def test_a_client_over_its_quota_is_refused_until_it_has_some_again() -> None:
    broker = Running(Settings(quota_messages=10))
    assert isinstance(broker.publish("a", *["x"] * 15), Appended)
    answer = refusal(broker.publish("a", "x"))
    assert answer.status == Status.QUOTA
    broker.advance(answer.retry_after_ms + 1)
    assert isinstance(broker.publish("a", "x"), Appended)


def test_a_quota_is_used_up_by_exactly_as_much_as_it_says() -> None:
    broker = Running(Settings(quota_messages=10))
    assert isinstance(broker.publish("a", *["x"] * 10), Appended)
    assert refusal(broker.publish("a", "x")).status == Status.QUOTA
    broker.advance(1)
    assert isinstance(broker.publish("a", "x"), Appended)
    size = len(batch.build([(None, b"x", ())], timestamp_ms=START_WALL_MS))
    broker = Running(Settings(quota_bytes=2 * size))
    assert isinstance(broker.publish("a", "x"), Appended)
    assert isinstance(broker.publish("a", "x"), Appended)
    assert refusal(broker.publish("a", "x")).status == Status.QUOTA


def test_messages_that_arrive_together_count_against_their_own_clients_quotas() -> None:
    broker = Running(Settings(quota_messages=5))
    greedy, modest = broker.connect(), broker.connect()
    publish = wire.Publish("a", (), b"x")
    greedy.send(*[publish] * 5)
    assert [frame.payload[0] for frame in greedy.take(FrameType.RESPONSE)] == [Status.OK] * 5
    for client in (greedy, modest, modest, greedy):
        broker.node.receive(client.session, frames.encode(publish.TYPE, publish.encode()))
    broker.settle_down()
    assert [frame.payload[0] for frame in greedy.take(FrameType.RESPONSE)] == [Status.QUOTA] * 2
    assert [frame.payload[0] for frame in modest.take(FrameType.RESPONSE)] == [Status.OK] * 2


def test_what_is_refused_costs_no_quota() -> None:
    broker, _ = lagging(2 * CRITICAL, Settings(session_timeout_ms=1 << 50, quota_messages=15))
    broker.advance(2_000)
    for _ in range(20):
        assert refusal(broker.publish("slow", "x", "y")).status == Status.BUSY
    assert isinstance(broker.publish("other", *["x"] * 15), Appended)


def test_no_topic_is_made_for_a_message_that_is_refused() -> None:
    broker = Running(Settings(session_timeout_ms=1 << 50, quota_messages=1))
    broker.ask(lambda me, number: inputs.SetReadOnly("the disk is full"))
    assert refusal(broker.publish("a", "x")).status == Status.READ_ONLY
    broker.ask(lambda me, number: inputs.SetReadOnly(""))
    broker.ask(lambda me, number: inputs.SetThrottle("memory is short"))
    assert refusal(broker.publish("b", "x", priority=Priority.LOW)).status == Status.BUSY
    broker.ask(lambda me, number: inputs.SetThrottle(""))
    assert refusal(broker.publish("c", "x", delay_ms=1 << 40)).status == Status.INVALID
    assert isinstance(broker.publish("d", "x"), Appended)
    assert refusal(broker.publish("e", "x")).status == Status.QUOTA
    assert list(broker.node.state.durable.topics_by_name) == ["d"]


def test_the_rate_of_consumers_is_the_slowest_groups_own_and_moving_back_settles_nothing() -> None:
    broker, reader = lagging(CRITICAL + 40)
    reader.say(lambda me, number: inputs.Commit(me, number, "g", "slow", 0, 100))
    broker.consumer().subscribe("slow", "h", credit=1)

    def drain() -> int:
        broker.advance(CHECK_MS + 10)
        broker.publish("slow", "x", priority=Priority.CRITICAL)
        return broker.node.state.live.flows[1].drain

    assert drain() == 0
    reader.say(lambda me, number: inputs.Commit(me, number, "h", "slow", 0, 130))
    # Group g is the slowest now. It has settled more than h had before, but nothing since then.
    assert drain() == 0
    reader.say(lambda me, number: inputs.Commit(me, number, "g", "slow", 0, 130))
    before = drain()
    assert before > 0
    reader.say(lambda me, number: inputs.Seek(me, number, "g", "slow", 0, Whence.EARLIEST, 0))
    assert 0 < drain() < before


def test_a_read_only_broker_takes_no_messages_but_lets_them_be_settled() -> None:
    broker = Running()
    reader = broker.consumer()
    reader.subscribe("a", "g")
    broker.publish("a", "x")
    broker.ask(lambda me, number: inputs.SetReadOnly("the disk is 96% full"))
    answer = refusal(broker.publish("a", "y"))
    assert answer.status == Status.READ_ONLY
    assert "96% full" in answer.reason
    assert reader.settle(SettleAction.ACK) == 1
    broker.ask(lambda me, number: inputs.SetReadOnly(""))
    assert isinstance(broker.publish("a", "y"), Appended)


def test_a_throttled_broker_holds_confirms_back_and_refuses_the_less_important() -> None:
    broker = Running()
    broker.ask(lambda me, number: inputs.SetThrottle("memory is 85% full"))
    answer = refusal(broker.publish("a", "x", priority=Priority.LOW))
    assert answer.status == Status.BUSY
    assert "85% full" in answer.reason
    broker.effects.clear()
    assert broker.publish("a", "x") is None
    broker.advance(THROTTLED_MS - 1)
    assert not _confirmed(broker)
    broker.advance(1)
    assert _confirmed(broker) == [0]
    broker.ask(lambda me, number: inputs.SetThrottle(""))
    assert isinstance(broker.publish("a", "y", priority=Priority.LOW), Appended)


def _confirmed(broker: Running) -> list[int]:
    return [e.answer.offset for e in broker.effects if isinstance(e, Reply) and isinstance(e.answer, Appended)]


def test_the_topic_of_deep_looks_is_seen_by_nobody_and_other_hidden_topics_take_no_messages() -> None:
    broker = Running()
    reader = broker.consumer()
    reader.subscribe("#", "g")
    assert isinstance(broker.publish(HEALTH, "ping"), Appended)
    assert reader.texts == []
    broker.publish("a", "later", delay_ms=3_600_000)
    (hidden,) = [name for name in broker.node.state.durable.topics_by_name if name.startswith("~delay")]
    assert refusal(broker.publish(hidden, "x")).status == Status.INVALID
    assert refusal(broker.publish("~other", "x")).status == Status.INVALID
    broker.crash()
    assert isinstance(broker.publish(HEALTH, "ping"), Appended)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 1_000)), max_size=5), st.integers(0, 25))
def test_when_an_offset_arrived_is_told_by_the_last_mark_at_or_below_it(
    drawn: list[tuple[int, int]], offset: int
) -> None:
    marks = tuple(sorted(dict(drawn).items()))
    below = [arrived for at, arrived in marks if at <= offset]
    expected = below[-1] if below else marks[0][1] if marks else -1
    assert arrived_ms(marks, offset, -1) == expected


def test_an_arrival_is_marked_once_a_second_and_more_coarsely_the_longer_ago() -> None:
    broker = Running()
    began_ms = broker.now.wall_ms
    for _ in range(5):
        broker.publish("a", "x")
        broker.advance(MARK_MS // 2)
    (log,) = broker.node.state.live.marks
    assert broker.node.state.live.marks[log] == tuple((at, began_ms + at * MARK_MS // 2) for at in (0, 2, 4))
    for _ in range(2 * MARKS_MAX):
        broker.advance(MARK_MS)
        broker.publish("a", "x")
    marks = broker.node.state.live.marks[log]
    assert MARKS_MAX // 2 <= len(marks) <= MARKS_MAX
    assert marks == tuple(sorted(marks))
    steps = [later[0] - earlier[0] for earlier, later in pairwise(marks)]
    assert steps[-MARKS_MAX // 2 :] == [1] * (MARKS_MAX // 2)
    assert steps[0] > 2
    assert marks[0] == (0, began_ms)


def test_confirms_wait_longer_the_more_was_published_before_them() -> None:
    broker, reader = lagging(CRITICAL + 20)
    for _ in range(10):
        reader.settle(SettleAction.ACK, most=1)
        broker.publish("slow", *["x"] * 10, priority=Priority.CRITICAL)
        broker.advance(CHECK_MS + 10)
    before = timers_of(broker)
    for _ in range(3):
        broker.publish("slow", *["x"] * 20, priority=Priority.CRITICAL)
    assert len({at_ms for at_ms, _ in timers_of(broker)[len(before) :]}) == 3


def timers_of(broker: Running) -> list[tuple[int, timers.Timer]]:
    """The timers of confirms that are held back, and when they fire."""
    wheel = broker.node.state.live.timers
    return [
        (bucket * timers.BUCKET_MS, timer)
        for bucket, held in timers.contents(wheel)
        for timer in held
        if timer[0] == timers.HELD
    ]
