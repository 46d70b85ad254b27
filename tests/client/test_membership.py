"""Partitioned groups with real clients and a real broker: assigned, asked back, taken over, resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dovetail.runtime.client import Client, Message, Refused, Subscription, connect
from dovetail.runtime.client.membership import Place
from tests.client.broker import Broker, config, serving

PLACES = frozenset(("news", partition) for partition in range(4))


@asynccontextmanager
async def two_clients(data: Path, partitions: int) -> AsyncIterator[tuple[Broker, Client, Client]]:
    given = config(data, partitions=partitions)
    async with serving(given) as broker, connect(broker.url) as one, connect(broker.url) as two:
        yield broker, one, two


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something has come about; that it never does is the failure."""
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


def reader(client: Client, strategy: str = "sticky", **options: object) -> Subscription:
    return client.subscribe("news", group="crew", strategy=strategy, **options)  # type: ignore[arg-type] # options are its own


async def test_a_newcomer_gets_its_share_and_the_rest_stays(tmp_path: Path) -> None:
    async with two_clients(tmp_path, 4) as (_, one, two):
        first = reader(one)
        await until(lambda: first.assigned == PLACES)
        second = reader(two)
        await until(lambda: len(second.assigned) == 2)
        assert first.assigned | second.assigned == PLACES
        for partition in range(4):
            await one.publish("news", b"%d" % partition, partition=partition)
        for mine in (first, second):
            assert {("news", message.partition) for message in await all_of(mine, 2)} == mine.assigned


async def test_a_partition_is_released_when_what_is_in_hand_of_it_is_settled(tmp_path: Path) -> None:
    wanted_back: list[frozenset[Place]] = []
    async with two_clients(tmp_path, 2) as (_, one, two):
        first = reader(one, on_revoke=wanted_back.append)
        await until(lambda: len(first.assigned) == 2)
        for partition in range(2):
            await one.publish("news", b"x", partition=partition)
        held = {("news", message.partition): message for message in await all_of(first, 2)}
        second = reader(two)
        await until(lambda: bool(wanted_back))
        (place,) = wanted_back[0]
        assert second.assigned == frozenset()
        await held[place].ack(wait="applied")
        await until(lambda: second.assigned == frozenset({place}))
        assert await second.take(1, timeout="0.2s") == []


async def all_of(subscription: Subscription, count: int) -> list[Message]:
    messages: list[Message] = []
    async for message in subscription:
        messages.append(message)
        if len(messages) == count:
            return messages
    raise AssertionError("the subscription ended")


async def test_a_leaver_s_partitions_go_to_who_stays(tmp_path: Path) -> None:
    async with serving(config(tmp_path, partitions=4)) as broker, connect(broker.url) as one:
        first = reader(one)
        async with connect(broker.url) as two:
            second = reader(two)
            await until(lambda: len(first.assigned) == 2 and len(second.assigned) == 2)
        await until(lambda: first.assigned == PLACES)


async def test_a_member_that_subscribes_alone_answers_too(tmp_path: Path) -> None:
    async with two_clients(tmp_path, 4) as (broker, one, two):
        first = reader(one)
        await until(lambda: first.assigned == PLACES)
        second = two.subscribe("news", group="crew")
        await until(lambda: len(second.assigned) == 2)
        async with connect(broker.url) as three:
            third = reader(three, "")
            await until(lambda: len(third.assigned) == 1)


async def test_another_strategy_is_refused_to_the_one_who_asks(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as one, connect(broker.url) as two:
        kept = reader(one)
        await kept.ready()
        with pytest.raises(Refused, match="sticky"):
            await anext(aiter(reader(two, "range")))


async def test_a_group_shares_out_anew_after_the_broker_was_killed(tmp_path: Path) -> None:
    async with two_clients(tmp_path, 4) as (broker, one, two):
        first, second = reader(one), reader(two)
        await until(lambda: len(first.assigned) == 2 and len(second.assigned) == 2)
        generation = first.generation
        await restart(broker)
        await until(lambda: len(first.assigned) == 2 and len(second.assigned) == 2 and first.generation > generation)
        assert first.assigned | second.assigned == PLACES


async def restart(broker: Broker) -> None:
    await broker.kill()
    await broker.start()


async def test_a_key_ordered_group_keeps_each_key_at_one_member(tmp_path: Path) -> None:
    async with two_clients(tmp_path, 1) as (_, one, two):
        first, second = reader(one, "key-ordered"), reader(two, "key-ordered")
        await first.ready()
        await second.ready()
        for number in range(40):
            await one.publish("news", b"x", key=b"%d" % (number % 4))
        got = [await mine.take(40, timeout="10s") for mine in (first, second)]
        held = [{message.key for message in messages} for messages in got]
        assert held[0]
        assert held[1]
        assert not held[0] & held[1]


async def test_what_is_a_group_s_needs_a_group(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker, connect(broker.url) as dv:
        with pytest.raises(ValueError, match="name the group"):
            dv.subscribe("news", strategy="sticky")
        kept = reader(dv)
        with pytest.raises(ValueError, match="already"):
            reader(dv, "range")
        assert kept.group == "crew"
