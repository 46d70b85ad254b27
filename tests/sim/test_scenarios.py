"""Named scenarios, users' own, and what a run leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.core.trace import Row
from dovetail.sim import plan
from dovetail.sim.replay_page import page
from dovetail.sim.run import Verdict, run
from dovetail.sim.scenarios import SCENARIOS, BadScenario, load, plan_of
from dovetail.sim.trace import ParquetTrace

YAML = """
name: two-workers
chaos_ms: 2000
topics: [{name: orders, partitions: 2}]
producers: [{name: shop}]
consumers:
  - {name: w1, pattern: orders, group: workers}
  - {name: w2, pattern: orders, group: workers, nack: 100}
streams: [{who: shop, topic: orders, every_ms: 40, count: 4}]
events:
  - {do: Crash, at_ms: 900, power: true}
  - {do: PauseClient, at_ms: 1200, who: w1, for_ms: 700}
"""


TEMPORAL = (
    "crash-after-delivery",
    "member-crash-after-assignment",
    "crash-during-rebalance",
    "partition-during-rebalance",
    "revoke-unanswered",
    "drop-during-ack",
    "disk-error-during-settle",
    "skew-during-session-timeout",
    "zombie-member",
    "disk-full-during-recovery",
)
COMBINED = (
    "broker-and-half-the-consumers",
    "disk-and-partition",
    "memory-and-consumer-crashes",
    "skew-and-consumer-failures",
    "slow-consumer-spiral",
    "rebalance-storm",
)
SEEDS_MAX = 8


@pytest.mark.parametrize("name", [*TEMPORAL, *COMBINED])
def test_each_fault_of_time_and_each_combination_is_a_scenario_by_name(name: str) -> None:
    assert SCENARIOS[name].story


def test_each_kind_of_fault_strikes_in_some_scenario() -> None:
    struck = {type(event) for name in SCENARIOS for seed in range(3) for event in plan_of(name, seed).events}
    assert set(plan.FAULTS) <= struck


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_named_scenario_keeps_every_promise_and_does_what_its_name_says(name: str) -> None:
    left = set(SCENARIOS[name].reaches)
    for seed in range(1, SEEDS_MAX + 1):
        result = run(plan_of(name, seed))
        where = f"dovetail sim run --scenario {name} --seed {seed}"
        assert result.verdict.is_fine, f"{where}: {result.invariant} {result.text}"
        assert result.faults > 1
        left -= set(result.marks)
        if not left:
            return
    assert not left, f"{name} never came to what it is about: {left}"


@pytest.mark.parametrize("name", TEMPORAL)
def test_a_fault_of_time_says_by_which_mark_its_moment_is_seen(name: str) -> None:
    assert SCENARIOS[name].reaches


def test_the_scenario_among_the_examples_ends_as_it_says() -> None:
    result = run(load("examples/scenario.yaml", 7))
    assert result.verdict is Verdict.OK, result.text


def test_a_run_that_does_not_come_to_what_its_plan_says_has_missed_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{YAML}reaches: [lease timed out, Crash at confirm]\n")
    result = run(load(str(path), 3))
    assert result.verdict is Verdict.MISSED
    assert "did not reach: lease timed out, Crash at confirm" in result.text
    assert "crash" in result.text
    assert run(plan.Plan(chaos_ms=100, expect="damaged")).verdict is Verdict.MISSED


def test_a_scenario_of_a_user_is_read_from_yaml_and_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(YAML)
    setup = load(str(path), 3)
    assert [event.at_ms for event in setup.events if isinstance(event, plan.Crash)] == [900]
    result = run(setup)
    assert result.verdict is Verdict.OK
    assert result.confirmed == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("events: [{do: Crahs, at_ms: 1}]", "Crahs"),
        ("events: [{do: PauseClient, at_ms: 1, for_ms: 5, who: nobody}]", "nobody"),
        ("chaos: 5", "chaos"),
        ("- 1", "mapping"),
        ("events: [{do: Crash, at_ms: 1, on: delivery}]", "may be assign confirm deliver"),
        ("events: [{do: Crahs, at_ms: 1}]", "one of Checkpoint, .*Crash, CrashClient"),
        ("events: [{do: Crash, at_ms: -1}]", ">= 0"),
        ("consumers: [{name: a, pattern: b, nak: 3}]", "its fields are .*nack"),
        ("streams: [{who: a, topic: b, every_ms: 0}]", ">= 1"),
        ("streams: [{who: a, topic: b}]", "who can do this: none"),
        ("consumers: [{name: a, pattern: b}]\nproducers: [{name: a}]", "are called 'a'"),
        ("topics: [{name: b}]\nevents: [{do: DeleteTopic, at_ms: 1, topic: c}]", "the plan's topics: b"),
    ],
)
def test_what_is_wrong_in_a_users_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(BadScenario, match=said):
        load(str(path), 1)


def test_a_trace_is_written_as_parquet_with_the_columns_of_its_specification(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    rows: list[Row] = []
    setup = plan_of("drop-during-ack", 2)
    with ParquetTrace(str(tmp_path / "trace.parquet"), setup.name, setup.seed) as file:

        def keep(row: Row) -> None:
            rows.append(row)
            file.keep(row)

        result = run(setup, keep)
    table = pq.read_table(tmp_path / "trace.parquet")
    assert table.num_rows == result.rows == len(rows)
    assert table.column_names[:4] == ["run", "seed", "seq", "time_us"]
    assert table.column("kind").to_pylist() == [row.kind for row in rows]


def test_a_run_becomes_one_page_that_asks_the_network_for_nothing() -> None:
    rows: list[Row] = []
    result = run(plan_of("zombie-member", 1), rows.append)
    text = page(rows, "a <run>", {"verdict": str(result.verdict)})
    assert "a &lt;run&gt;" in text
    assert "http://" not in text
    assert "https://" not in text
    data = text.split("const data = ", 1)[1].split(";\n", 1)[0]
    assert len(json.loads(data)["rows"]) == result.rows
