"""Every crash point of scripted runs, with every (or a sample of every) choice of surviving sectors and names.

After each single operation of a run the machine stops: what the disk keeps of unsynced sectors, lengths and names
is chosen in every way there is, up to a bound, and at random beyond it. `DOVETAIL_CRASHES` raises the bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.core.evolve import evolve_frame
from dovetail.core.journal_format import Entry, Item, records_of
from dovetail.core.records import LogTrimmed, SyncPolicy
from dovetail.core.state import Durable
from dovetail.runtime.storage.disk import Kind, Op, Sync, SyncFailed, run
from dovetail.runtime.storage.findings import Outcome
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.sim.disk import Odometer, SimDisk, fail
from tests.storage.build import Broker

BOUND = int(os.environ.get("DOVETAIL_CRASHES", "8"))
"""Outcomes tried per crash point."""
TINY = StoreOptions(
    journal_segment_bytes=1024,
    log_segment_bytes=700,
    index_every_bytes=200,
    checkpoint_journal_bytes=2048,
    spare_segments_max=2,
)


class History:
    """What was decided and what was promised: the state and the logs' entries after each frame."""

    def __init__(self) -> None:
        self.states: dict[int, Durable] = {}
        self.entries: dict[int, list[Entry]] = {}
        self.confirmed = 0

    def note(self, durable: Durable) -> None:
        self.states[durable.lsn] = durable


class Recorded(Broker):
    """A broker whose commits are noted: before them as possible, after them as promised."""

    def __init__(self, disk: Any, history: History, options: StoreOptions = TINY) -> None:
        self.history = history
        super().__init__(disk, options)
        history.note(self.durable)

    def commit(self, *steps: Sequence[Item], write_behind: bool = True, sync: bool = True) -> None:
        durable = self.durable
        for items in steps:
            durable = evolve_frame(durable, durable.lsn + 1, self.now_ms, records_of(items))
            self.history.note(durable)
            for item in items:
                if isinstance(item, Entry):
                    self.history.entries.setdefault(item.record.log, []).append(item)
        super().commit(*steps, write_behind=False, sync=sync)
        self.history.confirmed = self.synced_lsn
        if write_behind:
            items = [item for step in steps for item in step]
            run(self.disk, self.store.write_behind(self.durable.lsn, items))


class Watched(SimDisk):
    """Calls `after` once an operation is done."""

    after: Callable[[], None] = staticmethod(lambda: None)

    def execute(self, op: Op) -> Any:
        result = super().execute(op)
        self.after()
        return result


def outcomes(disk: SimDisk, random: Random, bound: int = BOUND) -> Iterator[SimDisk]:
    """The disks a crash may leave: all of them when they are few, else the extremes and a sample."""
    odometer = Odometer()
    twins: list[SimDisk] = []
    while len(twins) <= bound:
        twin = disk.copy()
        twin.crash(odometer.choose)
        twins.append(twin)
        if not odometer.advance():
            yield from twins
            return
    for choose in (lambda size: 0, lambda size: size - 1):
        twin = disk.copy()
        twin.crash(choose)
        yield twin
    for _ in range(bound - 2):
        twin = disk.copy()
        twin.crash(random.randrange)
        yield twin


def check_recovered(disk: SimDisk, history: History, options: StoreOptions = TINY) -> Broker:
    """What was confirmed is there, nothing is there that was not decided, bytes are equal, the broker works."""
    broker = Broker(disk, options)
    durable = broker.durable
    assert durable.lsn >= history.confirmed
    assert durable == history.states[durable.lsn]
    assert all(finding.outcome is not Outcome.LOST for finding in broker.opened.report.findings)
    for number, log in durable.logs.items():
        expected = [each for each in history.entries.get(number, []) if each.base < log.end]
        found = broker.read_all(number)
        assert found == expected[len(expected) - len(found) :]
        first = found[0].base if found else log.end
        assert first <= log.start or log.start == log.end
    return broker


def crash_everywhere(
    script: Callable[[SimDisk, History], None], seed: int = 1, every: int = 1, bound: int = BOUND
) -> int:
    """Run the script once; at each operation try what a crash there leaves. Gives how many crashes were tried."""
    random = Random(seed)
    disk = Watched(Random(seed))
    history = History()
    history.note(Durable())
    tried = 0

    def after() -> None:
        nonlocal tried
        if disk.operations % every:
            return
        for left in outcomes(disk, random, bound):
            tried += 1
            check_recovered(left, history)

    disk.after = after  # type: ignore[method-assign]
    script(disk, history)
    return tried


def publish_and_settle(disk: SimDisk, history: History) -> None:
    broker = Recorded(disk, history)
    log = broker.create("orders")
    group = broker.join("billing", log)
    for number in range(4):
        broker.publish(log, b"%d" % number * 40)
    broker.settle(group, log, 1, 2)
    broker.checkpoint()
    broker.commit([broker.entry(log, b"last")], write_behind=False)


