"""A run as data: who takes part, what they do and which faults strike, each at its time.

Promises  a plan and its seed decide a whole run; leaving events out of a plan shifts nothing else in it, so that a
          failing plan can be made smaller event by event; a plan is plain data that YAML and Python files can hold.
Never     runs anything.
"""

from __future__ import annotations

from typing import Annotated, Literal
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

Ms = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
PerMille = Annotated[int, Meta(ge=0, le=1000)]

Moment = Literal["", "assign", "confirm", "deliver", "join", "revoke", "settle", "settled", "subscribe", "sync"]
"""What a fault may wait for: a frame that the broker sends (confirm, deliver, settled, revoke, assign) or receives
(settle, join, subscribe), or that a sync has begun and is not done; without one it strikes at its time."""
Turn = Literal["", "assign", "deliver", "revoke", "settle", "subscribe"]
"""What a fault of a client may wait for: its next delivery, subscription, settle or word about its partitions."""
Way = Literal["both", "to", "from"]
DiskOp = Literal["sync", "write", "read", "create"]
DiskFault = Literal["io", "denied", "descriptors", "full"]
Level = Literal["normal", "throttled", "read-only", "maintenance", "emergency"]
Place = Literal["earliest", "time", "offset"]
Policy = Literal["always", "interval", "os"]
Outcome = Literal["ok", "damaged", "any"]


class Event(Struct, frozen=True, tag=True, tag_field="do", forbid_unknown_fields=True, kw_only=True):
    """Base of everything that happens at a stated time of a run."""

    at_ms: Ms


class Publish(Event, frozen=True):
    """A producer sends `count` messages, as one batch or as single PUBLISH frames."""

    who: str
    topic: str
    count: Count = 1
    partition: int = -1
    size: Count = 40
    ttl_ms: Ms = 0
    delay_ms: Ms = 0
    priority: int = 0
    singles: bool = False


class Seek(Event, frozen=True):
    """An operator moves a group's place in a log back: to the start, to an offset, or to a time; in a topic with lanes
    in one of them (from 1), or in all."""

    group: str
    topic: str
    partition: int = 0
    lane: int = 0
    to: Place = "earliest"
    value: int = 0


class Checkpoint(Event, frozen=True):
    """An operator asks for a checkpoint."""


class DeleteTopic(Event, frozen=True):
    """An operator deletes a topic, whoever reads it; the next publish makes it anew."""

    topic: str


class CreateTopic(Event, frozen=True):
    """An operator creates a topic as the plan describes it, or is told that it exists."""

    topic: str


class Configure(Event, frozen=True):
    """An operator gives a topic another limit on retries."""

    topic: str
    max_retries: int


class ReplayDead(Event, frozen=True):
    """An operator reads a topic's dead letters and has some of them replayed: all, or every `every`-th."""

    topic: str
    every: Count = 1
    rate: int = 0


class PurgeDead(Event, frozen=True):
    """An operator reads a topic's dead letters and has the first so many removed."""

    topic: str
    count: Count = 1


class Look(Event, frozen=True):
    """An operator looks at all members and topics, and has the lives of a topic's newest messages told."""

    topic: str
    count: int = 5


class SetLevel(Event, frozen=True):
    """An operator has the broker do less: throttled, read-only, maintenance or emergency.

    With `for_ms` 0 until everything that is stored has been settled in the healed world, or the broker dies; an
    emergency only until the world heals, because who lost a connection could not come back.
    """

    level: Level = "read-only"
    for_ms: Ms = 0


class Crash(Event, frozen=True):
    """The broker dies and is started again: by power loss, which takes what was not synced, or as a process.

    With `after_ops` it dies at that disk operation from `at_ms` on, whichever it is; with `on`, at the next such
    moment, before anything more happens.
    """

    power: bool = True
    down_ms: Ms = 100
    after_ops: Ms = 0
    on: Moment = ""


class PauseBroker(Event, frozen=True):
    """The broker's process stands still, as in a long collection of garbage or under SIGSTOP."""

    for_ms: Ms


