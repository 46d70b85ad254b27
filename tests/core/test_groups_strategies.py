"""Groups: their own mode and strategy, shares by load and by health, what is known of members, expiry, operators."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core import effects as out
from dovetail.core import inputs as ask
from dovetail.core import kernels, members
from dovetail.core.assignment import PARTITIONED_STRATEGIES
from dovetail.core.choosing import levelled
from dovetail.core.codes import SettleAction, Status
from dovetail.core.groups import SHARED_STRATEGIES
from dovetail.core.members import Health
from dovetail.core.rebalance import GroupState
from dovetail.core.records import GroupDeleted, TopicConfig
from dovetail.core.state import Conduct, Sample, Settings
from tests.core.crew import OPERATOR, Crew, deliveries

EXPIRY_MS = 60_000


def crew(*names: str, strategy: str = "round-robin", credit: int = 1_000) -> Crew:
    made = Crew(Settings(group_expiry_ms=EXPIRY_MS), TopicConfig(max_retries=1_000))
    made.topic(partitions=1)
    for name in names:
        made.enter(name, strategy, credit=credit)
    return made


def dealt(team: Crew, effects: list[out.AnyEffect]) -> Counter[str]:
    """How many messages each member was sent."""
    counts: Counter[str] = Counter()
    for each in deliveries(effects):
        counts[team.name_of(each.session)] += sum(last - first + 1 for first, last in each.ranges)
    return counts


@pytest.mark.parametrize("strategy", [*SHARED_STRATEGIES, *PARTITIONED_STRATEGIES])
def test_the_first_member_decides_for_the_group(strategy: str) -> None:
    team = crew("anna", strategy=strategy)
    assert team.group.strategy == strategy
    assert team.group.mode == ("shared" if strategy in SHARED_STRATEGIES else "partitioned")
    team.connect("ben")
    assert isinstance(team.join("ben"), out.Joined)


@pytest.mark.parametrize("asked", [*SHARED_STRATEGIES, *PARTITIONED_STRATEGIES])
def test_a_member_that_asks_for_another_strategy_is_refused_with_the_reason(asked: str) -> None:
    team = crew("anna", strategy="sticky" if asked == "round-robin" else "round-robin")
    before = team.state.durable
    team.connect("ben")
    refused = team.join("ben", asked)
    assert isinstance(refused, out.Refused)
    assert refused.status == Status.GROUP_ERROR
    assert team.group.strategy in refused.reason
    assert team.state.durable == before


def test_a_strategy_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    team = crew()
    team.connect("anna")
    refused = team.join("anna", "best")
    assert isinstance(refused, out.Refused)
    assert all(strategy in refused.reason for strategy in (*SHARED_STRATEGIES, *PARTITIONED_STRATEGIES))
    assert not team.state.durable.groups


def test_subscribing_alone_makes_a_shared_round_robin_group() -> None:
    team = crew()
    team.connect("anna")
    team.subscribe("anna")
    assert (team.group.mode, team.group.strategy) == ("shared", "round-robin")


def test_a_join_never_invalidates_what_a_shared_member_holds() -> None:
    team = crew("anna")
    team.publish(0)
    (lease,) = team.leases_of("anna")
    team.enter("ben", "", credit=1_000)
    assert team.ack(lease.id, "anna") == (Status.OK, 0)


def test_least_loaded_gives_to_whoever_holds_least() -> None:
    team = crew("anna", strategy="least-loaded")
    team.publish(0, 10)
    team.enter("ben", "", credit=1_000)
    assert dealt(team, team.publish(0, 6)) == {"ben": 6}
    assert dealt(team, team.publish(0, 6)) == {"anna": 1, "ben": 5}


def test_round_robin_gives_to_each_in_turn_whatever_they_hold() -> None:
    team = crew("anna")
    team.publish(0, 10)
    team.enter("ben", "", credit=1_000)
    assert dealt(team, team.publish(0, 6)) == {"anna": 3, "ben": 3}


@given(available=st.integers(1, 60), loads=st.lists(st.integers(0, 30), min_size=1, max_size=6).map(sorted))
def test_levelled_shares_are_those_of_dealing_one_by_one(available: int, loads: list[int]) -> None:
    counts = [0] * len(loads)
    for _ in range(available):
        least = min(range(len(loads)), key=lambda place: (loads[place] + counts[place], place))
        counts[least] += 1
    assert sorted(loads[place] + counts[place] for place in range(len(loads))) == sorted(
        load + more for load, more in zip(loads, levelled(available, loads), strict=True)
    )
    assert sum(levelled(available, loads)) == available


def test_a_member_that_fails_most_of_the_time_gets_less() -> None:
    team = crew("anna", "ben")
    fail_often(team, "ben")
    assert health(team) == {"anna": Health.HEALTHY, "ben": Health.FAILED}
    counts: Counter[str] = Counter()
    for _ in range(200):
        counts += dealt(team, team.publish(0))
    assert counts["anna"] > 150
    assert counts["ben"] > 5


def test_a_failing_member_gets_all_when_nobody_else_has_credit() -> None:
    team = crew("anna", "ben", credit=30)
    fail_often(team, "ben")
    team.vanish("anna")
    assert dealt(team, team.publish(0, 5)) == {"ben": 5}


def test_five_minutes_without_an_outcome_make_a_member_healthy_again() -> None:
    team = crew("anna", "ben")
    fail_often(team, "ben")
    for lease in team.leases_of("ben"):
        team.ack(lease.id, "ben")
    assert health(team)["ben"] is Health.FAILED
    team.pass_time(members.WINDOW_MS + 1_000)
    assert health(team)["ben"] is Health.HEALTHY


def fail_often(team: Crew, name: str) -> None:
    """Have a member fail at all it gets, until its health shows it; others acknowledge."""
    for _ in range(kernels.SAMPLES_MIN):
        team.mono_ms += 1
        team.publish(0, 2)
        for each in list(team.sessions):
            for lease in team.leases_of(each):
                team.ack(lease.id, each, SettleAction.NACK if each == name else SettleAction.ACK)


def health(team: Crew) -> dict[str, Health]:
    return {info.name: info.health for info in members.describe(team.state, team.group.id, team.mono_ms)}


def test_what_is_known_of_a_member_is_shown() -> None:
    team = crew("anna")
    for _ in range(kernels.SAMPLES_MIN):
        (info,) = members.describe(team.state, team.group.id, team.mono_ms)
        assert info.suggested_lease_ms == 0
        team.publish(0)
        team.pass_time(1_000)
        team.ack(team.leases_of("anna")[0].id, "anna")
    team.publish(0, 3)
    team.pass_time(500)
    (info,) = members.describe(team.state, team.group.id, team.mono_ms)
    assert (info.name, info.health, info.in_flight, info.oldest_pending_ms) == ("anna", Health.HEALTHY, 3, 500)
    assert (info.outcomes, info.processing_ms, info.error_percent) == (kernels.SAMPLES_MIN, 1_000, 0)
    assert info.suggested_lease_ms == 2_500
    assert team.state.durable.topics[1].config.lease_ms == TopicConfig().lease_ms


def test_a_member_that_needs_most_of_its_lease_is_suspicious() -> None:
    slow = Sample(0, 25_000, 30_000, False)
    conduct = Conduct()
    for _ in range(kernels.SAMPLES_MIN):
        conduct = members.after(conduct, slow)
    assert members.health(conduct, 0) is Health.SUSPICIOUS


@pytest.mark.parametrize(
    ("failures", "took_ms", "expected"),
    [
        (0, 0, Health.HEALTHY),
        (9, 0, Health.HEALTHY),
        (10, 0, Health.WARNING),
        (49, 0, Health.WARNING),
        (50, 0, Health.SUSPICIOUS),
        (89, 0, Health.SUSPICIOUS),
        (90, 0, Health.FAILED),
        (0, 1_499_999, Health.HEALTHY),
        (0, 1_500_000, Health.WARNING),
        (0, 2_400_000, Health.SUSPICIOUS),
    ],
)
def test_health_has_these_thresholds(failures: int, took_ms: int, expected: Health) -> None:
    assert kernels.health(100, failures, took_ms, 100 * 30_000) == expected
    assert kernels.health(kernels.SAMPLES_MIN - 1, failures, took_ms, 100 * 30_000) == Health.HEALTHY


@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(0, 9), st.integers(1, 9), st.booleans()),
        min_size=1,
        max_size=300,
    )
)
def test_sums_are_those_of_the_last_hundred_outcomes_of_five_minutes(told: list[tuple[int, int, int, bool]]) -> None:
    conduct, now_ms, everything = Conduct(), 0, []
    for later_ms, took_ms, allowed_ms, failed in told:
        now_ms += later_ms // 2
        everything.append(Sample(now_ms, took_ms, allowed_ms, failed))
        conduct = members.after(conduct, everything[-1])
    recent = [each for each in everything[-members.SAMPLES_MAX :] if each.at_ms >= now_ms - members.WINDOW_MS]
    assert conduct.samples == tuple(recent)
    assert conduct.failures == sum(each.failed for each in recent)
    assert (conduct.took_ms, conduct.allowed_ms) == (
        sum(each.took_ms for each in recent),
        sum(each.allowed_ms for each in recent),
    )


@pytest.mark.parametrize("strategy", ["round-robin", "range"])
def test_a_group_without_members_expires_and_its_floors_with_it(strategy: str) -> None:
    team = crew("anna", strategy=strategy)
    team.pass_time(200)
    number = team.group.id
    team.vanish("anna")
    team.pass_time(200)
    team.pass_time(EXPIRY_MS - 1_000)
    assert team.phase is GroupState.EMPTY
    team.pass_time(1_000)
    assert team.phase is GroupState.DEAD
    assert GroupDeleted(number) in team.records
    assert not team.state.durable.cursors


def test_a_group_that_expired_while_messages_waited_for_credit_leaves_nothing_in_memory() -> None:
    team = crew("anna")
    team.publish(0, 5_000)
    number = team.group.id
    team.vanish("anna")
    assert number in team.state.live.queues
    team.pass_time(2 * EXPIRY_MS)
    assert team.phase is GroupState.DEAD
    assert number not in team.state.live.queues


def test_a_group_with_members_does_not_expire_however_old_it_is() -> None:
    team = crew("anna")
    team.pass_time(2 * EXPIRY_MS)
    assert team.phase is GroupState.STABLE


def test_a_crash_counts_as_the_moment_the_members_left() -> None:
    team = crew("anna")
    team.pass_time(2 * EXPIRY_MS)
    team.crash()
    team.pass_time(EXPIRY_MS - 10)
    assert team.phase is GroupState.EMPTY
    team.pass_time(20)
    assert team.phase is GroupState.DEAD


def test_a_group_goes_on_growing_old_through_a_restart() -> None:
    team = crew("anna")
    team.vanish("anna")
    team.pass_time(EXPIRY_MS - 1_000)
    team.crash()
    team.pass_time(1_010)
    assert team.phase is GroupState.DEAD


def test_an_expired_group_begins_anew() -> None:
    team = crew("anna")
    team.publish(0, 3)
    for lease in team.leases_of("anna"):
        team.ack(lease.id, "anna")
    team.vanish("anna")
    team.pass_time(EXPIRY_MS)
    team.enter("anna", "sticky")
    team.pass_time(200)
    assert team.group.mode == "partitioned"
    assert sum(last - first + 1 for lease in team.leases_of("anna") for first, last in lease.ranges) == 3


def test_an_operator_changes_the_strategy_of_a_group_without_members() -> None:
    team = crew("anna", strategy="range")
    refused = configure(team, "least-loaded")
    assert isinstance(refused, out.Refused)
    assert refused.status == Status.EXISTS
    team.vanish("anna")
    unheard_of = configure(team, "unheard-of")
    assert isinstance(unheard_of, out.Refused)
    assert unheard_of.status == Status.GROUP_ERROR
    assert configure(team, "least-loaded") == out.Done()
    assert (team.group.mode, team.group.strategy, team.group.shares) == ("shared", "least-loaded", ())
    team.enter("anna", "least-loaded")
    assert len(deliveries(team.publish(0))) == 1


def configure(team: Crew, strategy: str) -> out.Answer:
    return team.answer(team.step(ask.ConfigureGroup(OPERATOR, team.request(), "crew", strategy)))


@pytest.mark.parametrize("strategy", ["round-robin", "range"])
def test_an_operator_removes_a_member(strategy: str) -> None:
    team = crew("anna", "ben", strategy=strategy)
    team.pass_time(200)
    request = ask.RemoveMember(OPERATOR, team.request(), "crew", "ben")
    effects = team.step(request)
    assert [each.session for each in effects if isinstance(each, out.CloseSession)] == [team.sessions["ben"]]
    assert team.answer(effects) == out.Done()
    team.pass_time(200)
    assert [info.name for info in members.describe(team.state, team.group.id, team.mono_ms)] == ["anna"]
    refused = team.answer(team.step(ask.RemoveMember(OPERATOR, team.request(), "crew", "ben")))
    assert isinstance(refused, out.Refused)


def test_a_shared_group_has_no_partitions_to_move() -> None:
    team = crew("anna")
    answer = team.answer(team.step(ask.RebalanceGroup(OPERATOR, team.request(), "crew")))
    assert isinstance(answer, out.Refused)
    assert "shared" in answer.reason


def test_a_subscriber_without_a_group_that_is_too_far_behind_jumps_ahead_and_is_told() -> None:
    team = Crew(Settings(ephemeral_lag_max=10))
    team.topic(partitions=1)
    session = team.connect("anna")
    team.step(ask.Subscribe(session, team.request(), "news", "", 2, False))
    team.publish(0, 2)
    assert [each for each in team.publish(0, 10) if isinstance(each, out.Overtaken)] == []
    (told,) = [each for each in team.publish(0, 3) if isinstance(each, out.Overtaken)]
    assert (told.session, told.topic, told.first, told.last) == (session, "news", 2, 9)
    (held,) = team.state.live.leases
    effects = acknowledged(team, session, held)
    assert [each.ranges for each in deliveries(effects)] == [((10, 11),)]


def acknowledged(team: Crew, session: int, lease: int) -> list[out.AnyEffect]:
    first, last = team.state.live.leases[lease].ranges[0]
    item = ask.SettleItem(lease, SettleAction.ACK, first, last)
    return team.step(ask.Settle(session, team.request(), (item,)))


def test_a_group_never_jumps_ahead() -> None:
    team = Crew(Settings(ephemeral_lag_max=10))
    team.topic(partitions=1)
    team.enter("anna", "", credit=1)
    assert [each for each in team.publish(0, 50) if isinstance(each, out.Overtaken)] == []


def test_a_member_that_a_subscription_made_answers_without_knowing_its_name() -> None:
    team = crew("anna", strategy="sticky")
    team.topic("sport", partitions=4)
    team.pass_time(200)
    team.connect("ben:1")
    team.subscribe("ben:1")
    team.pass_time(200)
    session = team.sessions["anna"]
    answer = team.answer(team.step(ask.JoinGroup(session, team.request(), "crew", "", "")))
    assert answer == out.Joined(team.group.generation)
    assert team.phase is GroupState.STABLE
    session = team.sessions["ben:1"]
    assert isinstance(team.answer(team.step(ask.JoinGroup(session, team.request(), "crew", "", ""))), out.Joined)
    name = f"ben:1-{session}"
    assert isinstance(team.answer(team.step(ask.JoinGroup(session, team.request(), "crew", name, ""))), out.Joined)


def test_a_newcomer_has_to_say_who_it_is() -> None:
    team = crew("anna")
    team.connect("ben")
    assert isinstance(
        team.answer(team.step(ask.JoinGroup(team.sessions["ben"], team.request(), "crew", "", ""))), out.Refused
    )


def test_what_was_never_sent_goes_to_somebody_else_when_its_lease_has_run_out() -> None:
    crew = Crew()
    crew.topic(partitions=1)
    for name in ("anna", "bert"):
        crew.enter(name, "round-robin")
    for _ in range(4):
        crew.publish(0)
    held = [lease for name in ("anna", "bert") for lease in crew.leases_of(name)]
    crew.mono_ms += crew.config.lease_ms
    alive = [ask.Seen(session) for session in crew.sessions.values()]
    effects = crew.step(*alive, *[ask.Unsent(lease.id) for lease in held])
    assert {each.lease for each in effects if isinstance(each, out.LeaseEnded)} == {lease.id for lease in held}
    after = {each.ranges: crew.name_of(each.session) for each in deliveries(effects)}
    assert len(after) == 4
    assert all(after[lease.ranges] != lease.member for lease in held)
    assert {each.attempt for each in deliveries(effects)} == {1}
