"""Books kept by somebody who reads along at the broker's socket: what was promised, and whether it was kept.

`books` reads along and hands on, `entries` is what is written down, `ground` what all judges stand on, `rows` what the
trace is told; each of the others judges one thing.

Promises  every judgement rests on bytes that went over the wire and on who hung up when, in the order in which they
          passed the broker's end; the first broken promise raises `Violated` with the invariant's id and the story.
Never     looks into the broker: a mistake of the broker's own books can't fool these.
"""

from dovetail.sim.checkers.books import Books
from dovetail.sim.checkers.entries import LogKey
from dovetail.sim.checkers.ground import WALL_MS, Violated

__all__ = ["WALL_MS", "Books", "LogKey", "Violated"]