class Partition(Event, frozen=True):
    """Nothing passes between a client and the broker in the given direction: `both`, `to` or `from` the broker."""

    who: str
    for_ms: Ms
    way: Way = "both"
    on: Turn = ""


class Slow(Event, frozen=True):
    """A client's link has this delay each way, and so many bytes per second (0: any number)."""

    who: str
    for_ms: Ms
    delay_ms: Ms = 200
    bytes_per_s: Ms = 0


class Reset(Event, frozen=True):
    """A client's connection breaks; of what is under way each way, a part may arrive that ends inside a frame."""

    who: str
    on: Turn = ""


class CrashClient(Event, frozen=True):
    """A client's process dies and starts anew; `silent` means that its machine vanished and nobody is told."""

    who: str
    for_ms: Ms = 500
    silent: bool = False
    on: Turn = ""


class PauseClient(Event, frozen=True):
    """A client stands still and then goes on as if nothing had happened."""

    who: str
    for_ms: Ms


class Leave(Event, frozen=True):
    """A consumer says goodbye in good order, and comes back later."""

    who: str
    for_ms: Ms = 500


class Pressure(Event, frozen=True):
    """The broker's process has so much of its memory in use, and finds its timers so late."""

    for_ms: Ms
    memory_percent: int = 0
    late_ms: Ms = 0


class JumpClock(Event, frozen=True):
    """The broker's wall clock jumps ahead or back."""

    by_ms: int


class SlowDisk(Event, frozen=True):
    """Disk operations take this many times as long."""

    for_ms: Ms
    factor: Count = 20


class FailDisk(Event, frozen=True):
    """The next operations of a kind on what lies below `path` fail; with `on`, from the next such moment on."""

    op: DiskOp = "sync"
    kind: DiskFault = "io"
    times: Count = 1
    on: Moment = ""
    path: str = ""


class FillDisk(Event, frozen=True):
    """Only so many more bytes fit on the disk, until the time is over."""

    for_ms: Ms
    free_bytes: Ms = 4096


class Damage(Event, frozen=True):
    """Synced bytes change or vanish: one bit or one sector, at `place` per mille of the files below `path`."""

    path: str = "journal"
    place: PerMille = 500
    lost_sector: bool = False


AnyEvent = (
    Publish
    | Seek
    | Checkpoint
    | DeleteTopic
    | CreateTopic
    | Configure
    | ReplayDead
    | PurgeDead
    | Look
    | SetLevel
    | Crash
    | PauseBroker
    | Partition
    | Slow
    | Reset
    | CrashClient
    | PauseClient
    | Leave
    | Pressure
    | JumpClock
    | SlowDisk
    | FailDisk
    | FillDisk
    | Damage
)
FAULTS = (
    Crash,
    PauseBroker,
    Partition,
    Slow,
    Reset,
    CrashClient,
    PauseClient,
    Pressure,
    JumpClock,
    SlowDisk,
    FailDisk,
    FillDisk,
    Damage,
)


class Topic(Struct, frozen=True, forbid_unknown_fields=True):
    """A topic made before the run begins."""

    name: str
    partitions: Count = 1
    lanes: bool = False
    sync: Policy = "always"
    """What a confirm waits for: always a sync; with `interval` or `os` a write, which a power loss may take back."""
    lag_critical: Ms = 0
    """So many messages behind, and publishers are slowed, then refused; 0 for no limit."""
    keys: int = 0
    """Its messages have one of so many keys, which their bytes decide; 0 for messages without keys."""

    bury: bool = False
    """What expires in it goes to the dead letters."""

    def key_of(self, value: bytes) -> bytes | None:
        """The key that a message of this topic is published with."""
        return b"k%d" % (crc32(value) % self.keys) if self.keys else None


