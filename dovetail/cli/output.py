"""What commands share: how they fail, print, and reach a broker.

Promises  a failure is one line on standard error and an exit code that scripts can use.
Never     colours or draws off a terminal.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.runtime.client import Client

Url = Annotated[str, typer.Option("--url", envvar="DOVETAIL_URL", help="The broker's address.", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
URL = "dovetail://127.0.0.1:7400"


def fail(text: str, code: Exit = Exit.FAILED) -> NoReturn:
    """End with one line that says what went wrong and what to do."""
    typer.echo(f"dovetail: {text}", err=True)
    raise typer.Exit(int(code))


def print_json(value: Any) -> None:
    """One line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def reach(url: str) -> Client:
    """A client for the broker at `url` that gives up soon: somebody waits at a terminal."""
    from dovetail.runtime.client import connect

    return connect(url, connect_timeout="2s")


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a command's coroutine; troubles with the broker become one line and an exit code."""
    from dovetail.runtime.client import Disconnected, DovetailError

    try:
        asyncio.run(work)
    except Disconnected as error:
        fail(str(error), Exit.UNAVAILABLE)
    except (DovetailError, ValueError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Whoever read our output has enough; leave without a complaint about the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
