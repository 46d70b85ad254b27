"""Short variants of the long measurements; the figures of the long ones come from their commands."""

from __future__ import annotations

import os
from pathlib import Path

from tests.soak import delayed, overload

HOURS = float(os.environ.get("DOVETAIL_SOAK_HOURS", "0.1"))
DELAYED = int(os.environ.get("DOVETAIL_SOAK_DELAYED", "300"))


def test_five_times_the_load_ends_in_slower_confirms_and_clear_refusals_and_nowhere_else() -> None:
    report = overload.soak(HOURS)
    assert report.lost == report.twice == 0
    assert report.delivered == report.confirmed
    assert report.lag_max <= overload.LAG_MAX
    assert report.held_max <= len(overload.OFFERED)
    assert report.accepted["high"] > report.accepted["normal"] > report.accepted["background"]
    assert report.refused["background"] > report.refused["normal"] > report.refused["high"]
    # What the broker holds does not grow, and its shelf is filled to its bound and no further.
    assert max(report.broker_kb) <= 2 * report.broker_kb[0]
    assert max(report.shelf_kb) <= overload.SHELF_BYTES >> 10
    assert report.calm_confirms > 0
    assert report.calm_delayed == report.calm_late == 0
    # It recovers level by level, and none begins again.
    assert report.levels_on_recovery[-1] == 0
    assert list(report.levels_on_recovery) == sorted(set(report.levels_on_recovery), reverse=True)


def test_delayed_messages_cost_little_survive_a_restart_and_fire_once(tmp_path: Path) -> None:
    report = delayed.soak(str(tmp_path / "data"), DELAYED, days=1)
    assert report.fired == DELAYED
    assert report.twice == report.missing == report.early == report.left_topics == 0
    assert report.late_ms_max <= delayed.HOP_MS
    assert report.added_mb <= 50
