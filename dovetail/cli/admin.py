"""`dovetail admin`: what an operator does to a running broker."""

from __future__ import annotations

from typing import Annotated

import typer

from dovetail.cli.output import Json, fail, print_fields, print_json
from dovetail.cli.rest import API, Api, Rest, Token
from dovetail.runtime.exits import Exit

app = typer.Typer(no_args_is_help=True, help="Level, health, reload, checkpoint, stop of a running broker.")
LEVELS = ("normal", "throttled", "read-only", "maintenance", "emergency")


@app.callback()
def admin() -> None:
    """Level, health, reload, checkpoint, stop of a running broker."""


@app.command("level")
def level(
    to: Annotated[str, typer.Argument(metavar="[LEVEL]", help=f"{', '.join(LEVELS)}; without one it is shown.")] = "",
    reason: Annotated[str, typer.Option(help="Why: clients and other operators are told.")] = "",
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """What the broker does, and who asked for that; or have it do less, or everything again."""
    if to and to not in LEVELS:
        fail(f"{to!r} is not a level: use {', '.join(LEVELS)}", Exit.USAGE)
    rest = Rest(api, token)
    said = {"level": to, **({"reason": reason} if reason else {})}
    print_fields(rest.put("admin", "level", **said) if to else rest.get("admin", "level"), json)


@app.command("health")
def health(
    deep: Annotated[bool, typer.Option("--deep", help="Have a message published and read back too.")] = False,
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Whether the broker works and what to do if not; ends with 1 when something has failed."""
    found = Rest(api, token).get("health", deep=str(deep).lower())
    if json:
        print_json(found)
    else:
        parts = {each["name"]: f"{each['status']}, {each['says']}" for each in found["components"]}
        advice = {"recommended": found["recommendations"]} if found["recommendations"] else {}
        known = {name: value for name, value in found.items() if name not in ("components", "recommendations")}
        print_fields({**known, **parts, **advice}, json)
    raise typer.Exit(int(Exit.FAILED if found["status"] == "failed" else Exit.OK))


@app.command("reload")
def reload(api: Api = API, token: Token = "", json: Json = False) -> None:
    """Read settings, tokens and certificates again, as SIGHUP does, and say what takes a restart."""
    print_fields(Rest(api, token).post("admin", "reload"), json)


@app.command("checkpoint")
def checkpoint(api: Api = API, token: Token = "", json: Json = False) -> None:
    """Write a checkpoint: the next start is quicker."""
    Rest(api, token).post("admin", "checkpoint")
    _say("a checkpoint is being written", "checkpoint", json)


@app.command("compact")
def compact(api: Api = API, token: Token = "", json: Json = False) -> None:
    """Do now what retention and compaction have to do."""
    Rest(api, token).post("admin", "compact")
    _say("retention and compaction are at it", "compact", json)


@app.command("set")
def change(
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings, as in the file.")],
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Change settings until the next start: `dovetail admin set log_level=debug trace_wire=true`."""
    if not all("=" in each for each in settings):
        fail("settings are written KEY=VALUE: `dovetail config show` lists them", Exit.USAGE)
    said = dict(each.split("=", 1) for each in settings)
    found = Rest(api, token).patch("admin", "config", settings=said)
    print_fields({each["key"]: each["value"] for each in found["settings"] if each["key"] in said}, json)


@app.command("shutdown")
def shutdown(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Stop the broker cleanly, as SIGTERM would."""
    if not yes and not typer.confirm("stop the broker?", err=True):
        fail("nothing was stopped")
    Rest(api, token).post("admin", "shutdown")
    _say("the broker stops", "shutdown", json)


def _say(text: str, done: str, json: bool) -> None:
    if json:
        print_json({"done": done})
    else:
        typer.echo(text)
