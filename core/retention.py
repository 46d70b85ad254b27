"""What of a log may go: proposals for trimming it, by age, bytes, count, and on ack.

Promises  a proposal removes whole parts only, and never more than the topic's settings allow; what a group has not
          settled is the core's to protect (I-RETAIN), except where `bytes_max_hard` says otherwise.
Never     touches a file or the state: the shell feeds a proposal to the core, which decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from dovetail.core.ids import ordered
from dovetail.core.records import TopicConfig
from dovetail.core.state import Durable


class PartInfo(Struct, frozen=True):
    """A part as retention sees it: offsets `base..end` (excluded); nothing in it arrived after
    `last_arrival_ms`."""

    base: int
    end: int
    size_bytes: int
    first_arrival_ms: int
    last_arrival_ms: int


class Proposal(Struct, frozen=True):
    """Everything below `start` may go; everything below `hard_start` must, whoever still waits for it."""

    log: int
    start: int
    hard_start: int


def propose(
    log: int, parts: Sequence[PartInfo], config: TopicConfig, wall_ms: int, floor: int | None
) -> Proposal | None:
    """What of a log may go; `floor` is the lowest of its groups' (None: it has none)."""
    if not parts:
        return None
    start = max(
        _by_age(parts, config.retention_ms, wall_ms),
        _by_bytes(parts, config.retention_bytes),
        _by_count(parts, config.retention_count),
        parts[0].base if config.retain_on_ack or floor is None else _by_floor(parts, floor),
    )
    hard_start = _by_hard_bytes(parts, config.bytes_max_hard)
    if max(start, hard_start) <= parts[0].base:
        return None
    return Proposal(log, max(start, hard_start), hard_start)


def lowest_floor(durable: Durable, log: int) -> int | None:
    """The lowest floor of the groups that read a log; None when none does."""
    found = (durable.cursors.get((group, log)) for group, _ in ordered(durable.groups))
    return min((cursor.floor for cursor in found if cursor is not None), default=None)


def _by_age(parts: Sequence[PartInfo], retention_ms: int, wall_ms: int) -> int:
    start = parts[0].base
    for part in parts:
        if not retention_ms or part.last_arrival_ms >= wall_ms - retention_ms:
            break
        start = part.end
    return start


def _by_bytes(parts: Sequence[PartInfo], bytes_max: int) -> int:
    """What stays is at least what was asked for: a part goes when the rest is enough without it."""
    left = sum(part.size_bytes for part in parts)
    for part in parts[:-1]:
        if not bytes_max or left - part.size_bytes < bytes_max:
            return part.base
        left -= part.size_bytes
    return parts[-1].base


def _by_hard_bytes(parts: Sequence[PartInfo], bytes_max: int) -> int:
    """What stays is at most what was allowed, the part that is written to excepted."""
    if not bytes_max:
        return parts[0].base
    left = sum(part.size_bytes for part in parts)
    for part in parts[:-1]:
        if left <= bytes_max:
            return part.base
        left -= part.size_bytes
    return parts[-1].base


def _by_count(parts: Sequence[PartInfo], count_max: int) -> int:
    end = parts[-1].end
    for part in parts:
        if not count_max or end - part.end < count_max:
            return part.base
    return end


def _by_floor(parts: Sequence[PartInfo], floor: int) -> int:
    for part in parts:
        if part.end > floor:
            return part.base
    return parts[-1].end
