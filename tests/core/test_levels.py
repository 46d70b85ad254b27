"""How much the broker does: when a level begins and ends, who may end it, and that everybody is told."""

from __future__ import annotations

import pytest

from dovetail.core.levels import BY_WORD, LATE_LOOKS, Level, Levels, Pressure, PressureLimits, memory_level
from dovetail.runtime.config import Config
from dovetail.runtime.http.models import LevelWord

LIMITS = PressureLimits(memory_bytes=1000)


class Told:
    def __init__(self) -> None:
        self.changes: list[tuple[Level, str]] = []
        self.levels = Levels(lambda level, reason: self.changes.append((level, reason)))
        self.pressure = Pressure(self.levels, LIMITS)


def test_the_strictest_that_is_asked_for_counts_and_each_takes_back_only_its_own() -> None:
    told = Told()
    told.levels.ask("disk", Level.READ_ONLY, "the disk is full")
    told.levels.ask("operator", Level.THROTTLED, "a quiet night")
    told.levels.ask("operator", Level.EMERGENCY, "trouble")
    assert (told.levels.level, told.levels.reason) == (Level.EMERGENCY, "trouble")
    told.levels.ask("operator", Level.NORMAL)
    assert (told.levels.level, told.levels.reason) == (Level.READ_ONLY, "the disk is full")
    told.levels.ask("disk", Level.NORMAL)
    assert told.changes == [
        (Level.READ_ONLY, "the disk is full"),
        (Level.EMERGENCY, "trouble"),
        (Level.READ_ONLY, "the disk is full"),
        (Level.NORMAL, ""),
    ]


@pytest.mark.parametrize(
    ("before", "percent", "after"),
    [
        (Level.NORMAL, 84, Level.NORMAL),
        (Level.NORMAL, 85, Level.THROTTLED),
        (Level.NORMAL, 99, Level.EMERGENCY),
        (Level.THROTTLED, 80, Level.THROTTLED),
        (Level.THROTTLED, 79, Level.NORMAL),
        (Level.THROTTLED, 94, Level.THROTTLED),
        (Level.THROTTLED, 95, Level.EMERGENCY),
        (Level.EMERGENCY, 90, Level.EMERGENCY),
        (Level.EMERGENCY, 89, Level.THROTTLED),
        (Level.EMERGENCY, 10, Level.NORMAL),
    ],
)
def test_memory_asks_for_a_level_at_its_limit_and_lets_go_below_it(before: Level, percent: int, after: Level) -> None:
    assert memory_level(percent * 10, LIMITS, before) is after


def test_one_late_look_is_nothing_and_many_in_a_row_throttle_until_as_many_were_in_time() -> None:
    told = Told()
    late, half, fine = LIMITS.late_ms, LIMITS.late_ms // 2, LIMITS.late_ms // 2 - 1
    for ms in [*[late] * (LATE_LOOKS - 1), fine] * 3:
        told.pressure.look(0, ms)
    assert told.changes == []
    for _ in range(LATE_LOOKS):
        told.pressure.look(0, late)
    assert told.levels.level is Level.THROTTLED
    for ms in [*[fine] * (LATE_LOOKS - 1), half] * 3:
        told.pressure.look(0, ms)
    assert told.levels.level is Level.THROTTLED
    for _ in range(LATE_LOOKS):
        told.pressure.look(0, fine)
    assert told.levels.level is Level.NORMAL


def test_the_api_has_a_word_for_each_level() -> None:
    assert set(BY_WORD) == set(LevelWord.__args__)  # type: ignore[attr-defined]  # a Literal's words
    assert Config().pressure.throttle_percent < Config().pressure.emergency_percent
