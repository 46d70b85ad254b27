"""Whether a topic's consumers keep up: how far behind they are, and the level that flow control decides by.

Promises  what is shown is what publishers feel next.
Never     slows anybody: that is `flow`'s, and only where a topic has limits.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from dovetail.core import kernels
from dovetail.core.flow import Level, arrived_ms
from dovetail.core.ids import ordered
from dovetail.core.intervals import total
from dovetail.core.state import Flow, State, Topic


class Lags(Struct, frozen=True):
    """Messages that groups have not settled: of the group furthest behind in each topic, and of all in all."""

    by_topic: dict[int, int]
    total: int


def lags_of(state: State) -> Lags:
    """How far behind everybody is."""
    by_group: Counter[tuple[int, int]] = Counter()
    for (group, log), cursor in ordered(state.durable.cursors):
        known = state.durable.logs[log]
        by_group[known.topic, group] += known.end - cursor.floor - total(cursor.islands)
    found: dict[int, int] = {}
    for (topic, _), lag in by_group.items():
        found[topic] = max(lag, found.get(topic, 0))
    return Lags(found, by_group.total())


def level_of(state: State, topic: Topic, lag: int, wall_ms: int) -> Level:
    """How a topic's consumers keep up, given how far behind they are."""
    config = topic.config
    age_ms = _age_ms(state, topic, wall_ms) if config.lag_critical_ms and lag else 0
    load = max(kernels.percent(lag, config.lag_critical), kernels.percent(age_ms, config.lag_critical_ms))
    before = (state.live.flows.get(topic.id) or Flow()).level
    return Level(kernels.flow_level(before, load, kernels.percent(lag, config.lag_warning)))


def _age_ms(state: State, topic: Topic, wall_ms: int) -> int:
    """The age of the oldest message that a group has not settled."""
    age_ms = 0
    for log in [state.durable.logs[topic.first_log + place] for place in range(topic.log_count)]:
        for owner in state.live.readers.get(log.id, ()):
            floor = state.durable.cursors[owner, log.id].floor if owner > 0 else log.end
            if floor < log.end:
                age_ms = max(age_ms, wall_ms - arrived_ms(state.live.marks.get(log.id, ()), floor, wall_ms))
    return age_ms
