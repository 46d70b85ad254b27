"""What can go wrong with a campaign or a report that is not a bug: one line that says what to do."""

from __future__ import annotations


class ReportError(Exception):
    """Shown to people as it is."""
