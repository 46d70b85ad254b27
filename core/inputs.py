"""What the world says to the core: everything that `step` reacts to.

Promises  plain frozen data: the same inputs give the same decisions, so a recorded run can be run again.
Never     holds payload bytes: a `Handle` stands for what the shell keeps.
"""

from __future__ import annotations

from msgspec import Struct

from dovetail.core.codes import Acks
from dovetail.core.records import TopicConfig
from dovetail.core.state import BatchMeta, Settings


class Input(Struct, frozen=True, gc=False, tag=True):
    """Base of all inputs."""


class Start(Input, frozen=True):
    """The process started: the first input after recovery."""


class SessionOpened(Input, frozen=True):
    session: int
    name: str


class SessionClosed(Input, frozen=True):
    session: int


class Seen(Input, frozen=True):
    """A sign of life that asks for nothing."""

    session: int


class Ask(Struct, frozen=True, gc=False):
    """Who waits for the confirmation of which part of a batch: `count` records from `index` on."""

    session: int
    request: int
    index: int
    count: int


class Publish(Input, frozen=True):
    """A checked batch in the shell's keeping under `handle`."""

    topic: str
    partition: int
    handle: int
    count: int
    size_bytes: int
    asks: tuple[Ask, ...]
    acks: int = Acks.STORED
    delay_ms: int = 0
    ttl_ms: int = 0
    flags: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    priority: int = 0


class Subscribe(Input, frozen=True):
    session: int
    request: int
    pattern: str
    group: str
    max_inflight: int
    auto_ack: bool


class Unsubscribe(Input, frozen=True):
    session: int
    request: int
    subscription: int


class JoinGroup(Input, frozen=True):
    session: int
    request: int
    group: str
    member: str
    strategy: str


class LeaveGroup(Input, frozen=True):
    session: int
    request: int
    group: str
    member: str


class Heartbeat(Input, frozen=True):
    session: int
    request: int
    member: str


class ConfigureGroup(Input, frozen=True):
    """An operator chooses a group's strategy, and with it its mode."""

    session: int
    request: int
    group: str
    strategy: str


class RebalanceGroup(Input, frozen=True):
    """An operator has a partitioned group's plan made anew."""

    session: int
    request: int
    group: str


class RemoveMember(Input, frozen=True):
    """An operator takes a member out of a group."""

    session: int
    request: int
    group: str
    member: str


class SetCredit(Input, frozen=True):
    """So many messages at once; 0 is the broker's default, less than that is none for now."""

    session: int
    request: int
    subscription: int
    max_inflight: int


class SettleItem(Struct, frozen=True, gc=False):
    """One thing said about `first..last` of a lease."""

    lease: int
    action: int
    first: int
    last: int
    reason: int = 0
    delay_ms: int = 0
    error: str = ""


class Settle(Input, frozen=True):
    session: int
    request: int
    items: tuple[SettleItem, ...]
    wait: bool = False


class Release(Input, frozen=True):
    """A session gives `first..last` of a lease back: nobody has looked at it. No answer."""

    session: int
    lease: int
    first: int
    last: int


class ListTopics(Input, frozen=True):
    session: int
    request: int
    pattern: str


class CreateTopic(Input, frozen=True):
    session: int
    request: int
    topic: str
    partitions: int
    lanes: int
    config: TopicConfig


class ConfigureTopic(Input, frozen=True):
    """An operator gives a topic other settings."""

    session: int
    request: int
    topic: str
    config: TopicConfig


class DeleteTopic(Input, frozen=True):
    session: int
    request: int
    topic: str
    force: bool


class Fetch(Input, frozen=True):
    """Read a log without a group, waiting up to `wait_ms` for something at `offset`."""

    session: int
    request: int
    topic: str
    partition: int
    offset: int
    bytes_max: int
    wait_ms: int = 0
    lane: int = 0
    """1 to 5 where the topic has lanes; 0 is the first."""


