"""Rates over 1, 5 and 15 minutes, the last minutes as they went, and the last day by the minute.

Promises  memory is a few numbers for each topic and group and 1,560 buckets in all; a rate counts from the start.
Never     looks at messages: it reads the counters.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Mapping

from dovetail.core.capacity import Lags, lags_of
from dovetail.core.state import State, Topic
from dovetail.runtime.http.capacity import capacity
from dovetail.runtime.http.models import Bucket, CapacityView, Rates
from dovetail.runtime.metrics import Metrics

EVERY_S = 5.0
MINUTES_MAX = 1_440
RECENT_MAX = 120
"""The last ten minutes."""
WINDOWS_S = (60.0, 300.0, 900.0)
_DECAYS = tuple(math.exp(-EVERY_S / window) for window in WINDOWS_S)


class Meter:
    """Moving averages of how fast each key's counter grows."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._rates: dict[int, tuple[float, ...]] = {}
        self._ticks = 0

    def tick(self, counters: Mapping[int, int]) -> None:
        """`EVERY_S` seconds have passed and the counters stand so."""
        self._ticks += 1
        for key, count in counters.items():
            speed = (count - self._before.get(key, 0)) / EVERY_S
            rates = self._rates.get(key, (0.0, 0.0, 0.0))
            if speed or any(rates):
                self._rates[key] = tuple(
                    [rate * decay + speed * (1 - decay) for rate, decay in zip(rates, _DECAYS, strict=True)]
                )
            self._before[key] = count

    def forget(self, keys: Mapping[int, object]) -> None:
        """Keep only these keys."""
        for key in [key for key in self._before if key not in keys]:
            del self._before[key]
            self._rates.pop(key, None)

    def speed(self, key: int) -> float:
        """How fast a key's counter has grown in about the last minute; not made up for what was not seen."""
        return self._rates.get(key, (0.0,))[0]

    def rates(self, key: int = 0) -> Rates:
        """A key's rates; a young meter has only seen part of its window and makes up for it."""
        seen = [1 - decay**self._ticks for decay in _DECAYS] if self._ticks else [1.0, 1.0, 1.0]
        found = self._rates.get(key, (0.0, 0.0, 0.0))
        return Rates(*[round(rate / part, 3) for rate, part in zip(found, seen, strict=True)])


class TopicRates:
    """The rates of one topic."""

    def __init__(self, history: History, topic: int) -> None:
        self.published = history.published.rates(topic)
        self.published_bytes = history.published_bytes.rates(topic)
        self.delivered = history.delivered.rates(topic)


class GroupRates:
    """The rates of one group."""

    def __init__(self, history: History, group: int) -> None:
        self.settled = history.settled.rates(group)
        self.failed = history.failed.rates(group)
        self.dead = history.dead.rates(group)


TOTAL = 0
"""The key of the sum over all topics or groups: ids begin at 1."""


class History:
    """Fed every `EVERY_S` seconds."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.published = Meter()
        self.published_bytes = Meter()
        self.delivered = Meter()
        self.settled = Meter()
        self.failed = Meter()
        self.dead = Meter()
        self.refused = Meter()
        self.lags = Meter()
        self.lag = Lags({}, 0)
        self.recent: deque[Bucket] = deque(maxlen=RECENT_MAX)
        """Of `EVERY_S` each."""
        self.minutes: deque[Bucket] = deque(maxlen=MINUTES_MAX)
        self._ticked = self._counts()
        self._ticked_at = -1
        self._minute = self._counts()
        self._minute_at = -1

    def tick(self, state: State, wall_ms: int, connections: int) -> None:
        """Another `EVERY_S` seconds have passed."""
        metrics = self._metrics
        for meter, counter in (
            (self.published, metrics.published),
            (self.published_bytes, metrics.published_bytes),
            (self.delivered, metrics.delivered),
        ):
            meter.tick(_by_topic(state, counter))
            meter.forget({TOTAL: None, **dict.fromkeys(state.durable.topics)})
        for meter, counter in (
            (self.settled, metrics.settled),
            (self.failed, metrics.failed),
            (self.dead, metrics.dead),
        ):
            meter.tick({TOTAL: counter.total(), **counter})
            meter.forget({TOTAL: None, **dict.fromkeys(state.durable.groups)})
        self.refused.tick({TOTAL: metrics.refused.total()})
        self.lag = lags_of(state)
        self.lags.tick(self.lag.by_topic)
        self.lags.forget(self.lag.by_topic)
        now = self._counts()
        held = sum(state.live.subscriptions[each].in_flight for team in state.live.teams.values() for each in team)
        if self._ticked_at >= 0:
            self.recent.append(self._bucket(self._ticked_at, self._ticked, now, held, connections))
        self._ticked, self._ticked_at = now, wall_ms
        minute_at = wall_ms // 60_000 * 60_000
        if minute_at != self._minute_at:
            if self._minute_at >= 0:
                self.minutes.append(self._bucket(self._minute_at, self._minute, now, held, connections))
            self._minute, self._minute_at = now, minute_at

    def _bucket(self, at_ms: int, before: tuple[int, ...], now: tuple[int, ...], held: int, connections: int) -> Bucket:
        """What happened between two looks."""
        published, delivered, settled, failed, dead, refused = (
            after - earlier for after, earlier in zip(now, before, strict=True)
        )
        return Bucket(at_ms, published, delivered, settled, failed, dead, refused, self.lag.total, held, connections)

    def _counts(self) -> tuple[int, ...]:
        metrics = self._metrics
        counters = (
            metrics.published,
            metrics.delivered,
            metrics.settled,
            metrics.failed,
            metrics.dead,
            metrics.refused,
        )
        return tuple([counter.total() for counter in counters])

    def capacity(self, state: State, topic: Topic) -> CapacityView:
        """How a topic's consumers keep up, as it was found last."""
        wall_ms = time.time_ns() // 1_000_000
        return capacity(state, topic, self.lag.by_topic.get(topic.id, 0), self.lags.rates(topic.id), wall_ms)

    def activity(self, topic: int) -> float:
        """How much goes in and out of a topic, to compare it with others."""
        return self.published.speed(topic) + self.delivered.speed(topic)

    def topic(self, topic: int) -> TopicRates:
        return TopicRates(self, topic)

    def group(self, group: int) -> GroupRates:
        return GroupRates(self, group)


def _by_topic(state: State, by_log: Counter[int]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for log, count in by_log.items():
        found[TOTAL] += count
        known = state.durable.logs.get(log)
        if known is not None:
            found[known.topic] += count
    return dict(found)
