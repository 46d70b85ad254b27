"""What was published, what each log holds, and what a disk may lose rightly.

Promises  an offset holds what was published to its topic, as often as it was published, not before it is due, once
          where the producer is idempotent, and the same for ever (I-CONTENT, I-INVENTED, I-ONCE, I-DELAY).
Never     knows who reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from dovetail.core import batch, wire
from dovetail.core.codes import Priority, Status
from dovetail.runtime.storage.codecs import CODECS
from dovetail.sim import plan
from dovetail.sim.checkers.entries import Asked, Line, Log, LogKey
from dovetail.sim.checkers.ground import SLACK_US, WALL_MS, Ground, Violated
from dovetail.sim.checkers.levels import is_throttled
from dovetail.sim.checkers.readers import Readers

REFUSED_AT_ONCE = (Status.BUSY, Status.READ_ONLY, Status.QUOTA, Status.NOT_FOUND)
"""A publish that was refused for these reasons is not stored anywhere."""


class Contents:
    """All logs, and all that was ever offered to them."""

    def __init__(self, ground: Ground, readers: Readers) -> None:
        self._ground = ground
        self._readers = readers
        self.logs: dict[LogKey, Log] = {}
        self.confirmed = 0
        self.offered: dict[str, dict[bytes, int]] = {}
        """How often each message was published to each topic."""
        self.copies: dict[str, dict[bytes, int]] = {}
        """At how many offsets each message was seen, by topic."""
        self.shown: dict[str, dict[bytes, tuple[LogKey, int]]] = {}
        """Where each message was seen first, by topic."""
        self.due_us: dict[str, dict[bytes, int]] = {}
        """Messages by topic that are to show up and have not yet, because they are delayed or are said to be there; and
        from when on."""
        self._lanes: dict[bytes, int] = {}
        """The lane that each message of a topic with lanes belongs into."""
        self._replayed = {event.topic for event in ground.plan.events if isinstance(event, plan.ReplayDead)}
        self.buries = ground.buries
        self.mortal: set[bytes] = set()
        """Messages with a time to live."""
        self.expires_at_ms: dict[bytes, int] = {}
        self.once: set[bytes] = set()
        """What idempotent producers sent: stored once, however often it was sent."""
        self._not_before_us: dict[bytes, int] = {}
        """When a delayed message that was sent several times is due at the earliest."""
        self._ways: dict[bytes, tuple[object, ...]] = {}
        """How each message was sent."""
        self._ambiguous: set[bytes] = set()
        """Bytes that were sent in several ways: what one of these messages was promised can't be asked of all."""
        self._critical = {topic.name: topic.lag_critical for topic in ground.plan.topics if topic.lag_critical}

    def log(self, log: LogKey) -> Log:
        """What is known of a log."""
        found = self.logs.get(log)
        if found is None:
            found = self.logs[log] = Log()
        return found

    # Publishes

    def offered_batch(self, line: Line, request: wire.Produce, now_us: int, latency_us: int) -> None:
        """A batch came to be published."""
        values = values_of(request)
        header = batch.read_header(request.batch)
        self._offer(request.topic, values, request.ttl_ms)
        lane = self._ground.lane_of(request.topic, request.priority)
        writer: tuple[object, ...] = ()
        if header.producer_id >= 0:
            writer = (request.topic, request.partition, header.producer_id, header.producer_epoch)
        for sequence, value in enumerate(values, header.base_sequence):
            number = sequence if writer else -1
            self._sent(value, (lane, request.delay_ms, request.ttl_ms, number, *writer))
        if lane:
            self._lanes.update(dict.fromkeys(values, lane))
        if request.delay_ms:
            for value in values:
                self._not_before_us.setdefault(value, now_us + request.delay_ms * 1000)
        if header.producer_id >= 0:
            self.once.update(values)
        self._note_publish(line, request.topic, values, request.ttl_ms, now_us, latency_us)

    def offered_single(self, line: Line, request: wire.Publish, now_us: int, latency_us: int) -> None:
        """A message came to be published."""
        values, ttl_ms = values_of(request), request.ttl_seconds * 1000
        self._offer(request.topic, values, ttl_ms)
        self._sent(request.payload, (ttl_ms,))
        self._note_publish(line, request.topic, values, ttl_ms, now_us, latency_us)

    def _offer(self, topic: str, values: Sequence[bytes], ttl_ms: int) -> None:
        offered = self.offered.setdefault(topic, {})
        for value in values:
            offered[value] = offered.get(value, 0) + 1
        if ttl_ms:
            self.mortal.update(values)

    def _sent(self, value: bytes, way: tuple[object, ...]) -> None:
        """The same bytes sent again are the same message sent again, or another one that looks like it."""
        if self._ways.setdefault(value, way) != way:
            self._ambiguous.add(value)

    def _note_publish(
        self, line: Line, topic: str, values: Sequence[bytes], ttl_ms: int, now_us: int, latency_us: int
    ) -> None:
        deadline_us = now_us + ttl_ms * 1000 if ttl_ms else -1
        self._ground.rows.publish(line, topic, values, self._mode(values), latency_us, deadline_us)

    def _mode(self, values: Sequence[bytes]) -> str:
        return "idempotent" if values[0] in self.once else ""

    def stored_batch(
        self, line: Line, request: wire.Produce, answer: wire.ProduceAnswer, asked: Asked, now_us: int
    ) -> None:
        """A batch is said to be stored."""
        values = values_of(request)
        if request.delay_ms:
            return self._delay(line, request, values, asked)
        if request.ttl_ms:
            self.expires_at_ms.update(dict.fromkeys(values, answer.timestamp_ms + request.ttl_ms))
        return self.confirm(
            line, (request.topic, answer.partition, answer.lane), answer.base_offset, values, asked, now_us
        )

    def _delay(self, line: Line, request: wire.Produce, values: Sequence[bytes], asked: Asked) -> None:
        """Delayed messages are stored: they are owed to their topic when they are due."""
        self.confirmed += len(values)
        due_us = asked.at_us + request.delay_ms * 1000
        self._owe(request.topic, values, due_us)
        now_us = self._ground.now_us
        self._ground.rows.delayed(line, request.topic, values, self._mode(values), asked, now_us, due_us)

    def _owe(self, topic: str, values: Sequence[bytes], due_us: int) -> None:
        """Messages are said to be stored, and not where: they must show in their topic."""
        known = self.shown.get(topic, ())
        owed = self.due_us.setdefault(topic, {})
        owed.update(dict.fromkeys([value for value in values if value not in known], due_us))

    def confirm(self, line: Line, log: LogKey, base: int, values: Sequence[bytes], asked: Asked, now_us: int) -> None:
        """Messages are said to be stored at these offsets."""
        self._ground.rows.confirm(line, log, base, values, self._mode(values), asked, now_us)
        if values[0] not in self.once and log[0] not in self._ground.relaxed:
            # What an idempotent producer sends again may be answered at once: that proves nothing.
            self._ground.said_durable(asked.at_us)
        self.confirmed += len(values)
        known = self.log(log)
        for offset, value in enumerate(values, base):
            self.know(log, known, offset, value)
        known.confirmed_end = max(known.confirmed_end, base + len(values))
        if values[0] not in self.once:
            known.arrived_us[base] = asked.at_us
        if asked.at_us <= known.gone_us:
            known.excused.update(range(base, base + len(values)))

    def refused(self, request: wire.Produce | wire.Publish, refusal: wire.Refusal) -> None:
        """What was refused is not stored; for a lag only its own topic's publishers are, and told when to come back
        (I-FLOW)."""
        if refusal.status == Status.BUSY and not is_throttled(refusal):
            said = request.topic in refusal.reason and refusal.retry_after_ms > 0
            fair = self._has_sent_more_than(request.topic, self._critical.get(request.topic))
            self._ground.judge("I-FLOW", said and fair, f"a publish to {request.topic} was refused: {refusal.reason}")
        if refusal.status == Status.EXISTS and isinstance(request, wire.Produce):
            if request.topic not in self._ground.relaxed:
                self._owe(request.topic, values_of(request), self._ground.now_us + request.delay_ms * 1000)
        elif refusal.status in REFUSED_AT_ONCE:
            offered = self.offered[request.topic]
            for value in values_of(request):
                offered[value] -= 1

    def forgot_moves(self) -> None:
        """Decisions were lost with a disk: what was delayed may be moved to its topic once more."""
        for offered in self.offered.values():
            for value in offered.keys() & self._not_before_us.keys():
                offered[value] += 1

    def _has_sent_more_than(self, topic: str, limit: int | None) -> bool:
        if limit is None:
            return False
        sent = 0
        for times in self.offered.get(topic, {}).values():
            sent += times
            if sent > limit:
                return True
        return False

    def expiry_ms(self, value: bytes) -> int | None:
        """When a message has outlived its time, by the broker's wall clock."""
        return None if value in self._ambiguous else self.expires_at_ms.get(value)

    def may_be_over(self, value: bytes) -> bool:
        """Whether a message's time to live may have passed."""
        if value not in self.mortal:
            return False
        expires_at_ms = self.expiry_ms(value)
        return expires_at_ms is None or not self._ground.honest or expires_at_ms * 1000 <= self._now_us()

    def _now_us(self) -> int:
        return WALL_MS * 1000 + self._ground.now_us + SLACK_US

    def check_found(self, log: LogKey, offset: int, value_ms: int) -> None:
        """A seek to a time skips nothing that came at that time or later (I-INDEX)."""
        if self._ground.honest:
            since_us = (value_ms - WALL_MS + 1) * 1000
            known = self.log(log)
            came = [at for at, came_us in known.arrived_us.items() if at < offset and came_us >= since_us]
            skipped = [at for at in came if at >= known.gone_below and at not in known.excused]
            text = f"{log}: {value_ms} was found at {offset}, but {min(skipped, default=-1)} came later than that"
            self._ground.judge("I-INDEX", not skipped, text)

    def is_repeated(self, request: wire.Request) -> bool:
        """Whether it is a publish of what an idempotent producer had sent before: that may be stored already."""
        if not isinstance(request, wire.Produce):
            return False
        first = values_of(request)[0]
        return first in self.once and self.offered[request.topic][first] > 1

    # Offsets

    def know(self, log: LogKey, known: Log, offset: int, value: bytes) -> None:
        """An offset was seen to hold this."""
        before = known.content.get(offset)
        if before is not None:
            self._ground.count("I-CONTENT")
            if before != value:
                text = f"{log}: offset {offset} held {before[:40]!r}, now {value[:40]!r}"
                raise Violated("I-CONTENT", text)
            return
        judge, topic, now_us = self._ground.judge, log[0], self._ground.now_us
        if known.doubtful and offset in known.doubtful:
            self._settle_doubt(log, known, offset, value)
        is_dead = topic.endswith(".dlq")
        if not is_dead:
            sent = self.offered.get(topic, {}).get(value, 0)
            copies = self.copies.setdefault(topic, {})
            copied = copies[value] = copies.get(value, 0) + 1
            self._ground.count("I-INVENTED")
            if copied > sent:
                text = f"{log}: offset {offset} holds {value[:40]!r}, which is there {copied} times and"
                raise Violated("I-INVENTED", f"{text} was published {sent} times")
            self._check_lane(log, offset, value)
        known.content[offset] = value
        if topic in self._ground.relaxed:
            known.since_us[offset] = now_us
        self.shown.setdefault(topic, {}).setdefault(value, (log, offset))
        if value in self.once and value not in self._ambiguous and not is_dead:
            place = self.shown[topic][value]
            judge("I-ONCE", place == (log, offset), f"{log}: {offset} holds again what is at {place}")
        self.due_us.get(topic, {}).pop(value, None)
        due_us = self._not_before_us.get(value)
        if due_us is not None and self._ground.honest and value not in self._ambiguous:
            judge("I-DELAY", now_us >= due_us - SLACK_US, f"{log}: offset {offset} shows {due_us - now_us} us early")

    def _check_lane(self, log: LogKey, offset: int, value: bytes) -> None:
        """A message is in the lane of its priority, also after a delay; what was replayed is in the normal one
        (I-LANE)."""
        lane = self._lanes.get(value) if log[2] else None
        if lane is not None and value not in self._ambiguous:
            fits = log[2] == lane or (log[2] == Priority.NORMAL and log[0] in self._replayed)
            self._ground.judge("I-LANE", fits, f"{log}: offset {offset} holds what belongs into lane {lane}")

    # What a disk loses rightly

    def power_failed(self) -> None:
        """Topics whose confirms do not wait for a sync may have lost what was not durable; where they are synced at
        intervals, and the disk did as it should, only what was younger than that when the broker fell (I-CONFIRM)."""
        ground = self._ground
        for log in sorted(self.logs):
            if log[0] in ground.relaxed:
                in_time_us = ground.fell_us - ground.interval_us if log[0] in ground.timed else -1
                self.doubt(log, max(ground.durable_us, in_time_us))

    def doubt(self, log: LogKey, before_us: int) -> None:
        """What was first seen after `before_us` may be lost: all from the first such offset on."""
        known = self.logs[log]
        safe = [offset for offset, at_us in known.since_us.items() if at_us < max(before_us, self._ground.safe_us)]
        first = max(safe, default=-1) + 1
        lost = [offset for offset in known.content if offset >= first]
        copies, shown = self.copies.get(log[0], {}), self.shown.get(log[0], {})
        for offset in lost:
            value = known.doubtful[offset] = known.content.pop(offset)
            known.since_us.pop(offset, None)
            known.arrived_us.pop(offset, None)
            copies[value] = copies.get(value, 1) - 1
            if shown.get(value) == (log, offset):
                del shown[value]
        if lost:
            known.confirmed_end = min(known.confirmed_end, min(lost))
            known.verified.clear()

    def _settle_doubt(self, log: LogKey, known: Log, offset: int, value: bytes) -> None:
        """Something is at a doubtful offset: what was there, or something else that nobody has touched yet."""
        if known.doubtful.pop(offset) != value:
            known.excused.discard(offset)
            for key, reader in self._readers.all.items():
                if key[1:] == log:
                    reader.messages.pop(offset, None)


def values_of(request: wire.Produce | wire.Publish) -> Sequence[bytes]:
    """The messages of a publish."""
    if isinstance(request, wire.Publish):
        return (request.payload,)
    return _values(bytes(request.batch))


@lru_cache(maxsize=1_024)
def _values(data: bytes) -> tuple[bytes, ...]:
    """The messages of a batch: looked at when it comes, when it is answered, and when it comes again."""
    return tuple([record.value or b"" for record in batch.parse(data, codecs=CODECS)])
