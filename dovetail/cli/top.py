"""`dovetail top`, a live view of a broker, and `dovetail trace`, the life of one message."""

from __future__ import annotations

import base64
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli.output import Form, Json, as_time, print_fields, print_json, print_rows
from dovetail.cli.rest import API, Api, Rest, Token

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS_MAX = 15
SHOWN_BYTES = 60


def top(
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """What comes, what goes, what waits: busiest topics and laggards first. Ends with Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    rest = Rest(api, token)
    if json:
        print_json(rest.get("v1", "stats"))
        return
    console = Console()
    if once or not sys.stdout.isatty():
        console.print(_picture(rest))
        return
    try:
        with Live(_picture(rest), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(_picture(rest), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _picture(rest: Rest) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    stats, health = rest.get("v1", "stats"), rest.get("health")
    totals = stats["totals"]
    head = Text.assemble(
        ("dovetail ", "bold"),
        (health["status"], "green" if health["status"] == "ok" else "yellow"),
        f"  up {health['uptime_seconds']:.0f} s  {totals['connections']} connections  "
        f"in {totals['published']['one']:g}/s  out {totals['delivered']['one']:g}/s  "
        f"acked {totals['settled']['one']:g}/s  failed {totals['failed']['one']:g}/s  "
        f"lag {totals['lag']}  in flight {totals['in_flight']}\n",
    )
    topics = Table("topic", box=None, header_style="bold", pad_edge=False)
    for name in ("messages", "in/s", "out/s", "lag", "capacity", "caught up in"):
        topics.add_column(name, justify="right")
    for name, each in _busiest(stats["topics"], lambda each: each["published"]["one"] + each["delivered"]["one"]):
        keeps = each["capacity"]
        catch_up = f"{keeps['catch_up_seconds']} s" if "catch_up_seconds" in keeps else ""
        figures = (str(each["depth"]), f"{each['published']['one']:g}", f"{each['delivered']['one']:g}")
        topics.add_row(name, *figures, str(keeps["lag"]), f"{keeps['status']}, {keeps['trend']}", catch_up)
    groups = Table("group", box=None, header_style="bold", pad_edge=False)
    for name in ("lag", "in flight", "acked/s", "failed/s", "dead/s"):
        groups.add_column(name, justify="right")
    for name, each in _busiest(stats["groups"], lambda each: each["lag"]):
        rates = [f"{each[kind]['one']:g}" for kind in ("settled", "failed", "dead_letters")]
        groups.add_row(name, str(each["lag"]), str(each["in_flight"]), *rates)
    return Group(head, topics, Text(), groups)


def _busiest(found: dict[str, Any], weight: Any) -> list[tuple[str, Any]]:
    return sorted(found.items(), key=lambda item: (-weight(item[1]), item[0]))[:ROWS_MAX]


def trace(
    message_id: Annotated[str, typer.Argument(help="topic:partition:offset, as publish prints it.")],
    api: Api = API,
    token: Token = "",
    json: Json = False,
) -> None:
    """What happened to a message: published, leased to whom, failed why, dead-lettered, replayed; and where it is."""
    found = Rest(api, token).get("v1", "trace", message_id)
    if json:
        print_json(found)
        return
    if "message" in found:
        text = base64.b64decode(found["message"]["value"] or "")[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
        print_fields({"message": {**found["message"], "value": text}}, json)
    else:
        typer.echo(f"{message_id} is not stored any more")
    typer.echo("\nnow")
    columns = ("group", "state", "member", "attempts")
    print_rows(found["groups"], columns, Form.TABLE, json, "no group reads its topic")
    typer.echo("\nits life" if found["complete"] else "\nits life, as far as it is still known")
    print_rows([_event(each) for each in found["life"]], EVENT, Form.TABLE, json, "nothing is known any more")


EVENT = ("at", "what", "message_id", "group", "member", "attempt", "more")


def _event(event: dict[str, Any]) -> dict[str, Any]:
    """A row of a life, as people read it."""
    more = [event[name] for name in ("reason", "error") if event.get(name)]
    if "due" in event:
        more.append(f"due {as_time(event['due'])}")
    if "other" in event:
        came = event["what"] == "published"
        more.append(f"{'from' if came else 'to'} {event['other']}")
    at = as_time(event["at"]) if "at" in event else ""
    return {**event, "at": at, "what": event["what"].replace("_", " "), "more": ", ".join(more)}
