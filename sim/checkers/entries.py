"""What the books hold: connections, subscriptions, leases, logs, and each offset as each group knows it.

Promises  an entry says what passed at the broker's socket, and nothing that was concluded from the broker's own state.
Never     judges.
"""

from __future__ import annotations

from msgspec import Struct

from dovetail.core import wire
from dovetail.core.frames import FrameDecoder

ROUNDING_US = 2_000
"""The broker's two clocks round to milliseconds, each for itself."""
LogKey = tuple[str, int, int]
"""Topic, partition and lane; lane 0 where the topic has none, else from 1."""


class Hold:
    """One delivery under a lease, as the wire showed it."""

    __slots__ = ("attempt", "given_up", "granted_us", "lease", "life", "line", "log", "open", "sub", "until_us")

    def __init__(
        self, line: Line, sub: Sub, log: LogKey, lease: int, attempt: int, granted_us: int, until_us: int
    ) -> None:
        self.line = line
        self.sub = sub
        self.log = log
        self.lease = lease
        self.attempt = attempt
        self.granted_us = granted_us
        self.until_us = until_us
        """The deadline, as exactly as the wire shows it: see `is_due`."""
        self.open = 0
        self.life = line.life
        self.given_up = False
        """Its partition was revoked, and the member has answered that."""

    def is_due(self, now_us: int) -> bool:
        """Whether the lease may have timed out."""
        return self.until_us <= now_us + ROUNDING_US


class Message:
    """One offset of a log as one group knows it."""

    __slots__ = (
        "acked_life",
        "acked_us",
        "called_poison",
        "dead",
        "excused",
        "failures",
        "for_good",
        "hold",
        "not_before_life",
        "not_before_us",
        "over",
        "perhaps",
        "poisoned",
        "rejected",
        "skipped",
        "told",
    )

    def __init__(self) -> None:
        self.hold: Hold | None = None
        self.over = True
        """The last hold was ended by a settle, or by a command."""
        self.acked_us = -1
        self.acked_life = 0
        self.for_good = False
        """The acknowledgment was said to be durable."""
        self.perhaps = False
        """It was acknowledged, and the answer is not known."""
        self.failures = 0
        self.told: tuple[tuple[int, int], ...] = ()
        """When a nack of it was taken, each with the broker's life."""
        self.not_before_us = -1
        self.not_before_life = 0
        """When it may be tried again at the earliest, in that life of the broker."""
        self.rejected = False
        self.called_poison: set[int] = set()
        """The connections on which it was called poison, whatever the broker said."""
        self.poisoned: dict[str, tuple[int, int]] = {}
        """Who was heard calling it poison, in which life of the broker and at which attempt."""
        self.dead = 0
        self.skipped = False
        self.excused = False

    @property
    def is_settled(self) -> bool:
        """Whether its group is done with it, one way or another."""
        return self.acked_us >= 0 or self.perhaps or self.dead > 0 or self.skipped

    def is_held(self, hold: Hold) -> bool:
        """Whether it is under this lease, and that lease is live."""
        over = self.over or hold.line.closed_us >= 0 or hold.sub.over or hold.given_up
        return self.hold is hold and not over


class Reader:
    """One group's (or lone session's) view of one log."""

    __slots__ = ("keyed", "messages", "seeking", "skipped_below", "sought_us")

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}
        self.seeking = 0
        self.sought_us = -1
        self.skipped_below = 0
        """A seek went here: nobody will get what is before."""
        self.keyed: dict[bytes, set[int]] = {}
        """In a key-ordered group: the offsets of each key that somebody may hold."""

    def at(self, offset: int) -> Message:
        found = self.messages.get(offset)
        if found is None:
            found = self.messages[offset] = Message()
        return found


