"""Work that messages must not wait for, such as browsing: done in small pieces, beside everything else.

Promises  one piece at a time, whoever asks for how many; after each the loop is free, and while messages come and go
          for three times as long as the piece took: all browsing together has a quarter of it at most.
Never     cuts work into pieces itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType

RESTS = 3


class Aside:
    """`async with aside:` around one piece, which awaits nothing. `steps` counts what the broker has decided."""

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._seen = 0
        self._begun = 0.0
        self._one = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._one.acquire()
        self._begun = time.thread_time()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        took = time.thread_time() - self._begun
        seen, self._seen = self._seen, self._steps()
        try:
            if error is None:
                await asyncio.sleep(took * RESTS if seen != self._seen else 0)
        finally:
            self._one.release()
