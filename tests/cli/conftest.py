"""Fixtures: a broker, and the command line beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from dovetail.cli import app
from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from dovetail.runtime import logs
from tests.broker.house import House
from tests.http.api import Api


class Cli:
    """Commands against one broker."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.http = Api(house)
        self._runner = CliRunner()

    def run(self, *words: str, code: int = 0, stdin: str | None = None) -> Result:
        """What a command prints; it must end with `code`."""
        env = {
            "DOVETAIL_API": self.http.base,
            "DOVETAIL_URL": f"dovetail://127.0.0.1:{self.house.port}",
            "DOVETAIL_TOKEN": "",
        }
        result = self._runner.invoke(app, list(words), env=env, input=stdin)
        assert result.exit_code == code, (words, result.output, result.exception)
        return result

    def json(self, *words: str) -> Any:
        """What a command prints as JSON, in its last line: the broker in this process may log before it."""
        return json.loads(self.run(*words, "--json").stdout.splitlines()[-1])


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The broker in this process logs elsewhere: what a command prints is the command's."""
    with open(os.devnull, "w") as nowhere:
        logs.set_up("json", "error", nowhere)
        yield
        structlog.reset_defaults()
        logs.set_level("info")


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    house = House(str(tmp_path / "data"), Settings(topic_defaults=TopicConfig(max_retries=0)))
    yield Cli(house)
    house.stop()
