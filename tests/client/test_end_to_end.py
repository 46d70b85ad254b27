"""The client and a real broker, over real sockets."""

import asyncio
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from dovetail.core.codes import Status
from dovetail.runtime.client import Backoff, Client, Disconnected, Message, Outcome, Refused, Subscription, connect
from dovetail.runtime.client import subscription as subscriptions
from dovetail.runtime.client.partitioning import PartitionerName
from dovetail.runtime.client.producer import CompressionName, Priority
from tests.client.broker import config, serving

QUICK = Backoff(first=0.005, longest=0.05)


async def received(subscription: Subscription, count: int) -> list[Message]:
    """The next `count` messages, each acknowledged."""
    messages = []
    for _ in range(count):
        message = await anext(subscription)
        await message.ack()
        messages.append(message)
    return messages


async def clients(stack: AsyncExitStack, url: str, count: int) -> list[Client]:
    return [await stack.enter_async_context(connect(url)) for _ in range(count)]


async def test_what_is_published_is_delivered_as_it_was(tmp_path: Path) -> None:
    async with (
        serving(config(tmp_path)) as broker,
        connect(broker.url) as dv,
        dv.subscribe("orders.*", group="billing") as orders,
    ):
        receipt = await dv.publish("orders/created", "grüße", key="k1", headers=[("trace", "abc"), ("raw", b"\1")])
        (message,) = await received(orders, 1)
    assert receipt.message_id == message.id == "orders.created:0:0"
    assert (message.text, message.key) == ("grüße", b"k1")
    assert message.headers == {"trace": "abc", "raw": "\1"}
    assert (message.attempt, message.deadline is not None) == (1, True)


