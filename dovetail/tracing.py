"""The writer of a running broker's trace: a process of its own that reads what the broker tells it, row by row.

`python -m dovetail.tracing DIR`, started by `dovetail serve --trace DIR`. Files are `life-LLLLLLLL-NNNNNN.parquet`; the
one being written begins with `_`, which readers skip.

Promises  a file that has its name is whole; after a kill of the broker what it had told is written, and the file ended;
          no more than `BYTES_MAX` of files are kept, the oldest go first.
Never     slows the broker: it runs at a lower priority, and what it can't keep up with the broker leaves out.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dovetail.core.trace import Row
from dovetail.runtime.tracing import Began, Told
from dovetail.runtime.tracing_rows import Witness
from dovetail.sim.trace import ParquetTrace

BYTES_MAX = 1 << 30
FILE_ROWS_MAX = 500_000
FILE_S_MAX = 60.0
"""A file is ended at least this often: a power cut takes no more than this."""
READ_BYTES = 1 << 20
ABOUT = "_live.json"


class About(msgspec.Struct, frozen=True):
    """What all files of a directory have in common."""

    run: str
    began_us: int
    """What `time_us` counts from, in microseconds since 1970."""


def unfinished(directory: str) -> list[str]:
    """Files that were begun and not ended, of lives that are over: they can't be read."""
    return sorted(each.name for each in Path(directory).glob("_life-*.parquet"))


class Files:
    """A directory of a trace: rows go in, files come out."""

    def __init__(self, directory: str, *, rows_max: int = FILE_ROWS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._file: ParquetTrace | None = None
        self._rows = 0
        self._number = 0
        self._began = 0.0
        self._life = 0
        self._run = ""

    def begin(self, began: Began) -> About:
        """A life begins; gives what the directory's files have in common."""
        self._life = began.life
        path = self._directory / ABOUT
        try:
            about = msgspec.json.decode(path.read_bytes(), type=About)
        except FileNotFoundError:
            about = About(f"live-{began.broker}", began.wall_us)
            path.write_bytes(msgspec.json.encode(about))
        self._run = about.run
        return about

    def keep(self, row: Row) -> None:
        """Take one row."""
        if self._file is None:
            self._number += 1
            self._rows = 0
            self._began = time.monotonic()
            self._file = ParquetTrace(str(self._directory / f"_{self._name}"), self._run, 0)
        self._file.keep(row)
        self._rows += 1
        if self._rows >= self._rows_max:
            self.end_file()

    def rotate(self) -> None:
        """End the file if it is old enough."""
        if self._file is not None and time.monotonic() - self._began >= FILE_S_MAX:
            self.end_file()

    def end_file(self) -> None:
        """Give the file its name: it is whole."""
        if self._file is None:
            return
        self._file.__exit__()
        self._file = None
        hidden = self._directory / f"_{self._name}"
        with hidden.open("rb") as file:
            os.fsync(file.fileno())
        hidden.rename(self._directory / self._name)
        self._make_room()

    @property
    def _name(self) -> str:
        return f"life-{self._life:08}-{self._number:06}.parquet"

    def _make_room(self) -> None:
        files = sorted(self._directory.glob("life-*.parquet"))
        sizes = [each.stat().st_size for each in files]
        total = sum(sizes)
        for file, size in list(zip(files, sizes, strict=True))[:-1]:
            if total <= self._bytes_max:
                break
            file.unlink()
            total -= size


def told(pipe: int, on_pause: Files) -> Iterator[Told]:
    """What the broker says, until it is gone."""
    decode = msgspec.msgpack.Decoder(Told).decode
    buffer = bytearray()
    while True:
        if not select.select([pipe], [], [], 1.0)[0]:
            on_pause.rotate()
            continue
        data = os.read(pipe, READ_BYTES)
        if not data:
            return
        buffer += data
        at = 0
        while len(buffer) - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "big")
            if len(buffer) - at - 4 < size:
                break
            yield decode(bytes(buffer[at + 4 : at + 4 + size]))
            at += 4 + size
        del buffer[:at]
        on_pause.rotate()


def write(directory: str, pipe: int) -> None:
    """Write a trace of what comes through a pipe, until its other end is closed."""
    left = unfinished(directory)
    if left:
        print(f"trace: {', '.join(left)} in {directory} was never finished and can't be read: skipped", file=sys.stderr)
    files = Files(directory)
    witness: Witness | None = None
    for each in told(pipe, files):
        if isinstance(each, Began):
            witness = Witness(files.keep, files.begin(each).began_us)
        if witness is not None:
            witness.take(each)
    if witness is not None:
        witness.end(time.time_ns() // 1_000, "gone without a word")
    files.end_file()


def main() -> int:
    """Run as a process; exit code 1 says that the trace could not be written."""
    os.nice(5)
    try:
        write(sys.argv[1], sys.stdin.fileno())
    except OSError as error:
        print(f"trace: {error}: no more is written", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
