"""The broker's state: immutable, keyed by ints, split into what is durable and what ends with a session.

Promises  `Durable` is exactly what `fold(evolve, checkpoint, journal)` gives; `Live` can be made anew from it
          (`awaken`), and everything in it (sessions, leases, retries, tails) is lost at a crash on purpose.
Never     iterated by hash order: `*_by_name` maps are for look-ups alone.
"""

from __future__ import annotations

from immutables import Map
from msgspec import Struct

from dovetail.core.cursor import Cursor
from dovetail.core.effects import Reply
from dovetail.core.intervals import Intervals
from dovetail.core.names import Trie
from dovetail.core.records import TopicConfig
from dovetail.core.stories import Stories
from dovetail.core.timers import Wheel

TAIL_BATCHES_MAX = 128
"""Batches per log whose metadata stays in memory; what is older is asked for by `Read`."""


class Topic(Struct, frozen=True, gc=False):
    id: int
    name: str
    partitions: int
    lanes: int
    first_log: int
    config: TopicConfig
    automatic: bool
    created_ms: int

    @property
    def log_count(self) -> int:
        """How many logs it has: a partition has one, or one per lane."""
        return self.partitions * max(1, self.lanes)


class Log(Struct, frozen=True, gc=False):
    """One topic's partition (and lane): `start..end` are the offsets that exist, `end` excluded."""

    id: int
    topic: int
    partition: int
    lane: int
    start: int
    end: int
    appended_bytes: int = 0


class Group(Struct, frozen=True, gc=False):
    id: int
    name: str
    mode: str
    strategy: str
    patterns: tuple[str, ...]
    generation: int
    changed_ms: int
    member_count: int = 0
    shares: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """The plan of a partitioned group: every member in order, with its slots (partitions, by their first log)."""


class SentBatch(Struct, frozen=True, gc=False, array_like=True):
    """A batch of an idempotent producer: its sequence numbers, and where it was appended."""

    sequence: int
    count: int
    log: int
    base: int


class Producer(Struct, frozen=True, gc=False, array_like=True):
    """What is remembered of an idempotent producer in one log."""

    epoch: int
    recent: tuple[SentBatch, ...]
    touch: int
    """When it was heard of last, counted in batches of such producers."""
    stored: int = 0
    """How many sequence numbers of this epoch, up to the newest, were appended one after the other."""


class MovedBatches(Struct, frozen=True, gc=False):
    """Which batches of a delay log have moved to the logs they were meant for."""

    bases: Map[int, None] = Map()
    messages: int = 0


class Replay(Struct, frozen=True, gc=False):
    """A job that replays dead letters: `items[done:]` are still to come."""

    id: int
    log: int
    items: tuple[tuple[int, str, int], ...]
    rate: int
    pause_lag: int
    pause_deaths: int
    dead_end: int
    """How many messages of the topics it goes to had died when it began, or was resumed."""
    started_ms: int
    done: int = 0
    state: int = 0
    reason: str = ""


class Durable(Struct, frozen=True, gc=False):
    """What survives a crash."""

    lsn: int = 0
    incarnation: int = 0
    wall_ms: int = 0
    next_topic: int = 1
    next_log: int = 1
    next_group: int = 1
    topics: Map[int, Topic] = Map()
    topics_by_name: Map[str, int] = Map()
    retired_by_name: Map[str, tuple[int, ...]] = Map()
    logs: Map[int, Log] = Map()
    groups: Map[int, Group] = Map()
    groups_by_name: Map[str, int] = Map()
    cursors: Map[tuple[int, int], Cursor] = Map()
    producers: Map[tuple[int, int], Producer] = Map()
    """(log, producer id) to what is remembered of it."""
    producer_touches: Map[int, tuple[int, int]] = Map()
    """`Producer.touch` to its key, so that the one heard of longest ago is found."""
    next_touch: int = 1
    oldest_touch: int = 1
    moved: Map[int, MovedBatches] = Map()
    """Delay log to what of it has moved."""
    stories: Map[tuple[int, int], Stories] = Map()
    """(group, log) to how attempts at unsettled messages failed."""
    replays: Map[int, Replay] = Map()
    next_replay: int = 1
    removed: Map[int, Intervals] = Map()
    """Log of dead letters to the offsets that were replayed or purged."""


class BatchMeta(Struct, frozen=True, gc=False):
    """What the core knows of a stored batch."""

    base: int
    last: int
    size_bytes: int
    expires_at_ms: int
    flags: int
    deliver_at_ms: int = 0
    keys: tuple[int, ...] = ()
    """If they were asked for: a hash of the key at each offset, `NO_KEY` where there is none."""


class Tail(Struct, frozen=True, gc=False):
    """A log's volatile part: how far it is stored, and its newest batches' metadata, oldest first."""

    stored: int
    batches: tuple[BatchMeta, ...] = ()


