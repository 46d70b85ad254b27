"""How much the broker does, as its clients are told and as they are treated (I-LEVEL).

What asks for a level is known outside of the broker: what an operator set, how much memory the machine said was in use
and how late its timers were, whether the disk was full. From that alone follows, by rules written here once more, which
level counts; everything else is read off the wire.

Promises  a level begins at its limit, ends only below it and by itself, and ends nobody else's; whoever said HELLO is
          told of each change before anything that was decided after it; what comes while a level lasts is treated as
          the level says, settles and deliveries are not.
Never     asks the broker which level it is at.
"""

from __future__ import annotations

from dovetail.core import wire
from dovetail.core.codes import Priority, Status
from dovetail.sim import plan
from dovetail.sim.checkers.entries import ROUNDING_US, Asked, Line
from dovetail.sim.checkers.ground import Ground

WORDS: tuple[plan.Level, ...] = ("normal", "throttled", "read-only", "maintenance", "emergency")
"""From everything to little."""
NORMAL, THROTTLED, READ_ONLY, MAINTENANCE, EMERGENCY = range(5)
HELD_BACK_US = 100_000
"""A throttled broker confirms so much later."""
LATE_MS = 1_000
LOOKS = 5
"""So many looks in a row came late, or in time: one alone says nothing."""


class Levels:
    """What is asked for, and what follows from it."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.now = NORMAL
        """The level that counts."""
        self.changes = 0
        self._asked = {"operator": NORMAL, "memory": NORMAL, "loop": NORMAL, "disk": NORMAL}
        self._looks: list[int] = []
        self._untold: dict[int, list[tuple[int, int]]] = {}
        """By connection: the changes that it is yet to be told of, each with its number."""
        self._told: dict[int, int] = {}

    # What asks for a level

    def set_by_operator(self, word: plan.Level) -> None:
        """An operator asks for a level, or takes back what operators asked for."""
        self._ask("operator", WORDS.index(word))

    def looked(self, used_percent: int, late_ms: int) -> None:
        """So much memory was in use, and so late was a timer, when the broker looked."""
        self._ask("memory", _by_memory(used_percent, self._asked["memory"]))
        self._looks = [*self._looks, late_ms][-LOOKS:]
        is_late = self._asked["loop"] == THROTTLED
        agree = all((each < LATE_MS // 2) if is_late else (each >= LATE_MS) for each in self._looks)
        if len(self._looks) == LOOKS and agree:
            self._looks.clear()
            self._ask("loop", NORMAL if is_late else THROTTLED)

    def disk_is_full(self, full: bool) -> None:
        """The disk has too little room, or enough again."""
        self._ask("disk", READ_ONLY if full else NORMAL)

    def broker_died(self) -> None:
        """What was asked for ends with the process; whoever still has a reason asks again."""
        self._asked = dict.fromkeys(self._asked, NORMAL)
        self._looks.clear()
        self._untold.clear()
        self._told.clear()
        self.now = NORMAL

    @property
    def is_asked(self) -> bool:
        """Whether memory or lateness still ask for a level, or may do so after some more looks."""
        return self._asked["memory"] > NORMAL or self._asked["loop"] > NORMAL

    def _ask(self, source: str, level: int) -> None:
        self._asked[source] = level
        strictest = max(self._asked.values())
        if strictest != self.now:
            self.now = strictest
            self.changes += 1
            for untold in self._untold.values():
                untold.append((self.changes, strictest))

    # Who is told

    def said_hello(self, line: Line) -> None:
        """From now on it is told; of a level that lasts at once."""
        self._told[line.number] = NORMAL
        self._untold[line.number] = [(self.changes, self.now)] if self.now > NORMAL else []

    def gone(self, line: int) -> None:
        """A connection is over."""
        self._told.pop(line, None)
        self._untold.pop(line, None)

    def told(self, line: Line, text: str) -> None:
        """A connection is told of a level; the last words to one that is over are not judged."""
        if line.closed_us >= 0:
            return
        said = [str(word) for word in WORDS].index(text.partition("level is ")[2].partition(":")[0])
        untold = self._untold.get(line.number, [])
        if untold and untold[0][1] == said:
            untold.pop(0)
        else:
            # The level stays and its reason is another one.
            fits = said == self._told.get(line.number)
            self._judge(fits, f"{line.name} was told that the level is {WORDS[said]}, which nothing asks for")
        self._told[line.number] = said

    # Who is treated how

    def answered(self, line: Line, asked: Asked, answer: wire.Answer | wire.Refusal, now_us: int, again: bool) -> None:
        """A request is answered; `again` says that it is a publish that had been sent before."""
        untold = self._untold.get(line.number)
        if untold and not isinstance(asked.request, wire.Hello):
            number, level = untold[0]
            text = f"{line.name} was not told that the level is {WORDS[level]}, and answered by it"
            self._judge(asked.level_changes < number, text)
        if isinstance(asked.request, wire.Produce | wire.Publish):
            self._published(line, asked, asked.request, answer, now_us, again)
        elif asked.level > NORMAL and isinstance(asked.request, wire.Settle | wire.Ack | wire.Nack):
            refused = isinstance(answer, wire.Refusal) and answer.status in (Status.READ_ONLY, Status.BUSY)
            self._judge(not refused, f"a settle of {line.name} was refused at level {WORDS[asked.level]}")

    def _published(
        self,
        line: Line,
        asked: Asked,
        request: wire.Produce | wire.Publish,
        answer: wire.Answer | wire.Refusal,
        now_us: int,
        again: bool,
    ) -> None:
        level, word = asked.level, WORDS[asked.level]
        is_minor = isinstance(request, wire.Produce) and request.priority > Priority.NORMAL
        if isinstance(answer, wire.Refusal):
            if answer.status == Status.READ_ONLY:
                text = f"a publish of {line.name} was refused as read-only at level {word}: {answer.reason}"
                self._judge(level >= READ_ONLY and answer.retry_after_ms > 0, text)
            elif is_throttled(answer):
                text = f"a publish of {line.name} was refused at level {word}: {answer.reason}"
                self._judge(level == THROTTLED and is_minor and answer.retry_after_ms > 0, text)
        elif level >= READ_ONLY:
            self._judge(again, f"a publish of {line.name} was taken at level {word}")
        elif level == THROTTLED and not again:
            waited_us = now_us - asked.at_us
            text = f"a publish of {line.name} was confirmed after {waited_us} us at level throttled"
            self._judge(not is_minor and waited_us >= HELD_BACK_US - ROUNDING_US, text)

    def connected(self, name: str, *, taken: bool) -> None:
        """Somebody connects, and is taken or turned away."""
        if taken:
            self._judge(self.now < EMERGENCY, f"{name} was let in although the level is emergency")
        else:
            self._judge(self.now == EMERGENCY, f"{name} was turned away at level {WORDS[self.now]}")

    def _judge(self, holds: bool, text: str) -> None:
        self._ground.judge("I-LEVEL", holds, text)


def is_throttled(refusal: wire.Refusal) -> bool:
    """Whether a publish was refused because the whole broker is throttled."""
    return refusal.status == Status.BUSY and "the broker is throttled" in refusal.reason


def _by_memory(percent: int, before: int) -> int:
    """Throttled from 85% on until it is below 80%, an emergency from 95% on until it is below 90%."""
    if percent >= 95 or (before == EMERGENCY and percent >= 90):
        return EMERGENCY
    return THROTTLED if percent >= 85 or (before >= THROTTLED and percent >= 80) else NORMAL
