"""HTTP beside the wire: health, metrics, and reading a topic's messages.

Promises  served in the broker's own loop; errors have one shape; a large read is bounded.
Never     holds the loop: what must be read from the disk is awaited.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from dovetail.core import batch, inputs, names
from dovetail.core.codes import Status
from dovetail.core.effects import Answer, Fetched, Refused
from dovetail.core.journal_format import Entry
from dovetail.runtime.storage.codecs import CODECS

if TYPE_CHECKING:
    from dovetail.runtime.server import Server

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
READ_BYTES_MAX = 4 << 20
WAIT_MS_MAX = 60_000

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HTTP_STATUS = {
    Status.NOT_FOUND: 404,
    Status.INVALID: 422,
    Status.BUSY: 429,
    Status.READ_ONLY: 503,
}


class Trouble(Exception):
    """A request that can't be met."""

    def __init__(self, status: int, code: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.suggestion = suggestion


async def start_http(server: Server, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve HTTP; gives the runner and the port."""
    from dovetail.runtime.server import listen_trouble

    app = web.Application(middlewares=[_errors])
    api = Api(server)
    app.add_routes(
        [
            web.get("/health", api.health),
            web.get("/ready", api.health),
            web.get("/metrics", api.metrics),
            web.get("/v1/topics/{topic:.+}/messages", api.messages),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise OSError(listen_trouble(host, port, error)) from error
    return runner, runner.addresses[0][1]


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal in the one shape of errors."""
    try:
        return await handler(request)
    except Trouble as trouble:
        return _error(trouble.status, trouble.code, str(trouble), trouble.suggestion)
    except web.HTTPException as error:
        return _error(error.status, error.reason.lower().replace(" ", "_"), error.reason, "")


def _error(status: int, code: str, message: str, suggestion: str) -> web.Response:
    body = {
        "code": code,
        "message": message,
        "details": {},
        "suggestions": [suggestion] if suggestion else [],
        "request_id": f"{time.time_ns():x}",
        "timestamp": time.time_ns() // 1_000_000,
    }
    return _json({"error": body}, status)


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


class Api:
    """The handlers; each asks the node like any other client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._local = server.node.open_local("http")
        self._started = time.monotonic()

    async def health(self, request: web.Request) -> web.Response:
        """Whether the broker works, and since when."""
        node = self._server.node
        body = {
            "status": "ok",
            "version": version("dovetail"),
            "broker": self._server.opened.broker_id,
            "uptime_seconds": round(time.monotonic() - self._started, 3),
            "connections": self._server.connection_count,
            "stored_lsn": node.state.live.stored_lsn,
        }
        return _json(body)

    async def metrics(self, request: web.Request) -> web.Response:
        """The figures, for Prometheus."""
        text = self._server.metrics.render(self._server.node.state, self._server.connection_count)
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    async def messages(self, request: web.Request) -> web.Response:
        """A topic's stored messages from an offset on."""
        topic = request.match_info["topic"]
        partition = _whole(request, "partition", 0, 0, 65_535)
        offset = _whole(request, "offset", 0, 0, (1 << 63) - 1)
        limit = _whole(request, "limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
        wait_ms = _whole(request, "wait_ms", 0, 0, WAIT_MS_MAX)
        answer, entries = await self._ask(
            lambda number: inputs.Fetch(self._local.session, number, topic, partition, offset, READ_BYTES_MAX, wait_ms)
        )
        if isinstance(answer, Refused):
            status = _HTTP_STATUS.get(Status(answer.status), 400)
            raise Trouble(status, Status(answer.status).name.lower(), answer.reason)
        assert isinstance(answer, Fetched)
        name = names.topic_name(topic)
        found = [each for entry in entries for each in _messages(name, partition, entry) if each["offset"] >= offset]
        body: dict[str, Any] = {"messages": found[:limit], "start": answer.start, "end": answer.end}
        after = found[:limit][-1]["offset"] + 1 if found else offset
        if found and after < answer.end:
            body["next"] = after
        return _json(body)

    async def _ask(self, make: Callable[[int], inputs.AnyInput]) -> tuple[Answer, tuple[Entry, ...]]:
        """One request to the node, as a local session."""
        future: asyncio.Future[tuple[Answer, tuple[Entry, ...]]] = asyncio.get_running_loop().create_future()

        def then(answer: Answer, entries: tuple[Entry, ...]) -> None:
            if not future.done():
                future.set_result((answer, entries))

        self._server.node.submit(make(self._local.register(then)))
        self._server.wake()
        return await future


def _whole(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query.get(name, str(default))
    is_short_number = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    if not is_short_number or not least <= int(text) <= most:
        raise Trouble(422, "invalid", f"{name}={text[:40]!r} is not a whole number from {least} to {most}")
    return int(text)


def _messages(topic: str, partition: int, entry: Entry) -> list[dict[str, Any]]:
    """The messages of one stored batch as JSON shows them."""
    return [
        {
            "message_id": names.message_id(topic, partition, -1, record.offset),
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": entry.record.arrival_ms,
            "key": record.key.decode("utf-8", "replace") if record.key is not None else None,
            "value": base64.b64encode(record.value or b"").decode(),
            "headers": {key: (value or b"").decode("utf-8", "replace") for key, value in record.headers},
        }
        for record in batch.parse(entry.batch, codecs=CODECS)
    ]
