"""Storage beside an in-memory model, with crashes anywhere, in any order of events.

The model keeps, for every frame that was ever committed, what the logs and groups held then, as plain dictionaries. The
machine commits, lags, checkpoints, trims, deletes, closes, is killed and loses power, also in the middle of things;
what recovery brings back must be one of the model's pasts, none before the last that was promised.

`EXAMPLES` runs of up to `STEPS` rules by default; `DOVETAIL_DEPTH=10` makes it ten times as many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from dovetail.core import batch, files
from dovetail.core.journal_format import Item
from dovetail.core.records import LogTrimmed, TopicDeleted
from dovetail.proofs.registry import Sabotage
from dovetail.proofs.sabotage import reworded, swapped
from dovetail.runtime.storage.disk import run
from dovetail.runtime.storage.findings import Outcome
from dovetail.runtime.storage.journal import Journal
from dovetail.runtime.storage.log import LogFiles
from tests.depth import DEPTH
from tests.storage.build import Broker, entry
from tests.storage.test_crashes import TINY, Watched

EXAMPLES = 60 * DEPTH
STEPS = 30
NAMES = ("a", "b", "c")

values_of_a_batch = st.lists(st.sampled_from((b"", b"x", b"y" * 90, b"z" * 900)), min_size=1, max_size=4)
seeds = st.integers(0, 1 << 32)


@dataclass
class Contents:
    """What there is after some frame."""

    logs: dict[str, int] = field(default_factory=dict)
    """By the topic's name: each has one log."""
    messages: dict[int, dict[int, bytes]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    settled: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)


Change = Callable[[Contents], None]


class PowerLoss(Exception):
    """The machine stops here."""


class StorageAndModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = Watched(Random(1))
        self.now = Contents()
        self.pasts: dict[int, Contents] = {}
        self.behind: list[Item] = []
        """Committed, and not yet in the logs' files."""
        self.promised = 0
        self.broker = Broker(self.disk, TINY)
        self.note(self.broker.durable.lsn)

    def note(self, lsn: int) -> None:
        self.pasts[lsn] = deepcopy(self.now)

    def commit(self, frames: Sequence[Sequence[Item]], changes: Sequence[Change], sync: bool) -> None:
        """One commit; the model learns of each frame before the disk does, as a crash may leave any of them."""
        before = self.broker.durable.lsn
        for number, change in enumerate(changes, start=1):
            change(self.now)
            self.note(before + number)
        self.behind += [item for frame in frames for item in frame]
        self.broker.commit(*frames, write_behind=False, sync=sync)
        self.promised = self.broker.synced_lsn

    def write_behind(self) -> None:
        items, self.behind = self.behind, []
        run(self.disk, self.broker.store.write_behind(self.broker.durable.lsn, items))

    @rule(name=st.sampled_from(NAMES))
    def create(self, name: str) -> None:
        if name in self.now.logs:
            return
        log, start = self.broker.durable.next_log, self.now.retired.get(name, 0)
        self.write_behind()
        assert self.broker.create(name) == log
        self.now.logs[name] = log
        self.now.messages[log], self.now.ends[log], self.now.starts[log] = {}, start, start
        self.note(self.broker.durable.lsn)
        self.promised = self.broker.synced_lsn

    @rule(data=st.data(), frames=st.lists(values_of_a_batch, min_size=1, max_size=3), sync=st.booleans())
    @precondition(lambda self: self.now.logs)
    def publish(self, data: st.DataObject, frames: list[list[bytes]], sync: bool) -> None:
        log = data.draw(st.sampled_from(sorted(self.now.logs.values())))
        made: list[Sequence[Item]] = []
        changes: list[Change] = []
        base = self.now.ends[log]
        for values in frames:
            self.broker.now_ms += 1
            made.append([entry(log, base, values, self.broker.now_ms)])
            changes.append(_appended(log, base, values))
            base += len(values)
        self.commit(made, changes, sync)

    @rule()
    @precondition(lambda self: self.behind)
    def logs_are_written(self) -> None:
        self.write_behind()

    @rule(data=st.data())
    @precondition(lambda self: self.now.logs)
    def join(self, data: st.DataObject) -> None:
        log = data.draw(st.sampled_from(sorted(self.now.logs.values())))
        self.write_behind()
        group = self.broker.join(f"group {self.broker.durable.next_group}", log)
        self.now.settled[group, log] = set(range(self.now.starts[log]))
        self.note(self.broker.durable.lsn)
        self.promised = self.broker.synced_lsn

    @rule(data=st.data())
    @precondition(lambda self: any(self.now.ends[log] > self.now.starts[log] for _, log in self.now.settled))
    def settle(self, data: st.DataObject) -> None:
        readers = [(group, log) for group, log in self.now.settled if self.now.ends[log] > self.now.starts[log]]
        group, log = data.draw(st.sampled_from(sorted(readers)))
        first = data.draw(st.integers(self.now.starts[log], self.now.ends[log] - 1))
        last = data.draw(st.integers(first, self.now.ends[log] - 1))
        self.write_behind()
        self.broker.settle(group, log, first, last)
        self.now.settled[group, log] |= set(range(first, last + 1))
        self.note(self.broker.durable.lsn)
        self.promised = self.broker.synced_lsn

    @rule(data=st.data())
    @precondition(lambda self: self.now.logs)
    def trim(self, data: st.DataObject) -> None:
        """Retention, as far as groups allow."""
        log = data.draw(st.sampled_from(sorted(self.now.logs.values())))
        floors = [_floor(settled) for (_, read), settled in self.now.settled.items() if read == log]
        most = min([self.now.ends[log], *floors])
        if most <= self.now.starts[log]:
            return
        start = data.draw(st.integers(self.now.starts[log], most))
        self.commit([[LogTrimmed(log, start)]], [lambda now: now.starts.update({log: start})], sync=True)
        self.write_behind()

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if name not in self.now.logs:
            return
        self.write_behind()
        self.commit([[TopicDeleted(self.broker.durable.topics_by_name[name])]], [_deleted(name)], sync=True)
        self.write_behind()

    @rule()
    def checkpoint(self) -> None:
        """Only of what is stored and in the logs."""
        run(self.disk, self.broker.store.sync())
        self.broker.synced_lsn = self.promised = self.broker.durable.lsn
        self.write_behind()
        self.broker.checkpoint()

    @rule()
    def close_and_open(self) -> None:
        run(self.disk, self.broker.store.sync())
        self.promised = self.broker.durable.lsn
        self.write_behind()
        self.broker.close()
        self.reopen()

    @rule()
    def the_process_is_killed(self) -> None:
        """What was written is there, synced or not."""
        self.promised = self.broker.durable.lsn
        self.disk.kill()
        self.reopen()

    @rule(seed=seeds)
    def the_power_fails(self, seed: int) -> None:
        self.disk.crash(Random(seed).randrange)
        self.reopen()

    @rule(data=st.data(), seed=seeds, operations=st.integers(0, 6), sync=st.booleans())
    @precondition(lambda self: self.now.logs)
    def the_power_fails_in_the_middle(self, data: st.DataObject, seed: int, operations: int, sync: bool) -> None:
        """After some operations of a commit, a write of the logs and a checkpoint."""
        left = operations

        def count() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerLoss

        log = data.draw(st.sampled_from(sorted(self.now.logs.values())))
        base, values = self.now.ends[log], data.draw(values_of_a_batch)
        self.disk.after = count
        try:
            self.commit([[entry(log, base, values, self.broker.now_ms)]], [_appended(log, base, values)], sync)
            self.checkpoint()
        except PowerLoss:
            pass
        finally:
            del self.disk.after
        self.disk.crash(Random(seed).randrange)
        self.reopen()

    def reopen(self) -> None:
        """What is there must be what was there after some frame, and every promised one."""
        self.broker = Broker(self.disk, TINY)
        lsn = self.broker.durable.lsn
        assert self.promised <= lsn
        assert lsn in self.pasts
        assert all(finding.outcome is not Outcome.LOST for finding in self.broker.opened.report.findings)
        self.now, self.behind, self.promised = deepcopy(self.pasts[lsn]), [], lsn
        self.pasts = {lsn: deepcopy(self.now)}
        self.look()

    def look(self) -> None:
        """The store and the model say the same."""
        durable = self.broker.durable
        assert set(durable.topics_by_name) == set(self.now.logs)
        for name, log in self.now.logs.items():
            assert durable.topics[durable.topics_by_name[name]].first_log == log
            assert (durable.logs[log].start, durable.logs[log].end) == (self.now.starts[log], self.now.ends[log])
            records = [record for each in self.broker.read_all(log) for record in batch.parse(each.batch)]
            found = {record.offset: record.value for record in records if record.offset >= self.now.starts[log]}
            assert found == {
                offset: value for offset, value in self.now.messages[log].items() if offset >= self.now.starts[log]
            }
        for (group, log), settled in self.now.settled.items():
            cursor = durable.cursors[group, log]
            islands = {offset for first, last in cursor.islands for offset in range(first, last + 1)}
            assert set(range(cursor.floor)) | islands == settled

    def teardown(self) -> None:
        self.disk.crash(Random(0).randrange)
        self.reopen()


