"""The wheel of timers against a plain dictionary of instants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.core import timers
from dovetail.core.timers import BUCKET_MS, Timer, Wheel

TIMER = st.tuples(st.integers(1, 4), st.integers(0, 3), st.just(0))
SPANS_MS = st.integers(0, 200) | st.integers(0, 3 * timers.ROW_BUCKETS * BUCKET_MS)
EVENTS = st.lists(st.tuples(st.sampled_from(("put", "drop", "due")), SPANS_MS, TIMER), max_size=40)


@given(EVENTS)
def test_a_timer_fires_once_neither_early_nor_more_than_a_bucket_late(
    events: list[tuple[str, int, Timer]],
) -> None:
    wheel, now_ms = Wheel(), 0
    known: set[tuple[int, Timer]] = set()
    for kind, ms, timer in events:
        if kind == "put":
            wheel = timers.put(wheel, now_ms + ms, timer)
            known = {(at, each) for at, each in known if (bucket(at), each) != (bucket(now_ms + ms), timer)}
            known.add((now_ms + ms, timer))
        elif kind == "drop":
            wheel = timers.drop(wheel, now_ms + ms, timer)
            known = {(at, each) for at, each in known if (bucket(at), each) != (bucket(now_ms + ms), timer)}
        else:
            now_ms += ms
            wheel, fired = timers.due(wheel, now_ms)
            due = {(at, each) for at, each in known if bucket(at) * BUCKET_MS <= now_ms}
            assert sorted(fired) == sorted(each for _, each in due)
            assert all(at <= now_ms for at, _ in due)
            known -= due
            assert all(at > now_ms - BUCKET_MS for at, _ in known)
        if known:
            assert wheel.wake_ms is not None
            assert wheel.wake_ms <= min(bucket(at) for at, _ in known) * BUCKET_MS


def bucket(at_ms: int) -> int:
    return -(-at_ms // BUCKET_MS)


def test_earlier_buckets_fire_first_and_within_one_the_order_is_that_of_the_timers() -> None:
    wheel = Wheel()
    for at_ms, timer in ((25, (1, 9, 0)), (11, (2, 1, 0)), (12, (1, 2, 0))):
        wheel = timers.put(wheel, at_ms, timer)
    assert timers.due(wheel, 30)[1] == [(1, 2, 0), (2, 1, 0), (1, 9, 0)]


def test_without_timers_nothing_wakes() -> None:
    wheel = timers.drop(timers.put(Wheel(), 5, (1, 1, 0)), 5, (1, 1, 0))
    assert wheel.wake_ms is None
    assert timers.due(wheel, 1_000) == (wheel, [])


def test_dropping_a_timer_that_fired_is_fine() -> None:
    wheel, _ = timers.due(timers.put(Wheel(), 5, (1, 1, 0)), 10)
    assert timers.drop(wheel, 5, (1, 1, 0)) == wheel
