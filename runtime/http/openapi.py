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
        scope = " for all topics" if route.reach({}) else ""
        found["description"] = f"Needs role {route.role.name.lower()}{scope} where tokens are in use."
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
<meta name="color-scheme" content="light dark"><title>HTTP API · Dovetail</title>
<link rel="stylesheet" href="console.css">
<style>
main {{ max-width: 64rem; }}
h2 {{ margin: 2rem 0 .6rem; text-transform: capitalize; }}
details {{ background: var(--card); border: 1px solid var(--line); border-radius: 8px; margin: .4rem 0; }}
details, h2 {{ scroll-margin-top: 5rem; }}
summary {{ display: flex; flex-wrap: wrap; gap: .1rem .8rem; align-items: baseline; }}
summary {{ padding: .5rem .9rem; cursor: pointer; }}
details:target {{ border-color: var(--accent); }}
summary:hover {{ background: var(--hover); border-radius: 8px; }}
summary b {{ width: 4.2rem; font-size: .85rem; color: var(--accent); }}
summary code {{ flex: 0 1 22rem; overflow-wrap: anywhere; }}
details > div {{ padding: 0 .9rem .9rem; overflow-x: auto; }}
p.soft {{ margin: 0; }}
h3 {{ font-size: .9rem; margin: .9rem 0 .2rem; font-weight: 600; }}
td:first-child {{ width: 13rem; }}
td:nth-child(2) {{ width: 24rem; }}
td, td:first-child {{ text-align: left; justify-content: flex-start; }}
</style></head><body>
<header><a class="brand" href="./">Dovetail</a><nav aria-label="Families">{families}</nav></header>
<main><div class="head"><h1>HTTP API</h1><span class="space"></span><a href="openapi.json">openapi.json</a></div>
<p>{count} operations of version {version}. Bodies are JSON; a field that is not known is refused. Every error is
<code>{{"error": {{code, message, details, suggestions, request_id, timestamp}}}}</code>.</p>
{body}
</main>
<script>
const open = () => document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
addEventListener("hashchange", open);
open();
</script>
</body></html>
"""


def page(described: dict[str, Any]) -> str:
    """A page for people, of an OpenAPI document: every operation with what it takes and gives."""
    schemas = described["components"]["schemas"]
    families: dict[str, list[str]] = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            families.setdefault(operation["tags"][0], []).append(_section(method, path, operation, schemas))
    parts = [f'<h2 id="{name}">{name}</h2>{"".join(listed)}' for name, listed in families.items()]
    parts.append(f'<h2 id="types">types</h2>{"".join(_type(name, schemas) for name in sorted(schemas))}')
    links = "".join(f'<a href="#{name}">{name}</a>' for name in (*families, "types"))
    count = sum(map(len, families.values()))
    return _PAGE.format(count=count, version=described["info"]["version"], families=links, body="".join(parts))


def _section(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    told = [f"<p>{html.escape(operation['description'])}</p>"] if "description" in operation else []
    for where in ("path", "query"):
        rows = [(each, each["schema"]) for each in operation.get("parameters", ()) if each["in"] == where]
        told.append(_table(where, [(each["name"], schema, each["required"]) for each, schema in rows]))
    if body := operation.get("requestBody"):
        told.append(_fields("body", _name_of(body["content"]["application/json"]["schema"]), schemas))
    status, answer = next(iter(operation["responses"].items()))
    kind = _name_of(answer["content"].get("application/json", {}).get("schema", {}))
    told.append(_fields(f"answer, {status}", kind, schemas))
    return (
        f'<details id="{operation["operationId"]}"><summary><b>{method.upper()}</b><code>{html.escape(path)}</code>'
        f"<span>{html.escape(operation['summary'])}</span></summary><div>{''.join(told)}</div></details>"
    )


def _type(name: str, schemas: dict[str, Any]) -> str:
    told = _fields("fields", name, schemas)
    return f'<details id="{name}"><summary><code>{name}</code></summary><div>{told}</div></details>'


def _name_of(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _fields(title: str, kind: str, schemas: dict[str, Any]) -> str:
    schema = schemas.get(kind, {})
    required = schema.get("required", ()) if title == "body" else ()
    rows = [(name, each, name in required) for name, each in schema.get("properties", {}).items()]
    return _table(title, rows, schema.get("description", ""))


def _table(title: str, rows: list[tuple[str, dict[str, Any], bool]], says: str = "") -> str:
    if not rows:
        return ""
    about = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(says))
    about = f'<p class="soft">{about}</p>' if says else ""
    cells = [
        f"<tr><td><code>{html.escape(name)}</code></td><td><span>{_kind(schema)}</span></td>"
        f"<td>{_note(schema, required)}</td></tr>"
        for name, schema, required in rows
    ]
    return f"<h3>{title}</h3>{about}<table>{''.join(cells)}</table>"


def _kind(schema: dict[str, Any]) -> str:
    """What a value may be, in a few words; other types are links."""
    if name := _name_of(schema):
        return f'<a href="#{name}">{name}</a>'
    if "enum" in schema:
        return " | ".join(f"<code>{html.escape(str(each))}</code>" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("type") == "object":
        return f"map to {_kind(schema.get('additionalProperties') or {})}"
    return html.escape(str(schema.get("type", "anything")))


def _note(schema: dict[str, Any], required: bool) -> str:
    said = ["required"] if required else []
    limits = (
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("maxItems", "at most so many:"),
        ("maxLength", "length at most"),
    )
    said += [f"{words} {schema[name]:,}" for name, words in limits if name in schema]
    if "default" in schema and schema["default"] not in ("", [], {}, None):
        said.append(f"default {html.escape(str(schema['default']))}")
    return ", ".join(said)