class Member(Struct, frozen=True, gc=False):
    """A session's place in a group; one that a SUBSCRIBE made goes with its last subscription."""

    group: int
    name: str
    implicit: bool
    returned_by_ms: int = 0
    """It took its place over from another connection: what it had waits this long for it to subscribe again."""


class Session(Struct, frozen=True, gc=False):
    id: int
    name: str
    seen_ms: int
    subscriptions: tuple[int, ...] = ()
    members: tuple[Member, ...] = ()


class Subscription(Struct, frozen=True, gc=False):
    id: int
    session: int
    owner: int
    member: str
    pattern: str
    credit_max: int
    in_flight: int
    auto_ack: bool
    leases: Map[int, None] = Map()


class Lease(Struct, frozen=True, gc=False):
    """A delivery under way: the `ranges` of one log that one subscription holds until `deadline_ms`."""

    id: int
    owner: int
    log: int
    ranges: Intervals
    subscription: int
    member: str
    attempt: int
    granted_ms: int
    deadline_ms: int
    expires_at_ms: int
    generation: int = 0
    keys: tuple[int, ...] = ()
    """In a key-ordered group: the hashes of the keys in it, which stay with its member until it ends."""


class Sample(Struct, frozen=True, gc=False):
    """One outcome of a member: when it came, how long it took, how long its lease allowed, whether it was a failure."""

    at_ms: int
    took_ms: int
    allowed_ms: int
    failed: bool


class Conduct(Struct, frozen=True, gc=False):
    """A member's latest outcomes, oldest first, and their sums."""

    samples: tuple[Sample, ...] = ()
    failures: int = 0
    took_ms: int = 0
    allowed_ms: int = 0


class Tenure(Struct, frozen=True, gc=False):
    """A member of a partitioned group has a slot since generation `since`; asked back, it answers until then."""

    member: str
    since: int
    revoke_by_ms: int = 0


class Gathering(Struct, frozen=True, gc=False):
    """A rebalance that waits for a burst of changes to end."""

    begun_ms: int
    last_ms: int


class Retry(Struct, frozen=True, gc=False):
    """A range that waits for another try, from `due_ms` on, better not at member `avoid`."""

    due_ms: int
    first: int
    last: int
    avoid: str
    expires_at_ms: int
    keys: tuple[int, ...] = ()
    """In a key-ordered group: the hashes of its keys, or more."""


class Progress(Struct, frozen=True, gc=False):
    """A cursor's volatile part: where fresh reading goes on, and what waits for another try."""

    next: int
    retries: tuple[Retry, ...] = ()
    window: tuple[BatchMeta, ...] = ()
    """Metadata of older batches, as the last `Loaded` gave it."""
    reading: bool = False
    asked: int = 0
    """The offset that the `Read` under way began at."""
    waiting: bool = False
    """In its owner's queue for credit."""
    era: int = 0
    """Counts seeks: what was under way to the dead letters in an earlier era is not wanted any more."""
    dying: int = 0
    """Messages that are under way to the dead letters."""


class Queue(Struct, frozen=True, gc=False):
    """A first-in first-out queue of log ids as a persistent map."""

    items: Map[int, int] = Map()
    head: int = 0
    tail: int = 0


class Dying(Struct, frozen=True, gc=False):
    """An offset on its way to the dead letters: its copy was asked for."""

    owner: int
    log: int
    offset: int
    reason: int
    attempt: int
    era: int


class Replaying(Struct, frozen=True, gc=False):
    """An entry of a job whose copy was asked for: the place in its plan."""

    replay: int
    place: int


class Moving(Struct, frozen=True, gc=False):
    """A delayed batch that is due: the shell was asked for it."""

    log: int
    base: int


class Flow(Struct, frozen=True, gc=False):
    """How a topic's consumers keep up, as it was found at `checked_ms`."""

    level: int = 0
    checked_ms: int = 0
    lag: int = 0
    load: int = 0
    """The lag in percent of the critical limit."""
    settled: tuple[tuple[int, int], ...] = ()
    """Group to how much of the topic it has settled ever."""
    drain: int = 0
    """Messages a second that the slowest group settles, smoothed."""
    tokens: int = 0


class Bucket(Struct, frozen=True, gc=False):
    """What is left of a client's quota, in thousandths."""

    messages: int
    bytes: int
    at_ms: int


class Waiting(Struct, frozen=True, gc=False):
    """What becomes visible when a frame is stored: ends of logs, and answers, some held back until a time."""

    ends: tuple[tuple[int, int], ...]
    replies: tuple[Reply, ...]
    later: tuple[tuple[int, Reply], ...] = ()


class Line(Struct, frozen=True, gc=False):
    """What waits for frames to be stored, by lsn; everything below `first` was let go."""

    waiting: Map[int, Waiting] = Map()
    first: int = 1


class Seeking(Struct, frozen=True, gc=False):
    """A seek by time that waits for its offset to be found."""

    session: int
    request: int
    group: int
    log: int
    is_last: bool = True
    """Of the lanes that one request moves: its answer goes with this one."""


