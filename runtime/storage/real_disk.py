"""The real disk: plain system calls below one directory, and a small cache of open files.

Promises  operations may be executed from several threads; a file that is replaced or removed is never read or
          written through an old descriptor by an operation that starts afterwards.
Never     retries, buffers or reorders.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock as Mutex
from typing import Any, assert_never

from dovetail.runtime.storage.disk import (
    Buffer,
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
)

OPEN_FILES_MAX = 256
_IOV_MAX = 512
_KINDS = {
    errno.ENOSPC: Kind.FULL,
    errno.EDQUOT: Kind.FULL,
    errno.EFBIG: Kind.FULL,
    errno.EACCES: Kind.DENIED,
    errno.EPERM: Kind.DENIED,
    errno.EROFS: Kind.DENIED,
    errno.EMFILE: Kind.DESCRIPTORS,
    errno.ENFILE: Kind.DESCRIPTORS,
    errno.ENOENT: Kind.MISSING,
    errno.EEXIST: Kind.EXISTS,
    errno.ENOTEMPTY: Kind.EXISTS,
    errno.ENOTDIR: Kind.NOT_A_DIRECTORY,
    errno.EISDIR: Kind.NOT_A_FILE,
}

_NOT_OPENED = (Kind.DESCRIPTORS, Kind.MISSING, Kind.DENIED)
"""A file that could not even be opened may be synced later; any other failure of a sync is final."""


class _OpenFile:
    __slots__ = ("descriptor", "forgotten", "users")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.users = 1
        self.forgotten = False


class RealDisk:
    """Executes operations below `root`; with `read_only` also where nothing may be written."""

    def __init__(self, root: str, open_files_max: int = OPEN_FILES_MAX, *, read_only: bool = False) -> None:
        self.root = os.path.abspath(root)
        self._read_only = read_only
        self._access = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
        self._mutex = Mutex()
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._changes = 0
        """How often a path came to stand for something else: what was opened before may be the old file."""
        self._open_max = open_files_max
        self._locks: dict[str, int] = {}
        self._systems: dict[int, int] = {}
        """By device a directory of each file system that something lies on: parts of a data directory may be mounted,
        or links. Opened before anything is written there, it is told of every write that failed since."""

    def execute(self, op: Op) -> Any:
        try:
            return self._execute(op)
        except DiskError:
            raise
        except OSError as error:
            named = (error.filename, error.filename2) if error.filename else (self._full(getattr(op, "path", "")),)
            path = " to ".join(str(each) for each in named if each)
            kind = _KINDS.get(error.errno or 0, Kind.IO)
            is_final = isinstance(op, Sync | SyncDir | SyncAll) and kind not in _NOT_OPENED
            failure = SyncFailed if is_final else DiskError
            raise failure(kind, path, error.strerror or str(error)) from error

    def close(self) -> None:
        """Close every descriptor and give up the locks."""
        with self._mutex:
            unused = [*self._drop(list(self._open)), *self._locks.values(), *self._systems.values()]
            self._locks.clear()
            self._systems.clear()
        _close_all(unused)

    def _execute(self, op: Op) -> Any:
        match op:
            case Write(path=path, position=position, buffers=buffers):
                return self._with(path, lambda file: _write(file, position, buffers))
            case Read(path=path, position=position, size=size):
                return self._with(path, lambda file: _read(file, position, size))
            case Sync(path=path):
                return self._with(path, os.fdatasync)
            case Truncate(path=path, size=size):
                return self._with(path, lambda file: os.ftruncate(file, size))
            case Create(path=path):
                self._forget(path)
                return os.close(os.open(self._full(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640))
            case SyncDir(path=path):
                return _sync_dir(self._full(path))
            case SyncAll():
                return self._sync_all()
            case Rename(path=path, target=target):
                os.rename(self._full(path), self._full(target))
                self._forget(path)
                return self._forget(target)
            case Remove(path=path):
                os.unlink(self._full(path))
                return self._forget(path)
            case MakeDir(path=path):
                return _make_dir(self._full(path)) if path else _make_dirs(self.root)
            case RemoveDir(path=path):
                return _remove_dir(self._full(path))
            case List(path=path):
                return _list(self._full(path))
            case Free():
                return self._spaces()
            case Lock(path=path, holder=holder):
                return self._lock(path, holder)
            case Unlock(path=path):
                descriptor = self._locks.pop(path, None)
                return None if descriptor is None else os.close(descriptor)
            case _:
                assert_never(op)

    def _full(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    def _with(self, path: str, action: Callable[[int], Any]) -> Any:
        file = self._take(path)
        try:
            return action(file.descriptor)
        finally:
            self._give_back(file)

    def _take(self, path: str) -> _OpenFile:
        with self._mutex:
            file = self._open.get(path)
            if file is not None:
                file.users += 1
                self._open.move_to_end(path)
                return file
            changes = self._changes
        # Files are opened and closed outside the mutex: a slow one must not hold up the other thread.
        file = _OpenFile(self._open_file(path))
        with self._mutex:
            if changes == self._changes and path not in self._open:
                self._open[path] = file
                unused = self._drop([next(iter(self._open))] if len(self._open) > self._open_max else [])
            else:
                file.forgotten = True
                unused = []
        _close_all(unused)
        return file

    def _open_file(self, path: str) -> int:
        descriptor = os.open(self._full(path), self._access)
        try:
            self._know_system(path, os.fstat(descriptor).st_dev)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _give_back(self, file: _OpenFile) -> None:
        with self._mutex:
            file.users -= 1
            is_unused = file.forgotten and file.users == 0
        if is_unused:
            os.close(file.descriptor)

    def _forget(self, path: str) -> None:
        """Drop the descriptors of a path, and of everything below it when a directory moved."""
        with self._mutex:
            self._changes += 1
            below = path + "/"
            unused = self._drop([name for name in self._open if name == path or name.startswith(below)])
        _close_all(unused)

    def _drop(self, paths: Sequence[str]) -> list[int]:
        """Take files out of the cache; gives the descriptors that nobody uses."""
        files = [self._open.pop(path) for path in paths]
        for file in files:
            file.forgotten = True
        return [file.descriptor for file in files if file.users == 0]

    def _lock(self, path: str, holder: str) -> None:
        descriptor = self._open_lock(path)
        if descriptor is None:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with suppress(OSError):
                holder = os.pread(descriptor, 4096, 0).decode("utf-8", "replace")
            os.close(descriptor)
            raise DiskError(Kind.LOCKED, self._full(path), f"held by {holder or 'another process'}", holder) from None
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_RDWR:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
        self._locks[path] = descriptor
        self._know_systems()

    def _open_lock(self, path: str) -> int | None:
        """The lock's file; None when there is none, so that nobody has it, and none can be made."""
        try:
            return os.open(self._full(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            if not self._read_only or error.errno not in (errno.EROFS, errno.EACCES):
                raise
        try:
            return os.open(self._full(path), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def _know_systems(self) -> None:
        """Know the file systems of the data directory and of what is mounted or linked into it."""
        with os.scandir(self.root) as entries:
            directories = sorted(entry.name for entry in entries if entry.is_dir())
        for name in ("", *directories):
            self._know_system(name, os.stat(self._full(name)).st_dev)

    def _know_system(self, path: str, device: int) -> None:
        """Keep a directory of the file system open that `path` lies on."""
        if self._read_only or device in self._systems:
            return
        full = os.path.realpath(self._full(path))
        directory = full if os.path.isdir(full) else os.path.dirname(full)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with self._mutex:
            known = self._systems.setdefault(device, descriptor)
        if known != descriptor:
            os.close(descriptor)

    def _spaces(self) -> list[Space]:
        self._know_system("", os.stat(self.root).st_dev)
        return [space_of(descriptor) for descriptor in list(self._systems.values())]

    def _sync_all(self) -> None:
        if _SYNCFS is None:
            return _sync_tree(self.root)
        self._know_system("", os.stat(self.root).st_dev)
        for descriptor in list(self._systems.values()):
            if _SYNCFS(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        return None


def _find_syncfs() -> Callable[[int], int] | None:
    """The system call that syncs a whole file system; None where it is missing or keeps failures to itself."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if os.uname().sysname != "Linux" or release is None or tuple(map(int, release.groups())) < (5, 8):
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return found


_SYNCFS = _find_syncfs()


def _sync_tree(root: str) -> None:
    for directory, _, names in os.walk(root):
        for name in names:
            descriptor = os.open(os.path.join(directory, name), os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        _sync_dir(directory)


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _write(descriptor: int, position: int, buffers: Sequence[Buffer]) -> None:
    for start in range(0, len(buffers), _IOV_MAX):
        group = buffers[start : start + _IOV_MAX]
        size = sum(map(len, group))
        written = os.pwritev(descriptor, group, position)
        if written < size:
            _write_rest(descriptor, position + written, b"".join(group)[written:])
        position += size


def _write_rest(descriptor: int, position: int, rest: bytes) -> None:
    while rest:
        written = os.pwrite(descriptor, rest, position)
        if written == 0:
            raise OSError(errno.EIO, "the system wrote nothing")
        position += written
        rest = rest[written:]


def _read(descriptor: int, position: int, size: int) -> bytes:
    data = os.pread(descriptor, size, position)
    if len(data) == size or not data:
        return data
    pieces = [data]
    got = len(data)
    while got < size:
        data = os.pread(descriptor, size - got, position + got)
        if not data:
            break
        pieces.append(data)
        got += len(data)
    return b"".join(pieces)


def _sync_dir(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_dirs(path: str) -> None:
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        _make_dirs(above)
    _make_dir(path)


def _make_dir(path: str) -> None:
    try:
        os.mkdir(path, 0o750)
    except FileExistsError:
        if not os.path.isdir(path):
            raise DiskError(Kind.NOT_A_DIRECTORY, path, "it is a file") from None


def _remove_dir(path: str) -> None:
    try:
        os.rmdir(path)
    except NotADirectoryError:
        if not os.path.islink(path):
            raise
        os.unlink(path)


def space_of(path: str | int) -> Space:
    """What this process may have of the disk that `path` is on, and what of that is left, as `df` counts: blocks that
    are kept for root or that a quota denies are neither."""
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    return Space((used + found.f_bavail) * found.f_frsize, found.f_bavail * found.f_frsize)


def _list(path: str) -> list[FileInfo]:
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            is_dir = entry.is_dir()
            size = 0
            if not is_dir:
                # What just vanished, or is a link to nowhere, must not make the whole directory seem to be missing.
                with suppress(FileNotFoundError):
                    size = entry.stat().st_size
            found.append(FileInfo(entry.name, size, is_dir, entry.is_symlink()))
    return sorted(found)
