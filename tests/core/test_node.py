"""The broker without I/O, told what sockets do."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.core import batch, wire
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


_U64 = ((1 << 31), (1 << 32) + 1, (1 << 63) - 1, (1 << 64) - 1)
_U32 = ((1 << 31), (1 << 32) - 1)
_I32 = (-(1 << 31), -1, (1 << 31) - 1)
_BATCHES = tuple(batch.build([(b"k", b"v", ())], timestamp_ms=made_ms) for made_ms in (-(1 << 63), 0, (1 << 63) - 1))


@st.composite
def _requests(draw: st.DrawFn) -> wire.Request:
    """A request that is sound by its form, with numbers from anywhere in what its fields can hold."""
    names, groups = st.sampled_from(("a", "b.c", "a.dlq")), st.sampled_from(("g", "h"))
    u64, u32, i32 = (st.one_of(st.integers(0, 3), st.sampled_from(ends)) for ends in (_U64, _U32, _I32))
    lane = st.integers(0, 5)
    data = st.sampled_from(_BATCHES)
    item = st.builds(wire.SettleItem, u64, st.integers(1, 4), u64, u64, st.integers(0, 255), u32, st.just("why"))
    return draw(
        st.one_of(
            st.builds(wire.Publish, names, st.just(()), st.just(b"x"), u32, st.booleans()),
            st.builds(wire.Subscribe, names, groups, st.sampled_from((0, 1, 0xFFFF)), st.booleans()),
            st.builds(wire.Produce, names, i32, st.integers(0, 2), u64, u64, data, lane),
            st.builds(wire.Settle, st.lists(item, max_size=2).map(tuple), st.integers(0, 1)),
            st.builds(wire.Fetch, names, i32, u64, u32, u32, lane),
            st.builds(wire.Commit, groups, names, i32, u64, lane),
            st.builds(wire.Seek, groups, names, i32, st.integers(0, 3), u64, lane),
            st.builds(wire.Credit, st.sampled_from(("1", "2", str((1 << 64) - 1))), st.sampled_from((0, 1, 0xFFFF))),
        )
    )


@example([wire.Produce("a", -1, 1, delay_ms, (1 << 64) - 1, _BATCHES[0]) for delay_ms in (0, 1_000)])
@settings(max_examples=50)
@given(st.lists(_requests(), min_size=1, max_size=12))
def test_no_number_that_a_frame_can_carry_harms_the_broker_and_what_was_stored_is_there_after_a_crash(
    requests: list[wire.Request],
) -> None:
    broker = Running()
    for number in range(2):
        client = broker.connect(native=number == 0)
        client.send(*requests)
        broker.jump(31_000)
    before = broker.node.state.durable.logs
    broker.crash()
    assert broker.node.state.durable.logs == before
    assert broker.connect().ask(wire.Heartbeat()) == wire.GenerationAnswer(0)
