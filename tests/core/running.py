"""A whole node over a store in memory, in a time of its own: what a test says to it happens at once."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.core import batch, frames, inputs, journal_format, wire
from dovetail.core.awaken import awaken
from dovetail.core.committer import Committer
from dovetail.core.connection import Terms
from dovetail.core.effects import Answer, AnyEffect, Appended, Deliver, Refused
from dovetail.core.evolve import evolve_frame
from dovetail.core.frames import Frame, FrameDecoder, FrameType
from dovetail.core.ids import Now
from dovetail.core.inputs import AnyInput
from dovetail.core.intervals import total
from dovetail.core.invariants import check_state
from dovetail.core.journal_format import Entry, Item
from dovetail.core.node import FindTime, Local, Node, ReadLog, WriteBehind
from dovetail.core.records import AnyRecord, TopicConfig
from dovetail.core.state import Durable, Settings

HOUR_MS = 3_600_000
START_WALL_MS = 1_800_000_000_000


class Consumer:
    """A local session that holds what it is sent until it is told what to do with it."""

    def __init__(self, running: Running, name: str) -> None:
        self.running = running
        self.held: list[Deliver] = []
        self.texts: list[str] = []
        self.local = running.node.open_local(name, self._take)

    def _take(self, delivery: Deliver, entries: tuple[Entry, ...]) -> None:
        self.held.append(delivery)
        for entry in entries:
            for record in batch.parse(entry.batch):
                if any(first <= record.offset <= last for first, last in delivery.ranges):
                    self.texts.append((record.value or b"").decode())

    def say(self, make: Callable[[int, int], AnyInput]) -> Answer | None:
        """Make a request of this session's and its number; the answer, if it came at once."""
        return self.running.say(self.local, make)

    def subscribe(self, pattern: str, group: str = "", credit: int = 100) -> None:
        self.say(lambda me, number: inputs.Subscribe(me, number, pattern, group, credit, False))

    def settle(self, action: int, reason: int = 0, error: str = "", most: int = 1 << 30) -> int:
        """Say the same about everything that is held, or the first `most` deliveries of it; gives messages settled."""
        held, self.held = self.held[:most], self.held[most:]
        count = 0
        for each in held:
            items = tuple(
                inputs.SettleItem(each.lease, action, first, last, reason, 0, error) for first, last in each.ranges
            )
            count += total(each.ranges)
            self.say(lambda me, number, items=items: inputs.Settle(me, number, items))
        return count


class Client:
    """A connection that speaks the wire, and keeps the frames it was sent until they are taken."""

    def __init__(self, running: Running, *, native: bool = True) -> None:
        self.running = running
        self.is_closed = False
        self.frames: list[Frame] = []
        self.hello: wire.HelloAnswer | None = None
        self._decoder = FrameDecoder()
        self.session = running.node.connect("peer")
        running.clients[self.session] = self
        if native:
            answer = self.ask(wire.Hello("client"))
            assert isinstance(answer, wire.HelloAnswer)
            self.hello = answer

    def hear(self, said: list[bytes | memoryview], *, closing: bool) -> None:
        for each in self._decoder.feed(b"".join(said)):
            assert isinstance(each, Frame), each
            self.frames.append(each)
        self.is_closed = self.is_closed or closing

    def send(self, *messages: wire.Request | wire.Push) -> None:
        """Send them in one piece."""
        data = b"".join(frames.encode(message.TYPE, message.encode()) for message in messages)
        self.running.node.receive(self.session, data)
        self.running.settle_down()

    def take(self, type: FrameType) -> list[Frame]:
        """The frames of one type that have come, oldest first."""
        taken = [each for each in self.frames if each.type == type]
        self.frames = [each for each in self.frames if each.type != type]
        return taken

    def ask(self, message: wire.Request) -> wire.Answer | wire.Refusal:
        """The answer, which has to be there at once."""
        self.send(message)
        (answer,) = self.take(FrameType.RESPONSE)
        return wire.decode_answer(message.TYPE, answer.payload)

    def deliveries(self) -> list[wire.Deliver]:
        """What was delivered as whole batches, and was not taken yet."""
        found = [wire.decode_message(each.type, each.payload) for each in self.take(FrameType.DELIVER)]
        return [each for each in found if isinstance(each, wire.Deliver)]

    def messages(self) -> list[wire.Delivery]:
        """What was delivered message by message, and was not taken yet."""
        found = [wire.decode_message(each.type, each.payload) for each in self.take(FrameType.DELIVERY)]
        return [each for each in found if isinstance(each, wire.Delivery)]

    def errors(self) -> list[str]:
        """What was said in ERRORs that were not taken yet."""
        found = [wire.decode_message(each.type, each.payload) for each in self.take(FrameType.ERROR)]
        return [each.text for each in found if isinstance(each, wire.Error)]


