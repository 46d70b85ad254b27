"""The hunt: run plans against a mutant, each mutant in a process of its own, until something notices.

Promises  a mutant counts as caught only by a verdict that the unchanged broker does not get on the same plan, or by not
          coming to an end; the row says by what, after how many runs and in which time.
Never     changes the process that asks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import cache

import msgspec
from msgspec import Struct

from dovetail.sim.mutants.mutant import Mutant

BUDGET_S = 120.0
"""How much processor time to spend on looking for one mutant."""
WAIT_S = 3_600.0
"""How long to wait for that on a busy machine; a hunt that is not over then has hung."""
SEEDS = 20
FIRST_SCENARIOS = (
    "crash-after-confirm",
    "crash-after-settle",
    "zombie-member",
    "rebalance-storm",
    "crash-during-recovery",
    "memory-and-consumer-crashes",
    "damaged-checkpoint",
    "consumer-partition",
    "drop-during-ack",
    "disk-full-during-recovery",
)


class Caught(Struct, frozen=True):
    """What came of the hunt for one mutant; `by` is empty when it got away."""

    mutant: Mutant
    by: str
    verdict: str = ""
    where: str = ""
    runs: int = 0
    seconds: float = 0.0
    text: str = ""


def course(mutant: Mutant, seeds: int) -> list[tuple[str, int]]:
    """The plans to run, the most telling first."""
    first = [(name, seed) for seed in range(3) for name in mutant.scenarios]
    rounds: list[tuple[str, int]] = []
    for seed in range(seeds):
        rounds.append(("swarm", seed))
        rounds.append((FIRST_SCENARIOS[seed % len(FIRST_SCENARIOS)], seed))
    return first + rounds


def hunt(mutant: Mutant, seeds: int = SEEDS, budget_s: float = BUDGET_S) -> Caught:
    """Look for one mutant."""
    order = msgspec.json.encode({"mutant": mutant, "course": course(mutant, seeds), "budget_s": budget_s})
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dovetail.sim.mutants.child"],
            input=order,
            capture_output=True,
            timeout=WAIT_S,
        )
    except subprocess.TimeoutExpired:
        return Caught(mutant, "no end", "hang", seconds=time.monotonic() - began)
    seconds = time.monotonic() - began
    if done.returncode != 0:
        return Caught(mutant, "does not start", "crash", seconds=seconds, text=done.stderr.decode()[-300:])
    found = json.loads(done.stdout.splitlines()[-1])
    if found["by"] and not _is_fine_unchanged(*found["where"].split()):
        return Caught(mutant, "", runs=found["runs"], seconds=seconds, text="the unchanged broker fails there too")
    return Caught(mutant, **found, seconds=seconds)


@cache
def _is_fine_unchanged(name: str, seed: str) -> bool:
    from dovetail.sim.run import run
    from dovetail.sim.scenarios import plan_of

    return run(plan_of(name, int(seed))).verdict.is_fine
