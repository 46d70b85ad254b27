"""What a route of the API is: method, path, who may, what comes in, what goes out. The OpenAPI document is made of it.

Promises  a body or query that is not of the declared type never reaches a handler; unknown fields are named.
Never     knows what a handler does.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from dovetail.core.access import Access, Role
from dovetail.core.names import REST
from dovetail.runtime.http.errors import Trouble
from dovetail.runtime.http.gate import Gate

Q = TypeVar("Q")
B = TypeVar("B")


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No query, no body, or an empty answer."""


class Call(Generic[Q, B]):
    """One request, checked: the path's parts, the query and the body."""

    def __init__(self, path: Mapping[str, str], query: Q, body: B, headers: Mapping[str, str], access: Access) -> None:
        self.path = path
        self.query = query
        self.body = body
        self.headers = headers
        self.access = access

    def demand(self, role: Role, pattern: str) -> None:
        """A `Trouble` where who asks does not have the role for all that a topic or pattern could match."""
        demand(self.access, role, pattern)


def demand(access: Access, role: Role, pattern: str) -> None:
    """A `Trouble` where somebody does not have the role for all that a topic or pattern could match."""
    if not access.may(role, pattern):
        wanted = {"": "", REST: " for all topics"}.get(pattern, f" for {pattern}")
        raise Trouble(403, "forbidden", f"the token of {access.name!r} does not have role {role.name.lower()}{wanted}")


class Raw(Struct, frozen=True):
    """An answer that is not JSON."""

    body: bytes
    content_type: str


class Pieces(Struct, frozen=True):
    """An answer in JSON that is sent as it is made."""

    pieces: AsyncIterator[bytes]


class Route(Struct, frozen=True):
    """One operation of the API. `run` is `async (gate, call) -> answer`."""

    method: str
    path: str
    run: Callable[[Gate, Call[Any, Any]], Awaitable[object]]
    says: str
    query: type[Struct] = Nothing
    body: type[Struct] | None = None
    answer: type[Struct] = Nothing
    status: int = 200
    role: Role = Role.READ
    body_names_topic: bool = False
    """Whether the topic is in the body, so that `run` asks whether the token counts for it."""
    no_store: bool = False

    @property
    def name(self) -> str:
        """Its operation id."""
        return re.sub(r"\W+", "_", f"{self.method.lower()} {self.path.removeprefix('/v1')}").strip("_")

    def reach(self, path: Mapping[str, str]) -> str:
        """The topics that a token must count for: the one in the path; all of them, for what concerns the broker."""
        broad = REST if self.role is Role.ADMIN and not self.body_names_topic else ""
        return path.get("topic", broad)

    @property
    def pattern(self) -> str:
        """The path as the router takes it: a topic's levels may be written with slashes."""
        return self.path.replace("{topic}", "{topic:.+}")


def decode_body(kind: type[Struct], data: bytes) -> Struct:
    """A body as its declared type; an empty one counts as `{}`."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Trouble(422, "invalid", f"the body is not right: {error}", "GET /openapi.json says what is") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Trouble(422, "invalid", f"the body is not JSON: {error}") from None


def decode_query(kind: type[Struct], query: Mapping[str, str]) -> Struct:
    """The query as its declared type."""
    try:
        return msgspec.convert(dict(query), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Trouble(422, "invalid", f"the query is not right: {error}", "GET /openapi.json says what is") from None
