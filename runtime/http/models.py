"""The bodies and answers of the HTTP API, as data: the OpenAPI document and the checks are made of them.

Promises  field names are those of the specification; durations are texts like "30s" or numbers of seconds.
Never     holds logic beyond what a field means.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Duration = Annotated[str | int | float, Meta(description="A text such as 500ms, 30s, 1h30m, 7d; or seconds.")]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Small = Annotated[int, Meta(ge=0, le=1_000_000)]
Partition = Annotated[int, Meta(ge=0, le=65_535)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
PriorityName = Literal["critical", "high", "normal", "low", "background"]
SyncName = Literal["always", "interval", "os"]


class Body(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of what comes in."""


class View(Struct, frozen=True):
    """Base of what goes out."""


# Topics


class Retention(Body, frozen=True):
    """What is kept; 0 means no limit."""

    hours: Annotated[float, Meta(ge=0, le=1e9)] | UnsetType = UNSET
    bytes: Count | UnsetType = UNSET
    count: Count | UnsetType = UNSET


class TopicSettings(Body, frozen=True):
    """A topic's settings; what is left out stays as it is, or takes the broker's default."""

    retention: Retention | UnsetType = UNSET
    lease: Duration | UnsetType = UNSET
    lease_max: Duration | UnsetType = UNSET
    max_retries: Annotated[int, Meta(ge=0, le=1_000)] | UnsetType = UNSET
    retain_on_ack: bool | UnsetType = UNSET
    bytes_max_hard: Count | UnsetType = UNSET
    compact: bool | UnsetType = UNSET
    sync: SyncName | UnsetType = UNSET
    ttl: Duration | UnsetType = UNSET
    dead_letters: bool | UnsetType = UNSET
    expired_to_dead_letters: bool | UnsetType = UNSET
    lag_warning: Count | UnsetType = UNSET
    lag_critical: Count | UnsetType = UNSET
    lag_critical_time: Duration | UnsetType = UNSET


class NewTopic(TopicSettings, frozen=True, kw_only=True):
    """A topic to be made."""

    name: str
    partitions: Annotated[int, Meta(ge=1, le=65_536)] | UnsetType = UNSET
    lanes: bool = False


class RetentionView(View, frozen=True):
    hours: float
    bytes: int
    count: int


class TopicSettingsView(View, frozen=True):
    retention: RetentionView
    lease: str
    lease_max: str
    max_retries: int
    retain_on_ack: bool
    bytes_max_hard: int
    compact: bool
    sync: SyncName
    ttl: str
    dead_letters: bool
    expired_to_dead_letters: bool
    lag_warning: int
    lag_critical: int
    lag_critical_time: str


class LogView(View, frozen=True):
    """One partition (and lane): offsets `start` to `end`, `end` excluded, can be read."""

    partition: int
    start: int
    end: int
    lane: PriorityName | None = None


class CapacityView(View, frozen=True, omit_defaults=True):
    """How a topic's consumers keep up: `status` is normal, warning, critical (publishers are slowed) or overloaded
    (they are refused); `change` is messages a second that the lag grows by; `catch_up_seconds` is there while it
    shrinks."""

    status: str
    lag: int
    trend: str
    change: float
    catch_up_seconds: int | UnsetType = UNSET


class TopicView(View, frozen=True):
    name: str
    partitions: int
    lanes: bool
    created: int
    automatic: bool
    messages: int
    publish_rate: float
    deliver_rate: float
    capacity: CapacityView
    settings: TopicSettingsView
    logs: list[LogView]


class TopicRow(View, frozen=True):
    """A topic in a list."""

    name: str
    partitions: int
    lanes: bool
    messages: int
    publish_rate: float
    deliver_rate: float
    capacity: CapacityView


class TopicList(View, frozen=True, omit_defaults=True):
    topics: list[TopicRow]
    total: int
    next: str | None = None


class TopicQuery(Body, frozen=True):
    pattern: str = "#"
    contains: str = ""
    limit: Limit = 1_000
    after: str = ""


class DeleteQuery(Body, frozen=True):
    force: bool = False


class SubscriberView(View, frozen=True):
    subscription: int
    session: int
    client: str
    group: str
    member: str
    pattern: str
    max_inflight: int
    in_flight: int
    auto_ack: bool


class SubscriberList(View, frozen=True):
    subscribers: list[SubscriberView]


# Messages


class NewMessage(Body, frozen=True):
    """A message to be published: `value` in base64, or `text`."""

    value: str | None = None
    text: str | None = None
    key: str | None = None
    headers: dict[str, str] = {}
    delay: Duration = 0
    ttl: Duration = 0
    priority: PriorityName | None = None
    partition: Partition | None = None
    idempotency_key: Annotated[str, Meta(max_length=200)] = ""