class Producer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A client that publishes when events say so, and sends again what was not answered."""

    name: str
    window: Count = 8
    idempotent: int = 0
    """Its producer id, if what it sends again must not be stored again; it then names partitions, not singles."""
    legacy: bool = False
    """Its requests carry no numbers: answers come in their order."""


class Consumer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A client that reads a pattern, alone or in a group, with habits good and bad (rates in per mille)."""

    name: str
    pattern: str
    group: str = ""
    credit: int = 50
    process_ms: Ms = 5
    auto_ack: bool = False
    legacy: bool = False
    """Speaks the source document's frames alone: one DELIVERY and one ACK per message."""
    member: bool = False
    """Joins under a name of its own, which it keeps when it comes back."""
    strategy: str = ""
    """How its group is served, "" for the default; a partitioned group's members give up what is revoked."""
    deaf: PerMille = 0
    """How often it does not give up what is revoked, and goes on as if nothing had been said."""
    nack: PerMille = 0
    reject: PerMille = 0
    ignore: PerMille = 0
    """How many deliveries it never answers."""
    extend: PerMille = 0
    cling: PerMille = 0
    """How many deliveries it extends as long as it is let, and settles then."""
    later: PerMille = 0
    """How many of the deliveries in which something failed it asks to have back no sooner than `LATER_MS` later."""
    durable: PerMille = 0
    """How many settles wait until they are durable."""
    in_parts: PerMille = 0
    """How many deliveries it settles in two parts, the later one first."""
    stale: PerMille = 0
    """How often it settles, on a new connection, what it got on the one before."""
    start_ms: Ms = 0


LATER_MS = 700


class Broker(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the broker is set up: small files and short times, so that rare things happen often."""

    lease_ms: Count = 2_000
    lease_max_ms: Count = 3_600_000
    max_retries: int = 3
    session_timeout_ms: Count = 3_000
    rebalance_answer_ms: Count = 2_000
    ephemeral_lag_max: Count = 100_000
    settle_linger_ms: int = 50
    checkpoint_ms: Count = 3_000
    journal_segment_bytes: Count = 64 << 10
    log_segment_bytes: Count = 32 << 10
    preallocate: bool = True
    tail_bytes_max: int = 32 << 20
    send_window_bytes: int = 1 << 20
    deliver_bytes_max: int = 1 << 20
    checkpoint_journal_bytes: int = 256 << 10
    sync_interval_ms: int = 300
    quota_messages: int = 0
    """Messages a second that each connection may publish; 0 for any number."""


class Plan(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run. It ends `ok`, or `damaged` where the broker must find its disk damaged and stop; `any` is either."""

    name: str = "plan"
    seed: int = 0
    chaos_ms: Ms = 10_000
    drain_ms: Ms = 120_000
    broker: Broker = Broker()
    topics: tuple[Topic, ...] = ()
    producers: tuple[Producer, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    poison: PerMille = 0
    """Messages per mille that nobody can process."""
    toxic: int = 0
    """Messages per mille that everybody calls poison."""
    events: tuple[AnyEvent, ...] = ()
    expect: Outcome = "ok"
    reaches: tuple[str, ...] = ()
    """Rare paths (`dovetail sim marks`) that the run must take: one that does not has not tested what it is for."""
    reads_along: bool = False
    """Somebody reads every log from its start during the chaos, too."""
    repair: bool = False
    """An operator repairs a disk that was found damaged, and the run goes on with what is left."""

    @property
    def has_honest_clock(self) -> bool:
        """Whether the broker's wall clock can be trusted throughout."""
        return not any(isinstance(event, JumpClock) for event in self.events)

    @property
    def terms(self) -> str:
        """What whoever judges the run by its trace has to know of it, as JSON."""
        known = {
            "lease_ms": self.broker.lease_ms,
            "max_retries": self.broker.max_retries,
            "session_timeout_ms": self.broker.session_timeout_ms,
            "honest_clock": self.has_honest_clock,
            "damage": self.has_damage,
            "chaos_ms": self.chaos_ms,
            "relaxed": [topic.name for topic in self.topics if topic.sync != "always"],
            "deleted": sorted({event.topic for event in self.events if isinstance(event, DeleteTopic)}),
            "replayed": sorted({event.topic for event in self.events if isinstance(event, ReplayDead)}),
            "repair": self.repair,
        }
        return msgspec.json.encode(known).decode()

    @property
    def has_damage(self) -> bool:
        """Whether the disk loses or changes what was synced."""
        return any(isinstance(event, Damage) for event in self.events)
