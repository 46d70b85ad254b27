"""A real broker's recording, killed in the middle, runs again to the same records and effects."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

from dovetail import connect
from dovetail.sim import recorded, recorded_rows


def serve(directory: Path) -> tuple[subprocess.Popen[str], str]:
    """A broker that records, and its address."""
    command = [sys.executable, "-m", "dovetail", "serve", "--data", str(directory / "data"), "--http", ""]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--record", str(directory / "recording"), "--log-format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if '"ready"' in line:
            return process, str(json.loads(line)["tcp"])
    raise AssertionError("the broker did not start")


async def load(address: str) -> None:
    async with connect(f"dovetail://{address}") as client:
        await asyncio.gather(*(client.publish("orders", f"order {number}".encode()) for number in range(200)))
        got = 0
        async for message in client.subscribe("orders", group="workers"):
            await (message.ack() if got % 5 else message.nack())
            got += 1
            if got == 150:
                break


def test_a_killed_brokers_recording_gives_the_same_records_and_effects(tmp_path: Path) -> None:
    for _ in range(2):
        process, address = serve(tmp_path)
        try:
            asyncio.run(load(address))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    directory = str(tmp_path / "recording")
    command = [
        sys.executable,
        "-m",
        "dovetail",
        "sim",
        "replay",
        directory,
        "--page",
        f"{tmp_path}/page.html",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 2
    assert sum(each["steps"] for each in found) > 10
    rows = list(recorded_rows.rows(recorded.files(directory)))
    assert {"connect", "publish", "confirm", "deliver", "ack", "nack"} <= {row.kind for row in rows}
    assert [row.kind for row in rows if row.actor == "broker" and row.kind in ("up", "down")] == ["up", "down", "up"]
    assert [row.time_us for row in rows] == sorted(row.time_us for row in rows)
    acked = [row for row in rows if row.kind == "ack"]
    assert {(row.topic, row.group) for row in acked} == {("orders", "workers")}
    confirmed = sum(row.last - row.first + 1 for row in rows if row.kind == "confirm")
    assert 0 < confirmed <= 400
