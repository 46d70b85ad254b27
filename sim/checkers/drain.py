"""What is still to be done once nothing is broken any more (I-DRAIN), in words that name who waits for what.

Promises  empty exactly when every group has settled, one way or another, all that it is owed.
Never     judges how it was done.
"""

from __future__ import annotations

from dovetail.core import names
from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.dead_letters import DeadLetters
from dovetail.sim.checkers.entries import LogKey, Message
from dovetail.sim.checkers.readers import Readers


class Drain:
    """Asks the books what is left."""

    def __init__(self, readers: Readers, contents: Contents, dead_letters: DeadLetters) -> None:
        self._readers = readers
        self._contents = contents
        self._dead_letters = dead_letters

    def left(self, now_us: int) -> list[str]:
        """What groups still have to do."""
        left = self._dead_letters.replays_left()
        for topic, owed in sorted(self._contents.due_us.items()):
            late = [due_us for due_us in owed.values() if due_us < now_us]
            if owed:
                left.append(f"{len(owed)} delayed messages of {topic} have not come, {len(late)} of them are overdue")
        for group in sorted(self._readers.groups):
            if group in self._readers.careless and self._readers.disturbed_us[group] >= 0:
                # Settled when sent: what was on its way when a connection or the broker ended is nobody's.
                continue
            for log in sorted(self._contents.logs):
                if any(names.matches(pattern, log[0]) for pattern in self._readers.groups[group]):
                    left += self._left_of(group, log, now_us)
        return left

    def _left_of(self, group: str, log: LogKey, now_us: int) -> list[str]:
        reader = self._readers.reader(group, log)
        known = self._contents.logs[log]
        owed_from = max(reader.skipped_below, known.gone_below)
        todo = [
            offset
            for offset in sorted(known.content)
            if offset >= owed_from
            and offset not in known.excused
            and not self._is_done(reader.messages.get(offset), known.content[offset])
        ]
        return [_story(group, log, reader.messages.get(todo[0]), todo, now_us)] if todo else []

    def _is_done(self, message: Message | None, value: bytes) -> bool:
        if value in self._contents.mortal:
            return True
        return message is not None and (message.acked_us >= 0 or message.perhaps or message.dead > 0 or message.skipped)


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
