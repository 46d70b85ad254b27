"""Deliveries: to whom each offset goes, how often, in which order, and why again.

Promises  one live lease per offset and group (I-LEASE), first deliveries in order (I-ORDER), nothing twice without its
          cause (I-SETTLED), no more attempts than can have failed (I-ATTEMPTS), nobody beyond their credit (I-CREDIT),
          a partition with one member (I-OWNER), a key in a key-ordered group too (I-KEY), nothing that failed before
          its next try is due (I-BACKOFF), nothing past its time to live (I-TTL), nothing that the delivery did
          not carry (I-DELIVERY).
Never     knows a lease but by its number on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.core import wire
from dovetail.sim.checkers.batches import Batches
from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.deletions import Deletions
from dovetail.sim.checkers.entries import Hold, Line, LogKey, Message, Reader, Sub, parse_id
from dovetail.sim.checkers.fanout import Fanout
from dovetail.sim.checkers.ground import NEVER_US, SLACK_US, UNCERTAIN_US, WALL_MS, Ground, Violated
from dovetail.sim.checkers.readers import Readers
from dovetail.sim.checkers.retries import Retries


class Deliveries:
    """Every lease that was given."""

    def __init__(
        self,
        ground: Ground,
        readers: Readers,
        contents: Contents,
        batches: Batches,
        deletions: Deletions,
        fanout: Fanout,
        retries: Retries,
    ) -> None:
        self._ground = ground
        self._readers = readers
        self._contents = contents
        self._batches = batches
        self._deletions = deletions
        self._fanout = fanout
        self._retries = retries
        self._holds: dict[tuple[int, int], Hold] = {}
        """Leases by connection and number."""
        self._keyed = {topic.name: topic for topic in ground.plan.topics if topic.keys}
        self._assigned: dict[tuple[str, str], dict[tuple[str, int], int]] = {}
        """By group and member, who keeps them on a new connection, the partitions that it has, and until when what is
        sent of each may have been decided."""
        self.delivered = 0
        self.redelivered = 0

    def broker_died(self) -> None:
        """Memberships end with the process."""
        self._assigned.clear()

    def hold(self, line: Line, lease: int) -> Hold | None:
        """What a connection was given under a number."""
        return self._holds.get((line.number, lease))

    def assigned(self, line: Line, message: wire.Assign) -> None:
        """A member is told all that it has."""
        self._assigned[message.group, line.name] = {
            (each.topic, each.partition): NEVER_US for each in message.partitions
        }

    def asked_back(self, line: Line, message: wire.Revoke, now_us: int) -> None:
        """A member is asked to give partitions up: it gets nothing more of them but what was decided before."""
        mine = self._assigned.setdefault((message.group, line.name), {})
        mine.update({(each.topic, each.partition): now_us for each in message.partitions})

    def joined(self, line: Line, group: str, now_us: int) -> None:
        """A member joins, or gives up what was revoked: what it still held of that returns to the group."""
        given_up = [log for of, log in line.revoked if of == group]
        line.revoked = {each for each in line.revoked if each[0] != group}
        for sub in line.subs.values():
            if sub.group == group and given_up:
                self._readers.disturbed_us[group] = now_us
                for lease in [lease for lease, hold in sub.holds.items() if hold.log[:2] in given_up]:
                    sub.holds.pop(lease).given_up = True

    def delivered_batches(self, line: Line, message: wire.Deliver, now_us: int, latency_us: int) -> None:
        """A DELIVER left: ranges of stored batches, under a lease or settled at once."""
        log = (message.topic, message.partition, message.lane)
        sub = line.subs.get(message.subscription_id)
        known = self._contents.log(log)
        new = self._batches.look(known, message.batches)
        deadline_us = (message.deadline_ms - WALL_MS) * 1000 if message.deadline_ms else -1
        for first, last in message.ranges:
            values = tuple([known.numbers.get(offset, -1) for offset in range(first, last + 1)])
            lease = (message.lease, message.attempt, deadline_us)
            self._ground.rows.delivery(line, sub, log, (first, last), lease, values, latency_us)
        if sub is None:
            raise Violated("I-DELIVERY", f"{line.name} was sent {log} for a subscription it does not have")
        self._batches.verify(log, known, new)
        for first, last in message.ranges:
            self._ground.count("I-DELIVERY", last - first + 1)
            for offset in range(first, last + 1):
                if offset not in known.content:
                    raise Violated("I-DELIVERY", f"{log}: {first}-{last} was leased, {offset} was not sent")
        if self._contents.expires_at_ms and message.lease and self._ground.honest:
            granted_us = self._granted_us(message.deadline_ms, now_us)
            for first, last in message.ranges:
                for offset in range(first, last + 1):
                    self._check_alive(log, offset, known.content[offset], granted_us)
        self._lease_out(line, sub, log, message.lease, message.attempt, message.deadline_ms, message.ranges, now_us)

    def delivered_single(self, line: Line, message: wire.Delivery, now_us: int, latency_us: int) -> None:
        """A DELIVERY left: one message, for a client of the old kind."""
        id, _, number = message.message_id.rpartition("#")
        log, offset = parse_id(id)
        sub = line.subs.get(message.subscription_id)
        # A single ACK names its delivery: that number stands for the lease.
        lease = -int(number) if message.ack_deadline_ms else 0
        known = self._contents.log(log)
        known.numbers[offset] = self._ground.rows.number(message.payload)
        deadline_us = (message.ack_deadline_ms - WALL_MS) * 1000 if message.ack_deadline_ms else -1
        shown = (lease, -1, deadline_us)
        self._ground.rows.delivery(line, sub, log, (offset, offset), shown, (known.numbers[offset],), latency_us)
        if sub is None:
            raise Violated("I-DELIVERY", f"{line.name} was sent {log} for a subscription it does not have")
        self._contents.know(log, known, offset, message.payload)
        self._lease_out(line, sub, log, lease, 0, message.ack_deadline_ms, ((offset, offset),), now_us)

    def _lease_out(
        self,
        line: Line,
        sub: Sub,
        log: LogKey,
        lease: int,
        attempt: int,
        deadline_ms: int,
        ranges: Iterable[tuple[int, int]],
        now_us: int,
    ) -> None:
        """Judge a delivery: exclusive, with cause, in order, within credit."""
        granted_us = self._granted_us(deadline_ms, now_us) if lease else now_us
        hold = Hold(line, sub, log, lease, attempt, granted_us, granted_us + self._ground.lease_us)
        reader = self._readers.reader(sub.group, log)
        known = self._contents.logs[log]
        if known.gone_us >= 0:
            self._deletions.check(known, log, ranges, granted_us if lease else now_us - UNCERTAIN_US)
        if sub.group in self._readers.partitioned:
            self._check_owner(sub, reader, log, now_us, granted_us if lease else now_us - UNCERTAIN_US)
        self._check_order(sub, reader, log, ranges, now_us)
        self._fanout.delivered(sub, log, ranges)
        for first, last in ranges:
            self._retries.check_length(hold, first, last)
            hold.open += last - first + 1
            for offset in range(first, last + 1):
                self._check_delivery(reader, reader.at(offset), hold, offset, now_us)
                if sub.group in self._readers.key_ordered:
                    self._check_key(reader, hold, offset, now_us)
        self.delivered += hold.open
        if lease:
            self._holds[line.number, lease] = hold
            sub.holds[lease] = hold
            self._check_credit(sub, granted_us)

    def _granted_us(self, deadline_ms: int, now_us: int) -> int:
        """When a lease began: its deadline says so, where the broker's wall clock can be trusted."""
        if not self._ground.honest:
            return now_us - UNCERTAIN_US
        return min(now_us, (deadline_ms - WALL_MS) * 1000 - self._ground.lease_us)

    def _check_owner(self, sub: Sub, reader: Reader, log: LogKey, now_us: int, granted_us: int) -> None:
        """In a partitioned group nobody gets messages of a partition that is not theirs, or while another member holds
        some of it (I-OWNER)."""
        until_us = self._assigned.get((sub.group, sub.line.name), {}).get(log[:2], -1)
        text = f"{log} goes to {sub.line.name}, who was not told that it has it"
        self._ground.judge("I-OWNER", granted_us <= until_us + SLACK_US, text)
        for line in self._ground.lines.values():
            for other in line.subs.values():
                if other is sub or other.group != sub.group or line is sub.line:
                    continue
                held = [hold for hold in other.holds.values() if hold.log == log and not hold.is_due(now_us)]
                alone = not held or reader.seeking > 0 or reader.sought_us >= held[0].granted_us
                self._ground.judge(
                    "I-OWNER", alone, f"{log} goes to {sub.line.name} while {line.name} holds some of it"
                )

    def _check_alive(self, log: LogKey, offset: int, value: bytes, granted_us: int) -> None:
        """What is past its time to live is not sent (I-TTL)."""
        expires_at_ms = self._contents.expiry_ms(value)
        if expires_at_ms is not None:
            expired = WALL_MS + granted_us // 1000 > expires_at_ms
            self._ground.judge("I-TTL", not expired, f"{log}: offset {offset} was sent after its time to live")

    def _check_order(
        self, sub: Sub, reader: Reader, log: LogKey, ranges: Iterable[tuple[int, int]], now_us: int
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
                or self._readers.disturbed_us[sub.group] >= since_us
                or now_us - since_us >= self._ground.lease_us - SLACK_US
                or self._ground.disk_was_slow
                or (first <= before and self._readers.may_hold_unsent(sub.group, now_us))
            )
            self._ground.judge(
                "I-ORDER",
                first > before or bool(excused),
                f"{log}: offset {first} goes out for the first time after {before} did, to {sub.line.name}",
            )
            if first > before:
                sub.fresh[log] = first
                sub.fresh_us[log] = now_us

    def _check_delivery(self, reader: Reader, message: Message, hold: Hold, offset: int, now_us: int) -> None:
        before = message.hold
        if before is not None:
            where = f"{hold.log[0]}:{hold.log[1]}:{offset}"
            self.redelivered += 1
            # A settle that came at the deadline may have come too late: this many attempts can have failed.
            message.failures += before.is_due(now_us)
            if not message.over and not reader.seeking:
                self._check_exclusive(before, hold, where, now_us)
            self._check_cause(reader, message, before, hold, where)
        if hold.attempt:
            self._retries.delivered(reader, message, hold, offset, now_us)
            self._retries.check_told(reader, message, hold, offset)
            self._check_attempt(reader, message, hold, offset)
        message.hold = hold
        message.for_good = message.perhaps = False
        message.over = hold.lease == 0
        message.acked_us = now_us if hold.lease == 0 else -1
        message.acked_life = self._ground.life

    def _check_key(self, reader: Reader, hold: Hold, offset: int, now_us: int) -> None:
        """In a key-ordered group one key's messages are at one member at a time (I-KEY)."""
        topic = self._keyed.get(hold.log[0])
        key = topic.key_of(self._contents.logs[hold.log].content[offset]) if topic is not None else None
        if key is None or not hold.lease:
            return
        offsets = reader.keyed.setdefault(key, set())
        for other in [other for other in offsets if other != offset]:
            held = reader.at(other).hold
            if held is None or not reader.at(other).is_held(held) or held.is_due(now_us):
                offsets.discard(other)
            elif held.line is not hold.line:
                alone = reader.seeking > 0 or reader.sought_us >= held.granted_us
                where = f"{hold.log[0]}:{hold.log[1]}:{offset}"
                text = f"{where} goes to {hold.line.name} while {held.line.name} holds {other}, which has the same key"
                self._ground.judge("I-KEY", alone, text)
        self._ground.count("I-KEY")
        offsets.add(offset)

    def _check_attempt(self, reader: Reader, message: Message, hold: Hold, offset: int) -> None:
        """No more attempts than can have failed, and than there may be (I-ATTEMPTS)."""
        self._ground.count("I-ATTEMPTS")
        if hold.attempt == 1:
            return
        at = f"{hold.log[0]}:{hold.log[1]}:{offset} is at attempt {hold.attempt}"
        if hold.attempt > message.failures + 1 and not (message.excused or reader.sought_us >= 0):
            raise Violated("I-ATTEMPTS", f"{at}, but only {message.failures} attempts can have failed")
        most = self._ground.attempts(hold.log[0])[1]
        if hold.attempt > most:
            raise Violated("I-ATTEMPTS", f"{at} of {most}")

    def _check_exclusive(self, before: Hold, hold: Hold, where: str, now_us: int) -> None:
        """One live lease per offset and group (I-LEASE)."""
        timed_out = before.is_due(now_us)
        gone = before.line.closed_us >= 0 or before.life != self._ground.life or before.sub.over or before.given_up
        self._ground.judge(
            "I-LEASE",
            timed_out or gone,
            f"{where} goes to {hold.line.name} (lease {hold.lease}) while {before.line.name} holds it "
            f"(lease {before.lease}, for another {(before.until_us - now_us) // 1000} ms)",
        )

    def _check_cause(self, reader: Reader, message: Message, before: Hold, hold: Hold, where: str) -> None:
        """What was acknowledged comes again only if that was not durable when the broker died (I-SETTLED)."""
        if message.acked_us < 0 or message.excused or reader.seeking or reader.sought_us >= message.acked_us:
            return
        same_life = message.acked_life == self._ground.life
        durable_us = self._ground.durable_by_life.get(message.acked_life, -1)
        durable = same_life or message.for_good or message.acked_us < durable_us
        self._ground.judge(
            "I-SETTLED",
            not durable,
            f"{where} goes to {hold.line.name} again, but {before.line.name}'s acknowledgment "
            f"{'was accepted' if same_life else 'was durable before the crash'}",
        )

    def _check_credit(self, sub: Sub, now_us: int) -> None:
        """Nobody holds more than their credit (I-CREDIT)."""
        readers = self._readers.all
        if not self._ground.honest or any(readers[sub.group, *hold.log].seeking for hold in sub.holds.values()):
            return
        for lease in [lease for lease, each in sub.holds.items() if each.is_due(now_us)]:
            del sub.holds[lease]
        held = sum(each.open for each in sub.holds.values())
        self._ground.judge(
            "I-CREDIT", held <= sub.credit, f"{sub.line.name} holds {held} messages, its credit is {sub.credit}"
        )
