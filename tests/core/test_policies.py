"""A topic's sync policy says which lsn a confirm waits for, and nothing else."""

import pytest

from dovetail.core.codes import SettleAction
from dovetail.core.effects import Appended
from dovetail.core.records import SyncPolicy, TopicConfig
from tests.core.running import Running


def with_topic(policy: SyncPolicy) -> Running:
    broker = Running()
    broker.create("a", TopicConfig(sync=policy))
    broker.commits.clear()
    return broker


def test_always_confirms_with_a_sync() -> None:
    broker = with_topic(SyncPolicy.ALWAYS)
    assert isinstance(broker.publish("a", "x"), Appended)
    assert broker.commits == [(1, True)]


@pytest.mark.parametrize("policy", [SyncPolicy.INTERVAL, SyncPolicy.OS])
def test_interval_and_os_confirm_with_a_write(policy: SyncPolicy) -> None:
    broker = with_topic(policy)
    assert isinstance(broker.publish("a", "x"), Appended)
    assert broker.commits == [(1, False)]


def test_interval_is_synced_within_a_second_although_nothing_else_happens() -> None:
    broker = with_topic(SyncPolicy.INTERVAL)
    broker.publish("a", "x")
    broker.advance(1_100)
    assert broker.commits == [(1, False), (0, True)]
    assert broker.node.committer.synced_lsn == broker.node.state.durable.lsn


def test_os_leaves_it_to_the_system() -> None:
    broker = with_topic(SyncPolicy.OS)
    broker.publish("a", "x")
    broker.advance(10_000)
    assert broker.commits == [(1, False)]


def test_a_settle_is_synced_at_most_its_linger_later_on_an_idle_broker() -> None:
    broker = with_topic(SyncPolicy.ALWAYS)
    reader = broker.consumer()
    reader.subscribe("a", "g")
    broker.publish("a", "x")
    broker.commits.clear()
    reader.settle(SettleAction.ACK)
    assert broker.commits == []
    broker.advance(broker.settings.settle_linger_ms)
    assert broker.commits == [(1, True)]


def test_a_confirm_of_a_synced_topic_in_the_same_tick_has_its_sync() -> None:
    broker = with_topic(SyncPolicy.OS)
    broker.create("b")
    broker.commits.clear()
    broker.publish("a", "x")
    assert isinstance(broker.publish("b", "y"), Appended)
    assert broker.commits[-1] == (1, True)
