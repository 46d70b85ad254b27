"""The onlooker at the broker's socket: decodes what passes, matches answers with requests, and hands on.

Promises  every byte of both directions is decoded, and what it says is noted and judged in the order in which it
          passed; a session ends by silence only when it was silent (I-SESSION).
Never     judges what one of the others judges.
"""

from __future__ import annotations

from dovetail.core import frames, wire
from dovetail.core.assignment import PARTITIONED_STRATEGIES
from dovetail.core.codes import Acks, Whence
from dovetail.core.frames import FrameType
from dovetail.core.keys import KEY_ORDERED
from dovetail.core.node import SEEN_MS
from dovetail.sim import plan
from dovetail.sim.checkers.batches import Batches
from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.dead_letters import DeadLetters
from dovetail.sim.checkers.deletions import Deletions
from dovetail.sim.checkers.deliveries import Deliveries
from dovetail.sim.checkers.drain import Drain
from dovetail.sim.checkers.entries import Asked, Line, parse_id
from dovetail.sim.checkers.fanout import Fanout
from dovetail.sim.checkers.ground import NEVER_US, SLACK_US, Ground, Violated
from dovetail.sim.checkers.levels import Levels
from dovetail.sim.checkers.looks import Looks
from dovetail.sim.checkers.quotas import Quotas
from dovetail.sim.checkers.readers import Readers
from dovetail.sim.checkers.repairs import Repairs
from dovetail.sim.checkers.retries import Retries
from dovetail.sim.checkers.rows import Note, Rows
from dovetail.sim.checkers.settles import Settles, as_item, as_outcome

_KINDS: dict[type, plan.Moment] = {
    wire.Settle: "settle",
    wire.Ack: "settle",
    wire.Nack: "settle",
    wire.Subscribe: "subscribe",
    wire.JoinGroup: "join",
    wire.Deliver: "deliver",
    wire.Delivery: "deliver",
    wire.Revoke: "revoke",
    wire.Assign: "assign",
}
"""What faults call the frames that they wait for, where it is the frame's type that tells."""