def roll_and_recycle(disk: SimDisk, history: History) -> None:
    broker = Recorded(disk, history)
    log = broker.create("orders", partitions=2)
    for number in range(26):
        broker.publish(log + number % 2, b"%d" % number * 70)
        if broker.store.wants_checkpoint:
            broker.checkpoint()


def delete_and_create_again(disk: SimDisk, history: History) -> None:
    broker = Recorded(disk, history)
    log = broker.create("orders")
    broker.publish(log, b"old" * 50)
    broker.checkpoint()
    broker.delete("orders")
    second = broker.create("orders")
    broker.publish(second, b"new" * 50)
    broker.checkpoint()
    broker.publish(second, b"newer")
    broker.delete("orders")


def trim_and_restart(disk: SimDisk, history: History) -> None:
    broker = Recorded(disk, history)
    log = broker.create("orders")
    for number in range(8):
        broker.publish(log, b"%d" % number * 200)
    broker.checkpoint()
    broker.commit([LogTrimmed(log, 5)])
    broker.publish(log, b"x" * 300)
    broker.close()
    broker = Recorded(disk, history)
    broker.commit([LogTrimmed(log, 9)])
    broker.publish(log, b"y" * 300)
    broker.checkpoint()
    broker.close()


def relax(disk: SimDisk, history: History) -> None:
    """Some commits ask for no sync; their entries reach the logs all the same."""
    broker = Recorded(disk, history)
    log = broker.create("orders", sync=SyncPolicy.OS)
    for number in range(8):
        broker.commit([broker.entry(log, b"%d" % number * 90)], sync=number % 4 == 3)
    broker.checkpoint()
    broker.commit([LogTrimmed(log, 4)], sync=False)
    broker.commit([broker.entry(log, b"x" * 100)], sync=False)
    broker.checkpoint()
    broker.commit([broker.entry(log, b"y" * 100)], sync=False)
    broker.close()


SCRIPTS = [relax, publish_and_settle, roll_and_recycle, delete_and_create_again, trim_and_restart]


def many_logs(disk: SimDisk, history: History) -> None:
    """So many logs are dirty at a checkpoint that they are synced all at once."""
    broker = Recorded(disk, history, replace(TINY, sync_each_max=1))
    log = broker.create("orders", partitions=3)
    for number in range(6):
        broker.publish(log + number % 3, b"%d" % number * 90)
    broker.checkpoint()
    for number in range(3):
        broker.publish(log + number % 3, b"%d" % number * 90)
    broker.checkpoint()


SCRIPTS.append(many_logs)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_nothing_confirmed_is_lost_wherever_a_run_stops(
    script: Callable[[SimDisk, History], None],
) -> None:
    assert crash_everywhere(script, every=2 if BOUND <= 8 else 1) > 100


def test_a_crash_during_recovery_from_a_crash_loses_nothing() -> None:
    random = Random(5)
    history = History()
    history.note(Durable())
    disk = Watched(Random(5))
    stops: list[SimDisk] = []
    disk.after = lambda: stops.append(disk.copy())  # type: ignore[method-assign]
    roll_and_recycle(disk, History())
    disk.after = lambda: None  # type: ignore[method-assign]
    disk = Watched(Random(5))
    seen = 0

    def after() -> None:
        nonlocal seen
        seen += 1
        if seen % 23:
            return
        for kill_only in (False, True):
            twin = Watched(Random(seen))
            _become(twin, disk)
            if kill_only:
                twin.kill()
            else:
                twin.crash(random.randrange)
            inner = 0

            def again(twin: Watched = twin) -> None:
                nonlocal inner
                inner += 1
                if inner % 5 == 0:
                    last = twin.copy()
                    last.crash(random.randrange)
                    check_recovered(last, history)

            twin.after = again  # type: ignore[method-assign]
            check_recovered(twin, history)

    disk.after = after  # type: ignore[method-assign]
    roll_and_recycle(disk, history)
    assert seen > 100


def test_what_recovery_found_unsynced_is_in_the_journal_for_good_before_it_reaches_a_log() -> None:
    """A process is killed between a commit's write and its sync; then, during recovery, the machine stops."""
    random = Random(7)
    history = History()
    history.note(Durable())
    disk = Watched(Random(7))
    broker = Recorded(disk, history)
    log = broker.create("orders")
    confirmed = broker.durable.lsn
    disk.fault = fail(Kind.IO, lambda op: isinstance(op, Sync))
    with pytest.raises(SyncFailed):
        broker.publish(log, b"written and not synced" * 9)
    disk.fault = None
    history.confirmed = confirmed
    disk.kill()

    def after() -> None:
        for left in outcomes(disk, random, 12):
            check_recovered(left, history)

    disk.after = after  # type: ignore[method-assign]
    check_recovered(disk, history)


def _become(twin: SimDisk, disk: SimDisk) -> None:
    twin.__dict__.update({**disk.copy().__dict__, "after": lambda: None})
