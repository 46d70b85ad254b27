"""What the core wants done: answers, deliveries, reads. The shell carries them out and adds nothing.

Promises  plain frozen data; names of topics stand in it so that nobody has to look into the state.
Never     changes anything by itself.
"""

from __future__ import annotations

from msgspec import Struct

from dovetail.core.intervals import Intervals


class Effect(Struct, frozen=True, gc=False, tag=True):
    """Base of all effects."""


class Done(Struct, frozen=True, gc=False, tag=True):
    """It was done; there is nothing more to say."""


class Appended(Struct, frozen=True, gc=False, tag=True):
    """Stored at `offset` of this log."""

    topic: str
    partition: int
    lane: int
    offset: int
    count: int
    arrival_ms: int


class Subscribed(Struct, frozen=True, gc=False, tag=True):
    subscription: int


class Joined(Struct, frozen=True, gc=False, tag=True):
    generation: int


class Settlement(Struct, frozen=True, gc=False, tag=True):
    """For each item: its status, and for a NACK or REJECT what became of it."""

    results: tuple[tuple[int, int], ...]
    reasons: tuple[str, ...] = ()


class LogInfo(Struct, frozen=True, gc=False):
    partition: int
    lane: int
    start: int
    end: int


class TopicInfo(Struct, frozen=True, gc=False):
    name: str
    logs: tuple[LogInfo, ...]


class Topics(Struct, frozen=True, gc=False, tag=True):
    topics: tuple[TopicInfo, ...]


class Fetched(Struct, frozen=True, gc=False, tag=True):
    """The shell adds the stored batches from `offset` on; `start..end` is what the log has, `end` excluded."""

    log: int
    offset: int
    bytes_max: int
    start: int
    end: int


class ReplayBegun(Struct, frozen=True, gc=False, tag=True):
    """The job's number."""

    replay: int


class Sought(Struct, frozen=True, gc=False, tag=True):
    """A group's place is now at `offset`."""

    offset: int


class Refused(Struct, frozen=True, gc=False, tag=True):
    """What the peer asked for was not done; nothing changed."""

    status: int
    reason: str
    retry_after_ms: int = 0


Answer = Done | Appended | Subscribed | Joined | Settlement | Topics | Fetched | Sought | ReplayBegun | Refused


class Reply(Effect, frozen=True):
    session: int
    request: int
    answer: Answer


class Deliver(Effect, frozen=True):
    """Send `ranges` of a log; `lease` 0 and `deadline_ms` 0 mean that no acknowledgment is expected."""

    session: int
    subscription: int
    topic: str
    partition: int
    lane: int
    log: int
    lease: int
    attempt: int
    deadline_ms: int
    ranges: Intervals


class LeaseEnded(Effect, frozen=True):
    """`lease` is no longer held by the session, and not because the session settled it."""

    session: int
    lease: int


class Read(Effect, frozen=True):
    """Answer with `Loaded`: metadata of the batches from `from_offset` on, about `bytes_max` of them."""

    owner: int
    log: int
    from_offset: int
    bytes_max: int
    keys: bool = False
    """With the hashes of their keys."""


class Copy(Effect, frozen=True):
    """Answer with `Copied`: the record at `offset`, alone in a new batch, with these headers added."""

    ticket: int
    log: int
    offset: int
    headers: tuple[tuple[str, str], ...]


class Pick(Effect, frozen=True):
    """Answer with `Picked`: the stored batch at `base` of a log, as it is."""

    ticket: int
    log: int
    base: int


class Find(Effect, frozen=True):
    """Answer with `Found`: the first offset of a log that arrived at or after `arrival_ms`."""

    ticket: int
    log: int
    arrival_ms: int


class Hurry(Effect, frozen=True):
    """Somebody waits for this step's records although they could linger: commit without delay."""


class Revoke(Effect, frozen=True):
    """A member is to give up partitions, each a topic and its number; it answers by joining again."""

    session: int
    group: str
    generation: int
    partitions: tuple[tuple[str, int], ...]


class Assign(Effect, frozen=True):
    """All the partitions that a member has from now on."""

    session: int
    group: str
    generation: int
    partitions: tuple[tuple[str, int], ...]


class Overtaken(Effect, frozen=True):
    """A subscription without a group fell so far behind that `first..last` of a log were skipped for it."""

    session: int
    subscription: int
    topic: str
    partition: int
    lane: int
    first: int
    last: int


class CloseSession(Effect, frozen=True):
    session: int
    reason: str


AnyEffect = (
    Reply | Deliver | LeaseEnded | Read | Copy | Pick | Find | Hurry | CloseSession | Revoke | Assign | Overtaken
)
