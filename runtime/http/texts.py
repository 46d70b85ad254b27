"""Times and durations as people write them, for queries and bodies.

Promises  the same words everywhere; a wrong one is refused with those that are accepted.
Never     guesses a unit.
"""

from __future__ import annotations

from datetime import UTC, datetime

from dovetail.runtime.client.durations import milliseconds
from dovetail.runtime.http.errors import Trouble

DURATION_MS_MAX = 1 << 53


def as_ms(duration: str | int | float, what: str) -> int:
    """A duration in milliseconds."""
    try:
        found = milliseconds(duration)
    except (ValueError, OverflowError) as error:
        raise Trouble(422, "invalid", f"{what}: {error}") from None
    if found > DURATION_MS_MAX:
        raise Trouble(422, "invalid", f"{what}: {duration!r} is longer than anything lasts")
    return found


def as_time_ms(text: str, what: str, now_ms: int) -> int:
    """A moment: milliseconds since 1970, ISO 8601, or how long ago."""
    if text.isascii() and text.isdecimal() and len(text) < 17:
        return int(text)
    try:
        return max(0, int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000))
    except (ValueError, OverflowError):
        pass
    try:
        return max(0, now_ms - milliseconds(text))
    except (ValueError, OverflowError):
        forms = "milliseconds since 1970, a time such as 2026-01-31T12:00, or how long ago, such as 5m"
        raise Trouble(422, "invalid", f"{what}: {text!r} is not {forms}") from None


def duration_text(ms: int) -> str:
    """Milliseconds as people write them: the largest units that are exact."""
    if ms == 0:
        return "0s"
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
