"""A whole broker without I/O: connections, core, committer and memory, joined as they are in life and in simulation.

A shell (asyncio or SimPy) moves bytes and time: it says what arrived and what the disk has done, calls `tick`, and
carries out what it finds: `outgoing` bytes, `next_commit` for the journal lane, `next_job` for the log lane, `wake_ms`.

Promises  one `step` per tick over everything that arrived; answers leave in the order of decisions; deliveries of a
          connection in theirs, and only as fast as its socket takes them, so memory stays bounded (I-BOUNDS).
Never     waits, and never decides what the core should.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from dovetail.core import batch, inputs, journal_format, keys
from dovetail.core.access import Access
from dovetail.core.codes import Acks
from dovetail.core.committer import Commit, Committer
from dovetail.core.connection import Connection, Single, Terms
from dovetail.core.effects import (
    Answer,
    AnyEffect,
    Assign,
    CloseSession,
    Copy,
    Deliver,
    Fetched,
    Find,
    Hurry,
    LeaseEnded,
    Overtaken,
    Pick,
    Read,
    Reply,
    Revoke,
)
from dovetail.core.frames import ErrorCode
from dovetail.core.ids import Now
from dovetail.core.inputs import AnyInput
from dovetail.core.journal_format import Entry, Item
from dovetail.core.records import (
    LAZY,
    AnyRecord,
    BatchAppended,
    EntryFlag,
    LogTrimmed,
    SyncPolicy,
    TopicCreated,
    TopicDeleted,
)
from dovetail.core.shelf import LAST, Shelf
from dovetail.core.state import BatchMeta, State
from dovetail.core.step import step, wake_ms

ROUNDS_MAX = 16
"""Steps of one tick: an answer that is in memory can be followed up at once, but not for ever."""
SEEN_MS = 1_000
"""The core hears of a session's signs of life at most this often, and four times in a session timeout at least."""


class NodeOptions(Struct, frozen=True):
    """The bounds of a broker's memory."""

    tail_bytes_max: int = 32 << 20
    read_bytes_max: int = 32 << 20
    joined_bytes_max: int = 1 << 20
    send_window_bytes: int = 1 << 20
    send_buffer_bytes_max: int = 32 << 20
    unwritten_bytes_max: int = 128 << 20
    behind_bytes_max: int = 8 << 20
    behind_linger_ms: int = 20
    """How long a commit's entries may wait for others before the logs' files are written to."""
    stall_ms: int = 30_000


class WriteBehind(Struct, frozen=True):
    """Carry the consequences of frames up to `lsn` to the logs' files."""

    lsn: int
    items: tuple[Item, ...]


class ReadLog(Struct, frozen=True):
    """Gives entries of a log from the one that holds `offset` on."""

    log: int
    offset: int
    bytes_max: int


class FindTime(Struct, frozen=True):
    """Gives the first offset of a log that arrived at or after `arrival_ms`."""

    log: int
    arrival_ms: int


class Chore(Struct, frozen=True):
    """Something of the storage engine's own, in its turn: a task that the node does not look into."""

    task: object


Job = WriteBehind | ReadLog | FindTime | Chore
Observer = Callable[[Now, tuple[AnyInput, ...], tuple[AnyRecord, ...], tuple[AnyEffect, ...]], None]
Then = Callable[[tuple[Entry, ...]], None]


