"""`dovetail sim`: run, replay and shrink simulated runs; campaigns; mutants; marks.

Exit codes: 0 fine, 1 wrong usage, 3 the broker crashed, 4 a promise was broken, 5 it got stuck, 6 not deterministic.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, cast

import msgspec
import typer
from typer.core import TyperGroup

from dovetail.cli.output import Form, Json, fail, print_json, print_rows
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.sim.campaign import Summary
    from dovetail.sim.mutants.hunt import Caught
    from dovetail.sim.plan import Plan
    from dovetail.sim.run import Result


class _Commands(TyperGroup):
    """The simulator's commands: wrong usage ends with 1, as all else that was not a finding of a run."""

    def make_context(self, *args: Any, **extra: Any) -> typer.Context:
        with _usage_is_one():
            return cast(typer.Context, super().make_context(*args, **extra))

    def invoke(self, ctx: Any) -> Any:
        with _usage_is_one():
            return super().invoke(ctx)


@contextmanager
def _usage_is_one() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Typer's own kinds of wrong usage have no public name: they are told by the code they end with.
        if getattr(error, "exit_code", 0) == Exit.USAGE:
            vars(error)["exit_code"] = 1
        raise


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    help="Simulate the broker: crashes, partitions, bad disks, and proof that it would notice.",
)
T = TypeVar("T")

