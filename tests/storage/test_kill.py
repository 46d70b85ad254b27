"""A real process on a real file system, killed without warning, again and again: nothing confirmed is lost.

`DOVETAIL_KILLS=50 pytest tests/storage/test_kill.py` does it fifty times.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

from dovetail.core import batch
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.real_disk import RealDisk
from tests.storage.build import Broker

ROUNDS = int(os.environ.get("DOVETAIL_KILLS", "3"))
OPTIONS = StoreOptions(
    journal_segment_bytes=64 << 10, log_segment_bytes=32 << 10, checkpoint_journal_bytes=128 << 10, sync_each_max=1
)


def main(directory: str) -> None:
    """Publish numbered messages to three logs without end; say each number once it is confirmed."""
    broker = Broker(RealDisk(directory), OPTIONS)
    first = broker.durable.topics[1].first_log if broker.durable.topics else broker.create("orders", partitions=3)
    print("ready", flush=True)
    while True:
        log = first + broker.durable.lsn % 3
        made = broker.publish(log, b"%d:%d" % (log, broker.durable.logs[log].end) * 30)
        print(log, made.last, flush=True)
        if broker.store.wants_checkpoint:
            broker.checkpoint()


def test_a_killed_process_loses_nothing_it_confirmed(tmp_path: Path) -> None:
    random = Random(1)
    directory = os.fspath(tmp_path / "data")
    confirmed: dict[int, int] = {}
    for _ in range(ROUNDS):
        _kill_after(directory, random.randrange(20, 120), confirmed)
        disk = RealDisk(directory)
        broker = Broker(disk, OPTIONS)
        assert all(finding.outcome != "lost" for finding in broker.opened.report.findings)
        for log, last in confirmed.items():
            found = broker.read_all(log)
            assert found[-1].last >= last
            for entry in found:
                (record,) = batch.parse(entry.batch)
                assert record.value == b"%d:%d" % (log, record.offset) * 30
        broker.close()
        disk.close()


def _kill_after(directory: str, messages: int, confirmed: dict[int, int]) -> None:
    """Run the process until it has confirmed so many messages, then kill it in the middle of its work."""
    code = f"from tests.storage.test_kill import main; main({directory!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            if line.strip() == "ready":
                continue
            log, last = map(int, line.split())
            confirmed[log] = last
            if number == messages:
                process.kill()
                break
        for line in process.stdout:
            if line.endswith("\n") and line.strip() != "ready":
                log, last = map(int, line.split())
                confirmed[log] = last
