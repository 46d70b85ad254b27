"""The vocabulary of numbers, the two clocks, and the line between our bugs and a peer's mistakes.

Promises  every id is an int assigned by a journal record or a counter; nothing here is random.
Never     holds state.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import NewType, TypeVar

from msgspec import Struct

Offset = NewType("Offset", int)
Millis = NewType("Millis", int)
Lsn = NewType("Lsn", int)
TopicId = NewType("TopicId", int)
LogId = NewType("LogId", int)
GroupId = NewType("GroupId", int)
SessionId = NewType("SessionId", int)
SubscriptionId = NewType("SubscriptionId", int)
LeaseId = NewType("LeaseId", int)
Generation = NewType("Generation", int)
Handle = NewType("Handle", int)
"""A payload in the shell's keeping; the core only passes it on."""
Owner = NewType("Owner", int)
"""Whose cursor it is: a group's id, or minus a session's id for subscriptions without a group."""


class Now(Struct, frozen=True, gc=False):
    """The instant of a step: `mono_ms` for leases and sessions, `wall_ms` for what people read."""

    mono_ms: int
    wall_ms: int


class Bug(Exception):
    """An invariant of ours is broken: the shell stops without writing anything more."""


class Refusal(Exception):
    """A peer's request that can't be met; carries the status and the reason for its answer."""

    def __init__(self, status: int, reason: str, retry_after_ms: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.retry_after_ms = retry_after_ms


def check(holds: bool, invariant: str, *values: object) -> None:
    """Raise `Bug` naming the invariant and the values at hand; unlike `assert`, `python -O` keeps it."""
    if not holds:
        raise Bug(f"{invariant}: {', '.join(map(repr, values))}")


K = TypeVar("K", int, str, tuple[int, int], tuple[int, int, int])
V = TypeVar("V")
_KEY = itemgetter(0)


def ordered(mapping: Mapping[K, V]) -> list[tuple[K, V]]:
    """The only way to iterate over a map in the core: by key, so that hash order never decides anything."""
    return sorted(mapping.items(), key=_KEY)
