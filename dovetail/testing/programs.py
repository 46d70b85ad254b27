"""Programs that can be killed: from one instant on nothing of them runs any more, as after `kill -9`.

A life is one run of a program. Every task, timer and connection that the program makes belongs to the life in whose
context it was made. When the life ends, what it still wanted to do is kept from running: no `except`, no `finally`,
no last message.

Promises  a program that is started again remembers nothing but what its `main` was given.
Never     decides when: the test does, or chance.
"""

from __future__ import annotations

from asyncio import Handle, Task
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

Main = Callable[[], Coroutine[Any, Any, object]]


class Life:
    """One run of a program."""

    def __init__(self) -> None:
        self.is_over = False
        self.unfinished: list[Handle] = []
        """What it would have done next."""
        self.kept: set[Task[Any]] = set()
        """Tasks that were there when it ended, its own among them: none is taken apart before the test ends."""


LIFE: ContextVar[Life | None] = ContextVar("LIFE", default=None)
"""Whose code runs; None: the test's own."""


class Program:
    """Made by `Broker.start`: what a process is in production."""

    def __init__(self, name: str, main: Main) -> None:
        self.name = name
        self.main = main
        self.life: Life | None = None
        self.task: Task[object] | None = None
        self.starts = 0
        """How often it was started."""

    @property
    def is_running(self) -> bool:
        """Whether it was started, has not been killed since, and has not come to its end."""
        return self.life is not None and self.task is not None and not self.task.done()

    def __repr__(self) -> str:
        return f"<program {self.name}, started {self.starts} times>"
