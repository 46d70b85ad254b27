"""How long to wait before trying again.

Promises  waits grow and are spread, so that a thousand clients of a broker that restarts do not come back as one.
Never     waits more than `longest`, or less than half of what is due.
"""

from msgspec import Struct


class Backoff(Struct, frozen=True, kw_only=True):
    """`first` seconds, then twice as long each time up to `longest`; of each wait the second half is random."""

    first: float = 0.05
    longest: float = 5.0

    def wait(self, attempt: int, chance: float) -> float:
        """Seconds before try number `attempt` (from 0), with `chance` from 0 to 1 deciding the spread."""
        due = min(self.longest, self.first * 2.0 ** min(attempt, 32))
        return due * (0.5 + chance / 2)
