"""The replay page: a run as one self-contained HTML file.

Promises  works offline, from the file alone, with mouse and keyboard, light and dark, up to hundreds of thousands of
          events: what is not in sight is not drawn, and the state at a moment is folded from a snapshot near it.
Never     asks the network for anything.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from dovetail.core.trace import Row

TEMPLATE = "replay_page.html"


def write_page(path: str, rows: Iterable[Row], title: str, summary: Mapping[str, Any]) -> None:
    """Write the page of a run."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(page(rows, title, summary))


def page(rows: Iterable[Row], title: str, summary: Mapping[str, Any]) -> str:
    """The page of a run: rows, with texts that repeat held once."""
    texts: dict[str, int] = {"": 0}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    packed = [
        [
            row.time_us,
            number(row.actor),
            number(row.kind),
            number(row.topic),
            row.partition,
            row.first,
            row.last,
            number(row.group),
            row.attempt,
            row.latency_us,
            number(row.fault),
            number(row.detail),
            row.lane,
        ]
        for row in rows
    ]
    data = {"title": title, "summary": dict(summary), "texts": list(texts), "rows": packed}
    # A "<" in a text must not end the script it stands in.
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    template = files("dovetail.sim").joinpath(TEMPLATE).read_text(encoding="utf-8")
    return template.replace("{{title}}", html.escape(title)).replace('"{{data}}"', encoded)
