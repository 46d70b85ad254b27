"""Waits between tries grow, are spread and are bounded."""

from hypothesis import given
from hypothesis import strategies as st

from dovetail.runtime.client.backoff import Backoff


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(first=1, longest=5)
    assert [backoff.wait(attempt, 1.0) for attempt in range(5)] == [1, 2, 4, 5, 5]


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_a_wait_is_between_half_of_what_is_due_and_the_longest(attempt: int, chance: float) -> None:
    backoff = Backoff(first=0.05, longest=5)
    assert 0.025 <= backoff.wait(attempt, chance) <= 5
    assert backoff.wait(attempt, 0.0) == backoff.wait(attempt, 1.0) / 2
