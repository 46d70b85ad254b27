"""A campaign as a Spark job: failing seeds are rows, what was interrupted is gone on with, nothing is there twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dovetail.core.trace import Row
from dovetail.reports import dataset
from dovetail.reports.campaign import manifest_for, pieces, results, run_campaign, seeds_per_task
from dovetail.reports.dataset import BadDataset, open_dataset
from dovetail.sim.run import Result, Verdict
from dovetail.sim.trace import PIECE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Runner = Callable[[tuple[str, int], Callable[[Row], None]], Result]


def a_runner(diary: Path, failing: int = -1) -> Runner:
    """Runs of three rows; each seed that is run leaves a file behind."""

    def run(order: tuple[str, int], keep: Callable[[Row], None]) -> Result:
        name, seed = order
        (diary / f"{seed}-{len(os.listdir(diary))}").touch()
        for seq in range(3):
            keep(Row(seq, seq * 1000, "world", "fault", fault="Crash", values=(seq,)))
        return Result(
            name, seed, Verdict.SAFETY if seed == failing else Verdict.OK, "I-LOST" if seed == failing else ""
        )

    return run


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    place = tmp_path / "diary"
    place.mkdir()
    return place


def test_a_campaign_goes_on_where_it_was_and_runs_no_seed_twice(
    spark: SparkSession, tmp_path: Path, diary: Path
) -> None:
    path = tmp_path / "campaign"
    first = run_campaign(spark, path, manifest_for("swarm", 1, 3), ["swarm"], runner=a_runner(diary))
    more = run_campaign(spark, path, manifest_for("swarm", 1, 6), ["swarm"], runner=a_runner(diary, failing=5))
    assert (first.runs, first.exit_code, more.runs, more.exit_code) == (3, 0, 6, 4)
    assert sorted(int(name.partition("-")[0]) for name in os.listdir(diary)) == [1, 2, 3, 4, 5, 6]
    rows = spark.read.parquet(open_dataset(str(path)).trace).select("seed", "seq", "kind", "mode", "detail").collect()
    assert sorted((row.seed, row.seq) for row in rows) == [(seed, seq) for seed in range(1, 7) for seq in range(4)]
    (failed,) = (row for row in rows if row.mode == "safety")
    assert json.loads(failed.detail)["again"] == "dovetail sim replay 5 --scenario swarm"
    manifest = dataset.read_manifest(path)
    assert manifest is not None
    assert (manifest.done, manifest.is_finished) == (6, True)
    with pytest.raises(BadDataset, match="is a campaign with seed 1, not 2"):
        run_campaign(spark, path, manifest_for("swarm", 2, 6), ["swarm"])
    assert [each.seed for each in results(spark, path)]


@pytest.mark.parametrize(("missing", "cores", "each"), [(1, 2, 1), (80, 2, 2), (10_000, 2, 16), (10_000, 200, 3)])
def test_a_task_is_a_small_part_of_a_campaign_and_a_file_not_too_small(missing: int, cores: int, each: int) -> None:
    assert seeds_per_task(missing, cores) == each


def test_rows_leave_a_run_in_bounded_pieces_while_it_goes_on() -> None:
    def long(order: tuple[str, int], keep: Callable[[Row], None]) -> Result:
        for seq in range(2 * PIECE_ROWS + 5):
            keep(Row(seq, seq, "world", "fault"))
        return Result(*order, Verdict.OK)

    batches = list(pieces(("swarm", 1), long))
    assert [batch.num_rows for batch in batches] == [PIECE_ROWS, PIECE_ROWS, 5, 1]
    assert batches[-1].column("seq").to_pylist() == [2 * PIECE_ROWS + 5]


def test_whoever_wants_no_more_rows_ends_the_run() -> None:
    ended: list[bool] = []

    def endless(order: tuple[str, int], keep: Callable[[Row], None]) -> Result:
        try:
            seq = 0
            while True:
                keep(Row(seq, seq, "world", "fault"))
                seq += 1
        finally:
            ended.append(True)

    rows = pieces(("swarm", 1), endless)
    next(rows)
    rows.close()
    assert ended == [True]


def test_a_seed_that_no_plan_can_be_made_of_is_a_finding_and_ends_nothing() -> None:
    (last,) = pieces(("no-such-scenario", 1))
    assert last.column("mode").to_pylist() == ["crash"]


CLUSTER = """
import json, os, shutil, sys
from pathlib import Path
import pyspark
from dovetail.core.trace import Row
from dovetail.reports.campaign import manifest_for, run_campaign
from dovetail.reports.session import session

place = Path(sys.argv[1])

def job():
    marker = str(place / "died")
    def runner(order, keep):
        import os, dovetail, simpy, msgspec
        from dovetail.core.trace import Row
        from dovetail.sim.campaign import run_seed
        keep(Row(0, 0, "world", "setup", detail=dovetail.__file__ + " " + simpy.__file__ + " " + msgspec.__file__))
        if order[1] == 2 and not os.path.exists(marker):
            open(marker, "w").close()
            os._exit(1)
        return run_seed(order)
    return runner

with session("local-cluster[2,1,1024]", memory="1g", silent=True) as spark:
    try:
        spark.sql("SELECT raise_error('no')").collect()
    except Exception:
        pass
    manifest = manifest_for("drop-during-ack", 1, 3)
    found = run_campaign(spark, place / "campaign", manifest, ["drop-during-ack"], runner=job())
    left = Path(pyspark.__file__).with_name("work") / spark.sparkContext.applicationId
shutil.rmtree(left)
print(json.dumps({"runs": found.runs, "failures": len(found.failures), "delivered": found.delivered}))
"""


def test_executors_get_the_package_and_a_task_that_died_leaves_nothing_twice(tmp_path: Path) -> None:
    """Separate processes, as on a cluster: each worker imports what was sent to it, and one of them dies halfway."""
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER, str(tmp_path)], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ERROR" not in done.stderr, "a silent session logged what it raised"
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["runs"], said["failures"]) == (3, 0)
    assert said["delivered"] > 0
    assert (tmp_path / "died").exists()
    import pyarrow.parquet as pq

    rows = pq.read_table(open_dataset(str(tmp_path / "campaign")).trace).to_pylist()
    assert sorted((row["seed"], row["seq"]) for row in rows) == [(seed, seq) for seed in (1, 2, 3) for seq in (0, 1)]
    for row in rows:
        if row["kind"] == "setup":
            assert all("dovetail-" in path and ".zip/" in path for path in row["detail"].split()), row["detail"]