Seed = Annotated[int, typer.Option("--seed", "-s", help="Decides everything; 0 takes a fresh one and prints it.")]
ScenarioName = Annotated[
    str,
    typer.Option(
        "--scenario", help="A scenario by name (`sim scenarios`), `swarm:scale=4,…`, or a YAML, JSON or Python file."
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Processes; 0 means one per core.")]
Page = Annotated[str, typer.Option("--page", help="Write the replay page (HTML) here.")]
TraceFile = Annotated[str, typer.Option("--trace", help="Write the trace (Parquet) here.")]


@app.command("run")
def run_command(
    seed: Seed = 0,
    scenario: ScenarioName = "swarm",
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on.", min=1)] = 1,
    page: Page = "",
    trace: TraceFile = "",
    json: Json = False,
) -> None:
    """Run one seed, or a few, and say what came of it."""
    _check_places(page, trace)
    seed = seed or secrets.randbits(31)
    worst = 0
    for number in _shown(range(seed, seed + seeds), seeds, "seeds", quiet=seeds == 1):
        setup = _plan(scenario, number)
        result = _run_with_files(setup, page, trace)
        worst = max(worst, result.verdict.exit_code)
        if json:
            print_json(result)
        else:
            _print_result(scenario, result)
    raise typer.Exit(worst)


@app.command()
def scenarios(json: Json = False) -> None:
    """List the scenarios that have names."""
    from dovetail.sim.scenarios import SCENARIOS

    rows = [{"name": name, "story": scenario.story} for name, scenario in SCENARIOS.items()]
    print_rows(rows, ("name", "story"), Form.TABLE, json, "there are none")


@app.command()
def campaign(
    seeds: Annotated[int, typer.Option(help="How many seeds: 100 if nothing else is said.", min=0)] = 0,
    seed: Seed = 0,
    scenario: Annotated[str, typer.Option("--scenario", help="`swarm`, a scenario's name, or `all` of them.")] = "",
    swarm: Annotated[
        str,
        typer.Option(
            "--swarm", help="What the swarm is like: `scale=4,chaos=20s,faults=Crash+Partition`, or some of it."
        ),
    ] = "",
    out: Annotated[
        str, typer.Option("--out", help="The campaign's directory; one that is there is gone on with.")
    ] = "",
    master: Annotated[
        str, typer.Option("--master", help="Where Spark runs: local[*], local[N], spark://…")
    ] = "local[*]",
    quick: Annotated[bool, typer.Option("--quick", help="No Spark and no dataset: only say what was found.")] = False,
    jobs: Jobs = 0,
    json: Json = False,
) -> None:
    """Run many seeds as a Spark job, keep every event of every run, and say what they covered.

    `dovetail report DIR` makes tables, an audit and a page of it. With --quick, plain processes run the seeds.
    """
    began = time.monotonic()
    scenario = _of_swarm(swarm, scenario)
    if quick:
        seed, names = seed or secrets.randbits(31), _names(scenario or "swarm")
        found = _quick_campaign(names, seed, seeds or 100, jobs)
    else:
        found, seed, out = _spark_campaign(scenario, seed, seeds, out, master, quiet=json)
    if json:
        print_json(found if quick else {**msgspec.to_builtins(found), "out": out})
    else:
        _print_summary(found, seed, time.monotonic() - began)
        if not quick:
            typer.echo(f"  in {out}: `dovetail report {out}` says more")
    raise typer.Exit(found.exit_code)


def _names(scenario: str) -> list[str]:
    from dovetail.sim.choices import is_swarm
    from dovetail.sim.scenarios import SCENARIOS

    if scenario == "all":
        return list(SCENARIOS)
    if is_swarm(scenario):
        return [_chosen(scenario)]
    if scenario not in SCENARIOS:
        _unknown(scenario)
    return [scenario]


def _chosen(name: str) -> str:
    """The one name of a swarm that somebody chose."""
    from dovetail.sim.choices import BadSwarm, read_choice

    try:
        return read_choice(name).name
    except BadSwarm as error:
        fail_with(1, str(error))


def _of_swarm(swarm: str, scenario: str) -> str:
    if swarm and scenario not in ("", "swarm"):
        fail_with(1, f"--swarm is about the swarm, and --scenario {scenario} is another: leave one of them out")
    return f"swarm:{swarm}" if swarm else scenario


def _quick_campaign(names: list[str], seed: int, seeds: int, jobs: int) -> Summary:
    from dovetail.sim.campaign import orders, summary
    from dovetail.sim.campaign import quick as run_all

    chosen = orders(names, seed, seeds)
    return summary(_shown(run_all(chosen, jobs), len(chosen), "runs"))


def _spark_campaign(
    scenario: str, seed: int, seeds: int, out: str, master: str, quiet: bool
) -> tuple[Summary, int, str]:
    """The summary, the first seed, and where it all is. What is not said is as in the campaign that is gone on with."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    from dovetail.reports.campaign import Progress, manifest_for, run_campaign
    from dovetail.reports.dataset import local, read_manifest
    from dovetail.reports.errors import ReportError
    from dovetail.reports.session import session

    try:
        before = read_manifest(local(out)) if out else None
        if before is not None:
            scenario, seed, seeds = scenario or before.scenario, seed or before.seed, seeds or before.seeds
        names, seed = _names(scenario or "swarm"), seed or secrets.randbits(31)
        scenario = names[0] if len(names) == 1 else scenario
        out = out or re.sub(r"[^\w.-]+", "-", f"campaign-{scenario}-{seed}")
        manifest = manifest_for(scenario, seed, seeds or 100)
        console = Console(stderr=True)
        with (
            session(master, silent=True) as spark,
            Bar(console=console, transient=True, disable=quiet or not console.is_terminal) as bar,
        ):
            task = bar.add_task("runs", total=None)

            def show(progress: Progress) -> None:
                bar.update(task, completed=progress.done, total=progress.total)

            return run_campaign(spark, local(out), manifest, names, progress=show), seed, out
    except ReportError as error:
        fail_with(1, str(error))


@app.command()
def replay(
    what: Annotated[str, typer.Argument(help="A seed, a scenario's file, or the directory of `serve --record`.")],
    scenario: ScenarioName = "swarm",
    page: Page = "replay.html",
    step: Annotated[bool, typer.Option("--step", help="Go through the events one by one.")] = False,
    json: Json = False,
) -> None:
    """Run a seed, a plan or a real broker's recording again, and write it down as a page."""
    _check_places(page)
    if os.path.isdir(what):
        return _replay_recording(what, page, json)
    setup = _plan(scenario, int(what)) if what.isdecimal() else _plan(what, 0)
    if step:
        return _step_through(setup)
    result = _run_with_files(setup, page, "")
    again = _run_with_files(setup, "", "")
    if again.hash != result.hash:
        fail_with(6, f"two runs of the same seed gave {result.hash} and {again.hash}: something is not deterministic")
    if json:
        print_json(result)
    else:
        _print_result(scenario, result)
        typer.echo(f"the run as a page: {page}")
    raise typer.Exit(result.verdict.exit_code)


@app.command()
def shrink(
    seed: Seed = 0,
    scenario: ScenarioName = "swarm",
    out: Annotated[str, typer.Option("--out", help="Write the test here.")] = "",
    budget: Annotated[float, typer.Option(help="Seconds to spend.")] = 110.0,
    page: Page = "",
) -> None:
    """Find the smallest schedule that still fails, and write it as a test."""
    from dovetail.sim.shrink import as_test
    from dovetail.sim.shrink import shrink as make_smaller

    _check_places(page, out)
    seed = seed or secrets.randbits(31)
    setup = _plan(scenario, seed)
    found = make_smaller(setup, budget, _progress())
    if found is None:
        typer.echo(f"seed {seed} does not fail: there is nothing to shrink")
        return
    if page:
        _run_with_files(found.plan, page, "")
    text = as_test(found.plan, found.result)
    typer.echo(f"{len(setup.events)} events became {len(found.plan.events)} in {found.runs} runs", err=True)
    if out:
        with open(out, "w", encoding="utf-8") as file:
            file.write(text)
        typer.echo(f"the test is in {out}", err=True)
    else:
        typer.echo(text)
    raise typer.Exit(found.result.verdict.exit_code)


@app.command()
def mutants(
    only: Annotated[str, typer.Argument(help="Only mutants whose name holds this text.")] = "",
    mechanical: Annotated[str, typer.Option(help="Mistakes made by rule instead: how many of them, or all.")] = "",
    seeds: Annotated[int, typer.Option(help="Rounds of plans for each that is planted by hand.", min=1)] = 20,
    work: Annotated[str, typer.Option(help="Where results are kept: work that was broken off goes on.")] = ".mutants",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of spec/mutants.md.")] = False,
    jobs: Jobs = 0,
    json: Json = False,
) -> None:
    """Plant mistakes, and show what notices each of them."""
    jobs = jobs or os.cpu_count() or 1
    if mechanical:
        return _mechanical(only, mechanical, work, jobs, markdown, json)
    from multiprocessing.pool import ThreadPool

    from dovetail.sim.mutants.hunt import hunt
    from dovetail.sim.mutants.zoo import ZOO

    chosen = [mutant for mutant in ZOO if only in mutant.name]
    if not chosen:
        fail_with(1, f"no mutant's name holds {only!r}")
    with ThreadPool(jobs) as pool:
        caught = pool.imap(lambda mutant: hunt(mutant, seeds), chosen)
        found = list(_shown(caught, len(chosen), "mutants"))
    if markdown:
        from dovetail.sim.mutants.report import planted

        typer.echo("\n".join(planted(found)))
    else:
        _print_mutants(found, json)
    raise typer.Exit(4 if any(not each.by for each in found) else 0)


def _mechanical(only: str, count: str, work: str, jobs: int, markdown: bool, json: bool) -> None:
    from dovetail.sim.mutants import report
    from dovetail.sim.mutants.mechanical import all_mutants, sample
    from dovetail.sim.mutants.trials import Trials

    if count != "all" and not (count.isdecimal() and int(count)):
        fail_with(1, f"--mechanical {count}: say how many, or all")
    chosen = list(all_mutants()) if only or count == "all" else sample(int(count))
    chosen = [mutant for mutant in chosen if only in mutant.name]
    chosen = chosen if count == "all" else chosen[: int(count)]
    if not chosen:
        fail_with(1, f"no mutant's name holds {only!r}")
    by_name = {each.name: each for each in _shown(Trials(Path(work), jobs).carry_out(chosen), len(chosen), "mutants")}
    found = [by_name[name] for name in sorted(by_name)]
    if markdown:
        typer.echo("\n".join(report.markdown(found)))
        return
    print_rows(report.rows(found), ("mutant", "caught_by", "where", "tried", "seconds"), Form.TABLE, json, "no mutants")
    if not json:
        typer.echo(report.summary(found))


@app.command()
def marks(
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="The first of them.")] = 1,
    jobs: Jobs = 0,
    json: Json = False,
) -> None:
    """Show which rare paths a campaign reached, and which it did not."""
    found = _quick_campaign(["swarm"], seed, seeds, jobs)
    rows = [{"mark": name, "times": count} for name, count in found.marks.items()]
    rows += [{"mark": name, "times": 0} for name in found.unmarked]
    print_rows(rows, ("mark", "times"), Form.TABLE, json, "no marks")
    raise typer.Exit(4 if found.unmarked else 0)


