"""Decisions about the files of journal and logs: when one is full, where to look in one, what damage means.

Promises  total over the numbers their docstrings name; what is known to be on the disk is never taken for unfinished
          (I-TORN); a search begins at or before what it seeks (I-INDEX).
Never     opens a file: storage asks, and does it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any


class Loss(IntEnum):
    """What it means that a frame of the journal is not there whole."""

    NONE = 0
    """The journal ends here."""
    CUT = 1
    """Torn: the unfinished last commit, which nobody was promised."""
    UNNEEDED = 2
    """A checkpoint covers it."""
    LOST = 3
    """Corrupt: it was promised."""


def judge_loss(lsn: int, covered_lsn: int, synced_lsn: int, is_cut: bool, is_begun: bool) -> Loss:
    """What it means that the frame `lsn` is not whole.

    A checkpoint covers all up to `covered_lsn`; all up to `synced_lsn` is known to have been on the disk. `is_cut`: its
    file is shorter than it was made; `is_begun`: there are bytes of it, or whole frames behind it.
    """
    if lsn <= covered_lsn:
        return Loss.UNNEEDED
    if is_cut or synced_lsn >= lsn:
        return Loss.LOST
    return Loss.CUT if is_begun else Loss.NONE


def is_full(used_bytes: int, empty_bytes: int, more_bytes: int, bytes_max: int) -> bool:
    """Whether `more_bytes` begin a new file. One that holds nothing but its `empty_bytes` of header takes anything, so
    that what is larger than a file gets one of its own."""
    return used_bytes > empty_bytes and used_bytes + more_bytes > bytes_max


def is_part_full(used_bytes: int, more_bytes: int, bytes_max: int, age_ms: int, age_ms_max: int) -> bool:
    """The same for a part of a log, which is full also when `age_ms` after its first entry it is too old for more."""
    return is_full(used_bytes, 0, more_bytes, bytes_max) or (used_bytes > 0 and age_ms > age_ms_max)


def is_spent(next_first_lsn: int, covered_lsn: int) -> bool:
    """Whether a journal segment can go: the next one begins no later than right after what a checkpoint covers."""
    return next_first_lsn <= covered_lsn + 1


def last_up_to(values: Sequence[Any], sought: int, key: Callable[[Any], int] | None = None) -> int:
    """The place of the last of ascending `values` that is not above `sought`; -1 when all are."""
    return bisect_right(values, sought, key=key) - 1


def last_before(values: Sequence[int], sought: int) -> int:
    """The place of the last of ascending `values` that is below `sought`; -1 when none is."""
    return bisect_left(values, sought) - 1
