"""The OpenAPI 3.1 document of the API, made of its routes, and a page that shows it without any network.

Promises  what the document says is what the code checks: both are made of the same types.
Never     is written by hand.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import msgspec

from dovetail.core.access import Role
from dovetail.runtime.http.errors import ErrorBody
from dovetail.runtime.http.routing import Nothing, Raw, Route

_PROBLEMS = {
    "400": "This is no HTTP that can be read.",
    "401": "No token, or one that is not known.",
    "403": "The token may not do this.",
    "404": "There is no such thing.",
    "408": "The body took too long to come.",
    "409": "It exists, is in use, or is not held any more.",
    "413": "Too large.",
    "415": "The body is packed.",
    "422": "The path, query or body is not right.",
    "429": "Too much: try again after Retry-After.",
    "503": "Not now: read-only, maintenance or stopping.",
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    listed = list(routes)
    kinds = {kind for route in listed for kind in (route.query, route.body, route.answer) if kind} - {Nothing, Raw}
    kinds.add(ErrorBody)
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    by_kind = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dovetail",
            "version": version("dovetail"),
            "description": "The message broker you can replay.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, by_kind: dict[type, Any], components: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    if route.query is not Nothing:
        schema = components[route.query.__name__]
        required = schema.get("required", [])
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": each}
            for name, each in schema["properties"].items()
        ]
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.says,
        "tags": [route.path.removeprefix("/v1").split("/")[1]],
        "responses": {str(route.status): _answer(route, by_kind), **_problems(by_kind)},
    }
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        content = {"application/json": {"schema": by_kind[route.body]}}
        found["requestBody"] = {"required": bool(components[route.body.__name__].get("required")), "content": content}
    if route.role is not Role.NONE:
        found["security"] = [{}, {"token": []}]
        found["description"] = f"Needs role {route.role.name.lower()} where tokens are in use."
    return found


def _answer(route: Route, by_kind: dict[type, Any]) -> dict[str, Any]:
    if route.answer is Raw:
        return {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    schema = by_kind.get(route.answer, {"type": "object"})
    return {"description": "Done.", "content": {"application/json": {"schema": schema}}}


def _problems(by_kind: dict[type, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": by_kind[ErrorBody]}}
    return {status: {"description": text, "content": content} for status, text in _PROBLEMS.items()}


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Dovetail HTTP API</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
code, pre {{ font: 0.9rem/1.4 ui-monospace, monospace; }}
h2 {{ margin-top: 2.5rem; text-transform: capitalize; }}
details {{ border: 1px solid color-mix(in srgb, currentColor 20%, transparent); border-radius: 6px; margin: .5rem 0; }}
summary {{ padding: .5rem .75rem; cursor: pointer; }}
details > div {{ padding: 0 .75rem .75rem; overflow-x: auto; }}
b {{ display: inline-block; min-width: 4.5rem; }}
td, th {{ text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }}
</style></head><body>
<h1>Dovetail HTTP API</h1>
<p>{count} operations. The same as a document for tools: <a href="/openapi.json">openapi.json</a>.
Every error is <code>{{"error": {{code, message, details, suggestions, request_id, timestamp}}}}</code>.</p>
{body}
</body></html>
"""


def page(routes: Iterable[Route]) -> str:
    """A page for people: every operation with what it takes and gives."""
    families: dict[str, list[Route]] = {}
    for route in routes:
        families.setdefault(route.path.removeprefix("/v1").split("/")[1], []).append(route)
    parts = []
    for family, listed in families.items():
        parts.append(f"<h2>{html.escape(family)}</h2>")
        parts += [_section(route) for route in listed]
    return _PAGE.format(count=sum(map(len, families.values())), body="\n".join(parts))


def _section(route: Route) -> str:
    rows = [
        f"<tr><th>{title}</th><td>{_fields(kind)}</td></tr>"
        for title, kind in (("query", route.query), ("body", route.body), ("answer", route.answer))
        if kind is not None and kind not in (Nothing, Raw)
    ]
    return (
        f"<details><summary><b>{route.method}</b> <code>{html.escape(route.path)}</code> "
        f"{html.escape(route.says)}</summary><div><table>{''.join(rows)}</table>"
        f"<p>Answers {route.status}; role {route.role.name.lower()}.</p></div></details>"
    )


def _fields(kind: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(kind)
    shown = [f"<code>{html.escape(each.encode_name)}{'' if each.required else '?'}</code>" for each in fields]
    about = html.escape((kind.__doc__ or "").strip())
    return f"{', '.join(shown)}<br>{about}" if about and not about.startswith(kind.__name__) else ", ".join(shown)
