"""`dovetail config`: every setting, its value and where it came from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.output import Form, Json, Output, fail, print_rows
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.runtime.config import Config, Origins

app = typer.Typer(no_args_is_help=True, help="Settings and where they come from.")
ConfigFile = Annotated[str, typer.Option("--config", envvar="DOVETAIL_CONFIG", help="A YAML file of settings.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting; may be repeated.")]


def load_config(file: str, flags: dict[str, str], settings: list[str] | None) -> tuple[Config, Origins]:
    """File, environment and flags together; raises `BadConfig` where something is wrong."""
    from dovetail.runtime.config import BY_KEY, BadConfig, is_setting, load, meant

    for said in settings or []:
        key, equals, value = said.partition("=")
        if not equals:
            raise BadConfig(f"--set {said!r} is not KEY=VALUE")
        if not is_setting(key):
            raise BadConfig(f"--set {key!r}: not a setting{meant(key, BY_KEY)}")
        flags = {**flags, key: value}
    try:
        text = Path(file).read_text("utf-8") if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"can't read --config {file}: {error}") from None
    return load(text, file, os.environ, flags)


def read_config(file: str, flags: dict[str, str], settings: list[str] | None) -> tuple[Config, Origins]:
    """The same; ends the command where something is wrong."""
    from dovetail.runtime.config import BadConfig

    try:
        return load_config(file, flags, settings)
    except BadConfig as error:
        fail(str(error), Exit.USAGE)


@app.callback()
def config() -> None:
    """Settings and where they come from."""


@app.command("show")
def show(
    config: ConfigFile = "",
    settings: Set = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not the default.")] = False,
    output: Output = Form.TABLE,
    json: Json = False,
) -> None:
    """Each setting with its value and its origin, as `dovetail serve` would take them here."""
    from dovetail.runtime.config import DEFAULT, explain

    loaded, origins = read_config(config, {}, settings)
    rows = [
        {"key": row.key, "value": row.text, "origin": row.origin, "says": row.says}
        for row in explain(loaded, origins)
        if not changed or row.origin != DEFAULT
    ]
    print_rows(rows, ("key", "value", "origin", "says"), output, json, "every setting is the default")


@app.command("reference")
def reference() -> None:
    """The reference page of all settings, as Markdown."""
    from dovetail.runtime.config import reference_page

    typer.echo(reference_page(), nl=False)
