"""Lengths of time mean the same however they are written."""

from datetime import timedelta

import pytest

from dovetail.runtime.client.durations import Duration, milliseconds


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("0.5s", 500),
        ("0s", 0),
        (2, 2000),
        (0.1, 100),
        (0.3, 300),
        (0.0001, 1),
        (timedelta(minutes=1, milliseconds=5), 60_005),
    ],
)
def test_a_duration_in_milliseconds(duration: Duration, ms: int) -> None:
    assert milliseconds(duration) == ms


@pytest.mark.parametrize(
    "wrong",
    ["", "30", "s", "-5s", "5 years", "1s2", "1e3s", "٣s", -1, float("nan"), float("inf"), 2**63, "9" * 20 + "w"],
)
def test_what_is_no_duration_is_refused_with_the_value(wrong: Duration) -> None:
    with pytest.raises(ValueError, match="duration"):
        milliseconds(wrong)
