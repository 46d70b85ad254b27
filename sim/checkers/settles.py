"""Settles: each counts if and only if its lease was live.

Promises  a settle under a live lease is accepted, any other is refused and changes nothing (I-FENCE); nothing goes out
          again between its acknowledgment and the answer to that (I-SETTLED); what two members called poison is dead
          (I-DEAD).
Never     takes a lease for over before the wire showed it, or for live after it.
"""

from __future__ import annotations

from dovetail.core import wire
from dovetail.core.codes import NackReason, Outcome, SettleAction, Status, Wait
from dovetail.sim.checkers.deliveries import Deliveries
from dovetail.sim.checkers.entries import Asked, Hold, Line, Message, parse_id
from dovetail.sim.checkers.ground import POISON_MEMBERS, SLACK_US, UNCERTAIN_US, Ground, Violated
from dovetail.sim.checkers.readers import Readers
from dovetail.sim.checkers.retries import Retries


class Settles:
    """Every settle, from its request to its answer."""

    def __init__(self, ground: Ground, readers: Readers, deliveries: Deliveries, retries: Retries) -> None:
        self._ground = ground
        self._readers = readers
        self._deliveries = deliveries
        self._retries = retries
        self.settled = 0

    def asked(self, line: Line, item: wire.SettleItem) -> bool:
        """Whether all of a range is held; whatever the broker will say, it may be free again, or have failed."""
        hold = self._deliveries.hold(line, item.lease)
        if hold is None:
            return False
        reader = self._readers.reader(hold.sub.group, hold.log)
        messages = [reader.at(offset) for offset in range(item.first, item.last + 1)]
        held = all(message.is_held(hold) for message in messages)
        if held and item.action != SettleAction.EXTEND:
            hold.open -= len(messages)
            if hold.open <= 0:
                hold.sub.holds.pop(item.lease, None)
            for message in messages:
                message.over = True
                message.perhaps = item.action == SettleAction.ACK
                message.failures += item.action != SettleAction.ACK
                if item.reason == NackReason.POISON:
                    message.called_poison.add(line.number)
                message.rejected = message.rejected or item.action == SettleAction.REJECT
        return held

    def answered(
        self, line: Line, item: wire.SettleItem, outcome: wire.SettleOutcome, held: int, asked: Asked, now_us: int
    ) -> None:
        """A settle was answered."""
        ground, judge = self._ground, self._ground.judge
        hold = self._deliveries.hold(line, item.lease)
        ok = outcome.status == Status.OK
        extended_us = -1
        if item.action == SettleAction.EXTEND:
            most_us = hold.granted_us + ground.lease_max_us if hold is not None else asked.at_us
            extended_us = min(asked.at_us + item.delay_ms * 1000, most_us)
        ground.rows.settle(line, hold, item, outcome, asked, now_us, extended_us)
        if hold is None:
            return judge("I-FENCE", not ok, f"{line.name} settled lease {item.lease}, which it was never given")
        reader = self._readers.reader(hold.sub.group, hold.log)
        action = SettleAction(item.action).name.lower()
        where = f"{hold.log[0]}:{hold.log[1]}:{item.first}-{item.last} (lease {item.lease}, {line.name})"
        sought = reader.seeking > 0 or reader.sought_us >= hold.granted_us
        if not ok:
            live = bool(held) and not sought and not hold.is_due(now_us) and line.closed_us < 0
            for offset in range(item.first, item.last + 1) if held else ():
                reader.at(offset).perhaps = False
            return judge("I-FENCE", not live, f"{action} of {where} was refused although the lease is live")
        judge("I-FENCE", bool(held or sought), f"{action} of {where} was accepted, but not all of it was held")
        slack_us = SLACK_US if ground.honest else SLACK_US + UNCERTAIN_US
        late = asked.at_us > hold.until_us + slack_us and not sought
        judge("I-FENCE", not late, f"{action} of {where} was accepted after the lease's deadline")
        if item.action == SettleAction.EXTEND:
            hold.until_us = max(hold.until_us, extended_us)
            return None
        self.settled += item.last - item.first + 1
        for offset in range(item.first, item.last + 1):
            message = reader.at(offset)
            if item.action == SettleAction.ACK:
                ground.count("I-SETTLED")
                if message.hold is not hold and not sought:
                    raise Violated("I-SETTLED", f"{where}: offset {offset} went out again before its ack was answered")
                message.acked_us = now_us
                message.acked_life = ground.life
            elif outcome.action == Outcome.DROPPED:
                message.skipped = True
            elif item.action == SettleAction.NACK and not sought:
                self._failed(message, hold, item, outcome, f"{hold.log[0]}:{hold.log[1]}:{offset}")
            if outcome.action == Outcome.REQUEUED and message.hold is hold:
                self._retries.told(message, hold.attempt, item.delay_ms, asked.at_us, now_us)
        return None

    def _failed(
        self, message: Message, hold: Hold, item: wire.SettleItem, outcome: wire.SettleOutcome, where: str
    ) -> None:
        """An attempt failed: the message dies if two members called it poison."""
        life = self._ground.life
        if item.reason == NackReason.POISON and hold.attempt:
            # An answer that waits for the disk may come after that to a later attempt.
            message.poisoned.setdefault(hold.line.name, (life, hold.attempt))
            earlier = [said for said in message.poisoned.values() if said[0] == life and said[1] <= hold.attempt]
            voices = len(earlier)
            is_dead = outcome.action == Outcome.DEAD_LETTERED
            text = f"{where} is to be tried again, but {voices} members called it poison"
            self._ground.judge("I-DEAD", voices < POISON_MEMBERS or is_dead, text)

    def all_answered(
        self, line: Line, request: wire.Settle, answer: wire.SettleAnswer, asked: Asked, now_us: int
    ) -> None:
        """A SETTLE was answered, item by item."""
        waited = request.wait == Wait.DURABLE
        if waited:
            self._ground.said_durable(asked.at_us)
        for item, outcome, held in zip(request.items, answer.outcomes, asked.held, strict=True):
            self.answered(line, item, outcome, held, asked, now_us)
            if waited and outcome.status == Status.OK:
                self._is_for_good(self._deliveries.hold(line, item.lease), item)

    def _is_for_good(self, hold: Hold | None, item: wire.SettleItem) -> None:
        """The client had asked to hear of it when it is durable, and has heard."""
        if hold is not None and item.action == SettleAction.ACK:
            reader = self._readers.reader(hold.sub.group, hold.log)
            for offset in range(item.first, item.last + 1):
                reader.at(offset).for_good = True


def as_item(request: wire.Ack | wire.Nack) -> wire.SettleItem:
    """A single ACK or NACK, as the SETTLE that it stands for; its delivery's number is its lease."""
    message_id, _, number = request.message_id.rpartition("#")
    _, offset = parse_id(message_id)
    if isinstance(request, wire.Ack):
        return wire.SettleItem(-int(number), SettleAction.ACK, offset, offset)
    action = SettleAction.NACK if request.retry_requested else SettleAction.REJECT
    return wire.SettleItem(-int(number), action, offset, offset, request.reason)


def as_outcome(answer: wire.Answer | wire.Refusal) -> wire.SettleOutcome:
    """What a single ACK or NACK was told, as the outcome of the SETTLE that it stands for."""
    if isinstance(answer, wire.Refusal):
        return wire.SettleOutcome(answer.status)
    return wire.SettleOutcome(Status.OK, answer.action if isinstance(answer, wire.NackAnswer) else Outcome.SETTLED)
