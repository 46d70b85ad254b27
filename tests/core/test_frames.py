"""Framing: any split is the same stream, and a peer's mistakes are answers, not exceptions."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.frames import (
    FLAG_CORRELATED,
    HEADER_BYTES,
    MAGIC,
    PAYLOAD_BYTES_MAX,
    VERSION,
    ErrorCode,
    Frame,
    FrameDecoder,
    FrameError,
    FrameType,
    encode,
    header,
)

PAYLOADS = st.binary(max_size=40)
CORRELATIONS = st.none() | st.integers(0, 2**32 - 1)
FRAMES = st.builds(Frame, st.sampled_from([int(type) for type in FrameType]), CORRELATIONS, PAYLOADS)


def raw(
    *,
    magic: int = MAGIC,
    version: int = VERSION,
    type: int = 1,
    flags: int = 0,
    reserved: int = 0,
    body: bytes,
) -> bytes:
    head = magic.to_bytes(4, "big") + bytes([version, type, flags, reserved])
    return head + len(body).to_bytes(4, "big") + body


def stream_of(frames: list[Frame]) -> bytes:
    return b"".join(encode(frame.type, frame.payload, frame.correlation) for frame in frames)


def decode_in(pieces: list[bytes], payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> list[Frame | FrameError]:
    decoder = FrameDecoder(payload_bytes_max)
    return [event for piece in pieces for event in decoder.feed(piece)]


def read_naively(stream: bytes, payload_bytes_max: int) -> list[Frame | tuple[int, bool, int | None]]:
    """What a whole stream means by `spec/protocol.md`: its frames, and for what is wrong code, fatal, correlation."""
    found: list[Frame | tuple[int, bool, int | None]] = []
    at = 0
    while at < len(stream):
        head = stream[at : at + 12]
        length = int.from_bytes(head[8:12], "big")
        end = at + 12 + length
        if len(head) >= 4 and head[:4] != b"MQUE":
            return [*found, (1, True, None)]
        if len(head) >= 5 and head[4] != 1:
            return [*found, (2, True, None)]
        if len(head) == 12 and length > payload_bytes_max:
            return [*found, (3, True, None)]
        if len(head) < 12 or len(stream) < end:
            return found
        type, flags, reserved = head[5:8]
        numbered = flags & 2 != 0 and length >= 4
        correlation = int.from_bytes(stream[at + 12 : at + 16], "big") if numbered else None
        if reserved:
            found.append((5, False, correlation))
        elif flags not in (0, 2):
            found.append((6, False, correlation))
        elif flags == 2 and length < 4:
            found.append((7, False, correlation))
        elif type not in (*range(1, 8), 10, 11, *range(20, 33), 99):
            found.append((4, False, correlation))
        else:
            found.append(Frame(type, correlation, stream[at + (16 if numbered else 12) : end]))
        at = end
    return found


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(each % (len(stream) + 1) for each in cuts), len(stream)]
    return [stream[left:right] for left, right in pairwise(edges)]


def only_error(events: list[Frame | FrameError]) -> FrameError:
    (event,) = events
    assert isinstance(event, FrameError)
    return event


def test_a_header_is_twelve_bytes_in_the_documented_order() -> None:
    assert encode(FrameType.ACK, b"ab").hex(" ") == "4d 51 55 45 01 03 00 00 00 00 00 02 61 62"


def test_a_correlated_frame_counts_its_number_as_payload() -> None:
    assert encode(FrameType.ACK, b"ab", 258).hex(" ") == "4d 51 55 45 01 03 02 00 00 00 00 06 00 00 01 02 61 62"


@given(FRAMES)
def test_a_header_and_its_payload_are_the_encoded_frame(frame: Frame) -> None:
    separate = header(frame.type, len(frame.payload), frame.correlation) + frame.payload
    assert separate == encode(frame.type, frame.payload, frame.correlation)


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(0, 2**16), max_size=12))
def test_a_stream_cut_anywhere_is_the_same_stream(frames: list[Frame], cuts: list[int]) -> None:
    assert decode_in(cut(stream_of(frames), cuts)) == frames


def test_every_single_split_point_and_single_bytes_give_the_same_frames() -> None:
    frames = [
        Frame(FrameType.HEARTBEAT, None, b""),
        Frame(FrameType.ACK, 7, b""),
        Frame(FrameType.PUBLISH, None, b"hello"),
        Frame(FrameType.PRODUCE, 2**32 - 1, bytes(range(50))),
    ]
    stream = stream_of(frames)
    for at in range(len(stream) + 1):
        assert decode_in([stream[:at], stream[at:]]) == frames
    assert decode_in([bytes([byte]) for byte in stream]) == frames


@given(
    st.lists(FRAMES, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4),
    st.lists(st.integers(0, 2**16), max_size=12),
)
def test_a_damaged_stream_is_what_a_naive_reader_reads_however_it_is_cut(
    frames: list[Frame], damage: list[tuple[int, int]], cuts: list[int]
) -> None:
    damaged = bytearray(stream_of(frames))
    for at, byte in damage:
        damaged[at % len(damaged)] = byte
    stream = bytes(damaged)
    events = decode_in(cut(stream, cuts), 64)
    assert events == decode_in([stream], 64)
    told = [each if isinstance(each, Frame) else (each.code, each.fatal, each.correlation) for each in events]
    assert told == read_naively(stream, 64)


@given(st.binary(max_size=100), st.lists(st.integers(0, 2**16), max_size=6))
def test_arbitrary_bytes_never_raise(data: bytes, cuts: list[int]) -> None:
    assert decode_in(cut(data, cuts)) == decode_in([data])


@given(st.lists(FRAMES, max_size=3), st.binary(max_size=200), st.lists(st.integers(0, 2**16), max_size=6))
def test_no_more_than_one_payload_and_its_header_is_held(frames: list[Frame], tail: bytes, cuts: list[int]) -> None:
    decoder = FrameDecoder(64)
    for piece in cut(stream_of(frames) + tail, cuts):
        decoder.feed(piece)
        assert decoder.buffered <= 64 + HEADER_BYTES


def test_large_payloads_arrive_whole_from_large_small_and_mixed_reads() -> None:
    payload = bytes(range(256)) * 1200
    stream = encode(FrameType.PRODUCE, payload, 5) + encode(FrameType.HEARTBEAT, b"")
    expected = [Frame(FrameType.PRODUCE, 5, payload), Frame(FrameType.HEARTBEAT, None, b"")]
    for sizes in ([65536], [1000], [13, 70_000, 5, 4096, 4095], [len(stream)]):
        pieces: list[bytes] = []
        at = 0
        while at < len(stream):
            size = sizes[len(pieces) % len(sizes)]
            pieces.append(stream[at : at + size])
            at += size
        assert decode_in(pieces) == expected


def test_an_http_request_is_refused_after_its_first_four_bytes() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"GET") == []
    error = only_error(decoder.feed(b" "))
    assert error.code == ErrorCode.MAGIC
    assert error.fatal
    assert "4d515545" in error.text
    assert "47455420" in error.text


def test_a_wrong_version_is_refused_at_its_byte_and_the_supported_ones_are_listed() -> None:
    decoder = FrameDecoder()
    error = only_error(decoder.feed(b"MQUE\x02"))
    assert error == FrameError(ErrorCode.VERSION, "protocol version 2 is not supported; supported: 1", True)


def test_an_over_long_frame_is_refused_from_its_header_alone() -> None:
    error = only_error(FrameDecoder().feed(header(FrameType.PUBLISH, PAYLOAD_BYTES_MAX + 1)))
    assert error.code == ErrorCode.OVER_LONG
    assert error.fatal
    assert str(PAYLOAD_BYTES_MAX + 1) in error.text


def test_the_longest_payload_allowed_is_accepted() -> None:
    assert decode_in([raw(body=b"x" * 64)], 64) == [Frame(1, None, b"x" * 64)]
    assert only_error(decode_in([raw(body=b"x" * 65)], 64)).code == ErrorCode.OVER_LONG


def test_the_correlation_counts_towards_the_longest_payload() -> None:
    assert decode_in([encode(1, b"x" * 60, 9)], 64) == [Frame(1, 9, b"x" * 60)]
    assert only_error(decode_in([encode(1, b"x" * 61, 9)], 64)).fatal


def test_nothing_comes_after_a_fatal_error_and_nothing_is_kept() -> None:
    decoder = FrameDecoder()
    good = encode(FrameType.HEARTBEAT, b"")
    events = decoder.feed(good + b"HTTP/1.1 200 OK\r\n" + good)
    assert events[0] == Frame(FrameType.HEARTBEAT, None, b"")
    assert only_error(events[1:]).fatal
    assert decoder.feed(good) == []
    assert decoder.buffered == 0
    assert decoder.dead


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (raw(type=8, body=b"abc"), ErrorCode.UNKNOWN_TYPE),
        (raw(type=0, body=b""), ErrorCode.UNKNOWN_TYPE),
        (raw(type=40, body=b""), ErrorCode.UNKNOWN_TYPE),
        (raw(reserved=1, body=b"abc"), ErrorCode.RESERVED),
        (raw(flags=0x01, body=b"abc"), ErrorCode.FLAGS),
        (raw(flags=0x80, body=b""), ErrorCode.FLAGS),
        (raw(flags=FLAG_CORRELATED, body=b"abc"), ErrorCode.LENGTH),
        (raw(flags=FLAG_CORRELATED, body=b""), ErrorCode.LENGTH),
    ],
)
def test_a_wrong_frame_whose_end_is_known_is_skipped_and_the_next_is_read(frame: bytes, code: ErrorCode) -> None:
    good = Frame(FrameType.HEARTBEAT, None, b"")
    stream = frame + encode(FrameType.HEARTBEAT, b"")
    for at in range(len(stream) + 1):
        error, following = decode_in([stream[:at], stream[at:]])
        assert isinstance(error, FrameError)
        assert (error.code, error.fatal, error.correlation) == (code, False, None)
        assert following == good


@pytest.mark.parametrize(
    "frame",
    [
        raw(type=200, flags=FLAG_CORRELATED, body=b"\0\0\0\x07abc"),
        raw(reserved=9, flags=FLAG_CORRELATED, body=b"\0\0\0\x07"),
        raw(flags=FLAG_CORRELATED | 0x10, body=b"\0\0\0\x07abc"),
    ],
)
def test_an_error_about_a_correlated_frame_carries_its_number(frame: bytes) -> None:
    assert only_error(decode_in([frame])).correlation == 7


def test_the_payload_of_a_frame_that_is_skipped_is_not_kept() -> None:
    decoder = FrameDecoder()
    decoder.feed(raw(type=200, body=b"x" * 1000)[:900])
    assert decoder.buffered == 0


@pytest.mark.parametrize("size", [40, 5_000, 300_000])
@pytest.mark.parametrize("read_bytes", [7, 4_096, 65_536, 1 << 20])
def test_what_was_read_may_be_overwritten_by_the_next_read(size: int, read_bytes: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    frames = [
        Frame(type, number, payload[number:]) for type in (FrameType.PUBLISH, FrameType.PRODUCE) for number in (1, 2)
    ]
    stream = stream_of(frames)
    buffer = bytearray(read_bytes)
    decoder = FrameDecoder()
    events: list[Frame | FrameError] = []
    for at in range(0, len(stream), read_bytes):
        piece = stream[at : at + read_bytes]
        buffer[: len(piece)] = piece
        events += decoder.feed(memoryview(buffer)[: len(piece)])
        buffer[:] = bytes(read_bytes)
    assert events == frames
