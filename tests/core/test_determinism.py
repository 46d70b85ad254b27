"""The same inputs give the same records and effects in every process, whatever the seed of its hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import hashlib
from tests.core import actions, world
real, digest = world.step, hashlib.sha256()
def recorded(state, now, inputs):
    result = real(state, now, inputs)
    digest.update(repr(result[1:]).encode())
    return result
world.step = recorded
for seed in range(10):
    actions.run(seed, 80)
print(digest.hexdigest())
"""


def digest(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_records_and_effects_do_not_depend_on_the_hash_seed() -> None:
    digests = {digest(seed) for seed in ("0", "4242")}
    assert len(digests) == 1
    assert len(digests.pop()) == 64
