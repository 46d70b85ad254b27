"""The examples do what they say."""

from pathlib import Path

from examples import bulk, orders, script, service
from tests.client.broker import config, serving, serving_elsewhere


async def test_orders_are_billed_once_and_the_hopeless_one_is_set_aside(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        billed = await orders.main(broker.url)
    assert sorted(billed["ann"] + billed["bob"]) == [f"order {n}" for n in range(orders.ORDERS) if n != 5]
    assert billed["dead"] == ["order 5"]


async def test_everything_sent_in_bulk_comes_back(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        assert await bulk.main(broker.url, count=3000) == 3000


async def test_the_service_ships_and_tells(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        written = await service.main(broker.url)
    assert written == ["the first order is on its way by train", "the last order is on its way by train"]


def test_the_script_reads_what_it_wrote(tmp_path: Path) -> None:
    with serving_elsewhere(config(tmp_path)) as url:
        assert script.main(url) == ["one", "two", "three"]
