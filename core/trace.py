"""What a trace says: one row per event, of a simulated run and of a real broker alike (`spec/trace.md`).

Promises  columns only ever grow at the end, with a default that says nothing; whoever writes a trace writes these.
Never     knows how rows are kept: files are the shells' affair.
"""

from __future__ import annotations

from msgspec import Struct


class Row(Struct, frozen=True, array_like=True, gc=False):
    """One event. Times are microseconds since the run began; -1 and "" mean that the column says nothing here."""

    seq: int
    time_us: int
    actor: str
    kind: str
    topic: str = ""
    partition: int = -1
    first: int = -1
    last: int = -1
    group: str = ""
    member: str = ""
    generation: int = -1
    attempt: int = -1
    latency_us: int = -1
    fault: str = ""
    detail: str = ""
    connection: int = -1
    lease: int = -1
    deadline_us: int = -1
    asked: int = -1
    mode: str = ""
    values: tuple[int, ...] = ()
    lane: int = 0
