"""Keeps a recording of a running broker beside its data: `serve --record DIR`.

Promises  what `core.recording` needs to live the run again is on the disk, up to the last step before a crash of the
          process; a start begins a new file, or anew the one of a start that came to nothing.
Never     grows past its limit: then it stops, and says so.
"""

from __future__ import annotations

import os
from contextlib import suppress

import structlog

from dovetail.core import recording
from dovetail.core.effects import AnyEffect
from dovetail.core.ids import Now
from dovetail.core.inputs import AnyInput
from dovetail.core.records import AnyRecord
from dovetail.core.state import Durable, Settings
from dovetail.runtime.storage import checkpoint

log = structlog.get_logger("recorder")

BYTES_MAX = 1 << 30


class Recorder:
    """One recording; `observe` is told of every step."""

    def __init__(self, directory: str, durable: Durable, settings: Settings, bytes_max: int = BYTES_MAX) -> None:
        os.makedirs(directory, exist_ok=True)
        self.path = os.path.join(directory, f"{durable.incarnation + 1:08}.rec")
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        self._left = bytes_max
        began = recording.Began(b"".join(checkpoint.encode(durable)), settings)
        self._write(recording.head() + recording.encode(began))

    def observe(
        self,
        now: Now,
        arrived: tuple[AnyInput, ...],
        records: tuple[AnyRecord, ...],
        effects: tuple[AnyEffect, ...],
    ) -> None:
        """Record one step."""
        if self._left > 0:
            digest = recording.digest(records, effects)
            self._write(recording.encode(recording.Stepped(now.mono_ms, now.wall_ms, arrived, digest)))

    def _write(self, data: bytes) -> None:
        if len(data) > self._left:
            self._left = 0
            log.warning("recording ends: it has reached its limit", path=self.path)
            return
        self._left -= len(data)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._left = 0
            log.warning("recording ends: it can't be written", path=self.path, reason=str(error))

    def close(self) -> None:
        """End the recording."""
        self._left = 0
        with suppress(OSError):
            os.close(self._file)
