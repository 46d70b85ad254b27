"""Requests meet their answers, in any order and however the bytes arrive."""

from dovetail.core import frames, wire
from dovetail.core.frames import FrameType
from dovetail.core.wire import (
    Deliver,
    Error,
    Goodbye,
    Heartbeat,
    Metadata,
    MetadataAnswer,
    PlainAnswer,
    Produce,
    Refusal,
    Unsubscribe,
)
from dovetail.runtime.client.exchange import Answered, Broken, Event, Exchange, Lost, Reply


def asked(exchange: Exchange, replies: list[Reply]) -> int:
    """Ask something; gives the correlation number that went out."""
    (data,) = exchange.ask(Unsubscribe("s"), replies.append)
    (frame,) = frames.FrameDecoder().feed(data)
    assert isinstance(frame, frames.Frame)
    assert frame.correlation is not None
    return frame.correlation


def tell(events: list[Event]) -> list[Event]:
    """Pass answers on; gives the other events."""
    others: list[Event] = []
    for event in events:
        if isinstance(event, Answered):
            event.told(event.reply)
        else:
            others.append(event)
    return others


def response(number: int, payload: bytes = PlainAnswer().encode()) -> bytes:
    return frames.encode(FrameType.RESPONSE, payload, number)


def test_answers_in_any_order_reach_those_who_asked() -> None:
    exchange = Exchange()
    first: list[Reply] = []
    second: list[Reply] = []
    numbers = asked(exchange, first), asked(exchange, second)
    refusal = Refusal(1, 0, "no such subscription")
    tell(exchange.feed(response(numbers[1], refusal.encode()) + response(numbers[0])))
    assert (first, second) == ([PlainAnswer()], [refusal])
    assert exchange.waiting == 0


def test_an_error_stands_in_the_place_of_the_answer() -> None:
    exchange = Exchange()
    replies: list[Reply] = []
    number = asked(exchange, replies)
    tell(exchange.feed(frames.encode(FrameType.ERROR, Error(8, "cut short").encode(), number)))
    assert replies == [Error(8, "cut short")]


def test_an_answer_is_read_by_what_was_asked() -> None:
    exchange = Exchange()
    replies: list[Reply] = []
    exchange.ask(Metadata("#"), replies.append)
    tell(exchange.feed(response(0, MetadataAnswer(()).encode())))
    assert replies == [MetadataAnswer(())]


def test_everything_is_the_same_byte_by_byte() -> None:
    exchange = Exchange()
    replies: list[Reply] = []
    deliver = Deliver("s", "orders", 0, 0, 9, 1, 1000, ((0, 4),), b"batches")
    stream = (
        frames.encode(FrameType.DELIVER, deliver.encode())
        + response(asked(exchange, replies))
        + frames.encode(FrameType.GOODBYE, Goodbye("bye").encode())
    )
    events = [event for byte in stream for event in tell(exchange.feed(bytes([byte])))]
    assert events == [deliver, Goodbye("bye")]
    assert replies == [PlainAnswer()]


def test_when_the_connection_ends_everyone_who_waits_is_told_once() -> None:
    exchange = Exchange()
    replies: list[Reply] = []
    for _ in range(3):
        asked(exchange, replies)
    tell(exchange.end("reset"))
    assert replies == [Lost("reset")] * 3
    assert exchange.end("again") == []


def test_an_answer_nobody_waits_for_is_passed_over() -> None:
    assert Exchange().feed(response(77)) == []


def test_a_stream_that_is_no_protocol_of_ours_is_broken() -> None:
    (event,) = Exchange().feed(b"HTTP/1.1 400 Bad Request\r\n")
    assert isinstance(event, Broken)
    assert "magic" in event.reason


def test_an_answer_that_can_not_be_read_is_broken() -> None:
    exchange = Exchange()
    asked(exchange, [])
    (event,) = exchange.feed(response(0, b"\0too much"))
    assert isinstance(event, Broken)


def test_a_request_of_a_client_from_a_broker_is_broken() -> None:
    (event,) = Exchange().feed(frames.encode(FrameType.HEARTBEAT, Heartbeat().encode()))
    assert isinstance(event, Broken)


def test_a_batch_is_written_from_where_it_lies_and_reads_the_same() -> None:
    produce = Produce("orders", -1, 1, 0, 0, b"batch" * 100)
    head, batch = Exchange().ask(produce, lambda reply: None)
    assert batch is produce.batch
    (frame,) = frames.FrameDecoder().feed(head + batch)
    assert isinstance(frame, frames.Frame)
    assert wire.decode_message(frame.type, frame.payload) == produce


def test_a_number_still_in_use_is_not_given_out_again() -> None:
    exchange = Exchange()
    exchange._next = (1 << 32) - 1
    assert [asked(exchange, []) for _ in range(2)] == [(1 << 32) - 1, 0]
    exchange._next = (1 << 32) - 1
    assert asked(exchange, []) == 1
