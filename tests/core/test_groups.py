"""Groups and their members: joining, leaving, coming back, and what a refusal leaves untouched."""

from __future__ import annotations

import pytest

from dovetail.core.codes import Status
from dovetail.core.effects import CloseSession, Done, Joined, LeaseEnded, Refused, Subscribed
from dovetail.core.ids import ordered
from dovetail.core.inputs import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Seen,
    SessionClosed,
    SetCredit,
    Subscribe,
    Unsubscribe,
)
from dovetail.core.state import Settings
from tests.core.broker import Broker


def join(broker: Broker, session: int, member: str, group: str = "g", strategy: str = "") -> object:
    return broker.ask(JoinGroup(session, broker.request(), group, member, strategy))


def generation(broker: Broker, group: str = "g") -> int:
    return broker.state.durable.groups[broker.state.durable.groups_by_name[group]].generation


def test_every_change_of_membership_raises_the_generation() -> None:
    broker = Broker()
    one, two = broker.session(), broker.session()
    assert join(broker, one, "m") == Joined(1)
    assert join(broker, two, "n") == Joined(2)
    assert broker.ask(LeaveGroup(one, broker.request(), "g", "m")) == Done()
    broker.step(SessionClosed(two))
    assert generation(broker) == 4


def test_the_generation_survives_a_restart() -> None:
    broker = Broker()
    join(broker, broker.session(), "m")
    broker.crash(broker.frames[-1][0])
    assert join(broker, broker.session(), "m") == Joined(2)


def test_joining_again_under_the_same_name_changes_nothing() -> None:
    broker = Broker()
    session = broker.session()
    join(broker, session, "m")
    assert join(broker, session, "m") == Joined(1)


def test_a_connection_has_one_name_in_a_group() -> None:
    broker = Broker()
    session = broker.session()
    join(broker, session, "m")
    assert isinstance(join(broker, session, "n"), Refused)


def test_a_member_that_comes_back_takes_its_place_without_a_new_generation() -> None:
    broker = Broker()
    old, new = broker.session(), broker.session()
    join(broker, old, "m")
    broker.subscribe(old, "t", "g")
    broker.publish("t")
    (lease,) = broker.state.live.leases
    effects = broker.step(JoinGroup(new, broker.request(), "g", "m", ""))
    assert LeaseEnded(old, lease) in effects
    assert [each.session for each in effects if isinstance(each, CloseSession)] == [old]
    assert generation(broker) == 1
    broker.taken()
    broker.subscribe(new, "t", "g")
    assert [(each.session, each.attempt) for each in broker.taken()] == [(new, 1)]


def test_a_join_takes_nothing_from_those_who_hold_leases() -> None:
    broker = Broker()
    member = broker.consumer("t", "g")
    broker.publish("t", 3)
    (lease,) = broker.state.live.leases
    broker.consumer("t", "g")
    assert broker.ack(member, lease, 0, 2) is not None
    assert broker.state_of("g", "t", 2) == "settled"


def test_a_leavers_leases_go_to_the_others_uncounted() -> None:
    broker = Broker()
    leaver, other = broker.consumer("t", "g"), broker.consumer("t", "g")
    broker.publish("t")
    assert broker.got() == [(leaver, "t", 0)]
    broker.step(SessionClosed(leaver))
    assert [(each.session, each.attempt) for each in broker.taken()] == [(other, 1)]


def test_a_membership_that_a_subscription_made_goes_with_the_last_one() -> None:
    broker = Broker()
    session = broker.session()
    first, second = broker.subscribe(session, "t", "g"), broker.subscribe(session, "u", "g")
    broker.step(Unsubscribe(session, broker.request(), first))
    assert generation(broker) == 1
    broker.step(Unsubscribe(session, broker.request(), second))
    assert generation(broker) == 2
    assert not broker.state.live.sessions[session].members


def test_a_membership_that_was_asked_for_stays_without_subscriptions() -> None:
    broker = Broker()
    session = broker.session()
    join(broker, session, "m")
    number = broker.subscribe(session, "t", "g")
    broker.step(Unsubscribe(session, broker.request(), number))
    assert generation(broker) == 1


def test_a_groups_patterns_stay_while_it_has_no_members() -> None:
    broker = Broker()
    broker.step(SessionClosed(broker.consumer("orders.*", "g")))
    broker.publish("orders.new", 2)
    member = broker.consumer("orders.*", "g")
    assert broker.got() == [(member, "orders.new", 0), (member, "orders.new", 1)]


def test_two_groups_on_one_connection_get_a_message_each() -> None:
    broker = Broker()
    session = broker.session()
    numbers = [broker.subscribe(session, "t", "g"), broker.subscribe(session, "t", "h")]
    broker.publish("t")
    assert sorted(each.subscription for each in broker.taken()) == numbers


