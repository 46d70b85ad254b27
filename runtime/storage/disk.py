"""The seam to the disk: every file operation is a value that somebody executes.

A storage procedure is a generator (`Task`) that yields operations and gets their results. `run` executes one
inline; the simulator executes one operation at a time, with latencies, and may crash between any two.

Promises  an operation that fails raises `DiskError` into the task, with a kind the callers can act on.
Never     knows what is in the files. Paths are relative to the data directory, with slashes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

Buffer = bytes | bytearray | memoryview


class Kind(StrEnum):
    """Why an operation failed."""

    FULL = "full"
    DENIED = "denied"
    DESCRIPTORS = "descriptors"
    MISSING = "missing"
    EXISTS = "exists"
    NOT_A_DIRECTORY = "not a directory"
    NOT_A_FILE = "not a file"
    LOCKED = "locked"
    IO = "io"


WAYS_OUT: Final = {
    Kind.FULL: "free some space there",
    Kind.DENIED: "whoever runs dovetail must be able to read and write it",
    Kind.DESCRIPTORS: "raise `ulimit -n` (LimitNOFILE= in systemd)",
    Kind.NOT_A_DIRECTORY: "a directory is needed there: move the file away",
    Kind.NOT_A_FILE: "a file is needed there: move the directory away",
}
"""What to do about it, where that is known."""


class DiskError(OSError):
    """An operation failed. `holder` says who has the lock when the kind is LOCKED."""

    def __init__(self, kind: Kind, path: str, text: str, holder: str = "") -> None:
        way_out = WAYS_OUT.get(kind)
        super().__init__(f"{path}: {text}" + (f": {way_out}" if way_out else ""))
        self.kind = kind
        self.path = path
        self.holder = holder


class SyncFailed(DiskError):
    """A sync failed: what it covered may or may not be on the disk, and no later sync will tell."""


class Create(Struct, frozen=True):
    """Make an empty file; one that is there is emptied."""

    path: str


class Write(Struct, frozen=True):
    """Write all buffers at `position`; the file must be there."""

    path: str
    position: int
    buffers: Sequence[Buffer]


class Read(Struct, frozen=True):
    """Up to `size` bytes from `position`; fewer only at the file's end. Gives bytes."""

    path: str
    position: int
    size: int


class Truncate(Struct, frozen=True):
    path: str
    size: int


class Sync(Struct, frozen=True):
    """Everything written to the file is on the disk when this returns. Its name is not: see `SyncDir`."""

    path: str


class SyncDir(Struct, frozen=True):
    """Names made, moved and removed in the directory are on the disk when this returns."""

    path: str


class SyncAll(Struct, frozen=True):
    """Everything written below the data directory, and every name there, is on the disk when this returns.

    For many files at once it costs a small part of what syncing each one does."""

    path: str = ""


class Rename(Struct, frozen=True):
    """Move a file or directory; a file that is there is replaced."""

    path: str
    target: str


class Remove(Struct, frozen=True):
    path: str


class MakeDir(Struct, frozen=True):
    """Make a directory; one that is there is kept. The data directory itself is made with all it lies in."""

    path: str


class RemoveDir(Struct, frozen=True):
    """Remove an empty directory, or the link to it."""

    path: str


class List(Struct, frozen=True):
    """Gives `list[FileInfo]`, by name."""

    path: str


class Free(Struct, frozen=True):
    """Gives `list[Space]`: of each file system that something is kept on, the data directory's own first."""


class Lock(Struct, frozen=True):
    """Take the file's lock for this process and write `holder` into it; LOCKED names the one who has it."""

    path: str
    holder: str


class Unlock(Struct, frozen=True):
    path: str


Op = (
    Create
    | Write
    | Read
    | Truncate
    | Sync
    | SyncDir
    | SyncAll
    | Rename
    | Remove
    | MakeDir
    | RemoveDir
    | List
    | Free
    | Lock
    | Unlock
)


class FileInfo(Struct, frozen=True, order=True):
    name: str
    size: int
    is_dir: bool
    is_link: bool = False
    """Whether it lies elsewhere, and only a link to it here."""


class Space(Struct, frozen=True):
    total_bytes: int
    free_bytes: int


class Disk(Protocol):
    """Executes one operation and returns its result, or raises `DiskError`."""

    def execute(self, op: Op) -> Any: ...


T = TypeVar("T")
Task = Generator[Op, Any, T]


def run(disk: Disk, task: Task[T]) -> T:
    """Execute a whole task here and now."""
    try:
        op = next(task)
        while True:
            try:
                result = disk.execute(op)
            except DiskError as error:
                op = task.throw(error)
            else:
                op = task.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value


def list_dir(path: str) -> Task[list[FileInfo]]:
    """The directory's content; empty when it is not there."""
    try:
        found: list[FileInfo] = yield List(path)
    except DiskError as error:
        if error.kind != Kind.MISSING:
            raise
        return []
    return found


def remove_file(path: str) -> Task[None]:
    """Remove a file that may be gone already."""
    try:
        yield Remove(path)
    except DiskError as error:
        if error.kind != Kind.MISSING:
            raise


def remove_tree(path: str) -> Task[None]:
    """Remove a directory and all in it, of what lies elsewhere the link alone; may be repeated after a crash."""
    for info in (yield from list_dir(path)):
        inner = f"{path}/{info.name}"
        if info.is_dir and not info.is_link:
            yield from remove_tree(inner)
        else:
            yield from remove_file(inner)
    try:
        yield RemoveDir(path)
    except DiskError as error:
        if error.kind != Kind.MISSING:
            raise


def read_all(path: str, chunk_bytes: int = 1 << 20) -> Task[bytes]:
    """A whole small file."""
    pieces: list[bytes] = []
    position = 0
    while True:
        piece: bytes = yield Read(path, position, chunk_bytes)
        pieces.append(piece)
        position += len(piece)
        if len(piece) < chunk_bytes:
            return b"".join(pieces)


def replace_file(path: str, pieces: Iterable[Buffer]) -> Task[None]:
    """Put a whole file in place: written beside, synced, renamed, directory synced. When that fails, what was
    written is removed: the disk may be full of it."""
    beside = f"{path}.tmp"
    try:
        yield Create(beside)
        position = 0
        for piece in pieces:
            if piece:
                yield Write(beside, position, (piece,))
                position += len(piece)
        yield Sync(beside)
        yield Rename(beside, path)
    except SyncFailed:
        raise
    except DiskError:
        yield from remove_file(beside)
        raise
    yield SyncDir(parent(path))


def parent(path: str) -> str:
    """The directory a path lies in; "" is the data directory itself."""
    return path.rpartition("/")[0]
