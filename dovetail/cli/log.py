"""`dovetail log`: look at a data directory while no broker runs on it, and repair it."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import asdict

from dovetail.cli.output import Json, fail, print_json
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.runtime.storage.findings import Progress
    from dovetail.runtime.storage.real_disk import RealDisk

app = typer.Typer(no_args_is_help=True, help="Verify, dump and repair a data directory, offline.")
Directory = Annotated[str, typer.Argument(metavar="DIR", help="The data directory.")]


class What(StrEnum):
    """What a dump shows."""

    JOURNAL = "journal"
    LOGS = "logs"
    STATE = "state"


@app.callback()
def log() -> None:
    """Verify, dump and repair a data directory, offline."""


@app.command("verify")
def verify_directory(directory: Directory, json: Json = False) -> None:
    """Read everything in DIR and say what is damaged; ends with 65 when something that was stored is lost."""
    from dovetail.runtime.storage import tools
    from dovetail.runtime.storage.disk import run
    from dovetail.runtime.storage.layout import StoreOptions

    with _opened(directory, read_only=True) as disk, _progress() as show:
        found = run(disk, tools.verify(StoreOptions(), show))
    if json:
        print_json({**asdict(found), "sound": found.is_sound})
    else:
        typer.echo(
            f"broker {found.broker_id}: {found.topics} topics, {found.logs} logs, {found.messages} messages, "
            f"{found.log_bytes} bytes in logs; journal to lsn {found.last_lsn}, checkpoint at {found.checkpoint_lsn}"
        )
        for finding in found.findings:
            typer.echo(str(finding))
        way_out = f"`dovetail log repair {shlex.quote(directory)} --yes` goes on without, and keeps aside what it cuts"
        typer.echo("sound" if found.is_sound else f"damaged: {way_out}")
    if not found.is_sound:
        raise typer.Exit(int(Exit.DAMAGED))


@app.command("dump")
def dump_directory(
    directory: Directory,
    what: Annotated[What, typer.Argument(help="What to show.")] = What.JOURNAL,
    topic: Annotated[str, typer.Option("--topic", help="Only this topic's logs.")] = "",
    records: Annotated[bool, typer.Option("--records", help="Show the messages too.")] = False,
    json: Json = False,
) -> None:
    """Print what is in DIR, one line each: journal records, log entries, or the state."""
    from dovetail.runtime.storage import tools
    from dovetail.runtime.storage.disk import run
    from dovetail.runtime.storage.layout import StoreOptions

    if topic and what is not What.LOGS:
        fail(f"--topic picks one topic's logs: `dovetail log dump {directory} logs --topic {topic}`", Exit.USAGE)
    emit = print_json if json else _print_row
    options = StoreOptions()
    with _opened(directory, read_only=True) as disk:
        match what:
            case What.JOURNAL:
                run(disk, tools.dump_journal(options, emit, records))
            case What.LOGS:
                run(disk, tools.dump_logs(options, topic, emit, records))
            case What.STATE:
                run(disk, tools.dump_state(options, emit))


@app.command("repair")
def repair_directory(
    directory: Directory,
    yes: Annotated[bool, typer.Option("--yes", help="Do it: what can't be read is given up.")] = False,
    json: Json = False,
) -> None:
    """Go on without what is damaged in DIR; what is cut is kept in DIR/quarantine."""
    from dovetail.runtime.storage import tools
    from dovetail.runtime.storage.disk import run
    from dovetail.runtime.storage.layout import StoreOptions

    if not yes:
        fail(f"look first: `dovetail log verify {directory}`; then repair with --yes", Exit.USAGE)
    with _opened(directory) as disk, _progress() as show:
        done = run(disk, tools.repair(StoreOptions(), time.time_ns() // 1_000_000, secrets.randbits(63) + 1, show))
    if json:
        print_json(done)
        return
    for finding in (*done.report.findings, *done.findings):
        typer.echo(str(finding))
    for path in done.quarantined:
        typer.echo(f"kept: {path}")
    typer.echo("repaired" if done.quarantined else "nothing to repair")


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None] | None]:
    """A progress bar on standard error, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda seen: bar.update(task, description=seen.stage, completed=seen.done_bytes, total=seen.total_bytes)


@contextmanager
def _opened(directory: str, *, read_only: bool = False) -> Iterator[RealDisk]:
    """The directory as a disk; its troubles become one line and an exit code."""
    from dovetail.runtime.storage.disk import DiskError, Kind
    from dovetail.runtime.storage.findings import Corrupted, Unusable
    from dovetail.runtime.storage.real_disk import RealDisk

    disk = RealDisk(directory, read_only=read_only)
    try:
        yield disk
    except DiskError as error:
        if error.kind is Kind.LOCKED:
            fail(f"{error}; stop that broker first", Exit.LOCKED)
        fail(str(error), Exit.DISK)
    except Corrupted as error:
        fail(f"{directory}: {error.about(directory)}", Exit.DAMAGED)
    except Unusable as error:
        fail(f"{directory}: {error}", Exit.DAMAGED)
    finally:
        disk.close()


def _print_row(row: dict[str, Any]) -> None:
    lsn = f"{row.pop('lsn')} " if "lsn" in row else ""
    kind = row.pop("kind")
    typer.echo(f"{lsn}{kind} " + " ".join(f"{name}={value!r}" for name, value in row.items()))
