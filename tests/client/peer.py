"""A broker's end of the wire, played by the test: it sees each request and says what it likes.

For what a real broker does only when it must: refuse as busy, fall silent, vanish between a request and its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from dovetail.core import frames, wire
from dovetail.core.frames import Frame, FrameType
from dovetail.core.wire import Answer, Error, Hello, HelloAnswer, Push, Refusal, Request

R = TypeVar("R", bound=Request)

TERMS = HelloAnswer("a test", 1, 0, heartbeat_ms=0, session_timeout_ms=0, frame_bytes_max=1 << 20)
WITHIN = 10.0


class Line:
    """One connection that a client made."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = frames.FrameDecoder()
        self._frames: list[Frame] = []

    async def request(self, kind: type[R]) -> tuple[R, int | None]:
        """The next frame, which is a request of that kind, and its correlation."""
        while not self._frames:
            async with asyncio.timeout(WITHIN):
                data = await self._reader.read(1 << 16)
            assert data, f"the client closed instead of sending {kind.__name__}"
            for frame in self._decoder.feed(data):
                assert isinstance(frame, Frame), frame
                self._frames.append(frame)
        frame = self._frames.pop(0)
        message = wire.decode_message(frame.type, frame.payload)
        assert isinstance(message, kind), message
        return message, frame.correlation

    async def closed_by_client(self) -> None:
        async with asyncio.timeout(WITHIN):
            while await self._reader.read(1 << 16):
                """What still comes is of no interest."""

    def answer(self, correlation: int | None, answer: Answer | Refusal) -> None:
        self._writer.write(frames.encode(FrameType.RESPONSE, answer.encode(), correlation))

    def fail(self, correlation: int | None, error: Error) -> None:
        self._writer.write(frames.encode(FrameType.ERROR, error.encode(), correlation))

    def push(self, message: Push) -> None:
        self._writer.write(frames.encode(message.TYPE, message.encode()))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()


class Peer:
    """Listens like a broker; `line` gives the next connection, its HELLO answered."""

    def __init__(self, server: asyncio.Server, lines: asyncio.Queue[Line]) -> None:
        self._server = server
        self._lines = lines

    @property
    def url(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"dovetail://{host}:{port}"

    async def line(self, terms: HelloAnswer = TERMS) -> Line:
        line = await self.silent_line()
        _, correlation = await line.request(Hello)
        line.answer(correlation, terms)
        return line

    async def silent_line(self) -> Line:
        """The next connection as it is."""
        async with asyncio.timeout(WITHIN):
            return await self._lines.get()


@asynccontextmanager
async def listening() -> AsyncIterator[Peer]:
    lines: asyncio.Queue[Line] = asyncio.Queue()
    made: list[Line] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        made.append(line)
        lines.put_nowait(line)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield Peer(server, lines)
    finally:
        server.close()
        for line in made:
            line.close()
