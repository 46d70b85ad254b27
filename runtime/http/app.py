"""HTTP beside the wire: one table of routes, one way in, one shape of errors.

Promises  served in the broker's own loop; every request has an id; a request that its client gave up is cancelled.
Never     lets a handler's trouble show more than an id.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from dovetail.core.access import EVERYTHING, Access, Role
from dovetail.runtime.http import broker, dead, groups, messages, openapi, topics, trace
from dovetail.runtime.http.errors import Trouble, error_body
from dovetail.runtime.http.gate import Gate
from dovetail.runtime.http.limited import HANDLING, LimitedSite
from dovetail.runtime.http.routing import Call, Nothing, Pieces, Raw, Route, decode_body, decode_query, demand
from dovetail.runtime.logs import SLOW_S
from dovetail.runtime.security import Bucket, Grant, is_address

if TYPE_CHECKING:
    from dovetail.runtime.server import Server

log = structlog.get_logger("http")
audit = structlog.get_logger("audit")

BODY_BYTES_MAX = 16 << 20
BODY_S = 60.0
"""How long a request's body may take to come."""
REQUEST_ID = "X-Request-Id"
_request_id: ContextVar[str] = ContextVar("request_id")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROUTES: tuple[Route, ...] = (
    *messages.ROUTES,
    *topics.ROUTES,
    *groups.ROUTES,
    *dead.ROUTES,
    *broker.ROUTES,
    *trace.ROUTES,
)
"""In the order in which they are tried: what ends in a word comes before what takes everything."""


