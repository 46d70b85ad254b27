"""`dovetail serve`: run a broker until it is told to stop."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer

from dovetail.cli.config import ConfigFile, Set, load_config, read_config
from dovetail.cli.stopping import Stopping
from dovetail.runtime.exits import Exit

if TYPE_CHECKING:
    from dovetail.runtime.config import Config, Origins
    from dovetail.runtime.server import Server
    from dovetail.runtime.storage.findings import Progress as Step
    from dovetail.runtime.tracing import Tracer


def serve(
    data: Annotated[str | None, typer.Option(help="Where messages are kept; made if it is not there.")] = None,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT for clients; port 0 lets the system choose. [127.0.0.1:7400]")
    ] = None,
    http: Annotated[str | None, typer.Option(help="HOST:PORT for HTTP; empty for none. [127.0.0.1:7480]")] = None,
    partitions: Annotated[str | None, typer.Option(help="Partitions of a topic made on first use.")] = None,
    record: Annotated[str | None, typer.Option(help="Keep a recording here, for `dovetail sim replay`.")] = None,
    trace: Annotated[str | None, typer.Option(help="Keep a trace here, for `dovetail report`.")] = None,
    tokens: Annotated[str | None, typer.Option(help="The file of tokens; `dovetail token add` writes it.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text, json, or auto: text on a terminal, else JSON.")] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error; debug follows each message. [info]")
    ] = None,
    trace_wire: Annotated[bool, typer.Option("--trace-wire", help="Log every frame, without payloads.")] = False,
    config: ConfigFile = "",
    settings: Set = None,
) -> None:
    """Run a broker. It stops cleanly on SIGTERM and SIGINT (Ctrl-C)."""
    flags = {
        "data": data,
        "listen": listen,
        "http": http,
        "partitions": partitions,
        "record": record,
        "trace": trace,
        "tokens": tokens,
        "log_format": log_format,
        "log_level": log_level,
        "trace_wire": "true" if trace_wire else None,
    }
    said = {key: text for key, text in flags.items() if text is not None}
    with Stopping() as stopping:
        loaded, origins = read_config(config, said, settings)
        from dovetail.runtime import logs

        logs.set_up(loaded.log_format, loaded.log_level)
        code = asyncio.run(_serve(stopping, loaded, origins, lambda: load_config(config, said, settings)))
    raise typer.Exit(code)


async def _serve(
    stopping: Stopping, config: Config, origins: Origins, reread: Callable[[], tuple[Config, Origins]]
) -> int:
    from dovetail.runtime.process import tune
    from dovetail.runtime.reload import reload_and_say
    from dovetail.runtime.server import Server, StartFailed

    log = structlog.get_logger("broker")
    stopping.hear_in_loop()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_complain(log))
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # what it would have read again is still to be read
    try:
        with _progress(stopping) as on_progress:
            server = await Server.start(config, on_progress, _tracer(config.trace))
    except StartFailed as error:
        log.error("start failed", reason=str(error))
        return int(error.code)
    except _Stopped:
        log.info("stopped", while_="recovering")
        return int(Exit.OK)
    server.origins = origins
    server.reread = reread
    loop.add_signal_handler(signal.SIGHUP, reload_and_say, server)
    tune()
    _ready(log, server)
    failed = asyncio.ensure_future(server.wait())
    stopped = asyncio.ensure_future(stopping.wait())
    asked = asyncio.ensure_future(server.stop_asked.wait())
    await asyncio.wait([failed, stopped, asked], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    asked.cancel()
    if failed.done():
        await server.stop()
        log.critical("ended", reason=str(failed.result()))
        return int(failed.result().code)
    failed.cancel()
    log.info("stopping")
    await server.stop()
    log.info("stopped")
    return int(Exit.OK)


def _tracer(directory: str) -> Tracer | None:
    """What is told of every step, where a trace is wanted."""
    from dovetail.runtime.server import StartFailed
    from dovetail.runtime.tracing import Tracer

    if not directory:
        return None
    if importlib.util.find_spec("pyarrow") is None:
        raise StartFailed(
            "a trace needs pyarrow: pip install '.[sim]' in Dovetail's folder, or start without --trace", Exit.USAGE
        )
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise StartFailed(f"can't trace: {error}; choose another directory with --trace", Exit.DISK) from error
    return Tracer([sys.executable, "-m", "dovetail.tracing", directory])


def _complain(log: structlog.stdlib.BoundLogger) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Logs what goes wrong in the loop itself, the same trouble once a second at most: a flood fills no disk."""
    last: dict[str, float] = {}

    def complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        what = f"{context.get('message')}: {context.get('exception')!r}"[:500]
        if loop.time() - last.get(what, 0.0) < 1.0:
            return
        if len(last) > 100:
            last.clear()
        last[what] = loop.time()
        log.error("trouble in the loop", what=what)

    return complain


def _ready(log: structlog.stdlib.BoundLogger, server: Server) -> None:
    """The one line that says that the broker takes work."""
    from dovetail.runtime.config import address

    report = server.opened.report
    places = {"tcp": f"{address(server.config.listen)[0]}:{server.port}"}
    if server.config.http:
        places["http"] = f"{address(server.config.http)[0]}:{server.http_port}"
    for finding in report.findings:
        log.warning("recovery", finding=str(finding))
    if server.opened.quarantined:
        log.warning("damaged files are kept in quarantine/", files=server.opened.quarantined)
    log.info(
        "ready",
        **places,
        data=server.config.data,
        recovered_lsn=report.last_lsn,
        replayed=report.messages,
        recovery_ms=round(server.recovery_s * 1e3),
    )


class _Stopped(Exception):
    """We were told to stop while the data directory was still being recovered."""


@contextmanager
def _progress(stopping: Stopping) -> Iterator[Callable[[Step], None]]:
    """Shows a long recovery, and ends it where we are told to stop: the next start begins it anew."""
    with _bar() if sys.stderr.isatty() else nullcontext(_logged_progress()) as show:

        def report(step: Step) -> None:
            if stopping.asked:
                raise _Stopped
            show(step)

        yield report


@contextmanager
def _bar() -> Iterator[Callable[[Step], None]]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("recovering: {task.description}"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, transient=True)
    task = bar.add_task("", total=None)

    def show(step: Step) -> None:
        if not bar.live.is_started:
            bar.start()
        bar.update(task, description=step.stage, completed=step.done_bytes, total=step.total_bytes)

    try:
        yield show
    finally:
        bar.stop()


PROGRESS_S = 5.0
"""Between two lines about a recovery that takes long."""


def _logged_progress() -> Callable[[Step], None]:
    begun = said = time.monotonic()

    def say(step: Step) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= PROGRESS_S and step.done_bytes:
            said = now
            left_s = (now - begun) * (step.total_bytes - step.done_bytes) / step.done_bytes
            share = f"{100 * step.done_bytes // max(1, step.total_bytes)}%"
            structlog.get_logger("broker").info("recovering", stage=step.stage, done=share, remaining_s=round(left_s))

    return say
