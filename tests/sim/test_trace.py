"""The trace says what a judge needs: who held what until when, what it holds, and what the end of the log was."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from dovetail.core.trace import Row
from dovetail.sim.run import run
from dovetail.sim.swarm import swarm
from dovetail.sim.trace import schema, to_arrow

SEED = 2
"""Of a plan in which nothing confirmed may be lost: no disk is repaired, no topic is relaxed or deleted."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    found: list[Row] = []
    run(swarm(SEED), found.append)
    terms = json.loads(found[0].detail)
    assert not any(terms[each] for each in ("repair", "relaxed", "deleted")), "another seed is needed"
    return found


@pytest.mark.parametrize("seed", [SEED, 30, 55])
def test_every_kind_of_row_is_explained_in_the_specification(seed: int) -> None:
    said = files("dovetail.spec").joinpath("trace.md").read_text(encoding="utf-8")
    kinds: set[str] = set()
    run(swarm(seed), lambda row: kinds.add(row.kind))
    assert len(kinds) > 20
    assert {kind for kind in kinds if f"`{kind}`" not in said} == set()


def test_the_first_row_has_the_terms_of_the_run(rows: list[Row]) -> None:
    assert rows[0].kind == "setup"
    assert json.loads(rows[0].detail)["lease_ms"] == swarm(SEED).broker.lease_ms


def test_every_row_about_messages_has_a_value_for_each_of_them(rows: list[Row]) -> None:
    about = [row for row in rows if row.kind in ("publish", "confirm", "delayed", "deliver", "read", "dead")]
    assert about
    assert all(len(row.values) == row.last - row.first + 1 for row in about)


def test_what_is_delivered_was_published_as_the_same_number(rows: list[Row]) -> None:
    published = {value for row in rows if row.kind == "publish" for value in row.values}
    assert {value for row in rows if row.kind in ("deliver", "read") for value in row.values} <= published


def test_a_settle_names_the_lease_and_connection_of_its_delivery(rows: list[Row]) -> None:
    leased = {(row.connection, row.lease) for row in rows if row.kind == "deliver"}
    settles = [row for row in rows if row.kind in ("ack", "nack", "reject", "extend")]
    assert settles
    assert all((row.connection, row.lease) in leased and 0 <= row.asked < row.seq for row in settles)


def test_the_auditor_reads_the_whole_log_after_the_last_power_loss(rows: list[Row]) -> None:
    last_up = max(row.seq for row in rows if row.kind == "up")
    read = {(row.topic, row.partition, at) for row in rows[last_up:] if row.kind == "read" for at in offsets(row)}
    assert {(row.topic, row.partition, at) for row in rows if row.kind == "confirm" for at in offsets(row)} <= read


def test_a_rebalance_is_told_from_join_to_assignment(rows: list[Row]) -> None:
    kinds = [row.kind for row in rows if row.group == "g2" and row.kind in ("join", "joined", "assign")]
    assert kinds[:2] == ["join", "joined"]
    assert "assign" in kinds


def test_rows_become_arrow_with_one_column_for_each_field(rows: list[Row]) -> None:
    batch = to_arrow(rows[:100], "swarm", SEED)
    assert batch.schema.equals(schema())
    assert batch.column("values").to_pylist()[20] == list(rows[20].values)


def offsets(row: Row) -> range:
    return range(row.first, row.last + 1)
