"""How many connections there are file descriptors for.

Promises  connections never take the descriptors that the broker's files need: without one for its journal it must end.
Never     lowers a limit.
"""

from __future__ import annotations

import resource
from contextlib import suppress

from dovetail.runtime.storage.real_disk import OPEN_FILES_MAX

OTHERS = 128
"""Descriptors for listeners, pipes, directories, and connections that are just accepted or just being turned away."""
ACCEPTS_AT_ONCE = 16
"""Connections that the loop accepts in one round: a few rounds pass before one is counted."""
TURNED_AWAY_MAX = 32
BACKLOG = 4096
"""Connections that the system holds until they are accepted."""


def connections_allowed(wanted: int, http: int = 0) -> int:
    """How many of the `wanted` connections this process may have open beside `http` others; raises its limit as far
    as it may."""
    wish = needed(wanted, http)
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < wish:
        raised = wish if most == resource.RLIM_INFINITY else min(wish, most)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, most))
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if limit == resource.RLIM_INFINITY else fitting(wanted, limit, http)


def fitting(wanted: int, limit: int, http: int = 0) -> int:
    """How many connections a limit leaves room for; one at least, to be told of the rest."""
    return max(1, min(wanted, limit - OPEN_FILES_MAX - OTHERS - http))


def needed(wanted: int, http: int) -> int:
    """The limit that leaves room for all of them."""
    return wanted + http + OPEN_FILES_MAX + OTHERS
