"""The client against a peer that the test plays: what it does when a broker is busy, silent, gone or wrong."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from dovetail.core import batch
from dovetail.core.codes import SettleAction, Status
from dovetail.core.frames import ErrorCode
from dovetail.core.wire import (
    Deliver,
    Error,
    Goodbye,
    Heartbeat,
    Hello,
    LogMetadata,
    Metadata,
    MetadataAnswer,
    PlainAnswer,
    Produce,
    ProduceAnswer,
    Refusal,
    Settle,
    SettleAnswer,
    SettleItem,
    SettleOutcome,
    Subscribe,
    SubscribeAnswer,
    TopicMetadata,
    Unsubscribe,
)
from dovetail.runtime.client import (
    Backoff,
    BrokerError,
    Client,
    Disconnected,
    Outcome,
    Refused,
    Subscription,
    TimedOut,
    connect,
)
from dovetail.runtime.client.partitioning import murmur3
from dovetail.runtime.storage.codecs import CODECS
from tests.client.peer import TERMS, Line, Peer, listening

QUICK = Backoff(first=0.001, longest=0.01)


@asynccontextmanager
async def meeting(**options: object) -> AsyncIterator[tuple[Peer, Client, Line]]:
    """A peer, a client that is connected to it, and the line between them."""
    async with listening() as peer:
        client = connect(peer.url, backoff=QUICK, **options)  # type: ignore[arg-type]  # options of each test
        opening = asyncio.create_task(client.open())
        line = await peer.line()
        await opening
        try:
            yield peer, client, line
        finally:
            closing = asyncio.create_task(client.close())
            with contextlib.suppress(AssertionError, ConnectionError):
                await line.closed_by_client() if not client.connected else await _goodbye(line)
            line.close()
            await closing


async def _goodbye(line: Line) -> None:
    """Close as a broker does when the client says goodbye, whatever comes before it."""
    await asyncio.sleep(0)
    line.close()


def stored(request: Produce) -> list[bytes]:
    return [record.value or b"" for record in batch.parse(request.batch)]


def delivery(first: int, *values: bytes, lease: int = 7, subscription: str = "1") -> Deliver:
    data = batch.build([(None, value, ()) for value in values], timestamp_ms=5000, base_offset=first)
    last = first + len(values) - 1
    return Deliver(subscription, "orders", 0, 0, lease, 1, 99_000 if lease else 0, ((first, last),), data)


async def subscribed(client: Client, line: Line, id: str = "1", **options: object) -> Subscription:
    subscription = client.subscribe("orders", **options)  # type: ignore[arg-type]  # options of each test
    _, correlation = await line.request(Subscribe)
    line.answer(correlation, SubscribeAnswer(id))
    await subscription.ready()
    return subscription


async def test_a_publish_gets_the_receipt_that_the_broker_gave() -> None:
    async with meeting() as (_, client, line):
        publishing = asyncio.create_task(client.publish("orders/eu", "héllo", headers={"a": "b"}))
        request, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(3, 41, 1_700_000_000_000))
        receipt = await publishing
    assert (request.topic, request.partition, request.acks) == ("orders.eu", -1, 1)
    assert batch.parse(request.batch)[0].headers == (("a", b"b"),)
    assert stored(request) == ["héllo".encode()]
    assert receipt.message_id == "orders.eu:3:41"
    assert (receipt.partition, receipt.offset) == (3, 41)
    assert receipt.timestamp.isoformat() == "2023-11-14T22:13:20+00:00"


async def test_what_many_tasks_publish_at_once_leaves_in_one_batch() -> None:
    async with meeting() as (_, client, line):
        publishing = [asyncio.create_task(client.publish("orders", f"{n}")) for n in range(50)]
        request, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(0, 100, 0))
        receipts = await asyncio.gather(*publishing)
    assert stored(request) == [b"%d" % n for n in range(50)]
    assert [receipt.offset for receipt in receipts] == list(range(100, 150))


async def test_delay_and_ttl_reach_the_wire_in_milliseconds() -> None:
    async with meeting() as (_, client, line):
        publishing = asyncio.create_task(client.publish("orders", b"x", delay="1h", ttl=2.5))
        request, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(0, 0, 0))
        await publishing
    assert (request.delay_ms, request.ttl_ms) == (3_600_000, 2500)


async def test_a_key_decides_the_partition_and_the_count_is_asked_for_once() -> None:
    async with meeting() as (_, client, line):
        publishing = [asyncio.create_task(client.publish("orders", b"x", key="k")) for _ in range(3)]
        _, correlation = await line.request(Metadata)
        logs = tuple(LogMetadata(partition, 0, 0, 0) for partition in range(12))
        line.answer(correlation, MetadataAnswer((TopicMetadata("orders", logs),)))
        request, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(request.partition, 0, 0))
        await asyncio.gather(*publishing)
    assert len(stored(request)) == 3
    assert request.partition == (murmur3(b"k") & 0x7FFFFFFF) % 12


async def test_a_topic_that_does_not_exist_is_made_before_its_first_key_is_placed() -> None:
    async with meeting() as (_, client, line):
        publishing = asyncio.create_task(client.publish("orders", b"x", key="k"))
        _, correlation = await line.request(Metadata)
        line.answer(correlation, MetadataAnswer(()))
        making, correlation = await line.request(Subscribe)
        line.answer(correlation, SubscribeAnswer("9"))
        ending, correlation = await line.request(Unsubscribe)
        line.answer(correlation, PlainAnswer())
        _, correlation = await line.request(Metadata)
        line.answer(correlation, MetadataAnswer((TopicMetadata("orders", (LogMetadata(0, 0, 0, 0),)),)))
        request, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(0, 0, 0))
        await publishing
    assert (making.pattern, making.group, ending.subscription_id) == ("orders", "", "9")
    assert request.partition == 0


async def test_a_refusal_is_raised_with_the_brokers_words() -> None:
    async with meeting() as (_, client, line):
        publishing = asyncio.create_task(client.publish("orders", b"x"))
        _, correlation = await line.request(Produce)
        line.answer(correlation, Refusal(Status.READ_ONLY, 0, "the disk is full"))
        with pytest.raises(Refused, match=r"read-only.*the disk is full") as caught:
            await publishing
    assert (caught.value.status, caught.value.reason) == (Status.READ_ONLY, "the disk is full")
    assert caught.value.retry_after == 0


async def test_a_busy_broker_is_asked_again_after_the_wait_it_names() -> None:
    async with meeting() as (_, client, line):
        publishing = asyncio.create_task(client.publish("orders", b"x"))
        first, correlation = await line.request(Produce)
        line.answer(correlation, Refusal(Status.BUSY, 1, "orders has too much lag"))
        second, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(0, 0, 0))
        await publishing
    assert first == second


async def test_a_broker_that_stays_busy_is_asked_as_often_as_retries_say() -> None:
    async with meeting() as (_, client, line), client.producer("orders", linger_ms=0, retries=2) as producer:
        confirmed = await producer.send(b"x")
        for _ in range(3):
            _, correlation = await line.request(Produce)
            line.answer(correlation, Refusal(Status.BUSY, 1, "still too much lag"))
        with pytest.raises(Refused, match="busy"):
            await confirmed


async def test_what_follows_a_batch_that_waits_for_a_busy_broker_follows_it_whatever_its_time_to_live() -> None:
    async with meeting() as (_, client, line), client.producer("orders", linger_ms=0, idempotent=True) as producer:
        await producer.send(b"x", partition=0)
        _, correlation = await line.request(Produce)
        line.answer(correlation, Refusal(Status.BUSY, 100, "orders has too much lag"))
        await producer.send(b"y", partition=0, ttl=3_600)
        numbers: dict[bytes, int] = {}
        for _ in range(2):
            request, correlation = await line.request(Produce)
            numbers[stored(request)[0]] = batch.read_header(request.batch).base_sequence
            line.answer(correlation, ProduceAnswer(0, 0, 0))
    assert numbers == {b"x": 0, b"y": 1}


async def test_a_large_message_does_not_take_its_neighbours_with_it() -> None:
    async with meeting() as (_, client, line), client.producer("orders") as producer:
        futures = [await producer.send(value) for value in (b"a", b"LARGE", b"b")]
        flushing = asyncio.create_task(producer.flush())
        _, correlation = await line.request(Produce)
        line.answer(correlation, Refusal(Status.TOO_LARGE, 0, "over the limit"))
        for _ in range(3):
            request, correlation = await line.request(Produce)
            too_large = stored(request) == [b"LARGE"]
            line.answer(
                correlation, Refusal(Status.TOO_LARGE, 0, "over the limit") if too_large else ProduceAnswer(0, 0, 0)
            )
        await flushing
    assert [type(future.exception()) for future in futures] == [type(None), Refused, type(None)]


async def test_a_batch_over_the_frame_limit_is_refused_before_it_is_sent() -> None:
    async with meeting() as (_, client, line):
        with pytest.raises(Refused, match="too large"):
            await client.publish("orders", bytes(TERMS.frame_bytes_max))
        publishing = asyncio.create_task(client.publish("orders", b"small"))
        request, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(0, 0, 0))
        await publishing
    assert stored(request) == [b"small"]


async def test_send_waits_while_the_producer_is_full() -> None:
    async with meeting() as (_, client, line), client.producer("orders", linger_ms=0, max_pending=2) as producer:
        futures = [await producer.send(b"1"), await producer.send(b"2")]
        third = asyncio.create_task(producer.send(b"3"))
        _, correlation = await line.request(Produce)
        assert producer.pending == 2
        assert not third.done()
        line.answer(correlation, ProduceAnswer(0, 0, 0))
        futures.append(await third)
        _, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(0, 2, 0))
        assert [(await future).offset for future in futures] == [0, 1, 2]


async def test_without_acks_nobody_waits_and_nobody_knows_the_offset() -> None:
    async with meeting() as (_, client, line), client.producer("orders", acks="none") as producer:
        receipt = await producer.publish(b"x")
        request, correlation = await line.request(Produce)
    assert (request.acks, correlation) == (0, None)
    assert (receipt.offset, receipt.partition, receipt.message_id) == (-1, -1, "")


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
async def test_a_producer_compresses_as_asked(compression: str) -> None:
    async with (
        meeting() as (_, client, line),
        client.producer("orders", compression=compression) as producer,  # type: ignore[arg-type]  # names as data
    ):
        publishing = asyncio.create_task(producer.publish(bytes(5000)))
        request, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(0, 0, 0))
        await publishing
    assert len(request.batch) < 1000
    assert batch.parse(request.batch, codecs=CODECS)[0].value == bytes(5000)


async def test_unconfirmed_publishes_are_sent_again_on_the_next_connection_in_order() -> None:
    async with meeting() as (peer, client, line):
        producer = client.producer("orders", linger_ms=0, batch_bytes=1)
        futures = [await producer.send(value) for value in (b"1", b"2")]
        sent = [(await line.request(Produce))[0] for _ in range(2)]
        line.close()
        line = await peer.line()
        again = [await line.request(Produce) for _ in range(2)]
        for place, (_, correlation) in enumerate(again):
            line.answer(correlation, ProduceAnswer(0, place, 0))
        assert [(await future).offset for future in futures] == [0, 1]
        assert [request for request, _ in again] == sent
        await producer.close()
        line.close()


async def test_a_call_that_has_no_answer_in_time_says_so() -> None:
    async with meeting(timeout="50ms") as (_, client, line):
        with pytest.raises(TimedOut, match="Metadata"):
            await client.topics()
        with pytest.raises(TimedOut, match="may be stored"):
            await client.publish("orders", b"x")
        await line.request(Metadata)


async def test_a_call_without_a_connection_says_what_is_wrong() -> None:
    async with listening() as peer:
        url = peer.url
    with pytest.raises(Disconnected, match="dovetail serve"):
        await connect(url, connect_timeout="50ms", backoff=QUICK).open()


async def test_a_broker_that_refuses_the_token_is_not_asked_again() -> None:
    async with listening() as peer:
        opening = asyncio.create_task(connect(peer.url, token="wrong").open())
        line = await peer.silent_line()
        hello, correlation = await line.request(Hello)
        line.fail(correlation, Error(ErrorCode.UNAUTHORIZED, "the token is wrong"))
        with pytest.raises(Refused, match="the token is wrong"):
            await opening
    assert hello.token == "wrong"


async def test_what_is_not_this_protocol_is_reported_as_it_is() -> None:
    async with listening() as peer:
        opening = asyncio.create_task(connect(peer.url, connect_timeout="200ms", backoff=QUICK).open())
        (await peer.silent_line()).send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(Disconnected):
            await opening


async def test_a_broker_that_closes_right_after_hello_is_tried_again() -> None:
    async with listening() as peer:
        client = connect(peer.url, backoff=QUICK)
        opening = asyncio.create_task(client.open())
        for _ in range(3):
            (await peer.line()).close()
        line = await peer.line()
        await opening
        asking = asyncio.create_task(client.topics())
        _, correlation = await line.request(Metadata)
        line.answer(correlation, MetadataAnswer(()))
        assert await asking == []
        line.close()
        await client.close()


async def test_a_client_that_gives_up_tells_everyone() -> None:
    async with meeting(reconnect_timeout=0) as (_, client, line):
        subscription = await subscribed(client, line)
        publishing = asyncio.create_task(client.publish("orders", b"x"))
        await line.request(Produce)
        line.close()
        with pytest.raises(Disconnected):
            await publishing
        with pytest.raises(Disconnected):
            await anext(subscription)
        with pytest.raises(Disconnected):
            await client.topics()


async def test_an_error_in_the_place_of_an_answer_is_raised() -> None:
    async with meeting() as (_, client, line):
        asking = asyncio.create_task(client.topics())
        _, correlation = await line.request(Metadata)
        line.fail(correlation, Error(ErrorCode.MALFORMED, "cut short"))
        with pytest.raises(BrokerError, match="cut short"):
            await asking


async def test_topics_are_listed_by_name_with_their_partitions() -> None:
    async with meeting() as (_, client, line):
        asking = asyncio.create_task(client.topics("orders/*"))
        request, correlation = await line.request(Metadata)
        logs = (LogMetadata(0, 0, 5, 9), LogMetadata(1, 0, 0, 2))
        line.answer(correlation, MetadataAnswer((TopicMetadata("orders.b", logs), TopicMetadata("orders.a", ()))))
        found = await asking
    assert request.pattern == "orders.*"
    assert [(topic.name, topic.messages) for topic in found] == [("orders.a", 0), ("orders.b", 6)]
    assert [(each.start, each.end) for each in found[1].partitions] == [(5, 9), (0, 2)]


async def test_a_message_says_all_that_was_delivered() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line, group="billing", max_inflight=5)
        data = batch.build([(b"key", "wört".encode(), (("h", b"v"),))], timestamp_ms=5000, base_offset=12)
        line.push(Deliver("1", "orders", 3, 0, 7, 2, 99_000, ((12, 12),), data))
        message = await anext(subscription)
    assert (message.topic, message.partition, message.offset, message.id) == ("orders", 3, 12, "orders:3:12")
    assert (message.key, message.text, message.headers) == (b"key", "wört", {"h": "v"})
    assert (message.attempt, message.timestamp_ms) == (2, 5000)
    assert message.deadline is not None
    assert message.deadline.isoformat() == "1970-01-01T00:01:39+00:00"
    assert not message.settled


async def test_acks_of_a_tick_leave_as_one_range() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        line.push(delivery(10, *[b"x"] * 50))
        for _ in range(50):
            await (await anext(subscription)).ack()
        settle, correlation = await line.request(Settle)
        line.answer(correlation, SettleAnswer((SettleOutcome(0),)))
    assert settle == Settle((SettleItem(7, SettleAction.ACK, 10, 59),))


async def test_a_settle_that_waits_has_its_outcome_or_its_refusal() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        line.push(delivery(0, b"a", b"b"))
        first, second = await subscription.take(2)
        nacking = asyncio.create_task(first.nack(delay="2s", reason="poison", error="bad", wait="applied"))
        extending = asyncio.create_task(second.extend("1m"))
        settle, correlation = await line.request(Settle)
        line.answer(correlation, SettleAnswer((SettleOutcome(0, 1), SettleOutcome(2))))
        assert await nacking is Outcome.REQUEUED
        with pytest.raises(Refused, match="lease"):
            await extending
    assert settle.items == (
        SettleItem(7, SettleAction.NACK, 0, 0, 2, 2000, "bad"),
        SettleItem(7, SettleAction.EXTEND, 1, 1, 0, 60_000, ""),
    )


async def test_leaving_a_message_settles_it_by_how_it_was_left() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        line.push(delivery(0, b"fine", b"broken", b"rejected", b"interrupted"))
        fine, broken, rejected, interrupted = await subscription.take(4)
        async with fine:
            """All went well."""
        with pytest.raises(KeyError):
            async with broken:
                raise KeyError("no such order")
        async with rejected:
            await rejected.reject(reason="no customer")
        with pytest.raises(asyncio.CancelledError):
            async with interrupted:
                raise asyncio.CancelledError
        settle, _ = await line.request(Settle)
    assert {(item.action, item.first, item.error) for item in settle.items} == {
        (SettleAction.ACK, 0, ""),
        (SettleAction.NACK, 1, "KeyError: 'no such order'"),
        (SettleAction.REJECT, 2, "no customer"),
    }
    assert not interrupted.settled


async def test_a_message_is_settled_once() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        line.push(delivery(0, b"x"))
        message = await anext(subscription)
        await message.ack()
        for again in (message.ack, message.nack, message.reject):
            with pytest.raises(ValueError, match="once"):
                await again()
        with pytest.raises(ValueError, match="no lease"):
            await message.extend(1)


async def test_holes_of_a_compacted_log_are_acknowledged_for_the_consumer() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        line.push(replace(delivery(3, b"x"), ranges=((0, 5),)))
        await (await anext(subscription)).ack()
        holes, _ = await line.request(Settle)
        ack, _ = await line.request(Settle)
    assert [(item.first, item.last) for item in holes.items] == [(0, 2), (4, 5)]
    assert ack.items == (SettleItem(7, SettleAction.ACK, 3, 3),)


async def test_a_batch_that_can_not_be_read_is_given_back_with_the_reason() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        good = delivery(0, b"x")
        line.push(replace(good, batches=good.batches[:-1] + b"\xff"))
        settle, _ = await line.request(Settle)
        assert await subscription.take(timeout=0) == []
    assert [(item.action, item.first, item.last) for item in settle.items] == [(SettleAction.NACK, 0, 0)]
    assert "CRC" in settle.items[0].error


async def test_leased_messages_of_a_lost_connection_are_dropped_and_the_subscription_is_renewed() -> None:
    async with meeting() as (peer, client, line):
        subscription = await subscribed(client, line, group="billing")
        line.push(delivery(0, b"held", b"waiting"))
        held = await anext(subscription)
        line.close()
        line = await peer.line()
        request, correlation = await line.request(Subscribe)
        line.answer(correlation, SubscribeAnswer("2"))
        line.push(delivery(0, b"again", lease=8, subscription="2"))
        assert (await anext(subscription)).value == b"again"
        with pytest.raises(Disconnected, match="delivered again"):
            await held.ack(wait="applied")
        line.close()
    assert request == Subscribe("orders", "billing", 100, False)


async def test_messages_settled_by_being_sent_outlive_their_connection() -> None:
    async with meeting() as (peer, client, line):
        subscription = await subscribed(client, line, auto_ack=True)
        line.push(delivery(0, b"a", b"b", lease=0))
        first = await anext(subscription)
        line.close()
        line = await peer.line()
        await line.request(Subscribe)
        second = await anext(subscription)
        line.close()
    assert (first.value, second.value) == (b"a", b"b")
    assert second.settled
    await second.ack()


async def test_a_subscription_that_is_refused_raises_where_it_is_read() -> None:
    async with meeting() as (_, client, line):
        subscription = client.subscribe("orders", group="billing")
        _, correlation = await line.request(Subscribe)
        line.answer(correlation, Refusal(Status.GROUP_ERROR, 0, "the group is full"))
        with pytest.raises(Refused, match="the group is full"):
            await subscription.ready()
        with pytest.raises(Refused, match="the group is full"):
            await anext(subscription)


async def test_closing_a_subscription_settles_first_and_then_unsubscribes() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        line.push(delivery(0, b"a", b"b"))
        await (await anext(subscription)).ack()
        closing = asyncio.create_task(subscription.close())
        await line.request(Settle)
        request, correlation = await line.request(Unsubscribe)
        line.answer(correlation, PlainAnswer())
        await closing
        assert [message async for message in subscription] == []
    assert request.subscription_id == "1"


async def test_a_subscription_closed_before_its_answer_came_is_ended_when_it_comes() -> None:
    async with meeting() as (_, client, line):
        subscription = client.subscribe("orders")
        _, correlation = await line.request(Subscribe)
        await subscription.close()
        line.answer(correlation, SubscribeAnswer("5"))
        request, _ = await line.request(Unsubscribe)
    assert request.subscription_id == "5"


async def test_leases_of_waiting_messages_are_extended_only_while_others_are_taken() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        soon_ms = int(time.time() * 1000) + 60
        line.push(replace(delivery(0, b"taken", b"waits", b"waits too"), deadline_ms=soon_ms))
        taken = await anext(subscription)
        settle, _ = await line.request(Settle)
        # The consumer hangs: what comes next is its ack, and no further extension.
        await asyncio.sleep(0.1)
        await taken.ack()
        ack, _ = await line.request(Settle)
    (item,) = settle.items
    assert (item.action, item.lease, item.first, item.last) == (SettleAction.EXTEND, 7, 2, 2)
    assert 0 < item.delay_ms <= 60
    assert [item.action for item in ack.items] == [SettleAction.ACK]


async def test_take_gives_what_is_there_or_nothing_in_time() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        assert await subscription.take(timeout="1ms") == []
        line.push(delivery(0, b"a", b"b", b"c"))
        assert [message.value for message in await subscription.take(2)] == [b"a", b"b"]
        assert [message.value for message in await subscription.take(2)] == [b"c"]


async def test_heartbeats_go_out_while_there_is_nothing_else_to_say() -> None:
    async with listening() as peer:
        client = connect(peer.url)
        opening = asyncio.create_task(client.open())
        line = await peer.line(replace(TERMS, heartbeat_ms=5, session_timeout_ms=60_000))
        await opening
        for _ in range(3):
            await line.request(Heartbeat)
        line.close()
        await client.close()


async def test_a_broker_that_falls_silent_is_left_for_a_new_connection() -> None:
    async with listening() as peer:
        client = connect(peer.url, backoff=QUICK)
        opening = asyncio.create_task(client.open())
        line = await peer.line(replace(TERMS, heartbeat_ms=5, session_timeout_ms=20))
        await opening
        await line.closed_by_client()
        (await peer.line()).close()
        await client.close()


async def test_when_the_broker_says_goodbye_settles_are_sent_and_nothing_new_until_the_next_connection() -> None:
    async with meeting() as (peer, client, line):
        subscription = await subscribed(client, line)
        line.push(delivery(0, b"x"))
        message = await anext(subscription)
        line.push(Goodbye("shutdown"))
        await message.ack()
        publishing = asyncio.create_task(client.publish("orders", b"new"))
        await line.request(Settle)
        line.close()
        line = await peer.line()
        await line.request(Subscribe)
        _, correlation = await line.request(Produce)
        line.answer(correlation, ProduceAnswer(0, 0, 0))
        await publishing
        line.close()


async def test_closing_the_client_sends_the_last_acks_before_goodbye() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line)
        line.push(delivery(0, b"x"))
        await (await anext(subscription)).ack()
        closing = asyncio.create_task(client.close())
        await line.request(Settle)
        await line.request(Goodbye)
        line.close()
        await closing
        with pytest.raises(Disconnected, match="closed"):
            await client.publish("orders", b"x")


async def test_an_unread_auto_ack_subscription_stops_reading_instead_of_growing() -> None:
    async with meeting() as (_, client, line):
        subscription = await subscribed(client, line, auto_ack=True)
        for place in range(40):
            line.push(delivery(place, bytes(500_000), lease=0))
        # What is answered after the deliveries can only be read once there is room for them.
        asking = asyncio.create_task(client.topics(timeout="30s"))
        _, correlation = await line.request(Metadata)
        line.answer(correlation, MetadataAnswer(()))
        done, _ = await asyncio.wait([asking], timeout=0.2)
        assert not done
        for place in range(40):
            assert (await anext(subscription)).offset == place
        assert await asking == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"priority": "urgent"}, "critical"),
        ({"delay": "soon"}, "duration"),
        ({"partition": -1}, "partition"),
    ],
)
async def test_a_wrong_option_of_a_message_is_refused_before_anything_is_sent(
    options: dict[str, object], problem: str
) -> None:
    async with meeting() as (_, client, _):
        with pytest.raises(ValueError, match=problem):
            await client.publish("orders", b"x", **options)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(ValueError, match="topic name"):
            await client.publish("orders.*", b"x")


@pytest.mark.parametrize(
    "options", [{"acks": "some"}, {"compression": "snappy"}, {"max_pending": 0}, {"partitioner": "random"}]
)
async def test_a_wrong_option_of_a_producer_is_refused(options: dict[str, object]) -> None:
    async with meeting() as (_, client, _):
        with pytest.raises(ValueError, match=next(iter(options))):
            client.producer("orders", **options)  # type: ignore[arg-type]  # wrong on purpose


async def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    with pytest.raises(ValueError, match="async with"):
        await connect("127.0.0.1").publish("orders", b"x")
