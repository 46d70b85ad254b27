"""`dovetail demo` comes and goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_however_it_is_ended_it_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "demo", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert demo.stdout is not None
    assert "console" in json.loads(demo.stdout.readline())
    assert list(tmp_path.iterdir())
    demo.send_signal(number)
    assert demo.wait(30) == 0
    assert not list(tmp_path.iterdir())
