"""`dovetail demo`: a broker with lively traffic, to be looked at in the console."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from dovetail.cli.output import Json, fail, print_json
from dovetail.cli.stopping import Stopping
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.demo import Shop
    from dovetail.runtime.server import Failure, Server

LOOK_S = 1.0


def demo(
    seconds: Annotated[float, typer.Option(min=0, help="End after so long; 0: at Ctrl-C.")] = 0.0,
    rate: Annotated[float, typer.Option(min=0.1, max=2_000, help="Orders a second.")] = 20.0,
    http: Annotated[str, typer.Option(help="HOST:PORT of the console; port 0 lets the system choose.")] = "127.0.0.1:0",
    seed: Annotated[int, typer.Option(help="Another seed, another day at the shop.")] = 1,
    json: Json = False,
) -> None:
    """Start a broker on free ports with a shop's traffic, and say where to look. Nothing is left behind."""
    with Stopping() as stopping:
        from dovetail.runtime import logs
        from dovetail.runtime.config import BadAddress
        from dovetail.runtime.server import StartFailed

        logs.set_up("auto", "error")
        try:
            failure = asyncio.run(_run(stopping, seconds, rate, http, seed, json))
        except BadAddress as error:
            fail(f"--http: {error}", Exit.USAGE)
        except StartFailed as error:
            fail(str(error), error.code)
    if failure is not None:
        fail(str(failure), failure.code)
    typer.echo("\nThe shop is closed." if _is_live() else "The shop is closed.", err=True)


async def _run(stopping: Stopping, seconds: float, rate: float, http: str, seed: int, json: bool) -> Failure | None:
    """Gives why the broker ended, if it did by itself."""
    from dovetail.demo import show

    stopping.hear_in_loop()
    async with show(http, rate, seed) as (server, shop):
        _welcome(server, json)
        ends = time.monotonic() + seconds if seconds else float("inf")
        while not stopping.asked and not server.failure.done() and (left := ends - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, left)):
                    await stopping.wait()
            _tell(shop)
        if json:
            print_json(asdict(shop))
        return server.failure.result() if server.failure.done() else None


def _welcome(server: Server, json: bool) -> None:
    console, url = f"http://127.0.0.1:{server.http_port}/", f"dovetail://127.0.0.1:{server.port}"
    if json:
        print_json({"console": console, "url": url})
        return
    typer.echo(f"The shop is open. Look at it: {console}")
    typer.echo("  billing: two workers, one fails now and then; what can't be billed becomes a dead letter")
    typer.echo("  shipping keeps each customer's orders in their order; archive is too slow and falls behind")
    typer.echo(f"Or from here: export DOVETAIL_API={console.rstrip('/')} DOVETAIL_URL={url}")
    typer.echo("  dovetail top · dovetail group list · dovetail dlq list orders · dovetail consume 'sensors.#'")
    typer.echo("Ctrl-C ends it and leaves nothing behind.")


def _tell(shop: Shop) -> None:
    """How the shop does, in one line that is written anew; on a terminal only."""
    if _is_live():
        told = " · ".join(f"{name} {count}" for name, count in asdict(shop).items())
        sys.stderr.write(f"\r\x1b[K{told}")
        sys.stderr.flush()


def _is_live() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
