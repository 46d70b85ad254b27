"""Every crash of small runs: after each single operation, every subset of unsynced sectors, lengths and names.

Nothing is sampled here; `test_crashes` samples runs that are too large for this. Crashes that leave the same bytes
under the same names are recovered from once, and held to what was confirmed at each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dovetail.core.records import SyncPolicy
from dovetail.core.state import Durable
from dovetail.runtime.storage.disk import Op, Sync, SyncAll, SyncDir, run
from dovetail.runtime.storage.findings import Corrupted
from dovetail.sim.disk import Odometer, SimDisk
from tests.storage.test_crashes import (
    History,
    Recorded,
    Watched,
    check_recovered,
    delete_and_create_again,
)

Script = Callable[[SimDisk, History], None]


def publish_a_large_batch(disk: SimDisk, history: History) -> None:
    """One frame over eight sectors, in the journal and then in the log, beside a small one; then both are settled."""
    broker = Recorded(disk, history)
    log = broker.create("orders")
    group = broker.join("billing", log)
    small, large = broker.entry(log, b"first"), b"second" * 640
    broker.commit([small], write_behind=False)
    second = broker.entry(log, large)
    broker.commit([second], write_behind=False)
    run(disk, broker.store.write_behind(broker.durable.lsn, [small, second]))
    broker.settle(group, log, 0, 1)


def publish_to_two_logs(disk: SimDisk, history: History) -> None:
    """Two logs are written behind, their indexes too, and synced by a checkpoint."""
    broker = Recorded(disk, history)
    log = broker.create("orders", partitions=2)
    broker.publish(log, b"left" * 20)
    broker.publish(log + 1, b"right" * 20)
    broker.publish(log, b"left again")
    broker.checkpoint()
    broker.publish(log + 1, b"right again")


def checkpoint_and_recycle(disk: SimDisk, history: History) -> None:
    """The journal rolls, checkpoints free its segments, and a freed one is written to again."""
    broker = Recorded(disk, history)
    log = broker.create("orders")
    for number in range(6):
        broker.publish(log, b"%d" % number * 300)
        broker.checkpoint()
    broker.commit([broker.entry(log, b"last")], write_behind=False)


def confirm_late(disk: SimDisk, history: History) -> None:
    """Four commits wait for one sync."""
    broker = Recorded(disk, history)
    log = broker.create("orders")
    for number in range(4):
        entry = broker.entry(log, b"%d" % number * 230)
        broker.commit([entry], write_behind=False, sync=number == 3)


def stop_and_start(disk: SimDisk, history: History) -> None:
    """A clean stop, a start, and a crash of the process alone, after which the journal's tail is not yet synced."""
    broker = Recorded(disk, history)
    log = broker.create("orders", sync=SyncPolicy.OS)
    broker.publish(log, b"before")
    broker.close()
    broker = Recorded(disk, history)
    broker.commit([broker.entry(log, b"in between")], sync=False)
    disk.kill()
    broker = Recorded(disk, history)
    broker.publish(log, b"after")


SCRIPTS: list[Script] = [
    publish_a_large_batch,
    publish_to_two_logs,
    checkpoint_and_recycle,
    confirm_late,
    stop_and_start,
    delete_and_create_again,
]


class Forgetful(Watched):
    """Skips the syncs it is told to: what a broker does that believes too early that something is on the disk."""

    skips: Callable[[Op], bool] = staticmethod(lambda op: False)

    def execute(self, op: Op) -> Any:
        if not self.skips(op):
            return super().execute(op)
        self.after()
        return None


def crash_in_every_way(script: Script, disk: Watched) -> int:
    """Run the script; after each operation recover from every disk a crash there leaves. Gives how many differ."""
    history = History()
    history.note(Durable())
    recovered: dict[bytes, int] = {}

    def after() -> None:
        for left in disk.outcomes():
            image = left.image()
            if image not in recovered:
                recovered[image] = check_recovered(left, history).durable.lsn
            assert recovered[image] >= history.confirmed

    disk.after = after  # type: ignore[method-assign]
    script(disk, history)
    return len(recovered)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_what_was_confirmed_survives_every_crash_there_is(script: Script) -> None:
    assert crash_in_every_way(script, Watched(Random(1))) > 40


def test_the_outcomes_of_a_crash_are_all_that_choosing_can_give() -> None:
    disk = Watched(Random(1))
    compared = 0

    def after() -> None:
        nonlocal compared
        odometer = Odometer()
        chosen: set[bytes] = set()
        while True:
            twin = disk.copy()
            twin.crash(odometer.choose)
            chosen.add(twin.image())
            if not odometer.advance():
                break
        assert {left.image() for left in disk.outcomes()} == chosen
        compared += len(chosen)

    disk.after = after  # type: ignore[method-assign]
    checkpoint_and_recycle(disk, History())
    assert compared > 500


PLANTED: dict[str, tuple[Script, Callable[[Op], bool]]] = {
    "a commit is confirmed before its sync": (
        publish_a_large_batch,
        lambda op: isinstance(op, Sync) and op.path.startswith("journal/"),
    ),
    "a new segment's name is not synced": (
        checkpoint_and_recycle,
        lambda op: isinstance(op, SyncDir) and op.path == "journal",
    ),
    "a checkpoint is not synced before it counts": (
        checkpoint_and_recycle,
        lambda op: isinstance(op, Sync) and op.path.startswith("checkpoints/"),
    ),
    "a checkpoint's name is not synced before the journal is freed": (
        checkpoint_and_recycle,
        lambda op: isinstance(op, SyncDir) and op.path == "checkpoints",
    ),
    "logs are not synced before the journal that covers them is freed": (
        checkpoint_and_recycle,
        lambda op: isinstance(op, Sync | SyncAll) and op.path.startswith("topics"),
    ),
    "a log's directory is not synced": (
        checkpoint_and_recycle,
        lambda op: isinstance(op, SyncDir) and op.path.startswith("topics"),
    ),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_forgotten_sync_is_noticed(mistake: str) -> None:
    script, skips = PLANTED[mistake]
    disk = Forgetful(Random(1))
    disk.skips = skips  # type: ignore[method-assign]
    with pytest.raises((AssertionError, KeyError, Corrupted)):
        crash_in_every_way(script, disk)
