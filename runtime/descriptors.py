"""How many connections there are file descriptors for.

Promises  connections never take the descriptors that the broker's files need: without one for its journal it must end.
Never     lowers a limit.
"""

from __future__ import annotations

import resource
from contextlib import suppress

from msgspec import Struct

from dovetail.runtime.storage.real_disk import OPEN_FILES_MAX

OTHERS = 128
"""Descriptors for listeners, pipes, directories, and connections that are just accepted or just being turned away."""
ACCEPTS_AT_ONCE = 16
"""Connections that the loop accepts in one round: a few rounds pass before one is counted."""
TURNED_AWAY_MAX = 32
BACKLOG = 4096
"""Connections that the system holds until they are accepted."""


FILES = OPEN_FILES_MAX + OTHERS
"""Without so many there is no broker."""


class TooFew(Exception):
    """There are not even descriptors for the broker's files; the text says what to do."""


class Room(Struct, frozen=True):
    """How many connections there may be: those of the wire, and those of HTTP."""

    wire: int
    http: int

    @property
    def needs(self) -> int:
        """The limit that leaves room for all of them."""
        return FILES + self.wire + self.http


def make_room(wanted: Room) -> Room:
    """How much of what is wanted this process may have open; raises its limit as far as it may, or `TooFew`."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < wanted.needs:
        raised = wanted.needs if most == resource.RLIM_INFINITY else min(wanted.needs, most)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, most))
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if limit == resource.RLIM_INFINITY else fitting(wanted, limit)


def fitting(wanted: Room, limit: int) -> Room:
    """What of it a limit leaves room for: both kinds shrink alike, and each that is wanted keeps one at least."""
    if limit >= wanted.needs:
        return wanted
    room = limit - FILES
    if room < 2:
        raise TooFew(
            f"this process may open {limit} files, and a broker needs {FILES + 2} at the least: "
            f"raise `ulimit -n` (LimitNOFILE= in systemd), best to {wanted.needs}"
        )
    http = max(1, room * wanted.http // (wanted.wire + wanted.http)) if wanted.http else 0
    return Room(min(wanted.wire, room - http), http)
