"""The asyncio shell: sockets, threads for the disk, and the clock around a `Node`.

Promises  only moves bytes and time: whatever is decided is decided in the core. Listeners open after recovery; a stop
          drains, returns leases, syncs and writes a checkpoint; a failed sync or a bug ends the broker at once, with
          nothing more written.
Never     blocks the loop on the disk: the journal lane and the log lane are a thread each.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from dovetail.core import inputs
from dovetail.core.awaken import awaken
from dovetail.core.committer import Committer
from dovetail.core.connection import Terms
from dovetail.core.effects import AnyEffect
from dovetail.core.frames import ErrorCode, FrameType, encode
from dovetail.core.ids import Bug, Now
from dovetail.core.inputs import AnyInput
from dovetail.core.levels import LOOK_MS, Level, Levels, Pressure, carry_out
from dovetail.core.lives import Lives
from dovetail.core.node import Node, Observer
from dovetail.core.records import AnyRecord
from dovetail.core.wire import Error
from dovetail.runtime.config import Config, Origins, address
from dovetail.runtime.descriptors import ACCEPTS_AT_ONCE, BACKLOG, TURNED_AWAY_MAX, Room, TooFew, make_room
from dovetail.runtime.exits import Exit
from dovetail.runtime.lane import Lane
from dovetail.runtime.logs import SLOW_S, MessageLog, set_level
from dovetail.runtime.metrics import Metrics
from dovetail.runtime.process import memory_bytes, resident_bytes
from dovetail.runtime.recorder import Recorder
from dovetail.runtime.security import Insecure, Keyring, Security
from dovetail.runtime.storage.codecs import CODECS
from dovetail.runtime.storage.disk import DiskError, Kind, Task, run
from dovetail.runtime.storage.findings import Corrupted, Progress, Unusable
from dovetail.runtime.storage.housekeeping import Housekeeper
from dovetail.runtime.storage.lanes import Checkpointer, commit_task, job_task
from dovetail.runtime.storage.lookback import Show, look_back
from dovetail.runtime.storage.real_disk import RealDisk
from dovetail.runtime.storage.store import Opened, Store, open_store
from dovetail.runtime.tracing import Tracer
from dovetail.runtime.wire_trace import WireTrace

log = structlog.get_logger("broker")

NOT_SENT_BYTES = 256 << 10
"""What the system holds of a connection beyond what is on its way."""
READ_BYTES = 256 << 10
CLOSE_GRACE_S = 5.0
"""How long a connection that is being closed may take to read what it was sent."""


class StartFailed(Exception):
    """The broker could not start; the text says why and what to do, `code` is the process's exit code."""

    def __init__(self, text: str, code: Exit) -> None:
        super().__init__(text)
        self.code = code


class Failure(Exception):
    """The broker had to stop; `code` is the process's exit code."""

    def __init__(self, text: str, code: Exit) -> None:
        super().__init__(text)
        self.code = code


def clock() -> Now:
    """This machine's two clocks."""
    return Now(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)


