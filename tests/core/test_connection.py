"""What a client reads and writes, byte for byte, of a whole node without I/O."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.core import batch, frames, inputs, wire
from dovetail.core.access import Access, Role
from dovetail.core.codes import Acks, Outcome, Priority, SettleAction, Status, Wait, Whence
from dovetail.core.connection import ENDED_IDS_MAX, LISTINGS_MAX, Connection, Terms
from dovetail.core.effects import Assign, Subscribed, Topics
from dovetail.core.frames import ErrorCode, Frame, FrameDecoder, FrameType
from dovetail.core.kernels import LANES
from dovetail.core.node import NodeOptions
from dovetail.core.records import BatchAppended, TopicConfig
from dovetail.core.state import Settings
from tests.core.running import START_WALL_MS, Client, Running, refusal


def values(delivery: wire.Deliver) -> list[bytes]:
    """The values of a delivery's batches, from one record to the next."""
    found, data = [], delivery.batches
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        found += [record.value or b"" for record in batch.parse(data[:size])]
        data = data[size:]
    return found


def produce(topic: str, *texts: str, **fields: int) -> wire.Produce:
    data = batch.build([(None, text.encode(), ()) for text in texts], timestamp_ms=1)
    return wire.Produce(topic, fields.pop("partition", -1), Acks.STORED, 0, 0, bytes(data), **fields)


def one_record(size: int) -> bytes:
    return bytes(batch.build([(None, bytes(size), ())], timestamp_ms=1))


def test_hello_is_answered_with_the_terms() -> None:
    terms = Terms()
    client = Running().connect()
    expected = ("dovetail", client.session, 0, terms.heartbeat_ms, terms.session_timeout_ms, terms.frame_bytes_max)
    assert client.hello == wire.HelloAnswer(*expected)


def test_a_delivery_says_where_its_messages_are_stored_and_how_long_they_are_leased() -> None:
    broker = Running()
    broker.create("plain", TopicConfig(lease_ms=7_000), partitions=3)
    client = broker.connect()
    assert client.ask(wire.Subscribe("plain", "g", 100)) == wire.SubscribeAnswer("1")
    answer = client.ask(produce("plain", "a", "b", partition=2))
    assert answer == wire.ProduceAnswer(2, 0, START_WALL_MS, 0, "")
    (delivery,) = client.deliveries()
    where = (delivery.subscription_id, delivery.topic, delivery.partition, delivery.lane)
    assert where == ("1", "plain", 2, 0)
    assert (delivery.attempt, delivery.deadline_ms, delivery.ranges) == (1, START_WALL_MS + 7_000, ((0, 1),))
    assert values(delivery) == [b"a", b"b"]
    assert delivery.lease > 0


def test_lanes_are_counted_from_one_in_deliveries_confirmations_and_listings_are_not() -> None:
    broker = Running()
    broker.create("a", lanes=LANES)
    client = broker.connect()
    client.send(wire.Subscribe("a", "g", 100))
    client.take(FrameType.RESPONSE)
    answer = client.ask(produce("a", "x", priority=Priority.CRITICAL))
    assert isinstance(answer, wire.ProduceAnswer)
    (delivery,) = client.deliveries()
    assert (answer.lane, delivery.lane) == (1, 1)
    listed = client.ask(wire.Metadata("a"))
    logs = tuple(wire.LogMetadata(0, lane, 0, 1 if lane == 0 else 0) for lane in range(LANES))
    assert listed == wire.MetadataAnswer((wire.TopicMetadata("a", logs),))
    assert client.ask(wire.Seek("g", "a", 0, Whence.OFFSET, 1, lane=1)) == wire.SeekAnswer(1)
    assert client.ask(wire.Commit("g", "a", 0, 1, lane=1)) == wire.PlainAnswer()