class Local:
    """A session inside the process: each request has a function that takes its answer."""

    def __init__(self, session: int, on_deliver: Callable[[Deliver, tuple[Entry, ...]], None] | None = None) -> None:
        self.session = session
        self.closing = False
        self.out: list[bytes | memoryview] = []
        self.ended = ""
        self.overtaken_count = 0
        self.revoked: tuple[tuple[str, int], ...] = ()
        self.assigned: dict[str, Assign] = {}
        self._requests = 0
        self._waiting: dict[int, Callable[[Answer, tuple[Entry, ...]], None]] = {}
        self._on_deliver = on_deliver

    def register(self, then: Callable[[Answer, tuple[Entry, ...]], None]) -> int:
        """The number under which the answer to the next request will come."""
        self._requests += 1
        self._waiting[self._requests] = then
        return self._requests

    def answer(self, number: int, answer: Answer, entries: tuple[Entry, ...] = ()) -> None:
        then = self._waiting.pop(number, None)
        if then is not None:
            then(answer, entries)

    def deliver(self, delivery: Deliver, entries: tuple[Entry, ...]) -> None:
        if self._on_deliver is not None:
            self._on_deliver(delivery, entries)

    def overtaken(self, skipped: Overtaken) -> None:
        """Kept in `overtaken_count`."""
        self.overtaken_count += skipped.last - skipped.first + 1

    def revoke(self, asked: Revoke) -> None:
        """Kept in `revoked` until whoever uses the session answers by joining again."""
        self.revoked += asked.partitions

    def assign(self, given: Assign) -> None:
        """Kept in `assigned`: all that the member has."""
        self.assigned[given.group] = given

    def lease_ended(self, lease: int) -> None:
        """Whoever holds it learns by the refusal of a settle."""

    def end(self, code: int, text: str) -> None:
        self.closing = True
        self.ended = text


class _Fetch(Struct, frozen=True):
    """The answer to a FETCH, whose batches are read when there is room for them."""

    request: int
    answer: Fetched


class _Peer:
    """A connection or local session, what waits to be sent to it, and how much its socket has not taken."""

    __slots__ = ("buffered", "heard_ms", "line", "outbox", "reading", "unsent")

    def __init__(self, line: Connection | Local) -> None:
        self.line = line
        self.outbox: deque[Deliver | _Fetch] = deque()
        self.unsent: list[tuple[int, int]] = []
        self.buffered = 0
        self.reading = False
        self.heard_ms = -SEEN_MS


class _Joined:
    """PUBLISHes of one tick that become one batch."""

    __slots__ = ("flags", "singles", "size", "topic", "ttl_ms")

    def __init__(self, topic: str, ttl_ms: int, flags: int) -> None:
        self.topic = topic
        self.ttl_ms = ttl_ms
        self.flags = flags
        self.singles: list[Single] = []
        self.size = 0


