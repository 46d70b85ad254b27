"""`dovetail torture`: kill a broker while it works, and see whether it keeps its promises."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from dovetail.cli.output import Json, fail, print_json
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.torture import Book


def torture(
    rounds: Annotated[int, typer.Option(min=1, help="How often the broker is killed.")] = 20,
    seed: Annotated[int, typer.Option(help="Draws the messages and the moments.")] = 1,
    data: Annotated[str, typer.Option(help="An empty directory to work in, which is kept.")] = "",
    json: Json = False,
) -> None:
    """Kill a broker with SIGKILL while clients publish and acknowledge; check every confirm after each restart."""
    if data and os.path.isdir(data) and os.listdir(data):
        fail(f"--data {data} is not empty: brokers are killed there, so name a new directory", Exit.USAGE)
    from dovetail.torture import Broken
    from dovetail.torture import torture as run

    def show(round: int, book: Book) -> None:
        if not json:
            typer.echo(f"round {round + 1} of {rounds}: killed, {book.confirmed_count} messages confirmed so far")

    try:
        report = run(rounds, seed, data or None, show)
    except Broken as broken:
        fail(f"a promise was broken: {broken}")
    if json:
        print_json(msgspec.to_builtins(report))
    else:
        typer.echo(
            f"{report.rounds} kills: {report.confirmed} messages confirmed, {report.stored} stored; none lost, all in "
            f"order, each once; {report.redelivered} unacknowledged ones delivered again"
        )
