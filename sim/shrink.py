"""From a failing run to the smallest plan that still fails the same way, and to the test that keeps it.

Promises  what is left fails with the same invariant; taking away any single event of it makes the failure go (unless
          the budget ran out first); the same plan shrinks to the same plan.
Never     changes what is left: events keep their times, and everybody else their chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from dovetail.sim import plan
from dovetail.sim.run import Result, Verdict, run

BUDGET_S = 110.0
COARSE_PARTS = 8
"""Into so many parts a schedule is cut at first: a client that is left out then makes all finer cuts cheaper."""


class Shrunk(msgspec.Struct, frozen=True):
    """The smallest failing plan that was found, its result, and how many runs that took."""

    plan: plan.Plan
    result: Result
    runs: int


def shrink(
    setup: plan.Plan, budget_s: float = BUDGET_S, progress: Callable[[int, int], None] | None = None
) -> Shrunk | None:
    """Make a failing plan smaller; None when it does not fail."""
    first = run(setup)
    if first.verdict.is_fine or first.verdict is Verdict.MISSED:
        return None
    hunt = _Hunt(setup, first, time.monotonic() + budget_s, progress)
    hunt.cut_the_end()
    hunt.shrink_extras()
    hunt.shrink_events(max(1, len(hunt.best.events) // COARSE_PARTS))
    hunt.shrink_crowd()
    hunt.shrink_events()
    hunt.shrink_crowd()
    hunt.shrink_counts()
    hunt.shrink_events()
    return Shrunk(hunt.best, hunt.result, hunt.runs)


class _Hunt:
    def __init__(
        self, setup: plan.Plan, result: Result, until_s: float, progress: Callable[[int, int], None] | None
    ) -> None:
        self.best = setup
        self.result = result
        self.runs = 1
        self._until_s = until_s
        self._progress = progress

    def _try(self, candidate: plan.Plan) -> bool:
        """Whether a smaller plan fails the same way; if so it is the best one now."""
        if time.monotonic() > self._until_s:
            return False
        self.runs += 1
        result = run(candidate)
        same = result.verdict is self.result.verdict and result.invariant == self.result.invariant
        if same:
            self.best, self.result = candidate, result
        if self._progress is not None:
            self._progress(self.runs, len(self.best.events))
        return same

    def cut_the_end(self) -> None:
        """What came after the failure had no part in it; and the sooner all is healed, the sooner a run is over."""
        failed_ms = self.result.time_ms
        events = tuple(event for event in self.best.events if event.at_ms <= failed_ms)
        chaos_ms = min(self.best.chaos_ms, failed_ms + 1)
        if len(events) < len(self.best.events) or chaos_ms < self.best.chaos_ms:
            self._try(replace(self.best, events=events, chaos_ms=chaos_ms))

    def shrink_events(self, least: int = 1) -> None:
        """Delta debugging: leave out ever smaller parts of the schedule, of `least` events at the end, as long as
        anything goes."""
        size = len(self.best.events)
        while size >= least:
            at, gone = 0, False
            while at < len(self.best.events) and time.monotonic() < self._until_s:
                events = self.best.events
                if self._try(replace(self.best, events=events[:at] + events[at + size :])):
                    gone = True
                else:
                    at += size
            if gone:
                self.cut_the_end()
            size = size // 2 if size > 1 or not gone else 1
            if size == 1 and time.monotonic() > self._until_s:
                return

    def shrink_crowd(self) -> None:
        """Leave out clients, one by one."""
        for producer in self.best.producers:
            others = tuple(event for event in self.best.events if getattr(event, "who", "") != producer.name)
            if len(others) < len(self.best.events):
                self._try(replace(self.best, events=others))
        for consumer in self.best.consumers:
            rest = tuple(each for each in self.best.consumers if each is not consumer)
            events = tuple(event for event in self.best.events if getattr(event, "who", "") != consumer.name)
            if rest:
                self._try(replace(self.best, consumers=rest, events=events))
        busy = {event.who for event in self.best.events if isinstance(event, plan.Publish)}
        idle = tuple(each for each in self.best.producers if each.name in busy)
        if len(idle) < len(self.best.producers):
            named = {getattr(event, "who", "") for event in self.best.events}
            if all(each.name in busy or each.name not in named for each in self.best.producers):
                self._try(replace(self.best, producers=idle))

    def shrink_counts(self) -> None:
        """Fewer messages per publish."""
        for at, event in enumerate(self.best.events):
            for count in (1, 4):
                if isinstance(event, plan.Publish) and event.count > count:
                    events = list(self.best.events)
                    events[at] = replace(event, count=count)
                    if self._try(replace(self.best, events=tuple(events))):
                        break

    def shrink_extras(self) -> None:
        """Without somebody who reads along, and without messages that nobody can process."""
        if self.best.reads_along:
            self._try(replace(self.best, reads_along=False))
        if self.best.poison or self.best.toxic:
            self._try(replace(self.best, poison=0, toxic=0))


def as_test(setup: plan.Plan, result: Result) -> str:
    """A ready pytest case that holds the plan, in the form of the project's regression tests."""
    name = "".join(char if char.isalnum() else "_" for char in result.invariant.lower()).strip("_")
    return (
        f'"""Found by the simulator: {result.invariant}: {_one_line(result.text)}"""\n\n'
        "from dovetail.sim import plan\n"
        "from dovetail.sim.run import run\n\n"
        f"PLAN = {as_literal(setup, 0)}\n\n\n"
        f"def test_{name}_holds_in_the_plan_of_seed_{setup.seed}() -> None:\n"
        "    result = run(PLAN)\n"
        "    assert result.verdict.is_fine, result.text\n"
    )


def as_literal(value: object, depth: int) -> str:
    """Python source of a plan or a part of it, without what is as by default."""
    if isinstance(value, tuple):
        inner = "".join(f"{'    ' * (depth + 1)}{as_literal(each, depth + 1)},\n" for each in value)
        return f"(\n{inner}{'    ' * depth})" if value else "()"
    if not isinstance(value, msgspec.Struct):
        return repr(value)
    parts = []
    for field in msgspec.structs.fields(value):
        content = getattr(value, field.name)
        if field.default is msgspec.NODEFAULT or content != field.default:
            parts.append(f"{field.name}={as_literal(content, depth + 1)}")
    return f"plan.{type(value).__name__}({', '.join(parts)})"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace('"', "'")[:300]
