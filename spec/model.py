"""The broker as its clients see it, written as naively as possible: the oracle of the tests.

One dictionary per message and reader; no ranges, no tries, no queues. Where a broker is free to choose (a partition, a
member with credit, a delay within the jitter, when to drop what expired) the model is told what was chosen, says
`Disagreement` if that was not allowed, and follows it otherwise.

A step of the broker is told to the model in this order: `begin`, each input, each thing observed, `end`.

Promises  what it accepts is what `spec/core.md` says; after each step `books` is what a right broker knows durably.
Never     imports anything of the project, or is clever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

TIMER_MS = 10
"""Deadlines are noticed at the first multiple of this at or after them."""

OK, NOT_FOUND, QUOTA, GROUP_ERROR, LEASE_LOST, INVALID, BAD_PATTERN, EXISTS = 0, 1, 2, 2, 2, 3, 1, 8
SETTLED, REQUEUED, DEAD_LETTERED, DROPPED = 0, 1, 2, 3
ACK, NACK, REJECT, EXTEND = 1, 2, 3, 4
POISON = 2
ACCUSERS = 2
"""So many members that call a message poison send it to the dead letters."""
JUDGED_FROM = 20
"""A member with so many outcomes behind it may be passed over for its health; with fewer it never is."""

WAITING = "waiting"
"""Never sent since the broker started or the group was moved."""
LEASED = "leased"
RETRYING = "retrying"
DYING = "dying"
"""Its copy for the dead letters was asked for."""

Reader = str | int
"""A group by its name, or a session's own reading by its number."""
Place = tuple[Reader, str, int]
"""Where somebody reads: reader, topic, partition."""
Answer = tuple[object, ...]
Told = tuple[int, int, Answer]
"""Session, request, answer."""
Books = tuple[object, ...]


class Disagreement(AssertionError):
    """The broker did something that the specification does not allow."""


def require(holds: bool, claim: str, *values: object) -> None:
    """Say what was claimed and with which values it does not hold."""
    if not holds:
        raise Disagreement(f"{claim}: {', '.join(map(repr, values))}")


@dataclass(frozen=True)
class Rules:
    """The broker-wide settings that clients notice."""

    auto_create: bool = True
    partitions: int = 1
    max_inflight: int = 100
    session_timeout_ms: int = 30_000
    topics_max: int = 10_000
    partitions_max: int = 1_000
    patterns_max: int = 1_000


@dataclass(frozen=True)
class Config:
    """A topic's settings that clients notice."""

    lease_ms: int = 30_000
    lease_max_ms: int = 3_600_000
    max_retries: int = 3
    ttl_ms: int = 0
    synced: bool = True
    """Shown and confirmed when synced; otherwise when written."""
    dead_letters: bool = True
    expired_to_dead_letters: bool = False


@dataclass(frozen=True)
class Message:
    expires_at_ms: int
    needs_ack: bool


@dataclass
class Log:
    start: int
    end: int
    shown: int
    """Everything below is stored, as the topic's policy asks: it may be confirmed and delivered."""
    messages: dict[int, Message] = field(default_factory=dict)


@dataclass
class Topic:
    config: Config
    logs: list[Log]


@dataclass
class Group:
    patterns: list[str] = field(default_factory=list)
    generation: int = 0


@dataclass
class Entry:
    """One message for one reader, as long as it is not settled."""

    state: str = WAITING
    failures: int = 0
    earliest_ms: int = 0
    latest_ms: int = 0
    avoid: str = ""
    ticket: int = 0
    accusers: frozenset[str] = frozenset()
    """The members that called it poison."""


@dataclass
class Subscription:
    session: int
    reader: Reader
    member: str
    pattern: str
    credit: int
    auto_ack: bool
    unsent: int = 0


@dataclass
class Lease:
    subscription: int
    place: Place
    offsets: set[int]
    attempt: int
    granted_ms: int
    deadline_ms: int


@dataclass
class Session:
    name: str
    seen_ms: int
    members: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Group to the member name there, and whether only a SUBSCRIBE made it a member."""


@dataclass
class Poll:
    session: int
    request: int
    log: Log
    offset: int
    until_ms: int


def levels_of(text: str) -> list[str]:
    """A name's levels; `.` and `/` both separate them."""
    return re.split(r"[./]", text)


def has_length(text: str) -> bool:
    """Whether a name or pattern is neither empty nor too long; that of dead letters may be 4 bytes longer."""
    return 1 <= len(text.encode()) <= (244 if text[-4:] in (".dlq", "/dlq") else 240)


def is_topic_name(text: str) -> bool:
    """Whether a topic may be called this."""
    return has_length(text) and all(re.fullmatch(r"[A-Za-z0-9_-]+", level) for level in levels_of(text))


def is_pattern(text: str) -> bool:
    """Whether this may be subscribed to."""
    levels = levels_of(text)
    last = levels[-1:] if levels[-1] != "#" else []
    return has_length(text) and all(
        level == "*" or re.fullmatch(r"[A-Za-z0-9_-]+", level) for level in [*levels[:-1], *last]
    )


def is_plain_name(text: str) -> bool:
    """Whether a group or a member may be called this."""
    return 1 <= len(text.encode()) <= 240 and text.isprintable() and text == text.strip() and "/" not in text


def has_wildcard(pattern: str) -> bool:
    """Whether a pattern may match more than one topic."""
    return "*" in pattern or "#" in pattern


