"""A disk that keeps only what was synced, and of the rest whatever a crash leaves.

The fault model (`spec/faults.md`): of the 512-byte sectors written since the last sync any subset survives,
each in any of its versions; a file's length may be any it had; names made, moved and removed since the directory
was synced may be lost, each by itself. Bit flips, lost sectors, a full disk, failing syncs, refused access and
missing descriptors are injected by hand.

Promises  what is chosen at a crash comes from the chooser alone, in an order fixed by the operations before.
Never     tears within a sector, or loses what was synced unless told to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from random import Random
from typing import Any, assert_never

from dovetail.runtime.storage.disk import (
    Create,
    DiskError,
    FileInfo,
    Free,
    Kind,
    List,
    Lock,
    MakeDir,
    Op,
    Read,
    Remove,
    RemoveDir,
    Rename,
    Space,
    Sync,
    SyncAll,
    SyncDir,
    SyncFailed,
    Truncate,
    Unlock,
    Write,
    parent,
)

SECTOR_BYTES = 512
CAPACITY_BYTES = 1 << 40
"""So much that it is not counted: a smaller disk can be full."""
Chooser = Callable[[int], int]
"""Given n, a number from 0 to n - 1."""


class _File:
    """`data` is what reads see; `durable` what the disk has; `versions` what each dirty sector held since."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.versions: dict[int, list[bytes]] = {}
        self.lengths: list[int] = []

    def write(self, position: int, data: bytes) -> None:
        if not data:
            return
        end = position + len(data)
        first = min(position, len(self.data))
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
            self.lengths.append(end)
        self.data[position:end] = data
        self._note(first, end)

    def truncate(self, size: int) -> None:
        before = len(self.data)
        if size < before:
            del self.data[size:]
        else:
            self.data.extend(bytes(size - before))
        self.lengths.append(size)
        self._note(min(size, before), max(size, before))

    def _note(self, first: int, end: int) -> None:
        for sector in range(first // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES):
            content = bytes(self.data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
            versions = self.versions.setdefault(sector, [])
            padded = content.ljust(SECTOR_BYTES, b"\0")
            if not versions or versions[-1] != padded:
                versions.append(padded)

    def sync(self) -> None:
        """Only dirty sectors are written: one that a failed sync forgot is not saved by a later one."""
        size = len(self.data)
        self.durable.extend(bytes(max(0, size - len(self.durable))))
        for sector in self.versions:
            start, end = sector * SECTOR_BYTES, min(size, (sector + 1) * SECTOR_BYTES)
            if start < end:
                self.durable[start:end] = self.data[start:end]
        del self.durable[size:]
        self.versions.clear()
        self.lengths.clear()

    def fail_sync(self, choose: Chooser) -> None:
        """The system forgets that the sectors are dirty, whether they reached the disk or not."""
        self.durable = self._survivor(choose)
        self.versions.clear()
        self.lengths.clear()

    def crash(self, choose: Chooser) -> None:
        self.durable = self._survivor(choose)
        self.data = bytearray(self.durable)
        self.versions.clear()
        self.lengths.clear()

    def _survivor(self, choose: Chooser) -> bytearray:
        lengths = [len(self.durable), *self.lengths]
        length = lengths[choose(len(lengths))] if len(lengths) > 1 else lengths[0]
        found = bytearray(self.durable)
        for sector in sorted(self.versions):
            versions = self.versions[sector]
            chosen = choose(len(versions) + 1)
            if chosen:
                start = sector * SECTOR_BYTES
                if len(found) < start + SECTOR_BYTES:
                    found.extend(bytes(start + SECTOR_BYTES - len(found)))
                found[start : start + SECTOR_BYTES] = versions[chosen - 1]
        if len(found) > length:
            del found[length:]
        found.extend(bytes(length - len(found)))
        return found

    def survivors(self) -> list[bytearray]:
        """Every content a crash may leave, each once."""
        odometer = Odometer()
        found: dict[bytes, None] = {}
        while True:
            found[bytes(self._survivor(odometer.choose))] = None
            if not odometer.advance():
                return [bytearray(content) for content in found]

    def copy(self) -> _File:
        twin = _File()
        twin.data = bytearray(self.data)
        twin.durable = bytearray(self.durable)
        twin.versions = {sector: list(versions) for sector, versions in self.versions.items()}
        twin.lengths = list(self.lengths)
        return twin


_Node = _File | None
"""What a name stands for; a directory is None."""
_Change = tuple[frozenset[str], dict[str, tuple[bool, _Node]]]
"""A pending change of names: the directories that must be synced to keep it, and what each name becomes
(there or not, and what it stands for)."""


class SimDisk:
    """Executes operations on simulated files, and counts them, so that a run can be stopped at any."""

    def __init__(self, random: Random, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.random = random
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self.fault: Callable[[Op], DiskError | None] | None = None
        """Asked before each operation; what it returns is raised."""
        self._names: dict[str, _Node] = {"": None}
        self._durable_names: dict[str, _Node] = {"": None}
        self._changes: list[_Change] = []
        self._locks: dict[str, str] = {}

    def execute(self, op: Op) -> Any:
        self.operations += 1
        error = self.fault(op) if self.fault is not None else None
        if error is not None:
            if isinstance(error, SyncFailed) and isinstance(op, Sync | SyncAll):
                for file in [self._file(op.path)] if isinstance(op, Sync) else self._all_files():
                    file.fail_sync(self.random.randrange)
            raise error
        return self._execute(op)

    def _execute(self, op: Op) -> Any:
        match op:
            case Write(path=path, position=position, buffers=buffers):
                return self._write(path, position, b"".join(buffers))
            case Read(path=path, position=position, size=size):
                return bytes(self._file(path).data[position : position + size])
            case Sync(path=path):
                return self._file(path).sync()
            case SyncAll():
                return self._sync_all()
            case Truncate(path=path, size=size):
                return self._file(path).truncate(size)
            case Create(path=path):
                return self._create(path)
            case SyncDir(path=path):
                return self._sync_dir(path)
            case Rename(path=path, target=target):
                return self._rename(path, target)
            case Remove(path=path):
                self._file(path)
                return self._change({path: (False, None)})
            case MakeDir(path=path):
                return self._make_dir(path)
            case RemoveDir(path=path):
                return self._remove_dir(path)
            case List(path=path):
                return self._list(path)
            case Free():
                return [Space(self.capacity_bytes, max(0, self.capacity_bytes - self.used_bytes()))]
            case Lock(path=path, holder=holder):
                return self._lock(path, holder)
            case Unlock(path=path):
                self._locks.pop(path, None)
                return None
            case _:
                assert_never(op)

    def used_bytes(self) -> int:
        return sum(len(file.data) for file in self._names.values() if file is not None)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Every file as reads see it, by path."""
        for path in sorted(self._names):
            file = self._names[path]
            if file is not None:
                yield path, bytes(file.data)

    def image(self) -> bytes:
        """A hash of every name and byte as reads see them: what has the same image is recovered alike."""
        digest = blake2b(digest_size=16)
        for path, file in sorted(self._names.items()):
            digest.update(b"%s\0%d\0" % (path.encode(), -1 if file is None else len(file.data)))
            digest.update(b"" if file is None else file.data)
        return digest.digest()

    def crash(self, choose: Chooser | None = None) -> None:
        """Lose what a crash loses: the machine stops, and comes up with what the disk has."""
        choose = choose or self.random.randrange
        self._names = self._surviving_names([bool(choose(2)) for _ in self._changes])
        self._durable_names = dict(self._names)
        self._changes.clear()
        for path in sorted(self._names):
            file = self._names[path]
            if file is not None:
                file.crash(choose)
        self._locks.clear()

    def outcomes(self) -> Iterator[SimDisk]:
        """Every disk a crash here may leave. Two may be alike where two files are."""
        contents: dict[int, list[bytearray]] = {}
        seen: set[tuple[tuple[str, int], ...]] = set()
        for kept in product((False, True), repeat=len(self._changes)):
            names = self._surviving_names(kept)
            shape = tuple(sorted((path, id(node)) for path, node in names.items()))
            if shape in seen:
                continue
            seen.add(shape)
            files = {id(node): node for _, node in sorted(names.items()) if node is not None}
            for number, file in files.items():
                if number not in contents:
                    contents[number] = file.survivors()
            for chosen in product(*(contents[number] for number in files)):
                yield self._left_with(names, dict(zip(files, chosen, strict=True)))

    def kill(self) -> None:
        """The process dies, the machine goes on: nothing written is lost, locks are given up."""
        self._locks.clear()

    def flip(self, path: str, bit: int) -> None:
        """One bit of what is on the disk changes."""
        for content in self._contents(path):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << (bit % 8)

    def lose_sector(self, path: str, sector: int) -> None:
        """A synced sector reads as zeros from now on."""
        for content in self._contents(path):
            start = sector * SECTOR_BYTES
            end = min(len(content), start + SECTOR_BYTES)
            content[start:end] = bytes(max(0, end - start))

    def cut(self, path: str, size: int) -> None:
        """The file ends at `size`, as if it had been cut behind our back."""
        for content in self._contents(path):
            del content[size:]

    def remove(self, path: str) -> None:
        """The file is gone, as if it had been removed behind our back."""
        self._file(path)
        del self._names[path]
        self._durable_names.pop(path, None)

    def copy(self, random: Random | None = None) -> SimDisk:
        """A disk in the same state, to go on from more than once."""
        twin = SimDisk(random or self.random, self.capacity_bytes)
        files: dict[int, _File] = {}

        def of(node: _Node) -> _Node:
            return None if node is None else files.setdefault(id(node), node.copy())

        twin._names = {path: of(node) for path, node in self._names.items()}
        twin._durable_names = {path: of(node) for path, node in self._durable_names.items()}
        twin._changes = [
            (dirs, {path: (there, of(node)) for path, (there, node) in names.items()}) for dirs, names in self._changes
        ]
        twin._locks = dict(self._locks)
        twin.operations = self.operations
        return twin

    def _surviving_names(self, kept: Sequence[bool]) -> dict[str, _Node]:
        """The names a crash leaves when of the pending changes those marked in `kept` reached the disk."""
        names = dict(self._durable_names)
        for (_, change), is_kept in zip(self._changes, kept, strict=True):
            if is_kept:
                _apply(names, change)
        return {path: node for path, node in names.items() if _has_parents(path, names)}

    def _left_with(self, names: dict[str, _Node], contents: dict[int, bytearray]) -> SimDisk:
        twin = SimDisk(self.random, self.capacity_bytes)
        files: dict[int, _Node] = {id(None): None}
        for number, content in contents.items():
            files[number] = file = _File()
            file.data, file.durable = bytearray(content), bytearray(content)
        twin._names = {path: files[id(node)] for path, node in names.items()}
        twin._durable_names = dict(twin._names)
        twin.operations = self.operations
        return twin

    def _contents(self, path: str) -> tuple[bytearray, ...]:
        file = self._file(path)
        return (file.data, file.durable)

    def _file(self, path: str) -> _File:
        if path not in self._names:
            raise DiskError(Kind.MISSING, path, "no such file")
        file = self._names[path]
        if file is None:
            raise DiskError(Kind.IO, path, "is a directory")
        return file

    def _write(self, path: str, position: int, data: bytes) -> None:
        file = self._file(path)
        grows = max(0, position + len(data) - len(file.data))
        if grows and self.capacity_bytes < CAPACITY_BYTES and self.used_bytes() + grows > self.capacity_bytes:
            raise DiskError(Kind.FULL, path, "no space left")
        file.write(position, data)

    def _create(self, path: str) -> None:
        if path in self._names:
            return self._file(path).truncate(0)
        self._check_dir(parent(path))
        return self._change({path: (True, _File())})

    def _rename(self, path: str, target: str) -> None:
        if path not in self._names:
            raise DiskError(Kind.MISSING, path, "no such file")
        self._check_dir(parent(target))
        below = path + "/"
        names: dict[str, tuple[bool, _Node]] = {}
        is_file = self._names[path] is not None
        for name in [path] if is_file else [name for name in self._names if name == path or name.startswith(below)]:
            names[name] = (False, None)
            names[target + name[len(path) :]] = (True, self._names[name])
        self._change(names, {parent(path), parent(target)})

    def _make_dir(self, path: str) -> None:
        if path not in self._names:
            self._check_dir(parent(path))
            self._change({path: (True, None)})
        elif self._names[path] is not None:
            raise DiskError(Kind.NOT_A_DIRECTORY, path, "it is a file")

    def _remove_dir(self, path: str) -> None:
        self._check_dir(path)
        if self._list(path):
            raise DiskError(Kind.EXISTS, path, "is not empty")
        self._change({path: (False, None)})

    def _check_dir(self, path: str) -> None:
        if path not in self._names:
            raise DiskError(Kind.MISSING, path, "no such directory")
        if self._names[path] is not None:
            raise DiskError(Kind.NOT_A_DIRECTORY, path, "is not a directory")

    def _list(self, path: str) -> list[FileInfo]:
        self._check_dir(path)
        below = path + "/" if path else ""
        found = []
        for name, node in self._names.items():
            rest = name[len(below) :]
            if name and name.startswith(below) and rest and "/" not in rest:
                found.append(FileInfo(rest, 0 if node is None else len(node.data), node is None))
        return sorted(found)

    def _lock(self, path: str, holder: str) -> None:
        if path in self._locks:
            raise DiskError(Kind.LOCKED, path, f"held by {self._locks[path]}", self._locks[path])
        if path not in self._names:
            self._create(path)
        self._locks[path] = holder

    def _change(self, names: dict[str, tuple[bool, _Node]], dirs: set[str] | None = None) -> None:
        dirs = dirs or {parent(path) for path in names}
        _apply(self._names, names)
        self._changes.append((frozenset(dirs), names))

    def _sync_dir(self, path: str) -> None:
        self._check_dir(path)
        left: list[_Change] = []
        for dirs, names in self._changes:
            waiting = dirs - {path}
            if waiting:
                left.append((waiting, names))
            else:
                _apply(self._durable_names, names)
        self._changes = left

    def _sync_all(self) -> None:
        for file in self._all_files():
            file.sync()
        for _, names in self._changes:
            _apply(self._durable_names, names)
        self._changes = []

    def _all_files(self) -> list[_File]:
        return [file for _, file in sorted(self._names.items()) if file is not None]


def _apply(names: dict[str, _Node], change: Mapping[str, tuple[bool, _Node]]) -> None:
    for path, (there, node) in change.items():
        if there:
            names[path] = node
        else:
            names.pop(path, None)


def _has_parents(path: str, names: Mapping[str, _Node]) -> bool:
    while path:
        path = parent(path)
        if path not in names or names[path] is not None:
            return False
    return True


def fail(kind: Kind, when: Callable[[Op], bool], times: int = 1) -> Callable[[Op], DiskError | None]:
    """A fault for `SimDisk.fault`: the next `times` operations that match fail with `kind`."""
    left = times

    def fault(op: Op) -> DiskError | None:
        nonlocal left
        if left == 0 or not when(op):
            return None
        left -= 1
        path = getattr(op, "path", "")
        is_final = isinstance(op, Sync | SyncDir | SyncAll) and kind in (Kind.IO, Kind.FULL)
        failure = SyncFailed if is_final else DiskError
        return failure(kind, path, f"injected: {kind}")

    return fault


class Odometer:
    """Goes through every outcome of a crash: `choose` as chooser, then `advance` until it says False."""

    def __init__(self) -> None:
        self._digits: list[int] = []
        self._sizes: list[int] = []
        self._at = 0

    def choose(self, size: int) -> int:
        if self._at == len(self._digits):
            self._digits.append(0)
            self._sizes.append(size)
        self._at += 1
        return self._digits[self._at - 1]

    def advance(self) -> bool:
        """Move on to the next outcome; False when all were seen."""
        del self._digits[self._at :], self._sizes[self._at :]
        self._at = 0
        while self._digits:
            if self._digits[-1] + 1 < self._sizes[-1]:
                self._digits[-1] += 1
                return True
            self._digits.pop()
            self._sizes.pop()
        return False
