"""Where a program's processor time goes: its stack, looked at a few hundred times in each second of that time.

    python -m dovetail.runtime.bench.sampler OUT MODULE ARGUMENTS…

Runs the module as `python -m` would. SIGUSR1 begins the samples (anew); when the program ends they are written to OUT.

Promises  costs next to nothing, so that shares are those of the program alone; time in the kernel belongs to the
          function that asked for it; what each thread used in all is exact.
Never     counts calls, or time in which nothing of the program ran. Python looks at signals where a function begins and
          where a loop ends, so a sample may land in the next function: totals are surer than a function's own time.
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
WAITING = frozenset({"select", "_worker"})
"""Where an event loop and an idle thread of a pool wait."""


class Share(Struct, frozen=True):
    """A function, and the share of the time in which it ran itself, and in which it or something below it did."""

    function: str
    own: float
    total: float


class Profile(Struct, frozen=True):
    """Seconds of processor time by thread, and the shares of functions in all of it, largest own first."""

    samples: int
    seconds: dict[str, float]
    shares: tuple[Share, ...]

    @property
    def processor_s(self) -> float:
        return sum(self.seconds.values())


class Sampler:
    """Whenever the profiling timer fires, gives what each thread has used since to the functions on its stack."""

    def __init__(self) -> None:
        self._samples = 0
        self._used_ns: dict[int, int] = {}
        self._threads_ns: Counter[str] = Counter()
        self._own_ns: Counter[CodeType] = Counter()
        self._total_ns: Counter[CodeType] = Counter()

    def begin(self, *_: object) -> None:
        """Forget what was seen so far and start the timer."""
        self._samples = 0
        self._used_ns = {thread.ident: _used_ns(thread.ident) for thread in threading.enumerate() if thread.ident}
        for counter in (self._threads_ns, self._own_ns, self._total_ns):
            counter.clear()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def sample(self, _: int, frame: FrameType | None) -> None:
        """One look at every thread; `frame` is the main one's. Whoever waits just now is not who kept it busy."""
        self._samples += 1
        stacks = sys._current_frames()
        seen: list[tuple[FrameType, int]] = []
        all_ns = 0
        for thread in threading.enumerate():
            top = frame if thread is threading.main_thread() else stacks.get(thread.ident or 0)
            if top is not None and thread.ident is not None:
                spent_ns = self._spent_ns(thread.ident, thread.name)
                all_ns += spent_ns
                seen.append((top, spent_ns))
        busy = [each for each in seen if each[0].f_code.co_name not in WAITING] or seen[:1]
        busy_ns = sum(spent_ns for _, spent_ns in busy)
        for top, spent_ns in busy:
            self._spend(top, all_ns * spent_ns // busy_ns if busy_ns else all_ns // len(busy))

    def _spent_ns(self, thread: int, name: str) -> int:
        """What a thread has used since it was last looked at."""
        used_ns = _used_ns(thread)
        spent_ns = used_ns - self._used_ns.get(thread, 0)
        self._used_ns[thread] = used_ns
        self._threads_ns[name] += spent_ns
        return spent_ns

    def _spend(self, top: FrameType, spent_ns: int) -> None:
        stack = _stack(top)
        self._own_ns[stack[0]] += spent_ns
        for code in set(stack):
            self._total_ns[code] += spent_ns

    def profile(self) -> Profile:
        """What was seen."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        all_ns = max(1, self._threads_ns.total())
        shares = [Share(_name(code), self._own_ns[code] / all_ns, ns / all_ns) for code, ns in self._total_ns.items()]
        shares.sort(key=lambda share: (-share.own, -share.total, share.function))
        seconds = {thread: ns / 1e9 for thread, ns in self._threads_ns.most_common()}
        return Profile(self._samples, seconds, tuple(shares))


def _used_ns(thread: int) -> int:
    return time.clock_gettime_ns(time.pthread_getcpuclockid(thread))


def _stack(top: FrameType) -> list[CodeType]:
    found: list[CodeType] = []
    frame: FrameType | None = top
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
