"""Key-ordered groups: one key's messages at one member at a time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core import effects as out
from dovetail.core.codes import SettleAction
from dovetail.core.keys import NO_KEY
from dovetail.core.records import TopicConfig
from tests.core.crew import Crew, deliveries
from tests.depth import DEPTH

RED, BLUE, GREEN = 1, 2, 3


def crew(*names: str, credit: int = 10) -> Crew:
    made = Crew(config=TopicConfig(max_retries=1_000))
    made.topic(partitions=1)
    for name in names:
        made.enter(name, "key-ordered", credit=credit)
    return made


def sent(team: Crew, effects: list[out.AnyEffect]) -> list[tuple[str, int]]:
    """To whom each offset went, in order."""
    return [
        (team.name_of(each.session), offset)
        for each in deliveries(effects)
        for first, last in each.ranges
        for offset in range(first, last + 1)
    ]


def test_a_key_stays_with_the_member_that_holds_some_of_it() -> None:
    team = crew("anna", "ben")
    assert sent(team, team.publish_keys(RED)) == [("anna", 0)]
    assert sent(team, team.publish_keys(BLUE)) == [("ben", 1)]
    assert sent(team, team.publish_keys(RED, RED, BLUE, RED)) == [("anna", 2), ("anna", 3), ("ben", 4), ("anna", 5)]


def test_a_key_that_nobody_holds_goes_to_whose_turn_it_is() -> None:
    team = crew("anna", "ben")
    team.publish_keys(RED)
    team.ack(team.leases_of("anna")[0].id, "anna")
    assert sent(team, team.publish_keys(RED)) == [("ben", 1)]


def test_messages_without_a_key_go_to_anybody() -> None:
    team = crew("anna", "ben")
    team.publish_keys(NO_KEY)
    assert sent(team, team.publish_keys(NO_KEY)) == [("ben", 1)]


def test_fresh_messages_wait_for_the_holder_of_their_key_and_keep_their_order() -> None:
    team = crew("anna", "ben", credit=1)
    team.publish_keys(RED)
    assert sent(team, team.publish_keys(RED, BLUE)) == []
    (lease,) = team.leases_of("anna")
    team.ack(lease.id, "anna")
    assert {(each.member, each.ranges) for _, each in sorted(team.state.live.leases.items())} == {
        ("ben", ((1, 1),)),
        ("anna", ((2, 2),)),
    }


def test_what_failed_returns_to_whoever_holds_its_key() -> None:
    team = crew("anna", "ben")
    team.publish_keys(RED)
    team.publish_keys(RED)
    team.ack(team.leases_of("anna")[0].id, "anna", SettleAction.NACK)
    assert [lease.member for _, lease in sorted(team.state.live.leases.items())] == ["anna", "anna"]


def test_what_failed_goes_elsewhere_when_nobody_holds_its_key() -> None:
    team = crew("anna", "ben")
    team.publish_keys(RED)
    team.ack(team.leases_of("anna")[0].id, "anna", SettleAction.NACK)
    assert [lease.member for _, lease in sorted(team.state.live.leases.items())] == ["ben"]
    assert sent(team, team.publish_keys(RED)) == [("ben", 1)]


def test_a_leaver_s_keys_move_together() -> None:
    team = crew("anna", "ben", "cleo")
    team.publish_keys(RED)
    team.publish_keys(RED, RED)
    team.vanish("anna")
    assert len({lease.member for _, lease in sorted(team.state.live.leases.items())}) == 1


def test_keys_are_kept_together_after_a_restart() -> None:
    team = crew("anna")
    team.publish_keys(RED, BLUE, RED, BLUE)
    team.crash()
    for name in ("anna", "ben"):
        team.enter(name, "key-ordered")
    at = {key: lease.member for _, lease in sorted(team.state.live.leases.items()) for key in lease.keys}
    assert set(at) == {RED, BLUE}


def test_what_failed_before_a_restart_keeps_its_key_also_behind_the_first_batch() -> None:
    team = crew("anna", credit=10)
    team.vanish("anna")
    team.publish_keys(RED)
    team.publish_keys(BLUE)
    team.enter("anna", "key-ordered")
    team.ack(team.leases_of("anna")[0].id, "anna", SettleAction.NACK)
    team.crash()
    team.enter("anna", "key-ordered")
    assert [lease.keys for lease in team.leases_of("anna")] == [(RED,), (BLUE,)]


acts = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.sampled_from((RED, BLUE, GREEN, NO_KEY)), min_size=1, max_size=6)),
        st.tuples(st.just("ack"), st.integers(0, 9)),
        st.tuples(st.just("nack"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from((10, 1_500, 31_000))),
        st.tuples(st.just("turnover"), st.sampled_from(("anna", "ben", "cleo"))),
    ),
    max_size=40,
)


@settings(max_examples=60 * DEPTH, deadline=None)
@given(credit=st.integers(1, 5), told=acts)
def test_whatever_happens_everything_is_settled_in_the_end(credit: int, told: list[tuple[str, object]]) -> None:
    """The crew checks after every step that no key is at two members."""
    team = crew("anna", "ben", credit=credit)
    for what, value in told:
        leases = [lease for _, lease in sorted(team.state.live.leases.items())]
        if what == "publish" and isinstance(value, list):
            team.publish_keys(*value)
        elif what == "wait":
            team.pass_time(int(str(value)))
        elif what == "turnover" and str(value) in team.sessions:
            team.vanish(str(value))
        elif what == "turnover":
            team.enter(str(value), "key-ordered", credit=credit)
        elif leases:
            lease = leases[int(str(value)) % len(leases)]
            team.ack(lease.id, lease.member, SettleAction.ACK if what == "ack" else SettleAction.NACK)
    if not team.sessions:
        team.enter("anna", "key-ordered")
    while team.state.durable.cursors[team.group.id, team.log(0)].floor < team.state.durable.logs[team.log(0)].end:
        team.pass_time(0 if team.state.live.leases else 61_000)
        for _, lease in sorted(team.state.live.leases.items()):
            team.ack(lease.id, lease.member)
