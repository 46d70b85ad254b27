"""The process in which one mutant lives: plants it, runs plans, says what noticed."""

from __future__ import annotations

import json
import signal
import sys
import time

import msgspec

from dovetail.sim.mutants import hook
from dovetail.sim.mutants.mutant import Mutant

RUN_S = 60
"""A run that uses more processor time than this will not come to an end, however busy the machine is."""


class _Order(msgspec.Struct):
    mutant: Mutant
    course: list[tuple[str, int]]
    budget_s: float


def _no_end(*_: object) -> None:
    raise TimeoutError("the run does not come to an end")


def main() -> None:
    """Read an order, carry it out, print one line of JSON."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=_Order)
    hook.install(order.mutant)
    from dovetail.sim.run import run
    from dovetail.sim.scenarios import plan_of

    signal.signal(signal.SIGPROF, _no_end)
    until_s = time.process_time() + order.budget_s
    runs = 0
    for name, seed in order.course:
        if time.process_time() > until_s:
            break
        runs += 1
        signal.setitimer(signal.ITIMER_PROF, RUN_S)
        result = run(plan_of(name, seed))
        if not result.verdict.is_fine:
            found = {
                "by": result.invariant,
                "verdict": str(result.verdict),
                "where": f"{name} {seed}",
                "runs": runs,
                "text": result.text[:300],
            }
            print(json.dumps(found))
            return
    print(json.dumps({"by": "", "runs": runs}))


if __name__ == "__main__":
    main()
