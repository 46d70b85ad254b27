"""`dovetail prove`: the table of proofs, and how many mutants of the proved functions they kill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from dovetail.cli.output import Json, fail, print_json
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from rich.table import Table

    from dovetail.proofs.run import Row, Score

T = TypeVar("T")

WIDTH = 160
"""Of the table off a terminal."""

Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many proofs run at once.")]


def prove(
    only: Annotated[str, typer.Argument(help="Only proofs whose id, invariant or function holds this text.")] = "",
    mutants: Annotated[bool, typer.Option("--mutants", help="Count mutants of proved functions killed.")] = False,
    jobs: Jobs = 2,
    json: Json = False,
) -> None:
    """Prove what is claimed about the core's own functions, and show that each proof can fail."""
    from dovetail.proofs import registry, run

    if mutants:
        names = [name for name in run.proved_functions() if only in name]
        scores = list(_shown(run.score_all(names, jobs), len(names), "functions"))
        return _print_scores(scores, json)
    wanted = [proof for proof in registry.proofs() if only in f"{proof.id} {proof.invariant} {proof.function}"]
    if not wanted:
        fail(f"no proof is called, keeps or is about {only!r}: `dovetail prove` lists them all")
    rows = list(_shown(run.check_all([proof.id for proof in wanted], jobs), len(wanted), "proofs"))
    return _print_rows(rows, json)


def _shown(work: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The results, with a bar on a terminal while they come."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(work, what, total, console=console, transient=True, disable=not console.is_terminal)


def _print_rows(rows: list[Row], json: bool) -> None:
    bad = [row for row in rows if not row.is_good]
    if json:
        print_json([msgspec.structs.asdict(row) for row in rows])
    else:
        from rich.console import Console

        console = Console()
        console = console if console.is_terminal else Console(width=WIDTH)
        console.print(_table(rows))
        for row in bad:
            console.print(f"\n[bold]{row.id}[/bold]: {row.verdict}; {row.detail}", highlight=False)
            if row.test:
                console.print(
                    f"\nas a test, which passes when {row.function} is right again:\n", markup=False, soft_wrap=True
                )
                console.print(row.test, markup=False, highlight=False, soft_wrap=True)
            if row.verdict == "proved":
                console.print(f"its planted bug was not found: {row.sabotage}", markup=False)
        seconds = sum(row.seconds for row in rows)
        paths = sum(row.paths for row in rows)
        console.print(f"\n{len(rows) - len(bad)} of {len(rows)} proved, {paths} paths, {seconds:.0f} s of work")
    if bad:
        raise typer.Exit(int(Exit.FAILED))


def _table(rows: list[Row]) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column("proof", overflow="fold", ratio=3)
    table.add_column("about", overflow="fold", ratio=2)
    for name in ("paths", "branches", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        verdict = f"[green]{row.verdict}[/green]" if row.is_good else f"[red]{row.verdict}[/red]"
        table.add_row(
            f"{row.invariant} [bold]{row.id}[/bold]\n{row.statement}",
            f"{row.function}\n[dim]{row.scope}[/dim]",
            str(row.paths),
            "{}/{}".format(*row.branches),
            f"{row.seconds:.2f}",
            verdict,
        )
    return table


def _print_scores(scores: list[Score], json: bool) -> None:
    if json:
        return print_json([msgspec.structs.asdict(score) for score in scores])
    from rich.console import Console

    from dovetail.proofs.equivalents import EQUIVALENT

    console = Console(soft_wrap=True)
    for score in scores:
        console.print(f"{score.function}: {score.killed} of {score.mutants}", highlight=False)
        for label in score.survivors:
            console.print(f"    lives: {label}", markup=False, highlight=False)
        for label in score.unanswered:
            console.print(f"    no answer: {label}", markup=False, highlight=False)
        for label in score.equivalent:
            console.print(f"    equivalent: {label} ({EQUIVALENT[label]})", markup=False, highlight=False)
    total, killed = sum(score.mutants for score in scores), sum(score.killed for score in scores)
    same = sum(len(score.equivalent) for score in scores)
    open_ = sum(len(score.unanswered) for score in scores)
    rate = killed / max(1, total)
    console.print(f"\n{killed} of {total} mutants killed by proofs alone ({rate:.1%}), {same} change nothing")
    console.print(f"of {open_} neither a proof nor a counterexample was found")
