"""What a producer holds: in order, bounded, each message out exactly once."""

from collections import defaultdict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dovetail.runtime.client.outbox import Batch, Outbox, Route

A = Route("a", -1)
B = Route("b", 0)
C = Route("b", 0, ttl_ms=5)


def outbox(
    *, batch_bytes: int = 100, in_flight_max: int = 8, messages_max: int = 1000, bytes_max: int = 100_000
) -> Outbox[int]:
    return Outbox(batch_bytes=batch_bytes, in_flight_max=in_flight_max, messages_max=messages_max, bytes_max=bytes_max)


def put(box: Outbox[int], route: Route, *tokens: int, size_bytes: int = 10) -> None:
    for token in tokens:
        opened = box.add(route, (None, b"", ()), size_bytes, token)
        if opened is not None:
            opened.deadline = float(token)


def sent(box: Outbox[int]) -> Batch[int]:
    batch = box.next()
    assert batch is not None
    return batch


def all_sent(box: Outbox[int]) -> list[list[int]]:
    batches = []
    while (batch := box.next()) is not None:
        batches.append(batch.tokens)
    return batches


def test_a_batch_waits_until_it_is_ripe() -> None:
    box = outbox()
    put(box, A, 1, 2)
    assert box.next() is None
    box.ripen()
    assert all_sent(box) == [[1, 2]]


def test_a_full_batch_does_not_wait() -> None:
    box = outbox(batch_bytes=30)
    put(box, A, 1, 2, 3)
    assert all_sent(box) == [[1, 2, 3]]


def test_a_message_that_does_not_fit_opens_the_next_batch() -> None:
    box = outbox(batch_bytes=25)
    put(box, A, 1, 2, 3)
    assert all_sent(box) == [[1, 2]]
    box.ripen()
    assert all_sent(box) == [[3]]


def test_a_message_larger_than_a_batch_goes_alone() -> None:
    box = outbox(batch_bytes=25)
    put(box, A, 1)
    put(box, A, 2, size_bytes=500)
    assert all_sent(box) == [[1], [2]]


def test_each_new_batch_says_that_the_linger_time_begins() -> None:
    box = outbox(batch_bytes=25)
    opened = [box.add(A, (None, b"", ()), 10, token) for token in range(4)]
    assert [batch is not None for batch in opened] == [True, False, True, False]


def test_routes_are_never_mixed_and_take_turns() -> None:
    box = outbox(batch_bytes=20)
    put(box, A, 1, 2, 3, 4)
    put(box, B, 5, 6)
    assert all_sent(box) == [[1, 2], [5, 6], [3, 4]]


def test_what_goes_to_one_partition_keeps_its_order_whatever_its_options_and_is_not_mixed() -> None:
    box = outbox()
    short, delayed = Route("b", 0, ttl_ms=5), Route("b", 0, delay_ms=5)
    for token, route in enumerate((B, B, short, B, delayed)):
        put(box, route, token)
    box.ripen()
    under_way = sent(box)
    box.come_back(under_way)
    assert all_sent(box) == [[0, 1], [2], [3], [4]]


def test_where_the_broker_chooses_the_partition_messages_of_other_options_share_batches_of_their_own() -> None:
    box = outbox()
    short = Route("a", -1, ttl_ms=5)
    for token in range(4):
        put(box, short if token % 2 else A, token)
    box.ripen()
    assert all_sent(box) == [[0, 2], [1, 3]]


def test_while_enough_is_under_way_ripe_batches_go_on_growing() -> None:
    box = outbox(in_flight_max=1)
    put(box, A, 1)
    box.ripen()
    first = sent(box)
    put(box, A, 2)
    box.ripen()
    put(box, A, 3)
    assert box.next() is None
    box.leave(first)
    assert all_sent(box) == [[2, 3]]


def test_batches_of_a_lost_connection_come_back_in_their_old_order() -> None:
    box = outbox(batch_bytes=10)
    put(box, A, 1, 2, 3)
    under_way = [sent(box), sent(box)]
    for batch in reversed(under_way):
        box.come_back(batch)
    assert all_sent(box) == [[1], [2], [3]]


def test_a_busy_lane_waits_and_then_goes_on_with_the_batch_that_was_refused() -> None:
    box = outbox(batch_bytes=10)
    put(box, A, 1, 2)
    put(box, B, 3)
    refused = sent(box)
    box.block(refused)
    assert all_sent(box) == [[3]]
    box.unblock(A)
    assert all_sent(box) == [[1], [2]]
    assert refused.tries == 2


