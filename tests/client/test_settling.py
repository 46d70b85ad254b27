"""Settles of a tick become few items, and nothing is lost or mixed up on the way."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.codes import SettleAction, Wait
from dovetail.core.wire import Settle, SettleItem, SettleOutcome
from dovetail.runtime.client.settling import ITEMS_MAX, Gatherer, runs

ACK, NACK, EXTEND = SettleAction.ACK, SettleAction.NACK, SettleAction.EXTEND


def gathered_acks(*places: tuple[int, int]) -> list[Settle]:
    gatherer: Gatherer[str] = Gatherer()
    for lease, offset in places:
        gatherer.ack(lease, offset)
    return [gathered.settle for gathered in gatherer.take()]


def test_acks_of_a_whole_lease_leave_as_one_item() -> None:
    assert gathered_acks(*[(7, offset) for offset in range(100)]) == [Settle((SettleItem(7, ACK, 0, 99),))]


def test_acks_in_any_order_are_one_range() -> None:
    assert gathered_acks((7, 3), (7, 1), (7, 2)) == [Settle((SettleItem(7, ACK, 1, 3),))]


def test_a_gap_splits_a_range() -> None:
    assert gathered_acks((7, 1), (7, 2), (7, 5)) == [Settle((SettleItem(7, ACK, 1, 2), SettleItem(7, ACK, 5, 5)))]


def test_leases_are_never_joined() -> None:
    assert gathered_acks((7, 1), (8, 2)) == [Settle((SettleItem(7, ACK, 1, 1), SettleItem(8, ACK, 2, 2)))]


def test_what_is_settled_differently_is_never_joined() -> None:
    gatherer: Gatherer[str] = Gatherer()
    items = [
        SettleItem(7, NACK, 1, 1, 1, 0, "a"),
        SettleItem(7, NACK, 2, 2, 1, 0, "b"),
        SettleItem(7, NACK, 3, 3, 2, 0, "b"),
        SettleItem(7, NACK, 4, 4, 2, 9, "b"),
        SettleItem(7, EXTEND, 5, 5, 0, 9, ""),
    ]
    for item in items:
        gatherer.add(item)
    assert [gathered.settle for gathered in gatherer.take()] == [Settle(tuple(items))]


def test_two_extends_of_one_message_do_not_reach_its_neighbours() -> None:
    gatherer: Gatherer[str] = Gatherer()
    for offset in (1, 1, 3):
        gatherer.add(SettleItem(7, EXTEND, offset, offset, 0, 500))
    (gathered,) = gatherer.take()
    assert [(item.first, item.last) for item in gathered.settle.items] == [(1, 1), (3, 3)]


def test_the_answer_to_a_range_reaches_everyone_who_waits_for_a_part_of_it() -> None:
    gatherer: Gatherer[str] = Gatherer()
    gatherer.ack(7, 1)
    gatherer.add(SettleItem(7, NACK, 4, 4), waiter="four")
    gatherer.add(SettleItem(7, NACK, 5, 5), waiter="five")
    gatherer.add(SettleItem(7, NACK, 9, 9), waiter="nine")
    (gathered,) = gatherer.take()
    outcomes = [SettleOutcome(0), SettleOutcome(0, 1), SettleOutcome(2)]
    assert dict(gathered.outcomes(outcomes)) == {"four": outcomes[1], "five": outcomes[1], "nine": outcomes[2]}


def test_those_who_wait_for_the_disk_do_not_hold_up_the_others() -> None:
    gatherer: Gatherer[str] = Gatherer()
    gatherer.add(SettleItem(7, ACK, 1, 1), Wait.DURABLE, "patient")
    gatherer.ack(7, 2)
    assert [gathered.settle for gathered in gatherer.take()] == [
        Settle((SettleItem(7, ACK, 2, 2),), Wait.APPLIED),
        Settle((SettleItem(7, ACK, 1, 1),), Wait.DURABLE),
    ]


def test_many_items_are_spread_over_several_frames() -> None:
    settles = gathered_acks(*[(7, 2 * place) for place in range(ITEMS_MAX + 1)])
    assert [len(settle.items) for settle in settles] == [ITEMS_MAX, 1]


def test_taking_leaves_nothing_behind() -> None:
    gatherer: Gatherer[str] = Gatherer()
    gatherer.ack(7, 1)
    assert gatherer
    gatherer.take()
    assert not gatherer
    assert gatherer.take() == []


@given(st.lists(st.integers(0, 60), min_size=1))
def test_runs_hold_exactly_the_offsets_and_never_touch(offsets: list[int]) -> None:
    found = runs(offsets)
    held = Counter(offset for first, last in found for offset in range(first, last + 1))
    assert held == dict.fromkeys(offsets, 1)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
