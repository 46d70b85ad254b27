"""What an operator was told is lost, when a damaged disk was repaired.

Promises  nothing is excused but what the repair named; nothing more is lost afterwards (I-REPAIR).
Never     looks at the disk.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.core.batch import BatchHeader
from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.dead_letters import DeadLetters
from dovetail.sim.checkers.entries import LogKey
from dovetail.sim.checkers.ground import Ground
from dovetail.sim.checkers.readers import Readers


class Repairs:
    """The ranges that are lost."""

    def __init__(self, ground: Ground, readers: Readers, contents: Contents, dead_letters: DeadLetters) -> None:
        self._ground = ground
        self._readers = readers
        self._contents = contents
        self._dead_letters = dead_letters
        self._lost: dict[LogKey, list[tuple[int, int]]] = {}

    def repaired(self, lost: Iterable[tuple[LogKey, int, int]], *, everything: bool, now_us: int) -> None:
        """An operator went on without what was damaged, and was told what that is; `everything` may be affected when
        decisions were lost, not only messages."""
        note = self._ground.rows.note
        note("operator", "repaired", mode="everything" if everything else "")
        for log, first, last in lost:
            note("operator", "lost", topic=log[0], partition=log[1], lane=log[2], first=first, last=last)
            self._lost.setdefault(log, []).append((first, last))
            self._contents.log(log).excused.update(range(first, last + 1))
        self._dead_letters.replays_owed.clear()
        self._contents.due_us.clear()
        if not everything:
            return
        self._contents.shown.clear()
        self._contents.forgot_moves()
        for log in sorted(self._contents.logs):
            known = self._contents.logs[log]
            known.since_us = dict.fromkeys(known.content, now_us)
            known.gone_below = 0
            self._contents.doubt(log, 0)
        for reader in self._readers.all.values():
            reader.skipped_below = 0
            for message in reader.messages.values():
                message.excused = message.over = True

    def verified(self, lost: Iterable[str]) -> None:
        """What `dovetail log verify` says is lost right after a repair: nothing may be."""
        found = list(lost)
        self._ground.judge("I-REPAIR", not found, f"after a repair something is lost all the same: {found[:3]}")

    def has_lost_of(self, log: LogKey) -> bool:
        """Whether something of a log is lost."""
        return bool(self._lost.get(log))

    def explain(self, log: LogKey, expected: int, header: BatchHeader) -> bool:
        """Whether an operator was told of all of the gap before a batch; of more is fine: what a repair first takes for
        lost it may yet find elsewhere."""
        at = expected
        for first, last in sorted(self._lost.get(log, ())):
            at = last + 1 if first <= at <= last else at
        return expected < header.base_offset <= at
