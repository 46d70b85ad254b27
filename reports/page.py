"""The report as one self-contained HTML page.

Promises  works offline, from the file alone, with mouse and keyboard, light and dark, and on paper.
Never     asks the network for anything.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from importlib.resources import files

import msgspec

from dovetail.reports.audit import ANSWERS_FOR
from dovetail.reports.report import Report

TEMPLATE = "report_page.html"


def page(report: Report) -> str:
    """The page of a report; the replays of failing seeds are packed into it."""
    data = {**msgspec.to_builtins(report), "promises": ANSWERS_FOR}
    data["replays"] = {
        key: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode() for key, text in report.replays.items()
    }
    # A "<" in a text must not end the script it stands in.
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=False, default=str).replace("<", "\\u003c")
    template = files("dovetail.reports").joinpath(TEMPLATE).read_text(encoding="utf-8")
    return template.replace("{{title}}", html.escape(report.title)).replace('"{{data}}"', encoded)
