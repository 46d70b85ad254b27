"""Payloads: every message to bytes and back, every mistake a WireError, the bytes frozen by vectors."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core import wire
from dovetail.core.frames import Frame, FrameDecoder, FrameType, encode
from dovetail.core.wire import Status, WireError

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "frames.json").read_text())
PROTOCOL = Path(__file__).parents[2] / "spec" / "protocol.md"

U8 = st.integers(0, 2**8 - 1)
U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
BLOB = st.binary(max_size=30)
HEADERS = st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple)
RANGES = st.lists(st.tuples(U64, U64), max_size=3).map(tuple)
PARTITIONS = st.lists(st.builds(wire.TopicPartition, TEXT, I32), max_size=3).map(tuple)
ITEM = st.builds(wire.SettleItem, U64, st.integers(1, 4), U64, U64, U8, U32, TEXT)
OUTCOME = st.builds(wire.SettleOutcome, U8, st.integers(0, 3))
LOG = st.builds(wire.LogMetadata, I32, U8, U64, U64)
TOPIC = st.builds(wire.TopicMetadata, TEXT, st.lists(LOG, max_size=3).map(tuple))

MESSAGES: st.SearchStrategy[wire.Request | wire.Push] = st.one_of(
    st.builds(wire.Publish, TEXT, HEADERS, BLOB, U32, st.booleans()),
    st.builds(wire.Subscribe, TEXT, TEXT, U16, st.booleans()),
    st.builds(wire.Ack, TEXT, U32),
    st.builds(wire.Nack, TEXT, U8, st.booleans()),
    st.builds(wire.JoinGroup, TEXT, TEXT, TEXT),
    st.builds(wire.Unsubscribe, TEXT),
    st.builds(wire.LeaveGroup, TEXT, TEXT),
    st.builds(wire.Heartbeat, st.none() | TEXT),
    st.builds(wire.Delivery, TEXT, TEXT, TEXT, HEADERS, BLOB, U64),
    st.builds(wire.Hello, TEXT, TEXT, U32),
    st.builds(wire.Produce, TEXT, I32, st.integers(0, 2), U64, U64, BLOB, st.integers(0, 5)),
    st.builds(wire.Deliver, TEXT, TEXT, I32, U8, U64, U16, U64, RANGES, BLOB),
    st.builds(wire.Settle, st.lists(ITEM, max_size=3).map(tuple), st.integers(0, 1)),
    st.builds(wire.Fetch, TEXT, I32, U64, U32, U32, st.integers(0, 5)),
    st.builds(wire.Commit, TEXT, TEXT, I32, U64, st.integers(0, 5)),
    st.builds(wire.Seek, TEXT, TEXT, I32, st.integers(0, 3), U64, st.integers(0, 5)),
    st.builds(wire.Metadata, TEXT),
    st.builds(wire.Credit, TEXT, U16),
    st.builds(wire.Error, U16, TEXT),
    st.builds(wire.Goodbye, TEXT),
    st.builds(wire.Revoke, TEXT, U64, PARTITIONS),
    st.builds(wire.Assign, TEXT, U64, PARTITIONS),
)

ANSWERS: dict[FrameType, st.SearchStrategy[wire.Answer]] = {
    FrameType.PUBLISH: st.builds(wire.PublishAnswer, TEXT, U64),
    FrameType.SUBSCRIBE: st.builds(wire.SubscribeAnswer, TEXT),
    FrameType.ACK: st.builds(wire.PlainAnswer),
    FrameType.NACK: st.builds(wire.NackAnswer, st.integers(0, 3)),
    FrameType.JOIN_GROUP: st.builds(wire.GenerationAnswer, U64),
    FrameType.HELLO: st.builds(wire.HelloAnswer, TEXT, U64, U32, U32, U32, U32),
    FrameType.PRODUCE: st.builds(wire.ProduceAnswer, I32, U64, U64, st.integers(0, 5), TEXT),
    FrameType.SETTLE: st.builds(wire.SettleAnswer, st.lists(OUTCOME, max_size=4).map(tuple)),
    FrameType.FETCH: st.builds(wire.FetchAnswer, U64, U64, BLOB),
    FrameType.METADATA: st.builds(wire.MetadataAnswer, st.lists(TOPIC, max_size=3).map(tuple)),
    FrameType.SEEK: st.builds(wire.SeekAnswer, U64),
}
REFUSALS = st.builds(wire.Refusal, st.integers(1, 255), U32, TEXT)
ANSWERED = st.sampled_from(list(ANSWERS)).flatmap(
    lambda type: st.tuples(st.just(type), st.one_of(ANSWERS[type], REFUSALS))
)
DAMAGE = st.lists(st.tuples(st.integers(0, 2**16), U8), min_size=1, max_size=3)


def damaged(payload: bytes, damage: list[tuple[int, int]]) -> bytes:
    out = bytearray(payload or b"\0")
    for at, byte in damage:
        out[at % len(out)] = byte
    return bytes(out)


@given(MESSAGES)
def test_every_message_comes_back_from_its_bytes(message: wire.Request | wire.Push) -> None:
    assert wire.decode_message(message.TYPE, message.encode()) == message


@given(ANSWERED)
def test_every_answer_and_every_refusal_comes_back_from_its_bytes(
    answered: tuple[FrameType, wire.Answer | wire.Refusal],
) -> None:
    type_of_request, answer = answered
    assert wire.decode_answer(type_of_request, answer.encode()) == answer


@given(MESSAGES)
def test_a_message_cut_short_anywhere_is_refused(message: wire.Request | wire.Push) -> None:
    payload = message.encode()
    for size in range(len(payload)):
        if message.TYPE == FrameType.HEARTBEAT and size == 0:
            continue
        if _lane_of(message) and size == len(payload) - 1:
            continue
        with pytest.raises(WireError):
            wire.decode_message(message.TYPE, payload[:size])


@given(MESSAGES, st.binary(min_size=1, max_size=3))
def test_bytes_behind_a_message_are_refused(message: wire.Request | wire.Push, extra: bytes) -> None:
    if message.encode() == b"":
        return
    if _lane_of(message) == 0 and len(extra) == 1 and 1 <= extra[0] <= 5:
        return
    with pytest.raises(WireError):
        wire.decode_message(message.TYPE, message.encode() + extra)


def _lane_of(message: wire.Request | wire.Push) -> int | None:
    """The lane at the end of a message that may have one."""
    return message.lane if isinstance(message, wire.Fetch | wire.Commit | wire.Seek) else None


@given(ANSWERED)
def test_an_answer_cut_short_or_too_long_is_refused(
    answered: tuple[FrameType, wire.Answer | wire.Refusal],
) -> None:
    type_of_request, answer = answered
    payload = answer.encode()
    for wrong in [payload[:size] for size in range(len(payload))] + [payload + b"\0"]:
        with pytest.raises(WireError):
            wire.decode_answer(type_of_request, wrong)


@given(MESSAGES, DAMAGE)
def test_damaged_bytes_are_refused_or_mean_exactly_themselves(
    message: wire.Request | wire.Push, damage: list[tuple[int, int]]
) -> None:
    payload = damaged(message.encode(), damage)
    try:
        read = wire.decode_message(message.TYPE, payload)
    except WireError:
        return
    assert read.encode() == payload


@given(ANSWERED, DAMAGE)
def test_damaged_answers_are_refused_or_mean_exactly_themselves(
    answered: tuple[FrameType, wire.Answer | wire.Refusal], damage: list[tuple[int, int]]
) -> None:
    type_of_request, answer = answered
    payload = damaged(answer.encode(), damage)
    try:
        read = wire.decode_answer(type_of_request, payload)
    except WireError:
        return
    assert read.encode() == payload


@given(st.sampled_from([int(type) for type in FrameType]), st.binary(max_size=60))
def test_arbitrary_bytes_raise_nothing_but_wire_errors(type: int, payload: bytes) -> None:
    for decode in (wire.decode_message, wire.decode_answer):
        with suppress(WireError):
            decode(type, payload)


@pytest.mark.parametrize(
    ("type", "payload", "says"),
    [
        (FrameType.PUBLISH, "0002c328 0000 00000000 00000000 00", "not UTF-8"),
        (FrameType.PUBLISH, "000174 0000 00000000 00000000 02", "require_ack must be 0 or 1, it is 2"),
        (FrameType.PUBLISH, "000174 ffff 00000000", "ends inside a field"),
        (FrameType.PUBLISH, "000174 0000 ffffffff 00", "ends inside a field"),
        (FrameType.PRODUCE, "000174 ffffffff 03 00 0000000000000000 0000000000000000 00000000", "acks must be"),
        (FrameType.PRODUCE, "000174 ffffffff 01 0000000000000000 0000000000000000 7fffffff", "ends inside"),
        (FrameType.SUBSCRIBE, "000161 000161 0000 09", "auto_ack must be 0 or 1, it is 9"),
        (FrameType.SUBSCRIBE, "000161 0005 61", "group needs 5 bytes at byte 5, but only 1 are left"),
        (FrameType.SETTLE, "00 ffff", "ends inside a field"),
        (FrameType.SETTLE, "02 0000", "wait must be one of 0 applied, 1 durable; it is 2"),
        (FrameType.SEEK, "000161 000161 00000000 04 0000000000000000", "whence must be"),
        (FrameType.ASSIGN, "000167 0000000000000001 ffff", "65535 partitions need 393210 bytes or more"),
        (FrameType.ACK, "000161 00000000 00", "1 bytes too many"),
        (FrameType.RESPONSE, "00", "carries no message of its own"),
    ],
)
def test_a_refusal_says_what_was_wrong(type: FrameType, payload: str, says: str) -> None:
    with pytest.raises(WireError, match=says):
        wire.decode_message(type, bytes.fromhex(payload))


def test_an_answer_for_a_message_that_has_none_is_refused() -> None:
    with pytest.raises(WireError, match="has no answer"):
        wire.decode_answer(FrameType.DELIVER, b"\0")


def test_a_count_of_four_billion_topics_allocates_nothing() -> None:
    with pytest.raises(WireError, match="4294967295 topics need"):
        wire.decode_answer(FrameType.METADATA, bytes.fromhex("00 ffffffff 0000"))


def test_a_status_of_the_future_is_still_a_refusal() -> None:
    refusal = wire.Refusal(200, 5, "new")
    assert wire.decode_answer(FrameType.ACK, refusal.encode()) == refusal


def test_a_refusal_can_not_say_success() -> None:
    with pytest.raises(wire.EncodeError):
        wire.Refusal(Status.OK, 0, "").encode()


def test_a_text_too_long_for_its_length_field_is_refused_before_it_is_sent() -> None:
    assert len(wire.Goodbye("x" * 65535).encode()) == 65537
    with pytest.raises(wire.EncodeError, match="65536 bytes"):
        wire.Goodbye("é" * 32768).encode()
    with pytest.raises(wire.EncodeError):
        wire.Publish("t", (("k", "v" * 70000),), b"").encode()


def test_heads_and_their_batches_are_the_encoded_messages() -> None:
    deliver = wire.Deliver("s1", "t", 0, 0, 1, 1, 0, ((1, 2), (4, 4)), b"batches")
    assert deliver.encode_head(7) + b"batches" == deliver.encode()
    produce = wire.Produce("t", -1, wire.Acks.STORED, 0, 0, b"batch")
    assert produce.encode_head(5) + b"batch" == produce.encode()
    fetched = wire.FetchAnswer(0, 9, b"batches")
    assert fetched.encode_head(7) + b"batches" == fetched.encode()


def test_one_status_has_a_name_for_each_of_its_meanings() -> None:
    assert {Status["QUOTA"], Status["GROUP_ERROR"], Status["LEASE_LOST"]} == {2}
    assert {Status["NOT_FOUND"], Status["INVALID_PATTERN"]} == {1}
    assert sorted(set(Status)) == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_the_frozen_bytes_decode_and_encode_again(vector: dict[str, Any]) -> None:
    stream = bytes.fromhex(vector["frame"])
    (frame,) = FrameDecoder().feed(stream)
    assert isinstance(frame, Frame)
    assert (frame.type, frame.correlation) == (vector["type"], vector["correlation"])
    message: Any
    if "answers" in vector:
        message = wire.decode_answer(vector["answers"], frame.payload)
    else:
        message = wire.decode_message(frame.type, frame.payload)
    assert message == msgspec.convert(vector["fields"], getattr(wire, vector["kind"]))
    assert encode(frame.type, message.encode(), frame.correlation) == stream


def test_every_frame_type_has_a_frozen_vector() -> None:
    assert {vector["type"] for vector in VECTORS} == {int(type) for type in FrameType}
    answered = {vector["answers"] for vector in VECTORS if "answers" in vector}
    assert answered == {int(type) for type in wire._ANSWERS}


def test_the_specification_shows_every_layout_and_every_frame_type() -> None:
    text = re.sub(r" \([^()]*\)", "", " ".join(PROTOCOL.read_text().split()))
    shown = [each for each in vars(wire).values() if isinstance(each, type) and hasattr(each, "LAYOUT")]
    assert len(shown) > 35
    missing = [each.__name__ for each in shown if each.LAYOUT not in text]
    missing += [type.name for type in FrameType if f"| {int(type)} | {type.name} |" not in text]
    assert missing == []


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_list_says_no_more_items_than_can_be_in_what_is_left(count: int) -> None:
    payload = b"\x00\x01g" + (7).to_bytes(8, "big") + count.to_bytes(2, "big")
    with pytest.raises(WireError, match="only 0 are left"):
        wire.decode_revoke(payload)


def test_a_text_of_the_longest_length_fits_and_one_byte_more_does_not() -> None:
    longest = "x" * wire.TEXT_BYTES_MAX
    assert wire.decode_message(wire.Metadata.TYPE, wire.Metadata(longest).encode()) == wire.Metadata(longest)
    with pytest.raises(wire.EncodeError):
        wire.Metadata(longest + "x").encode()
    items = (wire.SettleItem(1, 2, 0, 0, error=longest),)
    assert wire.decode_message(wire.Settle.TYPE, wire.Settle(items).encode()) == wire.Settle(items)
