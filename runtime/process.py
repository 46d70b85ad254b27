"""What the system says of this process: its memory and what it may have.

Promises  cheap enough to ask every second.
Never     changes anything.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def resident_bytes() -> int:
    """The memory that this process has now; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def memory_bytes() -> int:
    """The memory that there is for this process: its container's, or the machine's."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for each in _CGROUPS:
        with suppress(OSError, ValueError):
            found = min(found, int(Path(each).read_text()))
    return found
