"""What is logged, and how it is shown."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from dovetail.runtime import logs


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    yield io.StringIO()
    structlog.reset_defaults()
    logs.set_level("info")


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_others_wrote_makes_no_line_of_its_own_and_steers_no_terminal(form: str, out: io.StringIO) -> None:
    logs.set_up(form, "info", out)
    structlog.get_logger("http").warning("slow", path="/v1/topics/x\x1b[31m\x07\nforged \u202e", operation="\x1b[0m")
    (line,) = out.getvalue().splitlines()
    assert line.isprintable()
    assert "forged" in line


def test_an_exception_keeps_its_lines(out: io.StringIO) -> None:
    logs.set_up("text", "info", out)
    try:
        raise ValueError("\x1b[31mred")
    except ValueError as error:
        structlog.get_logger("http").error("request failed", exc_info=error)
    lines = out.getvalue().splitlines()
    assert len(lines) > 3
    assert all(line.isprintable() for line in lines)


def test_each_line_says_when_how_bad_who_and_what(out: io.StringIO) -> None:
    logs.set_up("json", "info", out)
    structlog.get_logger("journal").info("slow", correlation_id="lsn:7")
    structlog.get_logger("journal").debug("not asked for")
    found = json.loads(out.getvalue())
    assert found.keys() == {"timestamp", "level", "component", "event", "correlation_id"}
    assert (found["level"], found["component"], found["event"]) == ("info", "journal", "slow")
