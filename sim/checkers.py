"""Books kept by somebody who reads along at the broker's socket: what was promised, and whether it was kept.

Promises  every judgement rests on bytes that went over the wire and on who hung up when, in the order in which they
          passed the broker's end; the first broken promise raises `Violated` with the invariant's id and the story.
Never     looks into the broker: a mistake of the broker's own books can't fool these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from dovetail.core import batch, frames, names, wire
from dovetail.core.assignment import PARTITIONED_STRATEGIES
from dovetail.core.batch import BatchHeader
from dovetail.core.codes import Acks, Outcome, SettleAction, Status, Wait
from dovetail.core.frames import FrameDecoder, FrameType
from dovetail.core.node import SEEN_MS
from dovetail.runtime.storage.codecs import CODECS
from dovetail.sim import plan

REFUSED_AT_ONCE = (Status.BUSY, Status.READ_ONLY, Status.QUOTA, Status.NOT_FOUND)
"""A publish that was refused for these reasons is not stored anywhere."""
WALL_MS = 1_700_000_000_000
"""What the broker's wall clock shows when a run begins."""
SLACK_US = 30_000
"""Timers fire within a bucket of 10 ms and one tick: what a deadline decides is known this much later at most."""
ROUNDING_US = 2_000
UNCERTAIN_US = 400_000
"""How long a delivery may have waited for a slow disk, where no trusted clock says when it was decided."""
Note = Callable[..., int]
LogKey = tuple[str, int, int]
"""Topic, partition and lane; lane 0 where the topic has none, else from 1."""


class Violated(Exception):
    """A promise was broken."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(invariant, text)
        self.invariant = invariant
        self.text = text

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


class _Hold:
    """One delivery under a lease, as the wire showed it."""

    __slots__ = ("attempt", "given_up", "granted_us", "lease", "life", "line", "log", "open", "sub", "until_us")

    def __init__(
        self, line: _Line, sub: _Sub, log: LogKey, lease: int, attempt: int, granted_us: int, until_us: int
    ) -> None:
        self.line = line
        self.sub = sub
        self.log = log
        self.lease = lease
        self.attempt = attempt
        self.granted_us = granted_us
        self.until_us = until_us
        """The deadline; the broker's two clocks round to milliseconds each for itself, see `is_due`."""
        self.open = 0
        self.life = line.life
        self.given_up = False
        """Its partition was revoked, and the member has answered that."""

    def is_due(self, now_us: int) -> bool:
        """Whether the lease may have timed out."""
        return self.until_us <= now_us + ROUNDING_US


class _Message:
    """One offset of a log as one group knows it."""

    __slots__ = (
        "acked_life",
        "acked_us",
        "dead",
        "excused",
        "failures",
        "for_good",
        "hold",
        "over",
        "perhaps",
        "rejected",
        "skipped",
    )

    def __init__(self) -> None:
        self.hold: _Hold | None = None
        self.over = True
        """The last hold was ended by a settle, or by a command."""
        self.acked_us = -1
        self.acked_life = 0
        self.for_good = False
        """The acknowledgment was said to be durable."""
        self.perhaps = False
        """It was acknowledged, and the answer is not known."""
        self.failures = 0
        self.rejected = False
        self.dead = 0
        self.skipped = False
        self.excused = False


class _Reader:
    """One group's (or lone session's) view of one log."""

    __slots__ = ("messages", "seeking", "skipped_below", "sought_us")

    def __init__(self) -> None:
        self.messages: dict[int, _Message] = {}
        self.seeking = 0
        self.sought_us = -1
        self.skipped_below = 0
        """A seek went here: nobody will get what is before."""

    def at(self, offset: int) -> _Message:
        found = self.messages.get(offset)
        if found is None:
            found = self.messages[offset] = _Message()
        return found


class _Sub:
    """A subscription on a connection."""

    __slots__ = ("auto_ack", "credit", "fresh", "fresh_us", "group", "holds", "line", "over", "pattern")

    def __init__(self, line: _Line, group: str, pattern: str, credit: int, auto_ack: bool) -> None:
        self.line = line
        self.group = group
        self.pattern = pattern
        self.credit = credit
        self.auto_ack = auto_ack
        self.holds: dict[int, _Hold] = {}
        self.fresh: dict[LogKey, int] = {}
        self.fresh_us: dict[LogKey, int] = {}
        self.over = False


class _Asked(Struct, frozen=True):
    """A request that waits for its answer."""

    request: wire.Request
    at_us: int
    held: tuple[int, ...]
    """What was known when it came: for each item of a settle whether all of it was held, for a read how far the log
    was confirmed."""
    seq: int
    """The last row of the trace before it."""


class _Line:
    """A connection: both directions decoded, requests that wait for their answers."""

    __slots__ = (
        "closed_us",
        "heard_us",
        "life",
        "name",
        "number",
        "pending",
        "reads",
        "revoked",
        "subs",
        "turns",
        "writes",
    )

    def __init__(self, number: int, name: str, life: int) -> None:
        self.number = number
        self.name = name
        self.life = life
        self.reads = FrameDecoder()
        self.writes = FrameDecoder()
        self.pending: dict[int, _Asked] = {}
        self.turns: list[_Asked] = []
        self.subs: dict[str, _Sub] = {}
        self.closed_us = -1
        self.heard_us = 0
        self.revoked: set[tuple[str, tuple[str, int]]] = set()
        """Partitions, by group, that the member was asked to give up."""


class _Log:
    """What is known to be in a log, and who was promised it."""

    __slots__ = (
        "audited",
        "confirmed_end",
        "content",
        "doubtful",
        "excused",
        "gone_below",
        "gone_us",
        "numbers",
        "since_us",
        "verified",
    )

    def __init__(self) -> None:
        self.content: dict[int, bytes] = {}
        self.doubtful: dict[int, bytes] = {}
        """What was seen here and may have been lost rightly: it is there unchanged, or other content took its place."""
        self.since_us: dict[int, int] = {}
        """When each offset was first seen, in a topic whose confirms do not wait for a sync."""
        self.gone_us = -1
        """When its topic was deleted, or may have been."""
        self.gone_below = 0
        """Offsets that went with the topic: nobody gets them any more."""
        self.excused: set[int] = set()
        """Offsets that are owed to nobody."""
        self.numbers: dict[int, int] = {}
        """What was last seen at each offset, as a number: what the trace says, whether it is right or not."""
        self.confirmed_end = 0
        self.audited = 0
        self.verified: dict[int, bytes] = {}


