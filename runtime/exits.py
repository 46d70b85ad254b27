"""The exit codes of the `dovetail` command: what a script may rely on.

Promises  a code keeps its meaning.
Never     holds logic.
"""

from enum import IntEnum


class Exit(IntEnum):
    """0 fine, 1 it failed, 2 wrong usage; the rest say what kind of trouble a broker is in."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DAMAGED = 65
    """The data directory is damaged or of another version."""
    UNAVAILABLE = 69
    """No connection to a broker, or the address to listen on is taken."""
    BUG = 70
    """An invariant of ours is broken: the broker stopped without writing anything more."""
    DISK = 74
    """The disk failed: a sync did not succeed, or a file can't be written."""
    LOCKED = 75
    """Another broker has the data directory."""
