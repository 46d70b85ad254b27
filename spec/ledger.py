"""What becomes of messages that are delayed, have a priority, are sent again, rejected, replayed: as naively as can be.

Beside `spec/model.py`, which follows every step: this one only keeps lists, and says at any moment what may come to a
reader and what must have come in the end. A message is its text; texts are never used twice, so a second delivery of
one that was settled, or of one that was recognised as sent again, shows.

Promises  what it accepts is what DESIGN says of delay, lanes, idempotent producers, dead letters and replays.
Never     imports anything of the project, or is clever.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RECENT = 5
"""So many batches of a producer are recognised when they come again."""


class Disagreement(AssertionError):
    """The broker did what it may not do."""


@dataclass
class Message:
    text: str
    lane: int
    due_ms: int
    number: int
    is_delayed: bool
    state: str = "waiting"
    """waiting, held, settled, dead, replayed (its text is another message's now)"""


@dataclass
class Sender:
    """What a producer has sent to one lane under its newest epoch."""

    epoch: int
    sent: list[tuple[int, int]] = field(default_factory=list)
    """(first sequence number, count) of each batch, oldest first."""


class Ledger:
    """One topic, and one group that reads it."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.senders: dict[tuple[int, int], Sender] = {}
        self.newest: dict[int, int] = {}
        """Lane to the number of the newest undelayed message that was delivered for the first time."""

    def published(self, text: str, lane: int, now_ms: int, delay_ms: int) -> None:
        """A message was confirmed."""
        number = len(self.messages)
        self.messages[text] = Message(text, lane, now_ms + delay_ms, number, delay_ms > 0)

    def judge(self, producer: int, lane: int, epoch: int, sequence: int, count: int) -> str:
        """What has to be answered to a producer's batch: new, again, stored, fenced or gap; "new" is noted."""
        known = self.senders.get((producer, lane))
        if known is not None and epoch < known.epoch:
            return "fenced"
        if known is None or epoch > known.epoch:
            self.senders[producer, lane] = Sender(epoch, [(sequence, count)])
            return "new"
        if (sequence, count) in known.sent[-RECENT:]:
            return "again"
        last, length = known.sent[-1]
        first = known.sent[0][0]
        if first <= sequence and sequence + count <= last + length:
            return "stored"
        if sequence != last + length:
            return "gap"
        known.sent.append((sequence, count))
        return "new"

    def delivered(self, text: str, lane: int, now_ms: int) -> None:
        """A reader was sent a message."""
        found = self.messages.get(text)
        if found is None:
            raise Disagreement(f"{text!r} was never published")
        if found.state != "waiting":
            raise Disagreement(f"{text!r} was delivered although it is {found.state}")
        if found.lane != lane:
            raise Disagreement(f"{text!r} of lane {found.lane} came in lane {lane}")
        if now_ms < found.due_ms:
            raise Disagreement(f"{text!r} came {found.due_ms - now_ms} ms early")
        found.state = "held"

    def first_time(self, text: str) -> None:
        """It was its first delivery: those come in the order in which they were published, lane by lane."""
        found = self.messages[text]
        if found.is_delayed:
            return
        if found.number < self.newest.get(found.lane, -1):
            raise Disagreement(f"{text!r} came for the first time after a newer message of its lane")
        self.newest[found.lane] = found.number

    def settled(self, text: str) -> None:
        self.messages[text].state = "settled"

    def failed(self, text: str) -> None:
        """It is to be tried again."""
        self.messages[text].state = "waiting"

    def rejected(self, text: str) -> None:
        self.messages[text].state = "dead"

    def replayed(self, lane: int, now_ms: int) -> list[str]:
        """All dead letters are replayed, into one lane; gives their texts, in order of their deaths."""
        dead = [each for each in self.messages.values() if each.state == "dead"]
        for each in dead:
            number = len(self.messages) + 1
            self.messages[each.text] = Message(each.text, lane, now_ms, number, is_delayed=True)
        return [each.text for each in dead]

    def crashed(self) -> None:
        """What was held is not any more; everything else is as it was."""
        for each in self.messages.values():
            if each.state == "held":
                each.state = "waiting"

    def missing(self) -> list[str]:
        """What has not been settled, and is not among the dead letters."""
        return [each.text for each in self.messages.values() if each.state not in ("settled", "dead")]
