"""One connection's protocol: bytes in, requests for the core out; answers and deliveries in, bytes out.

Promises  requests without a correlation are answered in their order, the others as they come; a mistake of the peer is
          an ERROR in the place of its answer, and ends the connection only where the stream can't be trusted; an ACK
          that names `<id>#<n>` means exactly that delivery (I-DELIVERY).
Never     decides about messages: what it can't refuse by form it passes on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, assert_never

from msgspec import Struct

from dovetail.core import batch, frames, inputs, names, wire
from dovetail.core.access import EVERYTHING, Access, Role
from dovetail.core.batch import BatchError, BatchTooLarge
from dovetail.core.codes import Acks, Outcome, SettleAction, Status
from dovetail.core.compression import STANDARD, Codecs
from dovetail.core.effects import (
    Answer,
    Appended,
    Assign,
    Deliver,
    Done,
    Fetched,
    Joined,
    Overtaken,
    Refused,
    ReplayBegun,
    Revoke,
    Settlement,
    Sought,
    Subscribed,
    Topics,
)
from dovetail.core.frames import ErrorCode, Frame, FrameDecoder, FrameError, FrameType
from dovetail.core.inputs import AnyInput
from dovetail.core.journal_format import Entry
from dovetail.core.lifecycle import ConnectionState
from dovetail.core.wire import WireError

PARTITIONS_NAMED_MAX: Final = 0xFFFF
PARTITION_NAMED_BYTES: Final = 6
"""What one takes in a REVOKE or ASSIGN beside its topic's name."""
ENDED_IDS_MAX: Final = 1_000
"""Ids of ended deliveries that are remembered, to tell "too late" from "never heard of"."""

REQUESTS_MAX: Final = 100_000
"""Requests of one connection that may wait for an answer, or for their turn to be answered."""

LISTINGS_MAX: Final = 8
"""METADATA of one connection that may be under way: a few bytes ask for thousands of topics."""
LISTING_RETRY_MS: Final = 100


class Terms(Struct, frozen=True):
    """What a broker tells every client, and the limits it holds them to."""

    broker: str = "dovetail"
    heartbeat_ms: int = 3_000
    session_timeout_ms: int = 30_000
    frame_bytes_max: int = frames.PAYLOAD_BYTES_MAX
    message_bytes_max: int = 1 << 20
    codecs: Codecs = STANDARD
    admit: Callable[[str], Access | None] | None = None
    """Whose token it is; None for one that is not known. Without this everybody may do everything."""


class Single(Struct, frozen=True):
    """One PUBLISH: joined with its neighbours into a batch before the core sees it."""

    session: int
    request: int
    topic: str
    headers: wire.Headers
    payload: bytes
    ttl_ms: int
    require_ack: bool
    size_bytes: int


Arrival = AnyInput | Single


class _Pending(Struct, frozen=True, gc=False):
    """A request on its way: what kind it was, its correlation, and the delivery it settles."""

    type: int
    correlation: int | None
    delivery: int = 0
    silent: bool = False


class _Delivered(Struct, frozen=True, gc=False):
    lease: int
    offset: int
    message_id: str


