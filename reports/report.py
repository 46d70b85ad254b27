"""A report: every table of a campaign, its audit and how far that agrees with the checkers, written for people (HTML)
and for notebooks (Parquet, CSV).

Promises  the tables are Spark's work and small when they come here; a seed on which audit and checkers do not agree is
          shown as what it is: a fault of one of the two.
Never     changes the dataset.
"""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from dovetail.reports import audit, compare, tables
from dovetail.reports.dataset import RESULT, Dataset
from dovetail.reports.errors import ReportError, cause, is_full
from dovetail.reports.session import fit
from dovetail.sim import marks, plan, replay_page
from dovetail.sim.campaign import reproduction
from dovetail.sim.run import Result, Verdict
from dovetail.sim.trace import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPLAYS = 8
"""So many failing seeds come with their replay: the page is to stay one that opens."""
PER_KIND = 25
"""So many findings of a kind are shown of a run; how many there are is said."""
FINDINGS_MAX = 20_000
Rows = list[dict[str, Any]]


class Agreement(Struct, frozen=True):
    """What the checkers and the audit say of one seed."""

    run: str
    seed: int
    checkers: str
    audit: str
    agree: bool


class Report(Struct, frozen=True):
    """All that the page shows. Tables are lists of rows by name."""

    title: str
    tables: dict[str, Rows]
    results: list[Result]
    findings: Rows
    agreements: list[Agreement]
    compared: list[compare.Moved] = []
    against: str = ""
    replays: dict[str, str] = {}
    version: str = ""

    @property
    def runs(self) -> int:
        """How many runs there are, those that broke before they had a row included."""
        return max(len(self.results), len(self.tables["per_seed"]))

    @property
    def findings_total(self) -> int:
        """How many there are; of many of a kind in a run only the first are kept."""
        return sum(each["total"] for each in self.findings if each["place"] == 1)

    @property
    def disagreements(self) -> list[Agreement]:
        return [each for each in self.agreements if not each.agree]