def test_a_subscription_is_answered_before_anything_is_sent_under_it() -> None:
    broker = Broker()
    broker.publish("t")
    session = broker.session()
    effects = broker.step(Subscribe(session, broker.request(), "t", "g", 0, False))
    assert [type(each).__name__ for each in effects] == ["Reply", "Deliver"]


def test_a_heartbeat_is_answered_with_the_generation() -> None:
    broker = Broker()
    session = broker.session()
    assert broker.ask(Heartbeat(session, broker.request(), "")) == Joined(0)
    join(broker, session, "m")
    assert broker.ask(Heartbeat(session, broker.request(), "m")) == Joined(1)
    assert isinstance(broker.ask(Heartbeat(session, broker.request(), "n")), Refused)


@pytest.mark.parametrize(
    ("pattern", "group", "status"),
    [("a.#.b", "g", Status.INVALID_PATTERN), ("t", " g", Status.GROUP_ERROR), ("t", "a/b", Status.GROUP_ERROR)],
)
def test_a_refused_subscription_leaves_no_trace(pattern: str, group: str, status: Status) -> None:
    broker = Broker()
    session = broker.session()
    before = broker.state
    answer = broker.ask(Subscribe(session, broker.request(), pattern, group, 0, False))
    assert isinstance(answer, Refused)
    assert answer.status == status
    assert broker.state == before


def test_a_group_full_of_patterns_refuses_one_more_and_nobody_joins() -> None:
    broker = Broker(Settings(patterns_max=1))
    broker.consumer("t", "g")
    session = broker.session()
    before = broker.state
    assert isinstance(broker.ask(Subscribe(session, broker.request(), "u", "g", 0, False)), Refused)
    assert broker.state == before


def test_a_connection_has_only_so_many_subscriptions() -> None:
    broker = Broker(Settings(patterns_max=1))
    session = broker.consumer("t")
    answer = broker.ask(Subscribe(session, broker.request(), "u", "", 0, False))
    assert isinstance(answer, Refused)
    assert answer.status == Status.QUOTA


@pytest.mark.parametrize(("member", "strategy"), [("", ""), ("a/b", ""), ("m", "best")])
def test_a_join_that_makes_no_sense_is_refused(member: str, strategy: str) -> None:
    broker = Broker()
    session = broker.session()
    assert isinstance(join(broker, session, member, strategy=strategy), Refused)
    assert not broker.state.durable.groups


def test_only_ones_own_subscription_can_be_ended_or_given_credit() -> None:
    broker = Broker()
    broker.consumer("t")
    for request in (
        Unsubscribe(broker.operator, broker.request(), 1),
        SetCredit(broker.operator, broker.request(), 1, 5),
        LeaveGroup(broker.operator, broker.request(), "g", "m"),
    ):
        assert isinstance(broker.ask(request), Refused)


def test_no_credit_asked_for_is_the_default() -> None:
    broker = Broker(Settings(max_inflight=3))
    answer = broker.ask(Subscribe(broker.operator, broker.request(), "t", "", 0, False))
    assert answer == Subscribed(1)
    broker.publish("t", 5)
    assert len(broker.got()) == 3


def test_a_member_nothing_is_heard_of_is_shut_out_after_the_session_timeout() -> None:
    broker = Broker(Settings(session_timeout_ms=30_000))
    silent, alive = broker.consumer("t", "g"), broker.consumer("t", "g")
    broker.pass_time(20_000)
    broker.step(Seen(alive))
    broker.pass_time(9_990)
    assert silent in broker.state.live.sessions
    broker.pass_time(10)
    assert silent not in broker.state.live.sessions
    assert alive in broker.state.live.sessions


def test_a_session_in_no_group_may_be_silent() -> None:
    broker = Broker(Settings(session_timeout_ms=30_000))
    quiet = broker.consumer("t")
    broker.pass_time(100_000)
    assert quiet in broker.state.live.sessions


def test_many_sessions_that_are_lost_at_once_leave_nothing_behind() -> None:
    broker = Broker()
    broker.publish("t", 3)
    broker.begin_tick()
    sessions = [broker.session() for _ in range(60)]
    for session in sessions:
        broker.step(Subscribe(session, broker.request(), "t", "", 1, False))
        broker.step(Subscribe(session, broker.request(), "t", "g", 1, False))
    broker.end_tick()
    broker.publish("t", 3)
    broker.begin_tick()
    for session in sessions:
        broker.step(SessionClosed(session))
    broker.end_tick()
    live = broker.state.live
    assert not live.leases
    assert not live.subscriptions
    assert not live.ephemeral
    assert not [owner for owner, _ in (*ordered(live.queues), *ordered(live.served_last)) if owner < 0]
