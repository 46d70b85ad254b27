"""The blocking twin: the same words without an event loop."""

import threading
from pathlib import Path

import pytest

from dovetail.runtime.client import Disconnected, Outcome
from dovetail.runtime.client.blocking import connect, worth_fetching
from tests.client.broker import config, serving_elsewhere


def test_a_program_without_a_loop_publishes_and_consumes(tmp_path: Path) -> None:
    with serving_elsewhere(config(tmp_path)) as url, connect(url) as dv:
        receipt = dv.publish("orders", "hello", key="k", headers={"a": "b"})
        with dv.subscribe("orders", group="billing") as orders:
            message = next(orders)
            assert message.id == receipt.message_id
            assert (message.text, message.key, message.headers, message.attempt) == ("hello", b"k", {"a": "b"}, 1)
            assert message.nack(wait="applied") is Outcome.REQUEUED
            with next(orders) as again:
                assert again.attempt == 2
            assert again.settled
            assert orders.take(timeout="50ms") == []
        assert [topic.name for topic in dv.topics()] == ["orders"]


def test_an_exception_in_a_message_asks_for_another_try(tmp_path: Path) -> None:
    with serving_elsewhere(config(tmp_path)) as url, connect(url) as dv:
        orders = dv.subscribe("orders", group="billing")
        dv.publish("orders", "x")
        with pytest.raises(KeyError), next(orders):
            raise KeyError
        assert next(orders).attempt == 2


def test_a_producer_of_a_plain_program_batches_and_confirms(tmp_path: Path) -> None:
    with serving_elsewhere(config(tmp_path)) as url, connect(url) as dv:
        with dv.producer("orders", linger_ms=1) as producer:
            futures = [producer.send(f"{n}") for n in range(200)]
        assert [future.result().offset for future in futures] == list(range(200))


def test_threads_share_a_client(tmp_path: Path) -> None:
    with serving_elsewhere(config(tmp_path)) as url, connect(url) as dv:
        threads = [threading.Thread(target=dv.publish, args=("orders", f"{n}")) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (topic,) = dv.topics("orders")
        assert topic.messages == 10


def test_a_slow_program_fetches_one_by_one_and_a_quick_one_does_not() -> None:
    assert worth_fetching(0, 100.0) == 1
    assert worth_fetching(1, 2.0) == 1
    assert worth_fetching(1, 0.001) == 100
    assert worth_fetching(100, 0.5) == 20
    assert worth_fetching(100, 0.0) == 100


def test_iteration_ends_when_the_subscription_is_closed(tmp_path: Path) -> None:
    with serving_elsewhere(config(tmp_path)) as url, connect(url) as dv:
        orders = dv.subscribe("orders")
        threading.Timer(0.05, orders.close).start()
        assert list(orders) == []


def test_a_broker_that_is_not_there_is_reported_and_no_thread_stays() -> None:
    with pytest.raises(Disconnected, match="dovetail serve"):
        connect("127.0.0.1:1", connect_timeout="50ms").open()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("dovetail client")] == []


def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    with pytest.raises(ValueError, match="with connect"):
        connect().publish("orders", "x")


def test_taking_one_by_one_waits_for_the_next_delivery_instead_of_ending(tmp_path: Path) -> None:
    with serving_elsewhere(config(tmp_path)) as url, connect(url) as dv:
        orders = dv.subscribe("orders", group="billing")
        for number in range(20):
            dv.publish("orders", f"{number}")
            (message,) = orders.take(1, timeout="10s")
            assert message.text == f"{number}"
            message.ack()
