"""`dovetail group`: who reads what, how far they are, and what an operator does about it."""

from __future__ import annotations

from typing import Annotated

import typer

from dovetail.cli import complete
from dovetail.cli.output import Form, Json, Output, fail, print_fields, print_json, print_rows
from dovetail.cli.rest import API, Api, Rest, Token
from dovetail.runtime.exits import Exit

app = typer.Typer(no_args_is_help=True, help="Consumer groups.")
Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=complete.groups)]


@app.callback()
def group() -> None:
    """Consumer groups."""


@app.command("list")
def list_groups(api: Api = API, token: Token = "", output: Output = Form.TABLE, json: Json = False) -> None:
    """All groups."""
    rows = Rest(api, token).get("v1", "groups")["groups"]
    columns = ("name", "state", "mode", "strategy", "generation", "members", "lag", "in_flight", "retrying", "patterns")
    print_rows(rows, columns, output, json, "there are no groups yet: `dovetail consume TOPIC --group G` makes one")


@app.command("show")
def show(name: Name, api: Api = API, token: Token = "", json: Json = False) -> None:
    """A group and its members."""
    rest = Rest(api, token)
    found = rest.get("v1", "groups", name)
    members = rest.get("v1", "groups", name, "members")["members"]
    if json:
        print_json({**found, "members": members})
        return
    print_fields(found, json)
    columns = ("id", "address", "health", "seen_seconds_ago", "in_flight", "mean_processing_ms")
    print_rows(members, (*columns, "error_rate", "suggested_lease_ms"), Form.TABLE, False, "no members")


@app.command("lag")
def lag(name: Name, api: Api = API, token: Token = "", output: Output = Form.TABLE, json: Json = False) -> None:
    """How far a group is behind, partition by partition."""
    rows = Rest(api, token).get("v1", "groups", name, "lag")["partitions"]
    columns = ("topic", "partition", "lane", "floor", "end", "lag", "lag_seconds", "member")
    print_rows(rows, columns, output, json, f"group {name} reads nothing")


@app.command("pending")
def pending(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="So many at most.")] = 100,
    api: Api = API,
    token: Token = "",
    output: Output = Form.TABLE,
    json: Json = False,
) -> None:
    """What is under way, and what waits for another try."""
    rows = Rest(api, token).get("v1", "groups", name, "pending", limit=limit)["pending"]
    columns = ("topic", "partition", "first", "last", "state", "member", "attempt", "seconds")
    print_rows(rows, columns, output, json, "nothing is under way")


@app.command("reset")
def reset(
    name: Name,
    to: Annotated[str, typer.Option("--to", help="earliest, latest, an offset, a time (ISO 8601) or how long ago.")],
    topic: Annotated[str, typer.Option("--topic", help="Only in this topic.")] = "",
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only in this partition.")] = None,
    lane: Annotated[str, typer.Option("--lane", help="Only in this lane (critical to background).")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    api: Api = API,
    token: Token = "",
    output: Output = Form.TABLE,
    json: Json = False,
) -> None:
    """Move a group's place; what its members hold there is taken from them."""
    if not yes and not typer.confirm(f"move group {name} to {to}?", err=True):
        fail("nothing was moved", Exit.FAILED)
    rest = Rest(api, token)
    where = {"topic": topic or None, "partition": partition, "lane": lane or None}
    rows = rest.post("v1", "groups", name, "offsets", to=to, **where)["offsets"]
    print_rows(rows, ("topic", "partition", "lane", "offset"), output, json, "nothing was moved")


@app.command("kick")
def kick(
    name: Name,
    member: Annotated[str, typer.Argument(help="The member.")],
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Take a member out of a group; its connection is closed."""
    Rest(api, token).delete("v1", "groups", name, "members", member)
    if json:
        print_json({"group": name, "removed": member})
    else:
        typer.echo(f"{member} is out of {name}")


@app.command("rebalance")
def rebalance(name: Name, api: Api = API, token: Token = "", json: Json = False) -> None:
    """Have a partitioned group's plan made anew."""
    found = Rest(api, token).post("v1", "groups", name, "rebalance")
    if json:
        print_json(found)
    else:
        typer.echo(f"group {name} is at generation {found['generation']}")
