"""What the benchmark counts, on figures small enough to check by hand."""

from dovetail.runtime.bench.loads import Figures, Received, Sent, deliver_times_ns, middle, percentiles_ms
from dovetail.runtime.bench.tables import table


def test_a_batch_is_delivered_when_its_first_message_comes_for_the_first_time() -> None:
    sent = [Sent(0, 0, 100), Sent(0, 10, 200), Sent(1, 0, 300)]
    received = [Received(0, 5, 14, 450), Received(0, 0, 4, 160), Received(0, 0, 4, 900), Received(1, 0, 0, 310)]
    assert deliver_times_ns(sent, received) == [60, 250, 10]


def test_a_batch_that_was_not_delivered_has_no_time() -> None:
    assert deliver_times_ns([Sent(0, 7, 100)], [Received(0, 0, 6, 200), Received(1, 7, 7, 200)]) == []


def test_percentiles_are_times_that_were_measured() -> None:
    times_ns = [number * 1_000_000 for number in range(1, 101)]
    assert percentiles_ms(times_ns) == {"p50": 51.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
    assert percentiles_ms([]) == {}


def test_of_several_rounds_the_one_with_the_median_rate_counts_as_a_whole() -> None:
    rounds = [Figures(30.0, 3.0), Figures(10.0, 1.0), Figures(20.0, 2.0)]
    assert middle(rounds) == Figures(20.0, 2.0)


def test_a_table_puts_words_to_the_left_and_numbers_to_the_right() -> None:
    text = table(["load", "msg/s"], [["a", "5"], ["longer", "1,000"]])
    assert text.splitlines() == ["load    msg/s", "a           5", "longer  1,000"]
