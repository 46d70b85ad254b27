"""Kill a real broker while it works, again and again, and hold it to every promise it made.

Each round starts a broker process on the same data, audits it, lets producers publish and a consumer acknowledge half
of what it gets, and kills the process with SIGKILL at a random moment.

Promises  the books are kept from what clients were told alone: what was sent, what was confirmed and where, what was
          delivered and acknowledged. The same seed draws the same messages and the same moments.
Never     trusts the page cache to be lost: a kill ends the process, not the machine. Lost sectors are the simulator's.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable

import msgspec
from msgspec import Struct, field

from dovetail.core import batch, frames, wire
from dovetail.core.codes import Acks
from dovetail.core.frames import Frame, FrameDecoder, FrameType

PRODUCERS = 4
OUTSTANDING_MAX = 16
SHARED, JOBS, GROUP = "torture.shared", "torture.jobs", "torturers"
KILLED_EARLY = 0.25
"""How often a broker is killed while it still recovers, before it is started again and audited."""
PATIENCE_S = 60.0
FETCH_BYTES = 4 << 20

Stream = tuple[str, int, int]
"""What has one order: a topic, and the producer that published to it in one round."""
Name = tuple[int, int, int]
"""A message of a topic: producer, round, and its number in that stream."""


class Broken(Exception):
    """A promise was not kept; the text says which, and where."""


class Book(Struct):
    """What clients sent and were told, by topic."""

    sent: dict[Stream, list[int]] = field(default_factory=dict)
    """How much filler each message of a stream has."""
    confirmed: dict[str, dict[int, Name]] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    """Offsets of the jobs for which an acknowledgment was sent: whether they come again, only the broker knows."""
    audited: dict[str, int] = field(default_factory=dict)
    """How far a topic was read by an earlier audit."""
    found: dict[Stream, int] = field(default_factory=dict)
    """How many messages of a stream earlier audits found, from its first on."""

    @property
    def confirmed_count(self) -> int:
        """Messages that were confirmed in all."""
        return sum(map(len, self.confirmed.values()))

    def value(self, topic: str, name: Name) -> bytes | None:
        """The bytes of a message as they were sent; None where nobody sent it."""
        producer, round, number = name
        sizes = self.sent.get((topic, producer, round), [])
        return message(name, sizes[number]) if 0 <= number < len(sizes) else None

    def confirm(self, topic: str, offset: int, name: Name) -> None:
        """A producer was told that its message is stored, and where."""
        before = self.confirmed.setdefault(topic, {}).setdefault(offset, name)
        if before is not name:
            raise Broken(f"{topic}:{offset} was confirmed for {before} and for {name}")

    def audit(self, topic: str, messages: list[tuple[int, bytes]]) -> None:
        """Judge a topic's messages from where the last audit ended; raises `Broken`."""
        offset = self.audited.get(topic, 0)
        promised = self.confirmed.get(topic, {})
        for at, value in messages:
            if at != offset:
                raise Broken(f"{topic}: offset {offset} is missing, the next one stored is {at}")
            name = name_of(value)
            if promised.get(at, name) != name:
                raise Broken(f"{topic}:{at} holds {value[:40]!r}, but {promised[at]} was confirmed there")
            self._in_its_stream(topic, at, name, value)
            offset += 1
        lost = [each for each in promised if each >= offset]
        if lost:
            raise Broken(f"{topic}: {len(lost)} confirmed messages are lost, the first is {topic}:{min(lost)}")
        self.audited[topic] = offset

    def _in_its_stream(self, topic: str, at: int, name: Name, value: bytes) -> None:
        """It must be the next of its stream: in order, once, without a gap, and as it was sent."""
        producer, round, number = name
        expected = self.found.get((topic, producer, round), 0)
        if number != expected:
            raise Broken(f"{topic}:{at} holds message {number} of its producer, but {expected} comes next")
        if value != self.value(topic, name):
            raise Broken(f"{topic}:{at} holds {value[:40]!r}…, which nobody sent")
        self.found[topic, producer, round] = expected + 1


