"""Partitioned groups from one plan to the next: gather, plan, revoke, release, assign.

A slot is a partition with all its lanes, known by the number of its first log. The plan (`Group.shares`) is durable
and raises the generation; tenures say who has a slot right now, and follow the plan: a free slot is taken at once, a
held one is asked back first (REVOKE), and goes on when its holder has answered or is gone.

Promises  a slot has one member at a time (I-TENURE); a slot that stays where it is never pauses; a member has one
          REVOKE to answer at a time; a burst of changes makes one plan; what is held of a slot ends before the slot
          moves (I-FENCE).
Never     decides who is a member, or moves a slot to someone that the plan does not name.
"""

from __future__ import annotations

from enum import StrEnum

from immutables import Map
from msgspec.structs import replace

from dovetail.core import assignment, kernels, leases, timers
from dovetail.core.assignment import Readable
from dovetail.core.effects import Assign, Revoke
from dovetail.core.ids import ordered
from dovetail.core.records import Rebalanced
from dovetail.core.state import Gathering, Group, Log, State, Tenure, Topic
from dovetail.core.turn import Turn

PARTITIONED = "partitioned"
REVOKE_SLOTS_MAX = 0xFFFF
"""Slots in one REVOKE; what is more follows when that one is answered."""

Shares = tuple[tuple[str, tuple[int, ...]], ...]


class GroupState(StrEnum):
    EMPTY = "empty"
    REBALANCING = "rebalancing"
    STABLE = "stable"
    DEAD = "dead"


class GroupEvent(StrEnum):
    JOIN = "a member joins"
    RETURN = "a member comes back on another connection"
    CHANGE = "a topic or a subscription appears or goes"
    LEAVE = "a member leaves, others stay"
    LAST_LEAVE = "the last member leaves"
    OVERDUE = "a revoke is not answered in time, others stay"
    QUIET = "the quiet period ends, something has to be asked back"
    PLACED = "everything planned is where it belongs"
    EXPIRY = "group_expiry passes without members"


_EMPTY, _REBALANCING, _STABLE, _DEAD = GroupState

TRANSITIONS = (
    (_EMPTY, GroupEvent.JOIN, _REBALANCING),
    (_EMPTY, GroupEvent.CHANGE, _EMPTY),
    (_EMPTY, GroupEvent.EXPIRY, _DEAD),
    (_REBALANCING, GroupEvent.JOIN, _REBALANCING),
    (_REBALANCING, GroupEvent.RETURN, _REBALANCING),
    (_REBALANCING, GroupEvent.CHANGE, _REBALANCING),
    (_REBALANCING, GroupEvent.LEAVE, _REBALANCING),
    (_REBALANCING, GroupEvent.LAST_LEAVE, _EMPTY),
    (_REBALANCING, GroupEvent.OVERDUE, _REBALANCING),
    (_REBALANCING, GroupEvent.QUIET, _REBALANCING),
    (_REBALANCING, GroupEvent.PLACED, _STABLE),
    (_STABLE, GroupEvent.JOIN, _REBALANCING),
    (_STABLE, GroupEvent.RETURN, _STABLE),
    (_STABLE, GroupEvent.CHANGE, _REBALANCING),
    (_STABLE, GroupEvent.LEAVE, _REBALANCING),
    (_STABLE, GroupEvent.LAST_LEAVE, _EMPTY),
)
"""A partitioned group's life; cells that are not here can't happen. A shared group is empty or stable, and expires."""


def state_of(state: State, number: int) -> GroupState:
    """Where a group is in its life, as its members and tenures show it."""
    group = state.durable.groups.get(number)
    if group is None:
        return GroupState.DEAD
    if not state.live.rosters.get(number):
        return GroupState.EMPTY
    if group.mode != PARTITIONED:
        return GroupState.STABLE
    tenures = state.live.tenures.get(number) or Map()
    placed = not any(tenure.revoke_by_ms for _, tenure in ordered(tenures))
    if number in state.live.gatherings or not placed:
        return GroupState.REBALANCING
    return GroupState.STABLE


def slot_of(log: Log) -> int:
    """The slot that a log belongs to: the first lane of its partition."""
    return log.id - log.lane


