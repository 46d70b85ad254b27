"""A listener that takes only so many HTTP connections: each has a file descriptor that something else might need.

Promises  one too many is told so with 503 and closed; those that are there are not touched. A connection that asks for
          nothing is closed in the end; one that does not speak HTTP is told so in the one shape of errors.
Never     counts what is closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from dovetail.runtime.http.errors import Trouble, error_body

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s"
)
_BODY = (
    b'{"error":{"code":"too_many_connections","message":"this broker has as many HTTP connections as it takes",'
    b'"details":{},"suggestions":["close some, or raise http_connections_max"],"request_id":"","timestamp":0}}'
)
KEEP_ALIVE_S = 75.0
"""How long a connection may be without a whole request's head."""
HANDLING: Mapping[str, Any] = {"access_log": None, "auto_decompress": False, "keepalive_timeout": KEEP_ALIVE_S}
"""How connections are handled: a body comes as it is, so that nobody sends a small one that is large."""
TOLD_MAX = 32
"""Connections over the limit that are told so at a time; others are closed without a word."""
GRACE_S = 2.0


class LimitedSite(web.BaseSite):
    """Like `web.TCPSite`, with a limit."""

    def __init__(self, runner: web.AppRunner, host: str, port: int, most: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(runner, ssl_context=tls)
        self._host = host
        self._port = port
        self._most = most
        self._told = 0

    @property
    def name(self) -> str:
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        await super().start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, self._host, self._port, ssl=self._ssl_context)

    def _protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        if len(server.connections) < self._most:
            return _Handler(server, loop=asyncio.get_running_loop(), **HANDLING)
        return _Full(self)

    def tell(self, change: int) -> bool:
        """Count those that are being told; whether there is room for that."""
        self._told += change
        return self._told <= TOLD_MAX


class _Handler(web.RequestHandler):
    """A connection that may send what is no HTTP: that is the peer's mistake, and fills no log."""

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        trouble = Trouble(status, "bad_request", " ".join((message or "this is no HTTP that can be read").split()))
        answer = web.Response(status=status, body=error_body(trouble, ""), content_type="application/json")
        answer.force_close()
        return answer


class _Full(asyncio.Protocol):
    """One connection too many."""

    def __init__(self, site: LimitedSite) -> None:
        self._site = site

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._site.tell(1):
            transport.abort()
            return
        asyncio.get_running_loop().call_later(GRACE_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        # Answered when it asks: an answer before the request would be lost with the reset.
        self._transport.write(_FULL % (len(_BODY), _BODY))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._site.tell(-1)
