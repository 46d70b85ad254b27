"""The storage engine's own benchmark, run as the program that it is.

Promises  its lines as it prints them, from a scratch directory that is removed.
Never     knows how it measures: its command line is all that is used.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from dovetail.runtime.bench.processes import BenchFailed

LIMIT_S = 600.0
FULL = ("--messages", "200000", "--topics", "2000", "--commits", "300")
QUICK = ("--messages", "1200", "--topics", "10", "--commits", "5")


def run(parent: Path | None, *, quick: bool) -> list[str]:
    """What it has to say, a figure a line."""
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-", dir=parent) as scratch:
        command = [sys.executable, "-m", "dovetail.runtime.storage.bench", scratch, *(QUICK if quick else FULL)]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise BenchFailed(f"the storage engine's benchmark took longer than {LIMIT_S:g} s") from None
    if ran.returncode != 0:
        raise BenchFailed(f"the storage engine's benchmark failed: {ran.stderr.strip()[-2000:]}")
    return ran.stdout.splitlines()