def test_a_fetch_reads_stored_batches_from_an_offset_on() -> None:
    broker = Running()
    client = broker.connect()
    for text in ("a", "b", "c"):
        client.ask(produce("t", text))
    answer = client.ask(wire.Fetch("t", 0, 1, 1_000_000))
    assert isinstance(answer, wire.FetchAnswer)
    assert (answer.start, answer.end) == (0, 3)
    assert values(wire.Deliver("", "", 0, 0, 0, 0, 0, (), answer.batches)) == [b"b", b"c"]


def test_a_settle_is_answered_item_by_item() -> None:
    broker = Running()
    client = broker.connect()
    client.ask(wire.Subscribe("t", "g", 100))
    client.ask(produce("t", "a", "b", "c"))
    (delivery,) = client.deliveries()
    items = (
        wire.SettleItem(delivery.lease, SettleAction.ACK, 0, 0),
        wire.SettleItem(delivery.lease, SettleAction.NACK, 1, 1, delay_ms=1_000),
        wire.SettleItem(delivery.lease + 1, SettleAction.ACK, 2, 2),
    )
    answer = client.ask(wire.Settle(items, Wait.DURABLE))
    assert isinstance(answer, wire.SettleAnswer)
    assert [each.status for each in answer.outcomes] == [Status.OK, Status.OK, Status.LEASE_LOST]
    assert [each.action for each in answer.outcomes[:2]] == [Outcome.SETTLED, Outcome.REQUEUED]


def test_credit_unsubscribing_and_membership_reach_the_subscription_and_the_member_they_name() -> None:
    broker = Running()
    client = broker.connect()
    client.ask(wire.Subscribe("t", "g", 1))
    client.ask(produce("t", "a", "b", "c"))
    assert [each.ranges for each in client.deliveries()] == [((0, 0),)]
    assert client.ask(wire.Credit("1", 2)) == wire.PlainAnswer()
    assert [each.ranges for each in client.deliveries()] == [((1, 1),)]
    assert client.ask(wire.Unsubscribe("1")) == wire.PlainAnswer()
    for wrong in ("2", "", "one", "1" * 20, "\u0661"):
        refused = client.ask(wire.Unsubscribe(wrong))
        assert isinstance(refused, wire.Refusal)
        assert refused.status == Status.NOT_FOUND
    joined = client.ask(wire.JoinGroup("crew", "me"))
    assert isinstance(joined, wire.GenerationAnswer)
    assert client.ask(wire.Heartbeat("me")) == wire.GenerationAnswer(joined.generation)
    assert client.ask(wire.LeaveGroup("crew", "me")) == wire.PlainAnswer()


@pytest.mark.parametrize(("leased", "sent"), [(4, 4), (5, 10), (10, 10)])
def test_a_batch_of_which_the_smaller_part_is_leased_is_sent_without_most_of_the_rest(leased: int, sent: int) -> None:
    broker = Running()
    client = broker.connect()
    client.ask(produce("t", *"0123456789"))
    client.ask(wire.Subscribe("t", "g", leased))
    (delivery,) = client.deliveries()
    assert delivery.ranges == ((0, leased - 1),)
    assert values(delivery) == [str(number).encode() for number in range(sent)]


def test_what_of_a_batch_is_leased_is_counted_range_by_range() -> None:
    broker = Running()
    client = broker.connect()
    client.ask(produce("t", *"0123456789"))
    client.ask(wire.Subscribe("t", "g", 10))
    (delivery,) = client.deliveries()
    kept = ((0, 0), (5, 6))
    settled = [(1, 4), (7, 9)]
    items = [wire.SettleItem(delivery.lease, SettleAction.ACK, first, last) for first, last in settled]
    items += [wire.SettleItem(delivery.lease, SettleAction.NACK, first, last) for first, last in kept]
    client.ask(wire.Settle(tuple(items)))
    broker.advance(5_000)
    again = client.deliveries()
    assert next(value for each in again for value in values(each)) == b"0"
    assert {each.attempt for each in again} == {2}
    assert sum(len(values(each)) for each in again) < 10


