"""The numbers that core and wire share: statuses, actions, outcomes.

Promises  each number is what `spec/protocol.md` says; none is ever given another meaning.
Never     holds logic.
"""

from enum import IntEnum


class Status(IntEnum):
    """The first byte of an answer; 1 and 2 mean different things for different commands."""

    OK = 0
    NOT_FOUND = 1
    INVALID_PATTERN = 1
    QUOTA = 2
    GROUP_ERROR = 2
    LEASE_LOST = 2
    INVALID = 3
    UNAUTHORIZED = 4
    FENCED = 5
    READ_ONLY = 7
    EXISTS = 8
    BUSY = 9
    INTERNAL = 10
    TOO_LARGE = 11


class NackReason(IntEnum):
    """Why an attempt failed, says a consumer; others count as unspecified."""

    UNSPECIFIED = 0
    PROCESSING_ERROR = 1
    POISON = 2
    TIMEOUT = 3


class Outcome(IntEnum):
    """What became of a range that was settled."""

    SETTLED = 0
    REQUEUED = 1
    DEAD_LETTERED = 2
    DROPPED = 3


class Acks(IntEnum):
    """What a publisher waits for."""

    NONE = 0
    STORED = 1
    ALL = 2


class Priority(IntEnum):
    """A message's lane in a topic that has them; 0 leaves it to the broker, which takes it as normal."""

    DEFAULT = 0
    CRITICAL = 1
    HIGH = 2
    NORMAL = 3
    LOW = 4
    BACKGROUND = 5


class Wait(IntEnum):
    """What the answer to a settle waits for."""

    APPLIED = 0
    DURABLE = 1


class SettleAction(IntEnum):
    ACK = 1
    NACK = 2
    REJECT = 3
    EXTEND = 4


class Whence(IntEnum):
    """Where a seek goes."""

    OFFSET = 0
    EARLIEST = 1
    LATEST = 2
    TIME = 3
