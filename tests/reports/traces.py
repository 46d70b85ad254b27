"""Traces by hand: a small story that is right, to be doctored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dovetail.core.trace import Row
from dovetail.sim.trace import ParquetTrace

LEASE_MS = 1_000


class Story:
    """A run in which one producer and two members of a group do what `lines` say."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.now_us = 0
        terms = {"lease_ms": LEASE_MS, "honest_clock": True, "damage": False, "chaos_ms": 1_000}
        self.add("world", "setup", detail=json.dumps(terms))
        for number, member in enumerate(("a", "b"), 1):
            self.add(member, "connect", connection=number)
            self.add(member, "subscribe", topic="t", group="g", member=member, connection=number)

    def add(self, actor: str, kind: str, *, after_us: int = 1_000, **columns: Any) -> int:
        self.now_us += after_us
        self.rows.append(Row(len(self.rows), self.now_us, actor, kind, **columns))
        return len(self.rows) - 1

    def publish(self, first: int, count: int, **columns: Any) -> int:
        values = tuple(range(first, first + count))
        said = self.add("p", "publish", topic="t", first=0, last=count - 1, values=values, connection=9, **columns)
        where = {"topic": "t", "partition": 0, "first": first, "last": first + count - 1}
        return self.add("p", "confirm", **where, values=values, connection=9, latency_us=1_000, asked=said, **columns)

    def deliver(self, member: str, first: int, last: int, lease: int, **columns: Any) -> int:
        asked = {"values": tuple(range(first, last + 1)), **columns}
        return self._about(member, "deliver", first, last, lease, attempt=1, deadline=True, **asked)

    def ack(self, member: str, first: int, last: int, lease: int, **columns: Any) -> int:
        asked = {"asked": len(self.rows) - 1, "latency_us": 100, **columns}
        return self._about(member, "ack", first, last, lease, **asked)

    def _about(
        self, member: str, kind: str, first: int, last: int, lease: int, deadline: bool = False, **columns: Any
    ) -> int:
        if deadline:
            columns["deadline_us"] = self.now_us + 1_000 + LEASE_MS * 1_000
        where = {"topic": "t", "partition": 0, "first": first, "last": last, "group": "g", "member": member}
        return self.add(member, kind, **where, lease=lease, connection={"a": 1, "b": 2}[member], **columns)

    def end(self, *missing: int, count: int = 10) -> None:
        """The last power loss, after which the log is read: all but what is missing."""
        self.add("world", "heal")
        self.add("broker", "down", generation=1)
        self.add("broker", "up", generation=2, latency_us=500)
        for at in range(count):
            if at not in missing:
                where = {"topic": "t", "partition": 0, "first": at, "last": at}
                self.add("auditor", "read", **where, values=(at,), connection=20)
        self.add("world", "done")


def write(path: Path, stories: dict[int, list[Row]]) -> None:
    """Each story as a seed of its own."""
    for seed, rows in stories.items():
        with ParquetTrace(str(path / f"{seed}.parquet"), "swarm", seed) as file:
            for row in rows:
                file.keep(row)
