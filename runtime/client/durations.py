"""Lengths of time as people write them: "500ms", "30s", "1h30m", 2.5 (seconds), a timedelta.

Promises  the same text means the same everywhere in the client; a wrong one is refused with the accepted units.
Never     accepts less than nothing.
"""

import math
import re
from datetime import timedelta
from typing import Final, TypeAlias

Duration: TypeAlias = str | int | float | timedelta
"""A text like "500ms" or "7d", a number of seconds, or a timedelta."""

LONGEST_MS: Final = 1 << 63
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def milliseconds(duration: Duration) -> int:
    """`duration` in whole milliseconds, rounded up so that something stays more than nothing."""
    if isinstance(duration, str):
        exact = _of_text(duration)
    elif isinstance(duration, timedelta):
        exact = duration / timedelta(milliseconds=1)
    else:
        exact = duration * 1000
    if not 0 <= exact < LONGEST_MS:
        raise ValueError(f"a duration is 0 or more and less than 292 million years, this is {duration!r}")
    # Two and a half microseconds of slack, so that 0.1 s is 100 ms although 0.1 is no binary number.
    return math.ceil(exact - 2.5e-3)


def seconds(duration: Duration) -> float:
    """`duration` in seconds, as event loops count."""
    return milliseconds(duration) / 1000


def _of_text(text: str) -> float:
    written = text.strip().replace(" ", "")
    if not _WHOLE.fullmatch(written):
        units = ", ".join(_UNITS_MS)
        raise ValueError(f"{text!r} is not a duration: write numbers with a unit ({units}), such as 500ms or 1h30m")
    return sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(written))