@app.command()
def speed(
    seed: Annotated[int, typer.Option(help="Which run.")] = 3,
    scale: Annotated[int, typer.Option(help="How many times the usual number of messages.", min=1)] = 8,
    json: Json = False,
) -> None:
    """Measure simulated deliveries per second of one core, with faults and checkers on."""
    from dovetail.sim.speed import measure

    found = measure(seed, scale)
    if json:
        print_json(found)
        return
    typer.echo(
        f"{found.delivered} deliveries in {found.seconds:.1f} s of one core: {found.deliveries_per_s}/s, "
        f"{found.times_real_time:.1f} times real time, {found.times_bare:.0f} times {found.events} empty events"
    )


def fail_with(code: int, text: str) -> NoReturn:
    """End with one line and one of the simulator's exit codes."""
    typer.echo(f"dovetail: {text}", err=True)
    raise typer.Exit(code)


def _unknown(name: str) -> None:
    fail_with(
        1, f"there is no scenario {name!r}: `dovetail sim scenarios` lists them; a file ends in .yaml, .json or .py"
    )


def _plan(scenario: str, seed: int) -> Plan:
    try:
        from dovetail.sim.choices import is_swarm
        from dovetail.sim.scenarios import SCENARIOS, BadScenario, load, plan_of
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: `pip install '.[sim]'` in Dovetail's folder brings it")
    if scenario.endswith((".yaml", ".yml", ".json", ".py")):
        try:
            return load(scenario, seed)
        except BadScenario as error:
            fail(str(error))
    if is_swarm(scenario):
        scenario = _chosen(scenario)
    elif scenario not in SCENARIOS:
        _unknown(scenario)
    return plan_of(scenario, seed)


