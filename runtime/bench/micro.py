"""Benchmarks of the parts without I/O: the core's decisions, the codecs, and the whole node between two byte streams.

Promises  each part is timed beside a baseline that says what it is, turn by turn in the same run, in processor time;
          the best turn of several counts.
Never     asserts a time: figures are for reading, and for comparing within one run.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from crc32c import crc32c
from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from dovetail.core import batch, frames, inputs, wire
from dovetail.core.awaken import awaken
from dovetail.core.codes import Acks, SettleAction
from dovetail.core.committer import Committer
from dovetail.core.connection import Terms
from dovetail.core.effects import AnyEffect, Deliver
from dovetail.core.frames import FrameDecoder, FrameType
from dovetail.core.ids import Now
from dovetail.core.node import SEEN_MS, Node, NodeOptions
from dovetail.core.state import BatchMeta, Durable, Settings, State
from dovetail.core.step import step
from dovetail.runtime.bench.loads import PAYLOAD_BYTES, Load, frame_of

TURNS = 5
CREDIT = 10_000
PRODUCERS = 10
"""Publishes that arrive in one tick of the node."""

Work = Callable[[], object]


class Timed(Struct, frozen=True):
    """What `messages` messages cost, and the baseline beside it, in nanoseconds."""

    name: str
    messages: int
    ns: float
    baseline: str
    baseline_ns: float


class _Part(Struct, frozen=True):
    name: str
    messages: int
    work: Work
    baseline: str
    baseline_work: Work


def run(seconds: float) -> tuple[Timed, ...]:
    """Time every part for about so long, without the garbage of others in it."""
    gc.collect()
    return tuple(_time(part, seconds) for part in _parts())


def _parts() -> list[_Part]:
    maps = ("8 map updates, 3 records", _map_updates())
    return [
        *[
            _Part(f"core: publish, store, deliver, settle {_of(count)}", count, Cycle(count), *maps)
            for count in (1, 100)
        ],
        *[_node_part(count) for count in (1, 100)],
        *[part for count in (1, 100) for part in _batch_parts(count)],
        *_frame_parts(),
    ]


def _of(count: int) -> str:
    return "a message" if count == 1 else f"a batch of {count}"


def _time(part: _Part, seconds: float) -> Timed:
    share = seconds / TURNS / 2
    pairs = [(_mean_ns(part.work, share), _mean_ns(part.baseline_work, share)) for _ in range(TURNS)]
    ns, baseline_ns = (min(times) for times in zip(*pairs, strict=True))
    return Timed(part.name, part.messages, ns, part.baseline, baseline_ns)


def _mean_ns(work: Work, seconds: float) -> float:
    """The mean over a stretch of processor time, which others on the machine do not use up."""
    work()
    wanted_ns = int(seconds * 1e9)
    count = 1
    while True:
        begun_ns = time.process_time_ns()
        for _ in range(count):
            work()
        taken_ns = time.process_time_ns() - begun_ns
        if taken_ns >= wanted_ns:
            return taken_ns / count
        count *= 2


class Cycle:
    """The core alone: a batch is published, stored, delivered to a member of a group, and settled."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._state = awaken(Durable(), Settings())
        self._mono_ms = 0
        self._seen_ms = 0
        self._step(inputs.Start())
        self._step(inputs.SessionOpened(1, "publisher"), inputs.SessionOpened(2, "member"))
        self._step(inputs.Subscribe(2, 1, "bench", "group", CREDIT, False))
        self._step(inputs.Stored(self._state.durable.lsn))

    @property
    def state(self) -> State:
        """The core's state after the cycles so far."""
        return self._state

    def __call__(self) -> None:
        if self._mono_ms - self._seen_ms >= SEEN_MS:
            # As a node does: a session that is not heard of ends, and nothing would be delivered any more.
            self._seen_ms = self._mono_ms
            self._step(inputs.Seen(1), inputs.Seen(2))
        ask = inputs.Ask(1, 1, 0, self._count)
        size = self._count * PAYLOAD_BYTES
        self._step(inputs.Publish("bench", 0, 1, self._count, size, (ask,), Acks.STORED))
        for effect in self._step(inputs.Stored(self._state.durable.lsn)):
            if isinstance(effect, Deliver):
                items = [inputs.SettleItem(effect.lease, SettleAction.ACK, *each) for each in effect.ranges]
                self._step(inputs.Settle(2, 2, tuple(items)))

    def _step(self, *arrived: inputs.AnyInput) -> tuple[AnyEffect, ...]:
        self._mono_ms += 1
        self._state, _, effects = step(self._state, Now(self._mono_ms, self._mono_ms), arrived)
        return effects


