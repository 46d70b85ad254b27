"""A real broker on a real socket and disk, that can be stopped, killed and started again in the same place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from msgspec.structs import replace

from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from dovetail.runtime.config import Config
from dovetail.runtime.server import Server


class Broker:
    def __init__(self, config: Config, server: Server) -> None:
        self._config = replace(config, listen=f"127.0.0.1:{server.port}")
        self._server = server

    @property
    def url(self) -> str:
        return f"dovetail://{self._config.listen}"

    async def stop(self) -> None:
        await self._server.stop()

    async def kill(self) -> None:
        await self._server.kill()

    async def start(self) -> None:
        self._server = await Server.start(self._config)


def config(data: Path, *, lease_ms: int = 30_000, partitions: int = 1, message_bytes_max: int = 1 << 20) -> Config:
    settings = Settings(
        topic_defaults=TopicConfig(lease_ms=lease_ms), partitions=partitions, message_bytes_max=message_bytes_max
    )
    return Config(data=str(data), listen="127.0.0.1:0", http="", settings=settings, drain_ms=1000)


@asynccontextmanager
async def serving(given: Config) -> AsyncIterator[Broker]:
    broker = Broker(given, await Server.start(given))
    try:
        yield broker
    finally:
        await broker.stop()


@contextmanager
def serving_elsewhere(given: Config) -> Iterator[str]:
    """A broker with an event loop and a thread of its own, for programs that have neither; gives its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(Server.start(given), loop).result()
        yield f"127.0.0.1:{server.port}"
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
