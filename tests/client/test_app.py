"""Subscribers as decorated functions, settled by their policies."""

import asyncio
from pathlib import Path

import pytest

from dovetail.runtime.client import App, Message, Refused, connect
from tests.client.broker import config, serving


async def test_a_subscriber_that_returns_acknowledges_and_one_that_raises_gets_another_try(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        app = App(broker.url)
        tries: list[int] = []

        @app.subscriber("orders.*", group="billing")
        async def bill(message: Message) -> None:
            tries.append(message.attempt)
            if message.attempt == 1:
                raise ValueError("the first try always fails")
            app.stop()

        running = asyncio.create_task(app.run())
        await app.running()
        await app.client.publish("orders.new", "x")
        await running
        assert tries == [1, 2]
        async with connect(broker.url) as dv:
            assert await dv.subscribe("orders.*", group="billing").take(timeout="100ms") == []


async def test_acknowledged_first_means_at_most_once(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        app = App(broker.url)
        tries: list[str] = []

        @app.subscriber("orders", group="billing", ack="first")
        async def bill(message: Message) -> None:
            tries.append(message.text)
            if message.text == "last":
                app.stop()
            raise ValueError("lost, as was asked for")

        running = asyncio.create_task(app.run())
        await app.running()
        await app.client.publish("orders", "x")
        await app.client.publish("orders", "last")
        await running
    assert tries == ["x", "last"]


async def test_a_manual_subscriber_settles_itself(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        app = App(broker.url)
        attempts: list[int] = []

        @app.subscriber("orders", group="billing", ack="manual")
        async def bill(message: Message) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                await message.nack()
            else:
                await message.ack()
                app.stop()

        running = asyncio.create_task(app.run())
        await app.running()
        await app.client.publish("orders", "x")
        await running
    assert attempts == [1, 2]


async def test_workers_handle_messages_at_the_same_time_and_stop_lets_them_finish(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        app = App(broker.url)
        together = asyncio.Barrier(3)
        finished: list[str] = []

        @app.subscriber("orders", group="billing", workers=3)
        async def bill(message: Message) -> None:
            await together.wait()
            app.stop()
            await asyncio.sleep(0)
            finished.append(message.text)

        running = asyncio.create_task(app.run())
        await app.running()
        for n in range(3):
            await app.client.publish("orders", f"{n}")
        await running
        async with connect(broker.url) as dv:
            assert await dv.subscribe("orders", group="billing").take(timeout="100ms") == []
    assert sorted(finished) == ["0", "1", "2"]


async def test_a_subscription_that_the_broker_refuses_ends_the_app(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        app = App(broker.url)

        @app.subscriber("orders", group="bil/ling")
        async def bill(message: Message) -> None:
            """Never called."""

        with pytest.raises(Refused, match="name"):
            await app.run()


async def test_an_app_without_subscribers_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="subscriber"):
        await App().run()