class NewMessages(Body, frozen=True):
    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=10_000)]
    idempotency_key: Annotated[str, Meta(max_length=200)] = ""


class Published(View, frozen=True):
    message_id: str
    partition: int
    offset: int
    timestamp: int


class PublishedMany(View, frozen=True):
    messages: list[Published]


class MessageView(View, frozen=True, omit_defaults=True):
    """A stored message; `value` is base64. A polled one has a receipt too."""

    message_id: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str
    headers: dict[str, str]
    priority: PriorityName | None = None
    receipt: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    deadline: int | UnsetType = UNSET


class MessageList(View, frozen=True, omit_defaults=True):
    messages: list[MessageView]
    start: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    next: int | UnsetType = UNSET


class BrowseQuery(Body, frozen=True):
    """From an offset, or from a time: milliseconds since 1970, ISO 8601, or how long ago (5m)."""

    offset: Count | None = None
    since: str | None = None
    limit: Limit = 100
    partition: Partition = 0
    priority: PriorityName | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0


# Groups


class GroupView(View, frozen=True):
    name: str
    mode: str
    strategy: str
    state: Literal["empty", "rebalancing", "stable"]
    generation: int
    members: int
    patterns: list[str]
    lag: int
    in_flight: int
    retrying: int
    settle_rate: float


class GroupList(View, frozen=True):
    groups: list[GroupView]
    total: int


class GroupPatch(Body, frozen=True):
    """The strategy decides the mode: round-robin and least-loaded are shared, the others partitioned."""

    strategy: Literal["round-robin", "least-loaded", "range", "sticky", "cooperative-sticky", "partitioned-round-robin"]


class LagView(View, frozen=True):
    topic: str
    partition: int
    lane: PriorityName | None
    floor: int
    end: int
    lag: int
    lag_seconds: float
    member: str | None


class GroupLag(View, frozen=True):
    group: str
    lag: int
    partitions: list[LagView]


class PartitionName(View, frozen=True):
    topic: str
    partition: int


class MemberView(View, frozen=True):
    id: str
    session: int
    client: str
    address: str
    seen_seconds_ago: float
    health: Literal["healthy", "warning", "suspicious", "failed", "silent"]
    in_flight: int
    oldest_pending_seconds: float
    mean_processing_ms: float
    error_rate: float
    suggested_lease_ms: int | None
    """From two and a half times the mean, once enough is known; it is shown, not applied."""
    assignments: list[PartitionName]


class MemberList(View, frozen=True):
    group: str
    generation: int
    members: list[MemberView]


class PendingView(View, frozen=True):
    """A range under way (`leased`), or waiting for another try (`retrying`, due in `seconds`)."""

    topic: str
    partition: int
    first: int
    last: int
    state: Literal["leased", "retrying"]
    member: str
    attempt: int
    seconds: float


class PendingList(View, frozen=True):
    group: str
    total: int
    pending: list[PendingView]


class PendingQuery(Body, frozen=True):
    limit: Limit = 100


class Join(Body, frozen=True, rename={"consumer_id": "consumerId", "auto_ack": "autoAck"}):
    """To be a member of a group that reads `topics` (names or patterns)."""

    topics: Annotated[list[str], Meta(min_length=1, max_length=100)]
    consumer_id: str = ""
    strategy: str = ""
    auto_ack: bool = False


class Joined(View, frozen=True, rename={"member_id": "memberId"}):
    member_id: str
    generation: int
    assignments: list[PartitionName]


class Poll(Body, frozen=True):
    """Up to `max` messages, waiting up to `timeout` for the first; the same `seq` again gives the same messages."""

    member: str
    max: Limit = 10
    timeout: Duration = 0
    seq: Count | None = None


class Polled(View, frozen=True):
    messages: list[MessageView]
    generation: int
    assignments: list[PartitionName]


class OffsetSet(Body, frozen=True):
    topic: str
    partition: Partition
    offset: Count
    lane: PriorityName | None = None


class Commit(Body, frozen=True):
    """Everything below each offset is done."""

    member: str
    offsets: Annotated[list[OffsetSet], Meta(max_length=10_000)]


class Committed(View, frozen=True):
    committed: int


class MemberName(Body, frozen=True):
    member: str


class Beat(View, frozen=True):
    generation: int
    assignments: list[PartitionName]


class SettleBody(Body, frozen=True):
    """What is settled: receipts, or one message by its place and the member that has it."""

    receipts: Annotated[list[str], Meta(max_length=10_000)] = []
    topic: str = ""
    partition: Partition = 0
    offset: Count = 0
    member: str = ""
    lane: PriorityName | None = None
    wait: bool = False


