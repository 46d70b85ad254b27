"""Where a run's chance comes from: one seed, split by name.

Promises  a stream depends on the seed and its name alone, so that another actor shifts nobody else's; `draw` depends on
          its arguments alone, so that what happens to one message does not depend on what was decided before.
Never     reads the machine's randomness, clock or hash order.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from zlib import crc32


def stream(seed: int, name: str) -> Random:
    """The random numbers of one actor: text seeds are hashed with SHA-512, whatever PYTHONHASHSEED is."""
    return Random(f"{seed}/{name}")


def draw(seed: int, *about: object) -> int:
    """A number from 0 to 999 that is fixed for a run and what it is about."""
    return (crc32(repr((seed, about)).encode()) >> 8) % 1000


def series(seed: int, *about: object) -> Callable[..., int]:
    """`draw` for one thing after the other: `series(seed, "poison", topic)(7)` is `draw(seed, "poison", topic, 7)`."""
    begun = crc32(repr((seed, about)).removesuffix("))").encode())
    return lambda *last: (crc32(f", {', '.join(map(repr, last))}))".encode(), begun) >> 8) % 1000
