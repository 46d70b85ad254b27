"""Where a program's processor time goes: its stack, looked at a few hundred times in each second of that time.

    python -m dovetail.runtime.bench.sampler OUT MODULE ARGUMENTS…

Runs the module as `python -m` would. SIGUSR1 begins the samples (anew); when the program ends they are written to OUT.

Promises  costs next to nothing, so that shares are those of the program alone; while the main thread waits, the time
          belongs to what the other threads do.
Never     counts calls, or time in which nothing of the program ran.
"""

from __future__ import annotations

import runpy
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import msgspec
from msgspec import Struct

INTERVAL_S = 0.002


class Share(Struct, frozen=True):
    """A function, and the share of samples in which it ran itself, and in which it or something below it did."""

    function: str
    own: float
    total: float


class Profile(Struct, frozen=True):
    """Shares, largest own first, of `processor_s` seconds of processor time."""

    samples: int
    processor_s: float
    shares: tuple[Share, ...]


class Sampler:
    """Counts the functions on the stack whenever the profiling timer fires."""

    def __init__(self) -> None:
        self._own: Counter[CodeType] = Counter()
        self._total: Counter[CodeType] = Counter()
        self._begun_s = 0.0

    def begin(self, *_: object) -> None:
        """Forget what was seen so far and start the timer."""
        self._own.clear()
        self._total.clear()
        self._begun_s = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def sample(self, _: int, frame: FrameType | None) -> None:
        """One look at the main thread; if that waits, at a thread that does not."""
        top = frame
        if frame is not None and frame.f_code.co_name == "select":
            top = _busy_thread() or frame
        stack = _stack(top)
        self._own.update(stack[:1])
        self._total.update(set(stack))

    def profile(self) -> Profile:
        """What was seen."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        samples = self._own.total()
        count = max(1, samples)
        shares = [Share(_name(code), self._own[code] / count, total / count) for code, total in self._total.items()]
        shares.sort(key=lambda share: (-share.own, -share.total, share.function))
        return Profile(samples, time.process_time() - self._begun_s, tuple(shares))


def _busy_thread() -> FrameType | None:
    """The top frame of another thread that has something to do: an idle one of a pool waits in `_worker`."""
    main = threading.main_thread().ident
    found = sys._current_frames()
    return next((top for thread, top in found.items() if thread != main and top.f_code.co_name != "_worker"), None)


def _stack(frame: FrameType | None) -> list[CodeType]:
    found: list[CodeType] = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return found


def _name(code: CodeType) -> str:
    return f"{'/'.join(Path(code.co_filename).parts[-2:])}:{code.co_qualname}"


def read_profile(path: Path) -> Profile:
    """What a sampled program wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Profile)


def main() -> None:
    """Run the module that the arguments name, under a sampler."""
    out, module, *arguments = sys.argv[1:]
    sampler = Sampler()
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.signal(signal.SIGUSR1, sampler.begin)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        Path(out).write_bytes(msgspec.json.encode(sampler.profile()))


if __name__ == "__main__":
    main()