def test_who_said_no_hello_gets_single_messages_each_with_an_id_of_its_own() -> None:
    broker = Running()
    client = broker.connect(native=False)
    client.ask(wire.Subscribe("t", "g", 10))
    confirmed = [client.ask(wire.Publish("t", (("k", "v"),), text)) for text in (b"a", b"b")]
    assert confirmed == [wire.PublishAnswer(f"t:0:{offset}", START_WALL_MS) for offset in (0, 1)]
    deadline_ms = START_WALL_MS + TopicConfig().lease_ms
    assert client.messages() == [
        wire.Delivery("1", "t:0:0#1", "t", (("k", "v"),), b"a", deadline_ms),
        wire.Delivery("1", "t:0:1#2", "t", (("k", "v"),), b"b", deadline_ms),
    ]


def plain_reader(count: int) -> tuple[Running, Client]:
    """A client without HELLO that holds `count` messages of one batch."""
    broker = Running()
    client = broker.connect(native=False)
    client.ask(wire.Subscribe("t", "g", count))
    broker.publish("t", *["x"] * count)
    assert len(client.messages()) == count
    return broker, client


def status_of(answer: wire.Answer | wire.Refusal) -> int:
    return answer.status if isinstance(answer, wire.Refusal) else Status.OK


def test_an_ack_of_what_is_over_comes_too_late_and_of_what_never_was_is_not_found() -> None:
    _, client = plain_reader(3)
    for message_id, status in [
        ("t:0:0", Status.OK),
        ("t:0:0", Status.LEASE_LOST),
        ("t:0:0#1", Status.LEASE_LOST),
        ("t:0:1#2", Status.OK),
        ("t:0:1#2", Status.LEASE_LOST),
        ("t:0:1#3", Status.NOT_FOUND),
        ("t:0:2#4", Status.NOT_FOUND),
        ("t:0:9", Status.NOT_FOUND),
        ("t:0:2#", Status.NOT_FOUND),
        ("t:0:2#3", Status.OK),
    ]:
        assert status_of(client.ask(wire.Ack(message_id))) == status, message_id


def test_a_message_that_came_twice_has_to_be_named_with_its_number() -> None:
    _, client = plain_reader(1)
    other = client.ask(wire.Subscribe("t", "h", 1))
    assert isinstance(other, wire.SubscribeAnswer)
    assert [each.message_id for each in client.messages()] == ["t:0:0#2"]
    refused = client.ask(wire.Ack("t:0:0"))
    assert isinstance(refused, wire.Refusal)
    assert (refused.status, "2 times" in refused.reason) == (Status.INVALID, True)
    assert client.ask(wire.Nack("t:0:0#2", retry_requested=False)) == wire.NackAnswer(Outcome.DEAD_LETTERED)
    assert client.ask(wire.Ack("t:0:0")) == wire.PlainAnswer()


def test_the_newest_thousand_ids_of_ended_deliveries_are_remembered() -> None:
    _, client = plain_reader(ENDED_IDS_MAX + 1)
    for offset in range(ENDED_IDS_MAX + 1):
        client.send(wire.Ack(f"t:0:{offset}"))
    client.take(FrameType.RESPONSE)
    assert status_of(client.ask(wire.Ack("t:0:0"))) == Status.NOT_FOUND
    assert status_of(client.ask(wire.Ack("t:0:1"))) == Status.LEASE_LOST


def test_a_nack_is_retried_or_not_as_it_asks() -> None:
    _, client = plain_reader(2)
    assert client.ask(wire.Nack("t:0:0", retry_requested=True)) == wire.NackAnswer(Outcome.REQUEUED)
    assert client.ask(wire.Nack("t:0:1", retry_requested=False)) == wire.NackAnswer(Outcome.DEAD_LETTERED)


