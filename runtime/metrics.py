"""What the broker counts about itself, in Prometheus' text format.

Promises  counting costs a few additions per step; labels are topics, groups and members, whose numbers are bounded.
Never     influences a decision.
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from dovetail.core.codes import Priority, SettleAction
from dovetail.core.effects import AnyEffect, Assign, Deliver, Refused, Reply
from dovetail.core.flow import arrived_ms
from dovetail.core.ids import Now, ordered
from dovetail.core.inputs import AnyInput, SessionClosed, Settle
from dovetail.core.intervals import total
from dovetail.core.names import is_hidden
from dovetail.core.records import AnyRecord, AttemptFailed, BatchAppended, DeadLettered, Expired, Rebalanced, Settled
from dovetail.core.state import State

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

LANES = tuple([each.name.lower() for each in Priority if each])
MEMBERS_MAX = 1_000
GROUPS_MAX = 1_000
LOGS_MAX = 10_000
"""Members, groups and logs with figures of their own; of each kind the rest are one, called `(others)`."""
OTHER_MEMBERS = '{group="(others)",member="(others)"}'
OTHER_GROUPS = '{group="(others)"}'
OTHER_LOGS = '{topic="(others)",partition="(others)"}'
BATCHES_MAX = 64
"""Of each log the newest batches whose arrival is remembered, to know how long their first delivery took."""
LEASES_MAX = 10_000
"""Deliveries whose beginning is remembered, to know how long they took."""


class Histogram:
    """Counts of durations by upper bound."""

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self.count = 0
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.count += 1
        self.sum += seconds
        self._counts[bisect_left(SECONDS, seconds)] += 1

    def lines(self, name: str) -> Iterator[str]:
        """The histogram as Prometheus reads it: each bucket holds the ones below it too."""
        for bound, count in zip(SECONDS, accumulate(self._counts), strict=False):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f'{name}_bucket{{le="+Inf"}} {self.count}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {self.count}"


class Work:
    """How one session does: how long it takes, and how often it fails."""

    __slots__ = ("count", "delivered", "errors", "sum_ms")

    def __init__(self) -> None:
        self.delivered = 0
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


class Pauses:
    """Listens to the garbage collector: what it takes, nobody is served."""

    def __init__(self) -> None:
        self.seconds = Histogram()
        self._began = 0.0
        gc.callbacks.append(self._heard)

    def _heard(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.seconds.add(time.perf_counter() - self._began)

    def close(self) -> None:
        """Listen no more."""
        if self._heard in gc.callbacks:
            gc.callbacks.remove(self._heard)


class Metrics:
    """Listens to every step of a node, whose `state` it may look at, and to its disk."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
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
        self.delivery_times = Histogram()
        self.assign_times = Histogram()
        self.moved: Counter[int] = Counter()
        self.pauses = Pauses()
        self._arrived: dict[int, deque[tuple[int, int]]] = {}
        self._shares: dict[int, dict[int, str]] = {}
        self._planned: dict[int, tuple[int, int]] = {}
        """Group to the generation and time of its newest plan."""
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
                    self._note_arrival(now, record)
                case Settled():
                    self.settled[record.group] += record.last - record.first + 1
                case AttemptFailed():
                    self.failed[record.group] += record.last - record.first + 1
                case DeadLettered():
                    self.dead[record.group] += 1
                case Rebalanced():
                    self.rebalances[record.group] += 1
                    self._note_plan(now, record)
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
                count = total(effect.ranges)
                self.delivered[effect.log] += count
                self._work(effect.session).delivered += count
                if effect.attempt <= 1:
                    self._note_delivery(now, effect)
                if effect.lease:
                    self._granted_ms[effect.lease] = now.mono_ms
                    if len(self._granted_ms) > LEASES_MAX:
                        del self._granted_ms[next(iter(self._granted_ms))]
            elif isinstance(effect, Reply) and isinstance(effect.answer, Refused):
                self.refused[effect.answer.status] += 1
            elif isinstance(effect, Assign):
                self._note_assignment(now, effect)

    def _work(self, session: int) -> Work:
        work = self.work.get(session)
        if work is None:
            work = self.work[session] = Work()
        return work

    def _note_arrival(self, now: Now, record: BatchAppended) -> None:
        marks = self._arrived.get(record.log)
        if marks is None:
            marks = self._arrived[record.log] = deque(maxlen=BATCHES_MAX)
        marks.append((record.base, now.mono_ms))

    def _note_delivery(self, now: Now, effect: Deliver) -> None:
        """Count how long the first of what is delivered had been there, if that is remembered."""
        marks = self._arrived.get(effect.log)
        offset = effect.ranges[0][0]
        if marks and marks[0][0] <= offset:
            place = bisect_right(marks, (offset, now.mono_ms)) - 1
            self.delivery_times.add((now.mono_ms - marks[place][1]) / 1000)

    def _note_plan(self, now: Now, plan: Rebalanced) -> None:
        """Count the partitions that get another owner."""
        shares = {slot: member for member, slots in plan.shares for slot in slots}
        before = self._shares.get(plan.group, {})
        self.moved[plan.group] += sum(1 for slot, member in shares.items() if before.get(slot, member) != member)
        self._shares[plan.group] = shares
        self._planned[plan.group] = (plan.generation, now.mono_ms)

    def _note_assignment(self, now: Now, given: Assign) -> None:
        group = self._state().durable.groups_by_name.get(given.group)
        generation, planned_ms = self._planned.get(group or 0, (0, 0))
        if generation == given.generation:
            self.assign_times.add((now.mono_ms - planned_ms) / 1000)

    def _observe_settle(self, now: Now, settle: Settle) -> None:
        work = self._work(settle.session)
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

    def lines(self, state: State, connections: int, gauges: Mapping[str, float] | None = None) -> Iterator[str]:
        """Everything, as Prometheus reads it, line by line; `gauges` are the shell's own."""
        yield from self._broker_lines(state, connections)
        yield from _shell_lines(gauges or {})
        yield from self._topic_lines(state)
        yield from self._group_lines(state)
        yield from self._member_lines(state)

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
            ("dovetail_delivery_seconds", "Time from a message's arrival to its first delivery.", self.delivery_times),
            ("dovetail_assign_seconds", "Time from a group's plan to a member's assignment.", self.assign_times),
            ("dovetail_log_job_seconds", "Time of a job of the log lane.", self.jobs),
            ("dovetail_gc_pause_seconds", "Time of a run of the garbage collector.", self.pauses.seconds),
        ):
            yield f"# HELP {name} {text}"
            yield f"# TYPE {name} histogram"
            yield from histogram.lines(name)

    def _topic_lines(self, state: State) -> Iterator[str]:
        """Of each log what it keeps and what came and went; of those beyond `LOGS_MAX` the sum."""
        labels: dict[int, str] = {}
        for number, each in ordered(state.durable.logs):
            topic = state.durable.topics[each.topic]
            if is_hidden(topic.name):
                continue
            lane = f',lane="{LANES[each.lane]}"' if topic.lanes else ""
            known = len(labels) < LOGS_MAX
            labels[number] = f'{{topic="{topic.name}",partition="{each.partition}"{lane}}}' if known else OTHER_LOGS
        logs = state.durable.logs
        depth = ((label, logs[number].end - logs[number].start) for number, label in labels.items())
        yield from _metric("dovetail_log_messages", "gauge", "Messages that a partition keeps.", _summed(depth))
        for name, text, counter in (
            ("dovetail_published_total", "Messages published.", self.published),
            ("dovetail_published_bytes_total", "Bytes of batches published.", self.published_bytes),
            ("dovetail_delivered_total", "Messages delivered, redeliveries included.", self.delivered),
        ):
            values = _summed((labels[number], count) for number, count in sorted(counter.items()) if number in labels)
            yield from _metric(name, "counter", text, values)
        flows = [
            (f'{{topic="{state.durable.topics[number].name}"}}', flow.level)
            for number, flow in ordered(state.live.flows)
            if number in state.durable.topics
        ][:LOGS_MAX]
        text = "How a topic's consumers keep up: 0 well, 1 warning, 2 publishers are slowed, 3 refused."
        yield from _metric("dovetail_flow_level", "gauge", text, flows)

    def _member_lines(self, state: State) -> Iterator[str]:
        """Of each member what it was delivered, settled and failed; of those beyond `MEMBERS_MAX` the sum."""
        rows: dict[str, list[float]] = {}
        for number, roster in ordered(state.live.rosters):
            group = _escaped(state.durable.groups[number].name)
            for session, member in ordered(roster):
                label = f'{{group="{group}",member="{_escaped(member)}"}}'
                if len(rows) >= MEMBERS_MAX and label not in rows:
                    label = OTHER_MEMBERS
                work = self.work.get(session) or Work()
                held = sum(
                    state.live.subscriptions[each].in_flight
                    for each in state.live.sessions[session].subscriptions
                    if state.live.subscriptions[each].owner == number
                )
                row = rows.setdefault(label, [0, 0, 0, 0, 0])
                for place, value in enumerate((work.delivered, work.count, work.errors, work.sum_ms / 1000, held)):
                    row[place] += value
        for place, (name, kind, text) in enumerate(_MEMBER_METRICS):
            yield from _metric(name, kind, text, [(label, row[place]) for label, row in rows.items()])

    def _group_lines(self, state: State) -> Iterator[str]:
        """Of each group; of those beyond `GROUPS_MAX` the sum, or the oldest."""
        names = {
            number: f'{{group="{_escaped(group.name)}"}}' if place < GROUPS_MAX else OTHER_GROUPS
            for place, (number, group) in enumerate(ordered(state.durable.groups))
        }
        lag = self.lag(state)
        lags = _summed((label, lag[number]) for number, label in names.items())
        yield from _metric("dovetail_group_lag", "gauge", "Messages a group has not settled.", lags)
        ages = self.lag_seconds(state)
        late: dict[str, float] = {}
        for number, label in names.items():
            late[label] = max(late.get(label, 0.0), ages.get(number, 0.0))
        text = "Age of the oldest one it has not settled."
        yield from _metric("dovetail_group_lag_seconds", "gauge", text, list(late.items()))
        members = _summed((label, len(state.live.rosters.get(number) or ())) for number, label in names.items())
        yield from _metric("dovetail_group_members", "gauge", "Members of a group.", members)
        held = _summed(
            (label, sum(state.live.subscriptions[each].in_flight for each in state.live.teams.get(number, ())))
            for number, label in names.items()
        )
        yield from _metric("dovetail_group_in_flight", "gauge", "Messages that a group's members hold.", held)
        for name, text, counter in (
            ("dovetail_settled_total", "Messages acknowledged.", self.settled),
            ("dovetail_failed_attempts_total", "Attempts that failed, counted per message.", self.failed),
            ("dovetail_dead_letters_total", "Messages moved to the dead letters.", self.dead),
            ("dovetail_expired_total", "Messages that expired before delivery.", self.expired),
            ("dovetail_rebalances_total", "Plans made for a partitioned group.", self.rebalances),
            ("dovetail_partitions_moved_total", "Partitions that a plan gave to another member.", self.moved),
        ):
            values = _summed((names[number], count) for number, count in sorted(counter.items()) if number in names)
            yield from _metric(name, "counter", text, values)