class Commit(Input, frozen=True):
    """Everything of a log below `offset` is done, says a group's member."""

    session: int
    request: int
    group: str
    topic: str
    partition: int
    offset: int
    lane: int = 0
    """1 to 5 where the topic has lanes, else 0."""


class Seek(Input, frozen=True):
    """Move a group's place in a log, back or ahead."""

    session: int
    request: int
    group: str
    topic: str
    partition: int
    whence: int
    value: int = 0
    lane: int = 0
    """1 to 5 where the topic has lanes; 0 is every lane, for all but an offset."""


class Found(Input, frozen=True):
    """The answer to `Find`."""

    ticket: int
    offset: int


class StartReplay(Input, frozen=True):
    """Replay dead letters of `topic`: each item is `(offset, target topic, target partition)`, in this order."""

    session: int
    request: int
    topic: str
    items: tuple[tuple[int, str, int], ...]
    rate: int = 0
    """Messages a second; 0: as fast as it goes."""
    pause_lag: int = 0
    pause_deaths: int = 0


class ChangeReplay(Input, frozen=True):
    session: int
    request: int
    replay: int
    state: int


class RemoveDead(Input, frozen=True):
    """Purge dead letters of `topic`."""

    session: int
    request: int
    topic: str
    ranges: tuple[tuple[int, int], ...]


class ChangeSettings(Input, frozen=True):
    """An operator changes settings of the whole broker; they last as long as the process."""

    session: int
    request: int
    settings: Settings


class SetReadOnly(Input, frozen=True):
    """Nothing may be published, for this reason; an empty one ends that."""

    reason: str


class SetThrottle(Input, frozen=True):
    """Publishing is slowed for everybody, for this reason; an empty one ends that."""

    reason: str


class TrimLog(Input, frozen=True):
    """Storage proposes that everything below `start` may go; the core decides how far (I-RETAIN)."""

    log: int
    start: int
    hard_start: int = 0
    """Below this everything goes, whoever still waits for it."""


class Tidy(Input, frozen=True):
    """Collect topics that were made on first use and have been idle and empty for long."""


class Stored(Input, frozen=True):
    """All frames up to `lsn` are written and synced."""

    lsn: int


class Written(Input, frozen=True):
    """All frames up to `lsn` are written: enough for topics whose sync policy asks for no more."""

    lsn: int


class Sent(Input, frozen=True):
    """`count` messages that need no acknowledgment left for the network: their credit is free again."""

    subscription: int
    count: int


class Unsent(Input, frozen=True):
    """A lease's messages still wait to be read or sent: if its deadline has passed, nobody has seen them."""

    lease: int


class Loaded(Input, frozen=True):
    """The answer to `Read`: metadata of stored batches, in order, from the asked offset on."""

    owner: int
    log: int
    batches: tuple[BatchMeta, ...]


class Picked(Input, frozen=True):
    """The answer to `Pick`: a stored batch under `handle`, as its entry describes it; size 0: it is gone."""

    ticket: int
    handle: int
    size_bytes: int
    count: int
    target: int
    expires_at_ms: int
    flags: int


class Copied(Input, frozen=True):
    """The answer to `Copy`: a new batch of one record under `handle`; size 0 means the original is gone."""

    ticket: int
    handle: int
    size_bytes: int


AnyInput = (
    Start
    | SessionOpened
    | SessionClosed
    | Seen
    | Publish
    | Subscribe
    | Unsubscribe
    | JoinGroup
    | LeaveGroup
    | Heartbeat
    | ConfigureGroup
    | RebalanceGroup
    | RemoveMember
    | SetCredit
    | Settle
    | Release
    | ListTopics
    | CreateTopic
    | ConfigureTopic
    | DeleteTopic
    | Fetch
    | Commit
    | Seek
    | Found
    | StartReplay
    | ChangeReplay
    | RemoveDead
    | ChangeSettings
    | SetReadOnly
    | SetThrottle
    | TrimLog
    | Tidy
    | Stored
    | Written
    | Sent
    | Unsent
    | Loaded
    | Copied
    | Picked
)
