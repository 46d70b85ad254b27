"""This process as the system sees it: its memory, what it may have, and how it is tuned to be a broker.

Promises  what is asked for is cheap enough to be asked every second.
Never     changes anything but by `tune`.
"""

from __future__ import annotations

import gc
import os
import sys
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


def tune() -> None:
    """Settings of a process that is a broker and nothing else; to be called when it has started."""
    # What was made so far lives as long as the process does; what comes later is mostly not tracked at all.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    # A lane that has finished a sync should not wait five milliseconds for its turn to say so.
    sys.setswitchinterval(0.0005)
