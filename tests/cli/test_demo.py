"""`dovetail demo` comes and goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HELPLESS = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
)
"""Runs a command as a shell runs what it has in the background: without Ctrl-C."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_however_it_is_ended_it_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-c", HELPLESS, sys.executable, "-m", "dovetail", "demo", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert demo.stdout is not None
    assert "console" in json.loads(demo.stdout.readline())
    assert list(tmp_path.iterdir())
    demo.send_signal(number)
    said, complaints = demo.communicate(timeout=120)
    assert demo.returncode == 0
    assert json.loads(said).keys() >= {"published", "billed"}
    assert complaints == "The shop is closed.\n"
    assert not list(tmp_path.iterdir())
