"""Whatever a program does that a program may do, the checkers beside it accuse nobody."""

import asyncio

import pytest

from dovetail import Refused, connect
from dovetail.testing import Broker, Topic


async def test_the_same_text_may_be_published_in_any_number_of_ways(dovetail_broker: Broker) -> None:
    async with connect() as dv, dv.producer("ticks", idempotent=True) as ticks:
        for _ in range(3):
            await ticks.publish("tick")
        for number in range(3):
            await dv.publish("ticks", "tick", delay=f"{number}h")
            await dv.publish("ticks", "tick", ttl=f"{number}m")
        await dovetail_broker.advance("3h")
    assert [each.text for each in await dovetail_broker.messages("ticks")] == ["tick"] * 9


@pytest.mark.dovetail(topics=[Topic("alerts", lanes=True)])
async def test_the_same_text_may_go_to_several_lanes(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        await asyncio.gather(
            dv.publish("alerts", "fire", priority="low"), dv.publish("alerts", "fire", priority="high")
        )
    assert len(await dovetail_broker.messages("alerts")) == 2


async def test_a_commit_ends_leases_and_that_is_no_broken_promise(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        for text in "abc":
            await dv.publish("orders", text)
        orders = dv.subscribe("orders", group="billing")
        first = await anext(orders)
        await dv.commit("billing", "orders", offset=3)
        with pytest.raises(Refused):
            await first.ack(wait="applied")
        assert dovetail_broker.lag("billing") == 0


async def test_a_lone_subscriber_may_reject(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        lone = dv.subscribe("orders")
        await lone.ready()
        await dv.publish("orders", "unbearable")
        await (await anext(lone)).reject(wait="durable")
        await asyncio.sleep(1)
    assert [each.text for each in await dovetail_broker.messages("orders.dlq")] == ["unbearable"]