class Server:
    """A running broker: `await Server.start(config)`, then `port`, `stop()`, `wait()`."""

    def __init__(
        self,
        config: Config,
        security: Security,
        disk: RealDisk,
        store: Store,
        opened: Opened,
        room: Room,
        tracer: Tracer | None = None,
    ) -> None:
        self.config = config
        self.security = security
        self.opened = opened
        self.recovery_s = 0.0
        """How long the start took to recover the data directory."""
        self.metrics = Metrics(lambda: self.node.state)
        self._messages = MessageLog(lambda: self.node.state)
        self.lives = Lives()
        self._recorder = _recorder(config, opened)
        self._tracer = tracer
        self.node = _new_node(config, opened, self._observe, security.keyring)
        self.port = 0
        self.http_port = 0
        self.failure: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        self._disk = disk
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._journal_lane = Lane("journal", disk, self._loop)
        self._log_lane = Lane("logs", disk, self._loop)
        self._checkpointer = Checkpointer(store, self.node, config.checkpoint_ms, clock())
        self.levels = Levels(self._level_changed)
        self._housekeeper = Housekeeper(store, self.node, config.space, clock(), self._disk_full)
        limits = config.pressure
        self.memory_bytes = limits.memory_bytes or memory_bytes()
        self._pressure = Pressure(self.levels, replace(limits, memory_bytes=self.memory_bytes))
        self._good = security.keyring.good() if security.keyring is not None else []
        """The rights of the tokens that are good, as of the last look."""
        self._look_due = self._loop.time()
        self._look_timer: asyncio.TimerHandle | None = None
        self.late_ms = 0.0
        """How late the loop came to its last look at itself."""
        self.wire_trace: WireTrace | None = None
        self._listener: asyncio.Server | None = None
        self._http: Any = None
        self._protocols: dict[int, _Protocol] = {}
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        self.connections_max, self.http_connections_max = room.wire, room.http
        self.turned_away = 0
        """Connections over the limit that are being told so."""
        self._ticking = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        """When it is due: it is left alone when the next thing is due later, and then wakes the broker for nothing."""
        self._paused = False
        self._over = False
        self._idle = asyncio.Event()
        self._looking_back = asyncio.Lock()
        self.origins: Origins = {}
        self.reread: Callable[[], tuple[Config, Origins]] | None = None
        """Reads the configuration again from where it came from."""
        self.stop_asked = asyncio.Event()
        """Set when an operator asked over HTTP for a stop; whoever runs the server calls `stop`."""

    @classmethod
    async def start(
        cls, config: Config, on_progress: Callable[[Progress], None] | None = None, tracer: Tracer | None = None
    ) -> Server:
        """Recover the data directory, then listen; raises `StartFailed`."""
        try:
            security = Security(config)
            wanted = Room(config.connections_max, config.http_connections_max if config.http else 0)
            room = make_room(wanted)
        except (Insecure, TooFew) as error:
            raise StartFailed(str(error), Exit.USAGE) from None
        disk = RealDisk(config.data)
        loop = asyncio.get_running_loop()
        try:
            task = open_store(
                config.store,
                holder=f"process {os.getpid()} on {socket.gethostname()}",
                wall_ms=clock().wall_ms,
                new_salt=secrets.randbits(63) | 1,
                on_progress=on_progress,
                go_on_without_damage=config.go_on_without_damage,
            )
            begun = time.monotonic()
            store, opened = await loop.run_in_executor(None, run, disk, task)
            recovery_s = time.monotonic() - begun
        except (OSError, Corrupted, Unusable) as error:
            disk.close()
            raise _start_failure(config.data, error) from error
        except Exception:
            disk.close()
            raise
        try:
            server = cls(config, security, disk, store, opened, room, tracer)
            server.recovery_s = recovery_s
        except OSError as error:
            disk.close()
            raise StartFailed(f"can't record: {error}; choose another directory with --record", Exit.DISK) from error
        if tracer is not None:
            tracer.begin(opened.broker_id, opened.durable, _terms(config), round(recovery_s * 1_000_000))
        if room != wanted:
            text = f"few file descriptors: raise `ulimit -n` (LimitNOFILE= in systemd) to {wanted.needs}"
            log.warning(text, connections_max=room.wire, http_connections_max=room.http)
        await server.until_quiet()
        try:
            await server._listen()
        except OSError as error:
            await server.stop()
            raise StartFailed(str(error), Exit.UNAVAILABLE) from error
        return server

    async def _listen(self) -> None:
        self.set_wire_trace(self.config.trace_wire)
        self._look()
        host, port = address(self.config.listen)
        self._listener = await self._bind(host, port)
        self.port = self._listener.sockets[0].getsockname()[1]
        if self.config.http:
            from dovetail.runtime.http.app import start_http

            self._http, self.http_port = await start_http(self, *address(self.config.http))

    async def _bind(self, host: str, port: int) -> asyncio.Server:
        try:
            listener = await self._loop.create_server(
                lambda: _Protocol(self), host, port, backlog=ACCEPTS_AT_ONCE, ssl=self.security.tls
            )
        except OSError as error:
            raise OSError(listen_trouble(host, port, error, "--listen")) from error
        # The loop takes its backlog for both: how many wait, and how many it accepts in one round.
        for each in listener.sockets:
            with socket.socket(fileno=os.dup(each.fileno())) as twin:
                twin.listen(BACKLOG)
        return listener

    async def wait(self) -> Failure:
        """Return when the broker had to stop by itself, with the reason."""
        return await asyncio.shield(self.failure)

    async def stop(self) -> None:
        """No new work, a short drain, leases returned, journal synced, checkpoint written."""
        if self._over:
            return
        if self._listener is not None:
            self._listener.close()
        if self._http is not None:
            await self._http.cleanup()
        if not self.failure.done():
            await self._drain()
        self._end()

    async def _drain(self) -> None:
        self.node.goodbye("the broker stops")
        self._wake()
        deadline = self._loop.time() + self.config.drain_ms / 1000
        while self._protocols and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        for protocol in list(self._protocols.values()):
            protocol.transport.abort()
        for session in self.node.sessions():
            self.node.disconnect(session)
        await self.until_quiet()
        self._checkpointer.ask()
        await self.until_quiet()
        await self._log_lane.finish(self._store.close())

    async def until_quiet(self) -> None:
        """Return when nothing is under way, and no checkpoint is being taken."""
        while not self.failure.done() and not (self.node.is_quiet and self._checkpointer.is_idle):
            self._idle.clear()
            self._wake()
            await self._idle.wait()

    async def kill(self) -> None:
        """End at once, as a crash would: nothing is drained, synced or said."""
        if self._listener is not None:
            self._listener.close()
        if self._http is not None:
            await self._http.cleanup()
        self._end()

    def _end(self) -> None:
        self._over = True
        self.metrics.pauses.close()
        for protocol in list(self._protocols.values()):
            protocol.transport.abort()
        for timer in (self._timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        self._journal_lane.close()
        self._log_lane.close()
        self._disk.close()
        if self._recorder is not None:
            self._recorder.close()
        if self._tracer is not None:
            self._tracer.close()

    def _observe(
        self,
        now: Now,
        arrived: tuple[AnyInput, ...],
        records: tuple[AnyRecord, ...],
        effects: tuple[AnyEffect, ...],
    ) -> None:
        self.metrics.observe(now, arrived, records, effects)
        self._messages.observe(now, arrived, records, effects)
        self.lives.observe(self.node.state, now, arrived, records, effects)
        if self._recorder is not None:
            self._recorder.observe(now, arrived, records, effects)
        if self._tracer is not None:
            self._tracer.observe(now, arrived, records, effects, self.node.state.durable)

    def _wake(self) -> None:
        """Have a tick run after everything that is ready now was received."""
        if not self._ticking and not self._over:
            self._ticking = True
            self._loop.call_soon(self._tick)

    wake = _wake

    def _look(self) -> None:
        """See how memory and the loop are; the timer's lateness is the loop's."""
        now = self._loop.time()
        self.late_ms = max(0.0, (now - self._look_due) * 1000)
        self._pressure.look(resident_bytes(), self.late_ms)
        self._look_at_tokens()
        self._look_due = now + LOOK_MS / 1000
        self._look_timer = self._loop.call_at(self._look_due, self._look)

    def _look_at_tokens(self) -> None:
        """Whoever came with a token that is not good any more has to go."""
        keyring = self.security.keyring
        if keyring is not None and (good := keyring.good()) != self._good:
            self._good = good
            self.node.admit_only(good)
            self._wake()

    def _disk_full(self, reason: str) -> None:
        self.levels.ask("disk", Level.READ_ONLY if reason else Level.NORMAL, reason)

    def _level_changed(self, level: Level, reason: str) -> None:
        """Tell the core what it may take, and the clients."""
        carry_out(self.node, level, reason)
        log.warning("level", to=level.word, reason=reason)
        self._wake()

    def change(self, config: Config, origins: Origins) -> None:
        """Take on settings that need no restart."""
        self.config, self.origins = config, origins
        operator = self.node.open_local("operator")
        self.node.submit(inputs.ChangeSettings(operator.session, 1, config.settings))
        self.node.disconnect(operator.session)
        set_level(config.log_level)
        if config.trace_wire != (self.wire_trace is not None):
            self.set_wire_trace(config.trace_wire)
        self._wake()

    def set_wire_trace(self, on: bool) -> None:
        """Log the frames on the wire from now on, or no more."""
        self.wire_trace = WireTrace(self.config.frame_bytes_max) if on else None

    async def look_back(self, show: Show) -> None:
        """Show all that is still in the journal, beside everything else, to one at a time; `show` is called in another
        thread."""
        async with self._looking_back:
            await self._loop.run_in_executor(None, run, self._disk, look_back(show))

    def ask_compaction(self) -> None:
        """Have retention and compaction done as soon as possible."""
        self._housekeeper.hurry()
        self._wake()

    @property
    def journal_bytes(self) -> int:
        """What was committed since the last checkpoint began."""
        return self._store.journal_bytes

    @property
    def checkpoint_age_ms(self) -> int:
        """Since the last checkpoint was begun."""
        return clock().mono_ms - self._checkpointer.last_ms

    @property
    def http_connection_count(self) -> int:
        """HTTP connections that are open."""
        return len(self._http.server.connections) if self._http is not None and self._http.server is not None else 0

    def ask_checkpoint(self) -> None:
        """Have a checkpoint taken as soon as possible."""
        self._checkpointer.ask()
        self._wake()

    def _tick(self) -> None:
        self._ticking = False
        if self._over or self.failure.done():
            return
        try:
            self._turn(clock())
        except Exception as error:
            self._bug(error)

    def _turn(self, now: Now) -> None:
        for session in self.node.unread(now):
            if session in self._protocols:
                self.node.wrote(session, self._protocols[session].transport.get_write_buffer_size())
        self.node.tick(now)
        more = self._checkpointer.advance(now)
        self._housekeeper.advance(now)
        took_ms = time.monotonic_ns() // 1_000_000 - now.mono_ms
        if took_ms > SLOW_S * 1000:
            lsn = f"lsn:{self.node.state.durable.lsn}"
            log.warning("slow", operation="step", seconds=took_ms / 1000, correlation_id=lsn)
        # The disk works while answers are sent.
        self._start_commit(now)
        self._start_job()
        self._flush()
        self._steady_reading()
        if more or self.node.has_arrivals:
            self._wake()
        else:
            self._arm_timer(now)
            if self.node.is_quiet:
                self._idle.set()

    def _flush(self) -> None:
        for session, buffers, closing in self.node.outgoing():
            if self.wire_trace is not None:
                self.wire_trace.sent(session, buffers)
            protocol = self._protocols.get(session)
            if protocol is not None:
                transport = protocol.transport
                if buffers:
                    transport.writelines(buffers)
                if closing:
                    protocol.close()
                else:
                    self.node.wrote(session, transport.get_write_buffer_size())
            if closing:
                self.node.disconnect(session)

    def _start_commit(self, now: Now) -> None:
        commit = self.node.next_commit(now)
        if commit is not None:
            self._run(self._journal_lane, commit_task(self._store, commit), self._committed)

    def _committed(self, _: object) -> None:
        self.node.committed()
        # What was decided meanwhile need not wait for the tick that tells of this.
        self._start_commit(clock())

    def _start_job(self) -> None:
        job = self.node.next_job()
        if job is not None:
            self._run(self._log_lane, job_task(self._store, job), self.node.job_done)

    def _run(self, lane: Lane, task: Task[object], then: Callable[[object], None]) -> None:
        started = self._loop.time()

        def done(result: object, error: BaseException | None) -> None:
            if self._over:
                return
            if error is not None:
                self._disk_failed(error)
                return
            seconds = self._loop.time() - started
            self.metrics.disk(lane is self._journal_lane, seconds)
            if seconds > SLOW_S:
                what, lsn = ("commit", self.node.state.durable.lsn) if lane is self._journal_lane else ("log job", 0)
                more = {"correlation_id": f"lsn:{lsn}"} if lsn else {}
                log.warning("slow", operation=what, seconds=round(seconds, 3), **more)
            try:
                then(result)
            except Exception as trouble:
                self._bug(trouble)
                return
            self._wake()

        lane.submit(task, done)

    def _disk_failed(self, error: BaseException) -> None:
        if isinstance(error, Corrupted):
            self._fail(f"nothing more is confirmed: {error.about(self.config.data)}", Exit.DAMAGED)
            return
        text = str(error) if isinstance(error, DiskError) else f"{type(error).__name__}: {error}"
        code = Exit.DISK if isinstance(error, OSError) else Exit.BUG
        self._fail(f"the disk failed, nothing more is confirmed: {text}", code)

    def _bug(self, error: Exception) -> None:
        """Whatever the node raises is a mistake of ours, and what it left half done can't be trusted."""
        text = str(error) if isinstance(error, Bug) else f"{type(error).__name__}: {error}"
        log.critical("bug", exc_info=error)
        self._fail(f"an invariant is broken, nothing more is written: {text}", Exit.BUG)

    def _fail(self, text: str, code: Exit) -> None:
        """Stop at once: no answer leaves after this, and nothing is written."""
        if self.failure.done():
            return
        self.failure.set_result(Failure(text, code))
        self._idle.set()
        log.critical("broker stops", reason=text, exit_code=int(code))
        for protocol in list(self._protocols.values()):
            protocol.transport.abort()

    def _arm_timer(self, now: Now) -> None:
        wake_ms = self.node.wake_ms()
        due_ms = min(self._checkpointer.due_ms, self._housekeeper.due_ms, wake_ms if wake_ms is not None else 1 << 62)
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._loop.call_later(max(0, due_ms - now.mono_ms) / 1000, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._wake()

    def _steady_reading(self) -> None:
        """Stop reading sockets while too much waits for the disk: that always drains."""
        saturated = self.node.is_saturated
        if saturated != self._paused:
            self._paused = saturated
            for protocol in self._protocols.values():
                protocol.set_reading(not saturated)

    def accept(self, protocol: _Protocol, peer: str) -> int:
        """A new connection's session number; 0 when there are too many already."""
        if self.why_full():
            return 0
        session = self.node.connect(peer)
        self._protocols[session] = protocol
        protocol.set_reading(not self._paused)
        return session

    def why_full(self) -> str:
        """Why no connection is taken; empty while some are."""
        if self.levels.turns_away:
            return self.levels.turns_away
        if len(self._protocols) >= self.connections_max:
            return f"{self.connections_max} connections are open already, the most this broker takes: try again later"
        return ""

    def received(self, session: int, data: memoryview) -> None:
        """Bytes of a connection, to be looked at now."""
        if self.wire_trace is not None:
            self.wire_trace.received(session, bytes(data))
        try:
            self.node.receive(session, data)
        except Exception as error:
            self._bug(error)
            return
        self._wake()

    def drained(self, session: int, buffered: int) -> None:
        """A socket has taken most of what waited for it."""
        self.node.wrote(session, buffered)
        self._wake()

    def lost(self, session: int) -> None:
        """A connection is gone."""
        if self.wire_trace is not None:
            self.wire_trace.lost(session)
        self._protocols.pop(session, None)
        self.node.disconnect(session)
        self._wake()

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return len(self._protocols)


class _Protocol(asyncio.BufferedProtocol):
    """One TCP connection: bytes in and out, nothing else."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._session = 0
        self._reading = True
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        window = self._server.config.node.send_window_bytes
        transport.set_write_buffer_limits(high=window // 2, low=window // 4)
        keep_alive(transport.get_extra_info("socket"))
        host, port, *_ = transport.get_extra_info("peername") or ("local", 0)
        self._session = self._server.accept(self, f"{host}:{port}")
        if self._session == 0:
            self._turn_away()

    def _turn_away(self) -> None:
        """Tell a connection too many why; where that takes too many descriptors of its own, just close it."""
        self._server.turned_away += 1
        if self._server.turned_away > TURNED_AWAY_MAX:
            self.transport.abort()
            return
        self.transport.write(encode(FrameType.ERROR, Error(ErrorCode.LIMIT, self._server.why_full()).encode()))
        self.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """All connections are read into the one buffer: what is in it was looked at before the next read."""
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._closing:
            self._server.received(self._session, self._server.read_buffer[:nbytes])

    def resume_writing(self) -> None:
        if self._session:
            self._server.drained(self._session, self.transport.get_write_buffer_size())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._session:
            self._server.lost(self._session)
        else:
            self._server.turned_away -= 1

    def close(self) -> None:
        """Send what is left and say that it was the last, then wait for the peer to close; not for ever.

        What the peer still sends is read and dropped: to close over unread bytes resets the connection, and the peer
        would lose the ERROR that tells it why.
        """
        self.set_reading(True)
        self._closing = True
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        elif not self.transport.is_closing():
            self.transport.close()
        asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self.transport.abort)

    def set_reading(self, reading: bool) -> None:
        """Read from the socket, or let the peer wait."""
        if reading != self._reading and not self._closing and not self.transport.is_closing():
            self._reading = reading
            (self.transport.resume_reading if reading else self.transport.pause_reading)()


def keep_alive(connection: socket.socket | None) -> None:
    """Have the system notice a peer that vanished, within about a minute, and hold little of what was not sent yet: who
    reads slowly shows in the bytes that it takes."""
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_NOTSENT_LOWAT", NOT_SENT_BYTES),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def listen_trouble(host: str, port: int, error: OSError, option: str) -> str:
    """Why an address can't be listened on, and what to do."""
    match error.errno:
        case errno.EADDRINUSE:
            why = f"the port is in use; `ss -ltnp 'sport = :{port}'` shows by whom: stop that, or choose another port"
        case errno.EACCES | errno.EPERM:
            why = (
                "ports below 1024 take rights that this process does not have; choose another port, or give it "
                "CAP_NET_BIND_SERVICE (AmbientCapabilities= in systemd)"
            )
        case errno.EADDRNOTAVAIL:
            why = "this machine does not have that address; `ip addr` shows those it has. Choose another"
        case _ if isinstance(error, socket.gaierror):
            why = "that host is not known here: write an address, or 0.0.0.0 for all. Choose another"
        case errno.EMFILE | errno.ENFILE:
            why = "no file descriptor is left: raise `ulimit -n`, or choose another address"
        case _:
            why = f"{error.strerror or error}; choose another address"
    return f"can't listen on {host}:{port}: {why} with {option}"


def _recorder(config: Config, opened: Opened) -> Recorder | None:
    return Recorder(config.record, opened.durable, config.settings) if config.record else None


def _terms(config: Config) -> str:
    """What whoever judges a trace of this broker has to know, as JSON."""
    topic = config.settings.topic_defaults
    known = {
        "live": True,
        "lease_ms": topic.lease_ms,
        "max_retries": topic.max_retries,
        "session_timeout_ms": config.settings.session_timeout_ms,
        "honest_clock": True,
    }
    return msgspec.json.encode(known).decode()


def _new_node(config: Config, opened: Opened, observe: Observer, keyring: Keyring | None) -> Node:
    settings = config.settings
    terms = Terms(
        broker=opened.broker_id,
        heartbeat_ms=config.heartbeat_ms,
        session_timeout_ms=settings.session_timeout_ms,
        frame_bytes_max=config.frame_bytes_max,
        message_bytes_max=settings.message_bytes_max,
        codecs=CODECS,
        admit=keyring.admit if keyring is not None else None,
    )
    committer = Committer(lsn=opened.durable.lsn, crc=opened.crc, salt=opened.salt, linger_ms=settings.settle_linger_ms)
    return Node(awaken(opened.durable, settings), committer, terms, config.node, observe)


def _start_failure(data: str, error: Exception) -> StartFailed:
    if isinstance(error, DiskError) and error.kind is Kind.LOCKED:
        text = f"{data} is in use: {error.holder or 'another process'} has it; stop that broker or use another --data"
        return StartFailed(text, Exit.LOCKED)
    if isinstance(error, Corrupted):
        return StartFailed(error.about(data), Exit.DAMAGED)
    if isinstance(error, Unusable):
        return StartFailed(f"{data}: {error}", Exit.DAMAGED)
    return StartFailed(f"can't use the data directory {data}: {error}", Exit.DISK)
