"""A campaign as a Spark job: seeds over tasks, every row of every run into one dataset (`reports/dataset.py`).

Promises  a seed that fails is a row and never a failed job; a task's rows leave it in bounded Arrow batches and appear
          as one file or not at all, so that a task that is tried again leaves nothing twice; what was interrupted is
          gone on with, and seeds that are in the dataset are not run again.
Never     asks a cluster's machines to have anything installed but Python with pyspark and pyarrow, or holds a run's
          rows in memory.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dovetail.reports import dataset, shipping
from dovetail.reports.errors import ReportError, cause, is_full
from dovetail.sim.campaign import Summary, orders, reproduction, run_seed, summary
from dovetail.sim.run import Result, Verdict
from dovetail.sim.trace import PIECE_ROWS, Row, schema, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Order = tuple[str, int]
Runner = Callable[[Order, Callable[[Row], None]], Result]
SEEDS_PER_TASK = 16
"""At most so many: a file should be worth opening."""
TASKS_PER_CORE = 16
"""At least so many: an interruption should cost little, and no core wait long for the one that has the long seeds."""
WAITING_PIECES = 4
"""How far a run may be ahead of whoever writes its rows."""
LOOK_S = 0.5
_OPTIONS = {
    # A task's file moves to its place when the task is done, not when all are: what is there can be gone on from.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "compression": "zstd",
}
_WRITERS = "spark.sql.maxConcurrentOutputFileWriters"


class Progress(Struct, frozen=True):
    """How far a campaign is, in runs."""

    done: int
    total: int


class Interrupted(ReportError):
    """The job ended before its seeds did; the same command goes on."""


def run_campaign(
    spark: SparkSession,
    path: Path,
    manifest: dataset.Manifest,
    names: Sequence[str],
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    runner: Runner | None = None,
) -> Summary:
    """Run what is missing of a campaign, and say what all of it found. `runner` runs a seed in place of `run_seed`."""
    _begin(path, manifest)
    dataset.check_files(dataset.Dataset(path, manifest), str(path))
    everything = orders(names, manifest.seed, manifest.seeds)
    there = {(result.name, result.seed) for result in results(spark, path)}
    missing = sorted(order for order in everything if order not in there)
    if missing:
        tell = _telling(progress, len(everything) - len(missing), len(everything))
        _run(spark, path, missing, tell, runner)
    wanted = set(everything)
    found = sorted(
        (result for result in results(spark, path) if (result.name, result.seed) in wanted),
        key=lambda result: (result.seed, result.name),
    )
    if len(found) != len(everything):
        raise Interrupted(f"{len(everything) - len(found)} runs left no result: the same command runs them again")
    dataset.write_manifest(path, replace(manifest, done=len(found), hash=_hash(found)))
    return summary(found)


def results(spark: SparkSession, path: Path) -> list[Result]:
    """What came of the seeds that are in the dataset."""
    trace = path / dataset.TRACE
    if not any(trace.rglob("*.parquet")):
        return []
    rows = spark.read.parquet(str(trace)).where(f"kind = '{dataset.RESULT}'").select("detail").collect()
    return [msgspec.json.decode(row.detail, type=Result) for row in rows]


def manifest_for(scenario: str, seed: int, seeds: int, settings: dict[str, str] | None = None) -> dataset.Manifest:
    """The manifest of a campaign that begins now."""
    return dataset.Manifest(version("dovetail"), dataset.code_hash(), scenario, seed, seeds, settings=settings or {})


def _begin(path: Path, wanted: dataset.Manifest) -> None:
    """Take a directory for a campaign, or go on with the one that it holds if it is the same."""
    before = dataset.read_manifest(path)
    if before is None:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise dataset.BadDataset(f"{path} is there and is no campaign: name another directory with --out")
    else:
        for what in ("scenario", "seed", "columns", "code"):
            was, is_now = getattr(before, what), getattr(wanted, what)
            if was != is_now:
                raise dataset.BadDataset(_differs(path, what, was, is_now))
        if before.seeds > wanted.seeds:
            raise dataset.BadDataset(f"{path} is a campaign of {before.seeds} seeds: name as many, or another --out")
    dataset.write_manifest(path, wanted)


def _differs(path: Path, what: str, was: object, is_now: object) -> str:
    if what in ("columns", "code"):
        return f"{path} was begun by other code: go on with that version, or begin anew with another --out"
    return f"{path} is a campaign with {what} {was}, not {is_now}: leave the option out, or name another --out"


def _hash(found: Sequence[Result]) -> str:
    seen = blake2b(digest_size=16)
    for result in found:
        seen.update(msgspec.msgpack.encode(result))
    return seen.hexdigest()


# The job


def _run(
    spark: SparkSession, path: Path, missing: Sequence[Order], tell: Callable[[int], None], runner: Runner | None
) -> None:
    context = spark.sparkContext
    per_task = seeds_per_task(len(missing), context.defaultParallelism)
    tasks = -(-len(missing) // per_task)
    master = context.master or ""
    archive = "" if master == "local" or master.startswith("local[") else _ship(spark)
    rows = spark.range(len(missing), numPartitions=tasks).mapInArrow(
        _task(tuple(missing), archive, runner), _spark_schema()
    )
    # One more than a task can need: at the limit Spark would hold and sort what is left of the rows.
    spark.conf.set(_WRITERS, str(len({name for name, _ in missing}) + 1))
    _shown(spark, lambda: _write(rows, path), lambda done: tell(min(len(missing), done * per_task)))


def seeds_per_task(missing: int, cores: int) -> int:
    """How many seeds one task runs, and one file holds."""
    return max(1, min(SEEDS_PER_TASK, missing // (TASKS_PER_CORE * cores)))


def _write(rows: DataFrame, path: Path) -> None:
    writer = rows.write.mode("append").partitionBy("run")
    for key, value in _OPTIONS.items():
        writer = writer.option(key, value)
    try:
        writer.parquet(str(path / dataset.TRACE))
    except Exception as error:
        raise _in_words(error, path) from error


def _in_words(error: Exception, path: Path) -> ReportError:
    kept = "the same command goes on; the seeds that were finished are kept"
    text = str(error)
    if is_full(text):
        free = shutil.disk_usage(path).free >> 20
        return Interrupted(f"the disk of {path} is full ({free} MB left): make room, and {kept}")
    if "Permission denied" in text:
        return Interrupted(f"can't write into {path}: permission denied, here or on the machine that ran the task")
    return Interrupted(f"the Spark job failed ({cause(error)}): {kept}")


def _spark_schema() -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema())


def _task(missing: tuple[Order, ...], archive: str, runner: Runner | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a task does with its numbers. It is sent as it stands: nothing of Dovetail is imported before its archive is
    on the path."""

    def rows_of(batches: Iterator[Any]) -> Iterator[Any]:
        if archive:
            from pyspark import SparkFiles

            place = SparkFiles.get(archive)
            if place not in sys.path:
                sys.path.insert(0, place)
        from dovetail.reports.campaign import pieces

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from pieces(missing[number], runner)

    return rows_of


