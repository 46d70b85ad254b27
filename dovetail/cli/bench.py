"""`dovetail bench`: how fast it is here, beside the limits of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli.output import Json, fail, print_json

app = typer.Typer(invoke_without_command=True, no_args_is_help=False, help="Measure the broker on this machine.")

Quick = Annotated[bool, typer.Option("--quick", help="A few short measurements: see that it runs, not how fast.")]

Data = Annotated[
    Path | None, typer.Option(help="Where scratch data goes, on the disk to be measured; default: temporary files.")
]


@app.callback()
def bench(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=0.05, help="How long each measurement takes.")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="Measure so often, print the median.")] = 3,
    data: Data = None,
    client: Annotated[
        str, typer.Option(help="raw: lean clients, the server is measured; sdk: the client library.")
    ] = "raw",
    profile: Annotated[bool, typer.Option("--profile", help="Show where the broker spends its time instead.")] = False,
    only: Annotated[str, typer.Option(help="Only loads whose name has this text, for example 'batches'.")] = "",
    quick: Quick = False,
    json: Json = False,
) -> None:
    """Drive a real broker over real sockets, and print its figures beside the limits measured in the same run."""
    if context.invoked_subcommand is not None:
        return
    from dovetail.runtime.bench import run, tables
    from dovetail.runtime.bench.loads import Driver
    from dovetail.runtime.bench.processes import BenchFailed

    loads, flows = (run.QUICK_LOADS, run.QUICK_FLOWS) if quick else (run.PUBLISH_LOADS, run.FLOWS)
    try:
        plan = run.Plan(
            loads=tuple(load for load in loads if only in load.name),
            flows=tuple(flow for flow in flows if only in flow.load.name),
            seconds=0.2 if quick else seconds,
            rounds=1 if quick else rounds,
            driver=Driver(client),
            directory=data,
            profile=profile,
        )
    except ValueError:
        fail(f"--client {client!r} is not known: use raw or sdk")
    if not plan.loads and not plan.flows:
        names = sorted({load.name for load in loads} | {flow.load.name for flow in flows})
        fail(f"--only {only!r} leaves nothing to measure; there are: {', '.join(names)}")
    try:
        results = run.run(plan, lambda text: typer.echo(f"… {text}", err=True))
    except (BenchFailed, OSError) as error:
        fail(str(error))
    if json:
        print_json(results)
    else:
        typer.echo(tables.report(results))


@app.command("core")
def core(
    data: Data = None,
    quick: Quick = False,
    json: Json = False,
) -> None:
    """The core, the codecs, the parts joined without I/O, and the storage engine, each beside a baseline."""
    from dovetail.runtime.bench import micro, storage, tables
    from dovetail.runtime.bench.processes import BenchFailed

    parts = micro.run(0.02 if quick else 0.3)
    try:
        lines = storage.run(data, quick=quick)
    except (BenchFailed, OSError) as error:
        fail(str(error))
    if json:
        print_json({"parts": parts, "storage": lines})
    else:
        typer.echo(tables.parts(parts, lines))


@app.command("pauses")
def pauses(
    leases: Annotated[int, typer.Option(min=1, help="How many leases members hold.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="How many checkpoints are measured.")] = 5,
    data: Data = None,
    json: Json = False,
) -> None:
    """How long the loop of a real broker stands still while it takes a checkpoint of many leases."""
    from dovetail.runtime.bench import pauses, tables
    from dovetail.runtime.bench.processes import BenchFailed
    from dovetail.runtime.bench.raw import LoadFailed

    try:
        measured = pauses.run(leases, rounds, data)
    except (BenchFailed, LoadFailed, OSError) as error:
        fail(str(error))
    if json:
        print_json(measured)
    else:
        typer.echo(tables.pauses(measured))


@app.command("browse")
def browse(
    messages: Annotated[int, typer.Option(min=1, help="How many messages the browsed topic keeps.")] = 100_000,
    seconds: Annotated[float, typer.Option(min=0.05, help="How long each turn takes.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="How many turns without and with a browser.")] = 3,
    data: Data = None,
    json: Json = False,
) -> None:
    """Publish latency while somebody browses a large topic over HTTP, beside the same with nobody browsing."""
    from dovetail.runtime.bench import browse, tables
    from dovetail.runtime.bench.processes import BenchFailed

    try:
        found = browse.run(messages, seconds, rounds, data, lambda text: typer.echo(f"… {text}", err=True))
    except (BenchFailed, OSError) as error:
        fail(str(error))
    if json:
        print_json(found)
    else:
        typer.echo(tables.browsed(found))


@app.command("report")
def report(
    rows: Annotated[str, typer.Option(help="Sizes of traces, with commas: about so many rows.")] = "1000000,10000000",
    data: Data = None,
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[*]",
    quick: Quick = False,
    json: Json = False,
) -> None:
    """What a report costs as its trace grows, beside reading the same columns and nothing else."""
    import tempfile

    from dovetail.reports import scaling
    from dovetail.reports.errors import ReportError
    from dovetail.reports.session import session

    sizes = (
        [scaling.LEAST]
        if quick
        else [int(each) for each in rows.replace("_", "").split(",") if each.strip().isdecimal()]
    )
    if not sizes or min(sizes) < scaling.LEAST:
        fail(f"--rows {rows!r}: name sizes of at least {scaling.LEAST}, for example 1000000,10000000")
    try:
        with tempfile.TemporaryDirectory(dir=data) as folder, session(master) as spark:
            for cost in scaling.measure(spark, Path(folder), sizes, lambda text: typer.echo(f"… {text}", err=True)):
                if json:
                    print_json(cost)
                else:
                    typer.echo(
                        f"{cost.rows:>13,} rows: {cost.report_s} s of processor, {cost.ratio} times the scan of the "
                        f"columns ({cost.scan_s} s); {cost.report_wall_s} s on the clock, {cost.memory_mb} MB"
                    )
    except ReportError as error:
        fail(str(error))


@app.command("backlog")
def backlog(
    messages: Annotated[int, typer.Option(min=100, help="How many messages of 1 KiB wait.")] = 1_000_000,
    data: Data = None,
    json: Json = False,
) -> None:
    """What messages that wait cost a real broker in memory."""
    from dovetail.runtime.bench import backlog, tables
    from dovetail.runtime.bench.processes import BenchFailed
    from dovetail.runtime.bench.raw import LoadFailed

    try:
        measured = backlog.run(messages, data, lambda text: typer.echo(f"… {text}", err=True))
    except (BenchFailed, LoadFailed, OSError) as error:
        fail(str(error))
    if json:
        print_json(measured)
    else:
        typer.echo(tables.backlog(measured))
