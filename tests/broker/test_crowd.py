"""Many clients at once, all lost at once, and clients that do not read: bounded, and nobody else's trouble."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import struct

import pytest

from dovetail.core.node import NodeOptions
from tests.broker.conftest import Start
from tests.broker.house import House, close_all, wait_until
from tests.broker.raw import ACK, HEARTBEAT, PUBLISH, SUBSCRIBE, Raw, ack, frame, publish, subscribe, text

CROWD = 1_000
MIB = 1 << 20
FETCH, METADATA = 24, 27


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def holdings(broker: House) -> dict[str, int]:
    """How much the broker holds, by the name of what holds it."""

    def count() -> dict[str, int]:
        node = broker.server.node
        live = node.state.live
        found = {f"live.{name}": getattr(live, name) for name in live.__struct_fields__}
        found |= {f"node.{name}": value for name, value in vars(node).items()}
        found |= {f"server.{name}": value for name, value in vars(broker.server).items()}
        return {name: len(value) for name, value in found.items() if hasattr(value, "__len__")}

    return broker.call(count)


def gather(broker: House, count: int) -> list[Raw]:
    """That many connections, each of which reads, publishes and holds a message."""
    crowd = [Raw(broker.port) for _ in range(count)]
    for number, client in enumerate(crowd):
        own = f"own.t{number % 50}"
        group = "everybody" if number % 2 else ""
        client.send(frame(SUBSCRIBE, subscribe("shared.#", group)) + frame(PUBLISH, publish(own, b"x" * 100)))
    for client in crowd:
        assert client.answer().status == 0
        assert client.answer().status == 0
    return crowd


def scatter(broker: House, crowd: list[Raw]) -> None:
    """All lost at once: half of them close, half are reset, some in the middle of a frame."""
    for client in crowd[::3]:
        client.send(frame(PUBLISH, bytes(50), length=1000))
    for client in crowd[::2]:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    close_all(crowd)
    wait_until(lambda: broker.server.connection_count == 0, "the broker notices that all are gone")
    with Raw(broker.port) as last:
        last.heartbeat()
    wait_until(lambda: broker.server.connection_count == 0, "and the last one too")
    wait_until(lambda: broker.call(lambda: broker.server.node.is_quiet), "and everything is written")


def test_a_thousand_connections_lost_at_once_leave_nothing_behind(broker: House) -> None:
    with Raw(broker.port) as publisher:
        publisher.publish("shared.a")
    scatter(broker, gather(broker, 100))
    gc.collect()
    held_before, descriptors_before, bytes_before = holdings(broker), descriptors(), resident_bytes()
    crowd = gather(broker, CROWD)
    assert broker.server.connection_count == CROWD
    with Raw(broker.port) as publisher:
        publisher.publish("shared.a", b"to all")
    for client in crowd[::2]:
        assert client.delivery().value == b"to all"
    scatter(broker, crowd)
    del crowd, client
    gc.collect()
    assert holdings(broker) == held_before
    assert descriptors() == descriptors_before
    assert resident_bytes() - bytes_before < 64 * MIB
    with Raw(broker.port) as client:
        client.subscribe("shared.a", "everybody")
        assert client.delivery().topic == "shared.a"


def test_garbage_by_the_thousand_does_not_grow_the_broker(broker: House) -> None:
    def pester() -> None:
        for number in range(300):
            with Raw(broker.port) as client:
                client.send((frame(77, bytes(number)) + frame(PUBLISH)) * 20 + b"garbage")
                for _ in range(41):
                    client.mistake()
                client.wait_closed()
        wait_until(lambda: broker.server.connection_count == 0, "all are gone")

    pester()
    gc.collect()
    before, bytes_before = holdings(broker), resident_bytes()
    pester()
    gc.collect()
    assert holdings(broker) == before
    assert resident_bytes() - bytes_before < 16 * MIB


def deaf(broker: House) -> Raw:
    """A connection with a small window, so that what it does not read soon waits in the broker."""
    client = broker.client()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    return client


def waiting_bytes(broker: House) -> int:
    """How much waits in the broker to be read by its clients."""
    return broker.call(
        lambda: sum(each.transport.get_write_buffer_size() for each in broker.server._protocols.values())
    )


def test_a_subscriber_that_does_not_read_keeps_nobody_waiting_and_little_memory(broker: House) -> None:
    sleeper, reader, publisher = deaf(broker), broker.client(), broker.client()
    sleeper.subscribe("news", auto_ack=1)
    reader.subscribe("news", auto_ack=1)
    values = [b"%04d" % number + bytes(100_000) for number in range(200)]
    for value in values:
        publisher.publish("news", value)
        assert reader.delivery().value == value
    assert waiting_bytes(broker) <= 2 * NodeOptions().send_window_bytes
    assert [sleeper.delivery().value for _ in values] == values, "what it reads late is all there, in order"


def test_a_group_member_that_does_not_read_leaves_the_work_to_the_others(broker: House) -> None:
    sleeper, reader, publisher = deaf(broker), broker.client(), broker.client()
    sleeper.subscribe("jobs", "workers", max_inflight=10)
    reader.subscribe("jobs", "workers", max_inflight=1000)
    publisher.publish_all("jobs", [bytes(10_000)] * 200)
    assert len(reader.deliveries(190)) == 190


QUESTIONS = {
    "large answers": frame(FETCH, text("news") + struct.pack(">iQII", 0, 0, MIB, 0)),
    "small answers": frame(ACK, ack("nothing" * 100)),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_who_asks_and_never_reads_the_answers_loses_the_connection(start: Start, question: str) -> None:
    broker = start(node=NodeOptions(send_buffer_bytes_max=4 * MIB))
    client, other = deaf(broker), broker.client()
    other.subscribe("news")
    other.publish("news", bytes(MIB))
    bytes_before = resident_bytes()
    with contextlib.suppress(ConnectionError):
        while broker.call(lambda: len(broker.server.node.sessions())) == 3:
            client.send(QUESTIONS[question] * 1000)
    wait_until(lambda: broker.call(lambda: len(broker.server.node.sessions())) == 2, "the broker lets go of it")
    assert resident_bytes() - bytes_before < 128 * MIB
    assert other.delivery().value == bytes(MIB)
    assert other.heartbeat() == 0


def test_a_client_that_reads_may_ask_for_as_much_as_it_likes_at_once(broker: House) -> None:
    client = broker.client()
    client.publish("news", bytes(MIB))
    bytes_before = resident_bytes()
    client.send(frame(FETCH, text("news") + struct.pack(">iQII", 0, 0, MIB, 0)) * 200)
    for _ in range(200):
        fields = client.answer().fields
        assert (fields.number(8), fields.number(8)) == (0, 1)
        assert len(fields.blob()) > MIB
    assert resident_bytes() - bytes_before < 128 * MIB


def test_who_lists_all_topics_again_and_again_keeps_nobody_waiting(broker: House) -> None:
    client, other = broker.client(), broker.client()
    client.send(b"".join(frame(PUBLISH, publish(f"t{number}")) for number in range(500)))
    assert all(client.answer().status == 0 for _ in range(500))
    client.send(frame(METADATA, text("#")) * 5_000)
    assert other.heartbeat() == 0
    answers = [client.answer() for _ in range(5_000)]
    assert answers[0].fields.number(4) == 500
    busy = [answer for answer in answers if answer.status == 9]
    assert busy
    assert all("METADATA" in answer.reason and answer.retry_after_ms > 0 for answer in busy)
    assert client.ask(METADATA, text("#")).status == 0


def test_a_flood_of_requests_is_answered_to_the_last(broker: House) -> None:
    client = broker.client()
    client.send(frame(HEARTBEAT) * 20_000)
    assert all(client.answer().status == 0 for _ in range(20_000))


def test_a_subscriber_that_never_reads_what_it_is_sent_loses_its_connection(start: Start) -> None:
    broker = start(node=NodeOptions(stall_ms=300, send_window_bytes=64 << 10))
    deaf = broker.client()
    deaf.subscribe("big")
    publisher = broker.client()
    for _ in range(40):
        publisher.publish("big", b"x" * 500_000)
    wait_until(lambda: broker.server.connection_count == 1, "the deaf client is cut off")