class Poll(Struct, frozen=True, gc=False):
    """A FETCH that waits for something at `offset`."""

    id: int
    session: int
    request: int
    offset: int
    bytes_max: int


class Live(Struct, frozen=True, gc=False):
    """What ends with a session or the process."""

    topic_trie: Trie = Trie()
    group_trie: Trie = Trie()
    subscription_trie: Trie = Trie()
    tails: Map[int, Tail] = Map()
    readers: Map[int, tuple[int, ...]] = Map()
    """Log id to the owners that read it, in order."""
    routes: Map[tuple[int, int], tuple[int, ...]] = Map()
    """(owner, topic) to subscriptions, one per member, in order of member id."""
    teams: Map[int, tuple[int, ...]] = Map()
    """Owner to all its subscriptions, oldest first."""
    sessions: Map[int, Session] = Map()
    subscriptions: Map[int, Subscription] = Map()
    members_by_name: Map[str, int] = Map()
    """"group/member" to the session that holds it."""
    rosters: Map[int, Map[int, str]] = Map()
    """Group to its members: session to member id."""
    tenures: Map[int, Map[int, Tenure]] = Map()
    """Partitioned group to who has which slot."""
    gatherings: Map[int, Gathering] = Map()
    """Partitioned groups whose plan is about to be made anew."""
    conduct: Map[tuple[int, int], Conduct] = Map()
    """(group, session) to how that member does."""
    progress: Map[tuple[int, int], Progress] = Map()
    ephemeral: Map[tuple[int, int], Cursor] = Map()
    leases: Map[int, Lease] = Map()
    dying: Map[int, Dying] = Map()
    queues: Map[int, Queue] = Map()
    served_last: Map[int, str] = Map()
    """Owner to the member that was served last: the ring goes on after it."""
    polls: Map[int, tuple[Poll, ...]] = Map()
    """Log id to who waits for its next message."""
    seeking: Map[int, Seeking] = Map()
    replaying: Map[int, Replaying] = Map()
    replay_asked: Map[int, int] = Map()
    """Job to the place in its plan up to which copies were asked for."""
    replay_due: Map[int, int] = Map()
    """Job to when it may ask for more, however often it is woken."""
    near: Map[int, None] = Map()
    """Delay logs whose hour is near: what waits in them has its alarm."""
    moving: Map[int, Moving] = Map()
    moving_by_place: Map[tuple[int, int], int] = Map()
    lane_turns: Map[tuple[int, int], tuple[int, int]] = Map()
    """(owner, first lane's log) to the lane whose turn it is and how many messages are left of it."""
    flows: Map[int, Flow] = Map()
    buckets: Map[int, Bucket] = Map()
    """Session to what is left of its quota."""
    held: Map[int, Reply] = Map()
    """Answers that are held back."""
    marks: Map[int, tuple[tuple[int, int], ...]] = Map()
    """Log id to `(offset, arrival)` now and then, oldest first."""
    read_only: str = ""
    """Why nothing may be published; empty while it may."""
    throttled: str = ""
    """Why publishing is slowed for everybody; empty while it is not."""
    timers: Wheel = Wheel()
    alarms: Wheel = Wheel()
    """Timers by the wall clock."""
    unsynced: Line = Line()
    unwritten: Line = Line()
    """Like `unsynced`, for topics whose sync policy asks for a write alone."""
    stored_lsn: int = 0
    next_subscription: int = 1
    next_lease: int = 1
    next_ticket: int = 1
    next_poll: int = 1
    next_spread: int = 0
    """Counts publishes that left the choice of a partition to the broker."""


class TopicRule(Struct, frozen=True, gc=False):
    """Fields of `TopicConfig` that new topics get in the place of the defaults, where their names match a pattern."""

    pattern: str
    changes: tuple[tuple[str, bool | int], ...]


class Settings(Struct, frozen=True, gc=False):
    """What an operator may change about the whole broker; each default has its reason in `docs/settings.md`."""

    topic_defaults: TopicConfig = TopicConfig()
    auto_create: bool = True
    partitions: int = 1
    max_inflight: int = 100
    session_timeout_ms: int = 30_000
    settle_linger_ms: int = 50
    quiet_ms: int = 100
    rebalance_answer_ms: int = 30_000
    group_expiry_ms: int = 7 * 86_400_000
    ephemeral_lag_max: int = 100_000
    message_bytes_max: int = 1 << 20
    deliver_bytes_max: int = 1 << 20
    topics_max: int = 10_000
    partitions_max: int = 1_000
    patterns_max: int = 1_000
    dead_letter_retention_ms: int = 14 * 86_400_000
    topic_idle_ms: int = 86_400_000
    quota_messages: int = 0
    """Messages a second that one client may publish; 0: any number."""
    quota_bytes: int = 0
    topic_rules: tuple[TopicRule, ...] = ()
    """All that match a new topic's name count, a later one over an earlier."""


class State(Struct, frozen=True, gc=False):
    durable: Durable = Durable()
    live: Live = Live()
    settings: Settings = Settings()