def pieces(order: Order, runner: Runner | None = None) -> Iterator[Any]:
    """Run a seed; its rows as Arrow batches while they come, its result as the last of them."""
    name, seed = order
    waiting: Queue[list[Row] | Result] = Queue(WAITING_PIECES)
    over = threading.Event()
    rows: list[Row] = []

    def keep(row: Row) -> None:
        nonlocal rows
        rows.append(row)
        if len(rows) >= PIECE_ROWS:
            _put(waiting, rows, over)
            rows = []

    def work() -> None:
        try:
            result = (runner or run_seed)(order, keep)
            _put(waiting, rows, over)
        except _Over:
            return
        except BaseException as error:
            # Whatever ends this thread, somebody waits for its result.
            result = Result(name, seed, Verdict.CRASH, type(error).__name__, str(error))
        with suppress(_Over):
            _put(waiting, result, over)

    # The run pushes and Spark pulls: between them stands a short queue.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    of, count, last_us = schema(), 0, 0
    try:
        while not isinstance(piece := waiting.get(), Result):
            if piece:
                count, last_us = piece[-1].seq + 1, piece[-1].time_us
                yield to_arrow(piece, name, seed, of)
        yield to_arrow([_result_row(piece, count, last_us)], name, seed, of)
    finally:
        over.set()
        while not waiting.empty():
            waiting.get_nowait()
        thread.join()


class _Over(BaseException):
    """Nobody wants the rest of a run."""


def _put(waiting: Queue[Any], piece: Any, over: threading.Event) -> None:
    if over.is_set():
        raise _Over
    waiting.put(piece)


def _result_row(result: Result, seq: int, time_us: int) -> Row:
    return Row(
        seq,
        time_us,
        "world",
        dataset.RESULT,
        fault=result.invariant,
        mode=str(result.verdict),
        latency_us=result.time_ms * 1000,
        detail=msgspec.json.encode({**msgspec.to_builtins(result), "again": reproduction(result)}).decode(),
    )


def _ship(spark: SparkSession) -> str:
    """Give the executors what they need; the name under which they find it."""
    folder = Path(tempfile.mkdtemp(prefix="dovetail-ship-"))
    name = f"dovetail-{dataset.code_hash()}.zip"
    shipping.pack(folder / name)
    spark.sparkContext.addArchive(str(folder / name))
    return name


# While it runs


def _telling(progress: Callable[[Progress], None], before: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(Progress(before + done, total))


def _shown(spark: SparkSession, job: Callable[[], None], tell: Callable[[int], None]) -> None:
    """Run a job, telling how many of its tasks are done; an interrupt ends it in order."""
    from pyspark import InheritableThread

    context, group = spark.sparkContext, f"dovetail-campaign-{id(job)}"
    failed: list[BaseException] = []

    def work() -> None:
        context.setJobGroup(group, "a campaign", interruptOnCancel=True)
        try:
            job()
        except BaseException as error:
            failed.append(error)

    thread = InheritableThread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_S)
            tell(_tasks_done(spark, group))
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        thread.join()
        raise Interrupted("interrupted: the same command goes on; the seeds that were finished are kept") from None
    if failed:
        raise failed[0]


def _tasks_done(spark: SparkSession, group: str) -> int:
    status = spark.sparkContext.statusTracker()
    jobs = [status.getJobInfo(number) for number in status.getJobIdsForGroup(group)]
    stages = [status.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)
