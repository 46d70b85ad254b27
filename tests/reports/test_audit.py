"""The audit finds what was planted, at the right seed and event, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from dovetail.reports import audit
from dovetail.reports.report import agreement
from dovetail.sim.run import Result, Verdict, run
from dovetail.sim.swarm import swarm
from tests.reports.traces import Story, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Planted = tuple[str, int, int]
"""The kind, the event's number, the offset."""


def nothing_wrong(story: Story) -> Planted | None:
    story.deliver("a", 0, 4, 1)
    story.ack("a", 0, 4, 1)
    story.deliver("b", 5, 9, 2)
    story.add("b", "disconnect", connection=2)
    story.deliver("a", 5, 9, 3)
    story.ack("a", 5, 9, 3)
    story.end()
    return None


def a_loss(story: Story) -> Planted:
    story.end(7)
    return "lost", 6, 7


def a_loss_at_the_end_of_the_log(story: Story) -> Planted:
    story.end(9)
    return "lost", 6, 9


def a_hole(story: Story) -> Planted:
    story.add("auditor", "read", topic="t", partition=0, first=0, last=1, values=(0, 1), connection=20)
    return "lost", story.add("auditor", "read", topic="t", partition=0, first=3, last=3, values=(3,)), 2


def a_log_that_is_shorter_than_was_confirmed(story: Story) -> Planted:
    asked = len(story.rows) - 1
    return "lost", story.add("auditor", "extent", topic="t", partition=0, first=0, last=8, asked=asked), 9


def a_delayed_message_that_never_comes(story: Story) -> Planted:
    said = story.add("p", "publish", topic="t", first=0, last=0, values=(50,), connection=9)
    lost = story.add("p", "delayed", topic="t", first=0, last=0, values=(50,), connection=9, asked=said)
    story.end()
    return "lost", lost, -1


def an_invention(story: Story) -> Planted:
    return "invented", story.deliver("a", 3, 3, 1, values=(77,)), 3


def a_delivery_without_its_bytes(story: Story) -> Planted:
    return "invented", story.deliver("a", 0, 2, 1, values=(0, -1, 2)), 1


def a_delivery_for_nobody(story: Story) -> Planted:
    where = {"topic": "t", "partition": 0, "first": 4, "last": 4, "values": (4,)}
    return "invented", story.add("a", "deliver", **where, connection=1, lease=1), 4


def a_duplicate(story: Story) -> Planted:
    story.deliver("a", 0, 4, 1)
    story.ack("a", 0, 4, 1)
    return "duplicated", story.deliver("b", 2, 2, 2), 2


def a_duplicate_after_a_crash_that_the_acknowledgment_had_outlived(story: Story) -> Planted:
    story.deliver("a", 0, 0, 1)
    story.ack("a", 0, 0, 1, mode="durable")
    story.add("broker", "down", generation=1)
    story.add("broker", "up", generation=2)
    return "duplicated", story.deliver("b", 0, 0, 2), 0


def one_batch_of_an_idempotent_producer_that_is_stored_twice(story: Story) -> Planted:
    story.publish(10, 1, mode="idempotent")
    where = {"topic": "t", "partition": 0, "first": 11, "last": 11, "values": (10,)}
    return "duplicated", story.add("auditor", "read", **where, connection=20), 11


def a_reorder(story: Story) -> Planted:
    story.deliver("a", 4, 5, 1)
    return "reordered", story.deliver("a", 2, 3, 2), 2


def a_double_hold(story: Story) -> Planted:
    story.deliver("a", 0, 4, 1)
    return "held twice", story.deliver("b", 3, 3, 2), 3


def an_ack_after_the_deadline(story: Story) -> Planted:
    story.deliver("a", 0, 0, 1)
    return "unfenced", story.ack("a", 0, 0, 1, after_us=1_200_000), 0


def an_ack_of_what_somebody_else_has(story: Story) -> Planted:
    story.deliver("a", 0, 0, 1)
    story.deliver("b", 0, 0, 2, after_us=1_200_000)
    return "unfenced", story.ack("a", 0, 0, 1), 0


def a_second_settle(story: Story) -> Planted:
    story.deliver("a", 0, 0, 1)
    story.ack("a", 0, 0, 1)
    return "unfenced", story.ack("a", 0, 0, 1), 0


def an_ack_of_a_lease_that_was_never_given(story: Story) -> Planted:
    return "unfenced", story.add("a", "ack", first=3, last=3, lease=99, connection=1, asked=len(story.rows) - 1), 3


