"""`dovetail sim …`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from dovetail.cli import app as dovetail
from dovetail.cli.sim import app
from dovetail.sim.campaign import SEEDS_FOR_ALL, quick, summary
from dovetail.sim.marks import PROMISES
from dovetail.sim.run import Result, Verdict

runner = CliRunner()


def test_a_run_says_its_verdict_and_its_hash_and_ends_with_zero() -> None:
    done = runner.invoke(app, ["run", "--scenario", "drop-during-ack", "--seed", "2", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["verdict"] == "ok"
    assert len(json.loads(done.stdout)["hash"]) == 32


def test_a_scenario_that_does_not_exist_is_wrong_usage() -> None:
    done = runner.invoke(app, ["run", "--scenario", "no-such", "--seed", "2"])
    assert done.exit_code == 1
    assert "sim scenarios" in done.output


@pytest.mark.parametrize(
    "words", [["run", "--no-such"], ["no-such"], ["--no-such"], ["run", "--seed", "x"], ["replay"]]
)
def test_wrong_usage_ends_with_one_and_not_with_the_code_of_a_finding(words: list[str]) -> None:
    assert runner.invoke(dovetail, ["sim", *words]).exit_code == 1
    assert runner.invoke(dovetail, ["no-such"]).exit_code == 2


def test_a_seed_is_replayed_as_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = runner.invoke(app, ["replay", "10", "--page", str(page)])
    assert done.exit_code == 0, done.output
    assert "swarm, seed 10" in page.read_text()


def test_a_page_that_can_not_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    for words in (["run"], ["replay", "10"], ["shrink"]):
        done = runner.invoke(app, [*words, "--page", str(tmp_path / "missing" / "page.html")])
        assert done.exit_code == 1, done.output
        assert "can't write" in done.output


def test_each_kind_of_failure_has_its_exit_code() -> None:
    codes = {verdict: verdict.exit_code for verdict in Verdict}
    assert codes == {"ok": 0, "damaged": 0, "missed": 1, "crash": 3, "safety": 4, "liveness": 5, "nondeterminism": 6}


def test_a_campaign_says_what_it_did_not_reach() -> None:
    found = summary(quick([("swarm", 10), ("long-pause", 1)], jobs=1))
    assert found.runs == 2
    assert found.exit_code == 0
    assert "recovery: cut" in found.unmarked
    bad = summary([Result("swarm", 1, Verdict.LIVENESS), Result("swarm", 2, Verdict.SAFETY)])
    assert bad.exit_code == 5
    assert "I-LOST" in bad.unevaluated


def test_a_promise_that_a_whole_campaign_never_put_to_the_test_counts_as_broken() -> None:
    fine = [Result("swarm", seed, Verdict.OK, evaluated=dict.fromkeys(PROMISES, 1)) for seed in range(SEEDS_FOR_ALL)]
    idle = [replace(each, evaluated={"I-LOST": 1}) for each in fine]
    assert summary(fine).exit_code == 0
    assert summary(idle).exit_code == 4
    assert summary(idle[1:]).exit_code == 0
    assert summary([replace(each, name="long-pause") for each in idle]).exit_code == 0
