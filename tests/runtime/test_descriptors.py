"""Connections leave the broker's files the descriptors they need."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.runtime.descriptors import FILES, Room, TooFew, fitting
from dovetail.runtime.exits import Exit

CROWD = """
import socket, sys, time
kept = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(300)]
print("here", flush=True)
time.sleep(60)
"""
STORY = """
import asyncio, resource, sys
from asyncio.subprocess import PIPE
from dovetail import connect
from dovetail.runtime.config import Config
from dovetail.runtime.server import Server

async def main(data, crowd):
    resource.setrlimit(resource.RLIMIT_NOFILE, (450, 450))
    server = await Server.start(Config(data=data, listen="127.0.0.1:0", http="", drain_ms=0))
    async with connect(f"127.0.0.1:{server.port}") as client:
        await client.publish("before", "x")
        command = sys.executable, "-c", crowd, str(server.port)
        crowds = [await asyncio.create_subprocess_exec(*command, stdout=PIPE) for _ in range(2)]
        for each in crowds:
            assert await each.stdout.readline() == b"here\\n"
        while server.connection_count < server.connections_max:
            await asyncio.sleep(0.01)
        for number in range(20):
            await client.publish(f"after.{number}", "y")
        for each in crowds:
            each.kill()
            await each.wait()
    await server.stop()
    print("fine")

asyncio.run(main(*sys.argv[1:]))
"""


@given(st.integers(1, 100_000), st.integers(0, 100_000), st.integers(1, 1_000_000))
def test_what_fits_leaves_the_files_theirs_and_each_kind_of_connection_some(wire: int, http: int, limit: int) -> None:
    wanted = Room(wire, http)
    if limit < min(FILES + 2, wanted.needs):
        with pytest.raises(TooFew, match=f"best to {wanted.needs}"):
            fitting(wanted, limit)
        return
    room = fitting(wanted, limit)
    assert room.needs <= limit
    assert 1 <= room.wire <= wire
    assert min(http, 1) <= room.http <= http
    assert room == wanted or room.needs >= min(limit, wanted.needs) - 1


def test_a_broker_without_descriptors_for_its_files_says_so_and_does_not_start(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "dovetail", "serve", "--data", str(tmp_path / "data"), "--log-format", "json"]
    few = ["bash", "-c", 'ulimit -n 64 && exec "$@"', "bash", *words]
    done = subprocess.run(few, capture_output=True, text=True, timeout=120)
    assert done.returncode == Exit.USAGE
    assert "raise `ulimit -n`" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_crowd_beyond_the_limit_of_descriptors_does_not_end_the_broker(tmp_path: object) -> None:
    command = [sys.executable, "-c", STORY, str(tmp_path), CROWD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("fine\n"), done.stderr
    assert "out of system resource" not in done.stderr
