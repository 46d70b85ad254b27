"""Connections of the test's clients to the broker of the world: asyncio's transports over simulated wires.

Promises  a client meets what it would meet on a socket: bytes in order, in pieces, late, cut off, or refused.
Never     changes a byte.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dovetail.sim import dice
from dovetail.sim.actors import CONNECT_US
from dovetail.sim.network import Line, Link
from dovetail.sim.world import World
from dovetail.testing.programs import LIFE

HIGH_WATER_BYTES = 64 << 10
KNOCK_US = 20_000
"""How often a connection is tried while a partition keeps it from coming about."""
DRAIN_LOOK_US = 1_000
"""How often a sender that was asked to pause looks whether it may go on."""


class Peer:
    """A client of the test: its way to the broker, which it keeps over all its connections."""

    def __init__(self, name: str, link: Link) -> None:
        self.name = name
        self.link = link
        self.transports: list[WireTransport] = []


class Peers:
    """Everybody who has ever connected, by name."""

    def __init__(self, loop: asyncio.AbstractEventLoop, world: World) -> None:
        self._loop = loop
        self._world = world
        self._known: dict[str, Peer] = {}
        self._lines = 0

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._known.values())

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], name: str
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect, or be refused as by a machine on which nobody listens."""
        peer = self._known.get(name)
        if peer is None:
            # The stream goes by who came when: names may be made up anew by each run.
            link = Link(dice.stream(self._world.plan.seed, f"link {len(self._known)}"))
            peer = self._known[name] = Peer(name, link)
        await asyncio.sleep(CONNECT_US / 1_000_000)
        while any(peer.link.blocked.values()):
            await asyncio.sleep(KNOCK_US / 1_000_000)
        if not self._world.broker.is_up:
            raise ConnectionRefusedError("the broker is down")
        protocol = protocol_factory()
        transport = WireTransport(self._loop, self._world, peer, protocol)
        self._lines += 1
        line = Line(self._lines, name, self._world, peer.link, transport, self._world.broker)
        transport.line = line
        if not self._world.broker.accept(line):
            line.close_by_client(silent=True)
            line.close_by_broker(silent=True)
            raise ConnectionRefusedError("the broker does not listen yet")
        peer.transports.append(transport)
        protocol.connection_made(transport)
        return transport, protocol


class WireTransport(asyncio.Transport):
    """The client's end of one connection."""

    line: Line

    def __init__(self, loop: asyncio.AbstractEventLoop, world: World, peer: Peer, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._world = world
        self._peer = peer
        self._protocol = protocol
        self._context = contextvars.copy_context()
        self.life = LIFE.get()
        """Of whom it is the end; None: of the test itself."""
        self._high = HIGH_WATER_BYTES
        self._closing = False
        self._over = False
        self._is_reading = True
        self._unread: list[bytes] = []
        self._writer_paused = False
        self._has_hung_up = False

    # What a protocol may ask of its transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        self.line.up.send(bytes(data))
        self.line.knock()
        if self.line.up.waiting_bytes > self._high and not self._writer_paused:
            self._writer_paused = True
            self._protocol.pause_writing()
            self._world.after(DRAIN_LOOK_US, self._look)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.line.close_by_client()
            self._end(None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self._call(self._read, data)
        if self._has_hung_up:
            self._end(None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self.line.up.waiting_bytes

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 7400), "sockname": ("127.0.0.1", 0)}.get(name, default)

    # What the wire tells

    def received(self, line: Line, data: bytes, sent_us: int) -> None:
        if self._is_reading:
            self._call(self._read, data)
        else:
            self._unread.append(data)

    def drained(self, line: Line) -> None:
        """The broker's end is told; there is nothing to do here."""

    def hung_up(self, line: Line) -> None:
        self._closing = True
        self._has_hung_up = True
        if self._is_reading:
            self._end(None)

    def broken(self) -> None:
        """The connection was cut, and both ends know."""
        self._closing = True
        self._end(ConnectionResetError("the connection was reset"))

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        """What it tells is heard by whoever has connected, in their context."""
        self._loop.call_soon(callback, *args, context=self._context)

    def _read(self, data: bytes) -> None:
        if not self._over:
            self._protocol.data_received(data)

    def _look(self) -> None:
        if self._closing:
            return
        if self.line.up.waiting_bytes > self._high:
            self._world.after(DRAIN_LOOK_US, self._look)
            return
        self._writer_paused = False
        self._call(self._protocol.resume_writing)

    def _end(self, error: Exception | None) -> None:
        if not self._over and self in self._peer.transports:
            self._peer.transports.remove(self)
            self._call(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self._over = True
        self._protocol.connection_lost(error)
