"""What a report costs as its trace grows: runs of the simulator, multiplied under other seeds, against the limit.

Promises  the limit is measured in the same run: reading the columns that the report needs, and nothing else; costs are
          processor time of Spark's process, which a busy machine changes less than the clock on the wall.
Never     asserts a time: it prints, for people to judge.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from dovetail.reports import audit, tables
from dovetail.reports.session import fit
from dovetail.sim.run import run
from dovetail.sim.swarm import swarm
from dovetail.sim.trace import ParquetTrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE_ROWS = 100_000
"""So many rows of real runs, at least, are what is multiplied."""
LEAST = 10_000
APART = 1_000_000
"""How far the seeds of one copy are from those of the next."""
ROWS_PER_FILE = 1_000_000
_SCAN = (
    "sum(seq), sum(time_us), count(kind), count(topic), sum(partition), sum(lane), sum(first), sum(last), "
    "count(`group`), count(member), sum(attempt), sum(latency_us), count(fault), sum(connection), sum(lease), "
    "sum(deadline_us), sum(asked), count(mode), sum(size(values))"
)


class Cost(Struct, frozen=True):
    """What one size of trace cost. Times are in seconds, `ratio` is of processor time to that of the scan."""

    rows: int
    scan_s: float
    report_s: float
    ratio: float
    report_wall_s: float
    memory_mb: int
    """The most that Spark's process ever had, heap and all."""


def measure(spark: SparkSession, folder: Path, sizes: list[int], tell: Callable[[str], None]) -> Iterator[Cost]:
    """The cost of a report for each size of trace."""
    tell("runs are simulated")
    simulate(folder / "runs", min(SOURCE_ROWS, max(sizes)))
    source = spark.read.parquet(str(folder / "runs")).persist()
    for size in sizes:
        path = folder / f"rows-{size}"
        tell(f"{size} rows are written")
        multiplied(spark, source, size).write.option("compression", "zstd").parquet(str(path))
        trace = spark.read.parquet(str(path))
        rows = trace.count()
        fit(spark, rows)
        tell(f"{rows} rows are scanned")
        scan_s, _ = _timed(spark, partial(_run, trace.selectExpr(*_SCAN.split(", "))))
        audit.prepare(spark, trace)
        tables.prepare(spark)
        tell(f"{rows} rows are analysed")
        report_s, wall_s = _timed(spark, partial(_report, spark))
        ratio = round(report_s / max(scan_s, 0.01), 1)
        yield Cost(rows, scan_s, report_s, ratio, wall_s, _memory_mb(_pid(spark)))
        shutil.rmtree(path)


def simulate(folder: Path, rows: int) -> None:
    """Traces of real runs of the swarm, from seed 1 on, until they have so many rows together."""
    folder.mkdir()
    written, seed = 0, 1
    while written < rows:
        with ParquetTrace(str(folder / f"{seed}.parquet"), "swarm", seed) as file:
            written += run(swarm(seed), file.keep).rows
        seed += 1


def multiplied(spark: SparkSession, source: DataFrame, rows: int) -> DataFrame:
    """About so many rows: real runs again and again under other seeds, as long and as short as real runs are."""
    from pyspark.sql import functions as F

    count = source.count()
    copies = max(1, round(rows / count))
    files = max(1, min(copies, rows // ROWS_PER_FILE))
    copied = spark.range(copies, numPartitions=files).crossJoin(F.broadcast(source))
    return copied.withColumn("seed", F.col("seed") + F.col("id") * APART).drop("id")


def _report(spark: SparkSession) -> None:
    for table in tables.TABLES:
        _run(spark.sql(table.sql))
    _run(spark.sql(tables.PER_SEED))
    _run(audit.findings(spark))


def _run(frame: DataFrame) -> None:
    # A sink that takes everything: otherwise the optimiser removes the work.
    frame.write.format("noop").mode("overwrite").save()


def _timed(spark: SparkSession, work: Callable[[], None]) -> tuple[float, float]:
    pid = _pid(spark)
    began, wall = _processor_s(pid), time.monotonic()
    work()
    return round(_processor_s(pid) - began, 2), round(time.monotonic() - wall, 1)


def _pid(spark: SparkSession) -> int:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return int(jvm.java.lang.ProcessHandle.current().pid())


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))
