"""Proofs about plans for partitioned groups: by exhaustion over small ones."""

from __future__ import annotations

from itertools import product

from dovetail.core import assignment
from dovetail.core.assignment import PARTITIONED_STRATEGIES, Readable
from dovetail.proofs.engine import Given, every
from dovetail.proofs.registry import Sabotage, proof

READERS = ((), ("b",), ("a", "b"), ("a", "b", "c"))
SLOTS = ((1,), (1, 2, 3))
HOLDERS = tuple(product(("a", "b", "gone"), repeat=2))
PLANS = "bounded: 2 topics of up to 3 partitions, up to 3 members, every strategy, 9 ways to have held 3 of them"


@proof(
    "I-PLAN",
    about=assignment.plan,
    through=(assignment.in_ranges, assignment.in_turn, assignment.sticky, assignment._even_out),
    scope=PLANS,
    sabotage=Sabotage(assignment.in_turn, "found[slot] = ring[at % len(ring)]", "found[slot] = ring[0]"),
)
def every_partition_has_one_reader_that_reads_it(given: Given) -> bool:
    """Whatever the strategy and whoever held what, each partition that somebody reads is planned for one of those
    who read it, and none that nobody reads; members that read the same differ by one where all read all."""
    strategy = given.choice("strategy", PARTITIONED_STRATEGIES)
    first, second = given.choice("first", READERS), given.choice("second", READERS)
    slots, more = given.choice("slots", SLOTS), given.choice("more", SLOTS)
    topics = (Readable(slots, first), Readable(tuple(slot + 10 for slot in more), second))
    holders = given.choice("holders", HOLDERS)
    found = given.call(assignment.plan, strategy, topics, {1: holders[0], 2: holders[1], 11: holders[0]})
    wanted = {slot: topic.readers for topic in topics for slot in topic.slots if topic.readers}
    loads = [list(found.values()).count(member) for member in first]
    even = strategy == "range" or first != second or not first or max(loads) - min(loads) <= 1
    return every(set(found) == set(wanted), all(found[slot] in wanted[slot] for slot in found), even)


@proof(
    "I-PLAN",
    about=assignment.sticky,
    through=(assignment._even_out,),
    scope="bounded: 1 topic of up to 8 partitions, up to 4 members, one of which held the first few",
    sabotage=Sabotage(assignment._even_out, "load[holder] -= 1", "load[holder] -= 2"),
)
def who_has_a_partition_keeps_it_unless_that_evens_out_the_loads(given: Given) -> bool:
    """Loads differ by one at most, and whoever held more than its share keeps as much of it as that allows."""
    members = ("a", "b", "c", "d")[: given.choice("members", (1, 2, 3, 4))]
    count, had = given.choice("count", range(1, 9)), given.choice("had", range(9))
    slots = tuple(range(1, count + 1))
    found = given.call(assignment.sticky, (Readable(slots, members),), dict.fromkeys(slots[:had], "a"))
    loads = [list(found.values()).count(member) for member in members]
    kept = sum(1 for slot in slots[:had] if found[slot] == "a")
    return max(loads) - min(loads) <= 1 and sum(loads) == count and kept >= min(had, count // len(members))


@proof(
    "I-PLAN",
    about=assignment.in_turn,
    scope="bounded: 3 members, 1 topic of up to 4 partitions that all read and 1 of 3 that some read",
    sabotage=("at = 0", "at = 1"),
)
def the_ring_is_dealt_in_order_past_who_does_not_read(given: Given) -> bool:
    """The first member gets the first partition, each later one goes to the nearest member behind that reads it."""
    members = ("a", "b", "c")
    readers = given.choice("readers", (("c",), ("b", "c"), ("a", "c"), members))
    count = given.choice("count", (1, 2, 3, 4))
    slots, more = tuple(range(count)), (10, 11, 12)
    found = given.call(assignment.in_turn, (Readable(slots, members), Readable(more, readers)))
    expected = {slot: members[slot % 3] for slot in slots}
    turn = count
    for slot in more:
        turn += min((members.index(reader) - turn) % 3 for reader in readers)
        expected[slot] = members[turn % 3]
        turn += 1
    return found == expected
