"""The stream of frames: cut anywhere, many at once, answered in order or by number."""

from __future__ import annotations

import random
import socket

from tests.broker.house import House, wait_until
from tests.broker.raw import (
    ACK,
    HEARTBEAT,
    PUBLISH,
    SUBSCRIBE,
    Answer,
    ack,
    frame,
    publish,
    subscribe,
)


def conversation() -> bytes:
    """Requests of several kinds, one after the other."""
    return b"".join(
        [
            frame(SUBSCRIBE, subscribe("t", "g")),
            frame(PUBLISH, publish("t", b"one", headers=(("k", "v"),))),
            frame(HEARTBEAT),
            frame(PUBLISH, publish("t", b"two"), correlation=7),
            frame(ACK, ack("never:0:0")),
        ]
    )


def test_a_stream_cut_at_every_byte_is_the_same_stream(broker: House) -> None:
    data = conversation()
    for cut in range(1, len(data)):
        client = broker.client()
        client.send(data[:cut])
        client.send(data[cut:])
        answers = [client.answer() for _ in range(5)]
        assert sorted(answer.status for answer in answers) == [0, 0, 0, 0, 1], f"cut after {cut} bytes"
        assert [answer.correlation for answer in answers].count(7) == 1
        client.close()


def test_a_stream_that_comes_byte_by_byte_is_the_same_stream(broker: House) -> None:
    client = broker.client()
    for byte in conversation():
        client.send(bytes([byte]))
    assert sorted(client.answer().status for _ in range(5)) == [0, 0, 0, 0, 1]
    assert [client.delivery().value for _ in range(2)] == [b"one", b"two"]


def test_500_frames_in_one_write_are_answered_in_order(broker: House) -> None:
    client = broker.client()
    client.subscribe("t", "g", max_inflight=1000)
    ids = client.publish_all("t", [b"%d" % number for number in range(500)])
    assert ids == [f"t:0:{number}" for number in range(500)]
    got = client.deliveries(500)
    assert [each.id for each in got] == [f"t:0:{number}#{number + 1}" for number in range(500)]
    client.send(b"".join(frame(ACK, ack(each.id)) for each in got))
    assert all(client.answer().status == 0 for _ in got)


def test_answers_without_a_number_come_in_the_order_of_their_requests(broker: House) -> None:
    client = broker.client()
    requests = [frame(PUBLISH, publish("t")), frame(HEARTBEAT), frame(ACK, ack("no")), frame(PUBLISH, publish(""))]
    client.send(b"".join(requests) * 10)
    answers = [client.answer() for _ in range(40)]
    assert [answer.status for answer in answers] == [0, 0, 1, 3] * 10
    confirms = [answer.fields.text() for answer in answers[::4]]
    assert confirms == [f"t:0:{number}" for number in range(10)], (
        "a heartbeat's answer waited for the confirm before it"
    )


def test_numbered_answers_carry_their_numbers_and_need_not_wait(broker: House) -> None:
    client = broker.client()
    order = random.Random(3).sample(range(1 << 32), 60)
    client.send(
        b"".join(
            frame(PUBLISH, publish("t", b"%d" % number), correlation=number)
            if place % 2
            else frame(HEARTBEAT, correlation=number)
            for place, number in enumerate(order)
        )
    )
    answers = [client.answer() for _ in order]
    assert {answer.correlation for answer in answers} == set(order)
    confirms: dict[int | None, Answer] = {answer.correlation: answer for answer in answers}
    ids = [confirms[number].fields.text() for number in order[1::2]]
    assert ids == [f"t:0:{number}" for number in range(30)]


def test_numbered_and_plain_answers_do_not_disturb_each_other(broker: House) -> None:
    client = broker.client()
    client.send(frame(PUBLISH, publish("t")) + frame(HEARTBEAT, correlation=0) + frame(HEARTBEAT))
    answers = [client.answer() for _ in range(3)]
    assert {answer.correlation for answer in answers} == {0, None}
    plain = [answer for answer in answers if answer.correlation is None]
    assert plain[0].fields.text() == "t:0:0"
    assert plain[1].fields.number(8) == 0


def test_a_client_that_closes_its_side_is_let_go_and_what_it_sent_is_kept(broker: House) -> None:
    client = broker.client()
    client.send(frame(PUBLISH, publish("t", b"last words")))
    client.socket.shutdown(socket.SHUT_WR)
    wait_until(lambda: broker.server.connection_count == 0, "the connection is closed from both sides")
    other = broker.client()
    other.subscribe("t", "g")
    assert other.delivery().value == b"last words"
