"""How full the disk is, and what that means for the broker.

Promises  the level rises at a limit and falls only a little below it, so that it does not flutter; at READ_ONLY
          there is still room for settles, a checkpoint and the journal segments they need.
Never     asks the disk: it is handed what the disk said.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from dovetail.runtime.storage.disk import Space


class Level(IntEnum):
    """From here on the broker …"""

    FINE = 0
    WARN = 1
    """… says so."""
    COMPACT = 2
    """… enforces retention and compacts at once."""
    READ_ONLY = 3
    """… refuses what would grow the disk's use; settles and checkpoints go on."""


class SpaceLimits(Struct, frozen=True):
    """Percent of the disk in use at which each level begins, and what is kept back in any case."""

    warn_percent: int = 80
    compact_percent: int = 90
    read_only_percent: int = 95
    kept_back_bytes: int = 256 << 20
    slack_percent: int = 2
    """How far use must fall below a limit before its level ends."""


def level_of(space: Space, limits: SpaceLimits, before: Level) -> Level:
    """The level now, given the one before."""
    if _begins(space, limits.read_only_percent, limits, before >= Level.READ_ONLY) or _too_little(
        space, limits, before
    ):
        return Level.READ_ONLY
    if _begins(space, limits.compact_percent, limits, before >= Level.COMPACT):
        return Level.COMPACT
    if _begins(space, limits.warn_percent, limits, before >= Level.WARN):
        return Level.WARN
    return Level.FINE


def room_bytes(space: Space, limits: SpaceLimits) -> int:
    """How much more may be used before READ_ONLY begins."""
    kept_free = space.total_bytes * (100 - limits.read_only_percent) // 100
    if space.total_bytes > 4 * limits.kept_back_bytes:
        kept_free = max(kept_free, limits.kept_back_bytes)
    return max(0, space.free_bytes - kept_free)


def _begins(space: Space, percent: int, limits: SpaceLimits, is_above: bool) -> bool:
    used = space.total_bytes - space.free_bytes
    limit = percent - limits.slack_percent if is_above else percent
    return used * 100 >= space.total_bytes * limit


def _too_little(space: Space, limits: SpaceLimits, before: Level) -> bool:
    """Small disks run out before their percentages do; a disk smaller than what is kept back has only those."""
    if space.total_bytes <= 4 * limits.kept_back_bytes:
        return False
    needed = limits.kept_back_bytes
    if before is Level.READ_ONLY:
        needed += space.total_bytes * limits.slack_percent // 100
    return space.free_bytes < needed
