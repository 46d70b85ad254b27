"""What recovery and verification found: damage, what was done about it, and what it cost.

Promises  a finding names the file, the position and what is affected, in words an operator can act on.
Never     decides: `Corrupted` carries the findings to whoever does.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct


class Outcome(StrEnum):
    """What became of it."""

    CUT = "cut"
    """The unfinished last commit: nobody was promised it."""
    REPAIRED = "repaired"
    """Made whole again from another copy."""
    UNNEEDED = "not needed"
    """Damaged, but a checkpoint covers it."""
    LOST = "lost"
    """Something that was promised can't be read."""


class Finding(Struct, frozen=True):
    """One thing that is not as it was written."""

    outcome: Outcome
    path: str
    position: int
    reason: str
    lsn: int = 0
    log: int = 0
    first: int = 0
    last: int = -1
    """Offsets of `log`, when any are affected."""

    def __str__(self) -> str:
        parts = [f"{self.path} at {self.position}: {self.reason} ({self.outcome}"]
        if self.lsn:
            parts.append(f"lsn {self.lsn}")
        if self.last >= self.first:
            parts.append(f"log {self.log}, offsets {self.first} to {self.last}")
        return ", ".join(parts) + ")"


class RecoveryReport(Struct, frozen=True):
    """What a start found and did."""

    created: bool = False
    checkpoint_lsn: int = 0
    last_lsn: int = 0
    frames: int = 0
    messages: int = 0
    journal_bytes: int = 0
    findings: tuple[Finding, ...] = ()
    quarantined: tuple[str, ...] = ()
    """Where what could not be used is kept, when the start went on without it."""


class Progress(Struct, frozen=True):
    """How far a recovery is: bytes of journal worked through, of those there are."""

    stage: str
    done_bytes: int
    total_bytes: int


class Reading:
    """Tells how far a look at all logs is, part by part."""

    def __init__(self, total_bytes: int, on_progress: Callable[[Progress], None] | None) -> None:
        self._done = 0
        self._total = total_bytes
        self._on_progress = on_progress

    def has_read(self, size_bytes: int) -> None:
        """A part of this size was looked at."""
        self._done += size_bytes
        if self._on_progress is not None:
            self._on_progress(Progress("reading the logs", self._done, self._total))


class Corrupted(Exception):
    """Something that was promised can't be read; nothing was changed."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__(findings)
        self.findings = findings

    def __str__(self) -> str:
        return self.about("DIR")

    def about(self, directory: str) -> str:
        """What is lost, what else is not as it was written, and the one command that goes on without it."""
        in_order = sorted(self.findings, key=lambda finding: finding.outcome is not Outcome.LOST)
        lines = "\n".join(f"  {finding}" for finding in in_order)
        return (
            f"the data directory is damaged:\n{lines}\n"
            "Restore it from a backup, or go on without the damaged part, which is kept in quarantine/: "
            f"dovetail log repair {shlex.quote(directory)} --yes"
        )


class Unusable(Exception):
    """A data directory that this program can't open: the text says why and what to do."""
