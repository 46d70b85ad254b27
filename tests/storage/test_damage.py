"""Every single-bit flip and every truncation of a small data directory: repaired, or reported, never a wrong answer.

By default a sample, spread over all files; `DOVETAIL_DAMAGE=1` tries every bit and every length.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from dovetail.core.journal_format import Entry
from dovetail.core.records import Settled
from dovetail.runtime.storage.disk import replace_file, run
from dovetail.runtime.storage.findings import Corrupted, Outcome
from dovetail.runtime.storage.log import LogDamaged
from dovetail.runtime.storage.store import open_store
from dovetail.sim.disk import SimDisk
from tests.storage.build import SALT, Broker, sim_disk
from tests.storage.test_crashes import TINY, History, Recorded

EXHAUSTIVE = os.environ.get("DOVETAIL_DAMAGE") == "1"
BIT_STEP = 1 if EXHAUSTIVE else 61
LENGTH_STEP = 1 if EXHAUSTIVE else 11


class Scene:
    """A data directory, what was written to it, and the last commit, which alone may vanish without a word."""

    def __init__(self, stop: Callable[[Broker], None], write_behind: bool = True) -> None:
        self.disk = sim_disk()
        self.history = History()
        broker = Recorded(self.disk, self.history)
        log = broker.create("orders")
        group = broker.join("billing", log)
        for number in range(5):
            broker.publish(log, b"%d" % number * 60)
        broker.checkpoint()
        broker.settle(group, log, 0, 1)
        for number in range(3):
            broker.publish(log, b"%d" % number * 60)
        broker.checkpoint()
        for number in range(5):
            broker.commit([broker.entry(log, b"%d" % number * 60)], write_behind=write_behind)
        broker.commit([Settled(group, log, 3, 3)], write_behind=write_behind)
        broker.commit([broker.entry(log, b"the end")], write_behind=write_behind)
        self.log = log
        self.write_behind = write_behind
        self.last_segment = max(path for path, _ in self.disk.files() if path.endswith(".wal"))
        self.last_lsn = broker.durable.lsn
        stop(broker)

    def check(self, disk: SimDisk, what: str) -> str:
        """Open the directory; gives what came of it."""
        try:
            broker = Broker(disk, TINY)
        except Corrupted:
            self.check_without(disk, what)
            return "reported"
        durable = broker.durable
        assert durable == self.history.states[durable.lsn], what
        found = broker.opened.report.findings
        if durable.lsn < self.last_lsn:
            assert durable.lsn == self.last_lsn - 1, what
            assert any(finding.outcome is Outcome.CUT for finding in found) or disk.is_cut, what  # type: ignore[attr-defined]
            return "cut"
        try:
            entries = broker.read_all(self.log)
            assert all(broker.read(self.log, entry.base, 1) == (entry,) for entry in entries), what
        except LogDamaged:
            return "reported by a read"
        assert entries == self.history.entries[self.log], what
        return "repaired" if found else "harmless"

    def check_without(self, disk: SimDisk, what: str) -> None:
        """Go on without the damaged part: it opens, gives only true entries at their offsets, and opens again."""
        disk.kill()
        store, opened = run(disk, open_store(TINY, "a test", 1, SALT, go_on_without_damage=True))
        assert opened.report.quarantined, what
        true = {entry.base: entry for entry in self.history.entries[self.log]}
        run(disk, store.close())
        broker = Broker(disk, TINY)
        assert broker.durable == opened.durable, what
        assert all(finding.outcome is not Outcome.LOST for finding in broker.opened.report.findings), what
        if self.log in broker.durable.logs:
            entries: list[Entry] = broker.read_all(self.log)
            assert all(true[entry.base] == entry for entry in entries), what
            broker.publish(self.log, b"life goes on")
            assert broker.read_all(self.log)[:-1] == entries, what


def killed(broker: Broker) -> None:
    broker.disk.kill()  # type: ignore[attr-defined]


def stopped(broker: Broker) -> None:
    broker.checkpoint()
    broker.close()


@pytest.fixture(scope="module", params=["killed", "killed before it wrote to the logs", "stopped"])
def scene(request: pytest.FixtureRequest) -> Scene:
    if request.param == "stopped":
        return Scene(stopped)
    return Scene(killed, write_behind=request.param == "killed")


def test_a_flipped_bit_is_repaired_or_reported(scene: Scene) -> None:
    outcomes: dict[str, int] = {}
    bit = 0
    for path, data in scene.disk.files():
        while bit < len(data) * 8:
            disk = scene.disk.copy()
            disk.is_cut = False  # type: ignore[attr-defined]
            disk.flip(path, bit)
            outcome = scene.check(disk, f"bit {bit} of {path}")
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if path.endswith("index"):
                assert outcome in ("harmless", "repaired"), f"bit {bit} of {path}"
                bit += 1
            else:
                bit += BIT_STEP
        bit -= len(data) * 8
    assert outcomes.keys() >= {"repaired", "harmless"}
    assert outcomes.keys() & {"reported", "reported by a read"}


def test_a_file_that_was_cut_is_repaired_or_reported(scene: Scene) -> None:
    for path, data in scene.disk.files():
        for size in range(0, len(data), LENGTH_STEP):
            disk = scene.disk.copy()
            disk.is_cut = True  # type: ignore[attr-defined]
            disk.cut(path, size)
            scene.check(disk, f"{path} cut to {size} bytes")


def test_a_file_that_is_gone_is_repaired_or_reported(scene: Scene) -> None:
    """Except the journal's last segment when nothing of it had reached a log: it leaves no trace."""
    for path, _ in scene.disk.files():
        if path == scene.last_segment and not scene.write_behind:
            continue
        disk = scene.disk.copy()
        disk.is_cut = True  # type: ignore[attr-defined]
        disk.remove(path)
        scene.check(disk, f"{path} removed")


def test_an_entry_taken_out_of_the_middle_is_missed(scene: Scene) -> None:
    path, data = next((path, data) for path, data in scene.disk.files() if path.endswith(f"{0:020}.log"))
    size = scene.history.entries[scene.log][0].size_bytes
    disk = scene.disk.copy()
    run(disk, replace_file(path, (data[:size] + data[2 * size :],)))
    disk.is_cut = False  # type: ignore[attr-defined]
    assert scene.check(disk, "one entry less") == "reported by a read"
