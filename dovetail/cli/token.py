"""`dovetail token`: who may do what at a broker that asks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.output import Form, Json, Output, fail, print_json, print_rows
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.runtime import security

app = typer.Typer(no_args_is_help=True, help="Tokens, kept hashed in a file.")
File = Annotated[str, typer.Argument(metavar="FILE", help="The file of tokens, as `serve --tokens` takes it.")]
Name = Annotated[str, typer.Argument(help="Whose token it is.")]


@app.callback()
def token() -> None:
    """Tokens, kept hashed in a file."""


def _write(file: str, entries: list[security.Entry]) -> None:
    from dovetail.runtime import security

    try:
        security.write_entries(file, entries)
    except security.Insecure as error:
        fail(str(error))


@app.command("add")
def add(
    file: File,
    name: Name,
    role: Annotated[str, typer.Option(help="read (consume, look), write (publish too), admin.")] = "read",
    topics: Annotated[list[str] | None, typer.Option("--topic", help="Only these topics or patterns.")] = None,
    expires: Annotated[str, typer.Option(help="After this long: 30d.")] = "",
    rate: Annotated[int, typer.Option(min=0, help="HTTP requests a second; 0: any number.")] = 0,
    json: Json = False,
) -> None:
    """Make a token and print it, once: the file keeps only its hash."""
    from dovetail.core import names
    from dovetail.runtime import security
    from dovetail.runtime.client.durations import milliseconds

    if role not in security.ROLES:
        fail(f"--role {role!r} is not known: use {', '.join(security.ROLES)}", Exit.USAGE)
    try:
        patterns = tuple(names.pattern(each) for each in topics or ["#"])
        until = datetime.now(UTC) + timedelta(milliseconds=milliseconds(expires)) if expires else None
        entries = security.read_entries(file) if Path(file).exists() else []
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    if any(entry.name == name for entry in entries):
        fail(f"{name!r} has a token already: `dovetail token remove {file} {name}` first")
    made = security.new_token()
    when = until.isoformat(timespec="seconds") if until else ""
    entry = security.Entry(name, role, security.digest_of(made), patterns, when, rate)
    _write(file, [*entries, entry])
    if json:
        print_json({"name": name, "role": role, "token": made, "expires": when})
    else:
        typer.echo(made)


@app.command("list")
def list_tokens(file: File, output: Output = Form.TABLE, json: Json = False) -> None:
    """Who has tokens; never the tokens."""
    from dovetail.runtime import security

    try:
        entries = security.read_entries(file)
    except security.Insecure as error:
        fail(str(error))
    fields = ("name", "role", "topics", "expires", "rate")
    rows = [
        {"name": e.name, "role": e.role, "topics": list(e.topics), "expires": e.expires, "rate": e.rate}
        for e in entries
    ]
    print_rows(rows, fields, output, json, "no tokens")


@app.command("remove")
def remove(file: File, name: Name, json: Json = False) -> None:
    """Take a token away; a running broker notices at its next SIGHUP."""
    from dovetail.runtime import security

    try:
        entries = security.read_entries(file)
    except security.Insecure as error:
        fail(str(error))
    rest = [entry for entry in entries if entry.name != name]
    if len(rest) == len(entries):
        fail(f"nobody called {name!r} has a token in {file}")
    _write(file, rest)
    if json:
        print_json({"removed": name})
    else:
        typer.echo(f"the token of {name} is gone; send the broker SIGHUP")