class Running:
    """A node that runs: time passes when told to, the disk does its work at once."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings(session_timeout_ms=1 << 50)
        self.now = Now(1_000, START_WALL_MS)
        self.effects: list[AnyEffect] = []
        self.records: list[AnyRecord] = []
        self.commits: list[tuple[int, bool]] = []
        """Of each commit how many frames it had, and whether it was synced."""
        self.reads_wait = False
        """Whether the disk does nothing for the log lane just now."""
        self.clients: dict[int, Client] = {}
        self._frames: list[bytes] = []
        self._files: dict[int, list[Entry]] = {}
        self._start(Durable(), 0)

    def _start(self, durable: Durable, crc: int) -> None:
        committer = Committer(lsn=durable.lsn, crc=crc, salt=7, linger_ms=50)
        self.node = Node(awaken(durable, self.settings), committer, Terms(), observe=self._observe)
        self.operator = self.node.open_local("operator")
        self.settle_down()

    def _observe(
        self,
        now: Now,
        arrived: tuple[AnyInput, ...],
        records: tuple[AnyRecord, ...],
        effects: tuple[AnyEffect, ...],
    ) -> None:
        self.records += records
        self.effects += effects

    def settle_down(self) -> None:
        """Tick until nothing is left to do at this moment."""
        while True:
            self.node.tick(self.now)
            for session, said, closing in self.node.outgoing():
                if session in self.clients:
                    self.clients[session].hear(said, closing=closing)
                self.node.wrote(session, 0)
            commit = self.node.next_commit(self.now)
            if commit is not None:
                self.commits.append((len(commit.frames), commit.sync))
                self._frames += [b"".join(frame.buffers) for frame in commit.frames]
                self.node.committed()
            job = None if self.reads_wait else self.node.next_job()
            if job is not None:
                self.node.job_done(self._do(job))
            if commit is None and job is None and not self.node.has_arrivals:
                check_state(self.node.state)
                return

    def _do(self, job: object) -> object:
        match job:
            case WriteBehind(items=items):
                for item in items:
                    if isinstance(item, Entry):
                        self._files.setdefault(item.record.log, []).append(item)
                return None
            case ReadLog(log=log, offset=offset, bytes_max=bytes_max):
                return self._read(log, offset, bytes_max)
            case FindTime():
                return 0
            case _:
                raise AssertionError(job)

    def _read(self, log: int, offset: int, bytes_max: int) -> tuple[Entry, ...]:
        found: list[Entry] = []
        for entry in self._files.get(log, ()):
            if entry.last >= offset and (not found or sum(each.size_bytes for each in found) < bytes_max):
                found.append(entry)
        return tuple(found)

    def advance(self, by_ms: int) -> None:
        """Let time pass, with a tick whenever one is due."""
        end = self.now.mono_ms + by_ms
        while True:
            wake_ms = self.node.wake_ms()
            at_ms = end if wake_ms is None else min(end, max(wake_ms, self.now.mono_ms + 1))
            passed_ms = at_ms - self.now.mono_ms
            self.now = Now(at_ms, self.now.wall_ms + passed_ms)
            self.settle_down()
            if at_ms >= end:
                return

    def jump(self, by_ms: int) -> None:
        """Let time pass in one go, as on a machine that slept."""
        self.now = Now(self.now.mono_ms + by_ms, self.now.wall_ms + by_ms)
        self.settle_down()

    def crash(self) -> None:
        """The process dies; what was committed is all there is, and the logs' files are made from it."""
        durable, crc = Durable(), 0
        self._files = {}
        for data in self._frames:
            frame = journal_format.read_frame(data, 0, durable.lsn + 1, crc)
            assert isinstance(frame, journal_format.Frame)
            items: list[Item] = journal_format.decode_items(frame.body)
            durable = evolve_frame(durable, frame.lsn, frame.wall_ms, journal_format.records_of(items))
            crc = frame.crc
            for item in items:
                if isinstance(item, Entry):
                    self._files.setdefault(item.record.log, []).append(item)
        self._start(durable, crc)

    def say(self, local: Local, make: Callable[[int, int], AnyInput]) -> Answer | None:
        """A request of a local session; the answer, if it came at once."""
        answers: list[Answer] = []
        number = local.register(lambda answer, _: answers.append(answer))
        self.node.submit(make(local.session, number))
        self.settle_down()
        return answers[0] if answers else None

    def ask(self, make: Callable[[int, int], AnyInput]) -> Answer | None:
        return self.say(self.operator, make)

    def consumer(self, name: str = "consumer") -> Consumer:
        return Consumer(self, name)

    def connect(self, *, native: bool = True) -> Client:
        """A connection; a native one has said HELLO."""
        return Client(self, native=native)

    def create(self, topic: str, config: TopicConfig | None = None, *, partitions: int = 1, lanes: int = 0) -> None:
        self.ask(lambda me, number: inputs.CreateTopic(me, number, topic, partitions, lanes, config or TopicConfig()))

    def publish(self, topic: str, *texts: str, **options: int) -> Answer | None:
        """A batch of messages; options are fields of `inputs.Publish`."""
        data = batch.build(
            [(None, text.encode(), ()) for text in texts],
            timestamp_ms=self.now.wall_ms,
            producer_id=options.get("producer_id", -1),
            producer_epoch=options.get("producer_epoch", -1),
            base_sequence=options.get("base_sequence", -1),
        )
        handle = self.node._keep(data)

        def make(me: int, number: int) -> AnyInput:
            asks = (inputs.Ask(me, number, 0, len(texts)),)
            partition = options.pop("partition", 0)
            return inputs.Publish(topic, partition, handle, len(texts), len(data), asks, **options)

        return self.ask(make)


def offset_of(answer: Answer | None) -> int:
    assert isinstance(answer, Appended), answer
    return answer.offset


def refusal(answer: Answer | None) -> Refused:
    assert isinstance(answer, Refused), answer
    return answer
