"""`dovetail bench` as people call it."""

from pathlib import Path

import msgspec
from typer.testing import CliRunner

from dovetail.cli.bench import app
from dovetail.runtime.bench import run


def test_bench_prints_what_it_measured_as_json(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["--quick", "--only", "joined", "--data", str(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.output
    results = msgspec.json.decode(ran.stdout.splitlines()[-1], type=run.Results)
    assert [each.load.joined for each in results.publish] == [True]


def test_bench_core_prints_parts_and_storage(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["core", "--quick", "--data", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert "core: publish, store, deliver, settle a batch of 100" in ran.stdout
    assert "append, 100 partitions" in ran.stdout


def test_bench_pauses_prints_one_line_a_checkpoint(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["pauses", "--leases", "40", "--rounds", "2", "--data", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert "40 leases held" in ran.stdout
    assert "checkpoint 2" in ran.stdout


def test_bench_backlog_says_what_a_waiting_message_costs(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["backlog", "--messages", "200", "--data", str(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.output
    assert msgspec.json.decode(ran.stdout.splitlines()[-1])["messages"] == 200


def test_a_choice_that_leaves_nothing_names_what_there_is() -> None:
    ran = CliRunner().invoke(app, ["--only", "no such load"])
    assert ran.exit_code == 1
    assert "batches of 100" in ran.output