class Books:
    """Reads along. `note` takes a row for the trace."""

    def __init__(self, setup: plan.Plan, note: Note) -> None:
        self._rows = Rows(note)
        self.ground = Ground(setup, self._rows)
        self._readers = Readers(self.ground)
        self.contents = Contents(self.ground, self._readers)
        self.dead_letters = DeadLetters(self.ground, self._readers, self.contents)
        self.repairs = Repairs(self.ground, self._readers, self.contents, self.dead_letters)
        self.deletions = Deletions(self.ground, self._readers, self.contents, self.dead_letters)
        self._batches = Batches(self.ground, self.contents, self.dead_letters, self.repairs)
        self._fanout = Fanout(self.ground, self.contents)
        self._retries = Retries(self.ground)
        self.deliveries = Deliveries(
            self.ground,
            self._readers,
            self.contents,
            self._batches,
            self.deletions,
            self._fanout,
            self._retries,
        )
        self.settles = Settles(self.ground, self._readers, self.deliveries, self._retries)
        self.levels = Levels(self.ground)
        self._quotas = Quotas(self.ground)
        self.looks = Looks(self.ground, self._readers, self.contents)
        self.drain = Drain(self._readers, self.contents, self.dead_letters, self._fanout)
        self.passed: set[str] = set()
        """What kinds of frames passed last, in one piece: faults strike at such moments."""
        self._closing: dict[int, Line] = {}
        """Connections that are over but for the broker's last words."""
        self._deaf_until_us = 0

    # The broker

    def broker_stands_still(self, until_us: int) -> None:
        """Until then, and in its first tick afterwards, the broker hears nothing of anybody."""
        self._deaf_until_us = until_us + SLACK_US

    def awake(self, now_us: int) -> None:
        """The broker is up again: what it came up with is on the disk."""
        self.ground.safe_us = now_us
        self.ground.fell_us = -1

    def broker_died(self, now_us: int, *, power: bool) -> None:
        """The broker's process is gone, and all connections with it; without power also what was not synced."""
        for number in list(self.ground.lines):
            self.closed(number, now_us)
        self._rows.note("broker", "down", generation=self.ground.life, mode="power" if power else "")
        if self.ground.fell_us < 0:
            self.ground.fell_us = now_us
        if power:
            self.contents.power_failed()
        self.ground.next_life()
        self._closing.clear()
        self.levels.broker_died()
        self.looks.broker_died()
        self.deliveries.broker_died()
        self._readers.broker_died(now_us)

    # Connections

    def opened(self, line: int, name: str) -> None:
        """A connection was accepted."""
        self.ground.lines[line] = Line(line, name, self.ground.life)
        self._rows.note(name, "connect", connection=line)

    def closed(self, number: int, now_us: int) -> None:
        """A connection is over, whoever ended it."""
        line = self.ground.lines.pop(number, None)
        if line is None:
            return
        line.closed_us = now_us
        self.levels.gone(number)
        self._closing[number] = line
        self._rows.note(line.name, "disconnect", connection=number)
        for sub in line.subs.values():
            self._readers.end(sub, now_us)
        for asked in (*line.pending.values(), *line.turns):
            if isinstance(asked.request, wire.Seek):
                self._readers.seek_unanswered(asked.request)
            elif isinstance(asked.request, wire.Commit):
                self._readers.commit_ended(asked.request, now_us, ok=False)

    def received(self, number: int, data: bytes, now_us: int, sent_us: int) -> None:
        """Bytes of a client reached the broker."""
        line = self.ground.lines.get(number)
        if line is None:
            return
        line.heard_us = now_us
        self.passed.clear()
        for frame in line.reads.feed(data):
            if isinstance(frame, frames.FrameError):
                raise Violated("I-SIM", f"{line.name} sent a frame that is wrong: {frame.text}")
            request = wire.decode_message(frame.type, frame.payload)
            if isinstance(request, wire.Delivery | wire.Deliver | wire.Error | wire.Revoke | wire.Assign):
                raise Violated("I-SIM", f"{line.name} sent what only brokers send")
            held = self._request(line, request, now_us, now_us - sent_us)
            asked = Asked(request, now_us, held, self._rows.seq, self.levels.now, self.levels.changes)
            if frame.correlation is not None:
                line.pending[frame.correlation] = asked
            elif not (isinstance(request, wire.Produce) and request.acks == Acks.NONE):
                line.turns.append(asked)

    def sent(self, number: int, data: bytes, now_us: int, due_us: int) -> None:
        """Bytes left the broker for a client."""
        self.ground.now_us = now_us
        self.passed.clear()
        line = self.ground.lines.get(number) or self._closing.pop(number, None)
        if line is None:
            return
        latency_us = due_us - now_us if due_us >= 0 else -1
        if due_us < 0:
            line.behind_until_us = NEVER_US
        else:
            line.behind_until_us = due_us if latency_us >= self.ground.lease_us else -1
        for frame in line.writes.feed(data):
            if isinstance(frame, frames.FrameError):
                raise Violated("I-FRAME", f"the broker sent {line.name} a frame that is wrong: {frame.text}")
            if frame.type == FrameType.RESPONSE:
                asked = line.awaited(frame.correlation)
                if asked is None:
                    raise Violated("I-ANSWER", f"{line.name} got an answer to nothing it had asked")
                self._answer(line, asked, wire.decode_answer(asked.request.TYPE, frame.payload), now_us)
            else:
                self._push(line, wire.decode_message(frame.type, frame.payload), now_us, latency_us)

    # Requests

    def _request(self, line: Line, request: wire.Request, now_us: int, latency_us: int) -> tuple[int, ...]:
        self.passed.add(_KINDS.get(type(request), ""))
        match request:
            case wire.Produce():
                self._quotas.asked(line, request, now_us)
                self.contents.offered_batch(line, request, now_us, latency_us)
            case wire.Publish():
                self._quotas.asked(line, request, now_us)
                self.contents.offered_single(line, request, now_us, latency_us)
            case wire.Settle():
                for item in request.items:
                    self.looks.asked(self.deliveries.hold(line, item.lease), item)
                return tuple([self.settles.asked(line, item) for item in request.items])
            case wire.Ack() | wire.Nack():
                self.looks.asked(self.deliveries.hold(line, as_item(request).lease), as_item(request))
                return (self.settles.asked(line, as_item(request)),)
            case wire.Hello():
                self.levels.said_hello(line)
            case wire.Seek():
                self._readers.seek_asked(line, request, now_us)
            case wire.Commit():
                self._readers.commit_asked(request, now_us)
            case wire.Fetch():
                return (self.contents.log(self.ground.read(request)).confirmed_end,)
            case wire.JoinGroup():
                self._rows.member(line, "join", request.group, mode=request.strategy)
                if request.strategy in PARTITIONED_STRATEGIES:
                    self._readers.partitioned.add(request.group)
                if request.strategy == KEY_ORDERED:
                    self._readers.key_ordered.add(request.group)
                self.deliveries.joined(line, request.group, now_us)
            case wire.Unsubscribe():
                sub = line.subs.pop(request.subscription_id, None)
                if sub is not None:
                    self._rows.member(line, "unsubscribe", sub.group, topic=sub.pattern)
                    self._readers.end(sub, now_us)
            case wire.LeaveGroup():
                self._rows.member(line, "leave", request.group)
                for number in [number for number, sub in line.subs.items() if sub.group == request.group]:
                    self._readers.end(line.subs.pop(number), now_us)
            case wire.Goodbye():
                self._rows.note(line.name, "goodbye", connection=line.number)
                for sub in line.subs.values():
                    sub.holds.clear()
            case _:
                pass
        return ()

    # Answers

    def _answer(self, line: Line, asked: Asked, answer: wire.Answer | wire.Refusal, now_us: int) -> None:
        if self.levels.changes:
            self.levels.answered(line, asked, answer, now_us, self.contents.is_repeated(asked.request))
        if isinstance(asked.request, wire.Produce | wire.Publish):
            again = self.contents.is_repeated(asked.request)
            self._quotas.answered(line, asked, asked.request, answer, now_us, again)
        match asked.request, answer:
            case (wire.Ack() | wire.Nack()) as request, _:
                self.settles.answered(line, as_item(request), as_outcome(answer), asked.held[0], asked, now_us)
            case request, wire.Refusal():
                self._refused(line, request, answer, asked, now_us)
            case wire.Produce() as request, wire.ProduceAnswer():
                if not request.delay_ms:
                    self.passed.add("confirm")
                self.contents.stored_batch(line, request, answer, asked, now_us)
                if not request.delay_ms and not self.contents.is_repeated(request):
                    log = (request.topic, answer.partition, answer.lane)
                    self._fanout.confirmed(log, answer.base_offset, asked.at_us)
            case wire.Publish() as request, wire.PublishAnswer():
                self.passed.add("confirm")
                log, offset = parse_id(answer.message_id)
                self.contents.confirm(line, log, offset, [request.payload], asked, now_us)
                self._fanout.confirmed(log, offset, asked.at_us)
            case wire.Subscribe() as request, wire.SubscribeAnswer():
                self._readers.subscribed(line, request, answer.subscription_id, now_us)
            case wire.Settle() as request, wire.SettleAnswer():
                self.passed.add("settled")
                self.settles.all_answered(line, request, answer, asked, now_us)
                for item, outcome in zip(request.items, answer.outcomes, strict=True):
                    self.looks.settled(self.deliveries.hold(line, item.lease), item, outcome)
            case wire.Seek() as request, wire.SeekAnswer():
                self._readers.sought(line, request, answer.offset, asked, now_us)
                if request.whence == Whence.TIME:
                    self.contents.check_found(self.ground.moved(request)[-1], answer.offset, request.value)
            case wire.Commit() as request, _:
                self._readers.commit_ended(request, now_us, ok=True)
            case wire.Fetch() as request, wire.FetchAnswer():
                self._batches.fetched(line, request, answer, asked)
            case wire.JoinGroup() as request, wire.GenerationAnswer():
                latency_us = now_us - asked.at_us
                generation = answer.generation
                self._rows.member(line, "joined", request.group, generation=generation, latency_us=latency_us)
            case _:
                pass

    def _refused(self, line: Line, request: wire.Request, refusal: wire.Refusal, asked: Asked, now_us: int) -> None:
        self._rows.refused(line, asked, refusal.reason, now_us)
        if isinstance(request, wire.Produce | wire.Publish):
            self.contents.refused(request, refusal)
        elif isinstance(request, wire.Seek):
            self._readers.seek_refused(line, request, asked)
        elif isinstance(request, wire.Commit):
            self._readers.commit_ended(request, self.ground.now_us, ok=False)

    # What nobody asked for

    def _push(self, line: Line, message: wire.Request | wire.Push, now_us: int, latency_us: int) -> None:
        self.passed.add(_KINDS.get(type(message), ""))
        match message:
            case wire.Deliver():
                self.deliveries.delivered_batches(line, message, now_us, latency_us)
                self.looks.delivered(self.deliveries.hold(line, message.lease), message)
            case wire.Delivery():
                self.deliveries.delivered_single(line, message, now_us, latency_us)
                self.looks.leased(self.deliveries.hold(line, -int(message.message_id.rpartition("#")[2])))
            case wire.Revoke():
                self._rows.partitions(line, "revoke", message)
                line.revoked |= {(message.group, (each.topic, each.partition)) for each in message.partitions}
                self.deliveries.asked_back(line, message, now_us)
            case wire.Assign():
                self._rows.partitions(line, "assign", message)
                self.deliveries.assigned(line, message)
            case wire.Error():
                self._error(line, message, now_us)
            case _:
                pass

    def _error(self, line: Line, error: wire.Error, now_us: int) -> None:
        """Signs of life are passed on to the core now and then only."""
        self._rows.note(line.name, "error", detail=error.text, connection=line.number)
        if error.code == frames.ErrorCode.LEVEL:
            self.levels.told(line, error.text)
        if error.code == frames.ErrorCode.OVERTAKEN:
            self._fanout.skipped(line, error.text)
        if error.code == frames.ErrorCode.SESSION_ENDED and "heard" in error.text:
            silent_us = now_us - line.heard_us
            limit_us = (self.ground.plan.broker.session_timeout_ms - SEEN_MS) * 1000 - SLACK_US
            text = f"{line.name} was ended for silence after {silent_us // 1000} ms"
            self.ground.judge("I-SESSION", silent_us >= limit_us or now_us < self._deaf_until_us, text)
