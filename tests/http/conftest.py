"""Fixtures: a broker, and its HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from tests.broker.house import House
from tests.http.api import Api

Start = Callable[..., Api]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a broker with the settings a test needs."""
    houses: list[House] = []

    def begin(config: TopicConfig | None = None, **settings: Any) -> Api:
        chosen = Settings(topic_defaults=config or TopicConfig(), **settings)
        houses.append(House(str(tmp_path / str(len(houses))), chosen))
        return Api(houses[-1])

    yield begin
    for house in houses:
        house.stop()


@pytest.fixture
def api(start: Start) -> Api:
    """A broker with the defaults."""
    return start()
