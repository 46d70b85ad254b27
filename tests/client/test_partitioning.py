"""A key's partition is the one that other implementations compute; the rest is shared out evenly."""

from collections import Counter

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given
from hypothesis import strategies as st

from dovetail.runtime.client.partitioning import ANY, PartitionerName, murmur2, murmur3, partitioner


@pytest.mark.parametrize(
    ("data", "hash"),
    [
        (b"", 0x00000000),
        (b"\0\0\0\0", 0x2362F9DE),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"\x21", 0x72661CF4),
        (b"\x21\x43", 0xA0F7B07A),
        (b"\x21\x43\x65", 0x7E4A8634),
        (b"\x21\x43\x65\x87", 0xF55B516B),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_murmur3_gives_the_published_values(data: bytes, hash: int) -> None:
    assert murmur3(data) == hash


@pytest.mark.parametrize(
    ("data", "hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_values_of_kafkas_own_tests(data: bytes, hash: int) -> None:
    assert murmur2(data) == hash & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_murmur2_agrees_with_an_independent_implementation(data: bytes) -> None:
    assert murmur2(data) & 0x7FFFFFFF == murmur2_of_aiokafka(data) & 0x7FFFFFFF


@given(st.binary(max_size=32), st.integers(1, 100))
def test_a_key_always_goes_to_the_same_existing_partition(key: bytes, partitions: int) -> None:
    first = partitioner("key").choose("t", key, partitions)
    assert 0 <= first < partitions
    assert partitioner("key").choose("t", key, partitions) == first


def test_without_a_key_the_broker_chooses() -> None:
    assert partitioner("key").choose("t", None, 12) == ANY
    assert partitioner("kafka-key").choose("t", None, 12) == ANY


@pytest.mark.parametrize("name", ["key", "kafka-key", "round-robin", "sticky"])
def test_where_each_partition_is_to_be_named_nothing_is_left_to_the_broker(name: PartitionerName) -> None:
    chooser = partitioner(name, named=True)
    chosen = set()
    for _ in range(3):
        chosen.add(chooser.choose("t", None, 3))
        chooser.batch_ended("t")
    assert chosen == {0, 1, 2}
    assert chooser.needs_count


def test_round_robin_gives_each_partition_of_each_topic_its_turn() -> None:
    chooser = partitioner("round-robin")
    assert Counter(chooser.choose("a", b"same key", 3) for _ in range(9)) == {0: 3, 1: 3, 2: 3}
    assert [chooser.choose("b", None, 2) for _ in range(3)] == [0, 1, 0]


def test_sticky_stays_with_a_partition_until_the_batch_ends() -> None:
    chooser = partitioner("sticky")
    before = [chooser.choose("a", None, 3) for _ in range(5)]
    chooser.batch_ended("a")
    assert before == [0] * 5
    assert chooser.choose("a", None, 3) == 1
    assert chooser.choose("b", None, 3) == 0


def test_where_the_broker_has_no_choice_messages_without_a_key_change_places_with_their_batches() -> None:
    chooser = partitioner("key", named=True)
    assert chooser.needs_count
    assert chooser.choose("t", b"k", 3) == partitioner("key").choose("t", b"k", 3)
    assert [chooser.choose("t", None, 3), chooser.choose("t", None, 3)] == [0, 0]
    chooser.batch_ended("t")
    assert chooser.choose("t", None, 3) == 1


def test_an_unknown_partitioner_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(ValueError, match="round-robin"):
        partitioner("random")  # type: ignore[arg-type]  # the point of the test
