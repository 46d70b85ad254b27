"""A show: a broker with a shop's traffic, to be looked at in the console.

Orders come in and are billed by two workers, one of which fails now and then; some orders nobody can bill, and they
end as dead letters. A partitioned group ships them in the order of their customers. Sensors report, reminders wait for
their time, and a group that is too slow falls behind.

Promises  everything is real: the broker, its clients, its disk; it leaves nothing behind.
Never     listens beyond this machine.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct

from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from dovetail.runtime.client import Client, DovetailError, Message, connect
from dovetail.runtime.config import Config
from dovetail.runtime.server import Server

CUSTOMERS = 40
GOODS = ("a chair", "a lamp", "two cups", "a kite", "a clock")
FAILS = 0.15
HOPELESS = 0.02
SLOW_S = 0.4
_TOPIC_SETTINGS = ("topic.max_retries", "topic.lag_warning")


class Shop(Struct):
    """What has happened so far."""

    published: int = 0
    billed: int = 0
    failed: int = 0
    rejected: int = 0
    shipped: int = 0


@asynccontextmanager
async def show(http: str = "127.0.0.1:0", rate: float = 20.0, seed: int = 1) -> AsyncIterator[tuple[Server, Shop]]:
    """The broker and its traffic, about `rate` orders a second, until the block ends."""
    data = tempfile.mkdtemp(prefix="dovetail-demo-")
    topics = TopicConfig(max_retries=2, lag_warning=500)
    config = Config(data=data, listen="127.0.0.1:0", http=http, settings=Settings(partitions=3, topic_defaults=topics))
    try:
        server = await Server.start(config)
        server.origins = dict.fromkeys(("data", "listen", "http", "partitions", *_TOPIC_SETTINGS), "dovetail demo")
        shop = Shop()
        async with connect(f"dovetail://127.0.0.1:{server.port}", name="shop") as client:
            actors = [asyncio.ensure_future(each) for each in _actors(client, server, shop, rate, random.Random(seed))]
            try:
                yield server, shop
            finally:
                for actor in actors:
                    actor.cancel()
                await asyncio.gather(*actors, return_exceptions=True)
        await server.stop()
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _actors(
    client: Client, server: Server, shop: Shop, rate: float, chance: random.Random
) -> list[Coroutine[Any, Any, None]]:
    url = f"dovetail://127.0.0.1:{server.port}"
    return [
        _customers(client, shop, rate, chance),
        _sensors(client, shop, rate / 2, chance),
        _reminders(client, shop, rate / 10, chance),
        _member(url, "billing-anna", "orders", "billing", lambda message: _bill(message, shop, chance, FAILS)),
        _member(url, "billing-bert", "orders", "billing", lambda message: _bill(message, shop, chance, 0.0)),
        _member(url, "shipping-1", "orders", "shipping", lambda message: _ship(message, shop), "cooperative-sticky"),
        _member(url, "shipping-2", "orders", "shipping", lambda message: _ship(message, shop), "cooperative-sticky"),
        _member(url, "dashboard", "sensors.#", "dashboard", _glance),
        _member(url, "archive", "#", "archive", _archive),
    ]


async def _customers(client: Client, shop: Shop, rate: float, chance: random.Random) -> None:
    number = 0
    while True:
        number += 1
        customer = f"customer-{chance.randrange(CUSTOMERS)}"
        kind = "impossible" if chance.random() < HOPELESS else "order"
        order = {"order": number, "customer": customer, "goods": chance.choice(GOODS), "kind": kind}
        await _publish(client, shop, "orders", json.dumps(order), key=customer)
        await asyncio.sleep(chance.expovariate(rate))


async def _sensors(client: Client, shop: Shop, rate: float, chance: random.Random) -> None:
    while True:
        room = chance.choice(("hall", "store", "office"))
        value = json.dumps({"celsius": round(chance.gauss(20, 2), 1)})
        await _publish(client, shop, f"sensors.{room}.temperature", value, ttl="10m")
        await asyncio.sleep(chance.expovariate(rate))


async def _reminders(client: Client, shop: Shop, rate: float, chance: random.Random) -> None:
    while True:
        await _publish(client, shop, "reminders", "call back", delay=f"{chance.randrange(5, 60)}s")
        await asyncio.sleep(chance.expovariate(rate))


async def _publish(client: Client, shop: Shop, topic: str, value: str, **more: Any) -> None:
    with suppress(DovetailError):
        await client.publish(topic, value, **more)
        shop.published += 1


async def _member(
    url: str,
    name: str,
    pattern: str,
    group: str,
    handle: Callable[[Message], Coroutine[Any, Any, None]],
    strategy: str = "",
) -> None:
    async with connect(url, name=name) as client:
        async for message in client.subscribe(pattern, group=group, member=name, max_inflight=20, strategy=strategy):
            with suppress(DovetailError):
                await handle(message)


async def _bill(message: Message, shop: Shop, chance: random.Random, fails: float) -> None:
    await asyncio.sleep(chance.uniform(0.005, 0.05))
    if json.loads(message.value)["kind"] == "impossible":
        shop.rejected += 1
        await message.reject(error="this can't be billed: no such goods")
    elif chance.random() < fails:
        shop.failed += 1
        await message.nack(error="the bank does not answer")
    else:
        shop.billed += 1
        await message.ack()


async def _ship(message: Message, shop: Shop) -> None:
    shop.shipped += 1
    await message.ack()


async def _glance(message: Message) -> None:
    await message.ack()


async def _archive(message: Message) -> None:
    """Too slow for what comes: its lag grows."""
    await asyncio.sleep(SLOW_S)
    await message.ack()
