"""Fixtures: a broker with the defaults, and brokers with settings of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.house import House

Start = Callable[..., House]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a broker with the settings a test needs, on the data of another that has ended or on its own."""
    houses: list[House] = []

    def begin(data: str = "", **options: Any) -> House:
        house = House(data or str(tmp_path / str(len(houses))), **options)
        houses.append(house)
        return house

    yield begin
    for house in houses:
        house.stop()


@pytest.fixture
def broker(start: Start) -> House:
    """A broker with the defaults."""
    return start()
