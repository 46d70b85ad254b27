"""Plans of partitioned groups: who gets which partition, strategy by strategy."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.assignment import PARTITIONED_STRATEGIES, Plan, Readable, in_ranges, in_turn, plan, sticky

MEMBERS = ("anna", "ben", "cleo", "dora")


def readable(*shapes: tuple[int, str]) -> list[Readable]:
    """Topics of so many partitions, each read by the members with these initials; slots are numbered through."""
    topics, first = [], 1
    for partitions, initials in shapes:
        readers = tuple(member for member in MEMBERS if member[0] in initials)
        topics.append(Readable(tuple(range(first, first + partitions)), readers))
        first += partitions
    return topics


def loads(found: Plan) -> list[int]:
    return sorted(Counter(found.values()).values())


@st.composite
def any_topics(draw: st.DrawFn) -> list[Readable]:
    shapes = draw(st.lists(st.tuples(st.integers(0, 9), st.sets(st.sampled_from("abcd"))), max_size=5))
    return readable(*[(partitions, "".join(sorted(initials))) for partitions, initials in shapes])


held = st.dictionaries(st.integers(1, 50), st.sampled_from((*MEMBERS, "gone")))


@pytest.mark.parametrize("strategy", PARTITIONED_STRATEGIES)
@given(topics=any_topics(), before=held)
def test_every_partition_that_somebody_reads_goes_to_exactly_one_of_its_readers(
    strategy: str, topics: list[Readable], before: Plan
) -> None:
    found = plan(strategy, topics, before)
    assert sorted(found) == [slot for topic in topics for slot in topic.slots if topic.readers]
    assert all(found[slot] in topic.readers for topic in topics for slot in topic.slots if topic.readers)


@pytest.mark.parametrize("strategy", PARTITIONED_STRATEGIES)
@given(partitions=st.integers(0, 40), count=st.integers(1, 4), before=held)
def test_members_that_read_the_same_differ_by_one_partition_at_most(
    strategy: str, partitions: int, count: int, before: Plan
) -> None:
    found = plan(strategy, readable((partitions, "abcd"[:count])), before)
    counts = Counter(found.values())
    shares = [counts[member] for member in MEMBERS[:count]]
    assert max(shares) - min(shares) <= 1


def test_range_keeps_neighbours_together_topic_by_topic() -> None:
    assert in_ranges(readable((5, "ab"), (2, "ab"))) == {
        **dict.fromkeys((1, 2, 3), "anna"),
        **dict.fromkeys((4, 5), "ben"),
        6: "anna",
        7: "ben",
    }


def test_round_robin_deals_across_topics_so_that_small_ones_do_not_pile_up() -> None:
    assert in_turn(readable((1, "abc"), (1, "abc"), (1, "abc"), (1, "abc"))) == {
        1: "anna",
        2: "ben",
        3: "cleo",
        4: "anna",
    }


def test_round_robin_passes_over_members_that_do_not_read_the_topic() -> None:
    assert in_turn(readable((2, "ac"), (2, "b"))) == {1: "anna", 2: "cleo", 3: "ben", 4: "ben"}


def test_sticky_keeps_everything_when_nothing_changed() -> None:
    topics = readable((7, "abc"), (4, "bc"))
    first = sticky(topics, {})
    assert sticky(topics, first) == first


def test_sticky_gives_a_joiner_its_fair_share_and_moves_nothing_else() -> None:
    before = sticky(readable((9, "ab")), {})
    after = sticky(readable((9, "abc")), before)
    moved = [slot for slot in after if after[slot] != before[slot]]
    assert loads(after) == [3, 3, 3]
    assert len(moved) == 3
    assert all(after[slot] == "cleo" for slot in moved)


def test_sticky_spreads_a_leavers_share_and_moves_nothing_else() -> None:
    before = sticky(readable((9, "abc")), {})
    after = sticky(readable((9, "ab")), before)
    assert loads(after) == [4, 5]
    assert all(after[slot] == before[slot] for slot in after if before[slot] != "cleo")


def test_sticky_takes_from_those_who_have_most_and_from_nobody_who_has_to_be_given_to_again() -> None:
    topics = readable((4, "abc"), (1, "abc"), (3, "abc"))
    before = {1: "ben", 2: "ben", 3: "ben", 4: "ben", 5: "anna", 6: "anna", 7: "anna", 8: "anna"}
    found = sticky(topics, before)
    assert loads(found) == [2, 3, 3]
    assert [found[slot] for slot in before if found[slot] != before[slot]] == ["cleo", "cleo"]


@given(topics=any_topics(), before=held)
def test_no_single_move_would_even_out_a_sticky_plan_further(topics: list[Readable], before: Plan) -> None:
    found = sticky(topics, before)
    counts = Counter(found.values())
    for topic in topics:
        for slot in topic.slots if topic.readers else ():
            assert all(counts[found[slot]] <= counts[reader] + 1 for reader in topic.readers)


@given(topics=any_topics(), before=held)
def test_a_sticky_plan_is_a_fixed_point(topics: list[Readable], before: Plan) -> None:
    found = sticky(topics, before)
    assert sticky(topics, found) == found


@given(partitions=st.integers(1, 40), count=st.integers(1, 4), before=held)
def test_sticky_never_moves_more_than_the_fair_shares_ask_for(partitions: int, count: int, before: Plan) -> None:
    readers = MEMBERS[:count]
    found = sticky(readable((partitions, "abcd"[:count])), before)
    kept = Counter(before[slot] for slot in found if before.get(slot) in readers)
    stays = Counter(member for slot, member in found.items() if before.get(slot) == member)
    floor = partitions // count
    # Nobody at or below the fair share gives anything away.
    assert all(stays[member] >= min(kept[member], floor) for member in readers)
