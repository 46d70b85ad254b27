"""`dovetail top`, a live view of a broker, and `dovetail trace`, the life of one message."""

from __future__ import annotations

import base64
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli.output import Form, Json, as_time, print_fields, print_json, print_rows
from dovetail.cli.rest import API, Api, NoAnswer, Rest, Token

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS_MAX = 15
WIDTH = 120
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
    if once or not sys.stdout.isatty():
        # Off a terminal nobody knows the width.
        Console(width=None if sys.stdout.isatty() else WIDTH).print(
            _picture(rest.get("v1", "stats", top=ROWS_MAX), rest.get("health"))
        )
        return
    picture = _picture(rest.get("v1", "stats", top=ROWS_MAX), rest.get("health"))
    try:
        with Live(picture, console=Console(), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(_look_again(rest), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _look_again(rest: Rest) -> RenderableType:
    """A broker that is being restarted will be back."""
    try:
        return _picture(
            rest.ask("GET", ("v1", "stats"), None, {"top": ROWS_MAX}), rest.ask("GET", ("health",), None, {})
        )
    except NoAnswer as error:
        return f"{error}\n\nIt is asked again; Ctrl-C ends this."


def _picture(stats: dict[str, Any], health: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.table import Column, Table
    from rich.text import Text

    totals = stats["totals"]
    level = "" if health["level"] == "normal" else f" {health['level']}"
    head = Text.assemble(
        ("dovetail ", "bold"),
        (health["status"] + level, "green" if health["status"] == "ok" else "yellow"),
        f"  up {lasting(health['uptime_seconds'])}  {totals['connections']} connections  "
        f"{count(totals['messages'])} messages  lag {count(totals['lag'])}  in flight {count(totals['in_flight'])}\n"
        + "  ".join(
            f"{word} {rate(totals[name]['one'])}/s"
            for word, name in (
                ("in", "published"),
                ("out", "delivered"),
                ("acked", "settled"),
                ("failed", "failed"),
                ("dead", "dead_letters"),
                ("refused", "refused"),
            )
        )
        + "\n",
        *[(f"! {each}\n", "yellow") for each in health["recommendations"]],
    )
    topics = Table(Column("topic", no_wrap=True), box=None, header_style="bold", pad_edge=False)
    for name in ("messages", "in/s", "out/s", "lag", "capacity", "caught up in"):
        topics.add_column(name, justify="right")
    for name, each in _busiest(stats["topics"], lambda each: each["published"]["one"] + each["delivered"]["one"]):
        keeps = each["capacity"]
        catch_up = lasting(keeps["catch_up_seconds"]) if "catch_up_seconds" in keeps else ""
        figures = (count(each["depth"]), rate(each["published"]["one"]), rate(each["delivered"]["one"]))
        topics.add_row(Text(name), *figures, count(keeps["lag"]), f"{keeps['status']}, {keeps['trend']}", catch_up)
    groups = Table(Column("group", no_wrap=True), box=None, header_style="bold", pad_edge=False)
    for name in ("lag", "in flight", "acked/s", "failed/s", "dead/s"):
        groups.add_column(name, justify="right")
    for name, each in _busiest(stats["groups"], lambda each: each["lag"]):
        rates = [rate(each[kind]["one"]) for kind in ("settled", "failed", "dead_letters")]
        groups.add_row(Text(name), count(each["lag"]), count(each["in_flight"]), *rates)
    return Group(head, topics, Text(), groups)


def count(value: float) -> str:
    """A number as people read it: 12,345."""
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """So many a second: a tenth matters while they are few."""
    return f"{value:,.1f}" if value < 100 else count(value)


def lasting(seconds: float) -> str:
    """A span as people read it, in its two largest units: 2d 3h."""
    said: list[str] = []
    left = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if left >= size or (unit == "s" and not said):
            said.append(f"{left // size}{unit}")
            left %= size
    return " ".join(said[:2])


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
