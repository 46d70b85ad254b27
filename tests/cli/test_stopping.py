"""A signal to stop is heard at any moment of a start."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli.serve import _progress, _Stopped
from dovetail.cli.stopping import SIGNALS, Stopping
from dovetail.runtime.config import Config
from dovetail.runtime.server import Server
from dovetail.runtime.storage.findings import Progress
from tests.broker.raw import Raw

STEP = Progress("reading the journal", 1, 2)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_heard_before_there_is_a_loop_and_in_it(number: signal.Signals) -> None:
    async def wait(stopping: Stopping, *, send: bool) -> None:
        stopping.hear_in_loop()
        if send:
            os.kill(os.getpid(), number)
        await asyncio.wait_for(stopping.wait(), 60)

    before = signal.getsignal(number)
    for early in (True, False):
        with Stopping() as stopping:
            if early:
                os.kill(os.getpid(), number)
                assert stopping.asked
            asyncio.run(wait(stopping, send=not early))
            assert stopping.asked
        assert signal.getsignal(number) is before


def test_a_recovery_is_given_up_when_the_broker_is_told_to_stop_and_begun_anew_next_time(tmp_path: Path) -> None:
    async def start_twice() -> None:
        config = Config(data=str(tmp_path / "data"), listen="127.0.0.1:0", http="")
        with Stopping() as stopping, _progress(stopping) as report:
            report(STEP)
            stopping.asked = True
            with pytest.raises(_Stopped):
                await Server.start(config, report)
        server = await Server.start(config)
        await server.stop()

    asyncio.run(start_twice())


def test_a_broker_whose_log_nobody_reads_any_more_works_on_and_stops_well(tmp_path: Path) -> None:
    places = ("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "")
    command = [sys.executable, "-m", "dovetail", "serve", *places, "--log-level", "debug", "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as broker:
        assert broker.stderr is not None
        ready = next(said for line in broker.stderr if (said := json.loads(line))["event"] == "ready")
        broker.stderr.close()
        with Raw(int(ready["tcp"].rpartition(":")[2])) as client:
            assert [client.publish("jobs") for _ in range(3)] == ["jobs:0:0", "jobs:0:1", "jobs:0:2"]
        broker.terminate()
        assert broker.wait(60) == 0
    assert len(list((tmp_path / "data" / "checkpoints").iterdir())) == 2
