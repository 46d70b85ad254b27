"""Which member of a partitioned group gets which partition: pure plans, one function per strategy.

Promises  every partition that somebody reads is planned for exactly one of its readers (I-PLAN); the same arguments
          give the same plan, whatever order members came in; the sticky plan moves a partition only if its holder no
          longer reads it, or if the move evens out the loads.
Never     knows a lease, a clock or who is connected: moving from one plan to the next is `rebalance`'s work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from msgspec import Struct

from dovetail.core.kernels import evens_out, share

RANGE = "range"
PARTITIONED_ROUND_ROBIN = "partitioned-round-robin"
STICKY = "sticky"
COOPERATIVE_STICKY = "cooperative-sticky"
PARTITIONED_STRATEGIES = (RANGE, PARTITIONED_ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)

Plan = dict[int, str]
"""Slot to member. A slot is a partition, by the number of its first log."""


class Readable(Struct, frozen=True, gc=False):
    """One topic's slots in order of partition, and the members that read it, in order of member id."""

    slots: tuple[int, ...]
    readers: tuple[str, ...]


def plan(strategy: str, topics: Sequence[Readable], held: Mapping[int, str]) -> Plan:
    """Who gets which slot; `held` says who had which, for those strategies that care."""
    match strategy:
        case "range":
            return in_ranges(topics)
        case "partitioned-round-robin":
            return in_turn(topics)
        case _:
            # Every move between plans is cooperative here, so both sticky strategies have one plan.
            return sticky(topics, held)


def in_ranges(topics: Sequence[Readable]) -> Plan:
    """Topic by topic, neighbouring partitions together: partition 3 of two topics tends to be at one member."""
    found: Plan = {}
    for topic in topics:
        slots = iter(topic.slots)
        for place, member in enumerate(topic.readers):
            count = share(len(topic.slots), len(topic.readers), place)
            found.update(dict.fromkeys(islice(slots, count), member))
    return found


def in_turn(topics: Sequence[Readable]) -> Plan:
    """All partitions of all topics dealt one by one around the ring of members, skipping those who do not read it."""
    ring = _everybody(topics)
    found: Plan = {}
    at = 0
    for topic in topics:
        readers = frozenset(topic.readers)
        for slot in topic.slots if readers else ():
            while ring[at % len(ring)] not in readers:
                at += 1
            found[slot] = ring[at % len(ring)]
            at += 1
    return found


def sticky(topics: Sequence[Readable], held: Mapping[int, str]) -> Plan:
    """What was held stays where it can; the rest fills up the least loaded; then loads are evened out move by move."""
    load = dict.fromkeys(_everybody(topics), 0)
    found: Plan = {}
    for topic in topics:
        for slot in topic.slots:
            holder = held.get(slot)
            if holder is not None and holder in topic.readers:
                found[slot] = holder
                load[holder] += 1
    for topic in topics:
        for slot in topic.slots if topic.readers else ():
            if slot not in found:
                found[slot] = _least_loaded(topic.readers, load)
                load[found[slot]] += 1
    # First from those who have more than anybody needs to: whoever gave to less would have to be given to again.
    _even_out(topics, found, load, above=-(-len(found) // max(1, len(load))))
    while _even_out(topics, found, load):
        """Every move lowers the sum of the squared loads, so this ends."""
    return found


def _even_out(topics: Sequence[Readable], found: Plan, load: dict[str, int], above: int = 0) -> bool:
    """One pass over all slots of members that have more than `above`; whether anything moved."""
    moved = False
    for topic in topics:
        if not topic.readers:
            continue
        least = _least_loaded(topic.readers, load)
        # From the end, so that a member's lowest partitions, the longest held, are the last to go.
        for slot in reversed(topic.slots):
            holder = found[slot]
            if load[holder] > above and evens_out(load[holder], load[least]):
                found[slot] = least
                load[holder] -= 1
                load[least] += 1
                least = _least_loaded(topic.readers, load)
                moved = True
    return moved


def _least_loaded(readers: Sequence[str], load: Mapping[str, int]) -> str:
    return min(readers, key=lambda member: (load[member], member))


def _everybody(topics: Sequence[Readable]) -> list[str]:
    return sorted({member for topic in topics for member in topic.readers})