class Sub:
    """A subscription on a connection."""

    __slots__ = (
        "auto_ack",
        "credit",
        "following",
        "fresh",
        "fresh_us",
        "group",
        "holds",
        "jumps",
        "line",
        "over",
        "pattern",
        "since_us",
    )

    def __init__(self, line: Line, group: str, pattern: str, credit: int, auto_ack: bool, since_us: int = 0) -> None:
        self.line = line
        self.group = group
        self.pattern = pattern
        self.credit = credit
        self.auto_ack = auto_ack
        self.since_us = since_us
        self.following: dict[LogKey, int] = {}
        """What comes next in each log, for a subscriber without a group."""
        self.jumps: dict[LogKey, list[tuple[int, int]]] = {}
        """What it was told that it will not get."""
        self.holds: dict[int, Hold] = {}
        self.fresh: dict[LogKey, int] = {}
        self.fresh_us: dict[LogKey, int] = {}
        self.over = False

    @property
    def is_alone(self) -> bool:
        """Whether it is in no group, and what it gets is settled when it is sent."""
        return self.auto_ack and self.group.startswith("~")

    def end(self) -> None:
        """It is over, and so is every lease that it gave."""
        self.over = True
        self.holds.clear()


class Asked(Struct, frozen=True):
    """A request that waits for its answer."""

    request: wire.Request
    at_us: int
    held: tuple[int, ...]
    """What was known when it came: for each item of a settle whether all of it was held, for a read how far the log
    was confirmed."""
    seq: int
    """The last row of the trace before it."""
    level: int = 0
    """How much the broker did when it came, and after how many changes of that."""
    level_changes: int = 0


class Line:
    """A connection: both directions decoded, requests that wait for their answers."""

    __slots__ = (
        "behind_until_us",
        "closed_us",
        "heard_us",
        "life",
        "name",
        "number",
        "pending",
        "reads",
        "revoked",
        "subs",
        "turns",
        "writes",
    )

    def __init__(self, number: int, name: str, life: int) -> None:
        self.number = number
        self.name = name
        self.life = life
        self.reads = FrameDecoder()
        self.writes = FrameDecoder()
        self.pending: dict[int, Asked] = {}
        self.turns: list[Asked] = []
        self.subs: dict[str, Sub] = {}
        self.closed_us = -1
        self.heard_us = 0
        self.behind_until_us = -1
        """Until then its client reads what was sent longer ago than a lease lasts: see `Readers.may_hold_unsent`."""
        self.revoked: set[tuple[str, tuple[str, int]]] = set()
        """Partitions, by group, that the member was asked to give up."""

    def awaited(self, correlation: int | None) -> Asked | None:
        """The request that an answer is for: without correlations answers come in the order of requests."""
        if correlation is not None:
            return self.pending.pop(correlation, None)
        return self.turns.pop(0) if self.turns else None


class Log:
    """What is known to be in a log, and who was promised it."""

    __slots__ = (
        "arrived_us",
        "confirmed_end",
        "content",
        "doubtful",
        "excused",
        "gone_below",
        "gone_us",
        "numbers",
        "since_us",
        "verified",
    )

    def __init__(self) -> None:
        self.arrived_us: dict[int, int] = {}
        """When a batch came at the earliest, by its first offset."""
        self.content: dict[int, bytes] = {}
        self.doubtful: dict[int, bytes] = {}
        """What was seen here and may have been lost rightly: it is there unchanged, or other content took its place."""
        self.since_us: dict[int, int] = {}
        """When each offset was first seen, in a topic whose confirms do not wait for a sync."""
        self.gone_us = -1
        """When its topic was deleted, or may have been."""
        self.gone_below = 0
        """Offsets that went with the topic: nobody gets them any more."""
        self.excused: set[int] = set()
        """Offsets that are owed to nobody."""
        self.numbers: dict[int, int] = {}
        """What was last seen at each offset, as a number: what the trace says, whether it is right or not."""
        self.confirmed_end = 0
        self.verified: dict[int, bytes] = {}


def parse_id(text: str) -> tuple[LogKey, int]:
    """The log and the offset that a message's id names."""
    topic, place, offset = text.rsplit(":", 2)
    partition, _, lane = place.partition(".")
    return (topic, int(partition), int(lane) + 1 if lane else 0), int(offset)
