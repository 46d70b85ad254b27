"""A batch that an idempotent producer sends again is recognised, and only then."""

from dovetail.core import producers
from dovetail.core.codes import Status
from dovetail.core.evolve import evolve
from dovetail.core.records import BatchAppended
from dovetail.core.state import Durable, Log
from tests.core.running import Running, offset_of, refusal

ID = {"producer_id": 77, "producer_epoch": 0}


def test_a_batch_sent_again_is_confirmed_where_it_is() -> None:
    broker = Running()
    first = broker.publish("a", "x", "y", **ID, base_sequence=0)
    again = broker.publish("a", "x", "y", **ID, base_sequence=0)
    after = broker.publish("a", "z", **ID, base_sequence=2)
    assert (offset_of(first), offset_of(again), offset_of(after)) == (0, 0, 2)


def test_zero_is_a_producer_like_any_other() -> None:
    broker = Running()
    for _ in range(2):
        assert offset_of(broker.publish("a", "x", producer_id=0, producer_epoch=0, base_sequence=0)) == 0


def test_a_batch_sent_again_is_recognised_after_a_restart() -> None:
    broker = Running()
    broker.publish("a", "x", **ID, base_sequence=0)
    broker.crash()
    assert offset_of(broker.publish("a", "x", **ID, base_sequence=0)) == 0
    assert offset_of(broker.publish("a", "y", **ID, base_sequence=1)) == 1


def test_a_gap_in_the_sequence_is_refused_and_says_what_was_expected() -> None:
    broker = Running()
    broker.publish("a", "x", **ID, base_sequence=0)
    answer = refusal(broker.publish("a", "z", **ID, base_sequence=5))
    assert answer.status == Status.INVALID
    assert "at sequence 1" in answer.reason


def test_a_batch_of_a_producer_that_counts_must_name_its_partition() -> None:
    broker = Running()
    answer = refusal(broker.publish("a", "x", **ID, base_sequence=0, partition=-1))
    assert answer.status == Status.INVALID
    assert "names its partition" in answer.reason


def test_a_batch_that_is_too_old_to_be_recognised_is_known_to_be_stored() -> None:
    broker = Running()
    for sequence in range(7):
        broker.publish("a", "x", **ID, base_sequence=sequence)
    answer = refusal(broker.publish("a", "x", **ID, base_sequence=1))
    assert answer.status == Status.EXISTS
    assert "is stored" in answer.reason


def test_what_comes_before_the_first_batch_of_an_epoch_is_not_said_to_be_stored() -> None:
    broker = Running()
    broker.publish("a", "second", **ID, base_sequence=1)
    answer = refusal(broker.publish("a", "first", **ID, base_sequence=0))
    assert answer.status == Status.INVALID
    assert "at sequence 2" in answer.reason


def test_a_batch_that_begins_before_and_ends_behind_what_is_stored_is_refused() -> None:
    broker = Running()
    broker.publish("a", "x", **ID, base_sequence=0)
    broker.publish("a", "x", **ID, base_sequence=1)
    assert refusal(broker.publish("a", "x", "y", **ID, base_sequence=1)).status == Status.INVALID


def test_a_producer_of_an_earlier_epoch_is_fenced() -> None:
    broker = Running()
    broker.publish("a", "x", producer_id=77, producer_epoch=3, base_sequence=0)
    answer = refusal(broker.publish("a", "y", producer_id=77, producer_epoch=2, base_sequence=1))
    assert answer.status == Status.FENCED


def test_a_new_epoch_begins_its_sequence_anew() -> None:
    broker = Running()
    broker.publish("a", "x", **ID, base_sequence=0)
    assert offset_of(broker.publish("a", "y", producer_id=77, producer_epoch=1, base_sequence=0)) == 1


def test_sequences_are_counted_per_partition() -> None:
    broker = Running()
    broker.create("a", partitions=2)
    assert offset_of(broker.publish("a", "x", **ID, base_sequence=0, partition=0)) == 0
    assert offset_of(broker.publish("a", "x", **ID, base_sequence=0, partition=1)) == 0


def test_a_delayed_batch_sent_again_waits_once() -> None:
    broker = Running()
    first = broker.publish("a", "x", **ID, base_sequence=0, delay_ms=500)
    assert first == broker.publish("a", "x", **ID, base_sequence=0, delay_ms=500)
    reader = broker.consumer()
    reader.subscribe("a", "g")
    broker.advance(1_000)
    assert reader.texts == ["x"]
    assert offset_of(broker.publish("a", "y", **ID, base_sequence=1)) == 1


def test_the_sequence_goes_on_at_zero_after_31_bits() -> None:
    broker = Running()
    broker.publish("a", "x", "y", **ID, base_sequence=(1 << 31) - 2)
    assert offset_of(broker.publish("a", "z", **ID, base_sequence=0)) == 2


def test_what_is_remembered_is_bounded_and_the_longest_silent_goes_first() -> None:
    durable = Durable(logs=Durable().logs.set(1, Log(1, 1, 0, 0, 0, 0)))
    most = producers.PRODUCERS_MAX
    for number in range(most + 10):
        record = BatchAppended(1, number, 1, 0, 0, 0, 0, 100, number, 0, 0, 0)
        durable = evolve(durable, record)
    assert len(durable.producers) == len(durable.producer_touches) == most
    assert (1, 9) not in durable.producers
    assert (1, 10) in durable.producers
