"""Killed at any moment, a broker keeps what it confirmed, in order, once, and delivers again what was not settled."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from dovetail.runtime.exits import Exit
from dovetail.torture import Book, Broken, Process, message, torture
from tests.broker.conftest import Start
from tests.broker.raw import DEAD_LETTERED, GOODBYE, PUBLISH, REQUEUED, Closed, Raw, frame, publish

ROUNDS = int(os.environ.get("DOVETAIL_TORTURE_ROUNDS", "2"))
TOPIC = "jobs"

Begin = Callable[[], tuple[Process, int]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts a broker process on the same data each time, and gives its port; the last one is killed with the test."""
    processes: list[Process] = []

    def start() -> tuple[Process, int]:
        processes.append(Process(str(tmp_path / "data")))
        return processes[-1], processes[-1].port()

    yield start
    processes[-1].kill()


def publish_until_the_end(port: int, name: int, confirmed: list[tuple[str, bytes]], enough: threading.Event) -> None:
    """Publish in writes of eight, and note each confirm until the broker is gone."""
    number = 0
    with Raw(port) as client:
        try:
            while True:
                values = [b"%d/%d" % (name, number + place) for place in range(8)]
                number += 8
                client.send(b"".join(frame(PUBLISH, publish(TOPIC, value)) for value in values))
                for value in values:
                    confirmed.append((client.answer().fields.text(), value))
                if number > 200:
                    enough.set()
        except (Closed, ConnectionError):
            pass


def test_confirmed_messages_survive_a_kill_and_unacknowledged_ones_come_again(begin: Begin) -> None:
    process, port = begin()
    worker = Raw(port)
    worker.subscribe(TOPIC, "workers", max_inflight=50)
    confirmed: list[list[tuple[str, bytes]]] = [[], [], []]
    enough = threading.Event()
    threads = [
        threading.Thread(target=publish_until_the_end, args=(port, name, confirmed[name], enough)) for name in range(3)
    ]
    for thread in threads:
        thread.start()
    held = worker.deliveries(50)
    for delivery in held[:10]:
        assert worker.ack(delivery.id) == 0
    assert enough.wait(60)
    process.kill()
    for thread in threads:
        thread.join()
    worker.close()

    _, port = begin()
    with Raw(port) as reader:
        reader.subscribe(TOPIC, "auditors", auto_ack=1)
        reader.subscribe(TOPIC, "workers", max_inflight=50)
        promised = {message_id: value for each in confirmed for message_id, value in each}
        stored: dict[str, bytes] = {}
        again: list[bytes] = []
        while not promised.keys() <= stored.keys() or len(again) < 50:
            delivery = reader.delivery()
            if delivery.deadline_ms == 0:
                stored[delivery.id.partition("#")[0]] = delivery.value
            else:
                again.append(delivery.value)
    assert list(stored) == [f"{TOPIC}:0:{offset}" for offset in range(len(stored))]
    assert {message_id: stored[message_id] for message_id in promised} == promised
    for name in range(3):
        numbers = [int(value.partition(b"/")[2]) for value in stored.values() if value.startswith(b"%d/" % name)]
        assert numbers == list(range(len(numbers))), "in order, once, without a gap"
    assert {each.value for each in held[10:]} <= set(again)


def test_what_was_acknowledged_before_a_stored_message_does_not_come_again_after_a_crash(start: Start) -> None:
    broker = start()
    client = broker.client()
    client.subscribe(TOPIC, "workers")
    client.publish_all(TOPIC, [b"0", b"1", b"2"])
    first, second, third = client.deliveries(3)
    assert client.ack(first.id) == client.ack(third.id) == 0
    client.publish(TOPIC, b"3")
    broker.kill()
    client = start(broker.data).client()
    client.subscribe(TOPIC, "workers")
    assert [each.value for each in client.deliveries(2)] == [second.value, b"3"]
    assert client.so_far() == []