def test_requests_are_answered_in_their_turn_and_those_with_a_correlation_as_they_come() -> None:
    broker = Running()
    client = broker.connect()
    ask = wire.Fetch("t", 0, 0, 1_000, 5_000)
    client.ask(produce("t", "x"))
    end = replace(ask, offset=1)
    late = frames.encode(end.TYPE, end.encode())
    plain = frames.encode(FrameType.HEARTBEAT, b"")
    marked = frames.encode(FrameType.HEARTBEAT, b"", 0)
    broker.node.receive(client.session, late + plain + marked)
    broker.settle_down()
    (early,) = client.take(FrameType.RESPONSE)
    assert early.correlation == 0
    broker.advance(6_000)
    first, second = client.take(FrameType.RESPONSE)
    assert (first.correlation, second.correlation) == (None, None)
    assert isinstance(wire.decode_answer(FrameType.FETCH, first.payload), wire.FetchAnswer)
    assert isinstance(wire.decode_answer(FrameType.HEARTBEAT, second.payload), wire.GenerationAnswer)


def test_what_was_joined_in_one_tick_is_split_by_a_produce_and_not_by_a_settle() -> None:
    broker = Running()
    client = broker.connect(native=False)
    client.ask(wire.Subscribe("t", "g", 100))
    one = wire.Publish("t", (), b"x")
    client.send(one, one)
    client.send(one, wire.Ack("t:0:0#1"), wire.Heartbeat(), one)
    client.send(one, produce("t", "y"), one)
    client.send(one, wire.Subscribe("u"), one)
    assert [record.count for record in broker.records if isinstance(record, BatchAppended)] == [
        *(2, 2),
        *(1, 1, 1),
        *(1, 1),
    ]


@pytest.mark.parametrize("size", [999, 1_000, 1_001, 5_000])
def test_a_reason_is_cut_after_a_thousand_characters(size: int) -> None:
    line = Connection(1, "peer", Terms(), lambda data: 1)
    line.end(ErrorCode.TOO_SLOW, "x" * size)
    (said,) = FrameDecoder().feed(b"".join(line.out))
    assert isinstance(said, Frame)
    message = wire.decode_message(said.type, said.payload)
    assert isinstance(message, wire.Error)
    assert message.text == "x" * min(size, 1_000) + "…" * (size > 1_000)


def test_only_so_many_listings_are_under_way() -> None:
    line = Connection(1, "peer", Terms(), lambda data: 1)
    ask = wire.Metadata("*")
    data = frames.encode(ask.TYPE, ask.encode())
    asked = [each for each in line.receive(data * (LISTINGS_MAX + 1)) if isinstance(each, inputs.ListTopics)]
    assert len(asked) == LISTINGS_MAX
    line.answer(asked[0].request, Topics(()))
    assert len(line.receive(data)) == 1
    assert line.receive(data) == []


def test_a_token_may_do_what_it_was_given_and_nothing_else() -> None:
    access = Access("reader", Role.READ, ("a.#",))
    line = Connection(1, "peer", Terms(admit=lambda token: access if token == "right" else None), lambda data: 1)
    arrivals = []
    for each in (wire.Hello("me", "right"), wire.Subscribe("a.b"), wire.Subscribe("b"), produce("a.b", "x")):
        arrivals += line.receive(frames.encode(each.TYPE, each.encode()))
    line.answer(2, Subscribed(1))
    assert [type(each).__name__ for each in arrivals] == ["SessionOpened", "Subscribe"]
    assert b"does not have role write for a.b" in b"".join(line.out)


def test_who_is_too_far_behind_is_told_which_messages_were_skipped() -> None:
    broker = Running(Settings(session_timeout_ms=1 << 50, ephemeral_lag_max=10))
    for topic, lanes in (("plain", 0), ("laned", LANES)):
        broker.create(topic, lanes=lanes)
        client = broker.connect()
        client.ask(wire.Subscribe(topic, "", 1))
        for _ in range(20):
            broker.publish(topic, "x")
        lane = ".2" if lanes else ""
        assert any(f"{topic}:0{lane}:1 to " in text for text in client.errors()), client.errors()


def test_a_fetch_waits_while_its_reader_takes_nothing_whether_or_not_anything_else_is_due() -> None:
    broker = Running()
    client = broker.connect()
    client.ask(produce("t", "a"))
    broker.node.wrote(client.session, broker.node.options.send_window_bytes)
    client.send(wire.Fetch("t", 0, 0, 1_000_000))
    assert broker.node.state.live.timers.wake_ms is None
    broker.jump(1)
    assert client.take(FrameType.RESPONSE) == []
    broker.node.wrote(client.session, 0)
    broker.settle_down()
    assert len(client.take(FrameType.RESPONSE)) == 1


