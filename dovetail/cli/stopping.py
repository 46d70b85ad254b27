"""Being told to stop, by SIGINT (Ctrl-C) or SIGTERM, from a command's first moment to its last.

Promises  a signal that comes before there is a loop is remembered; SIGINT counts even where whoever started us has it
          ignored, as a shell does for what it runs in the background.
Never     ends anything: it is looked at.
"""

from __future__ import annotations

import asyncio
import signal
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """`with Stopping() as stopping:` hears the signals; in the loop, `hear_in_loop` and then `wait`."""

    def __init__(self) -> None:
        self.asked = False
        """Whether somebody has told us to stop; threads may look too."""
        self._wakes: asyncio.Event | None = None
        self._before = {number: signal.getsignal(number) for number in SIGNALS}

    def __enter__(self) -> Stopping:
        for number in SIGNALS:
            signal.signal(number, self._heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hear_in_loop(self) -> None:
        """From now on a signal wakes the running loop."""
        self._wakes = asyncio.Event()
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._heard)
        if self.asked:
            self._wakes.set()

    async def wait(self) -> None:
        """Return when we were told to stop."""
        assert self._wakes is not None, "hear_in_loop comes first"
        await self._wakes.wait()

    def _heard(self, number: int = 0, frame: FrameType | None = None) -> None:
        self.asked = True
        if self._wakes is not None:
            self._wakes.set()
