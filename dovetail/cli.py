"""The `dovetail` command."""

from typing import Annotated

import typer

from dovetail import __version__

app = typer.Typer(name="dovetail", no_args_is_help=True, add_completion=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dovetail {__version__}")
        raise typer.Exit


@app.callback()
def dovetail(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """The message broker you can replay."""


def main() -> None:
    """The console script's entry."""
    app()
