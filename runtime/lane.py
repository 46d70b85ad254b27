"""A thread that does one piece of disk work after the other, and tells the loop when each is done.

Promises  work is done in the order it was given; `done` is called in the loop's thread, with the result or the error.
Never     drops work, unless the loop is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

from dovetail.runtime.storage.disk import Disk, Task, run

Done = Callable[[object, BaseException | None], None]


class Lane:
    """One lane of the disk; an executor's round trip costs twice as much."""

    def __init__(self, name: str, disk: Disk, loop: asyncio.AbstractEventLoop) -> None:
        self._disk = disk
        self._loop = loop
        self._work: SimpleQueue[tuple[Task[object], Done] | None] = SimpleQueue()
        self._thread = Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Task[object], done: Done) -> None:
        """Have `task` done."""
        self._work.put((task, done))

    async def finish(self, task: Task[object]) -> object:
        """Have `task` done, and wait for its result."""
        future: asyncio.Future[object] = self._loop.create_future()

        def done(result: object, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.submit(task, done)
        return await future

    def close(self) -> None:
        """Wait for the work that was given; none is taken afterwards."""
        self._work.put(None)
        self._thread.join()

    def _live(self) -> None:
        while (work := self._work.get()) is not None:
            task, done = work
            result: object = None
            error: BaseException | None = None
            try:
                result = run(self._disk, task)
            except BaseException as trouble:
                error = trouble
            # The loop may be closed already: then nobody waits for the result.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, result, error)