_MEMBER_METRICS = (
    ("dovetail_member_delivered_total", "counter", "Messages delivered to a member's connection."),
    ("dovetail_member_settled_total", "counter", "Deliveries that a member's connection settled."),
    ("dovetail_member_failed_total", "counter", "Of these, those that were no success."),
    ("dovetail_member_busy_seconds_total", "counter", "Time from deliveries to their settles, summed."),
    ("dovetail_member_in_flight", "gauge", "Messages that a member holds."),
)


def _summed(values: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Values that have the same labels, added up."""
    found: dict[str, int] = {}
    for label, value in values:
        found[label] = found.get(label, 0) + value
    return list(found.items())


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
    "process_cpu_seconds_total": "Processor time of this process.",
    "process_resident_bytes": "The memory that this process has.",
    "process_memory_limit_bytes": "The memory that it may have.",
    "checkpoint_age_seconds": "Since the last checkpoint was begun.",
    "http_connections": "HTTP connections that are open.",
    "level": "What the broker does: 0 everything, 1 throttled, 2 read-only, 3 maintenance, 4 emergency.",
    "process_open_files": "Descriptors in use.",
    "gc_collections_total": "Runs of the garbage collector over the oldest objects.",
}


def _shell_lines(gauges: Mapping[str, float]) -> Iterator[str]:
    for name, value in gauges.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield from _metric(f"dovetail_{name}", kind, _GAUGES[name], [("", round(value, 6))])


def _metric(name: str, kind: str, text: str, values: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        yield f"{name}{labels} {value}"