async def test_every_subscriber_without_a_group_gets_a_copy(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(serving(config(tmp_path)))
        one, two = await clients(stack, broker.url, 2)
        first = await stack.enter_async_context(one.subscribe("sensors.*.temperature"))
        second = await stack.enter_async_context(two.subscribe("sensors.#", auto_ack=True))
        await one.publish("sensors.a.temperature", "21")
        await one.publish("sensors.a.humidity", "60")
        await one.publish("sensors.b.temperature", "22")
        assert [message.text for message in await received(first, 2)] == ["21", "22"]
        assert [message.text for message in await received(second, 3)] == ["21", "60", "22"]


async def test_what_one_client_publishes_after_subscribing_arrives_without_waiting(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        news = dv.subscribe("news")
        await dv.publish("news", "first")
        assert [message.text for message in await received(news, 1)] == ["first"]


async def test_a_group_shares_its_messages_in_turn(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(serving(config(tmp_path)))
        members = await clients(stack, broker.url, 3)
        shares = [await stack.enter_async_context(member.subscribe("jobs", group="workers")) for member in members]
        for number in range(9):
            await members[0].publish("jobs", f"{number}")
        taken = await asyncio.gather(*[received(share, 3) for share in shares])
        assert sorted(message.text for share in taken for message in share) == sorted("012345678")


async def test_two_groups_of_one_client_each_get_everything(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        billing, audit = dv.subscribe("orders", group="billing"), dv.subscribe("orders", group="audit")
        await dv.publish("orders", "x")
        assert [len(await received(each, 1)) for each in (billing, audit)] == [1, 1]


async def test_a_nack_brings_the_message_back_with_the_next_attempt(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        jobs = dv.subscribe("jobs", group="workers")
        await dv.publish("jobs", "x")
        first = await anext(jobs)
        assert await first.nack(error="not today", wait="applied") is Outcome.REQUEUED
        (second,) = await received(jobs, 1)
        assert (first.attempt, second.attempt, second.id) == (1, 2, first.id)


async def test_a_rejected_message_is_found_among_the_dead_letters(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        jobs = dv.subscribe("jobs", group="workers")
        dead = dv.subscribe("jobs.dlq", group="undertakers")
        await dv.publish("jobs", "x", headers={"mine": "1"})
        outcome = await (await anext(jobs)).reject(reason="no such customer", wait="durable")
        (letter,) = await received(dead, 1)
    assert outcome is Outcome.DEAD_LETTERED
    assert (letter.topic, letter.text) == ("jobs.dlq", "x")
    assert letter.headers.items() >= {"mine": "1", "dovetail-group": "workers"}.items()
    assert letter.headers["dovetail-error"] == "no such customer"


async def test_a_message_that_is_not_acknowledged_in_time_comes_back_and_the_late_ack_is_refused(
    tmp_path: Path,
) -> None:
    async with serving(config(tmp_path, lease_ms=100)) as broker, connect(broker.url) as dv:
        jobs = dv.subscribe("jobs", group="workers")
        await dv.publish("jobs", "x")
        late = await anext(jobs)
        again = await anext(jobs)
        with pytest.raises(Refused) as refused:
            await late.ack(wait="applied")
        await again.ack(wait="applied")
    assert refused.value.status == Status.LEASE_LOST
    assert (again.id, again.attempt) == (late.id, 2)


async def test_an_extended_lease_outlives_its_first_deadline(tmp_path: Path) -> None:
    async with serving(config(tmp_path, lease_ms=150)) as broker, connect(broker.url) as dv:
        jobs = dv.subscribe("jobs", group="workers")
        await dv.publish("jobs", "x")
        message = await anext(jobs)
        await message.extend("30s")
        assert await jobs.take(timeout="400ms") == []
        await message.ack(wait="applied")


async def test_a_slow_consumer_keeps_what_it_was_sent_ahead(tmp_path: Path) -> None:
    async with serving(config(tmp_path, lease_ms=1000)) as broker, connect(broker.url) as dv:
        async with dv.producer("jobs") as producer:
            for n in range(6):
                await producer.send(f"{n}")
        async with dv.subscribe("jobs", group="workers") as jobs:
            seen = []
            for _ in range(6):
                message = await anext(jobs)
                await asyncio.sleep(0.3)
                await message.ack(wait="applied")
                seen.append((message.text, message.attempt))
    assert seen == [(f"{n}", 1) for n in range(6)]


async def test_a_consumer_that_hangs_loses_what_it_was_sent_ahead(tmp_path: Path) -> None:
    async with serving(config(tmp_path, lease_ms=150)) as broker, connect(broker.url) as dv:
        async with dv.producer("jobs") as producer:
            for n in range(3):
                await producer.send(f"{n}")
        hanging = dv.subscribe("jobs", group="workers")
        await anext(hanging)
        async with connect(broker.url) as other:
            taken = await received(other.subscribe("jobs", group="workers"), 3)
    assert sorted(message.text for message in taken) == ["0", "1", "2"]


async def test_a_subscription_that_nobody_refers_to_gives_back_what_it_was_sent(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        for n in range(3):
            await dv.publish("jobs", f"{n}")
        async for message in dv.subscribe("jobs", group="workers"):
            await message.ack()
            break
        del message
        rest = await received(dv.subscribe("jobs", group="workers"), 2)
    assert [(message.text, message.attempt) for message in rest] == [("1", 1), ("2", 1)]


async def test_a_subscription_that_nobody_refers_to_does_not_keep_its_client_from_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "BUFFER_BYTES_MAX", 1_000)
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv, connect(broker.url) as other:
        hanging = dv.subscribe("news", auto_ack=True)
        await hanging.ready()
        while not hanging._holds_reading:
            await other.publish("news", bytes(1_000))
        del hanging
        assert [topic.name for topic in await dv.topics(timeout="5s")] == ["news"]


async def test_a_subscription_lives_as_long_as_a_message_of_it_is_in_hand(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        await dv.publish("jobs", "x")
        message = await anext(dv.subscribe("jobs", group="workers"))
        await dv.topics()
        await message.ack(wait="applied")


@pytest.mark.parametrize("partitioner", ["key", "kafka-key", "round-robin", "sticky"])
async def test_every_message_of_a_producer_arrives_once_and_each_partition_in_order(
    tmp_path: Path, partitioner: PartitionerName
) -> None:
    count = 2000
    async with serving(config(tmp_path, partitions=4)) as broker, connect(broker.url) as dv:
        numbers = dv.subscribe("numbers", group="all", max_inflight=500)
        async with dv.producer("numbers", partitioner=partitioner, batch_bytes=2000, linger_ms=1) as producer:
            futures = [await producer.send(f"{n}", key=f"{n % 7}") for n in range(count)]
        receipts = [future.result() for future in futures]
        messages = await received(numbers, count)
    places = {(each.partition, each.offset): int(each.text) for each in messages}
    assert {(receipt.partition, receipt.offset): n for n, receipt in enumerate(receipts)} == places
    per_partition = defaultdict(list)
    for place in sorted(places):
        per_partition[place[0]].append(places[place])
    assert all(offsets == sorted(offsets) for offsets in per_partition.values())
    if partitioner != "sticky":
        assert len(per_partition) > 1
    if partitioner.endswith("key"):
        homes = defaultdict(set)
        for message in messages:
            homes[message.key].add(message.partition)
        assert all(len(partitions) == 1 for partitions in homes.values())


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
async def test_compressed_batches_are_delivered_as_they_were_sent(tmp_path: Path, compression: CompressionName) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        async with dv.producer("logs", compression=compression) as producer:
            for n in range(500):
                await producer.send(f"line {n} " * 20)
        messages = await received(dv.subscribe("logs", group="g"), 500)
    assert [message.text for message in messages] == [f"line {n} " * 20 for n in range(500)]


async def test_a_message_over_the_limit_is_refused_and_its_neighbours_are_stored(tmp_path: Path) -> None:
    async with serving(config(tmp_path, message_bytes_max=1000)) as broker, connect(broker.url) as dv:
        values = [b"small", bytes(2000), b"also small"]
        results = await asyncio.gather(*[dv.publish("t", value) for value in values], return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["Receipt", "Refused", "Receipt"]
        (topic,) = await dv.topics("t")
        assert topic.messages == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": 5},
        {"value": [1, 2]},
        {"key": [1]},
        {"headers": {"h": [1]}},
        {"headers": [("h\ud800", "v")]},
        {"headers": [(b"h", b"v")]},
        {"partition": 1 << 31},
        {"ttl": 1 << 60},
    ],
    ids=str,
)
async def test_a_wrong_argument_is_raised_at_once_and_costs_nobody_else_anything(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv, dv.producer("orders") as producer:
        neighbour = await producer.send("fine")
        with pytest.raises((TypeError, ValueError)):
            await producer.send(**{"value": "wrong", **wrong})
        assert (await neighbour).offset == 0


async def test_a_number_that_no_frame_can_carry_is_a_wrong_argument(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        await dv.publish("orders", "x")
        for call in (dv.fetch("orders", offset=-1), dv.commit("g", "orders", 1 << 64), dv.seek("g", "orders", to=-1)):
            with pytest.raises(ValueError, match="not every number fits"):
                await call
        assert [message.text for message in (await dv.fetch("orders")).messages] == ["x"]


@pytest.mark.parametrize("wrong", [{"name": "n" * 70_000}, {"token": "t" * 70_000}, {"name": "\ud800"}], ids=str)
def test_a_name_or_token_that_can_not_be_sent_is_a_wrong_argument(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"bytes|encode"):
        connect(**wrong)  # type: ignore[arg-type]  # each is a text


async def test_an_address_that_can_not_be_looked_up_is_said_at_once() -> None:
    with pytest.raises(Disconnected, match="no address"):
        async with connect("a" * 70 + ".example"):
            """Not reached."""


async def test_the_broker_s_reason_reaches_the_caller(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        with pytest.raises(Refused, match="partitions 0 to 0"):
            await dv.publish("t", b"x", partition=5)


async def test_topics_are_listed_with_what_they_hold(tmp_path: Path) -> None:
    async with serving(config(tmp_path, partitions=2)) as broker, connect(broker.url) as dv:
        for partition in (0, 1, 1):
            await dv.publish("orders.eu", b"x", partition=partition)
        await dv.publish("orders.us", b"x", partition=0)
        found = await dv.topics("orders.*")
        assert await dv.topics("nothing.#") == []
    assert [topic.name for topic in found] == ["orders.eu", "orders.us"]
    assert [(each.partition, each.start, each.end) for each in found[0].partitions] == [(0, 0, 1), (1, 0, 2)]


async def test_a_partition_is_read_without_a_group_from_any_offset_on(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        async with dv.producer("logs", batch_bytes=200) as producer:
            for n in range(100):
                await producer.send(f"line {n}")
        texts: list[str] = []
        offset = 7
        while (page := await dv.fetch("logs", offset=offset, bytes_max=500)).messages:
            texts += [message.text for message in page.messages]
            offset = page.next_offset
        assert texts == [f"line {n}" for n in range(7, 100)]
        assert (page.start, page.end, page.next_offset) == (0, 100, 100)
        waiting = asyncio.create_task(dv.fetch("logs", offset=100, wait="30s"))
        await dv.publish("logs", "the next")
        assert [message.text for message in (await waiting).messages] == ["the next"]


async def test_a_group_goes_on_where_it_was_told_to(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        receipts = [await dv.publish("jobs", f"{n}") for n in range(5)]
        async with dv.subscribe("jobs", group="workers") as jobs:
            await received(jobs, 5)
        assert await dv.seek("workers", "jobs", to=3) == 3
        async with dv.subscribe("jobs", group="workers") as jobs:
            assert [message.text for message in await received(jobs, 2)] == ["3", "4"]
        assert await dv.seek("workers", "jobs", to="earliest") == 0
        assert await dv.seek("workers", "jobs", to="latest") == 5
        assert await dv.seek("workers", "jobs", to=receipts[0].timestamp) == 0
        await dv.commit("workers", "jobs", 4)
        async with dv.subscribe("jobs", group="workers") as jobs:
            assert [message.text for message in await received(jobs, 1)] == ["4"]


async def test_a_client_outlives_a_broker_that_is_stopped_and_started(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url, backoff=QUICK) as dv:
        jobs = dv.subscribe("jobs", group="workers")
        news = dv.subscribe("news")
        await dv.publish("jobs", "before")
        (before,) = await received(jobs, 1)
        await broker.stop()
        waiting = asyncio.create_task(dv.publish("jobs", "meanwhile"))
        await broker.start()
        receipt = await waiting
        (meanwhile,) = await received(jobs, 1)
        await news.ready()
        while not await dv.topics("news"):
            """The subscription is being renewed, which makes the topic."""
        await dv.publish("news", "after")
        (after,) = await received(news, 1)
    assert (before.text, meanwhile.text, after.text) == ("before", "meanwhile", "after")
    assert receipt.offset == meanwhile.offset == before.offset + 1


async def test_a_message_being_worked_on_is_finished_while_the_broker_stops(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url, backoff=QUICK) as dv:
        jobs = dv.subscribe("jobs", group="workers")
        await dv.publish("jobs", "in hand")
        await dv.publish("jobs", "waiting")
        while not (in_hand := await jobs.take(1)):
            """Both are on their way."""
        stopping = asyncio.create_task(broker.stop())
        while dv.connected:
            await asyncio.sleep(0.001)
        await in_hand[0].ack(wait="applied")
        await stopping
        await broker.start()
        assert [message.text for message in await received(jobs, 1)] == ["waiting"]


async def test_acknowledged_messages_do_not_come_back_after_a_clean_stop(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url, backoff=QUICK) as dv:
        jobs = dv.subscribe("jobs", group="workers")
        await dv.publish("jobs", "done")
        await received(jobs, 1)
        await broker.stop()
        await broker.start()
        await dv.publish("jobs", "new")
        assert [message.text for message in await received(jobs, 1)] == ["new"]


async def test_everything_confirmed_survives_crashes_while_publishing(tmp_path: Path) -> None:
    confirmed: list[str] = []

    async def publish(dv: Client, name: str, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            value = f"{name}{number}"
            await dv.publish("orders", value)
            confirmed.append(value)
            number += 1

    async with serving(config(tmp_path)) as broker, connect(broker.url, backoff=QUICK) as dv:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for name in "abcd":
                group.create_task(publish(dv, name, stop))
            for _ in range(3):
                target = len(confirmed) + 40
                while len(confirmed) < target:
                    await dv.topics("orders")
                await broker.kill()
                await broker.start()
            stop.set()
        (topic,) = await dv.topics("orders")
        stored = [message.text for message in await received(dv.subscribe("orders", group="all"), topic.messages)]
    times = Counter(stored)
    assert set(confirmed) <= set(times)
    # At least once: a crash between storing and confirming has each of the four waiting publishes sent again.
    assert sum(times.values()) - len(times) <= 3 * 4
    for name in "abcd":
        firsts = [value for value in dict.fromkeys(stored) if value[0] == name]
        assert firsts == sorted(firsts, key=lambda value: int(value[1:]))


@pytest.mark.parametrize("partitions", [1, 3])
async def test_an_idempotent_producer_stores_each_message_once_whatever_is_killed(
    tmp_path: Path, partitions: int
) -> None:
    texts = [f"{number}" for number in range(600)]
    async with serving(config(tmp_path, partitions=partitions)) as broker, connect(broker.url, backoff=QUICK) as dv:
        async with dv.producer("orders", idempotent=True, batch_bytes=200) as orders:
            futures = []
            for number, text in enumerate(texts):
                priority: Priority = "high" if number % 5 == 0 else "normal"
                futures.append(await orders.send(text, priority=priority, ttl=f"{1 + number % 3}h"))
                if number in (150, 300, 450):
                    await futures[number - 50]
                    await broker.kill()
                    await broker.start()
            await asyncio.gather(*futures)
        stored = [message.text for message in await received(dv.subscribe("orders", group="all"), len(texts))]
        (topic,) = await dv.topics("orders")
    assert topic.messages == len(texts)
    assert sorted(stored, key=int) == texts


async def test_an_idempotent_producer_stores_what_it_sends_with_a_key_and_without(tmp_path: Path) -> None:
    texts = [f"{number}" for number in range(12)]
    async with serving(config(tmp_path)) as broker, connect(broker.url, backoff=QUICK) as dv:
        async with dv.producer("orders", idempotent=True) as orders:
            receipts = [
                await orders.publish(text, key="k" if number % 2 else None, partition=0 if number % 3 == 2 else None)
                for number, text in enumerate(texts)
            ]
        stored = [message.text for message in await received(dv.subscribe("orders", group="all"), len(texts))]
    assert len({receipt.message_id for receipt in receipts}) == len(texts)
    assert sorted(stored, key=int) == texts


async def test_unacknowledged_messages_are_delivered_again_after_a_crash(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url, backoff=QUICK) as dv:
        jobs = dv.subscribe("jobs", group="workers")
        for n in range(4):
            await dv.publish("jobs", f"{n}")
        first, second, *_ = [await anext(jobs) for _ in range(4)]
        await first.ack(wait="durable")
        await second.ack(wait="durable")
        await broker.kill()
        await broker.start()
        again = await received(jobs, 2)
    assert [(message.text, message.attempt) for message in again] == [("2", 1), ("3", 1)]


async def test_a_member_that_leaves_returns_what_it_holds(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        async with connect(broker.url) as leaver, leaver.subscribe("jobs", group="workers") as held:
            await dv.publish("jobs", "x")
            await anext(held)
        (message,) = await received(dv.subscribe("jobs", group="workers"), 1)
    assert (message.text, message.attempt) == ("x", 1)


async def test_many_tasks_publish_and_consume_at_once(tmp_path: Path) -> None:
    publishers, each = 20, 50
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        seen: Counter[str] = Counter()

        async def work(jobs: Subscription) -> None:
            async for message in jobs:
                seen[message.text] += 1
                await message.ack()
                if sum(seen.values()) == publishers * each:
                    jobs.stop()

        async def publish(name: int) -> None:
            for n in range(each):
                await dv.publish(f"jobs.{name % 4}", f"{name}-{n}")

        jobs = dv.subscribe("jobs.*", group="workers")
        await asyncio.gather(*[publish(name) for name in range(publishers)], *[work(jobs) for _ in range(5)])
    assert seen == {f"{name}-{n}": 1 for name in range(publishers) for n in range(each)}