def _appended(log: int, base: int, values: Sequence[bytes]) -> Change:
    def change(now: Contents) -> None:
        now.messages[log] |= dict(enumerate(values, start=base))
        now.ends[log] = base + len(values)

    return change


def _deleted(name: str) -> Change:
    def change(now: Contents) -> None:
        log = now.logs.pop(name)
        now.retired[name] = now.ends.pop(log)
        del now.messages[log], now.starts[log]
        for key in [key for key in now.settled if key[1] == log]:
            del now.settled[key]

    return change


def _floor(settled: set[int]) -> int:
    """The first offset that is not settled."""
    return next(offset for offset in range(len(settled) + 1) if offset not in settled)


TestStorageAndModel = StorageAndModel.TestCase
TestStorageAndModel.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


BUGS = [
    Sabotage(
        Journal.commit, "if sync:\n                yield Sync(path)", "if False:\n                yield Sync(path)"
    ),
    Sabotage(files.judge_loss, "synced_lsn >= lsn", "True"),
    Sabotage(LogFiles.trim, "self.end_of(0) <= start", "self.parts[0].base <= start"),
    Sabotage(LogFiles.append, "entries[at].base < self.end", "entries[at].base <= self.end"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.function.__qualname__)
def test_the_machine_notices_a_planted_bug(bug: Sabotage) -> None:
    few = settings(TestStorageAndModel.settings, max_examples=200, database=None, derandomize=True)
    with swapped(bug.function, reworded(bug.function, bug.old, bug.new)), pytest.raises(BaseException):  # noqa: B017, PT011
        run_state_machine_as_test(StorageAndModel, settings=settings(few, phases=(Phase.generate,)))
