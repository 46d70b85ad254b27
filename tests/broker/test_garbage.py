"""What is wrong on the wire gets an ERROR that says so, ends what must end, and disturbs nobody else."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from collections.abc import Iterator

import pytest

from dovetail.core.node import NodeOptions
from tests.broker.conftest import Start
from tests.broker.house import House, wait_until
from tests.broker.raw import (
    ACK,
    DELIVERY,
    ERROR,
    GOODBYE,
    HEARTBEAT,
    HELLO,
    MAGIC,
    NACK,
    PRODUCE,
    PUBLISH,
    RESPONSE,
    SUBSCRIBE,
    Closed,
    Raw,
    ack,
    frame,
    headers_of,
    produce,
    publish,
    record_batch,
    subscribe,
    text,
)

SOUND = record_batch([b"a", b"b"])


@pytest.fixture
def bystander(broker: House) -> Iterator[Raw]:
    """A subscriber that must not notice what others get wrong."""
    client = broker.client()
    client.subscribe("calm", "bystanders")
    client.publish("calm", b"before")
    yield client
    client.publish("calm", b"after")
    assert [each.value for each in client.so_far()] == [b"before", b"after"]


FATAL = {
    "wrong magic": (frame(HEARTBEAT, magic=MAGIC + 1), 1, "magic"),
    "wrong magic, told after four bytes": (b"MQUX", 1, "magic"),
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1, "another port or protocol"),
    "a TLS hello": (bytes.fromhex("160301020001000200"), 1, "magic"),
    "zeros": (bytes(100), 1, "magic"),
    "version 0": (frame(HEARTBEAT, version=0), 2, "supported: 1"),
    "version 2, told after five bytes": (b"MQUE\x02", 2, "supported: 1"),
    "a length over the limit, told before any payload": (frame(PUBLISH, length=(10 << 20) + 1), 3, "10485760"),
    "the largest length there is": (frame(PUBLISH, length=0xFFFFFFFF), 3, "10485760"),
    "an 11 MiB frame": (frame(PUBLISH, bytes(11 << 20)), 3, "10485760"),
}


@pytest.mark.parametrize("case", FATAL)
def test_a_stream_that_cannot_be_trusted_is_told_why_and_closed(broker: House, bystander: Raw, case: str) -> None:
    data, code, words = FATAL[case]
    client = broker.client()
    client.send(frame(HEARTBEAT) + data)
    assert client.answer().status == 0
    mistake = client.mistake()
    assert mistake.code == code
    assert words in mistake.text
    client.wait_closed()


def test_what_comes_after_a_fatal_mistake_is_not_looked_at(broker: House, bystander: Raw) -> None:
    client = broker.client()
    client.send(frame(HEARTBEAT, magic=0) + frame(PUBLISH, publish("calm", b"sneaked in")) * 100)
    assert client.mistake().code == 1
    client.wait_closed()


MISTAKES = {
    "an unknown type": (frame(77), 4, "77"),
    "a type kept for brokers among themselves": (frame(40), 4, "40"),
    "type 0": (frame(0, b"payload"), 4, "0"),
    "an unknown type with a long payload": (frame(200, bytes(1 << 20)), 4, "200"),
    "a reserved byte": (frame(HEARTBEAT, reserved=1), 5, "reserved"),
    "an unknown flag": (frame(HEARTBEAT, flags=0x01), 6, "0x01"),
    "all other flags": (frame(HEARTBEAT, b"1234", flags=0xFD), 6, "0xfd"),
    "a correlation that is cut short": (frame(HEARTBEAT, b"123", flags=0x02), 7, "correlation"),
    "an empty PUBLISH": (frame(PUBLISH), 8, "PUBLISH"),
    "a PUBLISH that is cut short": (frame(PUBLISH, publish("t", b"x")[:-1]), 8, "PUBLISH"),
    "a PUBLISH that is too long": (frame(PUBLISH, publish("t", b"x") + b"!"), 8, "too many"),
    "a topic longer than its frame": (frame(PUBLISH, b"\xff\xff" + b"t"), 8, "PUBLISH"),
    "a payload longer than its frame": (
        frame(PUBLISH, text("t") + headers_of(()) + struct.pack(">I", 1 << 31) + b"x"),
        8,
        "PUBLISH",
    ),
    "more headers than there are": (frame(PUBLISH, text("t") + b"\xff\xff" + bytes(20)), 8, "PUBLISH"),
    "a topic that is not UTF-8": (frame(PUBLISH, publish(b"\xff\xfe")), 8, "UTF-8"),
    "a header that is not UTF-8": (
        frame(PUBLISH, text("t") + b"\0\1" + text(b"\xc3") + text("") + bytes(9)),
        8,
        "UTF-8",
    ),
    "a surrogate in UTF-8": (frame(SUBSCRIBE, text(b"\xed\xa0\x80") + text("") + bytes(3)), 8, "UTF-8"),
    "a SUBSCRIBE that is cut short": (frame(SUBSCRIBE, subscribe("t")[:-1]), 8, "SUBSCRIBE"),
    "an ACK that is too long": (frame(ACK, ack("t:0:0") + b"!"), 8, "too many"),
    "a NACK that is cut short": (frame(NACK, text("t:0:0")), 8, "NACK"),
    "a NACK that neither wants a retry nor does not": (frame(NACK, text("t:0:0") + b"\0\7"), 8, "retry_requested"),
    "a HEARTBEAT with half a name": (frame(HEARTBEAT, b"\0\5ab"), 8, "HEARTBEAT"),
    "a batch whose CRC lies": (frame(PRODUCE, produce("t", record_batch([b"a"], crc=1))), 8, "CRC"),
    "a batch with a flipped bit": (frame(PRODUCE, produce("t", SOUND[:-1] + bytes([SOUND[-1] ^ 1]))), 8, "CRC"),
    "a batch whose count lies upwards": (frame(PRODUCE, produce("t", record_batch([b"a"], count=2))), 8, "record"),
    "a batch whose count lies downwards": (
        frame(PRODUCE, produce("t", record_batch([b"a", b"b"], count=1))),
        8,
        "record",
    ),
    "a batch of two thousand million records": (
        frame(PRODUCE, produce("t", record_batch([b"a"], count=0x7FFFFFFF))),
        8,
        "record",
    ),
    "a batch that is cut short": (frame(PRODUCE, produce("t", SOUND[:-1])), 8, "PRODUCE"),
    "two batches in one": (frame(PRODUCE, produce("t", SOUND + SOUND)), 8, "PRODUCE"),
    "an empty batch": (frame(PRODUCE, produce("t", b"")), 8, "PRODUCE"),
    "a DELIVERY": (
        frame(DELIVERY, text("1") + text("t:0:0#1") + text("t") + headers_of(()) + bytes(4) + bytes(8)),
        9,
        "DELIVERY",
    ),
    "a RESPONSE": (frame(RESPONSE, b"\0"), 9, "RESPONSE"),
    "a HELLO that is not the first": (frame(HELLO, text("me") + text("") + bytes(4)), 9, "first"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_a_whole_frame_is_told_in_its_place_and_the_stream_goes_on(
    broker: House, bystander: Raw, case: str
) -> None:
    data, code, words = MISTAKES[case]
    client = broker.client()
    client.send(frame(PUBLISH, publish("t", b"1")) + data + frame(PUBLISH, publish("t", b"2")))
    assert client.answer().fields.text() == "t:0:0"
    mistake = client.mistake()
    assert mistake.code == code
    assert words in mistake.text
    assert client.answer().fields.text() == "t:0:1", "a frame that was refused stored nothing"


def test_a_mistake_in_a_numbered_frame_carries_its_number(broker: House) -> None:
    client = broker.client()
    wrong = (frame(77, correlation=1), frame(PUBLISH, b"", correlation=2), frame(HEARTBEAT, correlation=3, reserved=9))
    client.send(b"".join(wrong))
    assert [client.mistake().correlation for _ in wrong] == [1, 2, 3]
    assert client.heartbeat() == 0


def test_an_error_is_never_answered_by_an_error(broker: House) -> None:
    client = broker.client()
    client.send(frame(ERROR, struct.pack(">H", 8) + text("what was that?")) + frame(ERROR, b"nonsense"))
    assert client.heartbeat() == 0


def test_a_produced_batch_that_tells_the_truth_is_stored(broker: House) -> None:
    client = broker.client()
    client.subscribe("t", "g")
    fields = client.done(PRODUCE, produce("t", SOUND))
    assert (fields.number(4), fields.number(8)) == (0, 0)
    assert [each.value for each in client.deliveries(2)] == [b"a", b"b"]


def test_a_batch_that_was_sent_without_wanting_an_answer_is_refused_by_an_error(broker: House) -> None:
    client = broker.client()
    client.send(frame(PRODUCE, produce("not a topic", SOUND, acks=0)))
    mistake = client.mistake()
    assert mistake.code == 10
    assert "not a topic" in mistake.text
    client.send(frame(PRODUCE, produce("t", SOUND, acks=0)))
    assert client.publish("t") == "t:0:2"


@pytest.mark.parametrize(
    "begun", [b"M", frame(PUBLISH, length=1000), frame(PUBLISH, bytes(500), length=1000), frame(77, b"x", length=1000)]
)
def test_half_a_frame_and_then_silence_ends_that_connection_alone(start: Start, begun: bytes) -> None:
    broker = start(node=NodeOptions(stall_ms=150))
    client, other = broker.client(), broker.client()
    other.subscribe("calm")
    client.send(frame(HEARTBEAT) + begun)
    assert client.answer().status == 0
    assert "not finished" in client.mistake().text
    client.wait_closed()
    other.publish("calm", b"x")
    assert other.delivery().value == b"x"


def test_a_goodbye_is_followed_by_the_answers_under_way_and_the_end(broker: House) -> None:
    client = broker.client()
    client.send(frame(PUBLISH, publish("t")) + frame(GOODBYE, text("done")) + frame(PUBLISH, publish("t")))
    assert client.answer().fields.text() == "t:0:0"
    client.wait_closed()
    assert broker.client().publish("t") == "t:0:1", "what came after the goodbye is not looked at"


def test_one_connection_too_many_is_told_the_limit(start: Start) -> None:
    broker = start(connections_max=2)
    first, second = broker.client(), broker.client()
    assert first.heartbeat() == second.heartbeat() == 0
    third = broker.client()
    mistake = third.mistake()
    assert mistake.code == 13
    assert "2 connections" in mistake.text
    third.wait_closed()
    first.close()
    second.heartbeat()

    def welcome() -> bool:
        fourth = broker.client()
        fourth.send(frame(HEARTBEAT))
        try:
            return fourth.frame().type == RESPONSE
        except Closed:
            return False

    wait_until(welcome, "a place that is given up can be taken")


def requests() -> list[bytes]:
    """A sound frame of every kind that a client may send."""
    place = text("t") + struct.pack(">i", 0)
    settle = struct.pack(">BHQBQQBI", 0, 1, 1, 1, 0, 0, 0, 0) + text("")
    kinds = [
        (PUBLISH, publish("t", b"x", headers=(("k", "v"),))),
        (SUBSCRIBE, subscribe("t.#", "g", 3)),
        (ACK, ack("t:0:0#1")),
        (NACK, text("t:0:0#1") + b"\1\1"),
        (5, text("g") + text("abel") + text("")),
        (6, text("1")),
        (7, text("g") + text("abel")),
        (PRODUCE, produce("t", SOUND)),
        (23, settle),
        (24, place + struct.pack(">QII", 0, 1000, 0)),
        (25, text("g") + place + struct.pack(">Q", 1)),
        (26, text("g") + place + struct.pack(">BQ", 1, 0)),
        (27, text("#")),
        (28, text("1") + struct.pack(">H", 5)),
        (HEARTBEAT, b""),
        (HEARTBEAT, text("abel")),
    ]
    return [frame(kind, payload, correlation=number) for number, (kind, payload) in enumerate(kinds)]


def test_sound_frames_of_every_kind_are_answered_by_number(broker: House) -> None:
    client = broker.client()
    sound = requests()
    client.send(b"".join(sound))
    assert {client.answer().correlation for _ in sound} == set(range(len(sound)))


@pytest.mark.parametrize("seed", range(int(os.environ.get("DOVETAIL_FUZZ_SEEDS", "4"))))
def test_no_damaged_stream_harms_the_broker_or_anybody_else(broker: House, bystander: Raw, seed: int) -> None:
    dice = random.Random(seed)
    sound = requests()
    for _ in range(100):
        stream = bytearray(b"".join(dice.choices(sound, k=12)))
        for _ in range(dice.choice((1, 1, 3, 30))):
            at = dice.randrange(len(stream))
            match dice.randrange(4):
                case 0:
                    stream[at] = dice.randrange(256)
                case 1:
                    stream[at] ^= 1 << dice.randrange(8)
                case 2:
                    del stream[at : at + dice.randrange(1, 9)]
                case _:
                    stream[at:at] = dice.randbytes(dice.randrange(1, 9))
        with Raw(broker.port) as client, contextlib.suppress(ConnectionError):
            client.send(bytes(stream))
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(1 << 16):
                pass
    wait_until(lambda: broker.server.connection_count == 1, "only the bystander is left")
    assert bystander.heartbeat() > 0
