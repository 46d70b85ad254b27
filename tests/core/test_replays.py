"""Dead letters tell their story, can be replayed as jobs that survive a crash, and purged."""

import json

import pytest

from dovetail.core import batch, inputs
from dovetail.core.codes import NackReason, SettleAction, Status
from dovetail.core.effects import Done, ReplayBegun
from dovetail.core.evolve import REPLAYS_KEPT
from dovetail.core.records import ReplayState, TopicConfig
from dovetail.core.state import Replay
from tests.core.running import Consumer, Running, refusal


def with_dead_letters(count: int) -> Running:
    """A broker with `count` dead letters in a.dlq."""
    broker = Running()
    reader = broker.consumer("billing")
    reader.subscribe("a", "g", credit=1_000)
    broker.publish("a", *[f"message {number}" for number in range(count)])
    reader.settle(SettleAction.REJECT, error="no such customer")
    return broker


def headers_of(broker: Running, offset: int) -> dict[str, str]:
    broker.advance(100)
    (entry,) = broker._read(_log(broker, "a.dlq"), offset, 1)
    (record,) = batch.parse(entry.batch)
    return {key: (value or b"").decode() for key, value in record.headers}


def _log(broker: Running, topic: str) -> int:
    durable = broker.node.state.durable
    return durable.topics[durable.topics_by_name[topic]].first_log


def replay(broker: Running, offsets: tuple[int, ...], target: str = "a.again", **limits: int) -> Replay:
    items = tuple((offset, target, 0) for offset in offsets)
    answer = broker.ask(lambda me, number: inputs.StartReplay(me, number, "a.dlq", items, **limits))
    assert isinstance(answer, ReplayBegun)
    return broker.node.state.durable.replays[answer.replay]


def reading(broker: Running, topic: str) -> Consumer:
    reader = broker.consumer()
    reader.subscribe(topic, "readers", credit=1_000)
    return reader


def test_a_dead_letter_says_where_it_came_from_and_what_was_tried() -> None:
    broker = Running()
    first, second = broker.consumer("one"), broker.consumer("two")
    first.subscribe("a", "g")
    second.subscribe("a", "g")
    broker.publish("a", "bad")
    for _ in range(8):
        for each in (first, second):
            each.settle(SettleAction.NACK, NackReason.PROCESSING_ERROR, "it does not parse")
        broker.advance(3_000)
    headers = headers_of(broker, 0)
    history = json.loads(headers["dovetail-history"])
    assert (headers["dovetail-topic"], headers["dovetail-offset"], headers["dovetail-group"]) == ("a", "0", "g")
    assert len(history) == 4 == int(headers["dovetail-attempts"])
    assert [each["error"] for each in history] == ["it does not parse"] * 4
    assert {each["member"].split("-")[0] for each in history[:2]} == {"one", "two"}
    assert all(each["delivered_ms"] <= each["ended_ms"] for each in history)


def test_the_neighbours_of_a_message_that_always_fails_are_unharmed() -> None:
    broker = Running()
    reader = broker.consumer()
    reader.subscribe("a", "g")
    broker.publish("a", *["good"] * 5, "bad", *["good"] * 6)
    settled = 0
    for _ in range(40):
        held, reader.held = reader.held, []
        for each in held:
            for first, last in each.ranges:
                action = SettleAction.NACK if first <= 5 <= last else SettleAction.ACK
                item = inputs.SettleItem(each.lease, action, first, last)
                reader.say(lambda me, number, item=item: inputs.Settle(me, number, (item,)))
                settled += last - first + 1 if action == SettleAction.ACK else 0
        broker.advance(10_000)
    assert settled == 11
    assert headers_of(broker, 0)["dovetail-offset"] == "5"
    assert broker.node.state.durable.cursors[1, _log(broker, "a")].floor == 12


def test_a_message_that_two_members_call_poison_dies_at_once() -> None:
    broker = Running()
    first, second = broker.consumer("one"), broker.consumer("two")
    for each in (first, second):
        each.subscribe("a", "g")
    broker.publish("a", "bad")
    for _ in range(2):
        for each in (first, second):
            each.settle(SettleAction.NACK, NackReason.POISON)
    headers = headers_of(broker, 0)
    assert headers["dovetail-reason"] == "poison"
    assert "2 members" in headers["dovetail-error"]


def test_failures_in_a_window_make_poison_only_where_that_is_asked_for() -> None:
    for failures, attempts in ((0, 4), (2, 2)):
        broker = Running()
        broker.create("a", TopicConfig(poison_failures=failures, poison_window_ms=600_000))
        reader = broker.consumer()
        reader.subscribe("a", "g")
        broker.publish("a", "bad")
        for _ in range(8):
            reader.settle(SettleAction.NACK)
            broker.advance(3_000)
        assert int(headers_of(broker, 0)["dovetail-attempts"]) == attempts


