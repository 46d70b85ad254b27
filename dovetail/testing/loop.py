"""An event loop whose clock is the simulator's: it never waits, it goes to when the next thing happens.

Promises  what is due in the world and what is due in the loop happen in the order of their times; a task that sleeps
          for an hour is back at once; threads are not used, so that a run depends on nothing but its seed.
Never     opens a socket: the only place to connect to is the broker of the world.
"""

from __future__ import annotations

import asyncio
import math
import os
import selectors
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from dovetail.sim.world import World
from dovetail.testing.programs import LIFE, Life

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Connect = Callable[[Callable[[], asyncio.Protocol], str], Awaitable[tuple[asyncio.Transport, asyncio.Protocol]]]
"""Connects a protocol, under a name, to the broker of the world."""
KEEPER = "dovetail client "
"""What the client's connecting task is called, before the client's own name."""
TASKS_NAMED_MAX = 10
TURNS_AT_ONCE = 1_000
"""A loop that has turned so often without waiting makes time pass, too: somebody polls."""
TURNS_US = 1_000
"""How much."""
_OURS = str(Path(__file__).parents[1]) + os.sep
_ASYNCIO = str(Path(asyncio.__file__).parent) + os.sep


class Stalled(Exception):
    """The test waits for something that does not come; the text says which tasks wait, and where."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """`connect` is set by whoever has a broker to connect to."""

    def __init__(self, world: World, limit_us: int) -> None:
        self.connect: Connect | None = None
        self._world = world
        self._limit_us = limit_us
        self._woken = False
        self._is_broken = False
        self._turns = 0
        super().__init__(_Selector(self.pass_time))

    def time(self) -> float:
        """The world's time in seconds."""
        return self._world.now_us / 1_000_000

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As any loop; the world stands still until it was called."""
        life = LIFE.get() if context is None else context.get(LIFE)
        if life is not None and life.is_over:
            handle = asyncio.Handle(callback, args, self, context)
            life.unfinished.append(handle)
            return handle
        self._woken = True
        return super().call_soon(callback, *args, context=context)

    def end(self, life: Life) -> None:
        """From here on nothing that belongs to this life runs."""
        life.is_over = True
        life.kept = asyncio.all_tasks(self)
        ready, scheduled = _inside(self)
        for place, handle in enumerate(ready):
            if not handle.cancelled() and _life_of(handle) is life:
                life.unfinished.append(handle)
                ready[place] = asyncio.Handle(_nothing, (), self)
        for timer in scheduled:
            if _life_of(timer) is life:
                timer.cancel()

    def bury(self, life: Life) -> None:
        """The test is over: what is left of a killed program is taken apart in good order."""
        life.is_over = False
        ready, _ = _inside(self)
        ready.extend(life.unfinished)
        life.unfinished.clear()

    def pass_time(self, seconds: float | None) -> None:
        """Let the world go on until somebody has something to do, or so many seconds have passed."""
        env = self._world.env
        if seconds == 0:
            self._turns += 1
            if self._turns % TURNS_AT_ONCE:
                return
            seconds = TURNS_US / 1_000_000
        self._turns = 0
        until_us = math.inf if seconds is None else self._world.now_us + math.ceil(seconds * 1_000_000)
        self._woken = False
        while not self._woken and not self._is_broken and env.peek() <= min(until_us, self._limit_us):
            try:
                env.step()
            except BaseException:
                self._is_broken = True
                raise
        if self._woken:
            return
        if until_us > self._limit_us and (math.isinf(until_us) or not self._is_broken):
            self._is_broken = True
            raise Stalled(self._why())
        if math.isfinite(until_us) and until_us > env.now:
            if self._is_broken:
                # What is cancelled after a failure has its last words; the world is not asked any more.
                env._now = until_us
            else:
                env.run(until=until_us)

    def _why(self) -> str:
        found = [(task.get_name(), _place(task)) for task in asyncio.all_tasks(self)]
        waiting = sorted(f"{name}: {place}" for name, place in found if place)
        names = "".join(f"\n  {each}" for each in waiting[:TASKS_NAMED_MAX])
        return f"{self._limit_us / 1e6:g} s of virtual time are over, and these tasks still wait:{names}"

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect a Dovetail client to the broker of the world, whatever the address."""
        task = asyncio.current_task(self)
        if self.connect is None or task is None or not task.get_name().startswith(KEEPER):
            _refuse(f"a connection to {host}:{port}")
        return await self.connect(protocol_factory, task.get_name().removeprefix(KEEPER))

    async def create_server(self, *args: Any, **options: Any) -> NoReturn:
        """There is no network here."""
        _refuse("a server")

    async def create_unix_connection(self, *args: Any, **options: Any) -> NoReturn:
        """There is no network here."""
        _refuse("a connection")

    async def create_unix_server(self, *args: Any, **options: Any) -> NoReturn:
        """There is no network here."""
        _refuse("a server")

    async def create_datagram_endpoint(self, *args: Any, **options: Any) -> NoReturn:
        """There is no network here."""
        _refuse("a datagram")

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> NoReturn:
        """There is no network here."""
        _refuse(f"the address of {host}")

    async def sock_connect(self, *args: Any, **options: Any) -> NoReturn:
        """There is no network here."""
        _refuse("a connection")

    async def subprocess_exec(self, *args: Any, **options: Any) -> NoReturn:
        """Other processes live in another time."""
        _refuse("a process")

    async def subprocess_shell(self, *args: Any, **options: Any) -> NoReturn:
        """Other processes live in another time."""
        _refuse("a process")

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call it here and now: a thread would run in real time."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class _Selector(selectors.SelectSelector):
    """Lets the world's time pass where another selector would wait."""

    def __init__(self, pass_time: Callable[[float | None], None]) -> None:
        super().__init__()
        self._pass_time = pass_time

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found:
            return found
        self._pass_time(timeout)
        return super().select(0)


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(
        f"{what} was wanted, and a test in virtual time has none: only Dovetail's client connects, to the test's "
        "broker. Give the program a stand-in for whatever else it talks to"
    )


def _nothing() -> None:
    """What a killed program does."""


def _inside(loop: Any) -> tuple[Any, Any]:
    """What a loop is about to call, and what it will call at a time."""
    return loop._ready, loop._scheduled


def _life_of(handle: Any) -> Life | None:
    life: Life | None = handle._context.get(LIFE)
    return life


def _place(task: asyncio.Task[Any]) -> str:
    """Where in the program a task waits: the innermost line that is neither asyncio's nor ours; "" if there is none."""
    place = ""
    for frame in _frames(task.get_coro()):
        path = frame.f_code.co_filename
        if not path.startswith((_OURS, _ASYNCIO)):
            place = f"{os.path.relpath(path)}:{frame.f_lineno}, in {frame.f_code.co_name}"
    return place


def _frames(waiting: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of what it waits for, outermost first."""
    while waiting is not None:
        for kind, awaited in (("cr", "cr_await"), ("ag", "ag_await"), ("gi", "gi_yieldfrom")):
            frame = getattr(waiting, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                waiting = getattr(waiting, awaited)
                break
        else:
            return
