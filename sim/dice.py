"""Where a run's chance comes from: one seed, split by name.

Promises  a stream depends on the seed and its name alone, so that another actor shifts nobody else's; `draw` depends on
          its arguments alone, so that what happens to one message does not depend on what was decided before.
Never     reads the machine's randomness, clock or hash order.
"""

from __future__ import annotations

from random import Random
from zlib import crc32


def stream(seed: int, name: str) -> Random:
    """The random numbers of one actor: text seeds are hashed with SHA-512, whatever PYTHONHASHSEED is."""
    return Random(f"{seed}/{name}")


def draw(seed: int, *about: object) -> int:
    """A number from 0 to 999 that is fixed for a run and what it is about."""
    return (crc32(repr((seed, about)).encode()) >> 8) % 1000
