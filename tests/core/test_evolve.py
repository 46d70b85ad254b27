"""Durable state, record by record: what no decision leads to yet, and records that can't follow from the state."""

from __future__ import annotations

import pytest

from dovetail.core import records
from dovetail.core.evolve import evolve, evolve_frame
from dovetail.core.ids import Bug
from dovetail.core.records import AnyRecord, TopicConfig
from dovetail.core.state import Durable
from tests.core import actions
from tests.core.broker import Broker


def a_durable_state() -> Durable:
    broker = Broker()
    broker.consumer("t", "g")
    broker.publish("t", 3)
    return broker.state.durable


def test_a_topic_is_configured() -> None:
    config = TopicConfig(max_retries=9)
    assert evolve(a_durable_state(), records.TopicConfigured(1, config)).topics[1].config == config


def test_a_deleted_group_takes_its_cursors_along() -> None:
    durable = evolve(a_durable_state(), records.GroupDeleted(1))
    assert not durable.groups
    assert not durable.groups_by_name
    assert not durable.cursors


def test_a_removed_pattern_is_no_longer_the_groups() -> None:
    assert evolve(a_durable_state(), records.PatternRemoved(1, "t")).groups[1].patterns == ()


IMPOSSIBLE: tuple[tuple[str, AnyRecord], ...] = (
    ("I-INCARNATION", records.BrokerStarted(7, 0)),
    ("I-NAMES", records.TopicCreated(9, "t", 1, 0, 9, (0,), TopicConfig(), False, 0)),
    ("I-NAMES", records.TopicCreated(9, "u", 2, 0, 9, (0,), TopicConfig(), False, 0)),
    ("I-DENSE", records.BatchAppended(1, 5, 1, 0, 0, 0, 0, 1, -1, -1, -1, 1)),
    ("I-DENSE", records.BatchAppended(1, 3, 0, 0, 0, 0, 0, 1, -1, -1, -1, 1)),
    ("I-RETAIN", records.LogTrimmed(1, 4)),
    ("I-NAMES", records.GroupCreated(9, "g", "shared", "round-robin", 0)),
    ("I-GENERATION", records.MemberJoined(1, "m", 7, 0)),
    ("I-CURSOR", records.CursorOpened(1, 1, 0)),
)


@pytest.mark.parametrize(("invariant", "record"), IMPOSSIBLE, ids=[type(each).__name__ for _, each in IMPOSSIBLE])
def test_a_record_that_can_not_follow_is_a_bug(invariant: str, record: AnyRecord) -> None:
    with pytest.raises(Bug, match=f"^{invariant}:"):
        evolve(a_durable_state(), record)


def test_frames_follow_each_other_without_a_gap() -> None:
    with pytest.raises(Bug, match="I-LSN"):
        evolve_frame(Durable(), 2, 0, ())


def test_the_time_of_frames_never_goes_back() -> None:
    durable = evolve_frame(evolve_frame(Durable(), 1, 500, ()), 2, 400, ())
    assert durable.wall_ms == 500


def test_folding_all_frames_gives_the_live_state() -> None:
    for seed in range(5):
        world = actions.run(seed, 100)
        durable = Durable()
        for lsn, wall_ms, frame in world.frames:
            durable = evolve_frame(durable, lsn, wall_ms, frame)
        assert durable == world.state.durable
