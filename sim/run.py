"""One plan, run to its end: the verdict, what it rests on, and the trace's hash.

Promises  the same plan gives the same `Result`; whatever goes wrong is told apart: broken safety, broken liveness,
          a crash of the broker's own code.
Never     raises for what the broker did.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from msgspec import Struct

from dovetail.core.ids import Bug
from dovetail.core.trace import Row
from dovetail.sim import plan
from dovetail.sim.checkers import Violated
from dovetail.sim.trace import Trace
from dovetail.sim.world import Stuck, World

CHECK_EVERY = 32
"""The state's own invariants are looked at after each step in which more was decided than messages coming and going
(`broker.USUAL_RECORDS`), and after each so many of the others: each time costs as much as several steps."""


RARELY = (200_000, 20, 1_000)
"""When the collector looks for cycles during a run. A run keeps what it makes to its end, so that looking often finds
nothing and costs a fifth of the time."""


class Verdict(StrEnum):
    """How a run ended."""

    OK = "ok"
    DAMAGED = "damaged"
    """The broker found its disk damaged and stopped, as it should: the plan had damaged it."""
    CRASH = "crash"
    SAFETY = "safety"
    LIVENESS = "liveness"
    NONDETERMINISM = "nondeterminism"
    MISSED = "missed"
    """No promise was broken, but what the plan says must happen did not: the plan tests something else."""

    @property
    def is_fine(self) -> bool:
        return self in (Verdict.OK, Verdict.DAMAGED)

    @property
    def exit_code(self) -> int:
        """What a process that ran into this ends with."""
        codes = {
            Verdict.MISSED: 1,
            Verdict.CRASH: 3,
            Verdict.SAFETY: 4,
            Verdict.LIVENESS: 5,
            Verdict.NONDETERMINISM: 6,
        }
        return codes.get(self, 0)


class Result(Struct, frozen=True):
    """What came of a run."""

    name: str
    seed: int
    verdict: Verdict
    invariant: str = ""
    text: str = ""
    hash: str = ""
    rows: int = 0
    time_ms: int = 0
    steps: int = 0
    faults: int = 0
    delivered: int = 0
    redelivered: int = 0
    confirmed: int = 0
    settled: int = 0
    recovery_ms: int = 0
    marks: dict[str, int] = {}
    evaluated: dict[str, int] = {}


def run(setup: plan.Plan, keep: Callable[[Row], None] | None = None, check_every: int = CHECK_EVERY) -> Result:
    """Run a plan."""
    with _rare_collections():
        return _run(setup, keep, check_every)


@contextmanager
def _rare_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _run(setup: plan.Plan, keep: Callable[[Row], None] | None, check_every: int) -> Result:
    trace = Trace(keep)
    world = World(setup, trace, check_every)
    verdict, invariant, text = Verdict.OK, "", ""
    try:
        world.run()
        if world.broker.is_damaged:
            if setup.expect == "ok":
                raise Violated("I-RECOVERY", "the broker gave its disk up, which it should have repaired")
            verdict = Verdict.DAMAGED
        text = _missed(world)
        verdict = Verdict.MISSED if text else verdict
    except Violated as broken:
        verdict, invariant, text = Verdict.SAFETY, broken.invariant, broken.text
    except Stuck as stuck:
        verdict, invariant, text = Verdict.LIVENESS, "I-DRAIN", str(stuck)
    except Bug as bug:
        verdict, invariant, text = Verdict.CRASH, str(bug).partition(":")[0], str(bug)
    except Exception as error:
        # SimPy raises a copy of what ended a process: the original is its cause.
        cause = error.__cause__ or error
        last = traceback.extract_tb(cause.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({last.filename.rpartition('/')[2]}:{last.lineno})"
        verdict, invariant = Verdict.CRASH, type(error).__name__
    if not verdict.is_fine:
        world.note("world", "violated", fault=invariant, detail=text)
    return _result(world, verdict, invariant, text)


def _missed(world: World) -> str:
    """What the plan says must happen and did not, in words."""
    if world.plan.expect == "damaged" and not world.broker.is_damaged:
        return "the broker was to find its disk damaged, and ended well"
    left = [name for name in world.plan.reaches if name not in world.marks]
    taken = ", ".join(sorted(world.marks))
    return f"the run did not reach: {', '.join(left)}; it did reach: {taken}" if left else ""


def _result(world: World, verdict: Verdict, invariant: str, text: str) -> Result:
    books = world.books
    return Result(
        world.plan.name,
        world.plan.seed,
        verdict,
        invariant,
        text,
        world.trace.hash,
        world.trace.count,
        world.now_us // 1000,
        world.steps,
        world.faults,
        books.deliveries.delivered,
        books.deliveries.redelivered,
        books.contents.confirmed,
        books.settles.settled,
        world.recovery_us // 1000,
        dict(sorted(world.marks.items())),
        dict(sorted(books.ground.evaluated.items())),
    )
