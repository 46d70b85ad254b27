"""Which offsets of which logs are read, by whom: plain numbers, before anything is read.

Promises  the slices of a plan cover each offset asked for once; the same bounds give the same slices, so that Spark may
          plan a batch again after a crash; a filter is taken over only where it is kept exactly.
Never     connects, or knows what a message is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from dovetail.reports.source_options import LANE_NAMES, Log, Offsets, SourceError

Bounds: TypeAlias = tuple[int, int]
"""From the first, inclusive, to the end, exclusive."""
FOREVER = 1 << 62


@dataclass(frozen=True)
class Slice(InputPartition):
    """What one task reads: the offsets from `first` to `end`, exclusive, of one log."""

    topic: str
    partition: int
    lane: int
    first: int
    end: int
    must_be_there: bool = True
    """Whether the first offset was there when somebody decided to begin with it."""

    @property
    def log(self) -> Log:
        """Which log it is of."""
        return self.topic, self.partition, self.lane

    def __str__(self) -> str:
        lane = f".{LANE_NAMES[self.lane]}" if self.lane else ""
        return f"{self.topic}:{self.partition}{lane}:{self.first}-{self.end - 1}"


@dataclass(frozen=True)
class Wanted:
    """What is left of a log's messages after the filters."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    lanes: frozenset[str] | None = None
    since_us: int = -FOREVER
    until_us: int = FOREVER
    first: int = 0
    end: int = FOREVER
    partition_first: int = 0
    partition_end: int = FOREVER

    def has(self, log: Log) -> bool:
        """Whether anything of a log is wanted."""
        topic, partition, lane = log
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and (self.lanes is None or LANE_NAMES.get(lane) in self.lanes)
            and self.partition_first <= partition < self.partition_end
        )

    @property
    def all_times(self) -> bool:
        """Whether the time of a message does not matter."""
        return self.since_us == -FOREVER and self.until_us == FOREVER

    def within(self, since_ms: int | None, until_ms: int | None) -> Wanted:
        """The same, of messages of this time only."""
        since_us = self.since_us if since_ms is None else max(self.since_us, since_ms * 1000)
        until_us = self.until_us if until_ms is None else min(self.until_us, until_ms * 1000)
        return replace(self, since_us=since_us, until_us=until_us)


def narrow(wanted: Wanted, filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """What is wanted after the filters, and those of them that Spark has to apply itself."""
    left: list[Filter] = []
    for each in filters:
        narrower = _narrowed(wanted, each)
        if narrower is None:
            left.append(each)
        else:
            wanted = narrower
    return wanted, left


def _narrowed(wanted: Wanted, filter: Filter) -> Wanted | None:
    column = filter.attribute[0] if hasattr(filter, "attribute") and len(filter.attribute) == 1 else ""
    if isinstance(filter, IsNotNull):
        return wanted if column in ("topic", "partition", "offset", "timestamp") else None
    value = getattr(filter, "value", None)
    match column:
        case "topic":
            only = _names(filter, value, wanted.topics)
            return None if only is None else replace(wanted, topics=only)
        case "lane":
            only = _names(filter, value, wanted.lanes)
            return None if only is None else replace(wanted, lanes=only)
        case "partition" | "offset":
            return _narrow_number(wanted, filter, value, column)
        case "timestamp":
            return _narrow_time(wanted, filter, value)
        case _:
            return None


def _names(filter: Filter, value: Any, before: frozenset[str] | None) -> frozenset[str] | None:
    """The names that pass a filter and those before it; None where it does not list names."""
    if isinstance(filter, EqualTo | EqualNullSafe) and isinstance(value, str):
        only = frozenset({value})
    elif isinstance(filter, In):
        # Nothing equals null, in a list neither.
        only = frozenset(name for name in value if name is not None)
    else:
        return None
    return only if before is None else before & only


def _narrow_number(wanted: Wanted, filter: Filter, value: Any, column: str) -> Wanted | None:
    if isinstance(filter, In) and column == "partition":
        only = frozenset(value)
        return replace(wanted, partitions=only if wanted.partitions is None else wanted.partitions & only)
    bounds = _bounds(filter, value) if isinstance(value, int) else None
    if bounds is None:
        return None
    if column == "offset":
        return replace(wanted, first=max(wanted.first, bounds[0]), end=min(wanted.end, bounds[1]))
    return replace(
        wanted,
        partition_first=max(wanted.partition_first, bounds[0]),
        partition_end=min(wanted.partition_end, bounds[1]),
    )


def _narrow_time(wanted: Wanted, filter: Filter, value: Any) -> Wanted | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    bounds = _bounds(filter, round(value.timestamp() * 1_000_000))
    if bounds is None:
        return None
    return replace(wanted, since_us=max(wanted.since_us, bounds[0]), until_us=min(wanted.until_us, bounds[1]))


def _bounds(filter: Filter, value: int) -> Bounds | None:
    """The whole numbers that pass a comparison."""
    match filter:
        case EqualTo() | EqualNullSafe():
            return value, value + 1
        case GreaterThan():
            return value + 1, FOREVER
        case GreaterThanOrEqual():
            return value, FOREVER
        case LessThan():
            return -FOREVER, value
        case LessThanOrEqual():
            return -FOREVER, value + 1
        case _:
            return None


def place(offsets: Offsets, log: Log, kept: Bounds) -> int:
    """Where in a log that keeps these offsets one begins or ends."""
    chosen = offsets.of(log)
    if chosen == "earliest":
        return kept[0]
    if chosen == "latest":
        return kept[1]
    return chosen


def check_named(offsets: Offsets, logs: Mapping[Log, Bounds], option: str) -> None:
    """Refuse an option that names a log which is not read."""
    partitions = {(topic, partition) for topic, partition, _ in logs}
    for log in offsets.named:
        topic, partition, lane = log
        if log not in logs and (lane or (topic, partition) not in partitions):
            raise SourceError(f"{option} names {shown(log)}, which is not read or not there")


def shown(log: Log) -> str:
    """A log, in words."""
    topic, partition, lane = log
    return f"{f'lane {LANE_NAMES[lane]} of ' if lane else ''}partition {partition} of topic {topic!r}"


def split(part: Slice, per_task: int) -> Iterator[Slice]:
    """A slice in pieces of so many offsets at most."""
    first = part.first
    while first < part.end:
        end = min(part.end, first + per_task)
        yield replace(part, first=first, end=end, must_be_there=part.must_be_there and first == part.first)
        first = end


def limited(start: Mapping[Log, int], end: Mapping[Log, int], most: int) -> dict[Log, int]:
    """Ends of logs so that about `most` offsets lie before them, each log's share as large as what it has waiting: at
    least one, so that none waits for ever while others grow."""
    waiting = {log: max(0, end[log] - start.get(log, 0)) for log in end}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    return {log: end[log] - many + -(-many * most // total) for log, many in waiting.items()}
