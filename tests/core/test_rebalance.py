"""Partitioned groups: gathered, planned, revoked, released, assigned; fenced; every cell of the state table."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.core import effects as out
from dovetail.core import inputs as ask
from dovetail.core.assignment import PARTITIONED_STRATEGIES
from dovetail.core.codes import SettleAction, Status
from dovetail.core.ids import Now
from dovetail.core.rebalance import TRANSITIONS, GroupEvent, GroupState
from dovetail.core.records import Rebalanced
from dovetail.core.state import Settings, Tenure
from dovetail.core.step import step
from tests.architecture.sources import ROOT
from tests.core.crew import OPERATOR, Crew, assigns, deliveries, revokes
from tests.depth import DEPTH

QUIET_MS = Settings().quiet_ms + 10
ANSWER_MS = Settings().rebalance_answer_ms + 10
EXPIRY_MS = Settings().group_expiry_ms


def crew(*names: str, strategy: str = "range", partitions: int = 6) -> Crew:
    """A topic "news" and these members, settled."""
    made = Crew()
    made.topic(partitions=partitions)
    return made.settled_crew(*names, strategy=strategy) if names else made


def answer_revokes(team: Crew) -> None:
    """Every member that was asked for partitions gives them up."""
    while asked := team.asked_back():
        for name in sorted(set(asked.values())):
            team.join(name)


def test_the_first_member_gets_everything_after_the_quiet_period() -> None:
    team = crew()
    team.enter("anna")
    assert team.holders() == {}
    told = assigns(team.pass_time(QUIET_MS))
    assert team.holders() == dict.fromkeys(range(6), "anna")
    assert [each.partitions for each in told] == [tuple(("news", partition) for partition in range(6))]
    assert told[0].generation == team.group.generation == 1


def test_a_burst_of_a_hundred_joins_makes_one_generation_and_is_stable_within_two_seconds() -> None:
    team = crew(partitions=200)
    names = [f"m{number:02}" for number in range(100)]
    for name in names:
        team.enter(name, "partitioned-round-robin")
        team.pass_time(5)
    team.pass_time(2_000 - 500)
    assert team.phase is GroupState.STABLE
    assert team.group.generation == 1
    assert sorted(set(team.holders().values())) == names


def test_a_burst_that_does_not_end_is_planned_after_ten_quiet_periods() -> None:
    team = crew()
    for number in range(40):
        team.enter(f"m{number}")
        team.pass_time(50)
        if number == 18:
            assert team.group.generation == 0
    assert 1 <= team.group.generation <= 2


def test_only_partitions_that_move_are_revoked_and_the_rest_keep_flowing() -> None:
    team = crew("anna", "ben", strategy="sticky")
    before = team.holders()
    team.enter("cleo", "sticky")
    asked = revokes(team.pass_time(QUIET_MS))
    moving = {partition for each in asked for _, partition in each.partitions}
    assert len(moving) == 2
    for partition in range(6):
        sent = deliveries(team.publish(partition))
        expected = [] if partition in moving else [team.sessions[before[partition]]]
        assert [each.session for each in sent] == expected


def test_a_released_partition_goes_to_its_new_holder_at_once_whatever_others_do() -> None:
    team = crew("anna", "ben", strategy="sticky")
    team.enter("cleo", "sticky")
    team.pass_time(QUIET_MS)
    (partition,) = [each for each, name in team.asked_back().items() if name == "anna"]
    team.publish(partition)
    team.join("anna")
    assert team.holders()[partition] == "cleo"
    assert [lease.log for lease in team.leases_of("cleo")] == [team.log(partition)]
    assert set(team.asked_back().values()) == {"ben"}


def test_what_is_still_held_of_a_released_partition_returns_uncounted() -> None:
    team = crew("anna", strategy="sticky", partitions=2)
    team.publish(0)
    team.publish(1)
    team.enter("ben", "sticky")
    team.pass_time(QUIET_MS)
    (partition,) = team.asked_back()
    old = next(lease for lease in team.leases_of("anna") if lease.log == team.log(partition))
    team.join("anna")
    (new,) = team.leases_of("ben")
    assert (new.log, new.ranges, new.attempt) == (old.log, old.ranges, 1)
    assert team.ack(old.id, "anna") == (Status.LEASE_LOST, 0)
    assert team.ack(new.id, "ben") == (Status.OK, 0)


def test_a_member_may_settle_what_it_was_asked_back_until_it_answers() -> None:
    team = crew("anna", strategy="sticky", partitions=2)
    team.publish(0)
    team.publish(1)
    team.enter("ben", "sticky")
    team.pass_time(QUIET_MS)
    (partition,) = team.asked_back()
    held = next(lease for lease in team.leases_of("anna") if lease.log == team.log(partition))
    assert team.ack(held.id, "anna") == (Status.OK, 0)
    assert team.commit("anna", partition, 1) == out.Done()
    team.join("anna")
    assert team.leases_of("ben") == []


def test_a_heartbeat_is_no_answer() -> None:
    team = crew("anna", strategy="sticky")
    team.enter("ben", "sticky")
    team.pass_time(QUIET_MS)
    team.step(ask.Heartbeat(team.sessions["anna"], team.request(), "anna"))
    assert set(team.asked_back().values()) == {"anna"}


def test_who_does_not_answer_in_time_is_removed_and_told_why() -> None:
    team = crew("anna", strategy="sticky")
    team.enter("ben", "sticky")
    team.pass_time(QUIET_MS)
    silent = team.sessions["anna"]
    effects = team.pass_time(ANSWER_MS + QUIET_MS)
    (closed,) = [each for each in effects if isinstance(each, out.CloseSession)]
    assert closed.session == silent
    assert "REVOKE" in closed.reason
    assert team.holders() == dict.fromkeys(range(6), "ben")


def test_a_member_has_one_revoke_to_answer_at_a_time_and_keeps_its_deadline() -> None:
    team = crew("anna", strategy="sticky")
    team.enter("ben", "sticky")
    team.pass_time(QUIET_MS)
    assert len(team.asked_back()) == 3
    team.enter("cleo", "sticky")
    assert revokes(team.pass_time(QUIET_MS)) == []
    (second,) = revokes(team.step(ask.JoinGroup(team.sessions["anna"], team.request(), "crew", "anna", "")))
    assert len(second.partitions) == 1
    team.join("anna")
    assert sorted(team.holders().values()) == ["anna", "anna", "ben", "ben", "cleo", "cleo"]


def test_a_partition_asked_back_and_planned_back_returns_to_its_holder_after_the_answer() -> None:
    team = crew("anna", strategy="sticky")
    team.enter("ben", "sticky")
    team.pass_time(QUIET_MS)
    team.vanish("ben")
    team.pass_time(QUIET_MS)
    assert len(team.asked_back()) == 3
    team.join("anna")
    assert team.phase is GroupState.STABLE
    assert team.holders() == dict.fromkeys(range(6), "anna")


def test_a_leavers_partitions_are_handed_out_after_the_quiet_period() -> None:
    team = crew("anna", "ben", "cleo", strategy="sticky")
    before = team.holders()
    team.vanish("ben")
    effects = team.pass_time(QUIET_MS)
    after = team.holders()
    assert revokes(effects) == []
    assert sorted(after) == list(range(6))
    assert all(after[each] == before[each] for each in after if before[each] != "ben")
    assert team.phase is GroupState.STABLE


def test_ten_members_and_one_leaves_the_group_delivers_again_within_a_second() -> None:
    names = [f"m{number}" for number in range(10)]
    team = crew(*names, strategy="sticky", partitions=20)
    lost = [partition for partition, name in team.holders().items() if name == "m4"]
    team.vanish("m4")
    for partition in lost:
        assert deliveries(team.publish(partition)) == []
    assert len(deliveries(team.pass_time(1_000))) == len(lost)


def test_a_member_that_falls_silent_loses_its_partitions_after_the_session_timeout() -> None:
    team = crew("anna", "ben", strategy="sticky")
    session = team.sessions.pop("ben")
    effects = team.pass_time(Settings().session_timeout_ms + 1_000)
    assert session in [each.session for each in effects if isinstance(each, out.CloseSession)]
    assert set(team.holders().values()) == {"anna"}


def test_the_same_member_on_a_new_connection_takes_its_place_without_a_rebalance() -> None:
    team = crew("anna", "ben")
    generation, before = team.group.generation, team.holders()
    old = team.sessions["ben"]
    team.connect("ben")
    team.join("ben")
    assert team.phase is GroupState.STABLE
    team.pass_time(5_000)
    team.subscribe("ben")
    team.publish(5)
    team.pass_time(QUIET_MS)
    assert (team.group.generation, team.holders()) == (generation, before)
    assert old in [each.session for each in team.effects if isinstance(each, out.CloseSession)]
    assert [lease.log for lease in team.leases_of("ben")] == [team.log(5)]


def test_a_member_that_comes_back_and_never_subscribes_keeps_nothing_for_ever() -> None:
    team = crew("anna", "ben")
    team.connect("ben")
    team.join("ben")
    team.pass_time(ANSWER_MS + QUIET_MS)
    assert set(team.holders().values()) == {"anna"}


def test_a_socket_that_closes_and_comes_back_within_the_quiet_period_moves_nothing() -> None:
    team = crew("anna", "ben")
    generation, before = team.group.generation, team.holders()
    team.vanish("ben")
    team.enter("ben", "range")
    team.pass_time(QUIET_MS)
    assert (team.group.generation, team.holders()) == (generation, before)


def test_a_topic_that_appears_later_is_shared_out() -> None:
    team = crew("anna", "ben")
    team.topic("sport", partitions=4)
    team.pass_time(QUIET_MS)
    assert team.holders("sport") == {0: "anna", 1: "anna", 2: "ben", 3: "ben"}
    assert len(deliveries(team.publish(3, topic="sport"))) == 1


def test_a_deleted_topic_leaves_no_trace() -> None:
    team = crew("anna", "ben")
    team.topic("sport", partitions=4)
    team.pass_time(QUIET_MS)
    team.delete("sport")
    team.pass_time(QUIET_MS)
    assert team.holders("sport") == {}
    assert sorted(slot for _, slots in team.group.shares for slot in slots) == [team.log(each) for each in range(6)]


def test_a_topic_that_is_deleted_while_its_reader_has_just_come_back_is_planned_for_nobody() -> None:
    team = crew("anna", strategy="sticky")
    team.connect("anna")
    team.join("anna")
    team.delete()
    assert team.phase is GroupState.REBALANCING
    team.pass_time(QUIET_MS)
    assert team.group.shares == (("anna", ()),)


def test_members_get_partitions_only_of_topics_they_read() -> None:
    team = crew()
    team.topic("sport", partitions=2)
    team.enter("anna", "sticky", pattern="news")
    team.enter("ben", "sticky", pattern="sport")
    team.enter("cleo", "sticky", pattern="*")
    team.pass_time(QUIET_MS)
    assert set(team.holders("news").values()) == {"anna", "cleo"}
    assert set(team.holders("sport").values()) <= {"ben", "cleo"}
    assert sorted(team.holders("news")) == list(range(6))


def test_a_member_that_unsubscribes_loses_the_topics_partitions_without_being_asked() -> None:
    team = crew("anna")
    team.enter("ben", "range", pattern="news")
    team.pass_time(QUIET_MS)
    answer_revokes(team)
    number = team.state.live.sessions[team.sessions["ben"]].subscriptions[0]
    team.step(ask.Unsubscribe(team.sessions["ben"], team.request(), number))
    assert revokes(team.pass_time(QUIET_MS)) == []
    assert set(team.holders().values()) == {"anna"}


def test_all_lanes_of_a_partition_are_at_one_member() -> None:
    team = Crew()
    team.topic("news", partitions=2, lanes=5)
    team.settled_crew("anna", "ben")
    assert team.holders() == {0: "anna", 1: "ben"}


@pytest.mark.parametrize("strategy", PARTITIONED_STRATEGIES)
def test_every_partitioned_strategy_works_through_join_and_leave(strategy: str) -> None:
    team = crew("anna", "ben", strategy=strategy)
    team.enter("cleo", strategy)
    team.pass_time(QUIET_MS)
    answer_revokes(team)
    assert sorted(team.holders().values()) == ["anna", "anna", "ben", "ben", "cleo", "cleo"]
    team.vanish("anna")
    team.pass_time(QUIET_MS)
    answer_revokes(team)
    assert sorted(team.holders().values()) == ["ben"] * 3 + ["cleo"] * 3


def test_subscribing_alone_joins_a_partitioned_group_as_it_is() -> None:
    team = crew("anna")
    team.connect("ben")
    team.subscribe("ben")
    team.pass_time(QUIET_MS)
    answer_revokes(team)
    assert set(team.holders().values()) == {"anna", f"ben-{team.sessions['ben']}"}


@pytest.mark.parametrize("holder", ["ben", "somebody else"])
def test_a_settle_under_an_older_hold_is_fenced_and_changes_nothing(holder: str) -> None:
    team = crew("anna", "ben")
    team.publish(5)
    (lease,) = team.leases_of("ben")
    # What no run of the broker brings about: the partition moved while the lease was left standing.
    moved = Tenure(holder, team.group.generation + 1)
    tenures = team.state.live.tenures[team.group.id].set(team.log(5), moved)
    live = replace(team.state.live, tenures=team.state.live.tenures.set(team.group.id, tenures))
    before = replace(team.state, live=live)
    item = ask.SettleItem(lease.id, SettleAction.ACK, 0, 0)
    asked = ask.Settle(team.sessions["ben"], team.request(), (item,))
    after, records, effects = step(before, Now(team.mono_ms, team.wall_ms), (asked,))
    answer = team.answer(effects)
    assert isinstance(answer, out.Settlement)
    assert answer.results == ((Status.FENCED, 0),)
    assert (records, after.durable, after.live.leases) == ((), before.durable, before.live.leases)


def test_a_commit_is_taken_from_the_holder_alone() -> None:
    team = crew("anna", "ben")
    team.publish(0, 5)
    refused = team.commit("ben", 0, 3)
    assert isinstance(refused, out.Refused)
    assert refused.status == Status.FENCED
    assert team.state.durable.cursors[team.group.id, team.log(0)].floor == 0
    assert team.commit("anna", 0, 3) == out.Done()
    assert team.state.durable.cursors[team.group.id, team.log(0)].floor == 3


def test_a_commit_from_a_connection_that_lost_its_place_changes_nothing() -> None:
    team = crew("anna", "ben")
    team.publish(5, 5)
    old = team.sessions["ben"]
    team.connect("ben")
    team.join("ben")
    answer = team.answer(team.step(ask.Commit(old, team.request(), "crew", "news", 5, 3)))
    assert isinstance(answer, out.Refused)
    assert answer.status == Status.FENCED
    assert team.state.durable.cursors[team.group.id, team.log(5)].floor == 0


def test_a_seek_is_an_operators_or_the_holders() -> None:
    team = crew("anna", "ben")
    team.publish(0, 5)

    def seek(session: int) -> out.Answer:
        return team.answer(team.step(ask.Seek(session, team.request(), "crew", "news", 0, 2)))

    refused = seek(team.sessions["ben"])
    assert isinstance(refused, out.Refused)
    assert refused.status == Status.FENCED
    assert seek(team.sessions["anna"]) == out.Sought(5)
    assert seek(OPERATOR) == out.Sought(5)


def test_every_plan_raises_the_generation_by_one_and_is_journalled() -> None:
    team = crew("anna", "ben")
    team.enter("cleo")
    team.pass_time(QUIET_MS)
    answer_revokes(team)
    team.vanish("anna")
    team.pass_time(QUIET_MS)
    plans = [record for record in team.records if isinstance(record, Rebalanced)]
    assert [record.generation for record in plans] == [1, 2, 3]
    assert [len(record.shares) for record in plans] == [2, 3, 2]


def test_a_rebalance_that_a_crash_interrupts_starts_anew_under_a_higher_generation() -> None:
    team = crew("anna", "ben", strategy="sticky")
    team.enter("cleo", "sticky")
    team.pass_time(QUIET_MS)
    assert team.asked_back()
    generation = team.group.generation
    team.crash()
    assert team.phase is GroupState.EMPTY
    team.settled_crew("anna", "ben", "cleo", strategy="sticky")
    assert team.group.generation == generation + 1
    assert sorted(team.holders().values()) == ["anna", "anna", "ben", "ben", "cleo", "cleo"]


def test_sticky_members_find_their_partitions_again_after_a_restart() -> None:
    team = crew("anna", "ben", "cleo", strategy="sticky", partitions=7)
    before = team.holders()
    team.crash()
    team.settled_crew("cleo", "anna", "ben", strategy="sticky")
    assert team.holders() == before


def test_an_operator_has_the_plan_made_at_once() -> None:
    team = crew("anna")
    team.vanish("anna")
    team.enter("ben")
    team.step(ask.RebalanceGroup(OPERATOR, team.request(), "crew"))
    assert set(team.holders().values()) == {"ben"}


Start = Callable[[Crew], None]


def empty(team: Crew) -> None:
    team.settled_crew("anna")
    team.vanish("anna")
    team.pass_time(QUIET_MS)


def stable(team: Crew) -> None:
    team.settled_crew("anna", "ben", strategy="sticky")


def lonely(team: Crew) -> None:
    team.settled_crew("anna", strategy="sticky")


def gathering(team: Crew) -> None:
    stable(team)
    team.enter("cleo", "sticky")


def revoking(team: Crew) -> None:
    gathering(team)
    team.pass_time(QUIET_MS)


def revoking_alone(team: Crew) -> None:
    lonely(team)
    team.topic("sport")
    team.enter("ben", "sticky")
    team.pass_time(QUIET_MS)
    team.vanish("ben")


def come_back(team: Crew) -> None:
    team.connect("anna")
    team.join("anna")


def newcomer(team: Crew) -> None:
    team.enter("dora", team.group.strategy)


CELLS: list[tuple[GroupState, GroupEvent, Start, Start]] = [
    (GroupState.EMPTY, GroupEvent.JOIN, empty, newcomer),
    (GroupState.EMPTY, GroupEvent.CHANGE, empty, lambda team: team.topic("sport")),
    (GroupState.EMPTY, GroupEvent.EXPIRY, empty, lambda team: expire(team)),
    (GroupState.REBALANCING, GroupEvent.JOIN, gathering, newcomer),
    (GroupState.REBALANCING, GroupEvent.JOIN, revoking, newcomer),
    (GroupState.REBALANCING, GroupEvent.RETURN, gathering, come_back),
    (GroupState.REBALANCING, GroupEvent.RETURN, revoking, come_back),
    (GroupState.REBALANCING, GroupEvent.CHANGE, gathering, lambda team: team.topic("sport")),
    (GroupState.REBALANCING, GroupEvent.CHANGE, revoking, lambda team: team.topic("sport")),
    (GroupState.REBALANCING, GroupEvent.LEAVE, gathering, lambda team: team.vanish("ben")),
    (GroupState.REBALANCING, GroupEvent.LEAVE, revoking, lambda team: team.vanish("ben")),
    (GroupState.REBALANCING, GroupEvent.LAST_LEAVE, revoking_alone, lambda team: team.vanish("anna")),
    (GroupState.REBALANCING, GroupEvent.OVERDUE, revoking, lambda team: overdue(team)),
    (GroupState.REBALANCING, GroupEvent.QUIET, gathering, lambda team: quiet(team)),
    (GroupState.REBALANCING, GroupEvent.PLACED, revoking, answer_revokes),
    (GroupState.STABLE, GroupEvent.JOIN, stable, newcomer),
    (GroupState.STABLE, GroupEvent.RETURN, stable, come_back),
    (GroupState.STABLE, GroupEvent.CHANGE, stable, lambda team: team.topic("sport")),
    (GroupState.STABLE, GroupEvent.LEAVE, stable, lambda team: team.vanish("ben")),
    (GroupState.STABLE, GroupEvent.LAST_LEAVE, lonely, lambda team: team.vanish("anna")),
]


def expire(team: Crew) -> None:
    team.wall_ms += EXPIRY_MS
    team.mono_ms += EXPIRY_MS
    team.step()


def quiet(team: Crew) -> None:
    team.pass_time(QUIET_MS)


def overdue(team: Crew) -> None:
    until_ms = min(each.revoke_by_ms for _, each in team.state.live.tenures[team.group.id].items() if each.revoke_by_ms)
    team.pass_time(until_ms - team.mono_ms)


@pytest.mark.parametrize(("before", "event", "arrange", "act"), CELLS)
def test_each_cell_of_the_table(before: GroupState, event: GroupEvent, arrange: Start, act: Start) -> None:
    (after,) = [after for state, happens, after in TRANSITIONS if (state, happens) == (before, event)]
    team = crew()
    arrange(team)
    assert team.phase is before
    act(team)
    assert team.phase is after


def test_every_cell_of_the_table_is_tried() -> None:
    assert {(before, event) for before, event, _ in TRANSITIONS} == {(before, event) for before, event, _, _ in CELLS}


def test_the_specification_shows_this_table() -> None:
    shown = (ROOT / "spec/groups.md").read_text().split("<!-- transitions -->")[1].split("<!-- /transitions -->")[0]
    rows = [f"| {before} | {event} | {after} |" for before, event, after in TRANSITIONS]
    assert shown.strip().splitlines()[2:] == rows


NAMES = ("anna", "ben", "cleo", "dora")
acts = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from(NAMES)),
        st.tuples(st.just("vanish"), st.sampled_from(NAMES)),
        st.tuples(st.just("return"), st.sampled_from(NAMES)),
        st.tuples(st.just("answer"), st.sampled_from(NAMES)),
        st.tuples(st.just("nack"), st.sampled_from(NAMES)),
        st.tuples(st.just("ack"), st.sampled_from(NAMES)),
        st.tuples(st.just("publish"), st.integers(0, 4)),
        st.tuples(st.just("wait"), st.sampled_from((10, 60, 110, 1_000, 31_000))),
        st.tuples(st.just("topic"), st.integers(0, 2)),
        st.tuples(st.just("crash"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=60 * DEPTH, deadline=None)
@given(strategy=st.sampled_from(PARTITIONED_STRATEGIES), told=acts)
def test_whatever_members_do_the_group_ends_up_stable_with_everything_handed_out(
    strategy: str, told: list[tuple[str, object]]
) -> None:
    team = crew(partitions=5)
    for what, value in told:
        perform(team, strategy, what, value)
    for name in [name for name in team.sessions if team.sessions[name] not in team.state.live.sessions]:
        del team.sessions[name]
    if "anna" not in team.sessions:
        team.enter("anna", strategy)
    for _ in range(4):
        team.pass_time(QUIET_MS)
        answer_revokes(team)
    assert team.phase is GroupState.STABLE
    assert sorted(team.holders()) == list(range(5))


def perform(team: Crew, strategy: str, what: str, value: object) -> None:
    """One thing that a member, the operator or fate does; what makes no sense now is left out."""
    if what == "publish":
        team.publish(int(str(value)))
    elif what == "wait":
        team.pass_time(int(str(value)))
    elif what == "crash":
        team.crash()
    elif what == "topic":
        name = f"topic{value}"
        if name in team.state.durable.topics_by_name:
            team.delete(name)
        else:
            team.topic(name, partitions=2)
    else:
        perform_member(team, strategy, what, str(value))


def perform_member(team: Crew, strategy: str, what: str, name: str) -> None:
    there = team.sessions.get(name) in team.state.live.sessions
    if what == "enter" and not there:
        team.enter(name, strategy)
    elif not there:
        return
    elif what == "vanish":
        team.vanish(name)
    elif what == "return":
        team.enter(name, strategy)
    elif what == "answer":
        team.join(name)
    elif team.leases_of(name):
        team.ack(team.leases_of(name)[0].id, name, SettleAction.NACK if what == "nack" else SettleAction.ACK)
