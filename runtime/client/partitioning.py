"""Which partition a message goes to: by its key, in turn, or batch by batch.

Promises  a key's messages go to one partition as long as their topic has as many partitions; `murmur3` is the
          32-bit x86 variant with seed 0, `murmur2` is Kafka's, so that a key lands where Kafka's clients put it.
Never     asks anybody: the number of partitions is handed in.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, Protocol, TypeAlias

from dovetail.core.kernels import partition_of_hash

ANY: Final = -1
"""The partition of a batch that the broker puts where it likes."""

PartitionerName: TypeAlias = Literal["key", "kafka-key", "round-robin", "sticky"]

_U32: Final = 0xFFFFFFFF
_REMEMBERED_KEYS: Final = 8192


def murmur3(data: bytes) -> int:
    """MurmurHash3, x86, 32 bits, seed 0."""
    size = len(data)
    whole = size & ~3
    state = 0
    for at in range(0, whole, 4):
        state ^= _mix3(int.from_bytes(data[at : at + 4], "little"))
        state = (state << 13 & _U32) | state >> 19
        state = (state * 5 + 0xE6546B64) & _U32
    if whole < size:
        state ^= _mix3(int.from_bytes(data[whole:], "little"))
    state ^= size
    state ^= state >> 16
    state = state * 0x85EBCA6B & _U32
    state ^= state >> 13
    state = state * 0xC2B2AE35 & _U32
    return state ^ state >> 16


def _mix3(block: int) -> int:
    block = block * 0xCC9E2D51 & _U32
    block = (block << 15 & _U32) | block >> 17
    return block * 0x1B873593 & _U32


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed that Kafka's clients use."""
    size = len(data)
    whole = size & ~3
    state = 0x9747B28C ^ size
    for at in range(0, whole, 4):
        block = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & _U32
        block = (block ^ block >> 24) * 0x5BD1E995 & _U32
        state = state * 0x5BD1E995 & _U32 ^ block
    if whole < size:
        state = (state ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & _U32
    state ^= state >> 13
    state = state * 0x5BD1E995 & _U32
    return state ^ state >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Where producers put a key unless they are told otherwise."""
    return partition_of_hash(murmur3(key), partitions)


class Partitioner(Protocol):
    """Chooses among `partitions`, or `ANY`; is told when a batch of a topic is full or sent."""

    def choose(self, topic: str, key: bytes | None, partitions: int) -> int: ...

    def batch_ended(self, topic: str) -> None: ...

    @property
    def needs_count(self) -> bool:
        """Whether it looks at the number of partitions even where a message has no key."""
        ...


class RoundRobin:
    """One after the other, whatever the key."""

    needs_count = True

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partitions: int) -> int:
        turn = self._next.get(topic, 0) % partitions
        self._next[topic] = turn + 1
        return turn

    def batch_ended(self, topic: str) -> None:
        """Nothing changes."""


class Sticky:
    """A whole batch to one partition, the next batch to the next: few, full batches."""

    needs_count = True

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partitions: int) -> int:
        return self._turns.get(topic, 0) % partitions

    def batch_ended(self, topic: str) -> None:
        self._turns[topic] = self._turns.get(topic, 0) + 1


class ByKey:
    """A key's hash decides; a message without a key goes where the broker likes, or as `keyless` says."""

    def __init__(self, hash: Callable[[bytes], int], keyless: Partitioner | None) -> None:
        # The same few keys come again and again; a hash in Python costs more than a look-up.
        self._hash = lru_cache(_REMEMBERED_KEYS)(hash)
        self._keyless = keyless
        self.needs_count = keyless is not None

    def choose(self, topic: str, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return partition_of_hash(self._hash(key), partitions)
        return ANY if self._keyless is None else self._keyless.choose(topic, key, partitions)

    def batch_ended(self, topic: str) -> None:
        if self._keyless is not None:
            self._keyless.batch_ended(topic)


_MAKERS: Final[Mapping[str, Callable[[Partitioner | None], Partitioner]]] = MappingProxyType(
    {
        "key": lambda keyless: ByKey(murmur3, keyless),
        "kafka-key": lambda keyless: ByKey(murmur2, keyless),
        "round-robin": lambda _: RoundRobin(),
        "sticky": lambda _: Sticky(),
    }
)


def partitioner(name: PartitionerName, *, named: bool = False) -> Partitioner:
    """A new partitioner of that name; one that leaves nothing to the broker if each partition is to be `named`."""
    make = _MAKERS.get(name)
    if make is None:
        raise ValueError(f"{name!r} is not a partitioner: use one of {', '.join(_MAKERS)}")
    return make(Sticky() if named else None)