def test_what_was_sent_and_needs_no_acknowledgment_gives_its_credit_back() -> None:
    broker = Running()
    client = broker.connect()
    client.ask(wire.Subscribe("t", "g", 2, auto_ack=True))
    client.ask(produce("t", "a", "b", "c", "d", "e"))
    assert [each.ranges for each in client.deliveries()] == [((0, 1),), ((2, 3),), ((4, 4),)]
    (number,) = broker.node.state.live.subscriptions
    assert broker.node.state.live.subscriptions[number].in_flight == 0


def test_who_takes_nothing_of_what_was_sent_is_told_why_and_closed() -> None:
    broker = Running()
    client = broker.connect()
    most = broker.node.options.send_buffer_bytes_max
    broker.node.wrote(client.session, most)
    broker.settle_down()
    assert (client.is_closed, client.errors()) == (False, [])
    broker.node.wrote(client.session, most + 1)
    broker.settle_down()
    assert client.is_closed
    assert f"{most + 1} bytes wait to be read" in client.errors()[0]


@pytest.mark.parametrize(("more", "batches"), [(0, [2]), (1, [1, 1])])
def test_messages_are_joined_as_long_as_they_fit_a_batch(more: int, batches: list[int]) -> None:
    broker = Running()
    client = broker.connect(native=False)
    small = wire.Publish("t", (), b"x")
    large = bytes(broker.node.options.joined_bytes_max - 64 - 2 * len(small.encode()) + 1 + more)
    client.send(wire.Publish("t", (), large), small)
    assert [record.count for record in broker.records if isinstance(record, BatchAppended)] == batches


def test_messages_of_little_but_headers_count_with_what_their_headers_take() -> None:
    broker = Running()
    broker.node.options = NodeOptions(joined_bytes_max=10_000)
    client = broker.connect(native=False)
    client.send(*[wire.Publish("t", (("", ""),) * 1_000, b"") for _ in range(12)])
    sizes = [record.size_bytes for record in broker.records if isinstance(record, BatchAppended)]
    assert len(sizes) > 1
    assert max(sizes) <= broker.node.options.joined_bytes_max


def test_what_is_stored_is_delivered_and_fetched_in_frames_within_the_limit() -> None:
    """The longest name, and the most that a PRODUCE may carry."""
    topic, frame_bytes_max = "t" * 240, 1 << 16
    most = frames.batch_bytes_max(frame_bytes_max)
    sized = {len(each): each for size in range(most - 100, most) if len(each := one_record(size)) in (most, most + 1)}
    broker = Running()
    broker.node.terms = replace(broker.node.terms, frame_bytes_max=frame_bytes_max)
    client = broker.connect()
    refused = client.ask(wire.Produce(topic, 0, Acks.STORED, 0, 0, sized[most + 1]))
    assert isinstance(refused, wire.Refusal)
    assert (refused.status, str(most) in refused.reason) == (Status.TOO_LARGE, True)
    for _ in range(3):
        assert isinstance(client.ask(wire.Produce(topic, 0, Acks.STORED, 0, 0, sized[most])), wire.ProduceAnswer)
    reader = broker.connect()
    reader.ask(wire.Subscribe(topic, "g", 1))
    (delivered,) = reader.take(FrameType.DELIVER)
    reader.send(wire.Fetch(topic, 0, 0, 0xFFFFFFFF))
    (fetched,) = reader.take(FrameType.RESPONSE)
    assert most < len(delivered.payload) <= frame_bytes_max
    assert most < len(fetched.payload) <= frame_bytes_max


