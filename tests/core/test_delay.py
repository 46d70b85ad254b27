"""Delayed messages come once, not early, survive a restart, and pin nobody's floor."""

import pytest

from dovetail.core import inputs, timers
from dovetail.core.awaken import awaken
from dovetail.core.codes import SettleAction, Status
from dovetail.core.delay import DELAY_MS_MAX
from dovetail.core.ids import Now, ordered
from dovetail.core.state import Durable, Settings
from dovetail.core.step import step, wake_ms
from tests.core.running import HOUR_MS, START_WALL_MS, Running, refusal


def test_a_delayed_message_comes_when_it_is_due_and_not_before() -> None:
    broker = Running()
    reader = broker.consumer()
    reader.subscribe("a", "g")
    broker.publish("a", "later", delay_ms=5_000)
    broker.advance(4_990)
    assert reader.texts == []
    broker.advance(20)
    assert reader.texts == ["later"]


def test_it_is_appended_behind_what_came_meanwhile_and_does_not_pin_the_floor() -> None:
    broker = Running()
    reader = broker.consumer()
    reader.subscribe("a", "g")
    broker.publish("a", "later", delay_ms=5_000)
    broker.publish("a", "now")
    reader.settle(SettleAction.ACK)
    durable = broker.node.state.durable
    log = durable.topics[durable.topics_by_name["a"]].first_log
    assert durable.cursors[1, log].floor == 1
    broker.advance(5_010)
    assert reader.texts == ["now", "later"]


def test_delayed_messages_survive_a_restart_and_each_comes_once() -> None:
    broker = Running()
    for number in range(20):
        broker.publish("a", f"message {number}", delay_ms=1_000 + 100 * number)
    broker.advance(1_950)
    broker.crash()
    broker.advance(500)
    broker.crash()
    reader = broker.consumer()
    reader.subscribe("a", "g")
    broker.advance(5_000)
    assert sorted(reader.texts) == sorted(f"message {number}" for number in range(20))


def test_hours_that_are_far_are_not_in_memory() -> None:
    broker = Running()
    for hour in range(1, 50):
        for _ in range(5):
            broker.publish("a", "far", delay_ms=hour * HOUR_MS)
    delayed = sum(len(bucket) for _, bucket in timers.contents(broker.node.state.live.alarms))
    assert delayed <= 2 * 50 + 10
    for _ in range(49 * 4):
        broker.jump(HOUR_MS // 4)
    reader = broker.consumer()
    reader.subscribe("a", "g", credit=10_000)
    assert len(reader.texts) == 5 * 49


def test_the_log_of_an_hour_is_dropped_when_the_hour_is_over_and_all_of_it_has_moved() -> None:
    broker = Running()
    broker.publish("a", "later", delay_ms=HOUR_MS)
    assert any(name.startswith("~delay") for name in _names(broker))
    for _ in range(3):
        broker.jump(HOUR_MS)
    assert _names(broker) == ["a"]
    state = broker.node.state
    assert set(state.live.tails) == set(state.durable.logs)


def _names(broker: Running) -> list[str]:
    return [topic.name for _, topic in ordered(broker.node.state.durable.topics)]


def test_a_delay_of_more_than_a_year_is_refused() -> None:
    answer = refusal(Running().publish("a", "never", delay_ms=DELAY_MS_MAX + 1))
    assert answer.status == Status.INVALID


def test_a_delayed_message_whose_topic_is_gone_is_dropped() -> None:
    from dovetail.core import inputs

    broker = Running()
    broker.publish("a", "later", delay_ms=1_000)
    broker.ask(lambda me, number: inputs.DeleteTopic(me, number, "a", True))
    broker.jump(3 * HOUR_MS)
    broker.jump(10)
    assert _names(broker) == []


def test_the_time_to_live_of_a_delayed_message_begins_when_it_is_due() -> None:
    broker = Running()
    broker.publish("a", "short", delay_ms=5_000, ttl_ms=1_000)
    broker.advance(5_500)
    reader = broker.consumer()
    reader.subscribe("a", "g")
    assert reader.texts == ["short"]


def test_what_is_due_is_read_without_the_neighbours_that_are_due_later(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Running()
    read: list[int] = []
    do = broker._do

    def counted(job: object) -> object:
        found = do(job)
        if isinstance(found, tuple):
            read.extend(entry.base for entry in found)
        return found

    monkeypatch.setattr(broker, "_do", counted)
    for number in range(30):
        broker.publish("a", f"message {number}", delay_ms=5_000 + 100 * (number * 7 % 30))
    broker.advance(10_000)
    assert sorted(read) == list(range(30))


def test_a_broker_sleeps_until_a_delayed_message_is_due() -> None:
    broker = Running()
    broker.publish("a", "later", delay_ms=700)
    broker.advance(200)
    broker.now = Now(broker.now.mono_ms + 7, broker.now.wall_ms + 7)
    due_ms = wake_ms(broker.node.state, broker.now)
    assert due_ms is not None
    assert 493 <= due_ms - broker.now.mono_ms <= 493 + timers.BUCKET_MS


def test_what_is_due_before_it_is_stored_is_looked_at_again_a_moment_later() -> None:
    state = awaken(Durable(), Settings())
    asked: tuple[inputs.AnyInput, ...] = (
        inputs.Start(),
        inputs.SessionOpened(1, "publisher"),
        inputs.Publish("a", -1, 1, 1, 100, (inputs.Ask(1, 1, 0, 1),), 1, delay_ms=5),
    )
    state, _, _ = step(state, Now(0, START_WALL_MS), asked)
    for mono_ms in range(timers.BUCKET_MS, 100, timers.BUCKET_MS):
        now = Now(mono_ms, START_WALL_MS + mono_ms)
        state, _, _ = step(state, now, ())
        due_ms = wake_ms(state, now)
        assert due_ms is not None
        assert mono_ms < due_ms <= mono_ms + 2 * timers.BUCKET_MS