def _map_updates() -> Work:
    """What any core of this style must pay for such a cycle."""
    state: Map[int, BatchMeta] = Map({number: BatchMeta(number, number, 0, 0, 0) for number in range(1_000)})

    def work() -> None:
        changed = state.mutate()
        for number in range(5):
            changed[number] = state[number]
        for number in range(5, 8):
            changed[number] = replace(state[number], size_bytes=1)
        changed.finish()

    return work


class Frames:
    """The whole broker between bytes and bytes: PRODUCE frames of several connections in, their confirms out."""

    def __init__(self, count: int) -> None:
        committer = Committer(lsn=0, crc=0, salt=1, linger_ms=50)
        self.node = Node(awaken(Durable(), Settings()), committer, Terms(), NodeOptions(behind_linger_ms=0))
        self._mono_ms = 0
        self._frame = frame_of(Load("", batch=count), "bench", 0)
        self._sessions = [self.node.connect(f"peer-{number}") for number in range(PRODUCERS)]
        for session in self._sessions:
            hello = wire.Hello(f"client-{session}")
            self.node.receive(session, frames.encode(FrameType.HELLO, hello.encode()))
        self._settle_down()

    def __call__(self) -> int:
        """The number of bytes that were answered."""
        for session in self._sessions:
            self.node.receive(session, self._frame)
        return self._settle_down()

    def _settle_down(self) -> int:
        """Ticks, with a disk that is done at once, until nothing is left to do."""
        answered = 0
        self._mono_ms += 1
        now = Now(self._mono_ms, self._mono_ms)
        while self.node.has_arrivals or not self.node.is_quiet:
            self.node.tick(now)
            answered += sum(len(buffer) for _, buffers, _ in self.node.outgoing() for buffer in buffers)
            if self.node.next_commit(now) is not None:
                self.node.committed()
            if self.node.next_job() is not None:
                self.node.job_done(None)
        return answered


def _node_part(count: int) -> _Part:
    frame = frame_of(Load("", batch=count), "bench", 0)
    decoder = FrameDecoder()

    def split() -> None:
        for _ in range(PRODUCERS):
            decoder.feed(frame)

    name = f"node: {PRODUCERS} connections produce {_of(count)} each"
    return _Part(name, count * PRODUCERS, Frames(count), "splitting the same frames", split)


def _batch_parts(count: int) -> list[_Part]:
    records: list[batch.NewRecord] = [(None, bytes(PAYLOAD_BYTES), ()) for _ in range(count)]
    data = batch.build(records, timestamp_ms=0)
    base = ("CRC-32C of its bytes", lambda: crc32c(data))
    return [
        _Part(f"batch: build {_of(count)}", count, lambda: batch.build(records, timestamp_ms=0), *base),
        _Part(f"batch: check {_of(count)}", count, lambda: batch.check_produced(data), *base),
        _Part(f"batch: parse {_of(count)}", count, lambda: batch.parse(data), *base),
    ]


def _frame_parts() -> list[_Part]:
    message = wire.Publish("bench", (), bytes(PAYLOAD_BYTES))
    payload = message.encode()
    many = frames.encode(FrameType.PUBLISH, payload) * 100
    decoder = FrameDecoder()
    copied = ("copying its bytes", lambda: bytes(bytearray(payload)))
    copied_many = ("copying their bytes", lambda: bytes(bytearray(many)))
    settle = wire.Settle((wire.SettleItem(1, SettleAction.ACK, 0, 99),)).encode()
    return [
        _Part("frames: split a read of 100", 100, lambda: decoder.feed(many), *copied_many),
        _Part("wire: encode PUBLISH", 1, message.encode, *copied),
        _Part("wire: decode PUBLISH", 1, lambda: wire.decode_publish(payload), *copied),
        _Part("wire: decode SETTLE of a range", 1, lambda: wire.decode_settle(settle), *copied),
    ]
