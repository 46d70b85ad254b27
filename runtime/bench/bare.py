"""The limit to compare with: an asyncio server that stores PRODUCE frames and does nothing else.

    python -m dovetail.runtime.bench.bare DIRECTORY [--appended | --unstored]

Frames are opaque to it: one journal file, prewritten; everything that came while one write and sync was under way goes
with the next; answers leave when their bytes are synced. `--appended` writes to a file that grows, as whoever keeps
what it is sent must: new memory and new blocks for each byte. `--unstored` answers at once: what the sockets alone do.

Promises  the durability of a broker's confirm, and nothing of a broker.
Never     checks a batch, gives offsets that mean anything, or can read back what it wrote.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from dovetail.core import frames, wire
from dovetail.core.frames import Frame, FrameDecoder, FrameType
from dovetail.runtime.bench.disk_limit import APPENDED_BYTES, JOURNAL_BYTES, emptied, prewritten

_HELLO_ANSWER = frames.encode(FrameType.RESPONSE, wire.HelloAnswer("bare", 1, 0, 3_000, 30_000, 10 << 20).encode())
_ANSWER = frames.encode(FrameType.RESPONSE, wire.ProduceAnswer(0, 0, 0).encode())


class Bare:
    """The server: what waits for the disk, and who waits for it."""

    def __init__(self, journal: int | None, *, grows: bool = False) -> None:
        self._journal = journal
        self._grows = grows
        self._position = 0
        self._waiting: list[bytes | bytearray] = []
        self._askers: list[asyncio.Transport] = []
        self._committing = False
        self._loop = asyncio.get_running_loop()

    def take(self, transport: asyncio.Transport, arrived: list[Frame]) -> None:
        """Store the frames of one read, or answer them at once when nothing is stored."""
        if arrived and arrived[0].type == FrameType.HELLO:
            transport.write(_HELLO_ANSWER)
            arrived = arrived[1:]
        if self._journal is None:
            transport.write(_ANSWER * len(arrived))
            return
        self._waiting += [frame.payload for frame in arrived]
        self._askers += [transport] * len(arrived)
        if self._askers and not self._committing:
            # Everything else that is readable now joins the same commit.
            self._committing = True
            self._loop.call_soon(self._commit)

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        askers, self._askers = self._askers, []
        done = self._loop.run_in_executor(None, self._write, waiting)
        done.add_done_callback(lambda future: self._committed(future, askers))

    def _write(self, buffers: list[bytes | bytearray]) -> None:
        assert self._journal is not None
        data = b"".join(buffers)
        if self._position + len(data) > (APPENDED_BYTES if self._grows else JOURNAL_BYTES):
            self._position = 0
            if self._grows:
                os.ftruncate(self._journal, 0)
        os.pwrite(self._journal, data, self._position)
        os.fdatasync(self._journal)
        self._position += len(data)

    def _committed(self, future: asyncio.Future[None], askers: list[asyncio.Transport]) -> None:
        future.result()
        answers: dict[asyncio.Transport, int] = {}
        for transport in askers:
            answers[transport] = answers.get(transport, 0) + 1
        for transport, count in answers.items():
            transport.write(_ANSWER * count)
        if self._askers:
            self._commit()
        else:
            self._committing = False


class _Protocol(asyncio.Protocol):
    def __init__(self, server: Bare) -> None:
        self._server = server
        self._decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._server.take(self._transport, [each for each in self._decoder.feed(data) if isinstance(each, Frame)])


async def serve(directory: Path, *, stored: bool, grows: bool) -> None:
    """Serve on a free port until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    journal = None
    if stored:
        journal = emptied(directory / "appended.journal") if grows else prewritten(directory / "bare.journal")
    bare = Bare(journal, grows=grows)
    listener = await loop.create_server(lambda: _Protocol(bare), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    ready = {"event": "ready", "tcp": f"127.0.0.1:{port}"}
    print(msgspec.json.encode(ready).decode(), file=sys.stderr, flush=True)
    await stop.wait()
    listener.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), stored="--unstored" not in sys.argv[2:], grows="--appended" in sys.argv[2:]))