def test_a_split_batch_goes_message_by_message_before_what_was_opened_later() -> None:
    box = outbox(batch_bytes=30)
    put(box, A, 1, 2, 3, 4, 5, 6)
    box.split(sent(box))
    assert all_sent(box) == [[1], [2], [3], [4, 5, 6]]
    assert box.size_bytes == 60


def test_what_has_left_can_neither_come_back_nor_be_split() -> None:
    box = outbox(batch_bytes=20)
    put(box, A, 1, 2)
    batch = sent(box)
    box.leave(batch)
    box.come_back(batch)
    box.block(batch)
    box.split(batch)
    box.leave(batch)
    assert box.next() is None
    assert (box.messages, box.size_bytes) == (0, 0)


def test_it_is_full_by_messages_or_by_bytes() -> None:
    by_messages, by_bytes = outbox(messages_max=2), outbox(bytes_max=20)
    for box in (by_messages, by_bytes):
        fullness = [box.full]
        for token in (1, 2):
            put(box, A, token)
            fullness.append(box.full)
        box.ripen()
        box.leave(sent(box))
        assert [*fullness, box.full] == [False, False, True, False]


def test_overdue_batches_are_found_wherever_they_are() -> None:
    box = outbox(batch_bytes=10)
    put(box, A, 1, 2)
    put(box, B, 3, size_bytes=5)
    under_way = sent(box)
    assert [batch.tokens for batch in box.overdue(3.0)] == [[1], [2], [3]]
    assert box.oldest_deadline == 1.0
    box.leave(under_way)
    assert box.oldest_deadline == 2.0


class AnyUse(RuleBasedStateMachine):
    """Every operation in any order, beside a plain list of what was put in and what came out."""

    def __init__(self) -> None:
        super().__init__()
        self.box = outbox(batch_bytes=25, in_flight_max=3)
        self.next_token = 0
        self.inside: set[int] = set()
        self.under_way: list[Batch[int]] = []
        self.handed_out: dict[str, list[int]] = defaultdict(list)
        self.returned = False

    @rule(route=st.sampled_from([A, B, C]), size_bytes=st.integers(1, 40))
    def add(self, route: Route, size_bytes: int) -> None:
        put(self.box, route, self.next_token, size_bytes=size_bytes)
        self.inside.add(self.next_token)
        self.next_token += 1

    @rule()
    def ripen(self) -> None:
        self.box.ripen()

    @rule()
    def send(self) -> None:
        batch = self.box.next()
        if batch is not None:
            self.under_way.append(batch)
            self.handed_out[batch.route.topic] += batch.tokens

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        batch = self._one(data)
        self.box.leave(batch)
        self.inside -= set(batch.tokens)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def refuse_as_busy(self, data: st.DataObject) -> None:
        self.returned = True
        self.box.block(self._one(data))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def refuse_as_too_large(self, data: st.DataObject) -> None:
        self.returned = True
        self.box.split(self._one(data))

    @rule()
    def lose_the_connection(self) -> None:
        self.returned = self.returned or bool(self.under_way)
        for batch in self.under_way:
            self.box.come_back(batch)
        self.under_way = []

    @rule()
    def end_of_waits(self) -> None:
        self.box.unblock(A)
        self.box.unblock(B)

    def _one(self, data: st.DataObject) -> Batch[int]:
        return self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))

    @invariant()
    def it_holds_exactly_what_was_not_answered(self) -> None:
        held = [token for batch in self.box.all() for token in batch.tokens]
        assert sorted(held) == sorted(self.inside)
        assert self.box.messages == len(self.inside)
        assert self.box.size_bytes == sum(batch.size_bytes for batch in self.box.all())

    @invariant()
    def no_more_is_under_way_than_allowed(self) -> None:
        assert len(self.under_way) <= 3

    @invariant()
    def while_nothing_comes_back_a_partition_keeps_its_order(self) -> None:
        if not self.returned:
            assert all(tokens == sorted(tokens) for tokens in self.handed_out.values())

    def teardown(self) -> None:
        self.lose_the_connection()
        self.end_of_waits()
        self.box.ripen()
        last: dict[str, int] = {}
        while (batch := self.box.next()) is not None:
            assert batch.tokens[0] > last.get(batch.route.topic, -1)
            last[batch.route.topic] = batch.tokens[-1]
            self.box.leave(batch)
            self.inside -= set(batch.tokens)
        assert not self.inside
        assert self.box.messages == self.box.size_bytes == 0


TestAnyUse = AnyUse.TestCase
