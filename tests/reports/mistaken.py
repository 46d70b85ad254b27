"""One run of the broker with a mistake of the zoo planted into it, in a process of its own, that keeps its trace.

python -m tests.reports.mistaken MUTANT SCENARIO SEED FILE: prints the checkers' result as JSON.
"""

from __future__ import annotations

import sys

import msgspec

from dovetail.sim.mutants import hook
from dovetail.sim.mutants.zoo import ZOO


def main() -> None:
    """Plant, run, keep, say."""
    name, scenario, seed, path = sys.argv[1:]
    hook.install(next(mutant for mutant in ZOO if mutant.name == name))
    from dovetail.sim.run import run
    from dovetail.sim.scenarios import plan_of
    from dovetail.sim.trace import ParquetTrace

    plan = plan_of(scenario, int(seed))
    with ParquetTrace(path, plan.name, plan.seed) as file:
        result = run(plan, file.keep)
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
