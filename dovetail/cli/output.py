"""What commands share: how they fail, print, and reach a broker.

Promises  a failure is one line on standard error and an exit code that scripts can use.
Never     colours or draws off a terminal.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from dovetail.runtime.exits import Exit
from dovetail.runtime.terminal import plain

if TYPE_CHECKING:
    from dovetail.runtime.client import Client

Url = Annotated[str, typer.Option("--url", envvar="DOVETAIL_URL", help="The broker's address.", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
URL = "dovetail://127.0.0.1:7400"


class Form(StrEnum):
    """How a list is printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


Output = Annotated[Form, typer.Option("-o", "--output", help="A table, one JSON document, or a line of JSON each.")]


LINES = "\n"
TIMES = frozenset({"created", "timestamp", "deadline", "died", "remove_at", "started", "delivered", "ended"})
"""Fields of the API that are milliseconds since 1970: shown to people as times of where they are."""


def fail(text: str, code: Exit = Exit.FAILED) -> NoReturn:
    """End with one line that says what went wrong and what to do."""
    typer.echo(f"dovetail: {plain(text, keep=LINES)}", err=True)
    raise typer.Exit(int(code))


def print_json(value: Any) -> None:
    """One line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


Rows = Sequence[Mapping[str, Any]]


def print_rows(rows: Rows, columns: Sequence[str], form: Form, json: bool, nothing: str) -> None:
    """A list in the form that was asked for; `columns` are what a table shows of it."""
    if json or form is Form.JSON:
        print_json(rows)
    elif form is Form.JSONL:
        for row in rows:
            print_json(row)
    elif not rows:
        typer.echo(nothing)
    else:
        _print_table(rows, columns)


def _print_table(rows: Rows, columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        is_number = isinstance(rows[0].get(name), int | float) and not isinstance(rows[0].get(name), bool)
        table.add_column(name.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(_seen(name, row.get(name)))) for name in columns))
    # Off a terminal nobody knows the width: whoever reads the lines wants them whole.
    Console(width=None if sys.stdout.isatty() else 240).print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return plain(", ".join(map(str, value)), keep=LINES)
    return f"{value:g}" if isinstance(value, float) else plain(str(value), keep=LINES)


def print_fields(found: Mapping[str, Any], json: bool) -> None:
    """One thing: its fields a line each, or as JSON."""
    if json:
        print_json(found)
        return
    flat = list(_flat(found, ""))
    width = max((len(name) for name, _ in flat), default=0)
    for name, value in flat:
        typer.echo(f"{name:<{width}}  {_cell(value)}")


def _flat(found: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for each in value:
                yield f"{prefix}{name}", " ".join(f"{key}={_cell(_seen(key, inner))}" for key, inner in each.items())
        else:
            yield f"{prefix}{name}", _seen(name, value)


def _seen(name: str, value: object) -> object:
    """A field's value as people read it."""
    if name in TIMES and isinstance(value, int):
        return as_time(value)
    return value


def as_time(at_ms: int) -> str:
    """Epoch milliseconds as people read a time."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(" ", "milliseconds")


def reach(url: str) -> Client:
    """A client for the broker at `url` that gives up soon: somebody waits at a terminal. Its token, if there is one, is
    in the environment."""
    from dovetail.runtime.client import connect

    return connect(url, token=os.environ.get("DOVETAIL_TOKEN", ""), connect_timeout="2s")


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a command's coroutine; what the broker has trouble with, or does not take, is one line and an exit code."""
    from dovetail.core.codes import Status
    from dovetail.runtime.client import Disconnected, DovetailError, Refused

    try:
        asyncio.run(work)
    except Disconnected as error:
        fail(str(error), Exit.UNAVAILABLE)
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    except Refused as error:
        fail(error.reason, Exit.USAGE if error.status == Status.INVALID else Exit.FAILED)
    except DovetailError as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Whoever read our output has enough; leave without a complaint about the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
