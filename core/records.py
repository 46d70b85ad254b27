"""What the broker decided: one frozen record per decision, the only thing that changes durable state.

Promises  a record says everything `evolve` needs; its wire form is a msgpack array `[tag, fields…]`
          (`spec/formats.md`), so fields are only ever appended, with defaults.
Never     holds a payload: `BatchAppended` is journalled as the entry that carries the batch.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from msgspec import Struct

NO_TIME = 0
"""A deliver_at or expires_at that was not asked for."""


class Record(Struct, frozen=True, array_like=True, gc=False):
    """Base of all records: encoded as a msgpack array whose first element is the tag."""


class SyncPolicy(IntEnum):
    """Which lsn a confirm waits for: the synced one, or the written one."""

    ALWAYS = 0
    INTERVAL = 1
    OS = 2


class TopicConfig(Struct, frozen=True, array_like=True, gc=False):
    """One topic's settings; 0 means "no limit" wherever a limit is meant."""

    lease_ms: int = 30_000
    lease_max_ms: int = 3_600_000
    max_retries: int = 3
    retention_ms: int = 7 * 86_400_000
    retention_bytes: int = 0
    retention_count: int = 0
    retain_on_ack: bool = True
    bytes_max_hard: int = 0
    compact: bool = False
    sync: SyncPolicy = SyncPolicy.ALWAYS
    ttl_ms: int = 0
    dead_letters: bool = True
    expired_to_dead_letters: bool = False
    lag_warning: int = 100_000
    lag_critical: int = 0
    lag_critical_ms: int = 0
    poison_members: int = 2
    """So many members that call a message poison send it to the dead letters at once."""
    poison_timeouts: int = 0
    poison_failures: int = 0
    poison_window_ms: int = 0


class EntryFlag(IntFlag):
    """Bits of an entry's flags byte."""

    NO_ACK = 1
    """Settled when sent: its publisher asked for no acknowledgments."""


class FailReason(IntEnum):
    """Why an attempt failed; 1 to 3 are NACK's reasons on the wire."""

    UNSPECIFIED = 0
    PROCESSING = 1
    POISON = 2
    TIMEOUT = 3
    REJECTED = 4
    EXPIRED = 5


class BrokerStarted(Record, frozen=True, tag=1):
    incarnation: int
    at_ms: int


class TopicCreated(Record, frozen=True, tag=2):
    topic: int
    name: str
    partitions: int
    lanes: int
    first_log: int
    starts: tuple[int, ...]
    config: TopicConfig
    automatic: bool
    at_ms: int


class TopicConfigured(Record, frozen=True, tag=3):
    topic: int
    config: TopicConfig


class TopicDeleted(Record, frozen=True, tag=4):
    topic: int


class BatchAppended(Record, frozen=True, tag=5):
    log: int
    base: int
    count: int
    arrival_ms: int
    deliver_at_ms: int
    expires_at_ms: int
    flags: int
    size_bytes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    handle: int
    other_log: int = 0
    """For a delayed batch where it goes when it is due; for one that was moved the log it waited in; else 0."""
    other_base: int = 0
    """For a batch that was moved its base offset in the log it waited in."""


class LogTrimmed(Record, frozen=True, tag=6):
    """Everything below `start` is gone: retention, compaction's tail, or an operator."""

    log: int
    start: int


class GroupCreated(Record, frozen=True, tag=7):
    group: int
    name: str
    mode: str
    strategy: str
    at_ms: int


class GroupDeleted(Record, frozen=True, tag=8):
    group: int


class PatternAdded(Record, frozen=True, tag=9):
    group: int
    pattern: str


class PatternRemoved(Record, frozen=True, tag=10):
    group: int
    pattern: str


class MemberJoined(Record, frozen=True, tag=11):
    group: int
    member: str
    generation: int
    at_ms: int


class MemberLeft(Record, frozen=True, tag=12):
    group: int
    member: str
    generation: int
    at_ms: int


class CursorOpened(Record, frozen=True, tag=13):
    group: int
    log: int
    floor: int


class Settled(Record, frozen=True, tag=14):
    group: int
    log: int
    first: int
    last: int


class AttemptFailed(Record, frozen=True, tag=15):
    """The range's attempt number `attempt` ended without success."""

    group: int
    log: int
    first: int
    last: int
    attempt: int
    reason: int
    member: str = ""
    delivered_ms: int = 0
    ended_ms: int = 0
    error: str = ""


class DeadLettered(Record, frozen=True, tag=16):
    """Settles one offset of the original; its copy is the entry appended in the same frame."""

    group: int
    log: int
    offset: int
    dead_log: int
    dead_offset: int
    reason: int


class Expired(Record, frozen=True, tag=17):
    """Settles a range that nobody will get any more: its time to live ended, or retention took it."""

    group: int
    log: int
    first: int
    last: int


class FloorReset(Record, frozen=True, tag=18):
    """An operator's or member's seek: the only way a floor goes back."""

    group: int
    log: int
    floor: int


class Rebalanced(Record, frozen=True, tag=19):
    """A partitioned group's new plan: every member with its slots (partitions, by their first log)."""

    group: int
    generation: int
    shares: tuple[tuple[str, tuple[int, ...]], ...]
    at_ms: int


class GroupConfigured(Record, frozen=True, tag=20):
    """An operator's choice for a group without members."""

    group: int
    mode: str
    strategy: str


class Moved(Record, frozen=True, tag=30):
    """A delayed batch was appended where it belongs, in the same frame; its place here is done with."""

    log: int
    base: int
    count: int


class ReplayState(IntEnum):
    """How a replay of dead letters stands."""

    RUNNING = 0
    PAUSED = 1
    DONE = 2
    ABORTED = 3


class ReplayStarted(Record, frozen=True, tag=31):
    replay: int
    log: int
    items: tuple[tuple[int, str, int], ...]
    rate: int
    pause_lag: int
    pause_deaths: int
    dead_end: int
    """How many messages of the topics it goes to had died before."""
    at_ms: int


class Replayed(Record, frozen=True, tag=32):
    """The job's next entry was appended where it goes, in the same frame, and leaves the dead letters."""

    replay: int
    log: int
    offset: int


class ReplayChanged(Record, frozen=True, tag=33):
    replay: int
    state: int
    reason: str


class DeadRemoved(Record, frozen=True, tag=34):
    """Dead letters that an operator purged."""

    log: int
    first: int
    last: int


AnyRecord = (
    BrokerStarted
    | TopicCreated
    | TopicConfigured
    | TopicDeleted
    | BatchAppended
    | LogTrimmed
    | GroupCreated
    | GroupDeleted
    | PatternAdded
    | PatternRemoved
    | MemberJoined
    | MemberLeft
    | CursorOpened
    | Settled
    | AttemptFailed
    | DeadLettered
    | Expired
    | FloorReset
    | Rebalanced
    | GroupConfigured
    | Moved
    | ReplayStarted
    | Replayed
    | ReplayChanged
    | DeadRemoved
)

LAZY = (Settled, AttemptFailed, Expired)
"""Records that may wait for the next commit: nobody was promised them durable (`settle_linger`)."""
