"""Options and plans of the Spark source, without Spark: what is read, by whom, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from dovetail.reports.source_options import Offsets, SourceError, read_options
from dovetail.reports.source_plan import Slice, Wanted, limited, narrow, place, split

OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tpoic": "orders"}, "did you mean topic?"),
        ({"startingOffset": "first"}, "write earliest, latest, an offset"),
        ({"startingOffset": "-1"}, "no place in a log"),
        ({"startingOffset": '{"orders": 5}'}, "there must be its partitions"),
        ({"startingOffset": '{"orders": {"a": 5}}'}, "'a' is no partition"),
        ({"endingOffset": "{"}, "no JSON"),
        ({"topic": "orders.*"}, "use the option pattern"),
        ({"topic": "a,,b"}, "name a topic"),
        ({"topic": "a", "pattern": "b.*"}, "both set"),
        ({"url": "http://somewhere"}, "dovetail://host:port"),
        ({"maxOffsetsPerTask": "0"}, "a whole number from 1"),
        ({"failOnDataLoss": "no"}, "write true or false"),
        ({"timeout": "soon"}, "not a duration"),
        ({"startingTime": "yesterday"}, "milliseconds since 1970"),
        ({"startingTime": "5", "endingTime": "5"}, "nothing would be read"),
        ({"path": "orders"}, "use .option(\"topic\", 'orders')"),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_be_right(given: dict[str, str], says: str) -> None:
    with pytest.raises(SourceError) as refused:
        read_options(given)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_are_read_in_any_case_and_sparks_own_are_left_alone() -> None:
    found = read_options({"TOPIC": "a/b, c", "checkpointLocation": "/x", "startingtime": "2026-01-31T12:00:00+01:00"})
    assert found.topics == ("a.b", "c")
    assert found.since_ms == 1_769_857_200_000


def test_a_place_is_a_word_or_a_number_for_all_logs_or_one_for_each() -> None:
    offsets = read_options({"startingOffset": '{"orders": {"0": 17, "1": "latest"}}'}).start
    places = [place(offsets, ("orders", partition, 0), (3, 90)) for partition in range(3)]
    assert places == [17, 90, 3]
    assert place(Offsets(40), ("orders", 0, 0), (3, 90)) == 40


def test_what_is_not_named_ends_with_the_latest() -> None:
    ends = read_options({"endingOffset": '{"orders": {"0": 17}}'}).end
    assert [place(ends, ("orders", partition, 0), (3, 90)) for partition in range(2)] == [17, 90]


def test_filters_over_topic_partition_offset_and_time_are_taken_over_exactly() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    filters: list[Filter] = [
        IsNotNull(OFFSET),
        GreaterThan(OFFSET, 9),
        LessThanOrEqual(OFFSET, 19),
        In(TOPIC, ("a", "b")),
        EqualTo(TOPIC, "b"),
        GreaterThanOrEqual(PARTITION, 1),
        In(PARTITION, (0, 1, 2)),
        LessThan(TIMESTAMP, noon),
    ]
    wanted, left = narrow(Wanted(), filters)
    assert left == []
    assert (wanted.first, wanted.end) == (10, 20)
    assert [log for log in (("a", 1, 0), ("b", 0, 0), ("b", 1, 0), ("b", 3, 0)) if wanted.has(log)] == [("b", 1, 0)]
    assert wanted.until_us == round(noon.timestamp() * 1_000_000)


def test_filters_that_can_not_be_kept_exactly_are_left_to_spark() -> None:
    filters: list[Filter] = [
        StringStartsWith(TOPIC, "a"),
        EqualTo(("key",), b"x"),
        LessThan(TIMESTAMP, datetime(2026, 1, 1)),
    ]
    wanted, left = narrow(Wanted(), filters)
    assert left == filters
    assert wanted == Wanted()


def test_a_null_in_a_list_of_lanes_is_no_topic_without_lanes() -> None:
    wanted, left = narrow(Wanted(), [In(("lane",), ("high", None))])
    assert left == []
    assert [log for log in (("jobs", 0, 2), ("orders", 0, 0)) if wanted.has(log)] == [("jobs", 0, 2)]


def test_a_slice_is_split_without_gap_or_overlap() -> None:
    parts = list(split(Slice("a", 0, 0, 5, 26), 10))
    assert [(part.first, part.end) for part in parts] == [(5, 15), (15, 25), (25, 26)]
    assert list(split(Slice("a", 0, 0, 7, 7), 10)) == []


def test_a_limit_is_shared_by_what_waits_and_starves_nobody() -> None:
    start = {("a", 0, 0): 0, ("a", 1, 0): 100, ("b", 0, 0): 7}
    end = {("a", 0, 0): 900, ("a", 1, 0): 200, ("b", 0, 0): 8}
    found = limited(start, end, 100)
    taken = {log: found[log] - start[log] for log in start}
    assert 100 <= sum(taken.values()) <= 100 + len(end)
    assert taken["a", 0, 0] > taken["a", 1, 0] > taken["b", 0, 0] == 1
    assert limited(start, end, 5_000) == end
    while found != end:
        found = limited(found, end, 100)


def test_a_log_that_ends_before_its_place_is_not_taken_back() -> None:
    assert limited({("a", 0, 0): 50, ("a", 1, 0): 0}, {("a", 0, 0): 50, ("a", 1, 0): 900}, 10) == {
        ("a", 0, 0): 50,
        ("a", 1, 0): 10,
    }
