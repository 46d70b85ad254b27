"""Who has which partition of a group, as naively as can be: the oracle of partitioned groups.

Beside `spec/model.py`, which follows shared groups alone. A set of members, a plan, a dictionary of who holds what;
everything is worked out anew each time it is asked for. Where a broker is free to choose (which sticky plan, when
within the quiet period) the model is told what was chosen, says `Disagreement` if that was not allowed, and follows it.

A step of the broker is told in this order: `begin`, each input, each thing observed in its order, `end`.

Promises  what it accepts is what `spec/groups.md` says of the life of a partitioned group.
Never     imports anything of the project, or is clever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

TIMER_MS = 10
"""Deadlines are noticed at the first multiple of this at or after them."""
BURST = 10
"""A burst is over after so many quiet periods, whatever still comes."""

Slot = tuple[str, int]
"""Topic, partition: all its lanes."""
Place = tuple[str, int, int]
"""Topic, partition, lane."""
Plan = dict[Slot, str]


class Disagreement(AssertionError):
    """The broker did something that the specification does not allow."""


def require(holds: bool, claim: str, *values: object) -> None:
    """Say what was claimed and with which values it does not hold."""
    if not holds:
        raise Disagreement(f"{claim}: {', '.join(map(repr, values))}")


def noticed(at_ms: int) -> int:
    """When a deadline at `at_ms` is noticed."""
    while at_ms % TIMER_MS:
        at_ms += 1
    return at_ms


def matches(pattern: str, topic: str) -> bool:
    """Whether a subscription reads a topic: plain names, `*` for one level, `#` for all the rest."""
    wanted, levels = pattern.split("."), topic.split(".")
    if wanted[-1] == "#":
        return len(levels) >= len(wanted) - 1 and matches_levels(wanted[:-1], levels[: len(wanted) - 1])
    return matches_levels(wanted, levels)


def matches_levels(wanted: list[str], levels: list[str]) -> bool:
    """The same, level by level."""
    return len(wanted) == len(levels) and all(want in ("*", level) for want, level in zip(wanted, levels, strict=True))


@dataclass
class Member:
    connection: int
    implicit: bool = False
    """Only a SUBSCRIBE made it a member: it goes with its last subscription."""
    returned_until_ms: int = 0
    """It came back on another connection; until then what it had waits for it to subscribe again."""


@dataclass
class Subscription:
    connection: int
    pattern: str
    credit: int


@dataclass
class Lease:
    subscription: int
    place: Place
    offsets: set[int]


@dataclass
class Topic:
    partitions: int
    waiting: dict[Place, set[int]]
    """Offsets that the group has not settled and nobody holds."""
    offsets: dict[Place, set[int]]
    """All there ever were."""


@dataclass
class Asked:
    """A REVOKE that its member has not answered."""

    slots: set[Slot]
    until_ms: int


@dataclass
class Partitions:
    """One partitioned group."""

    strategy: str
    quiet_ms: int
    answer_ms: int
    session_ms: int
    now_ms: int = 0
    generation: int = 0
    plan: Plan = field(default_factory=dict)
    planned: frozenset[str] = frozenset()
    """The members that the newest plan was made for."""
    patterns: list[str] = field(default_factory=list)
    topics: dict[str, Topic] = field(default_factory=dict)
    """In the order in which they were created."""
    unstored: list[tuple[int, Place, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._forget_what_is_not_durable()

    def _forget_what_is_not_durable(self) -> None:
        self.connections: dict[int, tuple[str, int]] = {}
        """Each one's name, and when it was heard of last."""
        self.members: dict[str, Member] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.holders: dict[Slot, str] = {}
        self.asked: dict[str, Asked] = {}
        self.leases: dict[int, Lease] = {}
        self.stirred_ms = self.changed_ms = self.now_ms
        """When anything was said that may concern the plan, and when who reads what changed last."""
        self.wrong_since_ms: int | None = None
        self.first_wrong_ms: int | None = None
        """Since when the plan is not right, and when it first was not since it was made."""
        self.shape = self._shape()
        self._start_step()

    def _start_step(self) -> None:
        self.news: tuple[int, Plan] | None = None
        self.by_hand = False
        self.to_shut: set[int] = set()
        self.to_end: set[tuple[int, int]] = set()
        self.ended: set[tuple[int, int]] = set()
        self.freed: set[Slot] = set()

    def crash(self) -> None:
        """The process ended: nobody is a member, nothing is held; plan, generation and what was settled stay."""
        for lease in self.leases.values():
            self._give_back(lease)
        self.planned = frozenset()
        self.now_ms = 0
        self._forget_what_is_not_durable()

    def begin(self, now_ms: int) -> None:
        """A step at this time."""
        self._start_step()
        self.now_ms = now_ms
        shape = self._shape()
        if shape != self.shape:
            # Somebody who had come back has not subscribed in time.
            self.shape, self.stirred_ms = shape, now_ms
        self._look()

    # What is said to the broker.

    def opened(self, connection: int, name: str) -> None:
        self.connections[connection] = (name, self.now_ms)

    def seen(self, connection: int) -> None:
        if connection in self.connections:
            self.connections[connection] = (self.connections[connection][0], self.now_ms)

    def closed(self, connection: int) -> None:
        """Its socket closed: a membership ends at once."""
        self._forget_connection(connection)
        self._stir()

    def join(self, connection: int, name: str, strategy: str) -> bool:
        """Whether it may: as one member only, with the group's own strategy. To join again is to answer a REVOKE."""
        mine = self._name_of(connection)
        if connection not in self.connections or strategy not in ("", self.strategy) or mine not in ("", name):
            return False
        if not mine:
            self._enter(connection, name, implicit=False)
        self._answered(name)
        self._stir()
        return True

    def _enter(self, connection: int, name: str, *, implicit: bool) -> None:
        before = self.members.get(name)
        if before is None:
            self.members[name] = Member(connection, implicit)
            return
        for number in self._subscriptions_of(before.connection):
            self._detach(number)
        self.to_shut.add(before.connection)
        self.members[name] = Member(connection, implicit, self.now_ms + self.answer_ms)

    def _answered(self, name: str) -> None:
        """What it was asked for is free, and whatever it still held of that waits for the next holder."""
        asked = self.asked.pop(name, None)
        if asked is None:
            return
        connection = self.members[name].connection
        for number, lease in list(self.leases.items()):
            mine = self.subscriptions[lease.subscription].connection == connection
            if mine and lease.place[:2] in asked.slots:
                self._end_lease(number)
        for slot in asked.slots:
            self.holders.pop(slot, None)
        self._free_what_is_not_read()
        self.freed |= asked.slots

    def leave(self, connection: int, name: str) -> bool:
        if self._name_of(connection) != name or not name:
            return False
        self._remove(name)
        self._stir()
        return True

    def remove(self, name: str) -> bool:
        """An operator takes a member out."""
        if name not in self.members:
            return False
        self.to_shut.add(self.members[name].connection)
        self._remove(name)
        self._stir()
        return True

    def subscribe(self, connection: int, number: int, pattern: str, credit: int) -> None:
        if not self._name_of(connection):
            self._enter(connection, f"{self.connections[connection][0]}-{connection}", implicit=True)
        if pattern not in self.patterns:
            self.patterns.append(pattern)
        self.subscriptions[number] = Subscription(connection, pattern, credit)
        self._stir()

    def unsubscribe(self, connection: int, number: int) -> bool:
        if number not in self.subscriptions or self.subscriptions[number].connection != connection:
            return False
        self._detach(number)
        name = self._name_of(connection)
        if name and self.members[name].implicit and not self._subscriptions_of(connection):
            self._remove(name)
        self._stir()
        return True

    def replan(self) -> None:
        """An operator has the plan made now."""
        self.by_hand = True

    def topic_created(self, name: str, partitions: int, lanes: int) -> None:
        places = [(name, partition, lane) for partition in range(partitions) for lane in range(max(1, lanes))]
        self.topics[name] = Topic(partitions, {place: set() for place in places}, {place: set() for place in places})
        self._stir()

    def topic_deleted(self, name: str) -> None:
        """Nobody has its partitions any more, and what was held of it is gone."""
        for number in [each for each, lease in self.leases.items() if lease.place[0] == name]:
            self._end_lease(number)
        for slot in [slot for slot in self.holders if slot[0] == name]:
            del self.holders[slot]
        for member, asked in list(self.asked.items()):
            asked.slots = {slot for slot in asked.slots if slot[0] != name}
            if not asked.slots:
                del self.asked[member]
        del self.topics[name]
        # One that is created under the same name is another topic: nobody had anything of it.
        self.plan = {
            (f"{topic}/" if topic == name else topic, number): had for (topic, number), had in self.plan.items()
        }
        self._stir()

    def published(self, place: Place, offsets: Iterable[int], lsn: int) -> None:
        """Decided with frame `lsn`: nobody may be sent it before that is stored."""
        self.unstored += [(lsn, place, offset) for offset in offsets]

    def stored(self, lsn: int) -> None:
        for _, place, offset in [each for each in self.unstored if each[0] <= lsn and each[1][0] in self.topics]:
            self.topics[place[0]].offsets[place].add(offset)
            self.topics[place[0]].waiting[place].add(offset)
        self.unstored = [each for each in self.unstored if each[0] > lsn]

    def settle(self, connection: int, number: int, offsets: set[int]) -> bool:
        """Whether an ack counts: its sender holds all of it, under that lease."""
        lease = self.leases.get(number)
        if lease is None or self.subscriptions[lease.subscription].connection != connection or not offsets:
            return False
        if not offsets <= lease.offsets:
            return False
        lease.offsets -= offsets
        if not lease.offsets:
            del self.leases[number]
        return True

    def commit(self, connection: int, place: Place, offset: int) -> bool:
        """Whether it counts: it comes from whoever has the partition. Everything below is done then."""
        name = self._name_of(connection)
        if not name or self.holders.get(place[:2]) != name:
            return False
        self.topics[place[0]].waiting[place] -= set(range(offset))
        for number, lease in list(self.leases.items()):
            if lease.place == place:
                lease.offsets -= set(range(offset))
                if not lease.offsets:
                    self._end_lease(number)
        return True

    def seek(self, connection: int, place: Place, offset: int) -> bool:
        """Whether it counts: it comes from whoever has the partition, or from no member."""
        name = self._name_of(connection)
        if name and self.holders.get(place[:2]) != name:
            return False
        for number in [each for each, lease in self.leases.items() if lease.place == place]:
            self._end_lease(number)
        topic = self.topics[place[0]]
        topic.waiting[place] = {each for each in topic.offsets[place] if each >= offset}
        return True

    # What is seen of the broker.

    def planned_anew(self, generation: int, plan: Plan, members: Iterable[str]) -> None:
        """It decided on a plan in this step; that takes effect with the first thing it says under the generation."""
        require(self.news is None, "one plan a step", generation)
        require(frozenset(members) <= frozenset(self.members), "a plan is made for members", members)
        self.news = (generation, dict(plan))
        self.news_members = frozenset(members)

    def _adopt(self) -> None:
        if self.news is None:
            return
        generation, plan = self.news
        self.news = None
        require(generation == self.generation + 1, "each plan raises the generation", self.generation, generation)
        require(self.news_members == frozenset(self.members), "a plan is for all members", self.news_members)
        is_new = plan != self.plan or self.news_members != self.planned
        require(is_new, "there is a plan only if it says something new", plan)
        require(self.is_right(plan, self.plan), "a plan is what its strategy says", self.strategy, plan, self.plan)
        since_ms = self.first_wrong_ms if self.first_wrong_ms is not None else self.now_ms
        is_over = self.now_ms >= min(self.changed_ms + self.quiet_ms, since_ms + BURST * self.quiet_ms)
        require(self.by_hand or is_over, "changes are gathered first", self.now_ms, self.changed_ms, since_ms)
        self.generation, self.plan, self.planned = generation, plan, self.news_members
        self.first_wrong_ms = self.wrong_since_ms = None
        self._free_what_is_not_read()
        self._look()

    def revoked(self, connection: int, generation: int, slots: Iterable[Slot]) -> None:
        """A member is asked for all it should not have, and for nothing else; once at a time."""
        if self.news is not None and generation == self.news[0]:
            self._adopt()
        name = self._name_of(connection)
        require(generation == self.generation, "a REVOKE names the newest generation", generation, self.generation)
        require(name not in self.asked, "a member has one REVOKE to answer at a time", name)
        planned = self._in_force()
        wrong = {slot for slot, holder in self.holders.items() if holder == name and planned.get(slot) != name}
        require(
            set(slots) == wrong, "asked back is what should be elsewhere, all of it and no more", name, slots, wrong
        )
        self.asked[name] = Asked(set(slots), self.now_ms + self.answer_ms)

    def assigned(self, connection: int, generation: int, slots: Iterable[Slot]) -> None:
        """A member is told all it has; what is new in it was free, and is planned for it."""
        if self.news is not None and generation == self.news[0]:
            self._adopt()
        name = self._name_of(connection)
        require(generation == self.generation, "an ASSIGN names the newest generation", generation, self.generation)
        told, planned = set(slots), self._in_force()
        for slot in sorted(told):
            if self.holders.get(slot) != name:
                require(slot not in self.holders, "a partition has one holder at a time", slot, self.holders.get(slot))
                require(planned.get(slot) == name, "a partition goes where it is planned", slot, name)
                self.holders[slot] = name
        mine = {slot for slot in self.holders if self._flows_to(slot) == name}
        require(told == mine, "an ASSIGN is all that a member has", name, told, mine)

    def delivered(
        self, connection: int, number: int, place: Place, lease: int, attempt: int, offsets: Iterable[int]
    ) -> None:
        """To the holder alone, never while the partition is asked back, never what another one holds."""
        name, slot = self._name_of(connection), place[:2]
        require(self._flows_to(slot) == name != "", "only the holder gets messages", slot, name, self.holders.get(slot))
        require(number == self._reader(name, slot[0]), "a delivery goes to the oldest subscription", number, slot)
        waiting = self.topics[slot[0]].waiting[place]
        chosen = set(offsets)
        require(chosen <= waiting, "nothing is sent that is settled or held", place, chosen, waiting)
        require(attempt == 1, "neither leaving nor moving is a failed attempt", place, attempt)
        require(len(chosen) <= self._room(number), "nobody gets more than their credit", number, chosen)
        waiting -= chosen
        require(lease not in self.leases, "a lease has a number of its own", lease)
        self.leases[lease] = Lease(number, place, chosen)

    def lease_ended(self, connection: int, lease: int) -> None:
        self.ended.add((connection, lease))

    def shut(self, connection: int) -> None:
        """The broker ended a connection: another took its place, an operator asked for it, or it was too late."""
        if connection in self.to_shut:
            self.to_shut.remove(connection)
            return
        name = self._name_of(connection)
        if self._is_silent(connection):
            self._forget_connection(connection)
        else:
            asked = self.asked.get(name)
            require(asked is not None and asked.until_ms <= self.now_ms, "nobody is shut out early", name, asked)
            self._remove(name)
        self._stir()

    def end(self, reading: set[Place]) -> None:
        """The step is over, and everything has happened that had to, but for logs in `reading`: the disk is asked."""
        self._adopt()
        require(not self.to_shut, "who loses a place is told", self.to_shut)
        require(self.to_end == self.ended, "who loses a lease is told", self.to_end, self.ended)
        for name, member in self.members.items():
            asked = self.asked.get(name)
            late = asked is not None and noticed(asked.until_ms) <= self.now_ms
            require(not late, "who does not answer a REVOKE is removed", name)
            silent = noticed(self.connections[member.connection][1] + self.session_ms) <= self.now_ms
            require(not silent, "who falls silent is removed", name)
        self._require_the_plan_in_time()
        self._require_what_is_planned()
        self._require_that_what_stays_flows(reading)

    def _require_the_plan_in_time(self) -> None:
        if self.wrong_since_ms is None:
            return
        due_ms = noticed(min(self.stirred_ms + self.quiet_ms, self.wrong_since_ms + BURST * self.quiet_ms))
        require(not self.by_hand, "an operator's plan is made at once", self.plan)
        require(self.now_ms < due_ms, "a plan follows what changed", self.now_ms, due_ms, self.plan, self.members)

    def _require_what_is_planned(self) -> None:
        """At rest a partition is where it is planned, or its holder owes an answer; what is released moves at once."""
        planned = self._in_force()
        for slot in self.freed:
            require(slot not in planned or slot in self.holders, "what is released goes on at once", slot)
        if self.wrong_since_ms is not None or self.now_ms < noticed(self.stirred_ms + self.quiet_ms):
            return
        for slot, name in planned.items():
            holder = self.holders.get(slot, "")
            require(holder == name or holder in self.asked, "a free partition goes to its member", slot, name, holder)
        for slot, holder in self.holders.items():
            require(planned.get(slot) == holder or holder in self.asked, "what moves is asked back", slot, holder)

    def _require_that_what_stays_flows(self, reading: set[Place]) -> None:
        for name in self.topics:
            for place, waiting in self.topics[name].waiting.items():
                holder = self._flows_to(place[:2])
                number = self._reader(holder, name) if holder else 0
                idle = not waiting or place in reading or not number or self._room(number) <= 0
                require(idle, "a partition that is not asked back flows", place, holder, waiting)

    # What follows from the above.

    def is_right(self, plan: Plan, before: Plan) -> bool:
        """Whether a plan is what the strategy says, for those who are members now."""
        readable = [(name, topic.partitions, self._readers(name)) for name, topic in self._read_topics()]
        if self.strategy == "range":
            return plan == in_ranges(readable)
        if self.strategy == "partitioned-round-robin":
            return plan == in_turn(readable)
        return is_sticky(readable, plan, before)

    def _read_topics(self) -> list[tuple[str, Topic]]:
        return [each for each in self.topics.items() if any(matches(pattern, each[0]) for pattern in self.patterns)]

    def _readers(self, topic: str) -> list[str]:
        """Who reads a topic; who has just come back reads what it had."""
        return sorted(
            name
            for name, member in self.members.items()
            if self._reader(name, topic)
            or (
                member.returned_until_ms > self.now_ms
                and not self._subscriptions_of(member.connection)
                and any(slot[0] == topic and had == name for slot, had in self.plan.items())
            )
        )

    def _reader(self, name: str, topic: str) -> int:
        """The oldest subscription of a member that matches; 0 if none does."""
        mine = self._subscriptions_of(self.members[name].connection)
        return min((each for each in mine if matches(self.subscriptions[each].pattern, topic)), default=0)

    def _in_force(self) -> Plan:
        """The plan without the members and topics that are gone."""
        return {slot: name for slot, name in self.plan.items() if name in self.members and self._exists(slot)}

    def _exists(self, slot: Slot) -> bool:
        return slot[0] in self.topics and slot[1] < self.topics[slot[0]].partitions

    def _flows_to(self, slot: Slot) -> str:
        """Who may be sent messages of a partition."""
        holder = self.holders.get(slot, "")
        return "" if holder in self.asked and slot in self.asked[holder].slots else holder

    def _free_what_is_not_read(self) -> None:
        """What should be elsewhere, and is at a member that unsubscribed, need not be asked for."""
        planned = self._in_force()
        for slot, holder in list(self.holders.items()):
            if planned.get(slot) != holder and holder not in self.asked and not self._reader(holder, slot[0]):
                del self.holders[slot]
                self.freed.add(slot)

    def _room(self, number: int) -> int:
        held = sum(len(lease.offsets) for lease in self.leases.values() if lease.subscription == number)
        return self.subscriptions[number].credit - held

    def _name_of(self, connection: int) -> str:
        return next((name for name, member in self.members.items() if member.connection == connection), "")

    def _subscriptions_of(self, connection: int) -> list[int]:
        return [number for number, each in self.subscriptions.items() if each.connection == connection]

    def _is_silent(self, connection: int) -> bool:
        return self.connections[connection][1] + self.session_ms <= self.now_ms

    def _forget_connection(self, connection: int) -> None:
        name = self._name_of(connection)
        if name:
            self._remove(name)
        self.connections.pop(connection, None)

    def _remove(self, name: str) -> None:
        """What a member held waits for others, uncounted; its partitions are free."""
        for number in self._subscriptions_of(self.members[name].connection):
            self._detach(number)
        for slot in [slot for slot, holder in self.holders.items() if holder == name]:
            del self.holders[slot]
        self.asked.pop(name, None)
        del self.members[name]

    def _detach(self, number: int) -> None:
        for lease in [each for each, held in self.leases.items() if held.subscription == number]:
            self._end_lease(lease)
        del self.subscriptions[number]

    def _end_lease(self, number: int) -> None:
        lease = self.leases.pop(number)
        self.to_end.add((self.subscriptions[lease.subscription].connection, number))
        self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        self.topics[lease.place[0]].waiting[lease.place] |= lease.offsets

    def _shape(self) -> object:
        """Everything that a plan depends on."""
        slots = [(name, topic.partitions, self._readers(name)) for name, topic in self._read_topics()]
        return sorted(self.members), [each for each in slots if each[2]]

    def _stir(self) -> None:
        """Something was said that may concern the plan."""
        self.stirred_ms = self.now_ms
        shape = self._shape()
        if shape != self.shape:
            self.shape, self.changed_ms = shape, self.now_ms
        self._look()

    def _look(self) -> None:
        """Whether the plan is still right; after a restart it stands until there is somebody to plan for."""
        stands = frozenset(self.members) == self.planned and (not self.members or self.is_right(self.plan, self.plan))
        if stands:
            self.wrong_since_ms = None
        elif self.wrong_since_ms is None:
            self.wrong_since_ms = self.now_ms
            if self.first_wrong_ms is None:
                self.first_wrong_ms = self.now_ms


