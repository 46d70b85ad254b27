"""What can go wrong with a campaign or a report that is not a bug: one line that says what to do."""

from __future__ import annotations


class ReportError(Exception):
    """Shown to people as it is."""


def cause(error: Exception) -> str:
    """The line of what Spark raised that says most: the first if it is one of Spark's own messages, else the last that
    names an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if lines[0].startswith("["):
        return lines[0]
    named = [line.removeprefix("Caused by: ") for line in lines if "Error" in line or "Exception" in line]
    return named[-1] if named else lines[0]


def is_full(text: str) -> bool:
    """Whether somebody had no room to write."""
    return "No space left on device" in text or "Disk quota exceeded" in text
