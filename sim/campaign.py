"""Many seeds, and what they say together: `run_seed` is one of them, `quick` is all of them on this machine's cores.

Promises  results come in the order of seeds whatever order they ran in; a seed that fails is run once more, and one
          that then gives another hash is nondeterminism, which is worse than any bug it found; a campaign as a Spark
          job (`reports/campaign.py`) runs the same `run_seed` and ends with the same `Summary`.
Never     shares anything between two runs but the code; never raises for what a seed did.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dovetail.core.trace import Row
from dovetail.sim import marks
from dovetail.sim.choices import SWARM
from dovetail.sim.run import Result, Verdict, run
from dovetail.sim.scenarios import plan_of

SEEDS_FOR_ALL = 50
"""So many runs of the default swarm put every promise to the test."""


def orders(names: Iterable[str], seed: int, seeds: int) -> list[tuple[str, int]]:
    """What a campaign runs: each plan with each seed."""
    chosen = list(names)
    return [(name, number) for number in range(seed, seed + seeds) for name in chosen]


def run_seed(order: tuple[str, int], keep: Callable[[Row], None] | None = None) -> Result:
    """One run of a campaign, run again if it fails; `keep` sees the rows of the first."""
    name, seed = order
    try:
        return _run_seed(name, seed, keep)
    except Exception as error:
        # The world itself, or the plan, is broken: that is a finding of this seed and no reason to end the others.
        text = f"{type(error).__name__}: {error}"
        return Result(name, seed, Verdict.CRASH, type(error).__name__, text)


def _run_seed(name: str, seed: int, keep: Callable[[Row], None] | None) -> Result:
    result = run(plan_of(name, seed), keep)
    if not result.verdict.is_fine:
        again = run(plan_of(name, seed))
        if again.hash != result.hash:
            text = f"two runs gave {result.hash} and {again.hash}"
            return replace(result, verdict=Verdict.NONDETERMINISM, invariant="I-SAME", text=text)
    return result


def reproduction(result: Result) -> str:
    """The command that runs a seed again and shows it."""
    return f"dovetail sim replay {result.seed} --scenario {result.name}"


def quick(chosen: Iterable[tuple[str, int]], jobs: int = 0) -> Iterator[Result]:
    """Run plans by name and seed on the cores of this machine, without Spark and without a trace; results in order."""
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        yield from map(run_seed, chosen)
        return
    # Spawned, not forked: each process starts as a user's would.
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=100) as pool:
        for data in pool.imap(_run_packed, chosen):
            yield msgspec.msgpack.decode(data, type=Result)


def _run_packed(order: tuple[str, int]) -> bytes:
    return msgspec.msgpack.encode(run_seed(order))


class Summary(Struct, frozen=True):
    """What a campaign found."""

    runs: int
    failures: tuple[Result, ...]
    delivered: int
    redelivered: int
    confirmed: int
    faults: int
    steps: int
    simulated_ms: int
    marks: dict[str, int]
    evaluated: dict[str, int]
    unmarked: tuple[str, ...]
    """Rare paths that no run took: these were not tested."""
    unevaluated: tuple[str, ...]
    """Promises that no run put to the test."""

    is_swarm: bool = False
    """All runs were of the default swarm, which must put every promise to the test."""

    @property
    def exit_code(self) -> int:
        """The worst that happened; a promise that so many runs never put to the test is not kept."""
        untested = self.is_swarm and self.runs >= SEEDS_FOR_ALL and bool(self.unevaluated)
        worst = max((failure.verdict.exit_code for failure in self.failures), default=0)
        return worst or (Verdict.SAFETY.exit_code if untested else 0)


def summary(results: Iterable[Result]) -> Summary:
    """Add up a campaign."""
    found = list(results)
    seen = _total(result.marks for result in found)
    evaluated = _total(result.evaluated for result in found)
    return Summary(
        len(found),
        tuple(result for result in found if not result.verdict.is_fine),
        sum(result.delivered for result in found),
        sum(result.redelivered for result in found),
        sum(result.confirmed for result in found),
        sum(result.faults for result in found),
        sum(result.steps for result in found),
        sum(result.time_ms for result in found),
        seen,
        evaluated,
        tuple(name for name in marks.REQUIRED if name not in seen),
        tuple(name for name in marks.PROMISES if name not in evaluated),
        all(result.name == SWARM for result in found),
    )


def _total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))