def _check_places(*paths: str) -> None:
    """A run may be long: what can't be written at its end is said before it."""
    for path in filter(None, paths):
        folder = os.path.dirname(path) or "."
        if not os.access(folder, os.W_OK) or not os.path.isdir(folder) or os.path.isdir(path):
            fail_with(1, f"can't write {path}: name a file in a directory that is there and can be written to")


def _run_with_files(setup: Plan, page: str, trace: str) -> Result:
    from dovetail.core.trace import Row
    from dovetail.sim.replay_page import write_page
    from dovetail.sim.run import run
    from dovetail.sim.trace import ParquetTrace

    rows: list[Row] = []
    if trace:
        with ParquetTrace(trace, setup.name, setup.seed) as file:
            result = run(setup, file.keep)
    if page or not trace:
        result = run(setup, rows.append if page else None)
    if page:
        write_page(page, rows, f"{setup.name}, seed {setup.seed}", msgspec.to_builtins(result))
    return result


def _replay_recording(directory: str, page: str, json: bool) -> None:
    from dovetail.core.recording import NotARecording
    from dovetail.sim import recorded, recorded_rows
    from dovetail.sim.replay_page import write_page

    differs = False
    try:
        for path in recorded.files(directory):
            found = recorded.replay(path)
            differs = differs or bool(found.differs)
            if json:
                print_json(found)
            else:
                said = found.differs or "all as recorded"
                typer.echo(f"{path}: {found.steps} steps, {found.inputs} inputs, {found.span_ms / 1000:.1f} s: {said}")
        rows = list(recorded_rows.rows(recorded.files(directory)))
    except NotARecording as error:
        fail(f"{directory}: {error}")
    delivered = sum(row.last - row.first + 1 for row in rows if row.kind == "deliver")
    said = "something came out differently" if differs else "every decision as recorded"
    write_page(page, rows, f"recording {directory}", {"text": said, "delivered": delivered})
    typer.echo(f"the run as a page: {page}", err=True)
    raise typer.Exit(6 if differs else 0)