class Connection:
    """The broker's side of one connection. `keep` takes a batch into the shell's keeping and gives its handle."""

    def __init__(self, session: int, peer: str, terms: Terms, keep: Callable[[memoryview], int]) -> None:
        self.session = session
        self.peer = peer
        self.name = peer
        self.closing = False
        """What is in `out` is the last that is sent; then the connection is closed."""
        self.out: list[bytes | memoryview] = []
        self.held_bytes = 0
        """Of answers that wait for their turn."""
        self.standing = ""
        """What is told to whoever says HELLO."""
        self._terms = terms
        self._keep = keep
        self._decoder = FrameDecoder(terms.frame_bytes_max)
        self._known = False
        self._native = False
        self._access = EVERYTHING if terms.admit is None else None
        self._leaving = False
        self._requests = 0
        self._pending: dict[int, _Pending] = {}
        self._turns: deque[int] = deque()
        self._ready: dict[int, bytes] = {}
        self._listings: list[int] = []
        self._deliveries = 0
        self._delivered: dict[int, _Delivered] = {}
        self._by_id: dict[str, list[int]] = {}
        self._by_lease: dict[int, list[int]] = {}
        self._ended: dict[str, None] = {}

    @property
    def is_session(self) -> bool:
        """Whether the core knows of it: it does from the first frame on."""
        return self._known

    @property
    def state(self) -> ConnectionState:
        """Where it is in its life."""
        if self.closing:
            return ConnectionState.CLOSED
        if self._leaving:
            return ConnectionState.LEAVING
        return ConnectionState.OPEN if self._known else ConnectionState.NEW

    def _is_over(self) -> bool:
        return self.closing or self._leaving

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame was begun that is not complete yet."""
        return self._decoder.is_inside_frame

    def receive(self, data: bytes | memoryview) -> list[Arrival]:
        """What arrived; everything the peer got wrong is answered here."""
        arrivals: list[Arrival] = []
        if self._is_over():
            return arrivals
        for each in self._decoder.feed(data):
            if isinstance(each, FrameError):
                self._mistake(each.code, each.text, each.correlation, fatal=each.fatal)
            else:
                self._take(each, arrivals)
            if self._is_over():
                break
        return arrivals

    def _take(self, frame: Frame, arrivals: list[Arrival]) -> None:
        if frame.type == FrameType.PRODUCE:
            return self._produce(frame, arrivals)
        if frame.type == FrameType.ERROR:
            return None  # Never answered: two peers could go on for ever.
        if frame.type == FrameType.RESPONSE:
            return self._unexpected(frame)
        try:
            message = wire.decode_message(frame.type, frame.payload)
        except WireError as error:
            return self._mistake(ErrorCode.MALFORMED, str(error), frame.correlation)
        if isinstance(message, wire.Hello):
            return self._hello(message, frame.correlation, arrivals)
        if self._access is not EVERYTHING and (denied := self._denied(*_need(message))):
            return self._refuse(self._register(frame.type, frame.correlation), Status.UNAUTHORIZED, denied)
        self._introduce(arrivals)
        match message:
            case wire.Publish():
                return self._publish(message, frame, arrivals)
            case wire.Ack():
                item = (message.message_id, SettleAction.ACK, 0)
                return self._settle_one(FrameType.ACK, frame.correlation, *item, arrivals)
            case wire.Nack():
                action = SettleAction.NACK if message.retry_requested else SettleAction.REJECT
                item = (message.message_id, action, message.reason)
                return self._settle_one(FrameType.NACK, frame.correlation, *item, arrivals)
            case wire.Goodbye():
                self._leaving = True
                return self._close_if_done()
            case wire.Delivery() | wire.Deliver() | wire.Error() | wire.Revoke() | wire.Assign():
                return self._unexpected(frame)
            case _:
                return self._request(message, frame, arrivals)

    def _denied(self, role: Role, place: str) -> str:
        """Why the peer may not do this; empty when it may."""
        if self._access is None:
            return "this broker asks for a token: say HELLO with one first"
        if self._access.may(role, place):
            return ""
        return f"the token of {self._access.name!r} does not have role {role.name.lower()} for {place or 'this'}"

    def _unexpected(self, frame: Frame) -> None:
        text = f"{FrameType(frame.type).name} is sent by brokers, not to them"
        self._mistake(ErrorCode.UNEXPECTED, text, frame.correlation)

    def _request(self, message: wire.Request, frame: Frame, arrivals: list[Arrival]) -> None:
        """A request that the core answers as it stands."""
        me = self.session
        number = self._register(frame.type, frame.correlation)
        match message:
            case wire.Settle():
                arrivals.append(_settle(me, number, message))
            case wire.Subscribe():
                fields = (message.pattern, message.group, message.max_inflight, message.auto_ack)
                arrivals.append(inputs.Subscribe(me, number, *fields))
            case wire.Unsubscribe():
                arrivals.append(inputs.Unsubscribe(me, number, _number(message.subscription_id)))
            case wire.JoinGroup():
                arrivals.append(inputs.JoinGroup(me, number, message.group, message.member, message.strategy))
            case wire.LeaveGroup():
                arrivals.append(inputs.LeaveGroup(me, number, message.group, message.member))
            case wire.Heartbeat():
                arrivals.append(inputs.Heartbeat(me, number, message.member or ""))
            case wire.Fetch():
                bytes_max = min(message.bytes_max, frames.batch_bytes_max(self._terms.frame_bytes_max))
                fields_ = (message.topic, message.partition, message.offset, bytes_max, message.wait_ms)
                arrivals.append(inputs.Fetch(me, number, *fields_, message.lane))
            case wire.Commit():
                where = (message.group, message.topic, message.partition)
                arrivals.append(inputs.Commit(me, number, *where, message.offset, message.lane))
            case wire.Seek():
                where = (message.group, message.topic, message.partition)
                arrivals.append(inputs.Seek(me, number, *where, message.whence, message.value, message.lane))
            case wire.Metadata():
                self._listings = [each for each in self._listings if each in self._pending]
                if len(self._listings) >= LISTINGS_MAX:
                    reason = f"{LISTINGS_MAX} METADATA of this connection are under way: wait for their answers"
                    return self._refuse(number, Status.BUSY, reason, LISTING_RETRY_MS)
                self._listings.append(number)
                arrivals.append(inputs.ListTopics(me, number, message.pattern))
            case wire.Credit():
                subscription = _number(message.subscription_id)
                arrivals.append(inputs.SetCredit(me, number, subscription, message.max_inflight))
            case wire.Publish() | wire.Produce() | wire.Ack() | wire.Nack() | wire.Hello() | wire.Goodbye():
                raise AssertionError(message)
            case _:
                assert_never(message)
        return None

    def _introduce(self, arrivals: list[Arrival]) -> None:
        if not self._known:
            self._known = True
            arrivals.append(inputs.SessionOpened(self.session, self.name))

    def _hello(self, message: wire.Hello, correlation: int | None, arrivals: list[Arrival]) -> None:
        if self._known:
            return self._mistake(ErrorCode.UNEXPECTED, "HELLO may only be the first frame", correlation)
        if self._terms.admit is not None:
            self._access = self._terms.admit(message.token)
            if self._access is None:
                self._leaving = True
                number = self._register(FrameType.HELLO, correlation)
                return self._refuse(number, Status.UNAUTHORIZED, "the token is not known, or it has expired")
        if message.client.isprintable() and 0 < len(message.client.encode()) <= names.NAME_BYTES_MAX // 2:
            self.name = message.client.strip().replace("/", "-") or self.peer
        self._native = True
        self._introduce(arrivals)
        terms = self._terms
        answer = wire.HelloAnswer(
            terms.broker, self.session, 0, terms.heartbeat_ms, terms.session_timeout_ms, terms.frame_bytes_max
        )
        self._finish(self._register(FrameType.HELLO, correlation), answer.encode())
        if self.standing:
            self.notice(self.standing, stays=True)
        return None

    def _publish(self, message: wire.Publish, frame: Frame, arrivals: list[Arrival]) -> None:
        number = self._register(FrameType.PUBLISH, frame.correlation)
        if names.is_hidden(message.topic):
            return self._refuse(number, Status.INVALID, names.OURS)
        size = len(message.payload) + sum(len(key.encode()) + len(value.encode()) for key, value in message.headers)
        if size > self._terms.message_bytes_max:
            text = f"a message of {size} bytes is over the limit of {self._terms.message_bytes_max}"
            return self._finish(number, wire.Refusal(Status.TOO_LARGE, 0, text).encode())
        ttl_ms = message.ttl_seconds * 1000
        what = (message.topic, message.headers, message.payload, ttl_ms, message.require_ack)
        # Many headers take more in a batch than what they hold, and about what they take in the frame.
        arrivals.append(Single(self.session, number, *what, len(frame.payload)))
        return None

    def _produce(self, frame: Frame, arrivals: list[Arrival]) -> None:
        payload, correlation = frame.payload, frame.correlation
        try:
            topic, partition, acks, priority, delay_ms, ttl_ms, at = wire.read_produce(payload)
        except WireError as error:
            return self._mistake(ErrorCode.MALFORMED, str(error), correlation)
        silent = acks == Acks.NONE
        if self._access is not EVERYTHING and (denied := self._denied(Role.WRITE, topic)):
            return self._refuse(self._register(frame.type, correlation, silent=silent), Status.UNAUTHORIZED, denied)
        if names.is_hidden(topic):
            return self._refuse(self._register(frame.type, correlation, silent=silent), Status.INVALID, names.OURS)
        terms = self._terms
        size, most = len(payload) - at, frames.batch_bytes_max(terms.frame_bytes_max)
        if size > most:
            reason = (
                f"a batch of {size} bytes is over the limit of {most}, which a delivery can carry: send smaller ones"
            )
            return self._refuse(self._register(frame.type, correlation, silent=silent), Status.TOO_LARGE, reason)
        self._introduce(arrivals)
        try:
            header = batch.check_produced(payload, at, record_bytes_max=terms.message_bytes_max, codecs=terms.codecs)
        except BatchTooLarge as error:
            number = self._register(FrameType.PRODUCE, correlation, silent=silent)
            return self._refuse(number, Status.TOO_LARGE, str(error))
        except BatchError as error:
            return self._mistake(ErrorCode.MALFORMED, f"PRODUCE: {error}", correlation)
        number = self._register(FrameType.PRODUCE, correlation, silent=silent)
        count = header.record_count
        arrivals.append(
            inputs.Publish(
                topic,
                partition,
                self._keep(memoryview(payload)[at:]),
                count,
                size,
                (inputs.Ask(self.session, number, 0, count),),
                acks,
                delay_ms,
                ttl_ms,
                0,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                priority,
            )
        )
        return None

    def _settle_one(
        self,
        type: int,
        correlation: int | None,
        message_id: str,
        action: SettleAction,
        reason: int,
        arrivals: list[Arrival],
    ) -> None:
        """An ACK or NACK: of the delivery it names, or of the only one that has its id."""
        found = self._find_delivery(message_id)
        if isinstance(found, Refused):
            number = self._register(type, correlation)
            return self._refuse(number, found.status, found.reason)
        number = self._register(type, correlation, delivery=found)
        delivered = self._delivered[found]
        item = inputs.SettleItem(delivered.lease, action, delivered.offset, delivered.offset, reason)
        arrivals.append(inputs.Settle(self.session, number, (item,)))
        return None

    def _find_delivery(self, message_id: str) -> int | Refused:
        bare, mark, count = message_id.rpartition("#")
        if mark:
            number = _number(count)
            delivered = self._delivered.get(number)
            if delivered is not None and delivered.message_id == bare:
                return number
            if delivered is None and 0 < number <= self._deliveries:
                return Refused(Status.LEASE_LOST, f"delivery {message_id} is over: it was settled, or its lease ended")
            return Refused(Status.NOT_FOUND, f"there was no delivery {message_id} on this connection")
        numbers = self._by_id.get(message_id, ())
        if len(numbers) == 1:
            return numbers[0]
        if numbers:
            return Refused(Status.INVALID, f"{message_id} was delivered {len(numbers)} times: name one, as <id>#<n>")
        if message_id in self._ended:
            return Refused(Status.LEASE_LOST, f"{message_id} is over: it was settled, or its lease ended")
        return Refused(Status.NOT_FOUND, f"{message_id} was not delivered on this connection")

    def _register(self, type: int, correlation: int | None, *, delivery: int = 0, silent: bool = False) -> int:
        if len(self._pending) + len(self._ready) >= REQUESTS_MAX:
            self.end(ErrorCode.TOO_SLOW, f"{REQUESTS_MAX} requests wait to be answered: wait for answers in between")
        self._requests += 1
        number = self._requests
        self._pending[number] = _Pending(type, correlation, delivery, silent)
        if correlation is None and not silent:
            self._turns.append(number)
        return number

    def answer(self, number: int, answer: Answer, batches: Sequence[bytes | memoryview] = ()) -> None:
        """The core's answer to a request; a `Fetched` comes with its batches."""
        pending = self._pending.get(number)
        if pending is None:
            return
        match answer:
            case Refused(status=status, reason=reason, retry_after_ms=retry_after_ms):
                return self._refuse(number, status, reason, retry_after_ms)
            case Settlement():
                return self._settled(number, pending, answer)
            case Fetched():
                payload = wire.FetchAnswer(answer.start, answer.end, b"".join(batches)).encode()
            case Done():
                payload = wire.PlainAnswer().encode()
            case Appended():
                payload = _confirmation(pending.type, answer)
            case Subscribed():
                payload = wire.SubscribeAnswer(str(answer.subscription)).encode()
            case Joined():
                payload = wire.GenerationAnswer(answer.generation).encode()
            case ReplayBegun():
                payload = wire.PlainAnswer().encode()
            case Sought():
                payload = wire.SeekAnswer(answer.offset).encode()
            case Topics():
                payload = _metadata(answer).encode()
                if len(payload) > frames.batch_bytes_max(self._terms.frame_bytes_max):
                    reason = f"{len(answer.topics)} topics are too many for one answer: ask with a narrower pattern"
                    return self._refuse(number, Status.TOO_LARGE, reason)
            case _:
                assert_never(answer)
        return self._finish(number, payload)

    def _settled(self, number: int, pending: _Pending, answer: Settlement) -> None:
        if pending.type == FrameType.SETTLE:
            outcomes = tuple([wire.SettleOutcome(status, action) for status, action in answer.results])
            return self._finish(number, wire.SettleAnswer(outcomes).encode())
        status, outcome = answer.results[0]
        self._forget_delivery(pending.delivery)
        if status != Status.OK:
            return self._refuse(number, status, answer.reasons[0])
        if pending.type == FrameType.ACK:
            return self._finish(number, wire.PlainAnswer().encode())
        return self._finish(number, wire.NackAnswer(Outcome(outcome)).encode())

    def _refuse(self, number: int, status: int, reason: str, retry_after_ms: int = 0) -> None:
        if self._pending[number].silent:
            return self._finish(number, wire.Error(ErrorCode.NOT_STORED, _fit(reason)).encode())
        return self._finish(number, wire.Refusal(status, retry_after_ms, _fit(reason)).encode())

    def _finish(self, number: int, payload: bytes, type: int = FrameType.RESPONSE) -> None:
        """Send an answer: at once if it is correlated, else when its turn has come."""
        pending = self._pending.pop(number)
        if pending.silent:
            type = FrameType.ERROR
        data = frames.encode(type, payload, pending.correlation)
        if pending.correlation is not None or pending.silent:
            self.out.append(data)
        else:
            self._ready[number] = data
            self.held_bytes += len(data)
            while self._turns and self._turns[0] in self._ready:
                due = self._ready.pop(self._turns.popleft())
                self.held_bytes -= len(due)
                self.out.append(due)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._leaving and not self._pending and not self._ready:
            self.closing = True

    def _mistake(self, code: int, text: str, correlation: int | None, *, fatal: bool = False) -> None:
        """An ERROR in the place of an answer; after a fatal one nothing is read, and the answers before it still go."""
        self._leaving = self._leaving or fatal
        number = self._register(0, correlation)
        self._finish(number, wire.Error(code, _fit(text)).encode(), FrameType.ERROR)

    def end(self, code: int, text: str) -> None:
        """Say why, and close."""
        if not self.closing:
            self.out.append(frames.encode(FrameType.ERROR, wire.Error(code, _fit(text)).encode()))
            self.closing = True

    def admit_only(self, good: Sequence[Access]) -> bool:
        """End it if it was let in with a token whose rights are not among those that are good; whether it was."""
        if self._access is None or self._access in good:
            return False
        self.end(ErrorCode.UNAUTHORIZED, f"the token of {self._access.name!r} is not good any more: ask for another")
        return True

    def goodbye(self, reason: str) -> None:
        """The broker stops: the client is asked to finish and go."""
        if not self.closing:
            self.out.append(frames.encode(FrameType.GOODBYE, wire.Goodbye(reason).encode()))

    def deliver(self, delivery: Deliver, entries: Sequence[Entry]) -> None:
        """Send leased ranges with the stored batches that hold them."""
        if self._native:
            self._deliver_batches(delivery, entries)
        else:
            self._deliver_messages(delivery, entries)

    def _deliver_batches(self, delivery: Deliver, entries: Sequence[Entry]) -> None:
        batches = [_cut_to(entry, delivery) for entry in entries]
        size = sum(map(len, batches))
        head = wire.Deliver(
            str(delivery.subscription),
            delivery.topic,
            delivery.partition,
            delivery.lane + 1,
            delivery.lease,
            min(delivery.attempt, 0xFFFF),
            delivery.deadline_ms,
            delivery.ranges,
        ).encode_head(size)
        self.out.append(frames.header(FrameType.DELIVER, len(head) + size) + head)
        self.out.extend(batches)

    def _deliver_messages(self, delivery: Deliver, entries: Sequence[Entry]) -> None:
        for entry in entries:
            for record in batch.parse(entry.batch, codecs=self._terms.codecs):
                if any(first <= record.offset <= last for first, last in delivery.ranges):
                    self._deliver_message(delivery, record)

    def _deliver_message(self, delivery: Deliver, record: batch.Record) -> None:
        self._deliveries += 1
        number = self._deliveries
        message_id = names.message_id(delivery.topic, delivery.partition, delivery.lane, record.offset)
        if delivery.lease:
            self._delivered[number] = _Delivered(delivery.lease, record.offset, message_id)
            self._by_id.setdefault(message_id, []).append(number)
            self._by_lease.setdefault(delivery.lease, []).append(number)
        message = wire.Delivery(
            str(delivery.subscription),
            f"{message_id}#{number}",
            delivery.topic,
            _headers(record),
            record.value or b"",
            delivery.deadline_ms,
        )
        self.out.append(frames.encode(FrameType.DELIVERY, message.encode()))

    def overtaken(self, skipped: Overtaken) -> None:
        """Say which messages a subscription will not get."""
        place = names.message_id(skipped.topic, skipped.partition, skipped.lane, skipped.first)
        text = f"subscription {skipped.subscription} is too far behind: {place} to {skipped.last} were skipped"
        self.out.append(frames.encode(FrameType.ERROR, wire.Error(ErrorCode.OVERTAKEN, _fit(text)).encode()))

    def notice(self, text: str, *, stays: bool) -> None:
        """Say that the broker does less than usual, or all of it again; to whoever said HELLO, or says it later."""
        self.standing = text if stays else ""
        if self._native and not self._is_over():
            self.out.append(frames.encode(FrameType.ERROR, wire.Error(ErrorCode.LEVEL, _fit(text)).encode()))

    def revoke(self, asked: Revoke) -> None:
        """The member is to give up partitions."""
        message = wire.Revoke(asked.group, asked.generation, self._named(asked.partitions))
        self.out.append(frames.encode(FrameType.REVOKE, message.encode()))

    def assign(self, given: Assign) -> None:
        """What the member has from now on."""
        message = wire.Assign(given.group, given.generation, self._named(given.partitions))
        self.out.append(frames.encode(FrameType.ASSIGN, message.encode()))

    def _named(self, partitions: Sequence[tuple[str, int]]) -> tuple[wire.TopicPartition, ...]:
        """As many as a frame can name: for the member they are news, nothing depends on them."""
        most = frames.batch_bytes_max(self._terms.frame_bytes_max)
        sizes = accumulate(PARTITION_NAMED_BYTES + len(topic) for topic, _ in partitions)
        fit = min(PARTITIONS_NAMED_MAX, bisect_right(list(sizes), most))
        return tuple([wire.TopicPartition(topic, partition) for topic, partition in partitions[:fit]])

    def lease_ended(self, lease: int) -> None:
        """A lease is over: an ACK of its deliveries comes too late."""
        for number in tuple(self._by_lease.get(lease, ())):
            self._forget_delivery(number)

    def _forget_delivery(self, number: int) -> None:
        delivered = self._delivered.pop(number, None)
        if delivered is None:
            return
        same_id = self._by_id[delivered.message_id]
        same_id.remove(number)
        if not same_id:
            del self._by_id[delivered.message_id]
        same_lease = self._by_lease[delivered.lease]
        same_lease.remove(number)
        if not same_lease:
            del self._by_lease[delivered.lease]
        self._ended[delivered.message_id] = None
        if len(self._ended) > ENDED_IDS_MAX:
            del self._ended[next(iter(self._ended))]


