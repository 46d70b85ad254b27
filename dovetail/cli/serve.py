"""`dovetail serve`: run a broker until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from dovetail.cli.output import fail
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.runtime.config import Config
    from dovetail.runtime.server import Server
    from dovetail.runtime.storage.findings import Progress as Step


def serve(
    data: Annotated[str, typer.Option(help="Where messages are kept; made if it is not there.")] = "data",
    listen: Annotated[
        str, typer.Option(help="HOST:PORT for clients; port 0 lets the system choose.")
    ] = "127.0.0.1:7400",
    http: Annotated[str, typer.Option(help="HOST:PORT for HTTP; empty for none.")] = "127.0.0.1:7480",
    partitions: Annotated[int, typer.Option(min=1, max=1000, help="Partitions of a topic made on first use.")] = 1,
    record: Annotated[str, typer.Option(help="Keep a recording here, for `dovetail sim replay`.")] = "",
    log_format: Annotated[str, typer.Option(help="text, json, or auto: text on a terminal, else JSON.")] = "auto",
) -> None:
    """Run a broker. It stops cleanly on SIGTERM and SIGINT (Ctrl-C)."""
    from dovetail.core.state import Settings
    from dovetail.runtime.config import BadAddress, Config, address

    if log_format not in ("auto", "text", "json"):
        fail(f"--log-format {log_format!r} is not known: use auto, text or json", Exit.USAGE)
    try:
        address(listen)
        if http:
            address(http)
    except BadAddress as error:
        fail(str(error), Exit.USAGE)
    _set_up_logs(log_format)
    config = Config(data=data, listen=listen, http=http, settings=Settings(partitions=partitions), record=record)
    raise typer.Exit(asyncio.run(_serve(config)))


async def _serve(config: Config) -> int:
    from dovetail.runtime.server import Server, StartFailed

    log = structlog.get_logger("broker")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        server = await Server.start(config, _progress())
    except StartFailed as error:
        log.error("start failed", reason=str(error))
        return int(error.code)
    _ready(log, server)
    failed = asyncio.ensure_future(server.wait())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait([failed, stopped], return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        await server.stop()
        log.critical("ended", reason=str(failed.result()))
        return int(failed.result().code)
    failed.cancel()
    log.info("stopping")
    await server.stop()
    log.info("stopped")
    return int(Exit.OK)


def _ready(log: structlog.stdlib.BoundLogger, server: Server) -> None:
    """The one line that says that the broker takes work."""
    from dovetail.runtime.config import address

    report = server.opened.report
    places = {"tcp": f"{address(server.config.listen)[0]}:{server.port}"}
    if server.config.http:
        places["http"] = f"{address(server.config.http)[0]}:{server.http_port}"
    for finding in report.findings:
        log.warning("recovery", finding=str(finding))
    log.info("ready", **places, data=server.config.data, recovered_lsn=report.last_lsn, messages=report.messages)


def _progress() -> Callable[[Step], None] | None:
    """Shows a long recovery on a terminal."""
    if not sys.stderr.isatty():
        return None
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("recovering: {task.description}"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, transient=True)
    task = bar.add_task("", total=None)

    def show(step: Step) -> None:
        if not bar.live.is_started:
            bar.start()
        bar.update(task, description=step.stage, completed=step.done_bytes, total=step.total_bytes)
        if step.done_bytes >= step.total_bytes:
            bar.stop()

    return show


def _set_up_logs(log_format: str) -> None:
    as_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    text, lines = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()), structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            text if as_text else lines,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
