"""The recipes of `docs/delivery.md` do what they say, also when somebody dies at the worst moment."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail import connect
from dovetail.runtime.client import Message
from tests.client.broker import config, serving

DOCUMENT = Path(__file__).parents[2] / "docs" / "delivery.md"
COUNT = 5

Handle = Callable[[Message], Awaitable[None]]


class Died(Exception):
    """The consumer's process is gone."""


def recipes() -> dict[str, Any]:
    """The functions of the document's blocks, as they stand there."""
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL):
        exec(block, found)
    return found


def working(done: list[str], dies_at: int) -> Handle:
    """Work that is done, but for the one at which the worker dies."""

    async def handle(message: Message) -> None:
        if message.text == str(dies_at):
            raise Died
        done.append(message.text)

    return handle


async def work(url: str, name: str, done: list[str], dies_at: int, count: int) -> None:
    async with connect(url) as dv:
        await recipes()[name](dv, "jobs", "workers", working(done, dies_at), count)


async def publish(url: str, name: str) -> None:
    async with connect(url) as dv:
        await recipes()[name](dv, "jobs", [str(number) for number in range(COUNT)])


async def test_at_most_once_the_message_that_a_worker_died_of_is_gone(tmp_path: Path) -> None:
    done: list[str] = []
    async with serving(config(tmp_path)) as broker:
        await publish(broker.url, "publish_at_most_once")
        with pytest.raises(Died):
            await work(broker.url, "work_at_most_once", done, dies_at=1, count=COUNT)
        await broker.kill()
        await broker.start()
        await work(broker.url, "work_at_most_once", done, dies_at=-1, count=COUNT - 2)
    assert done == ["0", "2", "3", "4"]


async def test_at_least_once_the_message_that_a_worker_died_of_is_done_by_another(tmp_path: Path) -> None:
    done: list[str] = []
    async with serving(config(tmp_path)) as broker:
        await publish(broker.url, "publish_at_least_once")
        with pytest.raises(Died):
            await work(broker.url, "work_at_least_once", done, dies_at=1, count=COUNT)
        await broker.kill()
        await broker.start()
        await work(broker.url, "work_at_least_once", done, dies_at=-1, count=COUNT - 1)
    assert sorted(done) == [str(number) for number in range(COUNT)]


async def test_what_is_published_while_the_broker_dies_is_there_once(tmp_path: Path) -> None:
    done: list[str] = []
    async with serving(config(tmp_path)) as broker:
        publishing = asyncio.create_task(publish(broker.url, "publish_once"))
        await asyncio.sleep(0)
        await broker.kill()
        await broker.start()
        await publishing
        async with connect(broker.url) as dv:
            (topic,) = await dv.topics("jobs")
            end = sum(each.end for each in topic.partitions)
        await work(broker.url, "work_at_least_once", done, dies_at=-1, count=COUNT)
    assert end == COUNT
    assert done == [str(number) for number in range(COUNT)]
