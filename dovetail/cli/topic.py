"""`dovetail topic`: what topics there are."""

from __future__ import annotations

from typing import Annotated

import typer

from dovetail.cli.output import URL, Json, Url, print_json, reach, run

app = typer.Typer(no_args_is_help=True, help="Topics.")


@app.callback()
def topic() -> None:
    """Topics."""


@app.command("list")
def list_topics(
    pattern: Annotated[str, typer.Argument(help="Only topics that match.")] = "#",
    url: Url = URL,
    json: Json = False,
) -> None:
    """The topics, with their partitions and how many messages they keep."""
    run(_list(url, pattern, json))


async def _list(url: str, pattern: str, json: bool) -> None:
    async with reach(url) as client:
        topics = await client.topics(pattern)
    if json:
        print_json(topics)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("topic", "partitions", "messages", "next offsets", box=None, header_style="bold")
    for each in topics:
        ends = ", ".join(str(partition.end) for partition in each.partitions[:8])
        more = " …" if len(each.partitions) > 8 else ""
        table.add_row(each.name, str(len(each.partitions)), str(each.messages), ends + more)
    Console().print(table if topics else "there are no topics yet: `dovetail publish TOPIC VALUE` makes one")
