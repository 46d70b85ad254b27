"""What the broker counts about itself, in Prometheus' text format.

Promises  counting costs a few additions per step; labels are topics and groups, whose number is bounded.
Never     influences a decision.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dovetail.core.codes import SettleAction
from dovetail.core.effects import AnyEffect, Deliver, Refused, Reply
from dovetail.core.flow import arrived_ms
from dovetail.core.ids import Now, ordered
from dovetail.core.inputs import AnyInput, SessionClosed, Settle
from dovetail.core.intervals import total
from dovetail.core.records import AnyRecord, AttemptFailed, BatchAppended, DeadLettered, Expired, Rebalanced, Settled
from dovetail.core.state import State

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

LEASES_MAX = 10_000
"""Deliveries whose beginning is remembered, to know how long they took."""


class Histogram:
    """Counts of durations by upper bound."""

    def __init__(self) -> None:
        self.counts = [0] * len(SECONDS)
        self.count = 0
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.count += 1
        self.sum += seconds
        for place, bound in enumerate(SECONDS):
            if seconds <= bound:
                self.counts[place] += 1

    def lines(self, name: str) -> Iterator[str]:
        """The histogram as Prometheus reads it."""
        for bound, count in zip(SECONDS, self.counts, strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f'{name}_bucket{{le="+Inf"}} {self.count}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {self.count}"


class Work:
    """How one session does: how long it takes, and how often it fails."""

    __slots__ = ("count", "errors", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self.sum_ms = 0

    @property
    def mean_ms(self) -> float:
        """From a delivery to its settle."""
        return round(self.sum_ms / self.count, 3) if self.count else 0.0

    @property
    def error_rate(self) -> float:
        """The part of what was settled that was a failure."""
        return round(self.errors / self.count, 4) if self.count else 0.0


class Metrics:
    """Listens to every step of a node and to its disk."""

    def __init__(self) -> None:
        self.steps = 0
        self.published: Counter[int] = Counter()
        self.published_bytes: Counter[int] = Counter()
        self.delivered: Counter[int] = Counter()
        self.settled: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.dead: Counter[int] = Counter()
        self.expired: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self.rebalances: Counter[int] = Counter()
        self.commits = Histogram()
        self.jobs = Histogram()
        self.settle_times = Histogram()
        self.work: dict[int, Work] = {}
        self._granted_ms: dict[int, int] = {}

    def observe(
        self,
        now: Now,
        arrived: tuple[AnyInput, ...],
        records: tuple[AnyRecord, ...],
        effects: tuple[AnyEffect, ...],
    ) -> None:
        """Count what one step did."""
        self.steps += 1
        for record in records:
            match record:
                case BatchAppended():
                    self.published[record.log] += record.count
                    self.published_bytes[record.log] += record.size_bytes
                case Settled():
                    self.settled[record.group] += record.last - record.first + 1
                case AttemptFailed():
                    self.failed[record.group] += record.last - record.first + 1
                case DeadLettered():
                    self.dead[record.group] += 1
                case Rebalanced():
                    self.rebalances[record.group] += 1
                case Expired():
                    self.expired[record.group] += record.last - record.first + 1
                case _:
                    pass
        for each in arrived:
            if isinstance(each, Settle):
                self._observe_settle(now, each)
            elif isinstance(each, SessionClosed):
                self.work.pop(each.session, None)
        for effect in effects:
            if isinstance(effect, Deliver):
                self.delivered[effect.log] += total(effect.ranges)
                if effect.lease:
                    self._granted_ms[effect.lease] = now.mono_ms
                    if len(self._granted_ms) > LEASES_MAX:
                        del self._granted_ms[next(iter(self._granted_ms))]
            elif isinstance(effect, Reply) and isinstance(effect.answer, Refused):
                self.refused[effect.answer.status] += 1

    def _observe_settle(self, now: Now, settle: Settle) -> None:
        work = self.work.get(settle.session)
        if work is None:
            work = self.work[settle.session] = Work()
        for item in settle.items:
            granted_ms = self._granted_ms.get(item.lease)
            if granted_ms is not None and item.action != SettleAction.EXTEND:
                work.count += 1
                work.errors += item.action != SettleAction.ACK
                work.sum_ms += now.mono_ms - granted_ms
                self.settle_times.add((now.mono_ms - granted_ms) / 1000)

    def lag(self, state: State) -> Counter[int]:
        """Messages that each group has not settled."""
        lag: Counter[int] = Counter()
        for (number, log), cursor in state.durable.cursors.items():
            lag[number] += state.durable.logs[log].end - cursor.floor - total(cursor.islands)
        return lag

    def lag_seconds(self, state: State) -> dict[int, float]:
        """For each group that is behind, about how old the oldest message is that it has not settled."""
        found: dict[int, float] = {}
        now_ms = time.time_ns() // 1_000_000
        for (number, log), cursor in state.durable.cursors.items():
            if cursor.floor < state.durable.logs[log].end:
                age_ms = now_ms - arrived_ms(state.live.marks.get(log, ()), cursor.floor, now_ms)
                found[number] = max(found.get(number, 0.0), age_ms / 1000)
        return found

    def disk(self, is_commit: bool, seconds: float) -> None:
        """Count a commit, or a job of the log lane."""
        (self.commits if is_commit else self.jobs).add(seconds)

    def render(self, state: State, connections: int, gauges: Mapping[str, float] | None = None) -> str:
        """Everything, as Prometheus reads it; `gauges` are the shell's own."""
        parts = (
            self._broker_lines(state, connections),
            _shell_lines(gauges or {}),
            self._topic_lines(state),
            self._group_lines(state),
        )
        return "".join(f"{line}\n" for part in parts for line in part)

    def _broker_lines(self, state: State, connections: int) -> Iterator[str]:
        yield from _metric("dovetail_connections", "gauge", "Open connections.", [("", connections)])
        yield from _metric("dovetail_topics", "gauge", "Topics.", [("", len(state.durable.topics))])
        yield from _metric("dovetail_groups", "gauge", "Consumer groups.", [("", len(state.durable.groups))])
        yield from _metric("dovetail_leases", "gauge", "Deliveries under way.", [("", len(state.live.leases))])
        yield from _metric("dovetail_steps_total", "counter", "Steps of the core.", [("", self.steps)])
        yield from _metric("dovetail_journal_lsn", "gauge", "The last decided frame.", [("", state.durable.lsn)])
        yield from _metric("dovetail_stored_lsn", "gauge", "The last stored frame.", [("", state.live.stored_lsn)])
        refused = [(f'{{status="{status}"}}', count) for status, count in sorted(self.refused.items())]
        yield from _metric("dovetail_refused_total", "counter", "Refused requests by status.", refused)
        for name, text, histogram in (
            ("dovetail_commit_seconds", "Time of a commit: write and sync.", self.commits),
            ("dovetail_settle_seconds", "Time from a delivery to its settle.", self.settle_times),
            ("dovetail_log_job_seconds", "Time of a job of the log lane.", self.jobs),
        ):
            yield f"# HELP {name} {text}"
            yield f"# TYPE {name} histogram"
            yield from histogram.lines(name)

    def _topic_lines(self, state: State) -> Iterator[str]:
        labels: dict[int, str] = {}
        for number, each in ordered(state.durable.logs):
            labels[number] = f'{{topic="{state.durable.topics[each.topic].name}",partition="{each.partition}"}}'
        depth = [(labels[number], each.end - each.start) for number, each in ordered(state.durable.logs)]
        yield from _metric("dovetail_log_messages", "gauge", "Messages that a partition keeps.", depth)
        for name, text, counter in (
            ("dovetail_published_total", "Messages published.", self.published),
            ("dovetail_published_bytes_total", "Bytes of batches published.", self.published_bytes),
            ("dovetail_delivered_total", "Messages delivered, redeliveries included.", self.delivered),
        ):
            values = [(labels[number], count) for number, count in sorted(counter.items()) if number in labels]
            yield from _metric(name, "counter", text, values)

    def _group_lines(self, state: State) -> Iterator[str]:
        names = {number: f'{{group="{_escaped(group.name)}"}}' for number, group in ordered(state.durable.groups)}
        lag = self.lag(state)
        lags = [(label, lag[number]) for number, label in sorted(names.items())]
        yield from _metric("dovetail_group_lag", "gauge", "Messages a group has not settled.", lags)
        ages = self.lag_seconds(state)
        late = [(label, ages.get(number, 0.0)) for number, label in sorted(names.items())]
        yield from _metric("dovetail_group_lag_seconds", "gauge", "Age of the oldest one it has not settled.", late)
        members = [(label, len(state.live.rosters.get(number) or ())) for number, label in sorted(names.items())]
        yield from _metric("dovetail_group_members", "gauge", "Members of a group.", members)
        held = [
            (label, sum(state.live.subscriptions[each].in_flight for each in state.live.teams.get(number, ())))
            for number, label in sorted(names.items())
        ]
        yield from _metric("dovetail_group_in_flight", "gauge", "Messages that a group's members hold.", held)
        for name, text, counter in (
            ("dovetail_settled_total", "Messages acknowledged.", self.settled),
            ("dovetail_failed_attempts_total", "Attempts that failed, counted per message.", self.failed),
            ("dovetail_dead_letters_total", "Messages moved to the dead letters.", self.dead),
            ("dovetail_expired_total", "Messages that expired before delivery.", self.expired),
            ("dovetail_rebalances_total", "Plans made for a partitioned group.", self.rebalances),
        ):
            values = [(names[number], count) for number, count in sorted(counter.items()) if number in names]
            yield from _metric(name, "counter", text, values)


def _escaped(text: str) -> str:
    """A label's value as Prometheus reads it."""
    return text.replace("\\", r"\\").replace('"', r"\"")


_GAUGES = {
    "loop_lag_seconds": "How late the event loop was when it was looked at last.",
    "uptime_seconds": "Since the broker listens.",
    "disk_used_ratio": "The part of the disk that is in use.",
    "journal_bytes": "Journal since the last checkpoint.",
    "recovery_seconds": "How long the last start took to recover the data directory.",
    "quarantined_files": "Files with damage that a repair went on without, kept in quarantine/.",
    "read_only": "1 while nothing may be published.",
    "process_cpu_seconds": "Processor time of this process.",
    "process_resident_bytes": "The most memory this process has had.",
    "process_open_files": "Descriptors in use.",
    "gc_collections": "Runs of the garbage collector over the oldest objects.",
}


def _shell_lines(gauges: Mapping[str, float]) -> Iterator[str]:
    for name, value in gauges.items():
        yield from _metric(f"dovetail_{name}", "gauge", _GAUGES[name], [("", round(value, 6))])


def _metric(name: str, kind: str, text: str, values: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        yield f"{name}{labels} {value}"
