"""The oracle is not blind: what a broker must not do is a disagreement, and what it may choose is not."""

from __future__ import annotations

import pytest

from dovetail.spec.model import Config, Disagreement, Model, Rules, backoff_window, is_pattern, matches, noticed

WALL_MS = 1_000_000
LEASE_MS = Config().lease_ms


def two_members(count: int = 2, credit: int = 10) -> Model:
    """Sessions 1 and 2 are members of `g`; `count` messages of `t` are about to be shown."""
    model = Model(Rules())
    model.begin(0, WALL_MS)
    for session in (1, 2):
        model.session_opened(session, "c")
        model.subscribe(session, session, "t", "g", credit, auto_ack=False, number=session)
        model.replied(session, session, ("subscribed", session))
    model.publish("t", -1, count, 0, needs_ack=True, asks=[(1, 9, 0, count)], confirm=True, placed=0)
    model.end(1, set())
    model.begin(0, WALL_MS)
    model.stored(1)
    model.replied(1, 9, ("appended", "t", 0, 0, count))
    return model


def deliver(model: Model, session: int, offsets: list[int], lease: int, attempt: int = 1) -> None:
    model.delivered(session, session, "t", 0, lease, attempt, model.wall_ms + LEASE_MS, offsets)


def test_a_right_step_is_accepted() -> None:
    model = two_members()
    deliver(model, 1, [0], 1)
    deliver(model, 2, [1], 2)
    model.end(1, set())


def test_either_member_may_be_the_first() -> None:
    model = two_members()
    deliver(model, 2, [0], 1)
    deliver(model, 1, [1], 2)
    model.end(1, set())


def test_a_confirmation_before_it_is_stored_is_noticed() -> None:
    model = Model(Rules())
    model.begin(0, WALL_MS)
    model.publish("t", -1, 1, 0, needs_ack=True, asks=[(1, 9, 0, 1)], confirm=True, placed=0)
    model.replied(1, 9, ("appended", "t", 0, 0, 1))
    with pytest.raises(Disagreement, match="when it is true"):
        model.end(1, set())


def test_a_missing_confirmation_is_noticed() -> None:
    model = two_members()
    model.told.clear()
    deliver(model, 1, [0], 1)
    deliver(model, 2, [1], 2)
    with pytest.raises(Disagreement, match="when it is true"):
        model.end(1, set())


def test_one_message_for_two_members_is_noticed() -> None:
    model = two_members()
    deliver(model, 1, [0], 1)
    with pytest.raises(Disagreement, match="nobody else holds it"):
        deliver(model, 2, [0], 2)


def test_a_message_out_of_order_is_noticed() -> None:
    with pytest.raises(Disagreement, match="in order"):
        deliver(two_members(), 1, [1], 1)


def test_more_than_the_credit_is_noticed() -> None:
    with pytest.raises(Disagreement, match="credit"):
        deliver(two_members(count=3, credit=2), 1, [0, 1, 2], 1)


def test_a_wrong_attempt_is_noticed() -> None:
    with pytest.raises(Disagreement, match="counted"):
        deliver(two_members(), 1, [0], 1, attempt=2)


def test_a_lease_number_used_twice_is_noticed() -> None:
    model = two_members()
    deliver(model, 1, [0], 1)
    with pytest.raises(Disagreement, match="never used again"):
        deliver(model, 2, [1], 1)


def test_a_message_left_lying_is_noticed() -> None:
    model = two_members()
    deliver(model, 1, [0], 1)
    with pytest.raises(Disagreement, match="what can be sent is sent"):
        model.end(1, set())


def test_what_waits_for_the_disk_is_not_left_lying() -> None:
    two_members().end(1, {("g", "t", 0)})


def test_unfair_shares_are_noticed() -> None:
    model = two_members(count=6)
    deliver(model, 1, [0, 1, 2, 3, 4], 1)
    deliver(model, 2, [5], 2)
    with pytest.raises(Disagreement, match="fair"):
        model.end(1, set())


def test_a_retry_at_the_member_that_failed_is_noticed() -> None:
    model = two_members(count=1)
    deliver(model, 1, [0], 1)
    model.end(1, set())
    model.begin(0, WALL_MS)
    model.settle(1, 20, [(1, 2, 0, 0, 0, 0)], wait=False)
    with pytest.raises(Disagreement, match="somebody else"):
        deliver(model, 1, [0], 2, attempt=2)


def test_durable_changes_without_a_frame_are_noticed() -> None:
    model = two_members(count=1)
    deliver(model, 1, [0], 1)
    model.end(1, set())
    model.begin(0, WALL_MS)
    model.settle(1, 20, [(1, 1, 0, 0, 0, 0)], wait=False)
    model.replied(1, 20, ("settled", ((0, 0),)))
    with pytest.raises(Disagreement, match="without a frame"):
        model.end(1, set())


def test_a_crash_can_not_lose_what_was_stored() -> None:
    model = two_members(count=1)
    with pytest.raises(Disagreement, match="survives"):
        model.crash(0)


def test_after_a_crash_what_was_leased_waits_again() -> None:
    model = two_members(count=1)
    deliver(model, 1, [0], 1)
    model.end(1, set())
    model.crash(1)
    assert model.entries["g", "t", 0][0].state == "waiting"
    assert not model.sessions


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("sensors.*.temperature", "sensors.kitchen.temperature", True),
        ("sensors.*.temperature", "sensors.temperature", False),
        ("test/#", "test", True),
        ("test/#", "test.a.b", True),
        ("#", "a.dlq", False),
        ("*.dlq", "a.dlq", True),
        ("a.dlq", "a.dlq", True),
        ("a.*", "a.dlq", False),
    ],
)
def test_matching_by_example(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


def test_a_hash_is_only_at_the_end() -> None:
    assert is_pattern("a.#")
    assert not is_pattern("#.a")


def test_backoff_by_example() -> None:
    assert [backoff_window(attempt)[0] for attempt in range(1, 10)] == [
        0,
        1_000,
        2_000,
        4_000,
        8_000,
        16_000,
        32_000,
        60_000,
        60_000,
    ]


def test_deadlines_are_noticed_at_the_next_multiple_of_the_grain() -> None:
    assert [noticed(at_ms) for at_ms in (0, 1, 10, 11)] == [0, 10, 10, 20]
