"""Programs that are killed: nothing of them runs any more, and those that lose messages fail their tests."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dovetail import App, Message, connect
from dovetail.runtime.client.app import AckPolicy
from dovetail.testing import Broker


def totals(written: set[str], ack: AckPolicy) -> Callable[[], Awaitable[None]]:
    async def main() -> None:
        app = App()

        @app.subscriber("orders", group="totals", ack=ack)
        async def add(message: Message) -> None:
            await asyncio.sleep(0.2)
            written.add(message.text)

        await app.run()

    return main


async def story(broker: Broker, ack: AckPolicy) -> int:
    """How many of ten orders were written by a program that is killed now and then."""
    written: set[str] = set()
    program = broker.start(totals(written, ack))  # type: ignore[arg-type]  # a function that is async is enough
    async with connect() as dv:
        for number in range(10):
            await dv.publish("orders", str(number))
            if number % 4 == 1:
                await broker.advance("250ms")
                broker.kill(program)
        broker.calm()
        await broker.settled("totals")
        await broker.advance("5s")
    assert program.starts == 4
    return len(written)


async def test_a_program_that_acknowledges_after_the_work_loses_nothing_when_it_is_killed(
    dovetail_broker: Broker,
) -> None:
    assert await story(dovetail_broker, "on-success") == 10


async def test_a_program_that_acknowledges_before_the_work_loses_what_it_was_working_on(
    dovetail_broker: Broker,
) -> None:
    assert await story(dovetail_broker, "first") < 10


async def test_nothing_of_a_killed_program_runs_any_more(dovetail_broker: Broker) -> None:
    said: list[str] = []

    async def main() -> None:
        said.append("begun")
        try:
            await asyncio.sleep(3600)
        finally:
            said.append("cleaned up")

    program = dovetail_broker.start(main)
    await dovetail_broker.advance("1s")
    dovetail_broker.kill(program, down="5h")
    await dovetail_broker.advance("2h")
    assert (said, program.is_running) == (["begun"], False)
    await dovetail_broker.advance("4h")
    assert said[:2] == ["begun", "begun"]


async def test_a_program_may_be_killed_between_a_delivery_and_its_ack(dovetail_broker: Broker) -> None:
    attempts: list[int] = []

    async def main() -> None:
        async with connect() as dv:
            async for message in dv.subscribe("orders", group="billing"):
                attempts.append(message.attempt)
                await message.ack()

    dovetail_broker.kill(dovetail_broker.start(main), on="deliver")
    async with connect() as dv:
        await dv.publish("orders", "one")
        await dovetail_broker.advance("1s")
        await dovetail_broker.settled("billing")
    assert attempts == [1], "the first delivery was never seen, and a lost connection is no failed attempt"


def test_a_program_that_fails_fails_the_test() -> None:
    async def main() -> None:
        await asyncio.sleep(60)
        raise ArithmeticError("a total is negative")

    async def test(broker: Broker) -> None:
        broker.start(main)
        await broker.advance("1h")

    broker = Broker()
    with pytest.raises(ArithmeticError, match="a total is negative"):
        broker.run(test(broker))


def test_chance_kills_programs_too() -> None:
    async def test(broker: Broker) -> int:
        program = broker.start(lambda: asyncio.sleep(3600), name="sleeper")
        async with connect():
            await broker.advance("1m")
        return program.starts

    broker = Broker(chaos=True)
    assert broker.run(test(broker)) > 3