def test_generations_and_positions_go_on_after_a_crash(start: Start) -> None:
    broker = start()
    client = broker.client()
    generation = client.join("workers", "abel")
    client.publish(TOPIC)
    broker.kill()
    client = start(broker.data).client()
    assert client.join("workers", "abel") > generation
    assert client.publish(TOPIC) == f"{TOPIC}:0:1"


def test_a_failed_attempt_is_remembered_over_a_crash_and_the_crash_is_none(start: Start) -> None:
    settings = Settings(topic_defaults=TopicConfig(max_retries=1))
    broker = start(settings=settings)
    client = broker.client()
    client.subscribe(TOPIC, "workers")
    client.publish(TOPIC, b"bad")
    assert client.nack(client.delivery().id) == REQUEUED
    assert client.delivery().value == b"bad"
    client.publish("another")
    broker.kill()
    client = start(broker.data, settings=settings).client()
    client.subscribe(TOPIC, "workers")
    assert client.nack(client.delivery().id) == DEAD_LETTERED


def test_a_broker_with_a_mistake_of_its_own_stops_and_confirms_nothing_more(start: Start) -> None:
    broker = start()
    client = broker.client()
    client.publish(TOPIC, b"0")

    def stumble(*_: object) -> None:
        raise LookupError("a mistake of ours")

    broker.server.node.observe = stumble
    client.send(frame(PUBLISH, publish(TOPIC, b"1")))
    client.wait_closed()
    failure = broker.server.failure.result()
    assert failure.code == Exit.BUG
    assert "a mistake of ours" in str(failure)
    broker.kill()
    client = start(broker.data).client()
    client.subscribe(TOPIC, "workers")
    client.publish(TOPIC, b"2")
    assert [each.value for each in client.deliveries(2)] == [b"0", b"2"], "what was not confirmed was not written"


def test_a_broker_that_is_asked_to_stop_says_goodbye_and_ends_well(begin: Begin) -> None:
    process, port = begin()
    with Raw(port) as client:
        client.publish(TOPIC, b"0")
        codes: list[int] = []
        stopping = threading.Thread(target=lambda: codes.append(process.stop()))
        stopping.start()
        assert client.frame().type == GOODBYE
    stopping.join()
    assert codes == [0]
    _, port = begin()
    with Raw(port) as client:
        client.subscribe(TOPIC, "workers")
        assert client.delivery().value == b"0"


def test_a_tortured_broker_keeps_its_promises() -> None:
    report = torture(ROUNDS, seed=ROUNDS)
    assert report.rounds == ROUNDS
    assert report.stored >= report.confirmed > 0
    assert report.redelivered > 0


@pytest.fixture
def book() -> Book:
    """Three messages of one producer, the first two confirmed."""
    book = Book(sent={("t", 0, 0): [5, 5, 5]})
    for number in range(2):
        book.confirm("t", number, (0, 0, number))
    return book


STORED = [(number, message((0, 0, number), 5)) for number in range(3)]


@pytest.mark.parametrize("stored", [STORED[:2], STORED])
def test_an_audit_accepts_what_was_confirmed_and_what_was_only_sent(
    book: Book, stored: list[tuple[int, bytes]]
) -> None:
    book.audit("t", stored)


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (STORED[:1], "lost"),
        (STORED[1:], "missing"),
        ([STORED[0], STORED[2]], "missing"),
        ([STORED[0], (1, STORED[2][1])], "was confirmed there"),
        ([*STORED[:2], (2, STORED[1][1])], "comes next"),
        ([*STORED, (3, message((0, 0, 3), 5))], "nobody sent"),
        ([STORED[0], (1, STORED[1][1][:-1] + b"!")], "nobody sent"),
        ([STORED[0], (1, b"")], "nobody sent"),
    ],
)
def test_an_audit_finds_what_is_lost_moved_doubled_invented_or_changed(
    book: Book, stored: list[tuple[int, bytes]], words: str
) -> None:
    with pytest.raises(Broken, match=words):
        book.audit("t", stored)
