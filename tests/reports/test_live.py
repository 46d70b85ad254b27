"""A real broker's trace is read as a campaign's is, for what can be said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dovetail.reports import audit, tables
from tests.reports.traces import LEASE_MS, Story, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {table.name: table.sql for table in tables.TABLES}


def half_an_hour() -> Story:
    """A broker that starts again once, and later leaves out what it could not write."""
    story = Story()
    story.rows[0] = replace(story.rows[0], detail=json.dumps({"lease_ms": LEASE_MS, "live": True}))
    story.publish(0, 10)
    story.deliver("a", 0, 3, 1)
    story.deliver("b", 3, 3, 2)
    story.add("broker", "down", generation=1)
    story.add("broker", "up", generation=2)
    story.add("broker", "dropped", first=0, last=7)
    story.deliver("a", 8, 9, 3)
    story.deliver("b", 9, 9, 4)
    story.publish(10, 60, after_us=1_800_000_000)
    return story


def test_a_live_trace_has_one_phase_few_points_of_time_and_nothing_to_say_after_a_gap(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = half_an_hour()
    write(tmp_path, {0: story.rows})
    audit.prepare(spark, spark.read.parquet(str(tmp_path)))
    tables.prepare(spark)
    assert [row.phase for row in spark.sql(TABLES["latency_by_fault"]).collect()] == ["live"]
    assert [(row.kind, row.at) for row in audit.findings(spark).collect()] == [("held twice", 3)]
    gap = next(row.seq for row in story.rows if row.kind == "dropped")
    assert [tuple(row) for row in spark.sql(TABLES["gaps"]).collect()] == [("swarm", 0, gap, 1, 7)]
    points = spark.sql(TABLES["throughput"]).collect()
    step = 1 + story.rows[-1].time_us // (tables.POINTS * 1_000_000)
    published = [(row.second, row.published) for row in points if row.published]
    assert published == [(0, 10 // step), (1800 // step * step, 60 // step)]