class AckBody(SettleBody, frozen=True):
    """Done with."""


class NackBody(SettleBody, frozen=True):
    """Try again, at once or after `delay`; `reason` is text."""

    reason: str = ""
    delay: Duration = 0


class RejectBody(SettleBody, frozen=True):
    """To the dead letters."""

    reason: str = ""


class ExtendBody(SettleBody, frozen=True):
    """More time."""

    by: Duration = 30


class SettleResult(View, frozen=True):
    receipt: str
    ok: bool
    outcome: Literal["settled", "requeued", "dead_lettered", "dropped", "refused"]
    reason: str


class SettleResults(View, frozen=True):
    settled: int
    results: list[SettleResult]


class NewOffsets(Body, frozen=True):
    """Where a group goes on: `to` is earliest, latest, an offset, a time (ISO 8601, or how long ago: 5m)."""

    to: str | int = ""
    topic: str = ""
    partition: Partition | None = None
    lane: PriorityName | None = None
    offsets: list[OffsetSet] = []


class OffsetView(View, frozen=True, omit_defaults=True):
    topic: str
    partition: int
    offset: int
    lane: PriorityName | None = None


class OffsetsSet(View, frozen=True):
    group: str
    offsets: list[OffsetView]


class Generation(View, frozen=True):
    generation: int


class Done(View, frozen=True):
    done: bool = True


# The broker


class ConnectionView(View, frozen=True):
    session: int
    client: str
    address: str
    seen_seconds_ago: float
    groups: list[str]
    subscriptions: int
    in_flight: int


class ConnectionList(View, frozen=True):
    connections: list[ConnectionView]
    total: int


class ComponentView(View, frozen=True):
    name: str
    status: Literal["ok", "warn", "failed"]
    says: str


LevelWord = Literal["normal", "throttled", "read-only", "maintenance", "emergency"]


class Health(View, frozen=True):
    status: Literal["ok", "warn", "failed"]
    version: str
    broker: str
    uptime_seconds: float
    connections: int
    stored_lsn: int
    level: LevelWord
    components: list[ComponentView]
    recommendations: list[str]


class HealthQuery(Body, frozen=True):
    deep: bool = False


class Ready(View, frozen=True):
    ready: bool


class Rates(View, frozen=True):
    """A second, over the last 1, 5 and 15 minutes."""

    one: float
    five: float
    fifteen: float


class TopicStats(View, frozen=True):
    depth: int
    published: Rates
    published_bytes: Rates
    delivered: Rates
    capacity: CapacityView


class GroupStats(View, frozen=True):
    lag: int
    in_flight: int
    settled: Rates
    failed: Rates
    dead_letters: Rates


class Bucket(View, frozen=True):
    """What happened in a stretch of time that began at `at`, for charts; `lag`, `in_flight` and `connections` are those
    of its end."""

    at: int
    published: int
    delivered: int
    settled: int
    failed: int
    dead_letters: int
    refused: int
    lag: int
    in_flight: int
    connections: int


class Counts(View, frozen=True):
    """Since the broker started."""

    published: int
    delivered: int
    settled: int
    failed: int
    dead_letters: int
    refused: int


class Totals(View, frozen=True):
    published: Rates
    delivered: Rates
    settled: Rates
    failed: Rates
    dead_letters: Rates
    refused: Rates
    messages: int
    lag: int
    in_flight: int
    topics: int
    groups: int
    connections: int


class Stats(View, frozen=True):
    at: int
    totals: Totals
    counts: Counts
    topics: dict[str, TopicStats]
    groups: dict[str, GroupStats]
    recent_seconds: float
    """How long a bucket of `recent` is; those of `history` are a minute."""
    recent: list[Bucket]
    history: list[Bucket]


class StatsQuery(Body, frozen=True):
    """How many buckets of the last minutes and hours; `top`: only so many topics and groups, the busiest topics and the
    groups furthest behind (0: all)."""

    top: Annotated[int, Meta(ge=0)] = 0
    recent: Annotated[int, Meta(ge=0, le=120)] = 0
    history: Annotated[int, Meta(ge=0, le=1_440)] = 0


class Switch(Body, frozen=True):
    """On or off, and why."""

    on: bool = True
    reason: str = "an operator asked for it"


class AskedLevel(View, frozen=True):
    """What one source asks for: disk, memory, loop or operator."""

    source: str
    level: LevelWord
    reason: str


