"""What a broker does about its disk now and then: look how full it is, trim what retention lets go, compact.

Promises  the same for every shell; one chore at a time in the log lane, between the jobs that messages wait for; when
          the disk is nearly full nothing more may be published until there is room again.
Never     decides what goes: storage proposes, the core decides (I-RETAIN).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

from dovetail.core import inputs
from dovetail.core.ids import Now, ordered
from dovetail.core.node import Node
from dovetail.core.retention import Proposal
from dovetail.runtime.storage.compact import Compaction
from dovetail.runtime.storage.disk import Free, Task
from dovetail.runtime.storage.space import Level, SpaceLimits, level_of, room_bytes
from dovetail.runtime.storage.store import Store

SPACE_MS = 5_000
SPACE_BYTES_MIN = 1 << 20
ROOM_PARTS = 8
"""The disk is looked at again after so small a part of its room was committed: a message is written twice, to the
journal and to its log, and more of them are on their way."""
RETENTION_MS = 60_000
TIDY_MS = 600_000
COMPACTION_MS = 600_000
COMPACTION_PAUSE_MS = 50
"""Between two steps of a compaction, so that it never holds the log lane for long."""


class Housekeeper:
    """Due work of one node's storage, handed to its log lane chore by chore.

    `on_full` is told why nothing more may be published, or an empty text when it may again; without it the node is.
    """

    def __init__(
        self,
        store: Store,
        node: Node,
        limits: SpaceLimits,
        now: Now,
        on_full: Callable[[str], None] | None = None,
    ) -> None:
        self.level = Level.FINE
        self._levels: list[Level] = []
        """Of each file system; the worst counts."""
        self._on_full = on_full or (lambda reason: node.submit(inputs.SetReadOnly(reason)))
        self._store = store
        self._node = node
        self._limits = limits
        self._busy = False
        self._space_ms = now.mono_ms
        self._space_bytes = SPACE_BYTES_MIN
        self._retention_ms = now.mono_ms
        self._tidy_ms = now.mono_ms + TIDY_MS
        self._compaction_ms = now.mono_ms + COMPACTION_MS
        self._to_compact: list[int] = []
        self._compaction: Compaction | None = None

    @property
    def due_ms(self) -> int:
        """When `advance` has something to do, by the monotonic clock."""
        return min(self._space_ms, self._retention_ms, self._tidy_ms, self._compaction_ms)

    def hurry(self) -> None:
        """Have retention and compaction look now."""
        self._retention_ms = self._compaction_ms = 0

    def advance(self, now: Now) -> None:
        """Begin the next chore that is due, unless one is under way."""
        filling = self._store.committed_bytes >= self._space_bytes
        if self._busy or (now.mono_ms < self.due_ms and not filling):
            return
        if now.mono_ms >= self._space_ms or filling:
            self._space_ms = now.mono_ms + SPACE_MS
            self._begin(_free_space(), self._judge_space)
        elif now.mono_ms >= self._retention_ms:
            self._retention_ms = now.mono_ms + RETENTION_MS
            self._begin(self._store.proposals(self._node.state.durable, now.wall_ms), self._propose)
        elif now.mono_ms >= self._tidy_ms:
            self._tidy_ms = now.mono_ms + TIDY_MS
            self._node.submit(inputs.Tidy())
        else:
            self._compact(now)

    def _begin(self, task: Task[Any], then: Callable[[object], None]) -> None:
        self._busy = True

        def done(result: object) -> None:
            self._busy = False
            then(result)

        self._node.add_chore(task, done)

    def _judge_space(self, spaces: object) -> None:
        assert isinstance(spaces, list)
        room = min(room_bytes(space, self._limits) for space in spaces)
        self._space_bytes = self._store.committed_bytes + max(SPACE_BYTES_MIN, room // ROOM_PARTS)
        each_before = chain(self._levels, repeat(Level.FINE))
        self._levels = [level_of(space, self._limits, then) for space, then in zip(spaces, each_before, strict=False)]
        before, self.level = self.level, max(self._levels)
        if self.level >= Level.COMPACT and before < Level.COMPACT:
            self._retention_ms = self._compaction_ms = 0
        if (self.level is Level.READ_ONLY) != (before is Level.READ_ONLY):
            used = max(100 - space.free_bytes * 100 // max(1, space.total_bytes) for space in spaces)
            reason = f"the disk is {used}% full: free some space, or lower retention"
            self._on_full(reason if self.level is Level.READ_ONLY else "")

    def _propose(self, proposals: object) -> None:
        assert isinstance(proposals, list)
        for proposal in proposals:
            assert isinstance(proposal, Proposal)
            self._node.submit(inputs.TrimLog(proposal.log, proposal.start, proposal.hard_start))

    def _compact(self, now: Now) -> None:
        """One step of a compaction, or the choice of the next log."""
        if self._compaction is None:
            if not self._to_compact:
                self._to_compact = self._compacted_logs()
            if self._to_compact:
                self._compaction = self._store.compaction(self._to_compact.pop(0), now.wall_ms)
        if self._compaction is None:
            self._compaction_ms = now.mono_ms + (COMPACTION_PAUSE_MS if self._to_compact else COMPACTION_MS)
            return
        self._compaction_ms = now.mono_ms + COMPACTION_PAUSE_MS
        self._begin(self._compaction.step(), self._compacted)

    def _compacted(self, more: object) -> None:
        if not more:
            self._compaction = None

    def _compacted_logs(self) -> list[int]:
        durable = self._node.state.durable
        return [number for number, log in ordered(durable.logs) if durable.topics[log.topic].config.compact]


def _free_space() -> Task[object]:
    return (yield Free())
