"""`dovetail topic`: topics made, listed, shown, configured, deleted."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dovetail.cli import complete
from dovetail.cli.output import Form, Json, Output, fail, print_fields, print_rows
from dovetail.cli.rest import API, Api, Rest, Token
from dovetail.runtime.exits import Exit

app = typer.Typer(no_args_is_help=True, help="Topics.")
Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=complete.topics)]
Pairs = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="lease=10s, max_retries=5, retention.hours=24, …; repeated."),
]


@app.callback()
def topic() -> None:
    """Topics."""


@app.command("create")
def create(
    name: Name,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many partitions.")] = None,
    lanes: Annotated[bool, typer.Option("--lanes", help="Five lanes, by priority.")] = False,
    settings: Pairs = None,
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Make a topic."""
    body = {"partitions": partitions, "lanes": lanes, **_settings(settings)}
    made = Rest(api, token).post("v1", "topics", name=name, **body)
    if json:
        print_fields(made, json)
    else:
        typer.echo(f"topic {made['name']} made: {made['partitions']} partitions")


@app.command("list")
def list_topics(
    pattern: Annotated[str, typer.Argument(help="Only topics that match.")] = "#",
    api: Api = API,
    token: Token = "",
    output: Output = Form.TABLE,
    json: Json = False,
) -> None:
    """The topics, with their partitions, how many messages they keep, and what comes and goes a second."""
    rows = _matching(Rest(api, token), pattern)
    columns = ("name", "partitions", "messages", "publish_rate", "deliver_rate")
    print_rows(rows, columns, output, json, "there are no topics yet: `dovetail publish TOPIC VALUE` makes one")


@app.command("show")
def show(name: Name, api: Api = API, token: Token = "", json: Json = False) -> None:
    """A topic's settings and partitions."""
    print_fields(Rest(api, token).get("v1", "topics", name), json)


@app.command("set")
def change(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic, or a pattern: all that match.", autocompletion=complete.topics
        ),
    ],
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", help="lease=10s, retention.hours=24, …")],
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Change a topic's settings; they are recorded and win over the configuration."""
    rest, body = Rest(api, token), _settings(settings)
    if "*" not in name and "#" not in name:
        print_fields(rest.patch("v1", "topics", name, **body)["settings"], json)
        return
    matching = [row["name"] for row in _matching(rest, name)]
    if not matching:
        fail(f"no topic matches {name!r}: `dovetail topic list` shows all", Exit.FAILED)
    for each in matching:
        rest.patch("v1", "topics", each, **body)
    if json:
        print_fields({"changed": matching}, json)
    else:
        typer.echo(f"{len(matching)} topics changed: {', '.join(matching)}")


@app.command("delete")
def delete(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Although somebody subscribes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Remove a topic and its messages."""
    rest = Rest(api, token)
    found = rest.get("v1", "topics", name)
    if not yes and not typer.confirm(f"delete {found['name']} with {found['messages']} messages?", err=True):
        fail("nothing was deleted", Exit.FAILED)
    rest.delete("v1", "topics", name, force="true" if force else "")
    if json:
        print_fields({"deleted": found["name"], "messages": found["messages"]}, json)
    else:
        typer.echo(f"topic {found['name']} deleted, {found['messages']} messages")


def _matching(rest: Rest, pattern: str) -> list[dict[str, Any]]:
    """All topics that match a pattern."""
    rows: list[dict[str, Any]] = []
    after = ""
    while True:
        page = rest.get("v1", "topics", pattern=pattern, after=after)
        rows += page["topics"]
        after = page.get("next", "")
        if not after:
            return rows


def _settings(pairs: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE pairs as a body; values are numbers and yes or no where they look like it."""
    found: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            fail(f"{pair!r} is not KEY=VALUE", Exit.USAGE)
        family, _, rest = key.partition(".")
        if rest:
            found.setdefault(family, {})[rest] = _value(text)
        else:
            found[key] = _value(text)
    return found


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isascii() and text.isdecimal() else text