async def start_http(server: Server, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve HTTP; gives the runner and the port."""
    from dovetail.runtime.server import listen_trouble

    gate = Gate(server)
    app = web.Application(middlewares=[_errors], client_max_size=BODY_BYTES_MAX)
    for route in ROUTES:
        app.router.add_route(route.method, route.pattern, _handler(gate, route))
    _add_pages(app)
    app.cleanup_ctx.append(_clock(gate))
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0, **HANDLING)
    await runner.setup()
    try:
        await LimitedSite(runner, host, port, server.http_connections_max, server.security.tls).start()
    except OSError as error:
        await runner.cleanup()
        raise OSError(listen_trouble(host, port, error, "--http")) from error
    return runner, runner.addresses[0][1]


def _clock(gate: Gate) -> Callable[[web.Application], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def run(app: web.Application):  # type: ignore[no-untyped-def]  # aiohttp takes the context manager
        task = asyncio.ensure_future(gate.keep_time())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return run


def _handler(gate: Gate, route: Route) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        attempt = _Attempt(route, request)
        try:
            grant = attempt.grant = _bearer(gate, route, request)
            access = _admit(gate, route, request, grant)
            query = attempt.query = decode_query(route.query, request.query)
            body = decode_body(route.body, await _read(request)) if route.body is not None else None
            attempt.body = body
            begun = time.monotonic()
            answer = await route.run(gate, Call(request.match_info, query, body, request.headers, access))
        except Trouble as trouble:
            attempt.ended(trouble.code)
            raise
        attempt.ended("done")
        seconds = time.monotonic() - begun
        if seconds > SLOW_S and not route.no_store:
            log.warning("slow", operation=route.name, path=request.path, seconds=round(seconds, 3), **_who())
        return await _stream(request, answer) if isinstance(answer, Pieces) else _response(route, answer)

    return handle


class _Attempt:
    """Who did what, of all that only an operator may do and that is more than a look. What is kept was understood:
    a query or body that was not right may hold anything, a token too."""

    def __init__(self, route: Route, request: web.Request) -> None:
        self._route = route
        self._request = request
        self.grant: Grant | None = None
        self.query: Struct | None = None
        self.body: Struct | None = None

    def ended(self, outcome: str) -> None:
        """Keep it."""
        route, request = self._route, self._request
        if route.role is not Role.ADMIN or route.method == "GET":
            return
        caller = self.grant.access.name if self.grant else ""
        said = {name: msgspec.to_builtins(each) for name, each in (("query", self.query), ("body", self.body)) if each}
        what = {"operation": route.name, "path": request.path, **said, "outcome": outcome}
        audit.info("admin", caller=caller, address=request.remote, **what, **_who())


async def _read(request: web.Request) -> bytes:
    """The body, if it comes as it is and in time."""
    packed = request.headers.get("Content-Encoding", "identity")
    if packed.lower() != "identity":
        raise Trouble(415, "packed", f"a body that is {packed} is not taken", "send it without Content-Encoding")
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError:
        raise Trouble(408, "too_slow", f"the body did not come within {BODY_S:g} s") from None


def _bearer(gate: Gate, route: Route, request: web.Request) -> Grant | None:
    """Whose token it is, where one is needed; a `Trouble` for somebody who has none."""
    keyring = gate.server.security.keyring
    _check_site(request, open_to_all=keyring is None)
    if keyring is None or route.role is Role.NONE:
        return None
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    grant = keyring.find(token.strip()) if kind.lower() == "bearer" else None
    if grant is None:
        text = "this broker asks for a token, and there is none or it is not known or has expired"
        raise Trouble(401, "unauthorized", text, "send Authorization: Bearer TOKEN")
    return grant


def _admit(gate: Gate, route: Route, request: web.Request, grant: Grant | None) -> Access:
    """What who asks may do; a `Trouble` where that is not enough, or too often."""
    if grant is None:
        return replace(EVERYTHING, name=request.remote or "")
    demand(grant.access, route.role, route.reach(request.match_info))
    wait_s = gate.limits.setdefault((grant.access.name, grant.rate), Bucket(grant.rate)).take() if grant.rate else 0.0
    if wait_s:
        text = f"the token of {grant.access.name!r} may ask {grant.rate} times a second"
        raise Trouble(429, "rate_limited", text, retry_after_ms=int(wait_s * 1000))
    return grant.access


def _check_site(request: web.Request, *, open_to_all: bool) -> None:
    """Refuse what another site has a browser send here: a page, or a name that was made to point to this machine."""
    origin = request.headers.get("Origin", "")
    try:
        site, host = urlsplit(origin).netloc, urlsplit(f"//{request.host}").hostname or ""
    except ValueError as error:
        raise Trouble(422, "invalid", f"the headers Host or Origin are not right: {error}") from None
    if origin and site != request.host:
        raise Trouble(403, "foreign_origin", f"a page of {origin} may not use this broker")
    if open_to_all and not is_address(host):
        text = f"without tokens this broker answers to its address or to localhost, not to {host!r}"
        raise Trouble(403, "foreign_host", text, "use http://127.0.0.1, or start the broker with --tokens")


def _response(route: Route, answer: object) -> web.Response:
    if isinstance(answer, Raw):
        return web.Response(body=answer.body, headers={"Content-Type": f"{answer.content_type}; charset=utf-8"})
    headers = {"Cache-Control": "no-store"} if route.no_store else {}
    body = b"{}" if isinstance(answer, Nothing) else msgspec.json.encode(answer)
    return web.Response(body=body, status=route.status, content_type="application/json", headers=headers)


async def _stream(request: web.Request, answer: Pieces) -> web.StreamResponse:
    """Send an answer as it is made. When that fails in the middle all that can be done is to break off."""
    response = web.StreamResponse(headers={REQUEST_ID: _request_id.get()})
    response.content_type, response.charset = "application/json", "utf-8"
    await response.prepare(request)
    try:
        async for piece in answer.pieces:
            await response.write(piece)
        await response.write_eof()
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:
        log.error("request failed", path=request.path, exc_info=error, **_who())
        raise ConnectionAbortedError("the answer can't be finished") from error
    return response


def _add_pages(app: web.Application) -> None:
    document_of = openapi.document(ROUTES)
    described, page = msgspec.json.encode(document_of), openapi.page(document_of)

    async def document(request: web.Request) -> web.Response:
        return web.Response(body=described, content_type="application/json")

    async def docs(request: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    app.router.add_get("/openapi.json", document)
    app.router.add_get("/docs", docs)
    folder = files("dovetail.runtime.console")
    for path, name, kind in (
        ("/", "index.html", "text/html"),
        ("/console.css", "console.css", "text/css"),
        ("/console.js", "console.js", "text/javascript"),
    ):
        app.router.add_get(path, _file(folder.joinpath(name).read_bytes(), kind))


def _file(body: bytes, kind: str) -> Handler:
    async def give(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=_PAGE_HEADERS)

    return give


_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal in the one shape of errors, every answer with its request's id."""
    _request_id.set(_id_for(request))
    try:
        response = await handler(request)
    except Trouble as trouble:
        response = _trouble(trouble)
    except web.HTTPException as error:
        code = error.reason.lower().replace(" ", "_")
        text = f"{request.method} {request.path}: {error.reason.lower()}"
        response = _trouble(Trouble(error.status, code, text, "GET /openapi.json lists what there is"))
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:
        log.error("request failed", path=request.path, exc_info=error, **_who())
        response = _trouble(Trouble(500, "internal", "the broker failed at this: its log says more"))
    response.headers[REQUEST_ID] = _request_id.get()
    return response


def _who() -> dict[str, str]:
    return {"correlation_id": _request_id.get()}


def _id_for(request: web.Request) -> str:
    """The id that the client gave its request, or one of ours."""
    given = request.headers.get(REQUEST_ID, "")
    is_fine = 0 < len(given) <= 64 and given.isascii() and given.isprintable()
    return given if is_fine else secrets.token_hex(8)


def _trouble(trouble: Trouble) -> web.Response:
    headers = {"WWW-Authenticate": 'Bearer realm="dovetail"'} if trouble.status == 401 else {}
    if trouble.status in (429, 503):
        headers["Retry-After"] = str(max(1, -(-trouble.retry_after_ms // 1000)))
    body = error_body(trouble, _request_id.get())
    return web.Response(body=body, status=trouble.status, content_type="application/json", headers=headers)
