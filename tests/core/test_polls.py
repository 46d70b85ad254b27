"""Reading a log without a group: at once, or waiting for what comes."""

from __future__ import annotations

import pytest

from dovetail.core.codes import Status
from dovetail.core.effects import Fetched, Refused, Reply
from dovetail.core.inputs import Fetch, Publish, Stored
from dovetail.core.polls import POLLS_MAX
from tests.core.broker import Broker


def fetch(broker: Broker, offset: int, wait_ms: int = 0, topic: str = "t", partition: int = 0) -> Fetch:
    return Fetch(broker.operator, broker.request(), topic, partition, offset, 1_000, wait_ms)


def test_what_is_there_is_answered_at_once() -> None:
    broker = Broker()
    broker.publish("t", 3)
    assert broker.ask(fetch(broker, 1, 500)) == Fetched(1, 1, 1_000, 0, 3)


def test_who_does_not_want_to_wait_gets_nothing_at_once() -> None:
    broker = Broker()
    broker.publish("t", 3)
    assert broker.ask(fetch(broker, 3)) == Fetched(1, 3, 1_000, 0, 3)


def test_an_answer_never_reaches_past_what_is_stored() -> None:
    broker = Broker()
    broker.publish("t")
    broker.step(Publish("t", -1, 5, 1, 100, ()))
    assert broker.ask(fetch(broker, 0)) == Fetched(1, 0, 1_000, 0, 1)


def test_what_retention_took_is_passed_over() -> None:
    broker = Broker()
    broker.publish("t", 3)
    broker.trim(1, 2)
    assert broker.ask(fetch(broker, 0)) == Fetched(1, 2, 1_000, 2, 3)


def test_a_poll_is_answered_when_something_is_stored() -> None:
    broker = Broker()
    broker.publish("t")
    assert broker.ask(fetch(broker, 1, 500)) is None
    assert broker.step(Publish("t", -1, 5, 1, 100, ())) == ()
    (reply,) = broker.step(Stored(broker.frames[-1][0]))
    assert isinstance(reply, Reply)
    assert reply.answer == Fetched(1, 1, 1_000, 0, 2)


def test_a_poll_is_answered_once_also_when_its_time_comes_later() -> None:
    broker = Broker()
    broker.publish("t")
    broker.ask(fetch(broker, 1, 500))
    broker.publish("t")
    broker.pass_time(1_000)
    assert not broker.state.live.polls


def test_a_poll_whose_time_is_over_is_answered_with_nothing() -> None:
    broker = Broker()
    broker.publish("t")
    broker.ask(fetch(broker, 1, 500))
    broker.pass_time(490)
    assert broker.state.live.polls
    broker.pass_time(10)
    assert not broker.state.live.polls


def test_who_waits_for_a_topic_that_goes_is_told() -> None:
    broker = Broker()
    broker.publish("t")
    request = fetch(broker, 1, 500)
    broker.ask(request)
    broker.delete("t")
    assert not broker.state.live.polls


def test_only_so_many_may_wait_for_one_log() -> None:
    broker = Broker()
    broker.publish("t")
    broker.begin_tick()
    for _ in range(POLLS_MAX):
        broker.step(fetch(broker, 1, 500))
    broker.end_tick()
    last = fetch(broker, 1, 500)
    broker.model.fetch = lambda session, request, *rest: broker.model._refuse(session, request, Status.BUSY)  # type: ignore[method-assign]  # the model has no bounds
    answer = broker.ask(last)
    assert isinstance(answer, Refused)
    assert answer.status == Status.BUSY


@pytest.mark.parametrize(
    ("topic", "partition", "status"),
    [("x", 0, Status.NOT_FOUND), ("t", 1, Status.INVALID), ("t", -1, Status.INVALID), ("..", 0, Status.INVALID)],
)
def test_a_log_that_is_not_there_can_not_be_read(topic: str, partition: int, status: Status) -> None:
    broker = Broker()
    broker.publish("t")
    answer = broker.ask(fetch(broker, 0, topic=topic, partition=partition))
    assert isinstance(answer, Refused)
    assert answer.status == status
