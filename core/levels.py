"""How much the broker does: everything, or less while something is short.

Several sources may ask for a level at a time: the disk, memory, the loop, an operator. The strictest of them counts,
and each level keeps what the ones below it ask for:

    throttled     confirms are held back, less important messages are refused
    read-only     no messages are taken; delivery and settling go on
    maintenance   `/ready` says no too, so that a balancer sends nobody here
    emergency     no new connections either: those that are there are served

Promises  a level begins at a limit and ends only well below it, so that it does not flutter; everybody is told of each
          change; what one source asks for is not ended by another.
Never     measures: it is handed what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType

from msgspec import Struct

from dovetail.core import inputs
from dovetail.core.node import Node

LOOK_MS = 1_000
"""How often memory and the loop are looked at."""
LATE_LOOKS = 5
"""The loop is overloaded when it was late so many times in a row, and no more when it was not late as often."""


class Level(IntEnum):
    """What the broker does, the least last."""

    NORMAL = 0
    THROTTLED = 1
    READ_ONLY = 2
    MAINTENANCE = 3
    EMERGENCY = 4

    @property
    def word(self) -> str:
        """As people write it."""
        return self.name.lower().replace("_", "-")


BY_WORD: Mapping[str, Level] = MappingProxyType({level.word: level for level in Level})
OPERATOR = "operator"


class PressureLimits(Struct, frozen=True):
    """From where on a process has too little memory or time."""

    memory_bytes: int = 0
    """What the process may have; 0: what its container or the machine has."""
    throttle_percent: int = 85
    emergency_percent: int = 95
    slack_percent: int = 5
    """How far use must fall below a limit before its level ends."""
    late_ms: int = 1_000


class Levels:
    """What each source asks for; `changed` is told of the level that follows and of the reason."""

    def __init__(self, changed: Callable[[Level, str], None]) -> None:
        self.asked: dict[str, tuple[Level, str]] = {}
        self._changed = changed

    @property
    def level(self) -> Level:
        """The strictest that is asked for."""
        return max((level for level, _ in self.asked.values()), default=Level.NORMAL)

    @property
    def reason(self) -> str:
        """Why; empty for the normal level."""
        level = self.level
        return "; ".join(reason for each, reason in self.asked.values() if each is level)

    @property
    def turns_away(self) -> str:
        """Why no new connection is taken; empty while they are."""
        return f"the broker takes no new connections: {self.reason}" if self.level is Level.EMERGENCY else ""

    def ask(self, source: str, level: Level, reason: str = "") -> None:
        """What `source` asks for from now on; `NORMAL` takes back what it had asked for."""
        before = self.level, self.reason
        self.asked.pop(source, None)
        if level is not Level.NORMAL:
            self.asked[source] = (level, reason)
        if (self.level, self.reason) != before:
            self._changed(self.level, self.reason)


def carry_out(node: Node, level: Level, reason: str) -> None:
    """Have the core refuse what the level says, and tell the clients."""
    begun = level is not Level.NORMAL
    why = (reason or level.word) if begun else "it does everything again"
    node.submit(inputs.SetReadOnly(why if level >= Level.READ_ONLY else ""))
    node.submit(inputs.SetThrottle(why if level is Level.THROTTLED else ""))
    node.notice(f"the broker's level is {level.word}: {why}", stays=begun)


def memory_level(used_bytes: int, limits: PressureLimits, before: Level) -> Level:
    """What so much memory in use asks for, given what was asked for before; `limits.memory_bytes` is known here."""
    percent = used_bytes * 100 // max(1, limits.memory_bytes)
    for level, limit in ((Level.EMERGENCY, limits.emergency_percent), (Level.THROTTLED, limits.throttle_percent)):
        if percent >= limit - (limits.slack_percent if before >= level else 0):
            return level
    return Level.NORMAL


class Pressure:
    """Memory and the loop, looked at every `LOOK_MS`."""

    def __init__(self, levels: Levels, limits: PressureLimits) -> None:
        self._levels = levels
        self._limits = limits
        self._memory = Level.NORMAL
        self._late = 0
        self._is_late = False

    def look(self, used_bytes: int, late_ms: float) -> None:
        """So much memory is in use, and the loop came so late to this look."""
        before, self._memory = self._memory, memory_level(used_bytes, self._limits, self._memory)
        if self._memory is not before:
            percent = used_bytes * 100 // max(1, self._limits.memory_bytes)
            reason = f"{percent}% of the memory it may have is in use: give it more, or have fewer clients"
            self._levels.ask("memory", self._memory, reason)
        self._look_at_loop(late_ms)

    def _look_at_loop(self, late_ms: float) -> None:
        limit = self._limits.late_ms // 2 if self._is_late else self._limits.late_ms
        is_late = late_ms >= limit
        self._late = self._late + 1 if is_late != self._is_late else 0
        if self._late >= LATE_LOOKS:
            self._late, self._is_late = 0, is_late
            reason = f"the event loop is more than {self._limits.late_ms} ms late: the machine is overloaded"
            self._levels.ask("loop", Level.THROTTLED if is_late else Level.NORMAL, reason)