def message(name: Name, filler: int) -> bytes:
    """The bytes of a message: its name, then `filler` bytes that differ between messages."""
    head = b"%d %d %d " % name
    return head + (head * (filler // len(head) + 1))[:filler]


def name_of(value: bytes) -> Name:
    """The name that a message's bytes begin with."""
    try:
        producer, round, number = map(int, value.split(b" ", 3)[:3])
    except ValueError:
        raise Broken(f"a message begins with {value[:40]!r}: nobody sent that") from None
    return producer, round, number


class Report(Struct, frozen=True):
    """What a run came to."""

    rounds: int
    confirmed: int
    stored: int
    acknowledged: int
    redelivered: int


class Process:
    """A broker process on `data`, on a port of the system's choice unless `listen` names one."""

    def __init__(self, data: str, *options: str, listen: str = "127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "dovetail", "serve", "--data", data, "--listen", listen, "--http", ""]
        self._process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE)

    def port(self) -> int:
        """Where it listens, when it does; raises `Broken` with what it said if it ends instead."""
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            with contextlib.suppress(msgspec.DecodeError):
                said = msgspec.json.decode(line, type=dict[str, object])
                if said.get("event") == "ready":
                    return int(str(said["tcp"]).rpartition(":")[2])
        raise Broken("the broker did not start: " + b"".join(lines).decode(errors="replace"))

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to stop; gives its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self._process.stderr is not None
        self._process.send_signal(number)
        code = self._process.wait(PATIENCE_S)
        self._process.stderr.close()
        return code


class Link:
    """One plain connection, without retries: a client's view that ends where the connection does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._frames: deque[Frame] = deque()

    async def send(self, type: int, payload: bytes) -> None:
        """Write one frame."""
        self._writer.write(frames.encode(type, payload))
        await self._writer.drain()

    async def next(self) -> Frame:
        """The next frame; raises `ConnectionError` at the end of the connection."""
        while not self._frames:
            data = await self._reader.read(1 << 18)
            if not data:
                raise ConnectionResetError("the broker is gone")
            for each in self._decoder.feed(data):
                if not isinstance(each, Frame):
                    raise Broken(f"the broker sent no frame: {each.text}")
                self._frames.append(each)
        return self._frames.popleft()

    async def ask(self, type: int, payload: bytes) -> wire.Answer:
        """One request and its answer, which must not be a refusal."""
        await self.send(type, payload)
        answer = wire.decode_answer(type, (await self.next()).payload)
        if isinstance(answer, wire.Refusal):
            raise Broken(f"refused: {answer.reason}")
        return answer


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Link]:
    """A link to the broker, closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Link(reader, writer)
    finally:
        writer.close()


async def _publish_until_the_end(port: int, book: Book, producer: int, round: int, dice: random.Random) -> None:
    """Publish to the shared topic, the jobs and a topic of its own until the connection ends."""
    slots = asyncio.Semaphore(OUTSTANDING_MAX)
    over = asyncio.Event()
    waiting: deque[tuple[int, str, list[Name]]] = deque()

    def draw() -> tuple[int, bytes]:
        topic = dice.choice((SHARED, JOBS, f"torture.own{producer}"))
        sent = book.sent.setdefault((topic, producer, round), [])
        count, filler = dice.choice((1, 1, 1, 5, 40)), dice.choice((0, 10, 1000, 20_000))
        names = [(producer, round, len(sent) + place) for place in range(count)]
        sent += [filler] * count
        values = [message(name, filler) for name in names]
        type = FrameType.PUBLISH if count == 1 else FrameType.PRODUCE
        waiting.append((type, topic, names))
        if type == FrameType.PUBLISH:
            return type, wire.Publish(topic, (), values[0], 0, True).encode()
        data = batch.build([(None, value, ()) for value in values], timestamp_ms=1)
        return type, wire.Produce(topic, -1, Acks.STORED, 0, 0, data).encode()

    async def note_confirms(link: Link) -> None:
        try:
            while True:
                await note_confirm(link)
        except ConnectionError:
            over.set()
        finally:
            slots.release()

    async def note_confirm(link: Link) -> None:
        payload = (await link.next()).payload
        type, topic, names = waiting.popleft()
        answer = wire.decode_answer(type, payload)
        match answer:
            case wire.PublishAnswer(message_id=message_id):
                first = int(message_id.rpartition(":")[2])
            case wire.ProduceAnswer(base_offset=base_offset):
                first = base_offset
            case _:
                raise Broken(f"{topic}: not confirmed: {answer}")
        for offset, name in enumerate(names, first):
            book.confirm(topic, offset, name)
        slots.release()

    async with connected(port) as link:
        reader = asyncio.ensure_future(note_confirms(link))
        with contextlib.suppress(ConnectionError):
            await slots.acquire()
            while not over.is_set():
                await link.send(*draw())
                await slots.acquire()
        await reader


async def _acknowledge_half_until_the_end(port: int, book: Book) -> None:
    """Be a consumer of the jobs that acknowledges every other message."""
    with contextlib.suppress(ConnectionError):
        async with connected(port) as link:
            await link.ask(FrameType.SUBSCRIBE, wire.Subscribe(JOBS, GROUP, 1000, False).encode())
            while True:
                frame = await link.next()
                if frame.type == FrameType.DELIVERY:
                    delivery = wire.decode_delivery(bytes(frame.payload))
                    if _offset(delivery) % 2 == 0:
                        book.settled.add(_offset(delivery))
                        await link.send(FrameType.ACK, wire.Ack(delivery.message_id, 0).encode())


def _offset(delivery: wire.Delivery) -> int:
    return int(delivery.message_id.partition("#")[0].rpartition(":")[2])


async def _read_topic(link: Link, topic: str, offset: int) -> list[tuple[int, bytes]]:
    """All messages of a topic from `offset` on."""
    messages: list[tuple[int, bytes]] = []
    while True:
        fetch = wire.Fetch(topic, 0, offset, FETCH_BYTES, 0)
        answer = await link.ask(FrameType.FETCH, fetch.encode())
        assert isinstance(answer, wire.FetchAnswer)
        if offset >= answer.end:
            return messages
        read = [each for _, data in batch.split(answer.batches) for each in batch.parse(data) if each.offset >= offset]
        if not read:
            raise Broken(f"{topic}: nothing can be read at offset {offset}, but the log ends at {answer.end}")
        messages += [(each.offset, each.value or b"") for each in read]
        offset = read[-1].offset + 1


async def _audit(port: int, book: Book) -> int:
    """Hold the broker to the book; gives how many jobs were delivered again."""
    async with connected(port) as link:
        for topic in sorted({topic for topic, _, _ in book.sent}):
            if book.confirmed.get(topic) or topic in book.audited:
                book.audit(topic, await _read_topic(link, topic, book.audited.get(topic, 0)))
        owed = set(book.confirmed.get(JOBS, ())) - book.settled
        came = 0
        await link.ask(FrameType.SUBSCRIBE, wire.Subscribe(JOBS, GROUP, 0xFFFF, False).encode())
        while owed:
            try:
                frame = await asyncio.wait_for(link.next(), PATIENCE_S)
            except (ConnectionError, TimeoutError):
                raise Broken(
                    f"{len(owed)} unacknowledged jobs do not come again, the first is {JOBS}:{min(owed)}"
                ) from None
            if frame.type == FrameType.DELIVERY:
                delivery = wire.decode_delivery(bytes(frame.payload))
                if delivery.payload != book.value(JOBS, name_of(delivery.payload)):
                    raise Broken(f"{delivery.message_id} was delivered with bytes that nobody sent")
                owed.discard(_offset(delivery))
                came += 1
                book.settled.add(_offset(delivery))
                await link.send(FrameType.ACK, wire.Ack(delivery.message_id, 0).encode())
        return came


async def _round(data: str, book: Book, round: int, dice: random.Random) -> int:
    """Recover, audit, work, kill."""
    if dice.random() < KILLED_EARLY:
        early = Process(data)
        await asyncio.sleep(dice.uniform(0.1, 1.5))
        early.kill()
    broker = Process(data)
    try:
        port = await asyncio.to_thread(broker.port)
        came = await _audit(port, book)
        seeds = [random.Random(dice.random()) for _ in range(PRODUCERS)]
        work = [
            asyncio.ensure_future(_publish_until_the_end(port, book, producer, round, seeds[producer]))
            for producer in range(PRODUCERS)
        ]
        work.append(asyncio.ensure_future(_acknowledge_half_until_the_end(port, book)))
        await asyncio.sleep(dice.uniform(0.05, 0.6))
    finally:
        broker.kill()
    await asyncio.wait_for(asyncio.gather(*work), PATIENCE_S)
    return came


async def _last_audit(data: str, book: Book) -> int:
    """Everything once more, from the first offset on, and a clean stop."""
    broker = Process(data)
    book.audited.clear()
    book.found.clear()
    try:
        return await _audit(await asyncio.to_thread(broker.port), book)
    finally:
        broker.stop()


def torture(
    rounds: int, seed: int, data: str | None = None, on_round: Callable[[int, Book], None] | None = None
) -> Report:
    """Kill a broker `rounds` times; raises `Broken` when it did not keep a promise, and then keeps its files."""
    dice = random.Random(seed)
    book = Book()
    place = data or tempfile.mkdtemp(prefix="dovetail-torture-")
    redelivered = 0
    try:
        for round in range(rounds):
            redelivered += asyncio.run(_round(place, book, round, dice))
            if on_round is not None:
                on_round(round, book)
        redelivered += asyncio.run(_last_audit(place, book))
    except Broken as broken:
        raise Broken(f"{broken}; the broker's files are in {place}") from broken
    if data is None:
        shutil.rmtree(place)
    return Report(rounds, book.confirmed_count, sum(book.audited.values()), len(book.settled), redelivered)