def make(
    spark: SparkSession,
    dataset: Dataset,
    against: Dataset | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Analyse a dataset; with `against`, say what moved since that one."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return _make(spark, dataset, against, tell)
    except (PySparkException, Py4JError) as error:
        raise _in_words(error, dataset, against) from error


def _in_words(error: Exception, dataset: Dataset, against: Dataset | None) -> ReportError:
    if is_full(str(error)):
        place = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
        return ReportError(
            f"there is no room for Spark's own files in {place}: make some, or name another disk with SPARK_LOCAL_DIRS"
        )
    places = dataset.trace if against is None else f"{dataset.trace} and {against.trace}"
    return ReportError(
        f"Spark did not get through {places} ({cause(error)}): a file that this names is damaged, delete it; "
        "where it is a campaign's, `dovetail sim campaign --out` runs its seeds again"
    )


def _make(spark: SparkSession, dataset: Dataset, against: Dataset | None, tell: Callable[[str], None]) -> Report:
    before: Rows = []
    if against is not None:
        tell("the other campaign")
        _prepare(spark, against)
        before = _rows(spark.sql(tables.PER_SEED))
    trace = _prepare(spark, dataset)
    tell("results")
    results = [msgspec.json.decode(each["detail"], type=Result) for each in _rows(_results(trace))]
    tell("the audit")
    # First one of each kind of each run: whoever has none here has none at all.
    findings = _rows(audit.findings(spark, PER_KIND).orderBy("place", "run", "seed").limit(FINDINGS_MAX))
    findings.sort(key=lambda each: (each["run"], each["seed"], each["seq"], each["at"]))
    found: dict[str, Rows] = {}
    for table in tables.TABLES:
        tell(table.title.lower())
        found[table.name] = _rows(spark.sql(table.sql))
    tell("each seed")
    found["per_seed"] = _rows(spark.sql(tables.PER_SEED))
    found["marks"] = mark_rows(results)
    found["fault_kinds"] = fault_rows(found["coverage"])
    agreements = agreement(results, findings)
    troubled = [(each.run, each.seed) for each in agreements if each.checkers or each.audit or not each.agree]
    by_seed = {(each.name, each.seed): each for each in results}
    moved = compare.moved(found["per_seed"], before) if against is not None else []
    return Report(
        dataset.title,
        found,
        results,
        findings,
        agreements,
        moved,
        against.title if against is not None else "",
        {f"{run}-{seed}": _replay(trace, run, seed, by_seed.get((run, seed))) for run, seed in troubled[:REPLAYS]},
        dataset.manifest.version if dataset.manifest is not None else "",
    )


def agreement(results: Sequence[Result], findings: Rows) -> list[Agreement]:
    """Seed by seed: whether the audit found what the checkers found, and nothing else."""
    by_seed: dict[tuple[str, int], set[str]] = {}
    for each in findings:
        by_seed.setdefault((each["run"], each["seed"]), set()).add(each["kind"])
    judged = {invariant for names in audit.ANSWERS_FOR.values() for invariant in names}
    said: list[Agreement] = []
    for result in sorted(results, key=lambda each: (each.name, each.seed)):
        kinds = by_seed.pop((result.name, result.seed), set())
        broken = "" if result.verdict.is_fine else result.invariant
        wanted = {kind for kind, names in audit.ANSWERS_FOR.items() if broken in names}
        # A broker that found its own state broken may name the same invariant: nobody saw that from outside.
        is_seen = result.verdict is Verdict.SAFETY and broken in judged
        agree = bool(wanted & kinds) if is_seen else not kinds
        said.append(Agreement(result.name, result.seed, broken, ", ".join(sorted(kinds)), agree))
    # A trace that no checker judged: the audit speaks alone.
    said += [Agreement(run, seed, "", ", ".join(sorted(kinds)), True) for (run, seed), kinds in by_seed.items()]
    return said


def mark_rows(results: Sequence[Result]) -> Rows:
    """Which rare paths the runs took; those that none took, first."""
    seen: dict[str, list[int]] = {name: [0, 0] for name in marks.REQUIRED}
    for result in results:
        for name, count in result.marks.items():
            found = seen.setdefault(name, [0, 0])
            found[0] += 1
            found[1] += count
    rows = [{"mark": name, "seeds": found[0], "times": found[1]} for name, found in seen.items()]
    return sorted(rows, key=lambda each: (each["seeds"], each["mark"]))


def fault_rows(coverage: Rows) -> Rows:
    """In how many runs each kind of fault struck: also those that never did."""
    struck = {each["fault"]: each["seeds"] for each in coverage if each["fault"] == each["with"]}
    kinds = sorted({*struck, *(kind.__name__ for kind in plan.FAULTS)})
    return sorted(({"fault": kind, "seeds": struck.get(kind, 0)} for kind in kinds), key=lambda each: -each["seeds"])


def write_tables(report: Report, folder: Path) -> None:
    """Each table as Parquet and as CSV."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    everything: Mapping[str, Rows] = {
        **report.tables,
        "audit": report.findings,
        "agreement": [msgspec.to_builtins(each) for each in report.agreements],
        "compared": [msgspec.to_builtins(each) for each in report.compared],
        "seeds": [{**_flat(result), "again": reproduction(result)} for result in report.results],
    }
    for name, rows in everything.items():
        if rows:
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
            with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)


def _flat(result: Result) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(result).items() if not isinstance(value, dict)}


def _prepare(spark: SparkSession, dataset: Dataset) -> DataFrame:
    trace = spark.read.parquet(dataset.trace)
    fit(spark, dataset.rows)
    audit.prepare(spark, trace)
    tables.prepare(spark)
    return trace


def _results(trace: DataFrame) -> DataFrame:
    return trace.where(f"kind = '{RESULT}'").select("detail")


def _rows(found: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in found.collect()]


def _replay(trace: DataFrame, run: str, seed: int, result: Result | None) -> str:
    """The replay page of one run, made of its rows."""
    from pyspark.sql import functions as F

    chosen = trace.where((F.col("run") == run) & (F.col("seed") == seed) & (F.col("kind") != RESULT))
    rows = [_row(each.asDict()) for each in chosen.select(*Row.__struct_fields__).orderBy("seq").toLocalIterator()]
    return replay_page.page(rows, f"{run}, seed {seed}", msgspec.to_builtins(result) if result else {"rows": len(rows)})


def _row(columns: dict[str, Any]) -> Row:
    return Row(**{**columns, "values": tuple(columns["values"])})


def as_json(report: Report) -> str:
    """The report without its replays, for programs."""
    found = {key: value for key, value in msgspec.to_builtins(report, builtin_types=()).items() if key != "replays"}
    return json.dumps(found, default=str)
