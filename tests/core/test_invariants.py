"""`check_state` notices: each of these states is broken by hand in one place, and the right id is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from immutables import Map
from msgspec.structs import replace

from dovetail.core.cursor import Cursor
from dovetail.core.ids import Bug, ordered
from dovetail.core.invariants import check_state
from dovetail.core.names import Trie
from dovetail.core.state import Line, Queue, Retry, State, Tail, Waiting
from dovetail.core.timers import Wheel
from tests.core.broker import Broker

KEY = (1, 1)


def a_busy_state() -> tuple[State, int]:
    """A group with a lease, a settled island, a failed attempt, a later retry, and work that waits for credit."""
    broker = Broker()
    member = broker.consumer("t", "g", credit=4)
    broker.publish("t", 8)
    (lease,) = broker.state.live.leases
    broker.ack(member, lease, 2)
    broker.nack(member, lease, 1, delay_ms=5_000)
    return broker.state, broker.mono_ms


STATE, NOW_MS = a_busy_state()
LEASE_ID, LEASE = ordered(STATE.live.leases)[0]


def alive(**changes: object) -> State:
    return replace(STATE, live=replace(STATE.live, **changes))


def cursor(**changes: object) -> State:
    found = replace(STATE.durable.cursors[KEY], **changes)
    return replace(STATE, durable=replace(STATE.durable, cursors=STATE.durable.cursors.set(KEY, found)))


def progress(**changes: object) -> State:
    return alive(progress=STATE.live.progress.set(KEY, replace(STATE.live.progress[KEY], **changes)))


def lease(**changes: object) -> State:
    return alive(leases=STATE.live.leases.set(LEASE_ID, replace(LEASE, **changes)))


def subscription(**changes: object) -> State:
    return alive(subscriptions=STATE.live.subscriptions.set(1, replace(STATE.live.subscriptions[1], **changes)))


def test_a_state_that_the_core_made_breaks_nothing() -> None:
    check_state(STATE, NOW_MS)
    check_state(State())


BROKEN: tuple[tuple[str, Callable[[], State]], ...] = (
    ("I-ACCOUNT", lambda: progress(retries=())),
    ("I-ACCOUNT", lambda: cursor(floor=0, islands=())),
    ("I-ACCOUNT", lambda: progress(next=STATE.live.progress[KEY].next + 1)),
    ("I-LEASE", lambda: progress(retries=(*STATE.live.progress[KEY].retries, Retry(0, 0, 0, "", 0)))),
    ("I-LEASE", lambda: lease(ranges=())),
    ("I-LEASE", lambda: lease(subscription=9)),
    ("I-LEASE", lambda: lease(member="x")),
    ("I-LEASE", lambda: subscription(leases=Map())),
    ("I-CREDIT", lambda: subscription(in_flight=0)),
    ("I-STORED", lambda: alive(tails=STATE.live.tails.set(1, replace(STATE.live.tails[1], stored=9)))),
    ("I-STORED", lambda: alive(tails=STATE.live.tails.set(1, replace(STATE.live.tails[1], stored=0)))),
    ("I-DENSE", lambda: alive(tails=STATE.live.tails.set(1, replace(STATE.live.tails[1], batches=(_gap(),))))),
    ("I-IDS", lambda: alive(tails=STATE.live.tails.set(2, Tail(0)))),
    ("I-INTERVALS", lambda: cursor(islands=((0, 2),))),
    ("I-ATTEMPTS", lambda: cursor(attempts=((2, 2, 1),))),
    ("I-ATTEMPTS", lambda: cursor(attempts=((1, 1, 0),))),
    ("I-RETAIN", lambda: cursor(floor=9, islands=(), attempts=())),
    ("I-CURSOR", lambda: alive(progress=Map())),
    ("I-CURSOR", lambda: alive(ephemeral=STATE.live.ephemeral.set((-1, 1), Cursor(0)))),
    ("I-ROUTES", lambda: alive(routes=Map())),
    ("I-ROUTES", lambda: alive(teams=Map())),
    ("I-ROUTES", lambda: alive(readers=Map())),
    ("I-MATCH", lambda: alive(topic_trie=Trie())),
    ("I-MATCH", lambda: alive(group_trie=Trie())),
    ("I-MATCH", lambda: alive(subscription_trie=Trie())),
    ("I-MEMBER", lambda: alive(members_by_name=Map())),
    ("I-SESSION", lambda: alive(served_last=STATE.live.served_last.set(-77, ""))),
    ("I-SESSION", lambda: alive(queues=STATE.live.queues.set(-77, Queue()))),
    ("I-CONFIRM", lambda: alive(stored_lsn=STATE.durable.lsn + 1)),
    ("I-CONFIRM", lambda: alive(unsynced=Line(Map({999: Waiting((), ())}), STATE.live.unsynced.first))),
    ("I-TIMER", lambda: alive(timers=Wheel())),
    ("I-TIMER", lambda: lease(deadline_ms=LEASE.deadline_ms + 1_000)),
    ("I-QUEUE", lambda: alive(queues=Map())),
    ("I-IDLE", lambda: progress(waiting=False)),
    ("I-IDLE", lambda: subscription(credit_max=99)),
)


def _gap() -> object:
    return replace(STATE.live.tails[1].batches[-1], last=5)


@pytest.mark.parametrize(("invariant", "broken"), BROKEN, ids=[f"{each[0]}-{n}" for n, each in enumerate(BROKEN)])
def test_a_broken_state_is_noticed_and_named(invariant: str, broken: Callable[[], State]) -> None:
    with pytest.raises(Bug, match=f"^{invariant}:"):
        check_state(broken(), NOW_MS)


def test_without_the_time_nothing_is_said_about_work_left_undone() -> None:
    check_state(progress(waiting=False))