class Node:
    """The broker. `observe` is told of every step: recorders, tracers and checkers listen there."""

    def __init__(
        self,
        state: State,
        committer: Committer,
        terms: Terms,
        options: NodeOptions | None = None,
        observe: Observer | None = None,
    ) -> None:
        self.state = state
        self.committer = committer
        self.terms = terms
        self.options = options or NodeOptions()
        self.observe = observe
        self.shelf = Shelf(self.options.tail_bytes_max, self.options.read_bytes_max)
        self.behind_lsn = state.durable.lsn
        self._now = Now(0, state.durable.wall_ms)
        self._peers: dict[int, _Peer] = {}
        self._next_session = 1
        self._standing = ""
        """What whoever connects is told."""
        self._arrivals: list[AnyInput | _Joined] = [inputs.Start()]
        self._open: dict[tuple[str, int], _Joined] = {}
        """By topic, and by client where each has a quota."""
        self._heard: dict[int, None] = {}
        self._stalled_ms: dict[int, int] = {}
        """Since when a connection is in the middle of a frame."""
        self._unread_ms: dict[int, int] = {}
        """Since when a connection's socket has taken nothing although much waits for it."""
        self._taken: dict[int, None] = {}
        """Connections whose sockets have taken something since the last tick, though much still waits."""
        self._touched: dict[int, None] = {}
        self._pumping: dict[int, None] = {}
        self._laden: dict[int, None] = {}
        """Sessions for which something waits to be read, or for room in their socket."""
        self._payloads: dict[int, bytes | memoryview] = {}
        self._next_handle = 1
        self._uncommitted: deque[tuple[int, tuple[Item, ...], int]] = deque()
        self._behind: deque[tuple[int, tuple[Item, ...], int]] = deque()
        self._behind_bytes = 0
        self._behind_since_ms = 0
        self._reads: deque[tuple[ReadLog | FindTime | Chore, Callable[[object], None]]] = deque()
        self._then: Callable[[object], None] | None = None

    # What the shell says

    def connect(self, peer: str) -> int:
        """A connection was accepted; gives its session number."""
        session = self._number()
        line = Connection(session, peer, self.terms, self._keep)
        line.standing = self._standing
        self._peers[session] = _Peer(line)
        return session

    def open_local(self, name: str, on_deliver: Callable[[Deliver, tuple[Entry, ...]], None] | None = None) -> Local:
        """A session inside the process."""
        local = Local(self._number(), on_deliver)
        self._peers[local.session] = _Peer(local)
        self._arrivals.append(inputs.SessionOpened(local.session, name))
        return local

    def receive(self, session: int, data: bytes | memoryview) -> None:
        """Bytes came from a connection; they may be overwritten afterwards."""
        peer = self._peers.get(session)
        if peer is None or not isinstance(peer.line, Connection):
            return
        for arrival in peer.line.receive(data):
            self._arrive(arrival)
        self._heard[session] = None
        if peer.line.out or peer.line.closing:
            self._touched[session] = None

    def submit(self, request: AnyInput) -> None:
        """An input from inside: a local session's request, a proposal of storage."""
        self._arrive(request)

    def keep(self, data: bytes) -> int:
        """Take the payload of an input that is submitted before the next tick; gives its handle."""
        return self._keep(data)

    def read(self, log: int, offset: int, bytes_max: int, then: Then) -> None:
        """Hand `then` stored entries from `offset` on, from memory at once or by a job of the log lane."""
        self._read(log, offset, bytes_max, then)

    def find_time(self, log: int, arrival_ms: int, then: Callable[[object], None]) -> None:
        """Hand `then` the first offset of a log that arrived at or after a time."""
        self._reads.append((FindTime(log, arrival_ms), then))

    def disconnect(self, session: int) -> None:
        """A connection or local session is gone."""
        if self._peers.pop(session, None) is not None:
            self._arrive(inputs.SessionClosed(session))
            self._stalled_ms.pop(session, None)
            self._unread_ms.pop(session, None)

    def wrote(self, session: int, buffered_bytes: int) -> None:
        """The socket has taken what it was given but for `buffered_bytes`."""
        peer = self._peers.get(session)
        if peer is None:
            return
        has_taken = buffered_bytes < peer.buffered
        peer.buffered = buffered_bytes
        if buffered_bytes > self.options.send_buffer_bytes_max:
            text = f"{buffered_bytes} bytes wait to be read by this client: it is too slow, or does not read at all"
            peer.line.end(ErrorCode.TOO_SLOW, text)
            self._touched[session] = None
        elif buffered_bytes >= self.options.send_window_bytes:
            self._unread_ms.setdefault(session, self._now.mono_ms)
            if has_taken:
                self._taken[session] = None
        else:
            self._unread_ms.pop(session, None)
            for subscription, count in peer.unsent:
                self._arrivals.append(inputs.Sent(subscription, count))
            peer.unsent.clear()
            if peer.outbox:
                self._pumping[session] = None

    def unread(self, now: Now) -> list[int]:
        """Connections that the next tick ends because they read nothing, unless `wrote` says that they did: a shell is
        told of a socket only when most of what waits is gone."""
        return [each for each, since_ms in self._unread_ms.items() if now.mono_ms - since_ms >= self.options.stall_ms]

    def committed(self) -> None:
        """The commit under way is done."""
        commit = self.committer.done()
        last = commit.last_lsn
        self._arrivals.append(inputs.Stored(last) if commit.sync else inputs.Written(last))
        while self._uncommitted and self._uncommitted[0][0] <= last:
            frame = self._uncommitted.popleft()
            if not self._behind:
                self._behind_since_ms = self._now.mono_ms
            self._behind.append(frame)
            self._behind_bytes += frame[2]

    def job_done(self, result: object) -> None:
        """The job that `next_job` gave is done."""
        then, self._then = self._then, None
        if then is not None:
            then(result)

    # What the shell finds to do

    def outgoing(self) -> Iterator[tuple[int, list[bytes | memoryview], bool]]:
        """Sessions with bytes to send, and whether they are to be closed after that."""
        touched, self._touched = self._touched, {}
        for session in touched:
            peer = self._peers.get(session)
            if peer is not None and (peer.line.out or peer.line.closing):
                out, peer.line.out = peer.line.out, []
                yield session, out, peer.line.closing

    def next_commit(self, now: Now) -> Commit | None:
        """The next commit for the journal lane; None while one is under way or nothing is due."""
        return self.committer.next_commit(now.mono_ms)

    def next_job(self) -> Job | None:
        """The next job for the log lane; None while one is under way or there is none."""
        if self._then is not None:
            return None
        by_time = bool(self._reads) and isinstance(self._reads[0][0], FindTime)
        if self._reads and not (by_time and self._behind) and self._behind_bytes <= self.options.behind_bytes_max:
            job, self._then = self._reads.popleft()
            return job
        # A search by time looks into the files: what is on its way to them goes first.
        if self._behind and (by_time or self._now.mono_ms >= self._behind_due_ms()):
            return self._write_behind()
        return None

    def _behind_due_ms(self) -> int:
        """When the logs' files are written to: soon, but not for every commit by itself."""
        full = self._behind_bytes >= self.options.behind_bytes_max // 8
        return self._behind_since_ms if full else self._behind_since_ms + self.options.behind_linger_ms

    def wake_ms(self) -> int | None:
        """When `tick` and `next_commit` are due at the latest, by the monotonic clock."""
        waiting = [*self._stalled_ms.values(), *self._unread_ms.values()]
        stalled = min(waiting) + self.options.stall_ms if waiting else None
        behind = self._behind_due_ms() if self._behind and self._then is None else None
        times = (wake_ms(self.state, self._now), self.committer.wake_ms, stalled, behind)
        return min((each for each in times if each is not None), default=None)

    @property
    def is_saturated(self) -> bool:
        """Whether so much waits for the disk that sockets should not be read for a while."""
        return self.committer.bytes_waiting + self._behind_bytes > self.options.unwritten_bytes_max

    @property
    def has_arrivals(self) -> bool:
        """Whether something waits for a tick."""
        return bool(self._arrivals or self._pumping or self._touched)

    @property
    def is_quiet(self) -> bool:
        """Whether everything decided is stored and in the logs' files."""
        return not (self._arrivals or self._uncommitted or self._behind or self._reads or self._then)

    def sessions(self) -> list[int]:
        """The sessions that are connected."""
        return list(self._peers)

    def connection(self, session: int) -> Connection | None:
        """A session's connection, if it is one over the network."""
        peer = self._peers.get(session)
        return peer.line if peer is not None and isinstance(peer.line, Connection) else None

    def local(self, session: int) -> Local | None:
        """A session inside the process, by its number."""
        peer = self._peers.get(session)
        return peer.line if peer is not None and isinstance(peer.line, Local) else None

    def goodbye(self, reason: str) -> None:
        """Ask all clients to finish and go."""
        for session, peer in self._peers.items():
            if isinstance(peer.line, Connection):
                peer.line.goodbye(reason)
                self._touched[session] = None

    def notice(self, text: str, *, stays: bool) -> None:
        """Tell all clients that the broker does less than usual, or all of it again; what `stays` is told to those who
        come later too, until the next notice."""
        self._standing = text if stays else ""
        for session, peer in self._peers.items():
            if isinstance(peer.line, Connection):
                peer.line.notice(text, stays=stays)
                self._touched[session] = None

    def admit_only(self, good: Sequence[Access]) -> None:
        """End the connections of those whose token was taken away, has run out, or has other rights now."""
        for session, peer in self._peers.items():
            if isinstance(peer.line, Connection) and peer.line.admit_only(good):
                self._touched[session] = None

    def add_chore(self, task: object, then: Callable[[object], None]) -> None:
        """Have the log lane do something of storage's own between its other jobs."""
        self._reads.append((Chore(task), then))

    # Ticks

    def tick(self, now: Now) -> None:
        """Decide about everything that has arrived, and about what is due."""
        self._now = now
        self._note_signs_of_life(now)
        self._note_unsent(now)
        for _ in range(ROUNDS_MAX):
            due_ms = wake_ms(self.state, now)
            if not self._arrivals and (due_ms is None or due_ms > now.mono_ms):
                break
            self._step(now, self._take_arrivals(now))
            self._pump()
        self._pump()

    def _number(self) -> int:
        session = self._next_session
        self._next_session += 1
        return session

    def _keep(self, data: bytes | memoryview) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._payloads[handle] = data
        return handle

    def _arrive(self, arrival: AnyInput | Single) -> None:
        if isinstance(arrival, Single):
            self._join(arrival)
            return
        if self._open:
            # What follows a batch of the same topic, or a change of subscriptions or topics, must not be joined with
            # what came before it.
            if isinstance(arrival, inputs.Publish):
                topic = _one_spelling(arrival.topic)
                self._open.pop((topic, 0), None)
                for ask in arrival.asks:
                    self._open.pop((topic, ask.session), None)
            elif not isinstance(arrival, inputs.Settle | inputs.Heartbeat):
                self._open.clear()
        self._arrivals.append(arrival)

    def _join(self, single: Single) -> None:
        flags = 0 if single.require_ack else int(EntryFlag.NO_ACK)
        settings = self.state.settings
        # A batch counts against one client's quota: where there are quotas, clients share none.
        client = single.session if settings.quota_messages or settings.quota_bytes else 0
        place = _one_spelling(single.topic), client
        joined = self._open.get(place)
        if (
            joined is None
            or joined.ttl_ms != single.ttl_ms
            or joined.flags != flags
            or joined.size + single.size_bytes > self.options.joined_bytes_max
        ):
            joined = self._open[place] = _Joined(single.topic, single.ttl_ms, flags)
            self._arrivals.append(joined)
        joined.singles.append(single)
        joined.size += single.size_bytes + 64

    def _take_arrivals(self, now: Now) -> tuple[AnyInput, ...]:
        arrivals, self._arrivals = self._arrivals, []
        self._open.clear()
        return tuple([self._as_batch(each, now) if isinstance(each, _Joined) else each for each in arrivals])

    def _as_batch(self, joined: _Joined, now: Now) -> inputs.Publish:
        records: list[batch.NewRecord] = []
        asks: list[inputs.Ask] = []
        for index, single in enumerate(joined.singles):
            headers = tuple([(key, value.encode()) for key, value in single.headers])
            records.append((None, single.payload, headers))
            asks.append(inputs.Ask(single.session, single.request, index, 1))
        data = batch.build(records, timestamp_ms=now.wall_ms)
        return inputs.Publish(
            joined.topic,
            -1,
            self._keep(data),
            len(records),
            len(data),
            tuple(asks),
            Acks.STORED,
            ttl_ms=joined.ttl_ms,
            flags=joined.flags,
        )

    def _note_signs_of_life(self, now: Now) -> None:
        seen_every_ms = min(SEEN_MS, self.terms.session_timeout_ms // 4)
        for session in self._heard:
            peer = self._peers.get(session)
            if peer is None or not isinstance(peer.line, Connection):
                continue
            if peer.line.is_inside_frame:
                self._stalled_ms[session] = now.mono_ms
            else:
                self._stalled_ms.pop(session, None)
            if peer.line.is_session and now.mono_ms - peer.heard_ms >= seen_every_ms:
                peer.heard_ms = now.mono_ms
                self._arrivals.append(inputs.Seen(session))
        self._heard.clear()
        for session in self._taken:
            if session in self._unread_ms:
                self._unread_ms[session] = now.mono_ms
        self._taken.clear()
        self._end_overdue(now, self._stalled_ms, ErrorCode.LENGTH, "a frame was begun and not finished")
        self._end_overdue(now, self._unread_ms, ErrorCode.TOO_SLOW, "nothing of what was sent was read")

    def _note_unsent(self, now: Now) -> None:
        """Say which leases run out although nothing of them was sent: nobody has seen what they hold (I-ATTEMPTS)."""
        due_ms = self.state.live.timers.wake_ms
        if not self._laden or due_ms is None or due_ms > now.mono_ms:
            return
        for session in list(self._laden):
            peer = self._peers.get(session)
            if peer is None or not peer.outbox:
                del self._laden[session]
                continue
            for load in peer.outbox:
                lease = self.state.live.leases.get(load.lease) if isinstance(load, Deliver) else None
                if lease is not None and lease.deadline_ms <= now.mono_ms:
                    self._arrivals.append(inputs.Unsent(lease.id))

    def _end_overdue(self, now: Now, since: dict[int, int], code: ErrorCode, text: str) -> None:
        for session, since_ms in list(since.items()):
            if now.mono_ms - since_ms >= self.options.stall_ms:
                del since[session]
                self._peers[session].line.end(code, f"{text} for {self.options.stall_ms} ms")
                self._touched[session] = None

    def _step(self, now: Now, arrived: tuple[AnyInput, ...]) -> None:
        self.state, records, effects = step(self.state, now, arrived)
        if records:
            self._record(now, records, effects)
        self._payloads.clear()
        if self.observe is not None:
            self.observe(now, arrived, records, effects)
        for effect in effects:
            self._perform(effect)

    def _record(self, now: Now, records: tuple[AnyRecord, ...], effects: tuple[AnyEffect, ...]) -> None:
        """Give the step's records to the committer as one frame, and keep its entries in memory."""
        lsn = self.state.durable.lsn
        items: list[Item] = []
        for_files: list[Item] = []
        size = 0
        urgent = sync = timed = False
        for record in records:
            if isinstance(record, BatchAppended):
                data = self._payloads[record.handle] = batch.patch(self._payloads[record.handle], record.base)
                entry = journal_format.encode_entry(record, data)
                self.shelf.add(lsn, entry)
                items.append(entry)
                for_files.append(entry)
                size += len(entry.header) + len(data)
                urgent = True
                policy = self._policy(record.log)
                sync = sync or policy == SyncPolicy.ALWAYS
                timed = timed or policy == SyncPolicy.INTERVAL
                continue
            items.append(record)
            urgent = urgent or not isinstance(record, LAZY)
            sync = True
            if isinstance(record, TopicCreated | TopicDeleted | LogTrimmed):
                for_files.append(record)
        urgent = urgent or any(isinstance(effect, Hurry) for effect in effects)
        self.committer.add(now.mono_ms, lsn, self.state.durable.wall_ms, items, urgent=urgent, sync=sync, timed=timed)
        self._uncommitted.append((lsn, tuple(for_files), size))

    def _policy(self, log_id: int) -> SyncPolicy:
        log = self.state.durable.logs.get(log_id)
        return SyncPolicy.ALWAYS if log is None else self.state.durable.topics[log.topic].config.sync

    def _perform(self, effect: AnyEffect) -> None:
        match effect:
            case Reply():
                self._reply(effect)
            case Deliver():
                peer = self._peers.get(effect.session)
                if peer is not None:
                    peer.outbox.append(effect)
                    self._pumping[effect.session] = None
            case LeaseEnded():
                self._lease_ended(effect)
            case Read():
                self._read(effect.log, effect.from_offset, effect.bytes_max, lambda found: self._loaded(effect, found))
            case Copy():
                self._gather(effect.log, effect.offset, effect.offset, lambda found: self._copied(effect, found))
            case Pick():
                self._pick(effect)
            case Find():
                job = FindTime(effect.log, effect.arrival_ms)
                self._reads.append((job, lambda found: self._found(effect.ticket, found)))
            case Revoke() | Assign() | Overtaken():
                self._tell(effect)
            case CloseSession():
                self._close(effect)
            case Hurry():
                pass

    def _reply(self, reply: Reply) -> None:
        peer = self._peers.get(reply.session)
        if peer is None:
            return
        answer = reply.answer
        if isinstance(answer, Fetched) and answer.offset < answer.end:
            peer.outbox.append(_Fetch(reply.request, answer))
            self._pumping[reply.session] = None
            return
        peer.line.answer(reply.request, answer)
        self._check_held(peer)
        self._touched[reply.session] = None

    def _lease_ended(self, effect: LeaseEnded) -> None:
        peer = self._peers.get(effect.session)
        if peer is None:
            return
        peer.line.lease_ended(effect.lease)
        if any(_has_lease(each, effect.lease) for each in peer.outbox):
            peer.outbox = deque(each for each in peer.outbox if not _has_lease(each, effect.lease))

    def _tell(self, effect: Revoke | Assign | Overtaken) -> None:
        peer = self._peers.get(effect.session)
        if peer is None:
            return
        match effect:
            case Revoke():
                peer.line.revoke(effect)
            case Assign():
                peer.line.assign(effect)
            case Overtaken():
                peer.line.overtaken(effect)
        self._touched[effect.session] = None

    def _close(self, effect: CloseSession) -> None:
        peer = self._peers.get(effect.session)
        if peer is not None:
            peer.line.end(ErrorCode.SESSION_ENDED, effect.reason)
            self._touched[effect.session] = None

    def _loaded(self, effect: Read, entries: tuple[Entry, ...]) -> None:
        metas = tuple([_meta(entry.record) for entry in entries])
        if effect.keys:
            metas = tuple([replace(meta, keys=self._keys(each)) for meta, each in zip(metas, entries, strict=True)])
        self._arrivals.append(inputs.Loaded(effect.owner, effect.log, metas))

    def _keys(self, entry: Entry) -> tuple[int, ...]:
        """A hash of the key at each offset of a batch."""
        hashes = [keys.NO_KEY] * (entry.last - entry.base + 1)
        for record in batch.parse(entry.batch, codecs=self.terms.codecs):
            if record.key is not None:
                hashes[record.offset - entry.base] = crc32(record.key) & keys.HASH_MAX
        return tuple(hashes)

    def _copied(self, effect: Copy, entries: tuple[Entry, ...]) -> None:
        extra = tuple([(key, value.encode()) for key, value in effect.headers])
        try:
            found = next(entry for entry in entries if entry.base <= effect.offset <= entry.last)
            data = batch.single(found.batch, effect.offset, extra, codecs=self.terms.codecs)
        except (StopIteration, batch.BatchError):
            self._arrivals.append(inputs.Copied(effect.ticket, 0, 0))
            return
        self._arrivals.append(inputs.Copied(effect.ticket, self._keep(data), len(data)))

    def _pick(self, effect: Pick) -> None:
        """Fetch one delayed batch. Neighbours are due at other times: what is not in memory is read alone, not kept."""
        found = self.shelf.entries(effect.log, effect.base, 1)
        if found:
            self._picked(effect, found)
        else:
            self._reads.append((ReadLog(effect.log, effect.base, 1), lambda result: self._picked(effect, result)))

    def _picked(self, effect: Pick, entries: object) -> None:
        for entry in entries if isinstance(entries, tuple) else ():
            record = entry.record
            if record.base == effect.base:
                fields = (record.count, record.other_log, record.expires_at_ms, record.flags)
                handle = self._keep(entry.batch)
                self._arrivals.append(inputs.Picked(effect.ticket, handle, record.size_bytes, *fields))
                return
        self._arrivals.append(inputs.Picked(effect.ticket, 0, 0, 0, 0, 0, 0))

    def _found(self, ticket: int, offset: object) -> None:
        self._arrivals.append(inputs.Found(ticket, offset if isinstance(offset, int) else 0))

    # Bytes of stored entries: from memory, or from the log lane

    def _read(self, log: int, offset: int, bytes_max: int, then: Then, last: int = LAST) -> None:
        """Hand `then` the entries from `offset` on, at once if they are in memory, and then none past `last`."""
        found = self.shelf.entries(log, offset, bytes_max, last)
        if found:
            then(found)
        else:
            self._reads.append((ReadLog(log, offset, bytes_max), lambda result: self._read_back(log, result, then)))

    def _read_back(self, log: int, result: object, then: Then) -> None:
        entries = result if isinstance(result, tuple) else ()
        self.shelf.keep_read(log, entries)
        then(entries)

    def _gather(self, log: int, first: int, last: int, then: Then, so_far: tuple[Entry, ...] = ()) -> None:
        """Hand `then` all entries that there are between `first` and `last`."""

        def more(found: tuple[Entry, ...]) -> None:
            wanted = tuple([entry for entry in found if entry.base <= last])
            if not wanted or wanted[-1].last >= last or len(wanted) < len(found):
                then(so_far + wanted)
            else:
                self._gather(log, wanted[-1].last + 1, last, then, so_far + wanted)

        self._read(log, first, self.options.read_bytes_max // 8, more, last)

    # Deliveries

    def _pump(self) -> None:
        """Send what waits to be delivered, to whoever has room for it."""
        pumping, self._pumping = self._pumping, {}
        for session in pumping:
            peer = self._peers.get(session)
            if peer is not None:
                self._pump_peer(session, peer)

    def _pump_peer(self, session: int, peer: _Peer) -> None:
        window = self.options.send_window_bytes
        while peer.outbox and not peer.reading and not peer.line.closing and peer.buffered < window:
            load = peer.outbox[0]
            peer.reading = True
            if isinstance(load, Deliver):
                self._gather(load.log, load.ranges[0][0], load.ranges[-1][1], self._sender(session, load))
            else:
                wanted = load.answer
                self._read(wanted.log, wanted.offset, wanted.bytes_max, self._sender(session, load))
        if peer.outbox:
            self._laden[session] = None

    def _sender(self, session: int, load: Deliver | _Fetch) -> Then:
        return lambda entries: self._send(session, load, entries)

    def _send(self, session: int, load: Deliver | _Fetch, entries: tuple[Entry, ...]) -> None:
        peer = self._peers.get(session)
        if peer is None:
            return
        peer.reading = False
        if not peer.outbox or peer.outbox[0] is not load:
            self._pumping[session] = None
            return
        peer.outbox.popleft()
        before = len(peer.line.out)
        if isinstance(load, Deliver):
            _deliver(peer, load, entries)
        else:
            _answer_fetch(peer, load, entries)
            self._check_held(peer)
        # What is held for its turn is not on its way: nothing would ever say that the socket took it.
        peer.buffered += sum(map(len, peer.line.out[before:]))
        self._touched[session] = None
        if peer.outbox:
            self._pumping[session] = None

    def _check_held(self, peer: _Peer) -> None:
        """End a connection for which too many bytes wait for the answer to an earlier request (I-BOUNDS)."""
        if isinstance(peer.line, Connection) and peer.line.held_bytes > self.options.send_buffer_bytes_max:
            held = peer.line.held_bytes
            text = f"{held} bytes of answers wait for that to an earlier request: number requests, or wait in between"
            peer.line.end(ErrorCode.TOO_SLOW, text)

    # The log lane

    def _write_behind(self) -> WriteBehind:
        items: list[Item] = []
        size = 0
        lsn = self.behind_lsn
        while self._behind and (not items or size < self.options.behind_bytes_max):
            lsn, more, bytes_more = self._behind.popleft()
            items += more
            size += bytes_more
        self._behind_bytes -= size
        self._then = lambda _: self._written_behind(lsn)
        return WriteBehind(lsn, tuple(items))

    def _written_behind(self, lsn: int) -> None:
        self.behind_lsn = lsn
        self.shelf.written_behind(lsn)


def _meta(record: BatchAppended) -> BatchMeta:
    last = record.base + record.count - 1
    return BatchMeta(record.base, last, record.size_bytes, record.expires_at_ms, record.flags, record.deliver_at_ms)


def _deliver(peer: _Peer, delivery: Deliver, entries: tuple[Entry, ...]) -> None:
    peer.line.deliver(delivery, entries)
    if delivery.lease == 0:
        count = sum(last - first + 1 for first, last in delivery.ranges)
        peer.unsent.append((delivery.subscription, count))


def _answer_fetch(peer: _Peer, fetch: _Fetch, entries: tuple[Entry, ...]) -> None:
    stored = tuple([entry for entry in entries if entry.base < fetch.answer.end])
    if isinstance(peer.line, Local):
        peer.line.answer(fetch.request, fetch.answer, stored)
    else:
        peer.line.answer(fetch.request, fetch.answer, [entry.batch for entry in stored])


def _has_lease(load: Deliver | _Fetch, lease: int) -> bool:
    return isinstance(load, Deliver) and load.lease == lease


def _one_spelling(topic: str) -> str:
    """A topic's name with its levels divided in the one way, so that both ways mean one batch."""
    return topic.replace("/", ".")