def test_a_list_that_no_frame_holds_is_refused_and_a_narrower_one_is_not() -> None:
    broker = Running()
    for number in range(3):
        broker.create(f"many.{number}", partitions=300, lanes=LANES)
    broker.node.terms = replace(broker.node.terms, frame_bytes_max=1 << 16)
    client = broker.connect()
    refused, found = client.ask(wire.Metadata("many.#")), client.ask(wire.Metadata("many.1"))
    assert isinstance(refused, wire.Refusal)
    assert (refused.status, "narrower" in refused.reason) == (Status.TOO_LARGE, True)
    assert isinstance(found, wire.MetadataAnswer)
    assert len(found.topics[0].logs) == 300 * LANES


@pytest.mark.parametrize("lanes", [0, LANES])
def test_a_topic_has_no_more_logs_than_a_list_can_count(lanes: int) -> None:
    broker, most = Running(Settings(session_timeout_ms=1 << 50, partitions_max=1_000_000)), 0xFFFF // max(1, lanes)
    request = inputs.CreateTopic(broker.operator.session, 1, "t", most + 1, lanes, TopicConfig())
    answer = refusal(broker.ask(lambda me, number: replace(request, request=number)))
    assert (answer.status, f"1 to {most} partitions" in answer.reason) == (Status.INVALID, True)


def test_a_member_is_told_as_many_of_its_partitions_as_a_frame_can_name() -> None:
    line = Connection(1, "peer", Terms(frame_bytes_max=1 << 16), lambda data: 1)
    line.assign(Assign(1, "g", 1, tuple(("t" * 240, number) for number in range(1_000))))
    (said,) = FrameDecoder(1 << 16).feed(b"".join(line.out))
    assert isinstance(said, Frame)
    message = wire.decode_message(said.type, said.payload)
    assert isinstance(message, wire.Assign)
    assert [each.partition for each in message.partitions] == list(range(((1 << 16) - 1024) // 246))


def test_a_delivery_is_not_held_up_by_answers_that_wait_for_their_turn() -> None:
    broker = Running()
    broker.create("late")
    client = broker.connect()
    client.ask(produce("t", *["x" * 600_000] * 2))
    client.send(wire.Fetch("late", 0, 0, 1_000, 60_000), wire.Fetch("t", 0, 0, 1 << 21))
    assert client.take(FrameType.RESPONSE) == []
    broker.publish("late", "here")
    first, second = client.take(FrameType.RESPONSE)
    assert (len(first.payload) < 1_000, len(second.payload) > 1_000) == (True, True)


@pytest.mark.parametrize("numbered", [True, False])
def test_who_has_too_many_answers_wait_for_that_to_an_earlier_request_is_told_how_to_ask(numbered: bool) -> None:
    broker = Running()
    broker.node.options = NodeOptions(send_buffer_bytes_max=10_000)
    broker.create("late")
    client = broker.connect()
    client.ask(produce("t", "x" * 1_000))
    client.send(wire.Fetch("late", 0, 0, 1_000, 60_000))
    ask = wire.Fetch("t", 0, 0, 1_000)
    for number in range(20):
        if not client.is_closed:
            broker.node.receive(client.session, frames.encode(ask.TYPE, ask.encode(), number if numbered else None))
            broker.settle_down()
    assert client.is_closed != numbered
    assert any("number requests" in text for text in client.errors()) != numbered


def test_a_delivery_that_takes_several_reads_has_each_message_once() -> None:
    broker = Running()
    broker.node.options = NodeOptions(read_bytes_max=8_000)
    reader = broker.consumer()
    texts = [f"{number}" * 500 for number in range(8)]
    for place in range(0, 8, 2):
        broker.publish("t", *texts[place : place + 2])
    reader.subscribe("t", "g", credit=100)
    assert [each.ranges for each in reader.held] == [((0, 7),)]
    assert reader.texts == texts


@pytest.mark.parametrize("size", [120, 121])
def test_a_client_is_called_what_it_says_unless_that_is_too_long(size: int) -> None:
    broker = Running()
    client = broker.connect(native=False)
    client.ask(wire.Hello("x" * size))
    line = broker.node.connection(client.session)
    assert line is not None
    assert line.name == ("x" * size if size <= 120 else "peer")
