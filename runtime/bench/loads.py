"""What is asked of a server, and what was measured: the words that all parts of the benchmark share.

Promises  plain frozen data that travels between processes; every time is in nanoseconds of the monotonic clock, which
          all processes of a machine share.
Never     touches a socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from statistics import median

from msgspec import Struct

from dovetail.core import batch, frames, wire
from dovetail.core.codes import Acks
from dovetail.core.frames import FrameType

PAYLOAD_BYTES = 1024


class Driver(Enum):
    """Who speaks to the broker."""

    RAW = "raw"
    """Frames made once and sent again and again: the client costs next to nothing."""
    SDK = "sdk"
    """The client that people use."""


class Load(Struct, frozen=True):
    """What all publishers together do: each has `outstanding` frames of `batch` messages under way at a time."""

    name: str
    publishers: int = 10
    outstanding: int = 1
    batch: int = 1
    partitions: int = 1
    joined: bool = False
    """Single PUBLISH frames, which the broker joins into batches, in the place of PRODUCE."""
    uneven: bool = False
    """Messages with keys, of sizes around 1 KiB that differ: a broker can't check them as fast as equal ones."""

    @property
    def messages_under_way(self) -> int:
        return self.publishers * self.outstanding * self.batch


class Place(Struct, frozen=True):
    """A server, and the topic that a load goes to."""

    port: int
    topic: str
    host: str = "127.0.0.1"


class PublishJob(Struct, frozen=True):
    """Publish for `warm_s`, which does not count, and then for `seconds`."""

    place: Place
    load: Load
    seconds: float
    warm_s: float
    driver: Driver = Driver.RAW


class ConsumeJob(Struct, frozen=True):
    """Consume as a member of a group and settle, whole ranges or message by message."""

    place: Place
    group: str
    member: str
    credit: int
    single: bool
    driver: Driver = Driver.RAW


class Sent(Struct, frozen=True, gc=False):
    """A confirmed batch: where it begins and when it was sent."""

    partition: int
    base: int
    at_ns: int


class Received(Struct, frozen=True, gc=False):
    """A delivered range and when it came."""

    partition: int
    first: int
    last: int
    at_ns: int


class Published(Struct, frozen=True):
    """What a publisher's process saw; `counted` is what was confirmed while it counted."""

    begun_ns: int
    messages: int
    counted: int
    counted_s: float
    confirm_ns: list[int]
    sent: list[Sent]


class Consumed(Struct, frozen=True):
    """What one consumer saw."""

    messages: int
    last_settled_ns: int
    received: list[Received]


class Figures(Struct, frozen=True):
    """One measurement, as it is printed. Times are milliseconds; what was not measured is left out."""

    per_second: float
    server_us: float | None = None
    """Processor time of the server per message, in microseconds."""
    confirm_ms: dict[str, float] = {}
    deliver_ms: dict[str, float] = {}


def frame_of(load: Load, topic: str, partition: int) -> bytes:
    """The frame that a publisher sends again and again to a partition."""
    if load.joined:
        message = wire.Publish(topic, (), _payload(0))
        return frames.encode(FrameType.PUBLISH, message.encode())
    data = batch.build([_record(load, number) for number in range(load.batch)], timestamp_ms=0)
    return frames.encode(FrameType.PRODUCE, wire.Produce(topic, partition, Acks.STORED, 0, 0, data).encode())


def _record(load: Load, number: int) -> batch.NewRecord:
    if not load.uneven:
        return None, _payload(number), ()
    size = PAYLOAD_BYTES // 2 + number * 617 % PAYLOAD_BYTES
    return b"key-%d" % number, (_payload(number) * 2)[:size], ()


def _payload(number: int) -> bytes:
    return number.to_bytes(4, "big") * (PAYLOAD_BYTES // 4)


def percentiles_ms(times_ns: Sequence[int]) -> dict[str, float]:
    """The percentiles that are printed; none of no times."""
    if not times_ns:
        return {}
    ordered = sorted(times_ns)
    last = len(ordered) - 1
    places = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: ordered[round(share * last)] / 1e6 for name, share in places.items()}


def deliver_times_ns(sent: Sequence[Sent], received: Sequence[Received]) -> list[int]:
    """For every batch the time from sending it to receiving its first message for the first time."""
    came: dict[tuple[int, int], int] = {}
    wanted = {(each.partition, each.base) for each in sent}
    for each in sorted(received, key=lambda found: found.at_ns):
        for offset in range(each.first, each.last + 1):
            key = (each.partition, offset)
            if key in wanted:
                came.setdefault(key, each.at_ns)
    found = ((each, came.get((each.partition, each.base))) for each in sent)
    return [at_ns - each.at_ns for each, at_ns in found if at_ns is not None]


def middle(rounds: Sequence[Figures]) -> Figures:
    """The round with the median rate: its figures belong together."""
    typical = median(each.per_second for each in rounds)
    return min(rounds, key=lambda each: abs(each.per_second - typical))