def test_a_replay_goes_in_the_order_of_its_plan_and_says_so_in_headers() -> None:
    broker = with_dead_letters(5)
    reader = reading(broker, "a.again")
    job = replay(broker, (3, 1, 4))
    broker.advance(1_000)
    assert reader.texts == ["message 3", "message 1", "message 4"]
    job = broker.node.state.durable.replays[job.id]
    assert (job.state, job.done) == (ReplayState.DONE, 3)
    (entry, *_) = broker._read(_log(broker, "a.again"), 0, 1)
    (record,) = batch.parse(entry.batch)
    assert dict(record.headers)["dovetail-replay"] == b"1"


def test_an_entry_leaves_the_dead_letters_when_its_replay_is_appended_and_not_before() -> None:
    broker = with_dead_letters(5)
    replay(broker, (2, 3), rate=10)
    assert broker.node.state.durable.removed[_log(broker, "a.dlq")] == ((2, 2),)
    broker.advance(300)
    assert broker.node.state.durable.removed[_log(broker, "a.dlq")] == ((2, 3),)


def test_a_replay_goes_on_after_a_crash_without_losing_or_repeating_an_entry() -> None:
    broker = with_dead_letters(30)
    replay(broker, tuple(range(30)), rate=50)
    broker.advance(200)
    broker.crash()
    reader = reading(broker, "a.again")
    broker.advance(2_000)
    assert reader.texts == [f"message {number}" for number in range(30)]


def test_a_replay_can_be_paused_gone_on_with_and_aborted() -> None:
    broker = with_dead_letters(30)
    job = replay(broker, tuple(range(30)), rate=50)

    def change(state: ReplayState) -> Replay:
        broker.ask(lambda me, number: inputs.ChangeReplay(me, number, job.id, state))
        return broker.node.state.durable.replays[job.id]

    paused = change(ReplayState.PAUSED).done
    broker.advance(1_000)
    assert broker.node.state.durable.replays[job.id].done <= paused + 5
    change(ReplayState.RUNNING)
    broker.advance(200)
    assert broker.node.state.durable.replays[job.id].done > paused
    done = change(ReplayState.ABORTED).done
    broker.advance(1_000)
    assert broker.node.state.durable.replays[job.id].done == done < 30


def test_a_replay_pauses_when_messages_die_again() -> None:
    broker = with_dead_letters(20)
    again = broker.consumer("again")
    again.subscribe("a", "g", credit=1_000)
    job = replay(broker, tuple(range(20)), target="a", rate=50, pause_deaths=5)
    for _ in range(20):
        again.settle(SettleAction.REJECT)
        broker.advance(100)
    found = broker.node.state.durable.replays[job.id]
    assert found.state == ReplayState.PAUSED
    assert "died again" in found.reason
    assert found.done < 20


@pytest.mark.parametrize("rate", [1, 7, 10, 15, 99, 250])
def test_a_replay_is_as_fast_as_its_rate_and_no_faster(rate: int) -> None:
    broker = with_dead_letters(600)
    job = replay(broker, tuple(range(600)), rate=rate)
    broker.advance(2_050)
    done = broker.node.state.durable.replays[job.id].done
    assert 2 * rate * 9 // 10 <= done <= 2 * rate + max(1, rate // 10)


def test_a_replay_that_is_set_running_again_and_again_is_no_faster() -> None:
    broker = with_dead_letters(300)
    job = replay(broker, tuple(range(300)), rate=20)
    for _ in range(20):
        broker.advance(100)
        for state in (ReplayState.PAUSED, ReplayState.RUNNING, ReplayState.RUNNING):
            broker.ask(lambda me, number, state=state: inputs.ChangeReplay(me, number, job.id, state))
    assert broker.node.state.durable.replays[job.id].done <= 45


def test_a_replay_that_paused_itself_goes_on_when_it_is_resumed_and_counts_anew() -> None:
    broker = with_dead_letters(30)
    again = broker.consumer("again")
    again.subscribe("a", "g", credit=1_000)
    job = replay(broker, tuple(range(30)), target="a", rate=100, pause_deaths=5)

    def until_it_pauses() -> Replay:
        for _ in range(20):
            again.settle(SettleAction.REJECT)
            broker.advance(100)
        return broker.node.state.durable.replays[job.id]

    paused = until_it_pauses()
    assert paused.state == ReplayState.PAUSED
    broker.ask(lambda me, number: inputs.ChangeReplay(me, number, job.id, ReplayState.RUNNING))
    resumed = until_it_pauses()
    assert resumed.state == ReplayState.PAUSED
    assert resumed.done > paused.done


def test_a_replay_into_another_topic_pauses_when_messages_die_there() -> None:
    broker = with_dead_letters(20)
    again = broker.consumer("again")
    again.subscribe("a.again", "g", credit=1_000)
    job = replay(broker, tuple(range(20)), rate=50, pause_deaths=5)
    for _ in range(20):
        again.settle(SettleAction.REJECT)
        broker.advance(100)
    found = broker.node.state.durable.replays[job.id]
    assert found.state == ReplayState.PAUSED
    assert found.done < 20