def disturb(turn: Turn, number: int) -> None:
    """Something that the plan depends on may have changed: gather what else comes, then plan anew."""
    group = turn.durable.groups.get(number)
    if group is None or group.mode != PARTITIONED:
        return
    gathering = turn.gatherings.get(number)
    if gathering is not None:
        turn.gatherings[number] = replace(gathering, last_ms=turn.mono_ms)
    elif _differs(group, _shares(turn, group)):
        turn.gatherings[number] = Gathering(turn.mono_ms, turn.mono_ms)
        turn.set_timer(turn.mono_ms + turn.settings.quiet_ms, (timers.GATHER, number, 0))


def fell_quiet(turn: Turn, number: int) -> None:
    """The gather timer fired: plan if the burst is over, else look again when it may be."""
    gathering = turn.gatherings.get(number)
    if gathering is None:
        return disturb(turn, number)
    due_ms = kernels.gathered_ms(gathering.begun_ms, gathering.last_ms, turn.settings.quiet_ms)
    if due_ms > turn.mono_ms:
        return turn.set_timer(due_ms, (timers.GATHER, number, 0))
    return plan_now(turn, number)


def plan_now(turn: Turn, number: int) -> None:
    """Make the plan, under a new generation if it is a new one, and begin to move towards it."""
    turn.gatherings.pop(number, None)
    group = turn.durable.groups[number]
    shares = _shares(turn, group)
    is_new = _differs(group, shares)
    if is_new:
        turn.emit(Rebalanced(number, group.generation + 1, shares, turn.wall_ms))
    _move(turn, number, tell_all=is_new)


def _differs(group: Group, shares: Shares) -> bool:
    """Whether who is there, or who should have what, is not as planned. After a restart nobody is there, but the plan
    stands until there is somebody to plan for."""
    if not shares:
        return group.member_count != 0
    return group.member_count != len(group.shares) or shares != group.shares


def _shares(turn: Turn, group: Group) -> Shares:
    members = sorted(name for _, name in ordered(turn.rosters.get(group.id) or Map()))
    held = _planned(group)
    topics = [_readable(turn, group, topic, held) for topic in _topics_of(turn, group)]
    slots: dict[str, list[int]] = {member: [] for member in members}
    for slot, member in sorted(assignment.plan(group.strategy, topics, held).items()):
        slots[member].append(slot)
    return tuple((member, tuple(slots[member])) for member in members)


def _planned(group: Group) -> dict[int, str]:
    return {slot: member for member, slots in group.shares for slot in slots}


def _topics_of(turn: Turn, group: Group) -> list[Topic]:
    numbers = {number: None for pattern in group.patterns for number in turn.topic_trie.topics_for(pattern)}
    return [turn.durable.topics[number] for number in sorted(numbers)]


def _readable(turn: Turn, group: Group, topic: Topic, held: dict[int, str]) -> Readable:
    """A topic's slots and readers. A member that came back reads what it had until it has had time to subscribe."""
    lanes = max(1, topic.lanes)
    slots = tuple(range(topic.first_log, topic.first_log + topic.log_count, lanes))
    ring = turn.routes.get((group.id, topic.id), ())
    readers = {turn.subscriptions[number].member: None for number in ring}
    for slot in slots:
        member = held.get(slot, "")
        if member and member not in readers and _is_returning(turn, group.id, member):
            readers[member] = None
    return Readable(slots, tuple(sorted(readers)))


def _is_returning(turn: Turn, group: int, name: str) -> bool:
    holder = turn.sessions.get(turn.members_by_name.get(f"{group}/{name}", 0))
    if holder is None or any(turn.subscriptions[each].owner == group for each in holder.subscriptions):
        return False
    return any(each.group == group and each.returned_by_ms > turn.mono_ms for each in holder.members)


def _move(turn: Turn, number: int, *, tell_all: bool) -> None:
    """Go as far towards the plan as can be gone now: take what is free, ask back what is in the wrong hands."""
    group = turn.durable.groups[number]
    planned = _in_force(turn, group)
    tenures: Map[int, Tenure] = turn.tenures.get(number) or Map()
    busy = {tenure.member: None for _, tenure in ordered(tenures) if tenure.revoke_by_ms}
    asked: dict[str, list[int]] = {}
    by_ms = turn.mono_ms + turn.settings.rebalance_answer_ms
    for slot, tenure in ordered(tenures):
        if planned.get(slot) == tenure.member or tenure.member in busy:
            continue
        if not _reads(turn, number, slot, tenure.member):
            # It unsubscribed: nothing of the slot is held, so there is nothing to ask back.
            tenures = tenures.delete(slot)
        elif len(asked.setdefault(tenure.member, [])) < REVOKE_SLOTS_MAX:
            asked[tenure.member].append(slot)
            tenures = tenures.set(slot, replace(tenure, revoke_by_ms=by_ms))
    told: dict[str, None] = {}
    for slot, member in sorted(planned.items()):
        if slot not in tenures:
            tenures = tenures.set(slot, Tenure(member, group.generation))
            told[member] = None
            _wake(turn, number, slot)
    _keep(turn, number, tenures)
    for member, slots in sorted(asked.items()):
        session = turn.members_by_name[f"{number}/{member}"]
        turn.effects.append(Revoke(session, group.name, group.generation, _names(turn, slots)))
        turn.set_timer(by_ms, (timers.REVOKE, number, 0))
    _tell(turn, group, tenures, [member for member, _ in group.shares] if tell_all else sorted(told))