Readable = list[tuple[str, int, list[str]]]
"""Topic, number of partitions, who reads it in order of name; topics in order of creation."""


def in_ranges(readable: Readable) -> Plan:
    """Neighbours together, topic by topic; the first members get one more where it does not divide."""
    plan: Plan = {}
    for topic, partitions, readers in readable:
        left = list(range(partitions))
        for place, name in enumerate(readers):
            count = partitions // len(readers) + (place < partitions % len(readers))
            for _ in range(count):
                plan[topic, left.pop(0)] = name
    return plan


def in_turn(readable: Readable) -> Plan:
    """All partitions of all topics dealt around the ring, past those who do not read the topic."""
    ring = sorted({name for _, _, readers in readable for name in readers})
    plan: Plan = {}
    for topic, partitions, readers in readable:
        for partition in range(partitions if readers else 0):
            while ring[0] not in readers:
                ring.append(ring.pop(0))
            plan[topic, partition] = ring[0]
            ring.append(ring.pop(0))
    return plan


def is_sticky(readable: Readable, plan: Plan, before: Plan) -> bool:
    """Whether all that is read is planned, evenly, and no more moved than had to."""
    read = {(topic, partition): readers for topic, count, readers in readable if readers for partition in range(count)}
    if set(plan) != set(read) or any(name not in read[slot] for slot, name in plan.items()):
        return False
    load = {name: sum(holder == name for holder in plan.values()) for readers in read.values() for name in readers}
    if any(load[name] >= load[other] + 2 for slot, name in plan.items() for other in read[slot]):
        return False
    stayed = sum(before.get(slot) == name for slot, name in plan.items())
    return not all(readers == list(load) for readers in read.values()) or stayed == most_that_can_stay(read, before)


def most_that_can_stay(read: dict[Slot, list[str]], before: Plan) -> int:
    """Where everybody reads everything: who had most gets the larger shares, and keeps as much of it as fits."""
    names = next(iter(read.values()), [])
    had = sorted((sum(before.get(slot) == name for slot in read) for name in names), reverse=True)
    return sum(
        min(count, len(read) // len(names) + (place < len(read) % len(names))) for place, count in enumerate(had)
    )
