"""What a group settles out of order is bounded: fresh messages wait until the gaps close."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.core import inputs
from dovetail.core.codes import SettleAction
from dovetail.core.dispatch import ISLANDS_MAX
from tests.core.running import Consumer, Running

MANY = 2 * ISLANDS_MAX + 100


def settle(reader: Consumer, action: SettleAction, offsets: Iterable[int]) -> None:
    """Say the same about single messages, each in a request of its own range but all in one request."""
    lease_of = {
        offset: each.lease for each in reader.held for first, last in each.ranges for offset in range(first, last + 1)
    }
    items = tuple(inputs.SettleItem(lease_of[offset], action, offset, offset, 0, 0, "") for offset in offsets)
    reader.say(lambda me, number: inputs.Settle(me, number, items))


def a_reader_with_as_many_islands_as_there_may_be() -> tuple[Running, Consumer]:
    """Every second message is settled; a publish after that waits, though there is credit."""
    broker = Running()
    broker.publish("t", *["x"] * MANY)
    reader = broker.consumer()
    reader.subscribe("t", "g", credit=60_000)
    settle(reader, SettleAction.ACK, range(1, 2 * ISLANDS_MAX + 1, 2))
    ((_, cursor),) = broker.node.state.durable.cursors.items()
    assert len(cursor.islands) == ISLANDS_MAX
    broker.publish("t", "fresh")
    assert "fresh" not in reader.texts
    return broker, reader


def test_fresh_messages_wait_while_a_cursor_has_its_most_islands_and_go_out_with_the_first_gap_that_closes() -> None:
    _, reader = a_reader_with_as_many_islands_as_there_may_be()
    settle(reader, SettleAction.ACK, [0])
    assert reader.texts[-1] == "fresh"


def test_a_gap_that_closes_by_a_dead_letter_lets_them_out_too() -> None:
    _, reader = a_reader_with_as_many_islands_as_there_may_be()
    settle(reader, SettleAction.REJECT, [0])
    assert reader.texts[-1] == "fresh"


def test_what_lies_in_the_gaps_is_tried_again_meanwhile() -> None:
    _, reader = a_reader_with_as_many_islands_as_there_may_be()
    before = len(reader.texts)
    settle(reader, SettleAction.NACK, [0])
    assert reader.texts[before:] == ["x"]
