"""The real disk: what a path stands for is what is read and written, from any thread, with few descriptors."""

from __future__ import annotations

import ctypes
import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from dovetail.runtime.storage import real_disk
from dovetail.runtime.storage.disk import (
    Create,
    DiskError,
    FileInfo,
    Free,
    Kind,
    List,
    Lock,
    MakeDir,
    Read,
    Remove,
    Rename,
    Space,
    Sync,
    SyncAll,
    SyncDir,
    Truncate,
    Write,
    replace_file,
    run,
)
from dovetail.runtime.storage.real_disk import RealDisk

MEMORY = "/dev/shm"
"""Another file system, on every Linux."""


@pytest.mark.skipif(not os.path.isdir(MEMORY), reason="NO OTHER FILE SYSTEM: parts that are mounted were not tested")
def test_what_lies_on_another_file_system_is_synced_and_its_room_counted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def syncfs(descriptor: int) -> int:
        synced.append(os.fstat(descriptor).st_dev)
        return 0

    def statvfs(place: str | int) -> SimpleNamespace:
        is_here = os.stat(place).st_dev == os.stat(tmp_path).st_dev
        left = 50 if is_here else 10
        return SimpleNamespace(f_blocks=100, f_bfree=left, f_bavail=left, f_frsize=1)

    monkeypatch.setattr(real_disk, "_SYNCFS", syncfs)
    monkeypatch.setattr(os, "statvfs", statvfs)
    with TemporaryDirectory(dir=MEMORY) as elsewhere:
        disk = RealDisk(os.fspath(tmp_path))
        disk.execute(Lock("lock", "a test"))
        assert [space.free_bytes for space in disk.execute(Free())] == [50]
        (tmp_path / "topics").symlink_to(elsewhere)
        put(disk, "topics/a", b"x")
        assert [space.free_bytes for space in disk.execute(Free())] == [50, 10]
        disk.close()
        disk.execute(Lock("lock", "a test"))
        put(disk, "topics/a", b"x")
        assert [space.free_bytes for space in disk.execute(Free())] == [50, 10]
        disk.execute(SyncAll())
        assert sorted(synced) == sorted({os.stat(tmp_path).st_dev, os.stat(elsewhere).st_dev})
        open_before = len(os.listdir("/proc/self/fd"))
        disk.close()
        assert len(os.listdir("/proc/self/fd")) == open_before - 4


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(os.fspath(tmp_path), open_files_max=4)


def put(disk: RealDisk, path: str, data: bytes) -> None:
    disk.execute(Create(path))
    disk.execute(Write(path, 0, (data,)))


def test_a_file_that_is_replaced_is_read_anew(disk: RealDisk) -> None:
    for number in range(20):
        run(disk, replace_file("a", (b"%d" % number,)))
        assert disk.execute(Read("a", 0, 9)) == b"%d" % number


def test_a_file_in_the_place_of_a_directory_is_said_and_left_alone(disk: RealDisk) -> None:
    put(disk, "topics", b"x")
    with pytest.raises(DiskError) as caught:
        disk.execute(MakeDir("topics"))
    assert caught.value.kind is Kind.NOT_A_DIRECTORY
    assert disk.execute(Read("topics", 0, 9)) == b"x"


def test_a_link_to_nowhere_hides_nothing_of_its_directory(disk: RealDisk, tmp_path: Path) -> None:
    put(disk, "a", b"xyz")
    (tmp_path / "b").symlink_to(tmp_path / "nowhere")
    assert disk.execute(List("")) == [FileInfo("a", 3, False), FileInfo("b", 0, False, True)]


def test_an_error_names_what_it_is_about_and_the_way_out(disk: RealDisk, tmp_path: Path) -> None:
    put(disk, "a", b"x")
    (tmp_path / "b").mkdir()
    with pytest.raises(DiskError) as caught:
        disk.execute(Rename("a", "b"))
    assert str(caught.value) == (
        f"{tmp_path}/a to {tmp_path}/b: Is a directory: a file is needed there: move the directory away"
    )


