"""What the shell offers when Tab is pressed: the names of topics and groups of the broker that is meant.

Promises  says nothing when there is no broker, or none that answers at once.
Never     prints: that would land in the middle of somebody's command line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import urllib.request
from typing import Any
from urllib.parse import urlencode

PATIENCE_S = 0.5
MOST = 100


def topics(incomplete: str) -> list[str]:
    """Topics whose name begins so."""
    found = _ask(f"/v1/topics?{urlencode({'contains': incomplete, 'limit': 1_000})}")
    return _beginning(found.get("topics", ()), incomplete)


def groups(incomplete: str) -> list[str]:
    """Groups whose name begins so."""
    return _beginning(_ask("/v1/groups").get("groups", ()), incomplete)


def _beginning(rows: Any, incomplete: str) -> list[str]:
    return [row["name"] for row in rows if row["name"].startswith(incomplete)][:MOST]


def _ask(path: str) -> dict[str, Any]:
    from dovetail.cli import context
    from dovetail.cli.rest import API

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            context.enter(os.environ.get("DOVETAIL_CONTEXT", ""))
        request = urllib.request.Request(os.environ.get("DOVETAIL_API", API).rstrip("/") + path)
        if token := os.environ.get("DOVETAIL_TOKEN"):
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except Exception:  # whatever it is, somebody is typing
        return {}
