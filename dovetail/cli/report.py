"""`dovetail report`: what a campaign, or a trace, says: tables, an audit, a page for people."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.output import Json, fail

if TYPE_CHECKING:
    from dovetail.reports.dataset import Dataset

MASTER = "local[*]"
"""`reports/session.py` says the same; help texts are not to import Spark's."""


def report(
    campaign: Annotated[str, typer.Argument(help="A campaign, or a directory or file of trace rows.")],
    against: Annotated[str, typer.Option("--against", help="Another campaign: say what moved since.")] = "",
    out: Annotated[
        str,
        typer.Option("--out", help="Write here; by default `report` in the campaign, or TRACE-report beside a trace."),
    ] = "",
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = MASTER,
    partial: Annotated[bool, typer.Option("--partial", help="Take a campaign that is not finished.")] = False,
    json: Json = False,
) -> None:
    """Analyse a campaign or a trace: write index.html, and each table as Parquet and CSV beside it.

    Ends with 4 if the audit found a broken promise, or does not agree with the checkers of the simulation.
    """
    from dovetail.reports.dataset import open_dataset
    from dovetail.reports.errors import ReportError
    from dovetail.reports.page import page
    from dovetail.reports.report import as_json, make, write_tables
    from dovetail.reports.session import check_master, session

    try:
        chosen = open_dataset(campaign, partial=partial)
        other = open_dataset(against, partial=partial) if against else None
        place = Path(out) if out else _beside(chosen)
        _make_room(place)
        check_master(master)
        with session(master, silent=True) as spark:
            found = make(spark, chosen, other, _progress(json))
        write_tables(found, place / "tables")
        (place / "index.html").write_text(page(found), encoding="utf-8")
    except ReportError as error:
        fail(str(error))
    except OSError as error:
        fail(f"can't write the report: {error}; --out names another place")
    if json:
        typer.echo(as_json(found))
    else:
        typer.echo(
            f"{found.title}: {found.runs} runs, {found.findings_total} findings of the audit, "
            f"{len(found.disagreements)} disagreements with the checkers"
        )
        for each in found.findings[:20]:
            where = f"{each['topic']}:{each['partition']}:{each['at']}"
            typer.echo(
                f"  {each['run']} seed {each['seed']} event {each['seq']}: {each['kind']}: {where} {each['story']}"
            )
        for moved in found.compared:
            typer.echo(f"  {moved.figure}: {moved.before:g} -> {moved.after:g}: {moved.verdict}")
        typer.echo(f"the report: {place / 'index.html'}")
    raise typer.Exit(4 if found.findings or found.disagreements else 0)


def _beside(dataset: Dataset) -> Path:
    if dataset.manifest is not None:
        return dataset.path / "report"
    # Spark would take what lies below a trace for a part of it.
    return dataset.path.with_name(f"{dataset.path.stem}-report")


def _make_room(place: Path) -> None:
    from dovetail.reports.errors import ReportError

    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"can't write into {place} ({error.strerror}): --out names another directory") from None


def _progress(json: bool) -> Callable[[str], None]:
    """A line on a terminal that says what is being worked on."""
    shown = sys.stderr.isatty() and not json

    def tell(what: str) -> None:
        if shown:
            sys.stderr.write(f"\r\033[K{what} …")
            sys.stderr.flush()

    return tell