def matches(pattern: str, topic: str) -> bool:
    """Whether a subscription to `pattern` reads `topic`."""
    wanted, levels = levels_of(pattern), levels_of(topic)
    if levels[-1] == "dlq" and has_wildcard(pattern) and wanted[-1] != "dlq":
        return False
    return _levels_match(wanted, levels)


def _levels_match(wanted: list[str], levels: list[str]) -> bool:
    if wanted == ["#"]:
        return True
    if not wanted or not levels:
        return wanted == levels
    return wanted[0] in ("*", levels[0]) and _levels_match(wanted[1:], levels[1:])


def backoff_window(attempt: int) -> tuple[int, int]:
    """How long after failed attempt number `attempt` the next one comes at the earliest and at the latest."""
    if attempt == 1:
        return 0, 0
    base = 1_000
    for _ in range(attempt - 2):
        base = min(base * 2, 60_000)
    return base, base + base * 20 // 100


def noticed(at_ms: int) -> int:
    """When a deadline at `at_ms` is noticed."""
    while at_ms % TIMER_MS:
        at_ms += 1
    return at_ms


class Model:
    """What the broker must know and may do."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.incarnation = 0
        self.topics: dict[str, Topic] = {}
        self.retired: dict[str, list[int]] = {}
        self.groups: dict[str, Group] = {}
        self.entries: dict[Place, dict[int, Entry]] = {}
        """Unsettled messages of everyone who reads; what is not in here is settled or was never theirs."""
        self.leases_ever: set[int] = set()
        self.lsn = 0
        self.frames: dict[int, Books] = {}
        self.now_ms = self.wall_ms = 0
        self._forget_what_is_not_durable()
        self.frames[0] = self.books()

    def _forget_what_is_not_durable(self) -> None:
        self.sessions: dict[int, Session] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.leases: dict[int, Lease] = {}
        self.outcomes: dict[int, int] = {}
        """How many messages came to their end at a session, one way or another."""
        self.polls: list[Poll] = []
        self.seeks: dict[int, tuple[int, int, Place, Log]] = {}
        self.unstored: list[tuple[int, Told]] = []
        self.unwritten: list[tuple[int, Told]] = []
        self.unshown: list[tuple[int, bool, Log, int]] = []
        self.stored_lsn = self.written_lsn = self.lsn
        self._start_step()

    def _start_step(self) -> None:
        self.expected: list[Told] = []
        self.expected_stored: list[Told] = []
        self.expected_written: list[Told] = []
        self.expected_ended: set[tuple[int, int]] = set()
        self.expected_closed: list[int] = []
        self.expected_copies: set[tuple[Place, int]] = set()
        self.told: list[Told] = []
        self.ended: set[tuple[int, int]] = set()
        self.closed: list[int] = []
        self.appended: list[tuple[bool, Log]] = []
        self.dealt: dict[Place, dict[int, int]] = {}
        self.retried: set[Reader] = set()

    def books(self) -> Books:
        """Everything that must survive a crash, as plain values that can be compared."""
        topics = {
            name: (topic.config, [(log.start, log.end, dict(log.messages)) for log in topic.logs])
            for name, topic in self.topics.items()
        }
        groups = {name: (tuple(group.patterns), group.generation) for name, group in self.groups.items()}
        places = {
            place: {offset: entry.failures for offset, entry in entries.items()}
            for place, entries in self.entries.items()
            if isinstance(place[0], str)
        }
        accusers = {
            (place, offset): entry.accusers
            for place, entries in self.entries.items()
            for offset, entry in entries.items()
            if isinstance(place[0], str) and entry.accusers
        }
        retired = {name: list(ends) for name, ends in self.retired.items()}
        return self.incarnation, topics, retired, groups, places, accusers

    def crash(self, lsn: int) -> None:
        """The process ended; the frames up to `lsn` survived, which is at least all that were stored."""
        require(self.stored_lsn <= lsn <= self.lsn, "what was stored survives", self.stored_lsn, lsn, self.lsn)
        incarnation, topics, retired, groups, places, accusers = self.frames[lsn]
        self.lsn = lsn
        self.frames = {lsn: self.frames[lsn]}
        assert isinstance(incarnation, int)
        assert isinstance(topics, dict)
        assert isinstance(retired, dict)
        assert isinstance(groups, dict)
        assert isinstance(places, dict)
        assert isinstance(accusers, dict)
        self.incarnation = incarnation
        self.topics = {
            name: Topic(config, [Log(start, end, end, dict(messages)) for start, end, messages in logs])
            for name, (config, logs) in topics.items()
        }
        self.retired = {name: list(ends) for name, ends in retired.items()}
        self.groups = {name: Group(list(patterns), generation) for name, (patterns, generation) in groups.items()}
        self.entries = {
            place: {
                offset: Entry(failures=failures, accusers=accusers.get((place, offset), frozenset()))
                for offset, failures in entries.items()
            }
            for place, entries in places.items()
        }
        self._forget_what_is_not_durable()

    def begin(self, now_ms: int, wall_ms: int, unsent: Iterable[int] = ()) -> None:
        """A step at this time: deadlines that passed take effect before any input.

        What was leased under the numbers in `unsent` has not been sent yet."""
        self._start_step()
        self.now_ms, self.wall_ms = now_ms, wall_ms
        for number in unsent:
            if number in self.leases and self.leases[number].deadline_ms <= now_ms:
                self._return(number, self.subscriptions[self.leases[number].subscription].member)
        due: list[tuple[int, int, int]] = []
        due += [(noticed(lease.deadline_ms), 1, number) for number, lease in self.leases.items()]
        due += [
            (noticed(session.seen_ms + self.rules.session_timeout_ms), 2, number)
            for number, session in self.sessions.items()
            if session.members
        ]
        for at_ms, kind, number in sorted(due):
            if at_ms > now_ms:
                break
            if kind == 1 and number in self.leases:
                self._time_out(number)
            elif kind == 2 and self.sessions[number].members:
                self.session_closed(number)
                self.expected_closed.append(number)
        for poll in [poll for poll in self.polls if noticed(poll.until_ms) <= now_ms]:
            self._answer_poll(poll)

    def _time_out(self, number: int) -> None:
        lease = self._end_lease(number)
        self._count(lease, len(lease.offsets))
        for offset in sorted(lease.offsets):
            self._fail(lease, offset, 0, 0)

    def _count(self, lease: Lease, outcomes: int) -> None:
        session = self.subscriptions[lease.subscription].session
        self.outcomes[session] = self.outcomes.get(session, 0) + outcomes

    def started(self) -> None:
        """The process began to work."""
        self.incarnation += 1

    def stored(self, lsn: int) -> None:
        """Frames up to `lsn` are synced."""
        self.stored_lsn = lsn
        self.expected += [told for at, told in self.unstored if at <= lsn]
        self.unstored = [(at, told) for at, told in self.unstored if at > lsn]
        self._show(lsn, synced=True)
        self.written(lsn)

    def written(self, lsn: int) -> None:
        """Frames up to `lsn` are written."""
        self.written_lsn = max(self.written_lsn, lsn)
        self.expected += [told for at, told in self.unwritten if at <= lsn]
        self.unwritten = [(at, told) for at, told in self.unwritten if at > lsn]
        self._show(lsn, synced=False)

    def _show(self, lsn: int, *, synced: bool) -> None:
        for at, policy, log, end in self.unshown:
            if at <= lsn and policy == synced:
                log.shown = max(log.shown, end)
                for poll in [poll for poll in self.polls if poll.log is log and poll.offset < log.shown]:
                    self._answer_poll(poll)
        self.unshown = [item for item in self.unshown if item[0] > lsn or item[1] != synced]

    def sent(self, subscription: int, count: int) -> None:
        """Messages that need no acknowledgment left for the network."""
        if subscription in self.subscriptions:
            self.subscriptions[subscription].unsent -= count

    def copied(self, ticket: int, *, gone: bool) -> None:
        """The copy of a dying message is there: it moves to the dead letters, in one piece with its settling."""
        for (reader, topic, partition), entries in list(self.entries.items()):
            for offset, entry in list(entries.items()):
                if entry.state == DYING and entry.ticket == ticket:
                    if not gone:
                        name = f"{topic}.dlq"
                        if name not in self.topics:
                            self._create(name, 1, Config(dead_letters=False))
                        self._append(name, 0, 1, 0, needs_ack=True)
                    del self.entries[reader, topic, partition][offset]

    def found(self, ticket: int, offset: int) -> None:
        """The offset that a seek by time asked for."""
        session, request, place, log = self.seeks.pop(ticket)
        _, topic, partition = place
        if place not in self.entries or self.topics[topic].logs[partition] is not log:
            self._refuse(session, request, NOT_FOUND)
        else:
            self._move(session, request, place, min(max(offset, log.start), log.shown))

    def trimmed(self, topic: str, partition: int, start: int) -> None:
        """Retention proposes to remove everything below `start`: what a group still needs stays."""
        log = self.topics[topic].logs[partition]
        limit = min(start, log.shown)
        for (reader, name, number), entries in self.entries.items():
            if isinstance(reader, str) and (name, number) == (topic, partition):
                limit = min([limit, *entries])
        for offset in [offset for offset in log.messages if offset < limit]:
            del log.messages[offset]
        log.start = max(log.start, limit)

    def session_opened(self, number: int, name: str) -> None:
        self.sessions[number] = Session(name, self.now_ms)

    def seen(self, number: int) -> None:
        if number in self.sessions:
            self.sessions[number].seen_ms = self.now_ms

    def session_closed(self, number: int) -> None:
        """Whatever it held is free again."""
        session = self.sessions.get(number)
        if session is None:
            return
        for group in list(session.members):
            self._leave(number, group)
        for subscription in self._subscriptions_of(number):
            self._detach(subscription)
        del self.sessions[number]

    def _subscriptions_of(self, session: int, reader: Reader | None = None) -> list[int]:
        return [
            number
            for number, subscription in sorted(self.subscriptions.items())
            if subscription.session == session and reader in (None, subscription.reader)
        ]

    def publish(
        self,
        topic: str,
        partition: int,
        count: int,
        ttl_ms: int,
        *,
        needs_ack: bool,
        asks: Iterable[tuple[int, int, int, int]],
        confirm: bool,
        placed: int | None,
    ) -> None:
        """`placed` is the partition that the broker chose, None if it refused the batch."""
        status = self._publish_status(topic, partition)
        require(
            (status == OK) == (placed is not None), "a batch is refused for a reason only", topic, partition, placed
        )
        if placed is None:
            for session, request, _, _ in asks:
                self._refuse(session, request, status)
            return
        name = ".".join(levels_of(topic))
        if name not in self.topics:
            self._create(name, self.rules.partitions, Config())
        require(partition in (-1, placed) and placed < len(self.topics[name].logs), "a batch goes where asked", placed)
        base = self._append(name, placed, count, ttl_ms, needs_ack=needs_ack)
        synced = self.topics[name].config.synced
        for session, request, index, part in asks if confirm else ():
            told = (session, request, ("appended", name, placed, base + index, part))
            (self.expected_stored if synced else self.expected_written).append(told)

    def _publish_status(self, topic: str, partition: int) -> int:
        if not is_topic_name(topic):
            return INVALID
        name = ".".join(levels_of(topic))
        if name not in self.topics and not self.rules.auto_create:
            return NOT_FOUND
        count = len(self.topics[name].logs) if name in self.topics else self.rules.partitions
        if partition >= count:
            return INVALID
        return QUOTA if name not in self.topics and len(self.topics) >= self.rules.topics_max else OK

    def _append(self, name: str, partition: int, count: int, ttl_ms: int, *, needs_ack: bool) -> int:
        topic = self.topics[name]
        log = topic.logs[partition]
        base = log.end
        ttl_ms = ttl_ms or topic.config.ttl_ms
        for offset in range(base, base + count):
            log.messages[offset] = Message(self.wall_ms + ttl_ms if ttl_ms else 0, needs_ack)
            for (_, read, number), entries in self.entries.items():
                if (read, number) == (name, partition):
                    entries[offset] = Entry()
        log.end = base + count
        self.appended.append((topic.config.synced, log))
        return base

    def create_topic(self, session: int, request: int, name: str, partitions: int, lanes: int, config: Config) -> None:
        """Only topics without lanes are modelled."""
        canonical = ".".join(levels_of(name))
        if not is_topic_name(name):
            self._refuse(session, request, INVALID)
        elif canonical in self.topics:
            self._refuse(session, request, EXISTS)
        elif not 1 <= partitions <= self.rules.partitions_max or lanes != 0:
            self._refuse(session, request, INVALID)
        elif len(self.topics) >= self.rules.topics_max:
            self._refuse(session, request, QUOTA)
        else:
            self._create(canonical, partitions, config)
            self.expected_stored.append((session, request, ("done",)))

    def _create(self, name: str, partitions: int, config: Config) -> None:
        """A topic that comes back goes on from its old end; whoever's pattern matches reads it from its start."""
        ends = self.retired.get(name, [])
        starts = list(ends) if len(ends) == partitions else [max(ends, default=0)] * partitions
        self.topics[name] = Topic(config, [Log(start, start, start) for start in starts])
        for group, known in self.groups.items():
            if any(matches(pattern, name) for pattern in known.patterns):
                self._open(group, name)
        for subscription in self.subscriptions.values():
            if isinstance(subscription.reader, int) and matches(subscription.pattern, name):
                self._open(subscription.reader, name)

    def _open(self, reader: Reader, topic: str) -> None:
        """Somebody begins to read a topic: a group from its start, a session from now on."""
        for partition, log in enumerate(self.topics[topic].logs):
            if (reader, topic, partition) not in self.entries:
                past = log.messages if isinstance(reader, str) else ()
                self.entries[reader, topic, partition] = {offset: Entry() for offset in past}

    def delete_topic(self, session: int, request: int, name: str, *, force: bool) -> None:
        canonical = ".".join(levels_of(name))
        if canonical not in self.topics:
            self._refuse(session, request, NOT_FOUND)
        elif not force and any(self._ring(reader, canonical) for reader in self._readers()):
            self._refuse(session, request, EXISTS)
        else:
            logs = self.topics.pop(canonical).logs
            self.retired[canonical] = [log.end for log in logs]
            for number in [number for number, lease in self.leases.items() if lease.place[1] == canonical]:
                self._end_lease(number)
            for place in [place for place in self.entries if place[1] == canonical]:
                del self.entries[place]
            for poll in [poll for poll in self.polls if any(poll.log is log for log in logs)]:
                self.polls.remove(poll)
                self._refuse(poll.session, poll.request, NOT_FOUND)
            self.expected_stored.append((session, request, ("done",)))

    def list_topics(self, session: int, request: int, pattern: str) -> None:
        pattern = pattern or "#"
        if not is_pattern(pattern):
            self._refuse(session, request, INVALID)
            return
        found = {
            name: tuple((log.start, log.shown) for log in topic.logs)
            for name, topic in self.topics.items()
            if matches(pattern, name)
        }
        self.expected.append((session, request, ("topics", found)))

    def _readers(self) -> set[Reader]:
        return {subscription.reader for subscription in self.subscriptions.values()}

    def _ring(self, reader: Reader, topic: str) -> list[int]:
        """The subscriptions that may get a message: of each member the oldest that matches, in order of member."""
        oldest: dict[str, int] = {}
        for number, subscription in sorted(self.subscriptions.items()):
            if subscription.reader == reader and matches(subscription.pattern, topic):
                oldest.setdefault(subscription.member, number)
        return [number for _, number in sorted(oldest.items())]

    def in_flight(self, number: int) -> int:
        """How much of its credit a subscription uses."""
        held = sum(len(lease.offsets) for lease in self.leases.values() if lease.subscription == number)
        return held + self.subscriptions[number].unsent

    def _is_judged(self, ring: list[int]) -> bool:
        """Whether somebody of the ring may be passed over for its health."""
        return any(self.outcomes.get(self.subscriptions[number].session, 0) >= JUDGED_FROM for number in ring)

    def _has_credit(self, number: int) -> bool:
        return self.in_flight(number) < self.subscriptions[number].credit

    def subscribe(
        self, session: int, request: int, pattern: str, group: str, credit: int, *, auto_ack: bool, number: int | None
    ) -> None:
        """`number` is what the broker called the new subscription, None if it refused."""
        status = self._subscribe_status(session, pattern, group)
        require((status == OK) == (number is not None), "a subscription is refused for a reason only", pattern, status)
        if number is None:
            self._refuse(session, request, status)
            return
        require(number not in self.subscriptions, "a subscription's number is its own", number)
        pattern = ".".join(levels_of(pattern))
        if not has_wildcard(pattern) and pattern not in self.topics and self.rules.auto_create:
            self._create(pattern, self.rules.partitions, Config())
        reader: Reader = group or session
        member = self._join_to_read(session, group, pattern) if group else ""
        credit = credit or self.rules.max_inflight
        self.subscriptions[number] = Subscription(session, reader, member, pattern, credit, auto_ack)
        for topic in self.topics:
            if matches(pattern, topic):
                self._open(reader, topic)
        self.expected.append((session, request, ("subscribed", number)))

    def _subscribe_status(self, session: int, pattern: str, group: str) -> int:
        if len(self._subscriptions_of(session)) >= self.rules.patterns_max:
            return QUOTA
        if not is_pattern(pattern):
            return BAD_PATTERN
        if group and group not in self.groups and not is_plain_name(group):
            return GROUP_ERROR
        canonical = ".".join(levels_of(pattern))
        known = self.groups[group].patterns if group in self.groups else []
        if group and canonical not in known and len(known) >= self.rules.patterns_max:
            return GROUP_ERROR
        new = not has_wildcard(canonical) and canonical not in self.topics and self.rules.auto_create
        return QUOTA if new and len(self.topics) >= self.rules.topics_max else OK

    def _join_to_read(self, session: int, group: str, pattern: str) -> str:
        """A SUBSCRIBE that names a group joins it, and the group reads the pattern from now on."""
        mine = self.sessions[session].members.get(group)
        member = mine[0] if mine else f"{self.sessions[session].name}-{session}"
        self._enter(session, group, member, implicit=True)
        if pattern not in self.groups[group].patterns:
            self.groups[group].patterns.append(pattern)
        return member

    def _enter(self, session: int, group: str, member: str, *, implicit: bool) -> None:
        """A member that comes back on another connection takes its place without a new generation."""
        known = self.groups.setdefault(group, Group())
        if group in self.sessions[session].members:
            return
        holders = [number for number, each in self.sessions.items() if each.members.get(group, ("",))[0] == member]
        for holder in holders:
            for subscription in self._subscriptions_of(holder, group):
                self._detach(subscription)
            del self.sessions[holder].members[group]
            self.expected_closed.append(holder)
        if not holders:
            known.generation += 1
        self.sessions[session].members[group] = (member, implicit)

    def join_group(self, session: int, request: int, group: str, member: str, strategy: str) -> None:
        mine = self.sessions[session].members.get(group)
        member = mine[0] if mine is not None and not member else member
        known = mine is not None and mine[0] == member
        named_well = known or (is_plain_name(member) and (group in self.groups or is_plain_name(group)))
        another = mine is not None and mine[0] != member
        if not named_well or another or strategy not in ("", "round-robin"):
            self._refuse(session, request, GROUP_ERROR)
        else:
            self._enter(session, group, member, implicit=False)
            self.expected.append((session, request, ("joined", self.groups[group].generation)))

    def leave_group(self, session: int, request: int, group: str, member: str) -> None:
        mine = self.sessions[session].members.get(group)
        if mine is None or mine[0] != member:
            self._refuse(session, request, GROUP_ERROR)
        else:
            self._leave(session, group)
            self.expected.append((session, request, ("done",)))

    def _leave(self, session: int, group: str) -> None:
        for subscription in self._subscriptions_of(session, group):
            self._detach(subscription)
        del self.sessions[session].members[group]
        self.groups[group].generation += 1

    def heartbeat(self, session: int, request: int, member: str) -> None:
        mine = [group for group, (name, _) in self.sessions[session].members.items() if member in ("", name)]
        if member and not mine:
            self._refuse(session, request, GROUP_ERROR)
        else:
            self.expected.append((session, request, ("joined", self.groups[mine[0]].generation if mine else 0)))

    def unsubscribe(self, session: int, request: int, number: int) -> None:
        subscription = self.subscriptions.get(number)
        if subscription is None or subscription.session != session:
            self._refuse(session, request, NOT_FOUND)
            return
        self._detach(number)
        reader = subscription.reader
        last = not self._subscriptions_of(session, reader)
        if isinstance(reader, str) and last and self.sessions[session].members[reader][1]:
            self._leave(session, reader)
        self.expected.append((session, request, ("done",)))

    def _detach(self, number: int) -> None:
        """A leaver's leases return at once, uncounted; what only it read is read no more."""
        for lease_number in [each for each, lease in self.leases.items() if lease.subscription == number]:
            self._return(lease_number, "")
        reader = self.subscriptions.pop(number).reader
        if isinstance(reader, int):
            for place in [place for place in self.entries if place[0] == reader and not self._ring(reader, place[1])]:
                del self.entries[place]

    def set_credit(self, session: int, request: int, number: int, credit: int) -> None:
        subscription = self.subscriptions.get(number)
        if subscription is None or subscription.session != session:
            self._refuse(session, request, NOT_FOUND)
        else:
            subscription.credit = credit or self.rules.max_inflight
            self.expected.append((session, request, ("done",)))

    def settle(
        self, session: int, request: int, items: Iterable[tuple[int, int, int, int, int, int]], *, wait: bool
    ) -> None:
        """Each item is lease, action, first, last, reason, delay; each has an answer of its own."""
        results = tuple(self._settle_item(session, *item) for item in items)
        told = (session, request, ("settled", results))
        (self.expected_stored if wait else self.expected).append(told)

    def _settle_item(
        self, session: int, number: int, action: int, first: int, last: int, reason: int, delay_ms: int
    ) -> tuple[int, int]:
        lease = self.leases.get(number)
        if lease is None or self.subscriptions[lease.subscription].session != session:
            return LEASE_LOST, SETTLED
        offsets = set(range(first, last + 1))
        if not offsets or not offsets <= lease.offsets:
            return LEASE_LOST, SETTLED
        if action == EXTEND:
            longest = lease.granted_ms + self.topics[lease.place[1]].config.lease_max_ms
            lease.deadline_ms = max(lease.deadline_ms, min(self.now_ms + delay_ms, longest))
            return OK, SETTLED
        if action not in (ACK, NACK, REJECT):
            return INVALID, SETTLED
        lease.offsets -= offsets
        if not lease.offsets:
            del self.leases[number]
        self._count(lease, len(offsets))
        # Of a range that ends in several ways, the answer says what became of its last message.
        return OK, [self._settle_one(lease, action, offset, reason, delay_ms) for offset in sorted(offsets)][-1]

    def _settle_one(self, lease: Lease, action: int, offset: int, reason: int, delay_ms: int) -> int:
        if action == ACK:
            del self.entries[lease.place][offset]
            return SETTLED
        if action == NACK:
            return self._fail(lease, offset, reason, delay_ms)
        self.entries[lease.place][offset].failures = max(lease.attempt, self._attempts_max(lease.place))
        return self._die(lease.place, offset)

    def _has_no_try_left(self, place: Place, entry: Entry) -> bool:
        return entry.failures >= self._attempts_max(place) or len(entry.accusers) >= ACCUSERS

    def _attempts_max(self, place: Place) -> int:
        return self.topics[place[1]].config.max_retries + 1

    def _fail(self, lease: Lease, offset: int, reason: int, delay_ms: int) -> int:
        """An attempt failed: another one, or no more."""
        entry = self.entries[lease.place][offset]
        entry.failures = lease.attempt
        if reason == POISON and isinstance(lease.place[0], str):
            entry.accusers |= {self.subscriptions[lease.subscription].member}
        if self._has_no_try_left(lease.place, entry):
            return self._die(lease.place, offset)
        earliest, latest = (delay_ms, delay_ms) if delay_ms else backoff_window(lease.attempt)
        self._retry(entry, earliest, latest, self.subscriptions[lease.subscription].member)
        return REQUEUED

    def _retry(self, entry: Entry, earliest: int, latest: int, avoid: str) -> None:
        entry.state, entry.avoid = RETRYING, avoid
        entry.earliest_ms, entry.latest_ms = self.now_ms + earliest, self.now_ms + latest

    def _die(self, place: Place, offset: int) -> int:
        """To the dead letters, if the topic has any."""
        _, topic, _ = place
        if levels_of(topic)[-1] == "dlq" or not self.topics[topic].config.dead_letters:
            del self.entries[place][offset]
            return DROPPED
        self.entries[place][offset].state = DYING
        self.expected_copies.add((place, offset))
        return DEAD_LETTERED

    def _return(self, number: int, avoid: str) -> None:
        """A lease ends without blame."""
        lease = self._end_lease(number)
        for offset in lease.offsets:
            self._retry(self.entries[lease.place][offset], 0, 0, avoid)

    def _end_lease(self, number: int) -> Lease:
        """Somebody loses a lease and is told so."""
        lease = self.leases.pop(number)
        self.expected_ended.add((self.subscriptions[lease.subscription].session, number))
        return lease

    def _place(self, group: str, topic: str, partition: int) -> tuple[int, Place]:
        canonical = ".".join(levels_of(topic))
        place = (group, canonical, partition)
        if group not in self.groups:
            return NOT_FOUND, place
        status = self._log_status(topic, partition)
        return (GROUP_ERROR if status == OK and place not in self.entries else status), place

    def _log_status(self, topic: str, partition: int) -> int:
        if not is_topic_name(topic):
            return INVALID
        canonical = ".".join(levels_of(topic))
        if canonical not in self.topics:
            return NOT_FOUND
        return OK if 0 <= partition < len(self.topics[canonical].logs) else INVALID

    def commit(self, session: int, request: int, group: str, topic: str, partition: int, offset: int) -> None:
        """Everything below `offset` is done, whoever holds it."""
        status, place = self._place(group, topic, partition)
        if status == OK and offset > self.topics[place[1]].logs[partition].shown:
            status = INVALID
        if status != OK:
            self._refuse(session, request, status)
            return
        for done in [each for each in self.entries[place] if each < offset]:
            del self.entries[place][done]
        for number, lease in list(self.leases.items()):
            if lease.place == place:
                lease.offsets = {each for each in lease.offsets if each >= offset}
                if not lease.offsets:
                    self._end_lease(number)
        self.expected.append((session, request, ("done",)))

    def seek(
        self, session: int, request: int, group: str, topic: str, partition: int, whence: int, value: int, ticket: int
    ) -> None:
        """Whence: 1 earliest, 2 latest, 3 a time, whose offset the broker looks for under `ticket`; else an offset."""
        status, place = self._place(group, topic, partition)
        if status != OK:
            self._refuse(session, request, status)
            return
        log = self.topics[place[1]].logs[partition]
        if whence == 3:
            require(ticket > 0, "a seek by time looks for its offset", place)
            self.seeks[ticket] = (session, request, place, log)
            return
        offset = {1: log.start, 2: log.shown}.get(whence, value)
        if log.start <= offset <= log.shown:
            self._move(session, request, place, offset)
        else:
            self._refuse(session, request, INVALID)

    def _move(self, session: int, request: int, place: Place, offset: int) -> None:
        for number in [number for number, lease in self.leases.items() if lease.place == place]:
            self._end_lease(number)
        log = self.topics[place[1]].logs[place[2]]
        self.entries[place] = {each: Entry() for each in log.messages if each >= offset}
        self.expected_stored.append((session, request, ("sought", offset)))

    def fetch(self, session: int, request: int, topic: str, partition: int, offset: int, wait_ms: int) -> None:
        status = self._log_status(topic, partition)
        if status != OK:
            self._refuse(session, request, status)
            return
        log = self.topics[".".join(levels_of(topic))].logs[partition]
        poll = Poll(session, request, log, offset, self.now_ms + wait_ms)
        self.polls.append(poll)
        if offset < log.shown or wait_ms == 0:
            self._answer_poll(poll)

    def _answer_poll(self, poll: Poll) -> None:
        self.polls.remove(poll)
        answer = ("fetched", max(poll.log.start, poll.offset), poll.log.start, poll.log.shown)
        self.expected.append((poll.session, poll.request, answer))

    def no_such_session(self, session: int, request: int) -> None:
        """A request of a session that is over."""
        self._refuse(session, request, GROUP_ERROR)

    def _refuse(self, session: int, request: int, status: int) -> None:
        self.expected.append((session, request, ("refused", status)))

    def replied(self, session: int, request: int, answer: Answer) -> None:
        self.told.append((session, request, answer))

    def lease_ended(self, session: int, lease: int) -> None:
        self.ended.add((session, lease))

    def session_ended(self, session: int) -> None:
        self.closed.append(session)

    def copy_asked(self, ticket: int, place: Place, offset: int) -> None:
        """A copy for the dead letters: of a message whose tries are used up, or that expired where its topic wants to
        see that, and once."""
        entry = self.entries.get(place, {}).get(offset)
        if (place, offset) in self.expected_copies:
            self.expected_copies.remove((place, offset))
        else:
            used_up = entry is not None and self._has_no_try_left(place, entry) and entry.state == WAITING
            outlived = entry is not None and entry.state in (WAITING, RETRYING) and self._is_expired(place, offset)
            is_due = used_up or (outlived and self._buries_expired(place))
            require(is_due, "only what has no try left goes to the dead letters", place, offset, entry)
        if entry is not None:
            entry.state, entry.ticket = DYING, ticket

    def expired(self, group: str, topic: str, partition: int, first: int, last: int) -> None:
        """The broker gave a group's messages up: allowed once their time to live is over."""
        place = (group, topic, partition)
        for offset in range(first, last + 1):
            entry = self.entries.get(place, {}).get(offset)
            if entry is not None:
                require(entry.state in (WAITING, RETRYING), "nothing that is held expires", place, offset, entry)
                require(self._is_expired(place, offset), "nothing expires before its time", place, offset)
                was_removed = offset not in self.topics[topic].logs[partition].messages
                is_dropped = was_removed or not self._buries_expired(place)
                require(is_dropped, "what expired goes to the dead letters here", place, offset)
                del self.entries[place][offset]

    def _buries_expired(self, place: Place) -> bool:
        """Whether what expires for a reader goes to the dead letters."""
        reader, topic, _ = place
        config = self.topics[topic].config
        has_any = config.dead_letters and levels_of(topic)[-1] != "dlq"
        return isinstance(reader, str) and has_any and config.expired_to_dead_letters

    def _is_expired(self, place: Place, offset: int) -> bool:
        message = self.topics[place[1]].logs[place[2]].messages.get(offset)
        # What retention took from a session's own reading is gone as well.
        return message is None or (message.expires_at_ms != 0 and message.expires_at_ms <= self.wall_ms)

    def delivered(
        self,
        session: int,
        number: int,
        topic: str,
        partition: int,
        lease: int,
        attempt: int,
        deadline_wall_ms: int,
        offsets: list[int],
    ) -> None:
        """A delivery: to somebody who reads this, has credit, and of nothing that anybody of them holds."""
        subscription = self.subscriptions.get(number)
        require(subscription is not None, "only subscribers get messages", number)
        assert subscription is not None
        place = (subscription.reader, topic, partition)
        ring = self._ring(subscription.reader, topic)
        require(subscription.session == session and number in ring, "a delivery follows its route", place, number, ring)
        free = subscription.credit - self.in_flight(number)
        require(len(offsets) <= free, "nobody gets more than their credit", number, offsets, free)
        others = any(each != number and self._has_credit(each) for each in ring) and not self._is_judged(ring)
        for offset in offsets:
            entry = self._deliverable(place, offset, offsets)
            require(attempt == entry.failures + 1, "attempts are counted", place, offset, attempt, entry)
            away = entry.state == RETRYING and entry.avoid == subscription.member != ""
            require(not (away and others), "a retry goes to somebody else if possible", place, offset, number)
            if entry.state == RETRYING or entry.failures:
                self.retried.add(subscription.reader)
            else:
                counts = self.dealt.setdefault(place, {})
                counts[number] = counts.get(number, 0) + 1
        messages = [self.topics[topic].logs[partition].messages.get(offset) for offset in offsets]
        needs_ack = not subscription.auto_ack and any(each is None or each.needs_ack for each in messages)
        require((lease > 0) == needs_ack, "what needs an acknowledgment is leased", place, offsets, lease)
        if needs_ack:
            self._grant(number, place, lease, attempt, deadline_wall_ms, offsets)
        else:
            subscription.unsent += len(offsets)
            for offset in offsets:
                del self.entries[place][offset]

    def _deliverable(self, place: Place, offset: int, together: list[int]) -> Entry:
        entries, log = self.entries[place], self.topics[place[1]].logs[place[2]]
        entry = entries.get(offset)
        require(entry is not None, "nothing settled is sent again", place, offset)
        assert entry is not None
        require(entry.state in (WAITING, RETRYING), "nobody else holds it", place, offset, entry)
        require(offset < log.shown, "nothing is sent before it is stored", place, offset, log.shown)
        message = log.messages.get(offset)
        expired = message is not None and message.expires_at_ms != 0 and message.expires_at_ms <= self.wall_ms
        require(not expired, "nothing is sent after its time", place, offset)
        if entry.state == RETRYING:
            require(entry.earliest_ms <= self.now_ms, "no retry comes early", place, offset, entry, self.now_ms)
        require(not self._has_no_try_left(place, entry), "no try beyond the last", place, offset, entry)
        if entry.state == WAITING and not entry.failures:
            passed = [
                lower
                for lower, each in entries.items()
                if lower < offset and each.state == WAITING and not each.failures and not self._is_expired(place, lower)
            ]
            passed = [lower for lower in passed if lower not in together]
            require(not passed, "first deliveries come in order", place, offset, passed)
        return entry

    def _grant(
        self, number: int, place: Place, lease: int, attempt: int, deadline_wall_ms: int, offsets: list[int]
    ) -> None:
        lease_ms = self.topics[place[1]].config.lease_ms
        require(lease not in self.leases_ever, "a lease's number is never used again", lease)
        require(deadline_wall_ms == self.wall_ms + lease_ms, "a deadline is the lease's", deadline_wall_ms)
        self.leases_ever.add(lease)
        self.leases[lease] = Lease(number, place, set(offsets), attempt, self.now_ms, self.now_ms + lease_ms)
        for offset in offsets:
            self.entries[place][offset].state = LEASED

    def end(self, lsn: int, reading: set[Place]) -> None:
        """The step is over; it wrote frame `lsn`, or none if that is the last one's number.

        `reading` are the places for which the broker waits for its disk.
        """
        if lsn == self.lsn:
            require(self.books() == self.frames[lsn], "nothing durable changes without a frame", lsn)
            self.expected += self.expected_stored
            self.expected_stored = []
        else:
            require(lsn == self.lsn + 1, "one step writes one frame", self.lsn, lsn)
            self.lsn = lsn
            self.frames[lsn] = self.books()
        self.unstored += [(lsn, told) for told in self.expected_stored]
        self.unwritten += [(lsn, told) for told in self.expected_written]
        self.unshown += [(lsn, synced, log, log.end) for synced, log in self.appended]
        self._require_all_answered()
        for place in self.entries:
            self._require_nothing_left_undone(place, reading)
        self._require_fairness()

    def _require_all_answered(self) -> None:
        expected, told = sorted(self.expected, key=repr), sorted(self.told, key=repr)
        require(expected == told, "everyone gets their answer, when it is true", expected, told)
        require(self.expected_ended == self.ended, "who loses a lease is told", self.expected_ended, self.ended)
        require(sorted(self.expected_closed) == sorted(self.closed), "who is shut out is told", self.closed)
        require(not self.expected_copies, "what dies is copied", self.expected_copies)

    def _require_nothing_left_undone(self, place: Place, reading: set[Place]) -> None:
        reader, topic, partition = place
        if not any(self._has_credit(number) for number in self._ring(reader, topic)):
            return
        log = self.topics[topic].logs[partition]
        for offset, entry in self.entries[place].items():
            if offset >= log.shown or self._is_expired(place, offset):
                continue
            late = entry.state == RETRYING and noticed(entry.latest_ms) <= self.now_ms
            fresh = entry.state == WAITING and place not in reading
            require(not late and not fresh, "what can be sent is sent", place, offset, entry, self.now_ms)

    def _require_fairness(self) -> None:
        """While nobody lacks credit, fresh messages are dealt evenly."""
        by_reader: dict[Reader, dict[int, int]] = {}
        rings: dict[Reader, list[list[int]]] = {}
        for (reader, topic, _), counts in self.dealt.items():
            rings.setdefault(reader, []).append(self._ring(reader, topic))
            for number, count in counts.items():
                total = by_reader.setdefault(reader, {})
                total[number] = total.get(number, 0) + count
        for reader, counts in by_reader.items():
            ring = rings[reader][0]
            plain = all(other == ring for other in rings[reader]) and reader not in self.retried
            if plain and all(self._has_credit(number) for number in ring) and not self._is_judged(ring):
                shares = [counts.get(number, 0) for number in ring]
                # Whole batches travel once: a share may end at a batch's end up to an eighth early.
                require(max(shares) - min(shares) <= 1 + max(shares) // 4, "shares are fair", reader, shares)
