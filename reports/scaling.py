"""What a report costs as its trace grows: generated traces, ten times as many rows each time, against the limit.

Promises  the limit is measured in the same run: reading the columns that the report needs, and nothing else; costs are
          processor time of Spark's process, which a busy machine changes less than the clock on the wall.
Never     asserts a time: it prints, for people to judge.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from dovetail.reports import audit, tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_SEED = 50_000
_PER_MESSAGE = 5
_MESSAGES = ROWS_PER_SEED // _PER_MESSAGE
_TERMS = '{"lease_ms":30000,"honest_clock":true,"damage":false}'
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
    for rows in sizes:
        path = folder / f"rows-{rows}"
        if not path.exists():
            tell(f"{rows} rows are generated")
            generate(spark, rows).write.option("compression", "zstd").parquet(str(path))
        trace = spark.read.parquet(str(path))
        tell(f"{rows} rows are scanned")
        scan_s, _ = _timed(spark, partial(_run, trace.selectExpr(*_SCAN.split(", "))))
        audit.prepare(spark, trace)
        tables.prepare(spark)
        tell(f"{rows} rows are analysed")
        report_s, wall_s = _timed(spark, partial(_report, spark))
        yield Cost(rows, scan_s, report_s, round(report_s / scan_s, 1), wall_s, _memory_mb(_pid(spark)))


def generate(spark: SparkSession, rows: int) -> DataFrame:
    """A trace in which all is well: each message is published, confirmed, delivered, acknowledged, read at the end."""
    last = 4 * _MESSAGES
    messages = spark.range(rows // _PER_MESSAGE).selectExpr(
        f"id DIV {_MESSAGES} AS seed", f"id % {_MESSAGES} AS m", "explode(sequence(0, 4)) AS k"
    )
    of = "CASE k WHEN 0 THEN {} WHEN 1 THEN {} WHEN 2 THEN {} WHEN 3 THEN {} ELSE {} END"
    columns = {
        "run": "'generated'",
        "seq": f"IF(k < 4, 4 * m + k + 1, {last} + 3 + m)",
        "time_us": f"IF(k < 4, 1000 * m + 100 * k, {1000 * _MESSAGES} + m)",
        "actor": of.format("'p'", "'p'", "concat('c', m % 3)", "concat('c', m % 3)", "'auditor'"),
        "kind": of.format("'publish'", "'confirm'", "'deliver'", "'ack'", "'read'"),
        "topic": "concat('t', m % 4)",
        "partition": "0L",
        "first": "IF(k = 0, 0L, m DIV 4)",
        "last": "IF(k = 0, 0L, m DIV 4)",
        "`group`": "IF(k IN (2, 3), 'g', '')",
        "member": "IF(k IN (2, 3), concat('c', m % 3), '')",
        "generation": "-1L",
        "attempt": "IF(k IN (2, 3), 1L, -1L)",
        "latency_us": of.format("50L", "100L", "50L + m % 977", "100L", "-1L"),
        "fault": "''",
        "detail": "''",
        "connection": of.format("1L", "1L", "2 + m % 3", "2 + m % 3", "9L"),
        "lease": "IF(k IN (2, 3), m + 1, -1L)",
        "deadline_us": "IF(k = 2, 1000 * m + 30000200, -1L)",
        "asked": of.format("-1L", "4 * m + 1", "-1L", "4 * m + 3", f"{last} + 2 + m"),
        "mode": "''",
        "values": "IF(k = 3, CAST(array() AS ARRAY<BIGINT>), array(m))",
        "lane": "0L",
    }
    made = messages.selectExpr("seed", *(f"CAST({text} AS {_type(name)}) AS {name}" for name, text in columns.items()))
    return made.unionByName(_frame(spark, rows, last, made.columns))


def _frame(spark: SparkSession, rows: int, last: int, names: list[str]) -> DataFrame:
    """How each generated run begins and ends."""
    events = (
        ("setup", 0, 0, _TERMS),
        ("heal", last + 1, 1000 * _MESSAGES, ""),
        ("up", last + 2, 1000 * _MESSAGES, ""),
        ("done", last + 4 + _MESSAGES, 1001 * _MESSAGES, ""),
    )
    form = "struct('{}' AS kind, {}L AS seq, {}L AS time_us, '{}' AS detail)"
    listed = ", ".join(form.format(*event) for event in events)
    seeds = spark.range(max(1, rows // ROWS_PER_SEED)).selectExpr("id AS seed", f"explode(array({listed})) AS e")
    known = {"seed": "seed", "run": "'generated'", "actor": "'world'", "lane": "0L"}
    known |= {name: f"e.{name}" for name in ("kind", "seq", "time_us", "detail")}
    return seeds.selectExpr(
        *(f"CAST({known.get(name, _nothing(name))} AS {_type(name)}) AS `{name}`" for name in names)
    )


def _type(name: str) -> str:
    if name == "values":
        return "ARRAY<BIGINT>"
    is_text = name.strip("`") in ("run", "actor", "kind", "topic", "group", "member", "fault", "detail", "mode")
    return "STRING" if is_text else "BIGINT"


def _nothing(name: str) -> str:
    return {"STRING": "''", "BIGINT": "-1"}.get(_type(name), "array()")


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
