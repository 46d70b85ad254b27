"""An event loop whose clock is the simulator's: it never waits, it goes to when the next thing happens.

Promises  what is due in the world and what is due in the loop happen in the order of their times; a task that sleeps
          for an hour is back at once; threads are not used, so that a run depends on nothing but its seed.
Never     opens a socket: the only place to connect to is the broker of the world.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from dovetail.sim.world import World

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Connect = Callable[[Callable[[], asyncio.Protocol], str], Awaitable[tuple[asyncio.Transport, asyncio.Protocol]]]
"""Connects a protocol, under a name, to the broker of the world."""
TASKS_NAMED_MAX = 10


class Stalled(Exception):
    """The test waits for something that does not come; the text says which tasks wait."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """`connect` is set by whoever has a broker to connect to."""

    def __init__(self, world: World, limit_us: int) -> None:
        self.connect: Connect | None = None
        self._world = world
        self._limit_us = limit_us
        self._woken = False
        self._is_broken = False
        super().__init__(_Selector(self.pass_time))

    def time(self) -> float:
        """The world's time in seconds."""
        return self._world.now_us / 1_000_000

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As any loop; the world stands still until it was called."""
        self._woken = True
        return super().call_soon(callback, *args, context=context)

    def pass_time(self, seconds: float | None) -> None:
        """Let the world go on until somebody has something to do, or so many seconds have passed."""
        env = self._world.env
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
        if until_us > self._limit_us and not self._is_broken:
            self._is_broken = True
            raise Stalled(self._why())
        if math.isfinite(until_us) and until_us > env.now:
            if self._is_broken:
                # What is cancelled after a failure has its last words; the world is not asked any more.
                env._now = until_us
            else:
                env.run(until=until_us)

    def _why(self) -> str:
        waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
        names = ", ".join(waiting[:TASKS_NAMED_MAX])
        return f"{self._limit_us / 1e6:g} s of virtual time are over, and these tasks still wait: {names}"

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect to the broker of the world, whatever the address."""
        if self.connect is None:
            raise ConnectionRefusedError(f"{host}:{port}: there is no broker in this world")
        task = asyncio.current_task(self)
        return await self.connect(protocol_factory, task.get_name() if task is not None else f"{host}:{port}")

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
        if found or timeout == 0:
            return found
        self._pass_time(timeout)
        return super().select(0)
