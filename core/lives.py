"""What happened to a message, from when it was published: told from the newest steps, and from the journal before them.

Promises  memory is bounded (`HAPPENINGS_MAX`); what is told of a step is what its records and effects say, so it can't
          differ from what was decided; a life goes on where the message goes: to its log when a delay is over, to the
          dead letters, and to where it is replayed.
Never     writes anything: what is neither among the newest steps nor in the journal any more is not told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from dovetail.core import names
from dovetail.core.effects import AnyEffect, Deliver, LeaseEnded
from dovetail.core.ids import Now
from dovetail.core.inputs import AnyInput, Release, Stored
from dovetail.core.intervals import contains
from dovetail.core.journal_format import FormatError, Frame, decode_items, records_of
from dovetail.core.records import (
    AnyRecord,
    AttemptFailed,
    BatchAppended,
    DeadLettered,
    DeadRemoved,
    Expired,
    FailReason,
    FloorReset,
    LogTrimmed,
    Moved,
    Replayed,
    Settled,
    TopicDeleted,
)
from dovetail.core.state import Lease, State

HAPPENINGS_MAX = 20_000
SYNCS_MAX = 4_096
EVENTS_MAX = 1_000
"""Events of one life that are told; of a longer one the last of them."""

Place = tuple[int, int]
"""A log and an offset."""
TOLD = (
    BatchAppended
    | Settled
    | AttemptFailed
    | DeadLettered
    | Expired
    | FloorReset
    | Moved
    | Replayed
    | DeadRemoved
    | LogTrimmed
    | TopicDeleted
)


class Sent(Struct, frozen=True, gc=False):
    """A delivery that needs no acknowledgment."""

    owner: int
    member: str
    log: int
    ranges: tuple[tuple[int, int], ...]


Happening = AnyRecord | Lease | Sent | LeaseEnded | Release


class Event(Struct, frozen=True):
    """One thing that happened to a message, at `at_ms` of the wall clock; 0: when is not known."""

    at_ms: int
    what: str
    place: Place
    group: int = 0
    member: str = ""
    attempt: int = 0
    reason: str = ""
    error: str = ""
    other: Place = (0, 0)
    """Where it went, or came from."""
    lsn: int = 0


class Newest(Struct, frozen=True):
    """What the newest steps did: `(lsn, wall_ms, what)` in order, and when which frame was stored."""

    first_lsn: int
    happenings: tuple[tuple[int, int, Happening], ...]
    syncs: tuple[tuple[int, int], ...]

    def stored_at(self, lsn: int) -> int:
        """When a frame was stored, by the wall clock; 0 if that is not known any more."""
        place = bisect_left(self.syncs, (lsn, 0))
        known = place < len(self.syncs) and (place > 0 or lsn >= self.first_lsn)
        return self.syncs[place][1] if known else 0


class Lives:
    """The newest steps of a node, as far as they were about messages."""

    def __init__(self) -> None:
        self._happenings: deque[tuple[int, int, Happening]] = deque(maxlen=HAPPENINGS_MAX)
        self._syncs: deque[tuple[int, int]] = deque(maxlen=SYNCS_MAX)
        self.first_lsn = 0
        """From this frame on everything is here; what came before is in the journal, if it is anywhere."""

    def observe(
        self,
        state: State,
        now: Now,
        arrived: tuple[AnyInput, ...],
        records: tuple[AnyRecord, ...],
        effects: tuple[AnyEffect, ...],
    ) -> None:
        """Note what one step did; `state` is the one after it."""
        lsn = state.durable.lsn
        ring = self._happenings
        if not self.first_lsn:
            self.first_lsn = lsn if records else lsn + 1
        at_ms = now.wall_ms
        for each in arrived:
            if isinstance(each, Stored):
                self._syncs.append((each.lsn, at_ms))
            elif isinstance(each, Release):
                ring.append((lsn, at_ms, each))
        for record in records:
            if isinstance(record, TOLD):
                ring.append((lsn, at_ms, record))
        for effect in effects:
            if isinstance(effect, Deliver):
                seen = _delivery(state, effect)
                if seen is not None:
                    ring.append((lsn, at_ms, seen))
            elif isinstance(effect, LeaseEnded):
                ring.append((lsn, at_ms, effect))
        if len(ring) == HAPPENINGS_MAX:
            # Of the oldest frame a part may be gone.
            self.first_lsn = ring[0][0] + 1

    def newest(self) -> Newest:
        """The steps from `first_lsn` on, as they are known now."""
        happenings = tuple([each for each in self._happenings if each[0] >= self.first_lsn])
        return Newest(self.first_lsn, happenings, tuple(self._syncs))


def _delivery(state: State, effect: Deliver) -> Lease | Sent | None:
    if effect.lease:
        return state.live.leases.get(effect.lease)
    to = state.live.subscriptions.get(effect.subscription)
    return Sent(to.owner, to.member, effect.log, effect.ranges) if to is not None else None


class Follower:
    """Goes with one message through what happened, and writes down what was about it."""

    def __init__(self, *places: Place) -> None:
        self.places: dict[Place, None] = dict.fromkeys(places)
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.has_beginning = False
        """Whether its being published was among what happened."""
        self._appended: BatchAppended | None = None
        self._moved_to: dict[Place, Place] = {}
        self._leases: dict[int, Lease] = {}
        self._gone: dict[Place, None] = {}

    def see(self, lsn: int, at_ms: int, what: Happening) -> None:
        """The next thing that happened to anything."""
        for event in self._about(at_ms, what):
            self.events.append(replace(event, lsn=lsn))

    def see_frame(self, frame: Frame) -> None:
        """A frame of the journal; one that can't be read is passed over."""
        try:
            records = tuple(records_of(decode_items(frame.body)))
        except FormatError:
            return
        for record in records:
            if isinstance(record, TOLD):
                self.see(frame.lsn, frame.wall_ms, record)

    def see_newest(self, newest: Newest, stored_lsn: int) -> list[Event]:
        """The newest steps, which come last; gives the whole life, with when the message was stored."""
        for lsn, at_ms, what in newest.happenings:
            self.see(lsn, at_ms, what)
        told: list[Event] = []
        for event in self.events:
            told.append(event)
            if event.what in ("published", "delayed") and event.lsn <= stored_lsn:
                told.append(Event(newest.stored_at(event.lsn), "stored", event.place, lsn=event.lsn))
        return told

    def _about(self, at_ms: int, what: Happening) -> Iterator[Event]:
        match what:
            case BatchAppended():
                yield from self._batch(at_ms, what)
            case Settled():
                for place in self._within(what.log, what.first, what.last):
                    self._leases = {number: each for number, each in self._leases.items() if each.owner != what.group}
                    yield Event(at_ms, "settled", place, what.group)
            case AttemptFailed():
                for place in self._within(what.log, what.first, what.last):
                    reason = FailReason(what.reason).name.lower()
                    yield Event(at_ms, "failed", place, what.group, what.member, what.attempt, reason, what.error)
                    self._end_leases(what.group, what.member)
            case DeadLettered():
                for place in self._within(what.log, what.offset, what.offset):
                    reason = FailReason(what.reason).name.lower()
                    dead = (what.dead_log, what.dead_offset)
                    if dead not in self.places:
                        self.places[dead] = None
                        yield Event(at_ms, "published", dead)
                    yield Event(at_ms, "dead_lettered", place, what.group, reason=reason, other=dead)
            case Expired():
                for place in self._within(what.log, what.first, what.last):
                    yield Event(at_ms, "expired", place, what.group)
            case FloorReset():
                for place in list(self.places):
                    if place[0] == what.log and what.floor <= place[1]:
                        yield Event(at_ms, "sought_back", place, what.group)
            case Moved():
                for place in self._within(what.log, what.base, what.base + what.count - 1):
                    yield Event(at_ms, "due", place, other=self._moved_to.get(place, (0, 0)))
            case Replayed():
                yield from self._replayed(at_ms, what)
            case DeadRemoved():
                for place in self._within(what.log, what.first, what.last):
                    self._gone[place] = None
                    yield Event(at_ms, "purged", place)
            case LogTrimmed():
                for place in list(self.places):
                    if place[0] == what.log and place[1] < what.start and place not in self._gone:
                        self._gone[place] = None
                        yield Event(at_ms, "removed", place)
            case Lease():
                for place in self._in_ranges(what.log, what.ranges):
                    self._leases[what.id] = what
                    yield Event(at_ms, "leased", place, what.owner, what.member, what.attempt)
            case Sent():
                for place in self._in_ranges(what.log, what.ranges):
                    yield Event(at_ms, "sent", place, what.owner, what.member)
            case LeaseEnded():
                yield from self._returned(at_ms, what.lease)
            case Release():
                lease = self._leases.get(what.lease)
                if lease is not None and self._within(lease.log, what.first, what.last):
                    yield from self._returned(at_ms, what.lease)
            case _:
                pass

    def _batch(self, at_ms: int, batch: BatchAppended) -> Iterator[Event]:
        self._appended = batch
        origin = (batch.other_log, batch.other_base)
        if batch.other_log and not batch.deliver_at_ms:
            for place in self._within(*origin, origin[1] + batch.count - 1):
                self._moved_to[place] = (batch.log, batch.base + place[1] - batch.other_base)
                self.places[self._moved_to[place]] = None
        for place in self._within(batch.log, batch.base, batch.base + batch.count - 1):
            if batch.deliver_at_ms:
                self.has_beginning = True
                yield Event(at_ms, "delayed", place, reason=str(batch.deliver_at_ms), other=(batch.other_log, -1))
            elif batch.other_log:
                came_from = (batch.other_log, batch.other_base + place[1] - batch.base)
                yield Event(at_ms, "published", place, other=came_from)
            else:
                self.has_beginning = True
                yield Event(at_ms, "published", place)

    def _replayed(self, at_ms: int, done: Replayed) -> Iterator[Event]:
        for place in self._within(done.log, done.offset, done.offset):
            self._gone[place] = None
            copy = self._appended
            # A copy whose original is gone is not appended: then the batch before is another's.
            target = (copy.log, copy.base) if copy is not None and copy.log != done.log else (0, 0)
            if target[0] and target not in self.places:
                self.places[target] = None
                yield Event(at_ms, "published", target)
            yield Event(at_ms, "replayed", place, other=target, reason=str(done.replay))

    def _returned(self, at_ms: int, number: int) -> Iterator[Event]:
        lease = self._leases.pop(number, None)
        if lease is not None:
            for place in self._in_ranges(lease.log, lease.ranges):
                yield Event(at_ms, "given_back", place, lease.owner, lease.member, lease.attempt)

    def _end_leases(self, group: int, member: str) -> None:
        ended = [number for number, each in self._leases.items() if (each.owner, each.member) == (group, member)]
        for number in ended:
            del self._leases[number]

    def _within(self, log: int, first: int, last: int) -> list[Place]:
        return [place for place in self.places if place[0] == log and first <= place[1] <= last]

    def _in_ranges(self, log: int, ranges: tuple[tuple[int, int], ...]) -> list[Place]:
        return [place for place in self.places if place[0] == log and contains(ranges, place[1], place[1])]


def place_name(state: State, place: Place) -> str:
    """A place as people write it: a message id; "" where its topic is gone."""
    log = state.durable.logs.get(place[0])
    if log is None:
        return ""
    topic = state.durable.topics[log.topic]
    if place[1] < 0:
        return topic.name
    return names.message_id(topic.name, log.partition, log.lane if topic.lanes else -1, place[1])
