"""What joins a node to its storage engine, the same for every shell: jobs as tasks, and checkpoints in slices.

Promises  a checkpoint is taken of one immutable state, encoded one slice per call, and written only when everything
          in it is stored and in the logs' files.
Never     runs a task: shells do, in threads or in simulated time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import assert_never

from dovetail.core.committer import Commit
from dovetail.core.ids import Now
from dovetail.core.node import Chore, FindTime, Job, Node, ReadLog, WriteBehind
from dovetail.core.state import Durable
from dovetail.runtime.storage import checkpoint as checkpoints
from dovetail.runtime.storage.disk import Task
from dovetail.runtime.storage.store import Store


def commit_task(store: Store, commit: Commit) -> Task[object]:
    """The journal lane's part of a commit."""
    if commit.frames:
        yield from store.commit(commit.frames, sync=commit.sync)
    else:
        yield from store.sync()
    return None


def job_task(store: Store, job: Job) -> Task[object]:
    """What the log lane does for a job; its result is what `Node.job_done` takes."""
    match job:
        case WriteBehind():
            yield from store.write_behind(job.lsn, job.items)
            return None
        case ReadLog():
            return (yield from store.read(job.log, job.offset, job.bytes_max))
        case FindTime():
            return (yield from store.offset_at(job.log, job.arrival_ms))
        case Chore():
            assert isinstance(job.task, Generator)
            return (yield from job.task)
        case _:
            assert_never(job)


class Checkpointer:
    """Takes checkpoints: by time, by the journal's growth, or when asked."""

    def __init__(self, store: Store, node: Node, every_ms: int, now: Now) -> None:
        self._store = store
        self._node = node
        self._every_ms = every_ms
        self._last_ms = now.mono_ms
        self._last_lsn = node.state.durable.lsn
        self._asked = False
        self._durable: Durable | None = None
        self._slices: Iterator[bytes] | None = None
        self._pieces: list[bytes] = []
        self._writing = False

    @property
    def is_idle(self) -> bool:
        """Whether none is under way or asked for."""
        return not self._asked and self._durable is None

    @property
    def last_ms(self) -> int:
        """When the last one was begun, or looked at and not needed."""
        return self._last_ms

    @property
    def due_ms(self) -> int:
        """When the next one is due by time."""
        return self._last_ms + self._every_ms

    def ask(self) -> None:
        """Take one as soon as possible."""
        self._asked = True

    def advance(self, now: Now) -> bool:
        """Do at most one slice of work; True when another call right away would do more."""
        if self._durable is None:
            return self._begin(now)
        if self._slices is not None:
            piece = next(self._slices, None)
            if piece is not None:
                self._pieces.append(piece)
                return True
            self._slices = None
        if not self._writing and self._node.behind_lsn >= self._durable.lsn:
            self._writing = True
            self._node.add_chore(self._store.checkpoint(self._durable, self._pieces), self._finished)
        return False

    def _begin(self, now: Now) -> bool:
        durable = self._node.state.durable
        due = now.mono_ms >= self.due_ms and durable.lsn > self._last_lsn
        if not (self._asked or due or self._store.wants_checkpoint):
            if now.mono_ms >= self.due_ms:
                self._last_ms = now.mono_ms
            return False
        self._asked = False
        self._last_ms = now.mono_ms
        self._durable = durable
        self._slices = checkpoints.encode(durable)
        self._pieces = []
        return True

    def _finished(self, _: object) -> None:
        if self._durable is not None:
            self._last_lsn = self._durable.lsn
        self._durable = None
        self._pieces = []
        self._writing = False
