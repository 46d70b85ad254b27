"""Connections leave the broker's files the descriptors they need."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from dovetail.runtime.descriptors import OTHERS, fitting
from dovetail.runtime.storage.real_disk import OPEN_FILES_MAX

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


@given(st.integers(1, 100_000), st.integers(1, 1_000_000))
def test_what_fits_leaves_the_files_theirs_wherever_it_can(wanted: int, limit: int) -> None:
    allowed = fitting(wanted, limit)
    assert 1 <= allowed <= wanted
    assert allowed == 1 or allowed + OPEN_FILES_MAX + OTHERS <= limit


def test_a_crowd_beyond_the_limit_of_descriptors_does_not_end_the_broker(tmp_path: object) -> None:
    command = [sys.executable, "-c", STORY, str(tmp_path), CROWD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("fine\n"), done.stderr
    assert "out of system resource" not in done.stderr
