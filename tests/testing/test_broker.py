"""What people rely on who test their programs with `dovetail.testing`."""

import asyncio
import os
import random
import subprocess
import sys
import time

import pytest

from dovetail import App, Disconnected, Message, connect
from dovetail.testing import Broker, Stalled, Topic


async def test_a_message_goes_through_the_real_client(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        receipt = await dv.publish("orders.created", "one", key="k", headers={"a": "b"})
        async for order in dv.subscribe("orders.*", group="billing"):
            assert (order.id, order.text, order.key, order.headers) == (receipt.message_id, "one", b"k", {"a": "b"})
            await order.ack()
            break
        await dovetail_broker.settled("billing")
    assert [each.text for each in await dovetail_broker.messages("orders.created")] == ["one"]


async def test_hours_pass_in_no_time(dovetail_broker: Broker) -> None:
    began, wall = dovetail_broker.now, time.time()
    async with connect() as dv:
        await dv.publish("later", "x", delay="2h")
        message = await anext(aiter(dv.subscribe("later", auto_ack=True)))
    assert message.text == "x"
    assert 2 * 3600 <= dovetail_broker.now - began < 2 * 3600 + 2
    assert abs(time.time() - wall - (dovetail_broker.now - began)) < 0.001


async def test_what_was_confirmed_survives_a_power_loss(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        for number in range(20):
            await dv.publish("orders", str(number))
        dovetail_broker.crash()
        seen = []
        async for order in dv.subscribe("orders", group="billing"):
            seen.append(order.text)
            await order.ack()
            if len(seen) == 20:
                break
    assert seen == [str(number) for number in range(20)]


@pytest.mark.dovetail(lease="5s")
async def test_a_lease_that_runs_out_is_another_attempt(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        await dv.publish("orders", "slow")
        orders = aiter(dv.subscribe("orders", group="billing"))
        first = await anext(orders)
        await dovetail_broker.advance("6s")
        again = await anext(orders)
        assert (first.attempt, again.attempt, again.text) == (1, 2, "slow")
        await again.ack(wait="durable")
    assert dovetail_broker.lag("billing") == 0


async def test_a_consumer_that_is_dropped_gets_its_messages_again(dovetail_broker: Broker) -> None:
    async with connect() as dv, connect(name="worker") as worker:
        await dv.publish("orders", "one")
        orders = aiter(worker.subscribe("orders", group="billing"))
        first = await anext(orders)
        dovetail_broker.drop(worker)
        again = await anext(orders)
        assert (first.attempt, again.attempt) == (1, 1), "a lost connection is no failed attempt"
        await again.ack()
        await dovetail_broker.settled("billing")


async def test_a_crash_between_a_delivery_and_its_ack_delivers_again(dovetail_broker: Broker) -> None:
    handled = []
    app = App()

    @app.subscriber("orders", group="billing")
    async def bill(message: Message) -> None:
        handled.append(message.text)

    async with app, connect() as dv:
        dovetail_broker.crash(on="deliver")
        await dv.publish("orders", "one")
        await dovetail_broker.settled("billing")
    assert len(handled) in (1, 2)
    assert set(handled) == {"one"}


@pytest.mark.dovetail(max_retries=2)
async def test_a_message_that_always_fails_is_a_dead_letter(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        await dv.publish("orders", "poison")
        await dv.publish("orders", "fine")
        fine = []
        async for order in dv.subscribe("orders", group="billing"):
            if order.text == "poison":
                await order.nack()
            else:
                fine.append(order.text)
                await order.ack()
            if not dovetail_broker.lag("billing"):
                break
            if fine and order.attempt == 3:
                break
        await dovetail_broker.settled("billing")
    assert fine == ["fine"]
    assert [each.text for each in await dovetail_broker.messages("orders.dlq")] == ["poison"]


@pytest.mark.dovetail(topics=[Topic("jobs", partitions=3), Topic("alerts", lanes=True)])
async def test_topics_are_as_they_were_asked_for(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        (jobs,) = await dv.topics("jobs")
        assert len(jobs.partitions) == 3
        await dv.publish("alerts", "low", priority="low")
        await dv.publish("alerts", "critical", priority="critical")
    assert [each.text for each in await dovetail_broker.messages("alerts")] == ["critical", "low"]


async def test_a_partition_holds_what_is_sent_until_it_ends(dovetail_broker: Broker) -> None:
    async with connect(name="p") as dv:
        await dv.publish("orders", "one")
        began = dovetail_broker.now
        dovetail_broker.partition("p", duration="2s", way="from")
        await dv.publish("orders", "two")
        assert 2 <= dovetail_broker.now - began < 2.5
    with pytest.raises(ValueError, match="no client 'q' has connected so far, but p"):
        dovetail_broker.drop("q")


async def test_a_broker_that_stays_away_is_said_to_be_away(dovetail_broker: Broker) -> None:
    dovetail_broker.crash(down="1m")
    with pytest.raises(Disconnected, match="no broker at"):
        await connect(connect_timeout="5s").open()


def test_a_test_that_waits_for_nothing_says_what_waits() -> None:
    async def waits() -> None:
        async with connect() as dv:
            async for _ in dv.subscribe("nothing", group="g"):
                pass

    with pytest.raises(Stalled, match=r"60 s of virtual time are over(.|\n)*test_broker.py:\d+, in waits"):
        Broker(limit="1m").run(waits())


def test_a_seed_gives_the_same_run_and_another_one_another() -> None:
    def run(seed: int) -> str:
        broker = Broker(seed=seed, chaos=True)
        broker.run(shop(broker))
        return broker.hash

    assert run(4) == run(4)
    assert run(4) != run(5)


@pytest.mark.dovetail(seeds=6, chaos=True)
async def test_nothing_that_was_confirmed_is_lost_whatever_strikes(dovetail_broker: Broker) -> None:
    await shop(dovetail_broker)


async def shop(broker: Broker) -> None:
    """Orders come in for a while and are shipped by two workers."""
    shipped: list[str] = []
    app = App()

    @app.subscriber("orders", group="shipping", workers=2)
    async def ship(message: Message) -> None:
        await asyncio.sleep(0.05)
        shipped.append(message.text)

    async with app, connect() as dv:
        for number in range(40):
            await dv.publish("orders", f"order {number}")
            await broker.advance("200ms")
        broker.calm()
        await broker.settled("shipping")
    dead = {each.text for each in await broker.messages("orders.dlq")}
    assert set(shipped) | dead == {f"order {number}" for number in range(40)}


async def test_a_program_may_poll(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        published = asyncio.create_task(dv.publish("orders", "one"))
        while not published.done():
            await asyncio.sleep(0)


async def test_only_dovetails_client_connects(dovetail_broker: Broker) -> None:
    with pytest.raises(RuntimeError, match="a connection to db:5432 was wanted"):
        await asyncio.open_connection("db", 5432)
    with pytest.raises(RuntimeError, match="a server was wanted"):
        await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    with pytest.raises(RuntimeError, match="a process was wanted"):
        await asyncio.create_subprocess_exec("true")


async def test_words_that_mean_nothing_are_refused_with_those_that_do(dovetail_broker: Broker) -> None:
    with pytest.raises(ValueError, match="on is one of confirm, deliver"):
        dovetail_broker.crash(on="delivery")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ValueError, match="way is one of both, to, from, not 'out'"):
        dovetail_broker.partition(duration="1s", way="out")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ValueError, match="op is one of sync, write"):
        dovetail_broker.fail_disk("unlink")  # type: ignore[arg-type]  # the point of the test


async def test_the_lag_of_nobody_and_of_a_broker_that_is_down_is_not_nothing(dovetail_broker: Broker) -> None:
    async with connect() as dv:
        await dv.publish("orders", "one")
        await dv.subscribe("orders", group="billing").ready()
        with pytest.raises(ValueError, match="no group 'biling'; those that there are: billing"):
            dovetail_broker.lag("biling")
        with pytest.raises(AssertionError, match="no group 'biling'"):
            await dovetail_broker.settled("biling", within="1s")
        dovetail_broker.crash()
        with pytest.raises(RuntimeError, match="the broker is down"):
            dovetail_broker.lag("billing")


def test_a_seed_decides_names_and_ids_too_whatever_process_runs_it() -> None:
    script = (
        "import uuid, secrets\n"
        "from dovetail import connect\n"
        "from dovetail.testing import Broker\n"
        "async def story():\n"
        "    async with connect() as dv, dv.producer('orders', idempotent=True) as orders:\n"
        "        await orders.publish(f'{uuid.uuid4()} {secrets.token_hex(4)}')\n"
        "broker = Broker(seed=5)\n"
        "broker.run(story())\n"
        "print(broker.hash)\n"
    )
    said = {subprocess.check_output([sys.executable, "-c", script], text=True) for _ in range(2)}
    assert len(said) == 1


def test_a_broker_runs_several_stories_in_one_world_and_then_no_more() -> None:
    async def publish(text: str) -> None:
        async with connect() as dv:
            await dv.publish("orders", text)

    with Broker() as broker:
        broker.run(publish("one"))
        broker.run(publish("two"))
        assert [each.text for each in broker.run(broker.messages("orders"))] == ["one", "two"]
    with pytest.raises(ValueError, match="this broker's world has ended"):
        broker.run(publish("three"))


def test_a_test_that_failed_leaves_nothing_behind() -> None:
    async def fails() -> None:
        random.random()
        raise ArithmeticError

    before = random.getstate(), time.time, os.urandom
    with pytest.raises(ArithmeticError):
        Broker().run(fails())
    assert (random.getstate(), time.time, os.urandom) == before
