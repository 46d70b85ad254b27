"""What the journal calls durable is on the disk: proved of its own code, whatever the sizes, syncs and failures.

`proofs/` is about the core alone; here the storage engine's `Journal` runs on symbolic numbers in the same way, over a
disk that knows which frames each file holds, which of them are synced, and which names are.
"""

from __future__ import annotations

import pytest

from dovetail.core.journal_format import SEGMENT_HEADER_BYTES, EncodedFrame
from dovetail.proofs.engine import Given, Verdict, every, prove
from dovetail.proofs.sabotage import reworded, swapped
from dovetail.runtime.storage.disk import Create, DiskError, Kind, Op, Rename, Sync, SyncDir, Task, Write
from dovetail.runtime.storage.journal import Journal, Segment, Spare
from dovetail.runtime.storage.layout import StoreOptions, journal_path, spare_path

OPERATIONS_MAX = 6
"""So many does a commit ask for that begins a segment: sync the old, make, write, sync and name the new, sync that."""


class Disk:
    """Frames by file; what was written is not synced, what was renamed is not called so for good."""

    def __init__(self, position: int, *spares: Spare) -> None:
        self.begins = {journal_path(1): position}
        self.frames: dict[str, list[int]] = {journal_path(1): [], **{spare.path: [] for spare in spares}}
        self.synced: set[int] = set()
        self.named = {journal_path(1)}
        self.kept: list[bool] = []

    def is_durable(self, lsn: int) -> bool:
        return lsn in self.synced and any(lsn in self.frames[path] for path in self.named)

    def does(self, op: Op, sizes: dict[int, int]) -> DiskError | None:
        match op:
            case Create(path):
                self.frames[path] = []
            case Write(path, position, buffers):
                if path not in self.frames:
                    return DiskError(Kind.MISSING, path, "there is no such file")
                numbers = [buffer[0] for buffer in buffers if len(buffer) == 1]
                before = [] if position == 0 else [lsn for lsn in self.frames[path] if lsn < numbers[0]]
                if position != 0:
                    self.kept.append(position == self.begins[path] + sum(sizes[lsn] for lsn in before))
                self.frames[path] = before + numbers
                self.synced -= set(numbers)
            case Sync(path):
                self.synced |= set(self.frames[path])
            case Rename(path, target):
                first = min(self.frames[path])
                self.kept.append(all(self.is_durable(lsn) for lsn in range(1, first)))
                self.frames[target], self.begins[target] = self.frames.pop(path), SEGMENT_HEADER_BYTES
            case SyncDir():
                self.named |= {path for path in self.frames if path.endswith(".wal")}
        return None


def _carried_out(task: Task[None], disk: Disk, sizes: dict[int, int], failing: int) -> bool:
    """Whether the task came to its end, while its operation number `failing` (0: none) failed."""
    count = 1
    try:
        op = next(task)
        while True:
            error = DiskError(Kind.DESCRIPTORS, "", "too many files") if count == failing else disk.does(op, sizes)
            count += 1
            op = task.send(None) if error is None else task.throw(error)
    except StopIteration:
        return True
    except DiskError:
        return False


def what_is_called_durable_is_on_the_disk(given: Given) -> bool:
    """Two commits of any size into a segment that is filled to anywhere, each to be synced or not, each failing at any
    of its operations and tried again: after each, every frame up to `synced_lsn` is on the disk under a name that is;
    a segment gets its name when all before it is; a commit that failed can be tried again, and then is carried out."""
    position, room = given.integer("position", SEGMENT_HEADER_BYTES), given.integer("room", SEGMENT_HEADER_BYTES)
    spares = given.choice("spares", ((), (Spare(spare_path(9), 4096),)))
    disk = Disk(position, *spares)
    journal = Journal(StoreOptions(journal_segment_bytes=room), 7, [Segment(1, 1, 0)], position, 0, 0)
    journal.spares.extend(spares)
    sizes: dict[int, int] = {}
    for lsn in (1, 2):
        sizes[lsn] = given.integer(f"size_{lsn}", 1)
        sync = given.either(f"sync_{lsn}")
        frame = EncodedFrame(lsn, [bytes([lsn])], sizes[lsn], lsn)
        for failing in (given.choice(f"failing_{lsn}", range(OPERATIONS_MAX + 1)), 0):
            is_done = given.call(_carried_out, journal.commit([frame], sync=sync), disk, sizes, failing)
            disk.kept.append(journal.committed_lsn == (lsn if is_done else lsn - 1))
            disk.kept += [disk.is_durable(each) for each in (1, 2) if each <= journal.synced_lsn]
            if is_done:
                break
        if not is_done or (sync and journal.synced_lsn != lsn):
            return False
    if not given.call(_carried_out, journal.sync(), disk, sizes, 0):
        return False
    return every(*disk.kept, journal.synced_lsn == 2, disk.is_durable(1), disk.is_durable(2))


def test_what_is_called_durable_is_on_the_disk() -> None:
    finding = prove(what_is_called_durable_is_on_the_disk)
    assert finding.verdict is Verdict.PROVED, f"{finding.detail} {finding.inputs}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if self.synced_lsn < self.committed_lsn:", "if self.synced_lsn > self.committed_lsn:"),
        ("        if sync:\n            self.synced_lsn", "        if True:\n            self.synced_lsn"),
        ("            if sync:\n                yield Sync(path)\n", ""),
        ("self._position += size", "self._position += size + 1"),
        ("self._position = SEGMENT_HEADER_BYTES + size", "self._position = size"),
        ("self.committed_lsn = frames[-1].lsn", "pass"),
    ],
)
def test_a_mistake_in_the_journal_s_books_has_a_counterexample(old: str, new: str) -> None:
    with swapped(Journal.commit, reworded(Journal.commit, old, new)):
        assert prove(what_is_called_durable_is_on_the_disk).verdict is Verdict.COUNTEREXAMPLE
