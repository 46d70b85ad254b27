"""A broker for the tests, on a thread and loop of its own.

Promises  what runs is what ships, on real sockets and a real disk; every broker started here is ended here.
Never     looks into a broker, but for the leak tests, which count what it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from typing import TypeVar

from dovetail.core.node import NodeOptions
from dovetail.core.state import Settings
from dovetail.runtime.config import Config
from dovetail.runtime.server import Server
from dovetail.runtime.storage.layout import StoreOptions
from tests.broker.raw import Raw

T = TypeVar("T")

PATIENCE_S = 20.0


class House:
    """A broker on its own thread and loop, with clients that are closed together."""

    def __init__(
        self,
        data: str,
        settings: Settings | None = None,
        node: NodeOptions | None = None,
        connections_max: int = 10_000,
        http_connections_max: int = 1_000,
        store: StoreOptions | None = None,
    ) -> None:
        self._config = Config(
            data=data,
            listen="127.0.0.1:0",
            http="127.0.0.1:0",
            settings=settings or Settings(),
            store=store or StoreOptions(journal_segment_bytes=1 << 20, spare_segments_max=1),
            node=node or NodeOptions(),
            connections_max=connections_max,
            http_connections_max=http_connections_max,
            drain_ms=200,
        )
        self.data = data
        self._clients: list[Raw] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self._thread.start()
        self.server = asyncio.run_coroutine_threadsafe(Server.start(self._config), self._loop).result(PATIENCE_S)
        self.port = self.server.port
        self.http_port = self.server.http_port

    def client(self) -> Raw:
        """A new connection, closed with the house at the latest."""
        client = Raw(self.port)
        self._clients.append(client)
        return client

    def call(self, function: Callable[[], T]) -> T:
        """What `function` gives, called between two steps of the broker."""

        async def inside() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(PATIENCE_S)

    def kill(self) -> None:
        """End as a crash would; the clients see it."""
        self._end(self.server.kill())

    def stop(self) -> None:
        """Stop as an operator would; the clients go first."""
        if self._loop.is_closed():
            return
        close_all(self._clients)
        assert not self.server.failure.done(), self.server.failure.result()
        self._end(self.server.stop())

    def _end(self, how: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(how, self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Return when `condition` holds; that it never does is the failure `what`."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"waited {patience_s} s in vain: {what}"
        time.sleep(0.01)


def close_all(clients: list[Raw]) -> None:
    for client in clients:
        with contextlib.suppress(OSError):
            client.close()