def a_refusal_of_a_live_lease(story: Story) -> Planted:
    story.deliver("a", 0, 0, 1)
    where = {"topic": "t", "partition": 0, "first": 0, "last": 0, "group": "g", "member": "a"}
    asked = len(story.rows) - 1
    return "unfenced", story.add("a", "ack refused", **where, lease=1, connection=1, latency_us=100, asked=asked), 0


PLANTS: tuple[Callable[[Story], Planted | None], ...] = (
    nothing_wrong,
    a_loss,
    a_loss_at_the_end_of_the_log,
    a_hole,
    a_log_that_is_shorter_than_was_confirmed,
    a_delayed_message_that_never_comes,
    an_invention,
    a_delivery_without_its_bytes,
    a_delivery_for_nobody,
    a_duplicate,
    a_duplicate_after_a_crash_that_the_acknowledgment_had_outlived,
    one_batch_of_an_idempotent_producer_that_is_stored_twice,
    a_reorder,
    a_double_hold,
    an_ack_after_the_deadline,
    an_ack_of_what_somebody_else_has,
    a_second_settle,
    an_ack_of_a_lease_that_was_never_given,
    a_refusal_of_a_live_lease,
)
SEEN_TWICE = {100 + PLANTS.index(plant) for plant in (a_loss, an_invention)}
REAL = (8, 1)
"""The second has a topic with lanes."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, Planted | None]]:
    path = tmp_path_factory.mktemp("doctored")
    stories, wanted = {}, {}
    for seed, plant in enumerate(PLANTS, 100):
        story = Story()
        story.publish(0, 10)
        wanted[seed] = plant(story)
        stories[seed] = story.rows
    for seed in REAL:
        run(swarm(seed), stories.setdefault(seed, []).append)
    write(path, stories)
    return path, wanted


def test_each_plant_is_found_at_its_seed_and_event_and_real_runs_are_clean(
    spark: SparkSession, planted: tuple[Path, dict[int, Planted | None]]
) -> None:
    path, wanted = planted
    audit.prepare(spark, spark.read.parquet(str(path)))
    found: dict[int, set[Planted]] = {}
    for row in audit.findings(spark, 1).collect():
        # A loss leaves a hole too, and what was invented is not what the offset held before.
        assert (row.place, row.total) == (1, 2 if row.seed in SEEN_TWICE else 1)
        found.setdefault(row.seed, set()).add((row.kind, row.seq, row.at))
    assert found == {seed: {what} for seed, what in wanted.items() if what is not None}


def result(seed: int, invariant: str = "") -> Result:
    return Result("swarm", seed, Verdict.SAFETY if invariant else Verdict.OK, invariant)


@pytest.mark.parametrize(
    ("invariant", "kinds", "agree"),
    [
        ("", [], True),
        ("", ["lost"], False),
        ("I-LOST", ["lost"], True),
        ("I-LOST", [], False),
        ("I-LOST", ["reordered"], False),
        ("I-DRAIN", [], True),
        ("I-DRAIN", ["lost"], False),
    ],
)
def test_audit_and_checkers_agree_or_it_is_said(invariant: str, kinds: list[str], agree: bool) -> None:
    findings = [{"run": "swarm", "seed": 1, "kind": kind} for kind in kinds]
    assert agreement([result(1, invariant), result(2)], findings)[0].agree is agree


def test_every_kind_of_finding_answers_for_an_invariant_that_the_checkers_have() -> None:
    kinds = {kind for text in audit._FINDINGS.values() for kind in audit.ANSWERS_FOR if f"'{kind}'" in text}
    assert kinds == set(audit.ANSWERS_FOR)


@pytest.mark.parametrize(
    ("mistake", "scenario", "seed", "invariant", "kind"),
    [
        ("confirm-before-sync", "crash-after-confirm", 0, "I-LOST", "lost"),
        ("foreign-settle-accepted", "ghost-member", 0, "I-FENCE", "unfenced"),
    ],
)
def test_audit_and_checkers_find_the_same_in_a_real_run_of_a_mistaken_broker(
    spark: SparkSession, tmp_path: Path, mistake: str, scenario: str, seed: int, invariant: str, kind: str
) -> None:
    trace = tmp_path / "trace.parquet"
    command = [sys.executable, "-m", "tests.reports.mistaken", mistake, scenario, str(seed), str(trace)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    checked = msgspec.json.decode(said, type=Result)
    audit.prepare(spark, spark.read.parquet(str(trace)))
    found = [row.asDict() for row in audit.findings(spark).collect()]
    assert (checked.verdict, checked.invariant) == (Verdict.SAFETY, invariant)
    assert {(each["run"], each["seed"]) for each in found} == {(scenario, seed)}
    (agreed,) = agreement([checked], found)
    assert agreed.agree
    assert agreed.audit == kind