def _need(message: wire.Request | wire.Push) -> tuple[Role, str]:
    """The role that a message needs, and for what."""
    match message:
        case wire.Publish():
            return Role.WRITE, message.topic
        case wire.Subscribe():
            return Role.READ, message.pattern
        case wire.Fetch() | wire.Commit() | wire.Seek():
            return Role.READ, message.topic
        case _:
            return Role.READ, ""


def _headers(record: batch.Record) -> wire.Headers:
    """A record's headers as a DELIVERY has room for them: a batch may hold more of them, and longer ones."""
    return tuple([(_text(key.encode()), _text(value or b"")) for key, value in record.headers[: wire.HEADERS_MAX]])


def _text(data: bytes) -> str:
    """`data` as text that fits a `str` of the wire: what is too long is cut."""
    text = data.decode("utf-8", "replace")
    if len(text) * 4 <= wire.TEXT_BYTES_MAX:
        return text
    return text.encode()[: wire.TEXT_BYTES_MAX].decode("utf-8", "ignore")


def _cut_to(entry: Entry, delivery: Deliver) -> bytes | memoryview:
    """The entry's batch, without most of what is not leased when that is the larger part of it."""
    wanted = sum(max(0, min(last, entry.last) - max(first, entry.base) + 1) for first, last in delivery.ranges)
    if wanted * 2 >= entry.record.count:
        return entry.batch
    return batch.trim(entry.batch, delivery.ranges[0][0], delivery.ranges[-1][1])