class LevelView(View, frozen=True):
    """The strictest level that is asked for, and all that are."""

    level: LevelWord
    reason: str
    asked: list[AskedLevel]


class NewLevel(Body, frozen=True):
    """What an operator asks for; `normal` takes it back."""

    level: LevelWord
    reason: str = "an operator asked for it"


class ReloadedView(View, frozen=True):
    """Settings that changed, that take a restart, that an operator had changed and stay; and the files read again."""

    changed: list[str]
    needs_restart: list[str]
    kept: list[str]
    files: list[str]


class SettingView(View, frozen=True):
    key: str
    value: Any
    origin: str
    says: str
    changeable: bool
    """Whether it can be changed while the broker runs."""


class ConfigView(View, frozen=True):
    settings: list[SettingView]


class ConfigPatch(Body, frozen=True):
    """Values as the file has them, by key: `{"topic.lease": "10s"}`."""

    settings: Annotated[dict[str, str], Meta(min_length=1, max_length=100)]


class GroupTrace(View, frozen=True):
    group: str
    state: Literal["waiting", "leased", "retrying", "settled"]
    member: str
    attempts: int


class LifeEvent(View, frozen=True, omit_defaults=True):
    """One thing that happened to a message: `message_id` is where it was then, `other` where it came from or went.

    `what` is one of: published, delayed, stored, due, leased, sent (needs no acknowledgment), given_back, failed,
    settled, expired, dead_lettered, replayed, sought_back, purged, removed. Without `at`, when is not known any more.
    """

    at: int | UnsetType
    what: str
    message_id: str
    group: str | UnsetType = UNSET
    member: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    other: str | UnsetType = UNSET
    due: int | UnsetType = UNSET


class Trace(View, frozen=True, omit_defaults=True):
    """What happened to a message, and where it is now for each group that reads its topic.

    `message` is missing when it is not stored any more; `complete` is false when its beginning is not known any more.
    """

    message: MessageView | UnsetType
    groups: list[GroupTrace]
    life: list[LifeEvent]
    complete: bool


# Dead letters


class DeadTopic(View, frozen=True):
    topic: str
    dlq: str
    messages: int


class DeadTopics(View, frozen=True):
    topics: list[DeadTopic]
    total: int


class DeadQuery(Body, frozen=True):
    """Times are ISO 8601, milliseconds since 1970, or how long ago (5m)."""

    reason: str = ""
    group: str = ""
    older_than: str = ""
    newer_than: str = ""
    offset: Count = 0
    limit: Limit = 100


ResultName = Literal["unspecified", "processing", "poison", "timeout", "rejected", "expired"]


class AttemptView(View, frozen=True):
    """One try of a message that died."""

    member: str
    delivered: int
    ended: int
    result: ResultName
    error: str


class DeadEntry(View, frozen=True):
    """A dead letter: the message as it was, and its story."""

    message_id: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str
    headers: dict[str, str]
    original_id: str
    original_partition: int
    original_offset: int
    group: str
    reason: str
    error: str
    attempts: int
    history: list[AttemptView]
    died: int
    remove_at: int | None


class DeadList(View, frozen=True, omit_defaults=True):
    entries: list[DeadEntry]
    total: int
    next: int | UnsetType = UNSET


class DeadChoice(Body, frozen=True):
    """Which dead letters: those at `offsets`, or all that match; nothing said means all."""

    offsets: Annotated[list[Count], Meta(max_length=10_000)] = []
    reason: str = ""
    group: str = ""
    older_than: str = ""
    newer_than: str = ""
    dry_run: bool = False


class Purge(DeadChoice, frozen=True):
    """Remove them; with `dry_run`, only say how many."""


class Purged(View, frozen=True):
    """`replaying` are those that stay, because a job has yet to replay them."""

    topic: str
    messages: int
    dry_run: bool
    replaying: int


class NewReplay(DeadChoice, frozen=True):
    """Publish them again in their original order, to where they came from or `to` another topic.

    The job pauses while consumers are `pause_lag` messages behind, and when `pause_deaths` messages have died again.
    """

    to: str = ""
    rate: Annotated[int, Meta(ge=0, le=10_000)] = 0
    pause_lag: Small = 0
    pause_deaths: Small = 0


class ReplayView(View, frozen=True):
    """A job: `id` is 0 for a plan that was only tried dry."""

    id: int
    topic: str
    state: Literal["planned", "running", "paused", "done", "aborted"]
    reason: str
    total: int
    done: int
    rate: int
    started: int
    targets: dict[str, int]


class ReplayList(View, frozen=True):
    replays: list[ReplayView]


class ReplayPatch(Body, frozen=True):
    state: Literal["running", "paused"]
