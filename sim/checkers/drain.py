"""What is still to be done once nothing is broken any more (I-DRAIN), in words that name who waits for what.

Promises  empty exactly when every group has settled, one way or another, all that it is owed.
Never     judges how it was done.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.core import names
from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.dead_letters import DeadLetters
from dovetail.sim.checkers.entries import LogKey, Message
from dovetail.sim.checkers.fanout import Fanout
from dovetail.sim.checkers.readers import Readers


class Drain:
    """Asks the books what is left."""

    def __init__(self, readers: Readers, contents: Contents, dead_letters: DeadLetters, fanout: Fanout) -> None:
        self._readers = readers
        self._contents = contents
        self._dead_letters = dead_letters
        self._fanout = fanout
        self._waited_for: tuple[str, LogKey, int] | None = None
        """A message that was not settled when this was asked last."""

    def is_over(self) -> bool:
        """Whether nothing is left: asked often, and mostly the same message is waited for as the last time."""
        if self._waited_for is not None and self._is_owed(*self._waited_for):
            return False
        self._waited_for = next(((*pair, offset) for pair in self._pairs() for offset in self._owed(*pair)), None)
        return self._waited_for is None and not self._promised(0) and not self._fanout.left()

    def left(self, now_us: int) -> list[str]:
        """What is left, in words."""
        left = [*self._promised(now_us), *self._fanout.left()]
        for group, log in self._pairs():
            todo = sorted(self._owed(group, log))
            if todo:
                message = self._readers.reader(group, log).messages.get(todo[0])
                left.append(_story(group, log, message, todo, now_us))
        return left

    def _promised(self, now_us: int) -> list[str]:
        """What is to come to a topic and has not."""
        left = self._dead_letters.replays_left()
        for topic, owed in sorted(self._contents.due_us.items()):
            late = [due_us for due_us in owed.values() if due_us < now_us]
            if owed:
                left.append(f"{len(owed)} messages owed to {topic} have not come, {len(late)} of them are overdue")
        return left

    def _pairs(self) -> Iterator[tuple[str, LogKey]]:
        """Each group with each log that it reads."""
        for group, patterns in sorted(self._readers.groups.items()):
            if group in self._readers.careless and self._readers.disturbed_us[group] >= 0:
                # Settled when sent: what was on its way when a connection or the broker ended is nobody's.
                continue
            for log in sorted(self._contents.logs):
                if any(names.matches(pattern, log[0]) for pattern in patterns):
                    yield group, log

    def _owed(self, group: str, log: LogKey) -> Iterator[int]:
        """The offsets of a log that a group has not settled, in the order in which they were first seen."""
        messages = self._readers.reader(group, log).messages
        for offset in self._contents.logs[log].content:
            message = messages.get(offset)
            if (message is None or not message.is_settled) and self._is_owed(group, log, offset):
                yield offset

    def _is_owed(self, group: str, log: LogKey, offset: int) -> bool:
        reader, known = self._readers.reader(group, log), self._contents.logs[log]
        value, message = known.content.get(offset), reader.messages.get(offset)
        if value is None or offset in known.excused:
            return False
        if log[0] not in self._contents.buries and self._contents.may_be_over(value):
            return False
        if offset < max(reader.skipped_below, known.gone_below):
            return False
        return message is None or not message.is_settled


def _story(group: str, log: LogKey, message: Message | None, todo: list[int], now_us: int) -> str:
    text = f"group {group}: {len(todo)} messages of {log[0]}:{log[1]} are not settled, the first is {todo[0]}"
    if message is None:
        return f"{text}, which was never delivered"
    hold = message.hold
    if hold is None or message.over:
        return f"{text}, which waits for another try after {message.failures} failures"
    if hold.until_us > now_us and hold.line.closed_us < 0:
        return f"{text}, which {hold.line.name} holds (lease {hold.lease}, attempt {hold.attempt})"
    return f"{text}, last held by {hold.line.name} (lease {hold.lease}, attempt {hold.attempt}), which is over"
