"""A signal to stop is heard at any moment of a start."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from dovetail.cli.serve import _progress, _Stopped
from dovetail.cli.stopping import SIGNALS, Stopping
from dovetail.runtime.config import Config
from dovetail.runtime.server import Server
from dovetail.runtime.storage.findings import Progress

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
