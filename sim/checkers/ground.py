"""What all judges stand on: the verdict, the clock as an onlooker knows it, who is connected, what a crash leaves.

Promises  each judgement is counted under its invariant's id; one that fails ends the run with its story.
Never     holds what only one of them needs.
"""

from __future__ import annotations

from dovetail.core import wire
from dovetail.core.codes import Priority
from dovetail.core.kernels import LANES
from dovetail.sim import plan
from dovetail.sim.checkers.entries import Line, LogKey
from dovetail.sim.checkers.rows import Rows

WALL_MS = 1_700_000_000_000
"""What the broker's wall clock shows when a run begins."""
SLACK_US = 30_000
"""Timers fire within a bucket of 10 ms and one tick: what a deadline decides is known this much later at most."""
NEVER_US = 1 << 62
POISON_MEMBERS = 2
"""So many members that call a message poison are believed."""
UNCERTAIN_US = 400_000
"""How long a delivery may have waited for a slow disk, where no trusted clock says when it was decided."""


class Violated(Exception):
    """A promise was broken."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(invariant, text)
        self.invariant = invariant
        self.text = text

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


class Ground:
    """The plan, the trace, the time, the connections, and the broker's lives."""

    def __init__(self, setup: plan.Plan, rows: Rows) -> None:
        self.plan = setup
        self.rows = rows
        self.evaluated: dict[str, int] = {}
        """How often each promise was looked at: one that never was proves nothing."""
        self.lines: dict[int, Line] = {}
        self.now_us = 0
        """When the broker last sent something."""
        self.life = 1
        self.safe_us = 0
        """Everything that was seen before this instant survived a recovery."""
        self.fell_us = -1
        """When the broker died first since it was last up: nothing was synced in time after that."""
        self.durable_us = -1
        """Everything answered before this instant of the current life is durable."""
        self.durable_by_life: dict[int, int] = {}
        self.relaxed = {topic.name for topic in setup.topics if topic.sync != "always"}
        """Topics whose confirms do not wait for a sync."""
        slowing = (plan.SlowDisk, plan.FailDisk, plan.FillDisk, plan.PauseBroker)
        is_prompt = not any(isinstance(event, slowing) for event in setup.events)
        self.timed = {topic.name for topic in setup.topics if topic.sync == "interval" and is_prompt}
        """Topics of these that are synced at intervals, by a disk that is always in time."""
        self.interval_us = setup.broker.sync_interval_ms * 1000 + 4 * SLACK_US
        self.buries = {topic.name for topic in setup.topics if topic.bury}
        """Topics whose expired messages are dead letters."""
        self.honest = setup.has_honest_clock
        """Whether the broker's wall clock can be trusted."""
        self.lease_us = setup.broker.lease_ms * 1000
        self.lease_max_us = setup.broker.lease_max_ms * 1000
        self._laned = {topic.name for topic in setup.topics if topic.lanes}
        self.disk_was_slow = False
        """Leases may have run out whose messages were never sent: those come late, and not as a further attempt."""
        self._retries: dict[str, list[int]] = {}
        """Every limit on retries that a topic may have had, where it was changed."""

    def judge(self, invariant: str, holds: bool, text: str) -> None:
        """Count a judgement; `Violated` if the promise was not kept."""
        self.count(invariant)
        if not holds:
            raise Violated(invariant, text)

    def count(self, invariant: str, times: int = 1) -> None:
        """Count judgements of a promise that is looked at for every message: its story is told only when it breaks."""
        self.evaluated[invariant] = self.evaluated.get(invariant, 0) + times

    def first(self, topic: str, partition: int) -> LogKey:
        """The log that a request for a partition means: where there are lanes, the first of them."""
        return topic, partition, 1 if topic in self._laned else 0

    def read(self, request: wire.Fetch) -> LogKey:
        """The log that is read: that of the lane asked for, if there are any."""
        first = self.first(request.topic, request.partition)
        return (*first[:2], request.lane) if first[2] and request.lane else first

    def committed(self, request: wire.Commit) -> LogKey:
        """The log in which a group takes all before an offset for done."""
        first = self.first(request.topic, request.partition)
        return (*first[:2], request.lane) if first[2] and request.lane else first

    def moved(self, request: wire.Seek) -> list[LogKey]:
        """The logs that a seek moves, the one last that its answer tells of: where none is named, all lanes."""
        first = self.first(request.topic, request.partition)
        if not first[2] or request.lane:
            return [(*first[:2], request.lane or first[2])]
        return [(*first[:2], lane) for lane in range(1, LANES + 1)]

    def lane_of(self, topic: str, priority: int) -> int:
        """The lane that a message of this priority belongs into; 0 where the topic has none."""
        return (priority or Priority.NORMAL) if topic in self._laned else 0

    def said_durable(self, asked_us: int) -> None:
        """An answer said that all that came before its request is on the disk."""
        self.durable_us = max(self.durable_us, asked_us)

    def next_life(self) -> None:
        """The broker's process has ended."""
        self.durable_by_life[self.life] = self.durable_us
        self.life += 1
        self.durable_us = -1

    def configured(self, topic: str, max_retries: int) -> None:
        """A topic may have another limit on retries from now on."""
        self.rows.note("operator", "configure", topic=topic, detail=f"max_retries {max_retries}")
        self._retries.setdefault(topic, [self.plan.broker.max_retries]).append(max_retries)

    def attempts(self, topic: str) -> tuple[int, int]:
        """The fewest and the most attempts that a message of a topic may have had."""
        limits = self._retries.get(topic)
        if limits is None:
            return self.plan.broker.max_retries + 1, self.plan.broker.max_retries + 1
        return min(limits) + 1, max(limits) + 1
