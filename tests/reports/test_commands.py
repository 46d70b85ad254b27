"""`dovetail sim campaign` and `dovetail report`, from the first to the last, over the suite's session."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from dovetail.cli import app
from dovetail.reports import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

runner = CliRunner()


@pytest.fixture(autouse=True)
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands end the session that they began: here they are given one that goes on."""
    monkeypatch.setattr(session, "session", lambda master, **_: nullcontext(spark))


def test_a_campaign_is_run_and_reported_on(tmp_path: Path) -> None:
    place = tmp_path / "campaign"
    words = ["sim", "campaign", "--seeds", "2", "--seed", "1", "--scenario", "drop-during-ack", "--out", str(place)]
    done = runner.invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["runs"] == 2
    again = runner.invoke(app, ["sim", "campaign", "--out", str(place)])
    assert again.exit_code == 0, again.output
    assert "2 runs from seed 1" in again.output
    reported = runner.invoke(app, ["report", str(place), "--against", str(place), "--json"])
    assert reported.exit_code == 0, reported.output
    said = json.loads(reported.stdout)
    assert [each["agree"] for each in said["agreements"]] == [True, True]
    assert {each["verdict"] for each in said["compared"]} == {"too few runs"}
    assert (place / "report" / "index.html").stat().st_size > 10_000
    assert (place / "report" / "tables" / "latency.parquet").exists()
    other = runner.invoke(app, ["sim", "campaign", "--out", str(place), "--scenario", "swarm"])
    assert other.exit_code == 1
    assert "is a campaign with scenario drop-during-ack, not swarm" in other.output


def test_a_campaign_without_spark_says_the_same() -> None:
    chosen = ["--swarm", "chaos=2s,faults=none"]
    done = runner.invoke(app, ["sim", "campaign", "--quick", "--seeds", "1", "--jobs", "1", "--json", *chosen])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    only_the_last_power_loss = 1
    assert (said["runs"], said["faults"]) == (1, only_the_last_power_loss)
    wrong = runner.invoke(app, ["sim", "campaign", "--quick", *chosen, "--scenario", "flapping"])
    assert wrong.exit_code == 1
    assert "leave one of them out" in wrong.output
