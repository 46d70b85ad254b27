"""From a failing run of hundreds of events to a few, as a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
from dovetail.sim.mutants import hook
from dovetail.sim.mutants.zoo import ZOO
hook.install(next(each for each in ZOO if each.name == "floor-one-behind"))
from dovetail.sim.run import run
from dovetail.sim.scenarios import plan_of
from dovetail.sim.shrink import as_test, shrink
setup = plan_of("crash-after-settle", 0)
found = shrink(setup, 60.0)
assert len(setup.events) > 200
assert len(found.plan.events) < 30, len(found.plan.events)
assert setup.reads_along and not found.plan.reads_along
open({path!r}, "w").write(as_test(found.plan, found.result))
"""


def test_a_failing_run_shrinks_to_a_few_events_and_becomes_a_test(tmp_path: Path) -> None:
    path = tmp_path / "test_found.py"
    done = subprocess.run([sys.executable, "-c", CODE.format(path=str(path))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The broker without the mistake passes the test that was written.
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)], capture_output=True, text=True
    )
    assert "1 passed" in ran.stdout, ran.stdout + path.read_text()
