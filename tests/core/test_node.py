"""The broker without I/O, told what sockets do."""

from dovetail.core.awaken import awaken
from dovetail.core.codes import SettleAction
from dovetail.core.committer import Committer
from dovetail.core.connection import Terms
from dovetail.core.ids import Now
from dovetail.core.node import Node, NodeOptions
from dovetail.core.records import AttemptFailed, DeadLettered, TopicConfig
from dovetail.core.shelf import Shelf
from dovetail.core.state import Durable, Settings
from tests.core.running import Running


def test_who_reads_slowly_stays_and_who_reads_nothing_is_told_and_closed() -> None:
    options = NodeOptions(stall_ms=1_000, send_window_bytes=100)
    committer = Committer(lsn=0, crc=0, salt=1, linger_ms=50)
    node = Node(awaken(Durable(), Settings()), committer, Terms(), options)
    slow, stuck = node.connect("slow"), node.connect("stuck")
    for second in range(1, 6):
        now = Now(second * 1_000, second * 1_000)
        for session in node.unread(now):
            node.wrote(session, 1_000 - second if session == slow else 1_000)
        node.tick(now)
        if second == 1:
            node.wrote(slow, 1_000)
            node.wrote(stuck, 1_000)
        ended = [(session, b"read" in b"".join(said)) for session, said, closing in node.outgoing() if closing]
        assert ended == ([(stuck, True)] if second == 2 else [])
        for session, _ in ended:
            node.disconnect(session)


def test_a_lease_that_ran_out_while_its_message_was_read_is_no_attempt() -> None:
    broker = Running()
    broker.node.shelf = Shelf(tail_bytes_max=0, read_bytes_max=1 << 20)
    broker.create("a", TopicConfig(lease_ms=1_000, max_retries=0))
    broker.publish("a", "once")
    broker.advance(1_000)
    reader = broker.consumer()
    take, broker.node.next_job = broker.node.next_job, lambda: None  # type: ignore[method-assign]  # the disk is stuck
    reader.subscribe("a", "g")
    for _ in range(5):
        broker.advance(1_000)
    assert reader.texts == []
    broker.node.next_job = take  # type: ignore[method-assign]  # it goes on
    broker.settle_down()
    assert reader.texts == ["once"]
    assert [each.attempt for each in reader.held] == [1]
    assert reader.settle(SettleAction.ACK) == 1
    assert not any(isinstance(record, AttemptFailed | DeadLettered) for record in broker.records)


def test_a_lease_that_ran_out_after_its_message_was_sent_is_an_attempt() -> None:
    broker = Running()
    broker.create("a", TopicConfig(lease_ms=1_000, max_retries=0))
    reader = broker.consumer()
    reader.subscribe("a", "g")
    broker.publish("a", "once")
    broker.advance(1_100)
    assert any(isinstance(record, AttemptFailed) for record in broker.records)