def _step_through(setup: Plan) -> None:
    from dovetail.core.trace import Row
    from dovetail.sim.run import run

    def show(row: Row) -> None:
        place = f" {row.topic}:{row.partition}:{row.first}-{row.last}" if row.topic else ""
        typer.echo(
            f"{row.time_us / 1000:12.3f} ms  {row.actor:10} {row.kind}{place} {row.group} {row.fault} {row.detail}"
        )
        input()

    result = run(setup, show)
    raise typer.Exit(result.verdict.exit_code)


def _shown(work: Iterable[T], total: int, what: str, quiet: bool = False) -> Iterator[T]:
    """The results, with a bar on a terminal while they come."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(work, what, total, console=console, transient=True, disable=quiet or not console.is_terminal)


def _progress() -> Callable[[int, int], None]:
    def show(runs: int, events: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{runs} runs, {events} events left ")

    return show


def _print_result(scenario: str, result: Result) -> None:
    word = "ok" if result.verdict.is_fine else str(result.verdict).upper()
    typer.echo(
        f"{scenario} seed {result.seed}: {word}  {result.confirmed} confirmed, {result.delivered} delivered "
        f"({result.redelivered} again), {result.faults} faults, {result.time_ms / 1000:.1f} s simulated, "
        f"{result.rows} events, hash {result.hash}"
    )
    if not result.verdict.is_fine:
        typer.echo(f"  {result.invariant or 'missed'}: {result.text}")
        typer.echo(f"  again: dovetail sim replay {result.seed} --scenario {scenario}")
        typer.echo(f"  smaller: dovetail sim shrink --seed {result.seed} --scenario {scenario}")


def _print_summary(found: Summary, seed: int, seconds: float) -> None:
    typer.echo(f"{found.runs} runs from seed {seed} in {seconds:.0f} s, {found.simulated_ms / 1000:.0f} s simulated")
    typer.echo(
        f"  {found.confirmed} confirmed, {found.delivered} delivered ({found.redelivered} again), {found.faults} faults"
    )
    for failure in found.failures:
        typer.echo(f"  {failure.name} seed {failure.seed}: {failure.verdict} {failure.invariant}: {failure.text}")
    if found.unmarked:
        typer.echo(f"  never reached: {', '.join(found.unmarked)}")
    if found.unevaluated:
        typer.echo(f"  never put to the test: {', '.join(found.unevaluated)}")
    if not found.failures:
        typer.echo("  no promise was broken")


def _print_mutants(found: list[Caught], json: bool) -> None:
    rows = [
        {
            "mutant": each.mutant.name,
            "caught_by": each.by or "nobody",
            "verdict": each.verdict,
            "where": each.where,
            "runs": each.runs,
            "seconds": round(each.seconds, 1),
            "story": each.mutant.story,
        }
        for each in found
    ]
    print_rows(rows, ("mutant", "caught_by", "verdict", "where", "runs", "seconds"), Form.TABLE, json, "no mutants")
    caught = sum(bool(each.by) for each in found)
    if not json:
        typer.echo(f"{caught} of {len(found)} caught ({100 * caught // max(1, len(found))}%)")