def test_where_nothing_may_be_written_it_can_still_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(RealDisk(os.fspath(tmp_path)), "a", b"x")
    open_for_real = os.open

    def open_read_only(path: str, flags: int, *more: int) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return open_for_real(path, flags, *more)

    monkeypatch.setattr(os, "open", open_read_only)
    with pytest.raises(DiskError, match="Read-only file system: whoever runs dovetail"):
        RealDisk(os.fspath(tmp_path)).execute(Lock("lock", "a broker"))
    looking = RealDisk(os.fspath(tmp_path), read_only=True)
    looking.execute(Lock("lock", "nobody can have made the lock"))
    assert looking.execute(Read("a", 0, 1)) == b"x"


def test_who_only_looks_is_refused_too_while_a_broker_has_the_directory(tmp_path: Path) -> None:
    RealDisk(os.fspath(tmp_path)).execute(Lock("lock", "a broker"))
    with pytest.raises(DiskError, match="held by a broker") as caught:
        RealDisk(os.fspath(tmp_path), read_only=True).execute(Lock("lock", "somebody who looks"))
    assert caught.value.kind is Kind.LOCKED


def test_a_removed_name_is_missing_although_it_was_open(disk: RealDisk) -> None:
    put(disk, "a", b"x")
    disk.execute(Remove("a"))
    with pytest.raises(DiskError) as caught:
        disk.execute(Read("a", 0, 1))
    assert caught.value.kind is Kind.MISSING


def test_a_moved_directory_takes_its_open_files_along(disk: RealDisk) -> None:
    disk.execute(MakeDir("d"))
    put(disk, "d/a", b"old")
    disk.execute(Rename("d", "e"))
    assert disk.execute(Read("e/a", 0, 9)) == b"old"
    disk.execute(MakeDir("d"))
    put(disk, "d/a", b"new")
    assert disk.execute(Read("d/a", 0, 9)) == b"new"


def test_no_more_descriptors_are_open_than_allowed(disk: RealDisk) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(30):
        put(disk, f"f{number}", b"%d" % number)
    assert len(os.listdir("/proc/self/fd")) <= before + 4 + 1, "files, and a directory of their file system"
    assert [disk.execute(Read(f"f{number}", 0, 9)) for number in range(30)] == [b"%d" % n for n in range(30)]
    disk.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_threads_see_whole_writes_while_files_come_and_go(disk: RealDisk) -> None:
    def work(thread: int) -> bool:
        for number in range(60):
            path = f"{thread}-{number % 3}"
            run(disk, replace_file(path, (b"%d" % number * 50,)))
            if disk.execute(Read(path, 0, 999)) != b"%d" % number * 50:
                return False
            if number % 7 == 0:
                disk.execute(Remove(path))
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_many_buffers_are_one_write(disk: RealDisk) -> None:
    disk.execute(Create("a"))
    disk.execute(Write("a", 3, [b"%04d" % number for number in range(2000)]))
    assert disk.execute(Read("a", 0, 1 << 20)) == bytes(3) + b"".join(b"%04d" % number for number in range(2000))
    disk.execute(Truncate("a", 5))
    assert len(disk.execute(Read("a", 0, 99))) == 5
    for op in (Sync("a"), SyncDir(""), SyncAll()):
        disk.execute(op)
    assert disk.execute(Free())[0].total_bytes > 0


def test_blocks_that_are_kept_for_others_are_not_in_use(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    half = SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bfree=800, f_bavail=200)
    monkeypatch.setattr(os, "statvfs", lambda path: half)
    assert disk.execute(Free()) == [Space(total_bytes=400 * 4096, free_bytes=200 * 4096)]


def test_a_file_that_is_forgotten_while_others_read_it_stays_open_for_them_and_no_longer(disk: RealDisk) -> None:
    put(disk, "a", b"x")
    users = [disk._take("a") for _ in range(3)]
    (descriptor,) = {user.descriptor for user in users}
    disk.execute(Remove("a"))
    for user in users:
        os.fstat(descriptor)
        disk._give_back(user)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize(
    ("system", "release", "is_found"),
    [
        ("Linux", "5.8.0", True),
        ("Linux", "6.1-rc2", True),
        ("Linux", "5.7.19", False),
        ("Linux", "unknown", False),
        ("Darwin", "23.1.0", False),
    ],
)
def test_a_whole_file_system_is_synced_at_once_only_where_that_tells_of_failures(
    monkeypatch: pytest.MonkeyPatch, system: str, release: str, is_found: bool
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname=system, release=release))
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syncfs=lambda descriptor: 0))
    assert (real_disk._find_syncfs() is not None) is is_found
