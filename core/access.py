"""What the bearer of a token may do: a role, and the topics it counts for.

Promises  a pattern is covered only if everything it could ever match is.
Never     sees a token: whoever holds the keys says whose it is.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from dovetail.core.names import DEAD, ONE, REST


class Role(IntEnum):
    """Each includes those before it: read is consuming and looking, write is publishing too."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


class Access(Struct, frozen=True):
    """One bearer's rights; `name` is who it is, for the logs."""

    name: str
    role: Role
    patterns: tuple[str, ...] = (REST,)

    def may(self, role: Role, pattern: str = "") -> bool:
        """Whether it has the role, for all that a canonical pattern (or name) could match."""
        return self.role >= role and (not pattern or any(covers(each, pattern) for each in self.patterns))


EVERYTHING = Access("", Role.ADMIN)


def covers(wide: str, narrow: str) -> bool:
    """Whether every name that `narrow` matches lies within `wide`, level by level. Dead letters belong to their topic:
    only a pattern that ends in `dlq` itself names them apart from it."""
    wanted, levels = wide.split("."), narrow.replace("/", ".").split(".")
    if levels[-1] == DEAD and wanted[-1] != DEAD and len(levels) > 1:
        levels = levels[:-1]
    if wanted[-1] == REST:
        wanted = wanted[:-1]
        if levels[-1] == REST:
            levels = levels[:-1]
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    if len(wanted) != len(levels) or REST in levels:
        return False
    return all(each in (ONE, level) for each, level in zip(wanted, levels, strict=True))
