"""The default swarm: no seed may break a promise, and a seed decides everything."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from zlib import crc32

import pytest

from dovetail.sim.run import Verdict, run
from dovetail.sim.scenarios import plan_of
from dovetail.sim.swarm import swarm

SEEDS = int(os.environ.get("DOVETAIL_SIM_SEEDS", "10"))
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(8)  # one run's workers have the same
FRESH = int(os.environ.get("DOVETAIL_SIM_SEED", "0")) or crc32(RUN.encode()) >> 1
HASHES = "from dovetail.sim.run import run; from dovetail.sim.swarm import swarm; print(run(swarm({seed})).hash)"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_fixed_seed_keeps_every_promise(seed: int) -> None:
    result = run(swarm(seed))
    assert result.verdict is Verdict.OK, f"dovetail sim run --seed {seed}: {result.invariant} {result.text}"


@pytest.mark.parametrize("seed", range(FRESH, FRESH + SEEDS // 3))
def test_a_seed_nobody_has_seen_keeps_every_promise(seed: int) -> None:
    result = run(swarm(seed))
    assert result.verdict is Verdict.OK, f"dovetail sim run --seed {seed}: {result.invariant} {result.text}"


@pytest.mark.parametrize("name", ["swarm", "lanes", "topic-deleted", "dead-letters-replayed"])
def test_the_states_own_invariants_hold_after_every_single_step(name: str) -> None:
    result = run(plan_of(name, 5), check_every=1)
    assert result.verdict is Verdict.OK, f"{name}, seed 5: {result.invariant} {result.text}"


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1060, id="an idempotent producer is refused while the disk is full"),
        pytest.param(69, id="leases run out while their messages are read from a slow disk"),
        pytest.param(39, id="a repair finds again what it said is lost"),
        pytest.param(20029, id="a lease runs out unsent at a member who reads slowly"),
        pytest.param(112, id="an old client reads slowly, its lease runs out, and somebody looks at how it does"),
        pytest.param(133, id="what two members called poison is sought again, and fails once more"),
        pytest.param(1445, id="the clock goes back by minutes while messages are delayed"),
        pytest.param(10584, id="confirms that were held back are lost with the broker, and their place is forgotten"),
        pytest.param(10630, id="a seek is refused after messages were handed out behind its request"),
        pytest.param(88142, id="the last words to a connection that is over tell of a level"),
        pytest.param(990020, id="what was read before a jump is sent after the notice of it"),
        pytest.param(55374, id="the journal's last commit is damaged before another one vouches for it"),
        pytest.param(30732, id="an old client does not know which attempt it had"),
        pytest.param(30746, id="the power fails while the broker starts, before what its last life wrote is synced"),
        pytest.param(30773, id="a repair without checkpoints moves delayed messages again"),
        pytest.param(30808, id="a lag is looked at long after the broker was last heard of"),
    ],
)
def test_a_seed_that_once_failed_is_fine(seed: int) -> None:
    result = run(swarm(seed))
    assert result.verdict is Verdict.OK, f"dovetail sim run --seed {seed}: {result.invariant} {result.text}"


def test_a_seed_gives_the_same_hash_whatever_the_hash_seed_and_the_imports() -> None:
    hashes = set()
    for hash_seed, also in (("1", "pass"), ("2", "import decimal, asyncio, http.client")):
        code = f"{also}\n{HASHES.format(seed=0)}"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        hashes.add(done.stdout)
    assert len(hashes) == 1


def test_different_seeds_give_different_runs() -> None:
    assert run(swarm(1)).hash != run(swarm(14)).hash