def _settle(session: int, number: int, message: wire.Settle) -> inputs.Settle:
    said: tuple[wire.SettleItem, ...] = message.items
    items = tuple([_item(each) for each in said])
    return inputs.Settle(session, number, items, message.wait == wire.Wait.DURABLE)


def _item(said: wire.SettleItem) -> inputs.SettleItem:
    return inputs.SettleItem(said.lease, said.action, said.first, said.last, said.reason, said.delay_ms, said.error)


def _number(text: str) -> int:
    """The number that an id of ours is; 0, which is none, for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0


def _fit(text: str) -> str:
    """`text`, cut where it would not fit a `str` of the wire."""
    return text if len(text) <= 1_000 else text[:1_000] + "…"


def _confirmation(type: int, answer: Appended) -> bytes:
    if type == FrameType.PRODUCE:
        waits_in = answer.topic if names.is_hidden(answer.topic) else ""
        place = (answer.partition, answer.offset, answer.arrival_ms, answer.lane + 1, waits_in)
        return wire.ProduceAnswer(*place).encode()
    message_id = names.message_id(answer.topic, answer.partition, answer.lane, answer.offset)
    return wire.PublishAnswer(message_id, answer.arrival_ms).encode()


def _metadata(answer: Topics) -> wire.MetadataAnswer:
    return wire.MetadataAnswer(
        tuple(
            wire.TopicMetadata(
                topic.name,
                tuple(wire.LogMetadata(log.partition, log.lane, log.start, log.end) for log in topic.logs),
            )
            for topic in answer.topics
        )
    )
