"""The report's figures are those that DuckDB computes from the same trace, by queries written for themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from msgspec import Struct

from dovetail.reports import audit, compare, tables
from dovetail.reports.page import page
from dovetail.reports.report import Report, fault_rows, mark_rows, write_tables
from dovetail.sim.run import Result, Verdict, run
from dovetail.sim.swarm import swarm
from tests.reports.traces import Story, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = (8, 7)
TOLD = 100
"""A seed whose story is told by hand."""
TABLES = {table.name: table.sql for table in tables.TABLES}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("figures")
    rows: dict[int, list[Any]] = {seed: [] for seed in SEEDS}
    for seed in SEEDS:
        run(swarm(seed), rows[seed].append)
    rows[TOLD] = dying_twice().rows
    write(path, rows)
    return path


def dying_twice() -> Story:
    """The broker dies, dies again before it is up, and at last dies for good; clients are cut and served late."""
    story = Story()
    story.publish(0, 6)
    story.deliver("a", 0, 3, 1)
    story.add("world", "fault", fault="Crash", latency_us=0)
    story.add("broker", "down", generation=1)
    story.add("a", "disconnect", connection=1)
    story.add("broker", "down", generation=2, after_us=300_000)
    story.add("broker", "up", generation=3, after_us=400_000, latency_us=350_000)
    story.deliver("b", 0, 3, 2)
    late = story.add("p", "publish", topic="t", first=0, last=0, values=(6,), connection=9)
    where = {"topic": "t", "partition": 0, "first": 6, "last": 6, "values": (6,)}
    story.add("p", "confirm", **where, connection=9, latency_us=1_100_000, asked=late, after_us=1_100_000)
    story.add("p", "publish", topic="t", first=0, last=0, values=(7,), connection=9)
    story.add("world", "heal")
    story.add("world", "fault", fault="Crash", latency_us=100_000, after_us=2_000_000)
    story.add("b", "disconnect", connection=2)
    story.add("p", "disconnect", connection=9)
    story.add("p", "publish", topic="t", first=0, last=0, values=(8,), connection=9)
    story.add("broker", "down", generation=4, after_us=600_000)
    story.add("broker", "down", generation=5, after_us=100_000)
    return story


@pytest.fixture(scope="module")
def duck(trace: Path) -> duckdb.DuckDBPyConnection:
    found = duckdb.connect()
    found.execute(f"CREATE VIEW trace AS SELECT * FROM '{trace}/*.parquet'")
    return found


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, trace: Path) -> SparkSession:
    audit.prepare(spark, spark.read.parquet(str(trace)))
    tables.prepare(spark)
    return spark


def of_duck(duck: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return sorted(duck.execute(sql).fetchall(), key=repr)


def of_spark(spark: SparkSession, name: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.sql(TABLES[name]).select(*columns).collect()), key=repr)


WAITS = """
    WITH delivered AS (
        SELECT seed, topic, "group" AS grp, partition, lane, unnest(range(first, last + 1)) AS o, seq, time_us,
               latency_us
        FROM trace WHERE kind = 'deliver' AND "group" <> '' AND "group"[1] <> '~'),
    firsts AS (SELECT DISTINCT ON (seed, topic, grp, partition, lane, o) * FROM delivered
               ORDER BY seed, topic, grp, partition, lane, o, seq),
    stored AS (SELECT seed, topic, partition, lane, unnest(range(first, last + 1)) AS o,
                      time_us - latency_us AS came_us
               FROM trace WHERE kind = 'confirm' AND mode <> 'idempotent'),
    healed AS (SELECT seed, time_us AS heal_us FROM trace WHERE kind = 'heal'),
    waits AS (SELECT f.*, f.time_us + greatest(f.latency_us, 0) - came_us AS wait,
                     CASE WHEN f.time_us < heal_us THEN 'chaos' ELSE 'healed' END AS phase,
                     coalesce((SELECT arg_max(fault, w.seq) FROM trace w WHERE w.kind = 'fault' AND w.seed = f.seed
                        AND w.time_us // 100000 <= f.time_us // 100000
                        AND (w.time_us + greatest(w.latency_us, 0) + 1000000) // 100000 >= f.time_us // 100000), 'none')
                        AS fault
              FROM firsts f JOIN stored USING (seed, topic, partition, lane, o) JOIN healed USING (seed)),
    rounded AS (SELECT *, CASE WHEN wait < 1000 THEN wait WHEN wait < 10000 THEN (wait + 5) // 10 * 10
                    WHEN wait < 100000 THEN (wait + 50) // 100 * 100
                    WHEN wait < 1000000 THEN (wait + 500) // 1000 * 1000
                    WHEN wait < 10000000 THEN (wait + 5000) // 10000 * 10000 ELSE (wait + 50000) // 100000 * 100000
                    END AS shown FROM waits WHERE wait >= 0)
"""


def test_latency_percentiles_are_those_of_duckdb(prepared: SparkSession, duck: duckdb.DuckDBPyConnection) -> None:
    mine = of_spark(prepared, "latency", "topic", "grp", "fault", "phase", "messages", "p50", "p99", "worst")
    theirs = of_duck(
        duck,
        WAITS + "SELECT topic, grp, fault, phase, count(*), quantile_disc(shown, 0.5), quantile_disc(shown, 0.99), "
        "max(shown) FROM rounded GROUP BY ALL",
    )
    assert len(mine) > 3
    assert mine == theirs


def test_redeliveries_are_those_of_duckdb(prepared: SparkSession, duck: duckdb.DuckDBPyConnection) -> None:
    (mine,) = prepared.sql("SELECT count(*), count_if(acked) FROM causes").collect()
    theirs = duck.execute("""
        WITH sent AS (SELECT seed, topic, partition, lane, "group" AS grp, unnest(range(first, last + 1)) AS o, seq
                      FROM trace WHERE kind = 'deliver' AND "group"[1] <> '~'),
             again AS (SELECT *, lag(seq) OVER (PARTITION BY seed, topic, partition, lane, grp, o ORDER BY seq)
                       AS before
                       FROM sent)
        SELECT count(*) FROM again WHERE before IS NOT NULL""").fetchall()
    assert mine[0] == theirs[0][0] > 0
    assert prepared.sql("SELECT count(*) FROM causes WHERE cause = 'none was seen'").collect()[0][0] == 0


def test_throughput_and_fairness_are_those_of_duckdb(prepared: SparkSession, duck: duckdb.DuckDBPyConnection) -> None:
    mine = of_spark(prepared, "throughput", "second", "published", "delivered", "acknowledged")
    theirs = of_duck(
        duck,
        "SELECT time_us // 1000000, "
        + ", ".join(
            f"sum((last - first + 1) * (kind = '{kind}')::INT)::BIGINT" for kind in ("publish", "deliver", "ack")
        )
        + " FROM trace WHERE kind IN ('publish', 'deliver', 'ack', 'confirm', 'delayed') GROUP BY 1",
    )
    assert mine == theirs
    fair = of_spark(prepared, "fairness", "grp", "lane", "messages", "jain_worst")
    wanted = of_duck(
        duck,
        """WITH m AS (SELECT seed, "group" AS grp, lane, member, sum(last - first + 1)::DOUBLE AS x FROM trace
                      WHERE kind = 'deliver' AND "group"[1] <> '~' GROUP BY ALL),
                j AS (SELECT seed, grp, lane, sum(x) AS messages, sum(x) ** 2 / (count(*) * sum(x ** 2)) AS jain FROM m
                      GROUP BY ALL)
           SELECT grp, lane, sum(messages), round(min(jain), 3) FROM j GROUP BY ALL""",
    )
    assert fair == wanted


def test_recovery_and_strikes_are_those_of_duckdb(prepared: SparkSession, duck: duckdb.DuckDBPyConnection) -> None:
    mine = of_spark(prepared, "recovery", "what", "times", "worst")
    theirs = of_duck(
        duck,
        """WITH d AS (SELECT seed, seq, time_us, (SELECT min(seq) FROM trace u WHERE u.seed = t.seed AND u.kind = 'up'
                             AND u.seq > t.seq) AS up FROM trace t WHERE kind = 'down'),
                firsts AS (SELECT seed, up, min(time_us) AS time_us FROM d GROUP BY ALL),
                o AS (SELECT (u.time_us - d.time_us) / 1000 AS down, u.latency_us / 1000 AS took
                      FROM firsts d LEFT JOIN trace u ON u.seed = d.seed AND u.seq = d.up)
           SELECT 'down', count(*), round(max(down), 1) FROM o UNION ALL
           SELECT 'recover', count(*), round(max(took), 1) FROM o UNION ALL
           SELECT 'drain', count(*), round(max(d.time_us - h.time_us) / 1000, 1)
           FROM trace h LEFT JOIN trace d ON d.seed = h.seed AND d.kind = 'done' WHERE h.kind = 'heal' UNION ALL
           SELECT 'rebalance', count(*), round(max(ms), 1)
           FROM (SELECT (max(time_us) - min(time_us)) / 1000 AS ms FROM trace
               WHERE kind IN ('revoke', 'assign') GROUP BY seed, "group", generation) HAVING count(*) > 0""",
    )
    assert mine == theirs
    strikes = of_spark(prepared, "faults", "fault", "strikes", "seeds")
    assert strikes == of_duck(
        duck, "SELECT fault, count(*), count(DISTINCT seed) FROM trace WHERE kind = 'fault' GROUP BY fault"
    )


def test_availability_and_blast_radius_are_those_of_plain_python(
    prepared: SparkSession, duck: duckdb.DuckDBPyConnection
) -> None:
    strikes: dict[str, list[Strike]] = {}
    for seed in (*SEEDS, TOLD):
        found = duck.execute(f"SELECT * FROM trace WHERE seed = {seed} ORDER BY seq")
        assert found.description is not None
        names = [column[0] for column in found.description]
        for strike in strikes_of([dict(zip(names, values, strict=True)) for values in found.fetchall()]):
            strikes.setdefault(strike.fault, []).append(strike)
    mine = {row.fault: row for row in prepared.sql(TABLES["faults"]).collect()}
    assert mine.keys() == strikes.keys()
    for fault, each in strikes.items():
        row = mine[fault]
        publishes = sum(strike.publishes for strike in each)
        assert row.up == pytest.approx(1 - sum(s.down_us for s in each) / sum(s.lasted_us for s in each), abs=1e-4)
        assert 0 <= row.up <= 1, fault
        assert row.publishes == publishes
        served = sum(strike.served for strike in each) / publishes if publishes else None
        assert row.served == (None if served is None else pytest.approx(served, abs=1e-4))
        assert row.clients_cut == pytest.approx(sum(s.clients for s in each) / len(each), abs=0.006)
        assert row.clients_cut_most == max(strike.clients for strike in each)
        assert row.sent_again == pytest.approx(sum(s.sent_again for s in each) / len(each), abs=0.006)
        assert row.sent_again_most == max(strike.sent_again for strike in each)


class Strike(Struct):
    """One fault, and what was seen until a second after it was over."""

    fault: str
    lasted_us: int
    down_us: int = 0
    publishes: int = 0
    served: int = 0
    clients: int = 0
    sent_again: int = 0


def strikes_of(rows: list[dict[str, Any]]) -> list[Strike]:
    """Each strike of one run, looked at row by row."""
    outages, since = [], None
    answered: dict[int, int] = {}
    sent: set[tuple[Any, ...]] = set()
    again: list[tuple[int, int]] = []
    for row in rows:
        if row["kind"] == "down" and since is None:
            since = row["time_us"]
        elif row["kind"] == "up" and since is not None:
            outages.append(range(since, row["time_us"]))
            since = None
        elif row["kind"] in ("confirm", "delayed"):
            answered[row["asked"]] = min(row["latency_us"], answered.get(row["asked"], row["latency_us"]))
        elif row["kind"] == "deliver" and row["group"]:
            for at in range(row["first"], row["last"] + 1):
                place = (row["group"], row["topic"], row["partition"], row["lane"], at)
                again += [(row["seq"], row["time_us"])] if place in sent else []
                sent.add(place)
    if since is not None:
        outages.append(range(since, 1 << 62))
    found = []
    for fault in (row for row in rows if row["kind"] == "fault"):
        from_us, until_us = fault["time_us"], fault["time_us"] + max(fault["latency_us"], 0) + 1_000_000
        inside = [row for row in rows if from_us <= row["time_us"] <= until_us]
        published = [row["seq"] for row in inside if row["kind"] == "publish"]
        cut = {row["actor"] for row in inside if row["kind"] == "disconnect" and row["seq"] > fault["seq"]}
        found.append(
            Strike(
                fault["fault"],
                until_us - from_us,
                sum(len(range(max(from_us, down.start), min(until_us, down.stop))) for down in outages),
                len(published),
                sum(answered.get(seq, 1 << 62) <= 1_000_000 for seq in published),
                len(cut),
                sum(seq > fault["seq"] and from_us <= time_us <= until_us for seq, time_us in again),
            )
        )
    return found


def test_a_run_more_or_less_is_noise_and_a_shift_of_all_runs_is_not() -> None:
    def runs(shift: float) -> list[dict[str, Any]]:
        figures = dict.fromkeys(compare.FIGURES, None)
        return [{**figures, "run": "swarm", "seed": n, "latency_p99_us": 100 + n % 7 + shift} for n in range(30)]

    by_figure = {each.figure: each for each in compare.moved(runs(5.0), runs(0.0))}
    risen = by_figure[compare.FIGURES["latency_p99_us"]]
    assert (risen.verdict, risen.paired, round(risen.after - risen.before)) == ("rose", True, 5)
    other = [{**row, "seed": row["seed"] + 1000} for row in runs(0.0)]
    assert compare.moved(runs(0.5), other)[1].verdict == "noise"
    assert compare.moved(runs(9.0), other)[1].verdict == "rose"
    assert compare.moved(runs(0.0)[:3], other)[1].verdict == "too few runs"
    assert compare.moved(runs(5.0), runs(0.0)) == compare.moved(runs(5.0), runs(0.0))


def test_what_no_run_reached_is_in_the_tables_with_zero() -> None:
    assert {row["seeds"] for row in mark_rows([])} == {0}
    assert {"fault": "Crash", "seeds": 0} in fault_rows([])
    assert {"fault": "Crash", "seeds": 3} in fault_rows([{"fault": "Crash", "with": "Crash", "seeds": 3}])


def test_the_page_needs_nothing_else_and_no_text_of_a_trace_ends_its_script(tmp_path: Path) -> None:
    names = [*TABLES, "per_seed", "marks", "fault_kinds"]
    report = Report(
        "a <campaign>",
        {name: [] for name in names},
        [Result("swarm", 1, Verdict.SAFETY, "I-LOST", "</script><b>")],
        [],
        [],
        replays={"swarm-1": "<html>" * 1000},
    )
    text = page(report)
    assert "</script><b>" not in text
    assert "a &lt;campaign&gt;" in text
    assert text.count("http://www.w3.org") == text.count("http")
    write_tables(report, tmp_path)
    assert (tmp_path / "seeds.csv").read_text().splitlines()[1].endswith("dovetail sim replay 1 --scenario swarm")
