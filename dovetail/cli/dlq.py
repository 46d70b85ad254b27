"""`dovetail dlq`: dead letters looked at, sent again, removed."""

from __future__ import annotations

import base64
import time
from typing import Annotated, Any

import typer

from dovetail.cli import complete
from dovetail.cli.output import Form, Json, Output, print_fields, print_json, print_rows
from dovetail.cli.rest import API, Api, Rest, Token
from dovetail.runtime.exits import Exit

app = typer.Typer(no_args_is_help=True, help="Dead letters.")
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic whose dead letters are meant.", autocompletion=complete.topics)
]
SHOWN_BYTES = 60
LOOK_S = 0.2
PAGE = 1_000


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
    limit: Annotated[int, typer.Option(min=0, help="So many at most; 0: all.")] = 100,
    api: Api = API,
    token: Token = "",
    output: Output = Form.TABLE,
    json: Json = False,
) -> None:
    """Topics with dead letters, or one topic's dead letters."""
    rest = Rest(api, token)
    if not topic:
        rows = [each for each in rest.get("v1", "dlq")["topics"] if each["messages"]]
        print_rows(rows, ("topic", "messages"), output, json, "there are no dead letters")
        return
    filters = {"reason": reason, "group": group, "older_than": older_than, "newer_than": newer_than}
    found, total = _entries(rest, topic, limit, filters)
    rows = [{**each, "preview": _preview(each)} for each in found]
    columns = ("offset", "original_id", "group", "reason", "attempts", "error", "preview")
    print_rows(rows if output is Form.TABLE and not json else found, columns, output, json, "no such dead letters")
    if len(found) < total:
        typer.echo(f"the {len(found)} oldest of {total}: --limit shows more", err=True)


def _entries(rest: Rest, topic: str, limit: int, filters: dict[str, str]) -> tuple[list[dict[str, Any]], int]:
    """A topic's oldest dead letters, page by page, and how many there are in all."""
    found: list[dict[str, Any]] = []
    offset: int | None = 0
    total = 0
    while offset is not None and (not limit or len(found) < limit):
        most = min(PAGE, limit - len(found)) if limit else PAGE
        page = rest.get("v1", "dlq", topic, limit=most, offset=offset, **filters)
        total = max(total, page["total"])
        found += page["entries"]
        offset = page.get("next")
    return found, total


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


Offsets = Annotated[list[int] | None, typer.Option("--offset", min=0, help="Only these entries; may be repeated.")]
Reason = Annotated[str, typer.Option(help="Only those that died of this.")]
OfGroup = Annotated[str, typer.Option("--group", help="Only those of this group.")]
Older = Annotated[str, typer.Option(help="Only what died before: a time, or how long ago.")]
Newer = Annotated[str, typer.Option(help="Only what died since: a time, or how long ago.")]


def _choice(offsets: list[int] | None, reason: str, group: str, older_than: str, newer_than: str) -> dict[str, Any]:
    """Which dead letters are meant, as the API takes it."""
    said = {"reason": reason, "group": group, "older_than": older_than, "newer_than": newer_than}
    return {"offsets": offsets or [], **said}


@app.command("replay")
def replay(
    topic: Topic,
    offset: Offsets = None,
    reason: Reason = "",
    group: OfGroup = "",
    older_than: Older = "",
    newer_than: Newer = "",
    to: Annotated[str, typer.Option(help="Into this topic; without, where they came from.")] = "",
    rate: Annotated[int, typer.Option(min=0, max=10_000, help="Messages a second; 0: as fast as it goes.")] = 0,
    pause_lag: Annotated[int, typer.Option(min=0, help="Wait while consumers are so far behind.")] = 0,
    pause_deaths: Annotated[int, typer.Option(min=0, help="Pause when so many have died again.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for its end.")] = True,
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Publish dead letters again, in their original order. Ends when all are stored; Ctrl-C leaves the job running."""
    rest = Rest(api, token)
    choice = _choice(offset, reason, group, older_than, newer_than)
    limits = {"rate": rate, "pause_lag": pause_lag, "pause_deaths": pause_deaths, "dry_run": dry_run}
    job = rest.post("v1", "dlq", topic, "replay", to=to, **choice, **limits)
    if wait and not dry_run:
        job = _follow(rest, job, quiet=json)
    if dry_run and not json:
        targets = ", ".join(f"{count} to {name}" for name, count in job["targets"].items())
        typer.echo(f"would replay {_letters(job['total'])}: {targets}")
    else:
        _say(job, json)
    if job["state"] in ("paused", "aborted"):
        raise typer.Exit(int(Exit.FAILED))


Id = Annotated[int, typer.Argument(min=1, metavar="REPLAY", help="The job, as `dlq replays` shows it.")]


@app.command("replays")
def replays(api: Api = API, token: Token = "", output: Output = Form.TABLE, json: Json = False) -> None:
    """The replays that are remembered, newest first."""
    rows = Rest(api, token).get("v1", "replays")["replays"]
    columns = ("id", "topic", "state", "done", "total", "rate", "started", "reason")
    print_rows(rows, columns, output, json, "there are no replays: `dovetail dlq replay TOPIC` begins one")


@app.command("pause")
def pause(replay: Id, api: Api = API, token: Token = "", json: Json = False) -> None:
    """Have a replay wait until it is resumed."""
    _say(Rest(api, token).patch("v1", "replays", str(replay), state="paused"), json)


@app.command("resume")
def resume(replay: Id, api: Api = API, token: Token = "", json: Json = False) -> None:
    """Go on with a replay that was paused, or paused itself."""
    _say(Rest(api, token).patch("v1", "replays", str(replay), state="running"), json)


@app.command("abort")
def abort(replay: Id, api: Api = API, token: Token = "", json: Json = False) -> None:
    """End a replay; what it has not published stays in the dead letters."""
    _say(Rest(api, token).delete("v1", "replays", str(replay)), json)


def _say(job: dict[str, Any], json: bool) -> None:
    if json:
        print_json(job)
    else:
        typer.echo(f"replay {job['id']} is {job['state']}: {job['done']} of {job['total']} {job['reason']}".rstrip())


def _follow(rest: Rest, job: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(f"replay {job['id']}", total=job["total"])
        while job["state"] == "running":
            time.sleep(LOOK_S)
            job = rest.get("v1", "replays", str(job["id"]))
            bar.update(task, completed=job["done"])
    return job


@app.command("purge")
def purge(
    topic: Topic,
    offset: Offsets = None,
    reason: Reason = "",
    group: OfGroup = "",
    older_than: Older = "",
    newer_than: Newer = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, say how many would go.")] = False,
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """Remove a topic's dead letters; without --yes, only say how many."""
    choice = _choice(offset, reason, group, older_than, newer_than)
    dry_run = dry_run or not yes
    found = Rest(api, token).post("v1", "dlq", topic, "purge", **choice, dry_run=dry_run)
    if json:
        print_json(found)
        return
    stays = f"; {_letters(found['replaying'])} wait to be replayed and stay" if found["replaying"] else ""
    if not dry_run:
        typer.echo(f"{_letters(found['messages'])} removed from {found['topic']}{stays}")
    else:
        hint = ": add --yes" if found["messages"] else ""
        typer.echo(f"{_letters(found['messages'])} would be removed from {found['topic']}{stays}{hint}")


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count} dead letters"
