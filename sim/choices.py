"""What a swarm is like, where people choose: `swarm:scale=4,chaos=20s,faults=Crash+Partition`.

Promises  a name says all of it, in one way only, so that whatever carries a scenario's name carries the choice: a
          trace's rows, a campaign's manifest, the command that runs a seed again. `swarm` alone is the default.
Never     runs anything.
"""

from __future__ import annotations

from msgspec import Struct

from dovetail.sim.plan import Plan
from dovetail.sim.swarm import CHAOS_MS, KINDS, swarm

SWARM = "swarm"
SCALE_MAX = 1_000
CHAOS_MS_MAX = 3_600_000
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
KEYS = {
    "scale": "how many times the usual number of messages (4)",
    "chaos": "how long faults strike (20s)",
    "faults": f"only these, with + between, or none: {', '.join(KINDS)}",
}


class BadSwarm(ValueError):
    """No swarm is called so."""


class Choice(Struct, frozen=True):
    """What was chosen; `faults` is None for a few of all kinds."""

    scale: int = 1
    chaos_ms: int = CHAOS_MS
    faults: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The one name of it."""
        words = [f"scale={self.scale}"] if self.scale != 1 else []
        words += [f"chaos={self.chaos_ms}ms"] if self.chaos_ms != CHAOS_MS else []
        words += [f"faults={'+'.join(self.faults) or 'none'}"] if self.faults is not None else []
        return f"{SWARM}:{','.join(words)}" if words else SWARM

    def plan(self, seed: int) -> Plan:
        """The plan of a seed."""
        return swarm(seed, chaos_ms=self.chaos_ms, scale=self.scale, faults=self.faults, name=self.name)


def is_swarm(name: str) -> bool:
    """Whether a scenario's name is meant to be a swarm's."""
    return name.partition(":")[0] == SWARM


def read_choice(name: str) -> Choice:
    """What a name says; raises `BadSwarm`."""
    chosen = Choice()
    _, colon, text = name.partition(":")
    for word in text.split(",") if colon else ():
        key, _, value = word.strip().partition("=")
        try:
            match key:
                case "scale":
                    chosen = Choice(_whole(value), chosen.chaos_ms, chosen.faults)
                case "chaos":
                    chosen = Choice(chosen.scale, _duration(value), chosen.faults)
                case "faults":
                    chosen = Choice(chosen.scale, chosen.chaos_ms, _faults(value))
                case _:
                    raise ValueError("this can't be chosen")
        except ValueError as error:
            can = "; ".join(f"{each}: {what}" for each, what in KEYS.items())
            raise BadSwarm(f"{word.strip()!r} of a swarm: {error}. What can be chosen is {can}") from None
    return chosen


def _whole(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= SCALE_MAX:
        raise ValueError(f"write a whole number from 1 to {SCALE_MAX}")
    return int(text)


def _duration(text: str) -> int:
    number = text.rstrip("hms")
    unit = _UNITS_MS.get(text[len(number) :], 0)
    found = int(number) * unit if number.isdecimal() else 0
    if not 1_000 <= found <= CHAOS_MS_MAX:
        raise ValueError("write a time from 1s to 1h")
    return found


def _faults(text: str) -> tuple[str, ...]:
    if text == "none":
        return ()
    by_name = {kind.lower(): kind for kind in KINDS}
    unknown = [kind for kind in text.split("+") if kind.lower() not in by_name]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no kind of fault")
    return tuple(sorted({by_name[kind.lower()] for kind in text.split("+")}))