class Books:
    """Reads along and judges. `note` takes a row for the trace."""

    def __init__(self, setup: plan.Plan, note: Note) -> None:
        self.plan = setup
        self._note = note
        self._seq = -1
        self._numbers: dict[bytes, int] = {}
        """Every value that was ever seen, numbered as they came: the trace tells them apart by that."""
        self.evaluated: dict[str, int] = {}
        """How often each promise was looked at: one that never was proves nothing."""
        self.last_kind = ""
        """What kind of frame passed last: faults strike at such moments."""
        self.delivered = 0
        self.redelivered = 0
        self.confirmed = 0
        self.settled = 0
        self.refused = 0
        self.logs: dict[LogKey, _Log] = {}
        self.readers: dict[tuple[str, str, int, int], _Reader] = {}
        self.groups: dict[str, set[str]] = {}
        """Groups that are there for good, and their patterns."""
        self.lost_ranges: dict[LogKey, list[tuple[int, int]]] = {}
        self._offered: dict[str, dict[bytes, int]] = {}
        self._mortal: dict[bytes, int] = {}
        """Messages with a time to live."""
        self._expires_at_ms: dict[bytes, int] = {}
        self._lines: dict[int, _Line] = {}
        self._careless: set[str] = set()
        """Groups with members that acknowledge nothing: what they are sent counts as settled."""
        self._partitioned: set[str] = set()
        """Groups in which each partition belongs to one member."""
        self._not_before_us: dict[bytes, int] = {}
        """When a delayed message that was sent several times is due at the earliest."""
        self._shown: dict[str, dict[bytes, tuple[LogKey, int]]] = {}
        """Where each message was seen first, by topic."""
        self._copies: dict[str, dict[bytes, int]] = {}
        """At how many offsets each message was seen, by topic."""
        self.relaxed = {topic.name for topic in setup.topics if topic.sync != "always"}
        """Topics whose confirms do not wait for a sync."""
        self._critical = {topic.name: topic.lag_critical for topic in setup.topics if topic.lag_critical}
        self.purged: set[tuple[str, int]] = set()
        """Dead letters that were removed for good."""
        self.replays_owed: dict[tuple[str, int], tuple[str, bytes, int]] = {}
        """For each dead letter whose replay was promised: its topic, its bytes, and how often it must be there."""
        self._once: set[bytes] = set()
        """What idempotent producers sent: stored once, however often it was sent."""
        self._due_us: dict[str, dict[bytes, int]] = {}
        """Delayed messages by topic that have not shown up yet, and when they are due."""
        self._closing: dict[int, _Line] = {}
        """Connections that are over but for the broker's last words."""
        self._holds: dict[tuple[int, int], _Hold] = {}
        """Leases by connection and number."""
        self._now_us = 0
        self._deaf_until_us = 0
        self._life = 1
        self._safe_us = 0
        """Everything that was seen before this instant survived a recovery."""
        self._durable_us = -1
        """Everything answered before this instant of the current life is durable."""
        self._durable_by_life: dict[int, int] = {}
        self._disturbed_us: dict[str, int] = {}
        self._laned = {topic.name for topic in setup.topics if topic.lanes}
        self._lease_us = setup.broker.lease_ms * 1000
        self._slow_us: list[tuple[int, int]] = []
        self.retries: dict[str, list[int]] = {}
        """Every limit on retries that a topic may have had."""
        self._honest = setup.has_honest_clock

    def note(self, actor: str, kind: str, **columns: Any) -> None:
        """Add a row to the trace. What passed is noted before it is judged: the row tells what was wrong."""
        self._seq = self._note(actor, kind, **columns)

    def _number(self, value: bytes) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def broker_stands_still(self, until_us: int) -> None:
        """Until then, and in its first tick afterwards, the broker hears nothing of anybody."""
        self._deaf_until_us = until_us + SLACK_US

    def awake(self, now_us: int) -> None:
        """The broker is up again: what it came up with is on the disk."""
        self._safe_us = now_us

    # What passes

    def opened(self, line: int, name: str, now_us: int) -> None:
        """A connection was accepted."""
        self._lines[line] = _Line(line, name, self._life)
        self.note(name, "connect", connection=line)

    def closed(self, number: int, now_us: int) -> None:
        """A connection is over, whoever ended it."""
        line = self._lines.pop(number, None)
        if line is None:
            return
        line.closed_us = now_us
        self._closing[number] = line
        self.note(line.name, "disconnect", connection=number)
        for sub in line.subs.values():
            self._end_sub(sub, now_us)
        for asked in (*line.pending.values(), *line.turns):
            if isinstance(asked.request, wire.Seek):
                self._seek_unanswered(asked.request)

    def broker_died(self, now_us: int, *, power: bool) -> None:
        """The broker's process is gone, and all connections with it; without power also what was not synced."""
        for number in list(self._lines):
            self.closed(number, now_us)
        self.note("broker", "down", generation=self._life, mode="power" if power else "")
        if power:
            for log in sorted(self.logs):
                if log[0] in self.relaxed:
                    self._doubt(log, self._durable_us)
        self._durable_by_life[self._life] = self._durable_us
        self._life += 1
        self._durable_us = -1
        self._closing.clear()
        for group in self._disturbed_us:
            self._disturbed_us[group] = now_us

    def received(self, number: int, data: bytes, now_us: int, sent_us: int) -> None:
        """Bytes of a client reached the broker."""
        line = self._lines.get(number)
        if line is None:
            return
        line.heard_us = now_us
        for frame in line.reads.feed(data):
            if isinstance(frame, frames.FrameError):
                raise Violated("I-SIM", f"{line.name} sent a frame that is wrong: {frame.text}")
            request = wire.decode_message(frame.type, frame.payload)
            if isinstance(request, wire.Delivery | wire.Deliver | wire.Error | wire.Revoke | wire.Assign):
                raise Violated("I-SIM", f"{line.name} sent what only brokers send")
            held = self._request(line, request, now_us, now_us - sent_us)
            asked = _Asked(request, now_us, held, self._seq)
            if frame.correlation is not None:
                line.pending[frame.correlation] = asked
            elif not (isinstance(request, wire.Produce) and request.acks == Acks.NONE):
                line.turns.append(asked)

    def sent(self, number: int, data: bytes, now_us: int, due_us: int) -> None:
        """Bytes left the broker for a client."""
        self._now_us = now_us
        line = self._lines.get(number) or self._closing.pop(number, None)
        if line is None:
            return
        latency_us = due_us - now_us if due_us >= 0 else -1
        for frame in line.writes.feed(data):
            if isinstance(frame, frames.FrameError):
                raise Violated("I-FRAME", f"the broker sent {line.name} a frame that is wrong: {frame.text}")
            if frame.type == FrameType.RESPONSE:
                if frame.correlation is not None:
                    pending = line.pending.pop(frame.correlation, None)
                else:
                    pending = line.turns.pop(0) if line.turns else None
                if pending is None:
                    raise Violated("I-ANSWER", f"{line.name} got an answer to nothing it had asked")
                answer = wire.decode_answer(pending.request.TYPE, frame.payload)
                self._answer(line, pending, answer, now_us)
            else:
                message = wire.decode_message(frame.type, frame.payload)
                if isinstance(message, wire.Deliver):
                    self._deliver(line, message, now_us, latency_us)
                elif isinstance(message, wire.Delivery):
                    self._deliver_single(line, message, now_us, latency_us)
                elif isinstance(message, wire.Revoke):
                    self._note_partitions(line, "revoke", message)
                    line.revoked |= {(message.group, (each.topic, each.partition)) for each in message.partitions}
                elif isinstance(message, wire.Assign):
                    self._note_partitions(line, "assign", message)
                elif isinstance(message, wire.Error):
                    self._error(line, message, now_us)

    def _note_partitions(self, line: _Line, kind: str, message: wire.Revoke | wire.Assign) -> None:
        """A row for each partition; one without any when there is none."""
        for each in message.partitions or (wire.TopicPartition("", -1),):
            self.note(
                line.name,
                kind,
                topic=each.topic,
                partition=each.partition,
                group=message.group,
                member=line.name,
                generation=message.generation,
                connection=line.number,
            )

    def _error(self, line: _Line, error: wire.Error, now_us: int) -> None:
        """A session ends by silence only when it was silent (I-SESSION); signs of life are passed on now and then."""
        self.note(line.name, "error", detail=error.text, connection=line.number)
        if error.code == frames.ErrorCode.SESSION_ENDED and "heard" in error.text:
            silent_us = now_us - line.heard_us
            limit_us = (self.plan.broker.session_timeout_ms - SEEN_MS) * 1000 - SLACK_US
            text = f"{line.name} was ended for silence after {silent_us // 1000} ms"
            self._judge("I-SESSION", silent_us >= limit_us or now_us < self._deaf_until_us, text)

    # Requests

    def _request(self, line: _Line, request: wire.Request, now_us: int, latency_us: int) -> tuple[int, ...]:
        self.last_kind = request.TYPE.name.lower()
        match request:
            case wire.Produce():
                values = [record.value or b"" for record in batch.parse(request.batch, codecs=CODECS)]
                self._offer(request.topic, values, request.ttl_ms)
                if request.delay_ms:
                    for value in values:
                        self._not_before_us.setdefault(value, now_us + request.delay_ms * 1000)
                if batch.read_header(request.batch).producer_id >= 0:
                    self._once.update(values)
                self._note_publish(line, request.topic, values, request.ttl_ms, now_us, latency_us)
            case wire.Publish():
                self._offer(request.topic, [request.payload], request.ttl_seconds * 1000)
                ttl_ms = request.ttl_seconds * 1000
                self._note_publish(line, request.topic, [request.payload], ttl_ms, now_us, latency_us)
            case wire.Settle():
                self.last_kind = "settle"
                return tuple([self._asked_to_settle(line, item, now_us) for item in request.items])
            case wire.Ack() | wire.Nack():
                self.last_kind = "settle"
                return (self._asked_to_settle(line, _as_item(request), now_us),)
            case wire.Seek():
                self._note_seek(line, "seek asked", request, -1, -1)
                reader = self._reader(request.group, self._first(request.topic, request.partition))
                reader.seeking += 1
                reader.sought_us = now_us
                for message in reader.messages.values():
                    message.over = True
                self._release_credit(request.group, self._first(request.topic, request.partition))
            case wire.Fetch():
                return (self._log(self._first(request.topic, request.partition)).confirmed_end,)
            case wire.JoinGroup():
                self._joining(line, request, now_us)
            case wire.Unsubscribe():
                sub = line.subs.pop(request.subscription_id, None)
                if sub is not None:
                    self._note_member(line, "unsubscribe", sub.group, topic=sub.pattern)
                    self._end_sub(sub, now_us)
            case wire.LeaveGroup():
                self._note_member(line, "leave", request.group)
                for number in [number for number, sub in line.subs.items() if sub.group == request.group]:
                    self._end_sub(line.subs.pop(number), now_us)
            case wire.Goodbye():
                self.note(line.name, "goodbye", connection=line.number)
                for sub in line.subs.values():
                    sub.holds.clear()
            case _:
                pass
        return ()

    def _joining(self, line: _Line, request: wire.JoinGroup, now_us: int) -> None:
        """A member joins, or gives up what was revoked: what it still held of that returns to the group."""
        self._note_member(line, "join", request.group, mode=request.strategy)
        if request.strategy in PARTITIONED_STRATEGIES:
            self._partitioned.add(request.group)
        given_up = [log for group, log in line.revoked if group == request.group]
        line.revoked = {each for each in line.revoked if each[0] != request.group}
        for sub in line.subs.values():
            if sub.group == request.group and given_up:
                self._disturbed_us[sub.group] = now_us
                for lease in [lease for lease, hold in sub.holds.items() if hold.log[:2] in given_up]:
                    sub.holds.pop(lease).given_up = True

    def _note_member(self, line: _Line, kind: str, group: str, **columns: Any) -> None:
        self.note(line.name, kind, group=group, member=line.name, connection=line.number, **columns)

    def _note_publish(
        self, line: _Line, topic: str, values: Sequence[bytes], ttl_ms: int, now_us: int, latency_us: int
    ) -> None:
        self.note(
            line.name,
            "publish",
            topic=topic,
            first=0,
            last=len(values) - 1,
            latency_us=latency_us,
            connection=line.number,
            deadline_us=now_us + ttl_ms * 1000 if ttl_ms else -1,
            mode=self._producing(values),
            values=tuple(map(self._number, values)),
        )

    def _producing(self, values: Sequence[bytes]) -> str:
        return "idempotent" if values[0] in self._once else ""

    def _offer(self, topic: str, values: Sequence[bytes], ttl_ms: int) -> None:
        offered = self._offered.setdefault(topic, {})
        for value in values:
            offered[value] = offered.get(value, 0) + 1
            if ttl_ms:
                self._mortal[value] = ttl_ms

    def _asked_to_settle(self, line: _Line, item: wire.SettleItem, now_us: int) -> bool:
        """Whether all of a range is held; whatever the broker will say, it may be free again, or have failed."""
        hold = self._holds.get((line.number, item.lease))
        if hold is None:
            return False
        reader = self._reader(hold.sub.group, hold.log)
        messages = [reader.at(offset) for offset in range(item.first, item.last + 1)]
        held = all(self._is_held(message, hold) for message in messages)
        if held and item.action != SettleAction.EXTEND:
            hold.open -= len(messages)
            if hold.open <= 0:
                hold.sub.holds.pop(item.lease, None)
            for message in messages:
                message.over = True
                message.perhaps = item.action == SettleAction.ACK
                message.failures += item.action != SettleAction.ACK
                message.rejected = message.rejected or item.action == SettleAction.REJECT
        return held

    def _end_sub(self, sub: _Sub, now_us: int) -> None:
        sub.over = True
        sub.holds.clear()
        self._disturbed_us[sub.group] = now_us

    # Answers

    def _answer(self, line: _Line, asked: _Asked, answer: wire.Answer | wire.Refusal, now_us: int) -> None:
        self.last_kind = "answer"
        request, asked_us, held = asked.request, asked.at_us, asked.held
        if isinstance(request, wire.Ack | wire.Nack):
            return self._settled(line, _as_item(request), _as_outcome(answer), held[0], asked, now_us)
        if isinstance(answer, wire.Refusal):
            self.refused += 1
            detail = f"{request.TYPE.name}: {answer.reason}"
            latency_us = now_us - asked_us
            self.note(line.name, "refused", detail=detail, connection=line.number, latency_us=latency_us)
            if isinstance(request, wire.Produce | wire.Publish):
                self._refused_publish(request, answer)
            if isinstance(request, wire.Seek):
                self._note_seek(line, "seek refused", request, -1, asked.seq)
                self._seek_unanswered(request)
            return None
        match request, answer:
            case wire.Produce(), wire.ProduceAnswer():
                values = [record.value or b"" for record in batch.parse(request.batch, codecs=CODECS)]
                if request.delay_ms:
                    return self._delayed(line, request, values, asked)
                if request.ttl_ms:
                    self._expires_at_ms.update(dict.fromkeys(values, answer.timestamp_ms + request.ttl_ms))
                self._confirm(
                    line, (request.topic, answer.partition, answer.lane), answer.base_offset, values, asked, now_us
                )
            case wire.Publish(), wire.PublishAnswer():
                log, offset = _parse_id(answer.message_id)
                self._confirm(line, log, offset, [request.payload], asked, now_us)
            case wire.Subscribe(), wire.SubscribeAnswer():
                self._subscribed(line, request, answer.subscription_id)
            case wire.Settle(), wire.SettleAnswer():
                self.last_kind = "settled"
                if request.wait == Wait.DURABLE:
                    self._durable_us = max(self._durable_us, asked_us)
                for item, outcome, mine in zip(request.items, answer.outcomes, held, strict=True):
                    self._settled(line, item, outcome, mine, asked, now_us)
                    if request.wait == Wait.DURABLE and outcome.status == Status.OK:
                        self._is_for_good(line, item)
            case wire.Seek(), wire.SeekAnswer():
                self._sought(line, request, answer.offset, asked, now_us)
            case wire.Fetch(), wire.FetchAnswer():
                self._fetched(line, request, answer, asked)
            case wire.JoinGroup(), wire.GenerationAnswer():
                latency_us = now_us - asked_us
                self._note_member(line, "joined", request.group, generation=answer.generation, latency_us=latency_us)
            case _:
                pass
        return None

    def _delayed(self, line: _Line, request: wire.Produce, values: Sequence[bytes], asked: _Asked) -> None:
        """Delayed messages are stored: they are owed to their topic when they are due."""
        self.confirmed += len(values)
        owed = self._due_us.setdefault(request.topic, {})
        known = self._shown.get(request.topic, ())
        for value in values:
            if value not in known:
                owed[value] = asked.at_us + request.delay_ms * 1000
        self.note(
            line.name,
            "delayed",
            topic=request.topic,
            first=0,
            last=len(values) - 1,
            latency_us=self._now_us - asked.at_us,
            connection=line.number,
            deadline_us=asked.at_us + request.delay_ms * 1000,
            asked=asked.seq,
            mode=self._producing(values),
            values=tuple(map(self._number, values)),
        )

    def _confirm(
        self, line: _Line, log: LogKey, base: int, values: Sequence[bytes], asked: _Asked, now_us: int
    ) -> None:
        self.last_kind = "confirm"
        self.note(
            line.name,
            "confirm",
            topic=log[0],
            partition=log[1],
            lane=log[2],
            first=base,
            last=base + len(values) - 1,
            latency_us=now_us - asked.at_us,
            connection=line.number,
            asked=asked.seq,
            mode=self._producing(values),
            values=tuple(map(self._number, values)),
        )
        if values[0] not in self._once and log[0] not in self.relaxed:
            # What an idempotent producer sends again may be answered at once: that proves nothing.
            self._durable_us = max(self._durable_us, asked.at_us)
        self.confirmed += len(values)
        known = self._log(log)
        for offset, value in enumerate(values, base):
            self._know(log, known, offset, value)
        known.confirmed_end = max(known.confirmed_end, base + len(values))
        if asked.at_us <= known.gone_us:
            known.excused.update(range(base, base + len(values)))

    def _subscribed(self, line: _Line, request: wire.Subscribe, number: str) -> None:
        group = request.group or f"~{line.number}"
        if request.group:
            self.groups.setdefault(request.group, set()).add(request.pattern)
            if request.auto_ack:
                self._careless.add(request.group)
        self._disturbed_us.setdefault(group, -1)
        line.subs[number] = _Sub(line, group, request.pattern, request.max_inflight or 100, request.auto_ack)
        mode = "auto-ack" if request.auto_ack else ""
        self._note_member(line, "subscribe", group, topic=request.pattern, mode=mode)

    def _settled(
        self, line: _Line, item: wire.SettleItem, outcome: wire.SettleOutcome, held: int, asked: _Asked, now_us: int
    ) -> None:
        """A settle was answered: it counts if and only if the lease was live (I-FENCE)."""
        hold = self._holds.get((line.number, item.lease))
        ok = outcome.status == Status.OK
        asked_us = asked.at_us
        self._note_settle(line, hold, item, outcome, asked, now_us)
        if hold is None:
            return self._judge("I-FENCE", not ok, f"{line.name} settled lease {item.lease}, which it was never given")
        reader = self._reader(hold.sub.group, hold.log)
        action = SettleAction(item.action).name.lower()
        where = f"{hold.log[0]}:{hold.log[1]}:{item.first}-{item.last} (lease {item.lease}, {line.name})"
        sought = reader.seeking > 0 or reader.sought_us >= hold.granted_us
        if not ok:
            live = bool(held) and not sought and not hold.is_due(now_us) and line.closed_us < 0
            self.refused += 1
            for offset in range(item.first, item.last + 1) if held else ():
                reader.at(offset).perhaps = False
            self._judge("I-FENCE", not live, f"{action} of {where} was refused although the lease is live")
            return None
        self._judge("I-FENCE", bool(held or sought), f"{action} of {where} was accepted, but not all of it was held")
        slack_us = SLACK_US if self._honest else SLACK_US + UNCERTAIN_US
        late = asked_us > hold.until_us + slack_us and not sought
        self._judge("I-FENCE", not late, f"{action} of {where} was accepted after the lease's deadline")
        if item.action == SettleAction.EXTEND:
            hold.until_us = max(hold.until_us, asked_us + item.delay_ms * 1000)
            return None
        self.settled += item.last - item.first + 1
        for offset in range(item.first, item.last + 1):
            message = reader.at(offset)
            if item.action == SettleAction.ACK:
                alone = message.hold is hold or sought
                self._judge("I-SETTLED", alone, f"{where}: offset {offset} went out again before its ack was answered")
                message.acked_us = now_us
                message.acked_life = self._life
            elif outcome.action == Outcome.DROPPED:
                message.skipped = True
        return None

    def _is_for_good(self, line: _Line, item: wire.SettleItem) -> None:
        """The client had asked to hear of it when it is durable, and has heard."""
        hold = self._holds.get((line.number, item.lease))
        if hold is not None and item.action == SettleAction.ACK:
            reader = self._reader(hold.sub.group, hold.log)
            for offset in range(item.first, item.last + 1):
                reader.at(offset).for_good = True

    def _note_settle(
        self,
        line: _Line,
        hold: _Hold | None,
        item: wire.SettleItem,
        outcome: wire.SettleOutcome,
        asked: _Asked,
        now_us: int,
    ) -> None:
        action = SettleAction(item.action).name.lower()
        is_durable = isinstance(asked.request, wire.Settle) and asked.request.wait == Wait.DURABLE
        where = (
            {
                "topic": hold.log[0],
                "partition": hold.log[1],
                "lane": hold.log[2],
                "group": hold.sub.group,
                "attempt": hold.attempt,
            }
            if hold is not None
            else {}
        )
        self.note(
            line.name,
            action if outcome.status == Status.OK else f"{action} refused",
            first=item.first,
            last=item.last,
            member=line.name,
            latency_us=now_us - asked.at_us,
            connection=line.number,
            lease=_shown(item.lease),
            deadline_us=asked.at_us + item.delay_ms * 1000 if item.action == SettleAction.EXTEND else -1,
            asked=asked.seq,
            mode="dropped" if outcome.action == Outcome.DROPPED else "durable" if is_durable else "",
            **where,
        )

    # Deliveries

    def _deliver(self, line: _Line, message: wire.Deliver, now_us: int, latency_us: int) -> None:
        self.last_kind = "deliver"
        log = (message.topic, message.partition, message.lane)
        sub = line.subs.get(message.subscription_id)
        known = self._log(log)
        new = self._look(known, message.batches)
        for first, last in message.ranges:
            values = tuple([known.numbers.get(offset, -1) for offset in range(first, last + 1)])
            lease = (message.lease, message.attempt, message.deadline_ms)
            self._note_delivery(line, sub, log, (first, last), lease, values, latency_us)
        if sub is None:
            raise Violated("I-DELIVERY", f"{line.name} was sent {log} for a subscription it does not have")
        self._verify(log, known, new)
        for first, last in message.ranges:
            for offset in range(first, last + 1):
                sent = offset in known.content
                self._judge("I-DELIVERY", sent, f"{log}: {first}-{last} was leased, {offset} was not sent")
                if self._expires_at_ms and message.lease and self._honest:
                    granted_us = self._granted_us(message.deadline_ms, now_us)
                    self._check_alive(log, offset, known.content[offset], granted_us)
        self._lease_out(line, sub, log, message.lease, message.attempt, message.deadline_ms, message.ranges, now_us)

    def _deliver_single(self, line: _Line, message: wire.Delivery, now_us: int, latency_us: int) -> None:
        self.last_kind = "deliver"
        log, offset = _parse_id(message.message_id.rpartition("#")[0])
        sub = line.subs.get(message.subscription_id)
        # A single ACK names its delivery: that number stands for the lease.
        lease = -int(message.message_id.rpartition("#")[2]) if message.ack_deadline_ms else 0
        known = self._log(log)
        known.numbers[offset] = self._number(message.payload)
        shown = (lease, -1, message.ack_deadline_ms)
        self._note_delivery(line, sub, log, (offset, offset), shown, (known.numbers[offset],), latency_us)
        if sub is None:
            raise Violated("I-DELIVERY", f"{line.name} was sent {log} for a subscription it does not have")
        self._know(log, known, offset, message.payload)
        self._lease_out(line, sub, log, lease, 0, message.ack_deadline_ms, ((offset, offset),), now_us)

    def _note_delivery(
        self,
        line: _Line,
        sub: _Sub | None,
        log: LogKey,
        span: tuple[int, int],
        lease: tuple[int, int, int],
        values: tuple[int, ...],
        latency_us: int,
    ) -> None:
        """A row for one range; `lease` is its number, attempt and deadline."""
        number, attempt, deadline_ms = lease
        self.note(
            line.name,
            "deliver",
            topic=log[0],
            partition=log[1],
            lane=log[2],
            first=span[0],
            last=span[1],
            group=sub.group if sub is not None else "",
            member=line.name,
            attempt=attempt,
            latency_us=latency_us,
            connection=line.number,
            lease=_shown(number),
            deadline_us=(deadline_ms - WALL_MS) * 1000 if deadline_ms else -1,
            values=values,
        )

    def _lease_out(
        self,
        line: _Line,
        sub: _Sub,
        log: LogKey,
        lease: int,
        attempt: int,
        deadline_ms: int,
        ranges: Iterable[tuple[int, int]],
        now_us: int,
    ) -> None:
        """Judge a delivery: exclusive, with cause, in order, within credit."""
        granted_us = self._granted_us(deadline_ms, now_us) if lease else now_us
        hold = _Hold(line, sub, log, lease, attempt, granted_us, granted_us + self._lease_us)
        reader = self._reader(sub.group, log)
        known = self.logs[log]
        if known.gone_us >= 0:
            self._check_gone(known, log, ranges, granted_us if lease else now_us - UNCERTAIN_US)
        if sub.group in self._partitioned:
            self._check_owner(sub, reader, log, now_us)
        self._check_order(sub, reader, log, ranges, now_us)
        for first, last in ranges:
            hold.open += last - first + 1
            for offset in range(first, last + 1):
                self._check_delivery(reader, reader.at(offset), hold, offset, now_us)
        self.delivered += hold.open
        if lease:
            self._holds[line.number, lease] = hold
            sub.holds[lease] = hold
            self._check_credit(sub, granted_us)

    def _granted_us(self, deadline_ms: int, now_us: int) -> int:
        """When a lease began: its deadline says so, where the broker's wall clock can be trusted."""
        if not self._honest:
            return now_us - UNCERTAIN_US
        return min(now_us, (deadline_ms - WALL_MS) * 1000 - self._lease_us)

    def _check_owner(self, sub: _Sub, reader: _Reader, log: LogKey, now_us: int) -> None:
        """In a partitioned group nobody gets messages of a partition while another member holds some (I-OWNER)."""
        for line in self._lines.values():
            for other in line.subs.values():
                if other is sub or other.group != sub.group or line is sub.line:
                    continue
                held = [hold for hold in other.holds.values() if hold.log == log and not hold.is_due(now_us)]
                alone = not held or reader.seeking > 0 or reader.sought_us >= held[0].granted_us
                self._judge("I-OWNER", alone, f"{log} goes to {sub.line.name} while {line.name} holds some of it")

    def _check_alive(self, log: LogKey, offset: int, value: bytes, granted_us: int) -> None:
        """What is past its time to live is not sent (I-TTL)."""
        expires_at_ms = self._expires_at_ms.get(value)
        if expires_at_ms is not None:
            expired = WALL_MS + granted_us // 1000 > expires_at_ms
            self._judge("I-TTL", not expired, f"{log}: offset {offset} was sent after its time to live")

    def _check_order(
        self, sub: _Sub, reader: _Reader, log: LogKey, ranges: Iterable[tuple[int, int]], now_us: int
    ) -> None:
        """What was never sent to a group goes to each subscription in order of offset (I-ORDER)."""
        for first, _ in ranges:
            if first in reader.messages:
                continue
            before = sub.fresh.get(log, -1)
            since_us = sub.fresh_us.get(log, -1)
            excused = (
                reader.seeking
                or reader.sought_us >= since_us
                or self._disturbed_us[sub.group] >= since_us
                or now_us - since_us >= self._lease_us - SLACK_US
                or self._unsent_attempts(now_us)
            )
            self._judge(
                "I-ORDER",
                first > before or bool(excused),
                f"{log}: offset {first} goes out for the first time after {before} did, to {sub.line.name}",
            )
            sub.fresh[log] = max(before, first)
            sub.fresh_us[log] = now_us

    def disk_is_slow(self, from_us: int, until_us: int) -> None:
        """Leases run out meanwhile whose messages were never sent: what they hold is still being read."""
        self._slow_us.append((from_us, until_us))

    def _unsent_attempts(self, now_us: int) -> int:
        """How many attempts may have ended without a delivery that anybody saw."""
        lasted = [min(until_us, now_us) - from_us for from_us, until_us in self._slow_us]
        return sum(-(-each // self._lease_us) for each in lasted)

    def _check_delivery(self, reader: _Reader, message: _Message, hold: _Hold, offset: int, now_us: int) -> None:
        where = f"{hold.log[0]}:{hold.log[1]}:{offset}"
        before = message.hold
        if before is not None:
            self.redelivered += 1
            # A settle that came at the deadline may have come too late: this many attempts can have failed.
            message.failures += before.is_due(now_us)
            if not message.over and not reader.seeking:
                self._check_exclusive(message, before, hold, where, now_us)
            self._check_cause(reader, message, before, hold, where)
        if hold.attempt:
            most_failed = message.failures + self._unsent_attempts(now_us)
            self._judge(
                "I-ATTEMPTS",
                hold.attempt <= most_failed + 1 or message.excused or reader.sought_us >= 0,
                f"{where} is at attempt {hold.attempt}, but only {most_failed} attempts can have failed",
            )
            message.failures = max(message.failures, min(most_failed, hold.attempt - 1))
            most = self._attempts(hold.log[0])[1]
            self._judge("I-ATTEMPTS", hold.attempt <= most, f"{where} is at attempt {hold.attempt} of {most}")
        message.hold = hold
        message.for_good = message.perhaps = False
        message.over = hold.lease == 0
        message.acked_us = now_us if hold.lease == 0 else -1
        message.acked_life = self._life

    def _check_exclusive(self, message: _Message, before: _Hold, hold: _Hold, where: str, now_us: int) -> None:
        """One live lease per offset and group (I-LEASE)."""
        timed_out = before.is_due(now_us)
        gone = before.line.closed_us >= 0 or before.life != self._life or before.sub.over or before.given_up
        self._judge(
            "I-LEASE",
            timed_out or gone,
            f"{where} goes to {hold.line.name} (lease {hold.lease}) while {before.line.name} holds it "
            f"(lease {before.lease}, for another {(before.until_us - now_us) // 1000} ms)",
        )

    def _check_cause(self, reader: _Reader, message: _Message, before: _Hold, hold: _Hold, where: str) -> None:
        """What was acknowledged comes again only if that was not durable when the broker died (I-SETTLED)."""
        if message.acked_us < 0 or message.excused or reader.seeking or reader.sought_us >= message.acked_us:
            return
        same_life = message.acked_life == self._life
        durable = same_life or message.for_good or message.acked_us < self._durable_by_life.get(message.acked_life, -1)
        self._judge(
            "I-SETTLED",
            not durable,
            f"{where} goes to {hold.line.name} again, but {before.line.name}'s acknowledgment "
            f"{'was accepted' if same_life else 'was durable before the crash'}",
        )

    def _check_credit(self, sub: _Sub, now_us: int) -> None:
        """Nobody holds more than their credit (I-CREDIT)."""
        if not self._honest or any(self.readers[sub.group, *hold.log].seeking for hold in sub.holds.values()):
            return
        for lease in [lease for lease, each in sub.holds.items() if each.is_due(now_us)]:
            del sub.holds[lease]
        held = sum(each.open for each in sub.holds.values())
        self._judge(
            "I-CREDIT", held <= sub.credit, f"{sub.line.name} holds {held} messages, its credit is {sub.credit}"
        )

    def _release_credit(self, group: str, log: LogKey) -> None:
        for line in self._lines.values():
            for sub in line.subs.values():
                if sub.group == group:
                    for lease in [lease for lease, hold in sub.holds.items() if hold.log == log]:
                        del sub.holds[lease]

    def _is_held(self, message: _Message, hold: _Hold) -> bool:
        over = message.over or hold.line.closed_us >= 0 or hold.sub.over or hold.given_up
        return message.hold is hold and not over

    # Seeks

    def _seek_unanswered(self, request: wire.Seek) -> None:
        """It may have happened or not: whoever relies on what was settled before is excused."""
        reader = self._reader(request.group, self._first(request.topic, request.partition))
        reader.seeking = max(0, reader.seeking - 1)
        for message in reader.messages.values():
            message.excused = True
            message.over = True

    def _note_seek(self, line: _Line, kind: str, request: wire.Seek, offset: int, asked: int) -> None:
        self.note(
            line.name,
            kind,
            topic=request.topic,
            partition=request.partition,
            first=offset,
            group=request.group,
            connection=line.number,
            asked=asked,
        )

    def _sought(self, line: _Line, request: wire.Seek, offset: int, asked: _Asked, now_us: int) -> None:
        asked_us = asked.at_us
        self._note_seek(line, "seek", request, offset, asked.seq)
        self._durable_us = max(self._durable_us, asked_us)
        reader = self._reader(request.group, self._first(request.topic, request.partition))
        reader.seeking = max(0, reader.seeking - 1)
        reader.skipped_below = offset
        # It happened at some time between question and answer: until now everybody is excused.
        reader.sought_us = now_us
        self._release_credit(request.group, self._first(request.topic, request.partition))
        for at, message in reader.messages.items():
            message.over = True
            if at >= offset and message.acked_us < asked_us:
                message.acked_us = -1
                message.dead = 0
                message.rejected = False
                message.excused = True

    # Contents

    def _log(self, log: LogKey) -> _Log:
        found = self.logs.get(log)
        if found is None:
            found = self.logs[log] = _Log()
        return found

    def _first(self, topic: str, partition: int) -> LogKey:
        """The log that a request for a partition means: where there are lanes, the first of them."""
        return topic, partition, 1 if topic in self._laned else 0

    def _reader(self, group: str, log: LogKey) -> _Reader:
        key = (group, *log)
        found = self.readers.get(key)
        if found is None:
            found = self.readers[key] = _Reader()
        return found

    def _know(self, log: LogKey, known: _Log, offset: int, value: bytes) -> None:
        """An offset's content: published to this topic, and the same for ever (I-CONTENT, I-INVENTED)."""
        before = known.content.get(offset)
        if before is None:
            if known.doubtful and offset in known.doubtful:
                self._settle_doubt(log, known, offset, value)
            if not log[0].endswith(".dlq"):
                sent = self._offered.get(log[0], {}).get(value, 0)
                copies = self._copies.setdefault(log[0], {})
                copies[value] = copies.get(value, 0) + 1
                text = f"{log}: offset {offset} holds {value[:40]!r}, which is there {copies[value]} times and"
                self._judge("I-INVENTED", copies[value] <= sent, f"{text} was published {sent} times")
            known.content[offset] = value
            if log[0] in self.relaxed:
                known.since_us[offset] = self._now_us
            self._shown.setdefault(log[0], {}).setdefault(value, (log, offset))
            if value in self._once and not log[0].endswith(".dlq"):
                place = self._shown[log[0]][value]
                self._judge("I-ONCE", place == (log, offset), f"{log}: {offset} holds again what is at {place}")
            self._due_us.get(log[0], {}).pop(value, None)
            due_us = self._not_before_us.get(value)
            if due_us is not None and self._honest:
                early = self._now_us < due_us - SLACK_US
                self._judge("I-DELAY", not early, f"{log}: offset {offset} shows {due_us - self._now_us} us early")
        else:
            self._judge(
                "I-CONTENT", before == value, f"{log}: offset {offset} held {before[:40]!r}, now {value[:40]!r}"
            )

    def _look(self, known: _Log, batches: bytes) -> list[tuple[int, bytes, list[batch.Record]]]:
        """Stored batches that have not left the broker before like this: where each begins, its bytes, its records."""
        new: list[tuple[int, bytes, list[batch.Record]]] = []
        for header, data in batch.split(batches):
            if known.verified.get(header.base_offset) != data:
                records = list(batch.parse(data, codecs=CODECS))
                for record in records:
                    known.numbers[record.offset] = self._number(record.value or b"")
                new.append((header.base_offset, data, records))
        return new

    def _verify(self, log: LogKey, known: _Log, new: Iterable[tuple[int, bytes, list[batch.Record]]]) -> None:
        """Judge the contents of stored batches that leave the broker."""
        for base, data, records in new:
            for record in records:
                self._know(log, known, record.offset, record.value or b"")
                if log[0].endswith(".dlq"):
                    self._dead_letter(record)
            known.verified[base] = data

    def _fetched(self, line: _Line, request: wire.Fetch, answer: wire.FetchAnswer, asked: _Asked) -> None:
        """A read of a log: dense, and nothing that was confirmed is missing (I-DENSE, I-LOST)."""
        log = self._first(request.topic, request.partition)
        known = self._log(log)
        new = self._look(known, answer.batches)
        self._note_read(line, log, known, answer, asked)
        self._verify(log, known, new)
        confirmed_end = asked.held[0]
        self._judge(
            "I-LOST",
            answer.end >= confirmed_end or bool(self.lost_ranges.get(log)),
            f"{log} ends at {answer.end}, but offsets up to {confirmed_end - 1} were confirmed",
        )
        expected = max(request.offset, answer.start)
        for header, _ in batch.split(answer.batches):
            covers = header.base_offset <= expected <= header.last_offset or self._is_lost(log, expected, header)
            self._judge("I-DENSE", covers, f"{log}: offset {expected} is missing before {header.base_offset}")
            expected = header.last_offset + 1
        known.audited = max(known.audited, expected)

    def _note_read(self, line: _Line, log: LogKey, known: _Log, answer: wire.FetchAnswer, asked: _Asked) -> None:
        """What a log was said to hold, and each batch of it that was read."""
        about = {"topic": log[0], "partition": log[1], "lane": log[2], "connection": line.number, "asked": asked.seq}
        self.note(line.name, "extent", first=answer.start, last=answer.end - 1, **about)
        for header, _ in batch.split(answer.batches):
            first, last = header.base_offset, header.last_offset
            values = tuple([known.numbers.get(offset, -1) for offset in range(first, last + 1)])
            self.note(line.name, "read", first=first, last=last, values=values, **about)

    def _dead_letter(self, record: batch.Record) -> None:
        """A dead letter has its original's bytes, a cause, and is alone (I-DEAD)."""
        headers = {key: (value or b"").decode() for key, value in record.headers}
        log, offset = _parse_id(headers["dovetail-id"])
        where = f"{log[0]}:{log[1]}:{offset} of {headers['dovetail-group']}"
        self.note(
            "world",
            "dead",
            topic=log[0],
            partition=log[1],
            lane=log[2],
            first=offset,
            last=offset,
            group=headers["dovetail-group"],
            values=(self._number(record.value or b""),),
        )
        original = self._log(log).content.get(offset)
        if original is not None:
            self._judge("I-DEAD", original == record.value, f"the dead letter of {where} has other bytes")
        reader = self._reader(headers["dovetail-group"], log)
        message = reader.at(offset)
        message.dead += 1
        hold = message.hold
        failures = message.failures + (hold is not None and (not message.over or hold.is_due(self._now_us)))
        failures += self._unsent_attempts(self._now_us)
        cause = message.rejected or failures >= self._attempts(log[0])[0] or message.excused or reader.sought_us >= 0
        self._judge("I-DEAD", cause, f"{where} is a dead letter, but at most {failures} attempts failed")
        alone = message.dead == 1 or message.excused or reader.sought_us >= 0
        self._judge("I-DEAD", alone, f"{where} is in the dead letters {message.dead} times")

    def _judge(self, invariant: str, holds: bool, text: str) -> None:
        self.evaluated[invariant] = self.evaluated.get(invariant, 0) + 1
        if not holds:
            raise Violated(invariant, text)

    # What publishers are refused

    def _refused_publish(self, request: wire.Produce | wire.Publish, refusal: wire.Refusal) -> None:
        """What was refused is not stored; for a lag only its own topic's publishers are, and told when to come back."""
        if refusal.status == Status.BUSY:
            said = request.topic in refusal.reason and refusal.retry_after_ms > 0
            sent = sum(self._offered.get(request.topic, {}).values())
            fair = sent > self._critical.get(request.topic, sent)
            self._judge("I-FLOW", said and fair, f"a publish to {request.topic} was refused: {refusal.reason}")
        if refusal.status in REFUSED_AT_ONCE:
            offered = self._offered[request.topic]
            for value in _values(request):
                offered[value] -= 1

    # What an operator does

    def deleting(self, topic: str, now_us: int) -> None:
        """An operator asks for a topic's end: from now on its messages may be gone."""
        self.note("operator", "delete asked", topic=topic)
        for group, log in self._readers_of(topic):
            reader = self._reader(group, log)
            reader.seeking += 1
            for message in reader.messages.values():
                message.over = True
            self._release_credit(group, log)

    def deleted(self, topic: str, now_us: int, *, ok: bool | None) -> None:
        """The answer to that; None if there never was one: then it may have happened or not."""
        self.note("operator", {True: "deleted", False: "delete refused", None: "delete lost"}[ok], topic=topic)
        for group, log in self._readers_of(topic):
            reader = self._reader(group, log)
            reader.seeking = max(0, reader.seeking - 1)
            if ok is not False:
                reader.sought_us = now_us
                self._release_credit(group, log)
                for message in reader.messages.values():
                    message.excused = message.over = True
        if ok is False:
            return
        for log, known in self.logs.items():
            if log[0] == topic:
                known.gone_us = now_us
                known.excused.update(known.content)
                if ok:
                    known.gone_below = max(known.content, default=-1) + 1
        self._shown.pop(topic, None)
        self._due_us.pop(topic, None)
        for place in [place for place, owed in self.replays_owed.items() if owed[0] == topic]:
            del self.replays_owed[place]

    def _readers_of(self, topic: str) -> list[tuple[str, LogKey]]:
        return [(key[0], key[1:]) for key in sorted(self.readers) if key[1] == topic]

    def _check_gone(self, known: _Log, log: LogKey, ranges: Iterable[tuple[int, int]], granted_us: int) -> None:
        """What was in a topic that was deleted is not sent any more, and its offsets are not used again (I-GONE)."""
        for first, last in ranges:
            if granted_us <= known.gone_us + SLACK_US:
                known.excused.update(range(first, last + 1))
            else:
                gone = first < known.gone_below
                self._judge("I-GONE", not gone, f"{log}: offset {first} was sent after its topic was deleted")

    def configured(self, topic: str, max_retries: int) -> None:
        """A topic may have another limit on retries from now on."""
        self.note("operator", "configure", topic=topic, detail=f"max_retries {max_retries}")
        self.retries.setdefault(topic, [self.plan.broker.max_retries]).append(max_retries)

    def _attempts(self, topic: str) -> tuple[int, int]:
        """The fewest and the most attempts that a message of a topic may have had."""
        limits = self.retries.get(topic)
        if limits is None:
            return self.plan.broker.max_retries + 1, self.plan.broker.max_retries + 1
        return min(limits) + 1, max(limits) + 1

    def replaying(self, items: Iterable[tuple[str, int, str]]) -> None:
        """An operator asks for dead letters to be replayed: dead-letter topic, offset, and where each goes."""
        for dead, offset, topic in items:
            value = self.logs[dead, 0, 0].content[offset]
            self.note("operator", "replay asked", topic=topic, first=offset, values=(self._number(value),))
            offered = self._offered.setdefault(topic, {})
            offered[value] = offered.get(value, 0) + 1
            self._once.discard(value)
            self._expires_at_ms.pop(value, None)

    def replayed(self, items: Iterable[tuple[str, int, str]], *, ok: bool) -> None:
        """The answer to that."""
        for dead, offset, topic in items:
            value = self.logs[dead, 0, 0].content[offset]
            self.note("operator", "replay" if ok else "replay refused", topic=topic, first=offset)
            if ok:
                gone = (dead, offset) in self.purged
                self._judge("I-REPLAY", not gone, f"{dead}: offset {offset} is replayed, but was removed")
                self.replays_owed[dead, offset] = (topic, value, self._copies.get(topic, {}).get(value, 0) + 1)
            else:
                self._offered[topic][value] -= 1

    def _replays_left(self) -> list[str]:
        """Replays that were promised and have not come (I-REPLAY)."""
        left: dict[str, int] = {}
        for (dead, _), (topic, value, count) in self.replays_owed.items():
            if self._copies.get(topic, {}).get(value, 0) < count:
                left[dead] = left.get(dead, 0) + 1
        return [f"{count} dead letters of {dead} were to be replayed and have not come" for dead, count in left.items()]

    # What a disk loses rightly

    def _doubt(self, log: LogKey, before_us: int) -> None:
        """What was first seen after `before_us` may be lost: all from the first such offset on."""
        known = self.logs[log]
        safe = [offset for offset, at_us in known.since_us.items() if at_us < max(before_us, self._safe_us)]
        first = max(safe, default=-1) + 1
        lost = [offset for offset in known.content if offset >= first]
        copies, shown = self._copies.get(log[0], {}), self._shown.get(log[0], {})
        for offset in lost:
            value = known.doubtful[offset] = known.content.pop(offset)
            known.since_us.pop(offset, None)
            copies[value] = copies.get(value, 1) - 1
            if shown.get(value) == (log, offset):
                del shown[value]
        if lost:
            known.confirmed_end = min(known.confirmed_end, min(lost))
            known.audited = min(known.audited, min(lost))
            known.verified.clear()

    def _settle_doubt(self, log: LogKey, known: _Log, offset: int, value: bytes) -> None:
        """Something is at a doubtful offset: what was there, or something else that nobody has touched yet."""
        if known.doubtful.pop(offset) != value:
            known.excused.discard(offset)
            for key, reader in self.readers.items():
                if key[1:] == log:
                    reader.messages.pop(offset, None)

    def repaired(self, lost: Iterable[tuple[LogKey, int, int]], *, everything: bool, now_us: int) -> None:
        """An operator went on without what was damaged, and was told what that is; `everything` may be affected when
        decisions were lost, not only messages."""
        self.note("operator", "repaired", mode="everything" if everything else "")
        for log, first, last in lost:
            self.note("operator", "lost", topic=log[0], partition=log[1], lane=log[2], first=first, last=last)
            self.lost_ranges.setdefault(log, []).append((first, last))
            self._log(log).excused.update(range(first, last + 1))
        self.replays_owed.clear()
        self._due_us.clear()
        if not everything:
            return
        self._shown.clear()
        for log in sorted(self.logs):
            known = self.logs[log]
            known.since_us = dict.fromkeys(known.content, now_us)
            known.gone_below = 0
            self._doubt(log, 0)
        for reader in self.readers.values():
            reader.skipped_below = 0 if reader.skipped_below else reader.skipped_below
            for message in reader.messages.values():
                message.excused = message.over = True

    def verified(self, lost: Iterable[str]) -> None:
        """What `dovetail log verify` says is lost right after a repair: nothing may be (I-REPAIR)."""
        found = list(lost)
        self._judge("I-REPAIR", not found, f"after a repair something is lost all the same: {found[:3]}")

    def _is_lost(self, log: LogKey, expected: int, header: BatchHeader) -> bool:
        """Whether the gap before a batch is what an operator was told is lost."""
        at = expected
        for first, last in sorted(self.lost_ranges.get(log, ())):
            at = last + 1 if first <= at <= last else at
        return header.base_offset <= at <= header.last_offset

    # The end

    def unsettled(self, now_us: int) -> list[str]:
        """What groups still have to do, in words; empty when everything was settled one way or another."""
        left = self._replays_left()
        for topic, owed in sorted(self._due_us.items()):
            late = [due_us for due_us in owed.values() if due_us < now_us]
            if owed:
                left.append(f"{len(owed)} delayed messages of {topic} have not come, {len(late)} of them are overdue")
        for group in sorted(self.groups):
            if group in self._careless and self._disturbed_us[group] >= 0:
                # Settled when sent: what was on its way when a connection or the broker ended is nobody's.
                continue
            for log in sorted(self.logs):
                if not any(names.matches(pattern, log[0]) for pattern in self.groups[group]):
                    continue
                reader = self._reader(group, log)
                content = self.logs[log].content
                todo = [
                    offset
                    for offset in sorted(content)
                    if offset >= max(reader.skipped_below, self.logs[log].gone_below)
                    and offset not in self.logs[log].excused
                    and not self._is_done(reader.messages.get(offset), content[offset])
                ]
                if todo:
                    left.append(self._story(group, log, reader.messages.get(todo[0]), todo, now_us))
        return left

    def _is_done(self, message: _Message | None, value: bytes) -> bool:
        if value in self._mortal:
            return True
        return message is not None and (message.acked_us >= 0 or message.perhaps or message.dead > 0 or message.skipped)

    def _story(self, group: str, log: LogKey, message: _Message | None, todo: list[int], now_us: int) -> str:
        text = f"group {group}: {len(todo)} messages of {log[0]}:{log[1]} are not settled, the first is {todo[0]}"
        if message is None:
            return f"{text}, which was never delivered"
        hold = message.hold
        if hold is None or message.over:
            return f"{text}, which waits for another try after {message.failures} failures"
        if hold.until_us > now_us and hold.line.closed_us < 0:
            return f"{text}, which {hold.line.name} holds (lease {hold.lease}, attempt {hold.attempt})"
        return f"{text}, last held by {hold.line.name} (lease {hold.lease}, attempt {hold.attempt}), which is over"

    def check_dead_and_settled(self) -> None:
        """No message was both acknowledged for good and made a dead letter (I-DEAD)."""
        for (group, topic, partition, lane), reader in self.readers.items():
            for offset, message in reader.messages.items():
                both = message.dead > 0 and message.acked_us >= 0 and not message.excused and reader.sought_us < 0
                self._judge(
                    "I-DEAD", not both, f"{topic}:{partition}.{lane}:{offset} of {group} is acknowledged and dead"
                )


def _shown(lease: int) -> int:
    """A lease's number in the trace, where -1 means that there is none: single deliveries come below it."""
    return lease if lease >= 0 else lease - 1


def _values(request: wire.Produce | wire.Publish) -> list[bytes]:
    if isinstance(request, wire.Publish):
        return [request.payload]
    return [record.value or b"" for record in batch.parse(request.batch, codecs=CODECS)]


def _parse_id(text: str) -> tuple[LogKey, int]:
    topic, place, offset = text.rsplit(":", 2)
    partition, _, lane = place.partition(".")
    return (topic, int(partition), int(lane) + 1 if lane else 0), int(offset)


def _as_item(request: wire.Ack | wire.Nack) -> wire.SettleItem:
    """A single ACK or NACK, as the SETTLE that it stands for; its delivery's number is its lease."""
    message_id, _, number = request.message_id.rpartition("#")
    _, offset = _parse_id(message_id)
    if isinstance(request, wire.Ack):
        return wire.SettleItem(-int(number), SettleAction.ACK, offset, offset)
    action = SettleAction.NACK if request.retry_requested else SettleAction.REJECT
    return wire.SettleItem(-int(number), action, offset, offset)


def _as_outcome(answer: wire.Answer | wire.Refusal) -> wire.SettleOutcome:
    if isinstance(answer, wire.Refusal):
        return wire.SettleOutcome(answer.status)
    return wire.SettleOutcome(Status.OK, answer.action if isinstance(answer, wire.NackAnswer) else Outcome.SETTLED)
