"""`dovetail dlq`: dead letters looked at and removed."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer

from dovetail.cli.output import Form, Json, Output, fail, print_fields, print_json, print_rows
from dovetail.cli.rest import API, Api, Rest, Token
from dovetail.runtime.exits import Exit

app = typer.Typer(no_args_is_help=True, help="Dead letters.")
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic whose dead letters are meant.")]
SHOWN_BYTES = 60


@app.callback()
def dlq() -> None:
    """Dead letters."""


@app.command("list")
def list_entries(
    topic: Annotated[str, typer.Argument(help="The topic; without it, those that have dead letters.")] = "",
    reason: Annotated[str, typer.Option(help="Only those that died of this.")] = "",
    group: Annotated[str, typer.Option(help="Only those of this group.")] = "",
    older_than: Annotated[str, typer.Option(help="A time, or how long ago.")] = "",
    newer_than: Annotated[str, typer.Option(help="A time, or how long ago.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="So many at most.")] = 100,
    api: Api = API,
    token: Token = "",
    output: Output = Form.TABLE,
    json: Json = False,
) -> None:
    """Topics with dead letters, or one topic's dead letters."""
    rest = Rest(api, token)
    if not topic:
        rows = rest.get("v1", "dlq")["topics"]
        print_rows(rows, ("topic", "messages"), output, json, "there are no dead letters")
        return
    filters = {"reason": reason, "group": group, "older_than": older_than, "newer_than": newer_than}
    found = rest.get("v1", "dlq", topic, limit=limit, **filters)["entries"]
    rows = [{**each, "preview": _preview(each)} for each in found]
    columns = ("offset", "original_id", "group", "reason", "attempts", "error", "preview")
    print_rows(rows if output is Form.TABLE and not json else found, columns, output, json, "no such dead letters")


def _preview(entry: dict[str, Any]) -> str:
    return base64.b64decode(entry["value"])[:SHOWN_BYTES].decode("utf-8", "backslashreplace")


@app.command("show")
def show(
    topic: Topic,
    offset: Annotated[int, typer.Argument(min=0, help="The entry's offset, as `dlq list` shows it.")],
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """One dead letter with its story."""
    entry = Rest(api, token).get("v1", "dlq", topic, str(offset))
    print_fields(entry if json else {**entry, "value": _preview(entry)}, json)


@app.command("purge")
def purge(
    topic: Topic,
    before: Annotated[int | None, typer.Option(min=0, help="Only entries below this offset.")] = None,
    older_than: Annotated[str, typer.Option(help="Only what died before: a time, or how long ago.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, say how many would go.")] = False,
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Remove a topic's oldest dead letters; without --yes, only say how many."""
    if before is not None and older_than:
        fail("--before and --older-than together: choose one", Exit.USAGE)
    found = Rest(api, token).post("v1", "dlq", topic, "purge", before=before, older_than=older_than, dry_run=not yes)
    if json:
        print_json(found)
    elif yes:
        typer.echo(f"{found['messages']} dead letters removed from {found['topic']}")
    else:
        typer.echo(f"{found['messages']} dead letters would be removed from {found['topic']}: add --yes")
