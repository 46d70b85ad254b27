"""Topics that an operator deletes: what was in them is nobody's, and does not come back.

Promises  what was in a topic that was deleted is not sent any more, and its offsets are not used again (I-GONE).
Never     takes a deletion for done before it was answered.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.dead_letters import DeadLetters
from dovetail.sim.checkers.entries import Log, LogKey
from dovetail.sim.checkers.ground import SLACK_US, Ground
from dovetail.sim.checkers.readers import Readers


class Deletions:
    """What went, and when."""

    def __init__(self, ground: Ground, readers: Readers, contents: Contents, dead_letters: DeadLetters) -> None:
        self._ground = ground
        self._readers = readers
        self._contents = contents
        self._dead_letters = dead_letters

    def deleting(self, topic: str) -> None:
        """An operator asks for a topic's end: from now on its messages may be gone."""
        self._ground.rows.note("operator", "delete asked", topic=topic)
        for group, log in self._readers.of_topic(topic):
            reader = self._readers.reader(group, log)
            reader.seeking += 1
            for message in reader.messages.values():
                message.over = True
            self._readers.release_credit(group, log)

    def deleted(self, topic: str, now_us: int, *, ok: bool | None) -> None:
        """The answer to that; None if there never was one: then it may have happened or not."""
        kind = {True: "deleted", False: "delete refused", None: "delete lost"}[ok]
        self._ground.rows.note("operator", kind, topic=topic)
        for group, log in self._readers.of_topic(topic):
            reader = self._readers.reader(group, log)
            reader.seeking = max(0, reader.seeking - 1)
            if ok is not False:
                reader.sought_us = now_us
                self._readers.release_credit(group, log)
                for message in reader.messages.values():
                    message.excused = message.over = True
        if ok is False:
            return
        for log, known in self._contents.logs.items():
            if log[0] == topic:
                known.gone_us = now_us
                known.excused.update(known.content)
                if ok:
                    known.gone_below = max(known.content, default=-1) + 1
        self._contents.shown.pop(topic, None)
        self._contents.due_us.pop(topic, None)
        self._dead_letters.topic_deleted(topic)

    def check(self, known: Log, log: LogKey, ranges: Iterable[tuple[int, int]], granted_us: int) -> None:
        """A delivery of a log whose topic was deleted: decided before that, or of a topic of the same name."""
        for first, last in ranges:
            if granted_us <= known.gone_us + SLACK_US:
                known.excused.update(range(first, last + 1))
            else:
                gone = first < known.gone_below
                self._ground.judge("I-GONE", not gone, f"{log}: offset {first} was sent after its topic was deleted")
