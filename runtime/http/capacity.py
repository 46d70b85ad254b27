"""A topic's capacity as it is shown: its level, which way its lag goes, and when it will be gone.

Promises  a trend is how the lag of the group furthest behind has changed over about a minute.
Never     decides: the level is the core's (`core/capacity.py`).
"""

from __future__ import annotations

import math

from msgspec import UNSET

from dovetail.core.capacity import level_of
from dovetail.core.state import State, Topic
from dovetail.runtime.http.models import CapacityView, Rates

STEADY_PER_S = 0.1
"""A lag that changes by less than this a second stands still."""


def capacity(state: State, topic: Topic, lag: int, change: Rates, wall_ms: int) -> CapacityView:
    """How a topic's consumers keep up, given their lag and how fast it changes."""
    level = level_of(state, topic, lag, wall_ms)
    speed = change.one
    trend = "steady" if abs(speed) < STEADY_PER_S else "growing" if speed > 0 else "shrinking"
    shrinks = lag > 0 and trend == "shrinking"
    return CapacityView(level.name.lower(), lag, trend, speed, math.ceil(lag / -speed) if shrinks else UNSET)
