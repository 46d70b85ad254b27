"""The lean load: publishers and consumers on plain sockets, many in one process, with the project's own codecs.

Promises  each publisher keeps exactly its number of frames under way; every answer is looked at, and one that is not a
          success ends the run with what it said; consumers settle every range they are sent.
Never     builds a batch while it measures, or looks into the batches it is sent: the server is what is measured.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from struct import Struct as Layout
from typing import Final

from dovetail.core import frames, wire
from dovetail.core.codes import SettleAction
from dovetail.core.frames import Frame, FrameDecoder, FrameError, FrameType
from dovetail.runtime.bench.loads import Consumed, ConsumeJob, Place, Published, PublishJob, Received, Sent, frame_of

READ_BYTES: Final = 1 << 20
CONNECT_S: Final = 10.0
SILENCE_S: Final = 30.0
"""A server that answers nothing for so long is not measured any further."""
IDLE_S: Final = 0.25
"""How long nothing must have come before a consumer that was told to finish believes that nothing more will."""

_PLACE: Final = Layout(">xiQ")
"""Partition and offset in the answer to PRODUCE."""


class LoadFailed(Exception):
    """The server did not do what it was asked; the text has its words."""


class Line:
    """One connection: frames out as they are, frames in."""

    def __init__(self, place: Place, name: str) -> None:
        self.socket = socket.create_connection((place.host, place.port), CONNECT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(SILENCE_S)
        self._decoder = FrameDecoder()
        self.ask(wire.Hello(name))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, request: wire.Hello | wire.Subscribe) -> None:
        """Send a request and wait for its success, with nothing else under way."""
        self.send(frames.encode(request.TYPE, request.encode()))
        expect_success(self.read()[0])

    def read(self) -> list[Frame]:
        """The frames that complete with the next bytes to come, at least one."""
        found: list[Frame] = []
        while not found:
            data = self.socket.recv(READ_BYTES)
            if not data:
                raise LoadFailed("the server closed the connection")
            for each in self._decoder.feed(data):
                if isinstance(each, FrameError):
                    raise LoadFailed(f"the server sent what is no frame: {each.text}")
                found.append(each)
        return found


def expect_success(frame: Frame) -> None:
    """Go on only if this is the answer to a request that was done."""
    if frame.type == FrameType.RESPONSE and frame.payload[:1] == b"\0":
        return
    if frame.type == FrameType.ERROR:
        raise LoadFailed(f"the server answered: {wire.decode_error(bytes(frame.payload)).text}")
    raise LoadFailed(f"a request was refused: {frame.payload[:300]!r}")


class _Publisher:
    """One connection and when each of its frames under way was sent; answers come in that order."""

    def __init__(self, line: Line, number: int) -> None:
        self.line = line
        self.under_way: deque[int] = deque()
        self.next_frame = number

    def send(self, supply: list[bytes], count: int) -> None:
        data = [supply[(self.next_frame + place) % len(supply)] for place in range(count)]
        self.next_frame += count
        now_ns = time.monotonic_ns()
        self.under_way.extend([now_ns] * count)
        self.line.send(data[0] if count == 1 else b"".join(data))


def publish(job: PublishJob) -> Published:
    """Publish until the time is over, then wait for what is under way."""
    load = job.load
    supply = [frame_of(load, job.place.topic, partition) for partition in range(load.partitions)]
    publishers = [_Publisher(Line(job.place, f"bench-{number}"), number) for number in range(load.publishers)]
    selector = selectors.DefaultSelector()
    for each in publishers:
        selector.register(each.line.socket, selectors.EVENT_READ, each)
    confirm_ns: list[int] = []
    sent: list[Sent] = []
    begun_ns = time.monotonic_ns()
    count_from_ns = begun_ns + int(job.warm_s * 1e9)
    stop_ns = count_from_ns + int(job.seconds * 1e9)
    frames_sent = load.publishers * load.outstanding
    frames_done = 0
    for each in publishers:
        each.send(supply, load.outstanding)
    while frames_done < frames_sent:
        ready = selector.select(SILENCE_S)
        if not ready:
            raise LoadFailed(f"no answer for {SILENCE_S:g} s with {frames_sent - frames_done} frames under way")
        for key, _ in ready:
            publisher: _Publisher = key.data
            answers = publisher.line.read()
            now_ns = time.monotonic_ns()
            for answer in answers:
                expect_success(answer)
                sent_ns = publisher.under_way.popleft()
                if count_from_ns <= now_ns < stop_ns:
                    confirm_ns.append(now_ns - sent_ns)
                    if not load.joined:
                        partition, base = _PLACE.unpack_from(answer.payload)
                        sent.append(Sent(partition, base, sent_ns))
            frames_done += len(answers)
            if now_ns < stop_ns:
                publisher.send(supply, len(answers))
                frames_sent += len(answers)
    for each in publishers:
        each.line.socket.close()
    counted = len(confirm_ns) * load.batch
    return Published(begun_ns, frames_done * load.batch, counted, job.seconds, confirm_ns, sent)


def consume(job: ConsumeJob, parent: Connection) -> Consumed:
    """Consume until the parent says so and nothing has come for a while; the parent hears when it may begin."""
    line = Line(job.place, job.member)
    line.ask(wire.Subscribe(job.place.topic, job.group, job.credit))
    parent.send("ready")
    settle = _settle_each if job.single else _settle_range
    selector = selectors.DefaultSelector()
    selector.register(line.socket, selectors.EVENT_READ)
    selector.register(parent, selectors.EVENT_READ)
    under_way: deque[int] = deque()
    received: list[Received] = []
    settled = 0
    last_settled_ns = time.monotonic_ns()
    finishing = False
    while True:
        ready = selector.select(IDLE_S if finishing and not under_way else SILENCE_S)
        if not ready and not under_way:
            break
        if not ready:
            raise LoadFailed(f"no answer for {SILENCE_S:g} s to {len(under_way)} settles")
        if any(key.fileobj is parent for key, _ in ready):
            parent.recv()
            selector.unregister(parent)
            finishing = True
        if any(key.fileobj is line.socket for key, _ in ready):
            for frame in line.read():
                if frame.type == FrameType.DELIVER:
                    delivered = wire.decode_deliver(bytes(frame.payload))
                    now_ns = time.monotonic_ns()
                    for first, last in delivered.ranges:
                        received.append(Received(delivered.partition, first, last, now_ns))
                        settle(line, under_way, delivered.lease, first, last)
                else:
                    expect_success(frame)
                    settled += under_way.popleft()
                    last_settled_ns = time.monotonic_ns()
    line.socket.close()
    return Consumed(settled, last_settled_ns, received)


Settler = Callable[[Line, deque[int], int, int, int], None]


def _settle_range(line: Line, under_way: deque[int], lease: int, first: int, last: int) -> None:
    line.send(_settle_frame(lease, first, last))
    under_way.append(last - first + 1)


def _settle_each(line: Line, under_way: deque[int], lease: int, first: int, last: int) -> None:
    line.send(b"".join([_settle_frame(lease, offset, offset) for offset in range(first, last + 1)]))
    under_way.extend([1] * (last - first + 1))


def _settle_frame(lease: int, first: int, last: int) -> bytes:
    item = wire.SettleItem(lease, SettleAction.ACK, first, last)
    return frames.encode(FrameType.SETTLE, wire.Settle((item,)).encode())