def _in_force(turn: Turn, group: Group) -> dict[int, str]:
    """The plan without members and topics that have gone since it was made: the next plan is on its way."""
    return {
        slot: member
        for member, slots in group.shares
        if f"{group.id}/{member}" in turn.members_by_name
        for slot in slots
        if slot in turn.durable.logs
    }


def _keep(turn: Turn, number: int, tenures: Map[int, Tenure]) -> None:
    if tenures:
        turn.tenures[number] = tenures
    else:
        turn.tenures.pop(number, None)


def _reads(turn: Turn, number: int, slot: int, member: str) -> bool:
    ring = turn.routes.get((number, turn.durable.logs[slot].topic), ())
    return any(turn.subscriptions[each].member == member for each in ring)


def _tell(turn: Turn, group: Group, tenures: Map[int, Tenure], members: list[str]) -> None:
    slots: dict[str, list[int]] = {member: [] for member in members}
    for slot, tenure in ordered(tenures):
        if not tenure.revoke_by_ms and tenure.member in slots:
            slots[tenure.member].append(slot)
    for member in members:
        session = turn.members_by_name.get(f"{group.id}/{member}")
        if session is not None:
            turn.effects.append(Assign(session, group.name, group.generation, _names(turn, slots[member])))


def _names(turn: Turn, slots: list[int]) -> tuple[tuple[str, int], ...]:
    return tuple((turn.topic_of(slot).name, turn.durable.logs[slot].partition) for slot in slots)


def _wake(turn: Turn, number: int, slot: int) -> None:
    for log in range(slot, slot + max(1, turn.topic_of(slot).lanes)):
        turn.wake(number, log)


def answered(turn: Turn, number: int, member: str) -> None:
    """A member has joined again: what it was asked for moves on, and whatever it still held of it is given back."""
    freed = [slot for slot, each in _of_member(turn, number, member) if each.revoke_by_ms]
    if not freed:
        return
    for slot in freed:
        _give_back(turn, number, member, slot)
        _drop(turn, number, slot)
    _move(turn, number, tell_all=False)


def _of_member(turn: Turn, number: int, member: str) -> list[tuple[int, Tenure]]:
    tenures: Map[int, Tenure] = turn.tenures.get(number) or Map()
    return [(slot, each) for slot, each in ordered(tenures) if each.member == member]


def _give_back(turn: Turn, number: int, member: str, slot: int) -> None:
    logs = range(slot, slot + max(1, turn.topic_of(slot).lanes))
    for subscription in turn.teams.get(number, ()):
        if turn.subscriptions[subscription].member == member:
            for lease in sorted(turn.subscriptions[subscription].leases):
                if turn.leases[lease].log in logs:
                    leases.give_back(turn, lease)


def _drop(turn: Turn, number: int, slot: int) -> None:
    tenures = turn.tenures.get(number)
    if tenures is not None and slot in tenures:
        _keep(turn, number, tenures.delete(slot))


def member_gone(turn: Turn, number: int, member: str) -> None:
    """A member left: its slots are free, and taken with the next plan."""
    for slot, _ in _of_member(turn, number, member):
        _drop(turn, number, slot)
    disturb(turn, number)


def topic_gone(turn: Turn, number: int, topic: Topic) -> None:
    """A topic is deleted: nobody has its slots any more."""
    for log in range(topic.first_log, topic.first_log + topic.log_count):
        _drop(turn, number, log)
    disturb(turn, number)


def overdue(turn: Turn, number: int) -> list[str]:
    """The members of a group that have not answered a REVOKE in time."""
    tenures: Map[int, Tenure] = turn.tenures.get(number) or Map()
    late = {each.member for _, each in ordered(tenures) if 0 < each.revoke_by_ms <= turn.mono_ms}
    return sorted(late)