def test_what_is_not_there_or_under_way_already_is_refused() -> None:
    broker = with_dead_letters(3)
    replay(broker, (0, 1, 2), rate=1)
    for offsets, status in (((1, 2), Status.EXISTS), ((9,), Status.NOT_FOUND), ((), Status.INVALID)):
        items = tuple((offset, "a", 0) for offset in offsets)
        answer = broker.ask(lambda me, number, items=items: inputs.StartReplay(me, number, "a.dlq", items))
        assert refusal(answer).status == status


def test_a_purge_removes_what_it_names_but_not_what_is_being_replayed() -> None:
    broker = with_dead_letters(6)
    replay(broker, (4, 5), rate=10)
    broker.ask(lambda me, number: inputs.RemoveDead(me, number, "a.dlq", ((0, 9),)))
    durable = broker.node.state.durable
    log = durable.logs[_log(broker, "a.dlq")]
    assert log.start >= 4
    reader = reading(broker, "a.again")
    broker.advance(1_000)
    assert reader.texts == ["message 4", "message 5"]


def test_a_purge_frees_no_place_that_a_group_has_still_to_read() -> None:
    broker = Running()
    waiting = broker.consumer("waiting")
    waiting.subscribe("a.dlq", "first", credit=1_000)
    reader = broker.consumer("billing")
    reader.subscribe("a", "g", credit=1_000)
    broker.publish("a", "one", "two", "three")
    reader.settle(SettleAction.REJECT)
    broker.ask(lambda me, number: inputs.RemoveDead(me, number, "a.dlq", ((0, 1),)))
    log = _log(broker, "a.dlq")
    assert broker.node.state.durable.logs[log].start == broker.node.state.durable.cursors[1, log].floor


def test_a_topic_that_holds_no_dead_letters_can_not_be_replayed_from() -> None:
    broker = with_dead_letters(1)
    answer = broker.ask(lambda me, number: inputs.StartReplay(me, number, "a", ((0, "b", 0),)))
    assert "no dead letters" in refusal(answer).reason


def test_a_replay_waits_while_consumers_of_its_target_lag_and_goes_on_when_they_do_not() -> None:
    broker = with_dead_letters(20)
    slow = reading(broker, "a.again")
    broker.publish("a.again", *["in the way"] * 6)
    job = replay(broker, tuple(range(20)), rate=100, pause_lag=5)
    broker.advance(3_000)
    assert broker.node.state.durable.replays[job.id].done == 0
    slow.settle(SettleAction.ACK)
    for _ in range(40):
        broker.advance(100)
        slow.settle(SettleAction.ACK)
    assert broker.node.state.durable.replays[job.id].state == ReplayState.DONE


def test_replays_are_numbered_one_after_the_other() -> None:
    broker = with_dead_letters(3)
    assert [replay(broker, (offset,)).id for offset in range(3)] == [1, 2, 3]


def test_a_purge_of_what_is_not_there_removes_nothing() -> None:
    broker = with_dead_letters(3)
    for ranges in ((), ((7, 9),)):
        assert broker.ask(lambda me, number, r=ranges: inputs.RemoveDead(me, number, "a.dlq", r)) == Done()  # type: ignore[misc]
    assert broker.node.state.durable.logs[_log(broker, "a.dlq")].start == 0


def test_retention_keeps_what_is_still_to_be_replayed_and_nothing_else_for_its_sake() -> None:
    broker = with_dead_letters(6)
    job = replay(broker, (2, 4), rate=1)
    broker.ask(lambda me, number: inputs.ChangeReplay(me, number, job.id, ReplayState.PAUSED))
    broker.publish("other", *["x"] * 6)
    for topic in ("a.dlq", "other"):
        broker.node.submit(inputs.TrimLog(_log(broker, topic), 6))
    broker.settle_down()
    durable = broker.node.state.durable
    left = [offset for offset, _, _ in durable.replays[job.id].items[durable.replays[job.id].done :]]
    assert durable.logs[_log(broker, "a.dlq")].start == min(left)
    assert durable.logs[_log(broker, "other")].start == 6


def test_a_copy_that_comes_when_its_job_is_forgotten_is_dropped() -> None:
    broker = with_dead_letters(REPLAYS_KEPT + 2)
    broker.crash()
    broker.reads_wait = True
    jobs = []
    for offset in range(REPLAYS_KEPT + 2):
        jobs.append(replay(broker, (offset,)).id)
        broker.ask(lambda me, number: inputs.ChangeReplay(me, number, jobs[-1], ReplayState.ABORTED))
    assert jobs[0] not in broker.node.state.durable.replays
    broker.reads_wait = False
    broker.settle_down()
    assert not broker.node.state.live.replaying
    assert "a.again" not in broker.node.state.durable.topics_by_name
