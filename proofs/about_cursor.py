"""Proofs about one group's place in one log."""

from __future__ import annotations

from dovetail.core import cursor as cursors
from dovetail.proofs.engine import Given, every, implies, negated, some, unchanged
from dovetail.proofs.registry import ALL, Sabotage, proof
from dovetail.proofs.shapes import (
    ISLANDS_MAX,
    RUNS_MAX,
    cursor,
    is_apart,
    is_in,
    is_settled,
    is_well_formed,
    same,
    value_at,
    within,
)

CURSORS = f"bounded: up to {ISLANDS_MAX} islands and {RUNS_MAX} runs of attempts, any integers in them"


@proof("I-FLOOR", about=cursors.next_floor, scope=ALL, sabotage=("first <= floor", "first <= floor + 1"))
def the_floor_passes_an_island_that_touches_it(given: Given) -> bool:
    """The floor moves to the end of the lowest island when that reaches it, and stays when there is a gap."""
    floor, first, last = given.integer("floor"), given.integer("first"), given.integer("last")
    moved = given.call(cursors.next_floor, floor, first, last)
    return every(implies(first <= floor, moved == last + 1), implies(first > floor, moved == floor))


@proof(
    "I-FLOOR",
    about=cursors.settle,
    through=(cursors.next_floor,),
    scope=CURSORS,
    sabotage=("max(first, cursor.floor)", "first"),
)
def settling_never_moves_the_floor_back(given: Given) -> bool:
    """Whatever range is settled, also one that was settled before, the floor moves forward or stays."""
    before = cursor(given)
    return given.call(cursors.settle, before, given.integer("first"), given.integer("last")).floor >= before.floor


@proof(
    "I-INTERVALS",
    about=cursors.settle,
    through=(cursors.next_floor,),
    scope=CURSORS,
    sabotage=("islands = islands[1:]", "islands = islands"),
)
def a_settled_cursor_is_well_formed(given: Given) -> bool:
    """After a settle, islands lie above the floor and apart, and attempts are of unsettled offsets alone."""
    before = cursor(given)
    return is_well_formed(given.call(cursors.settle, before, given.integer("first"), given.integer("last")))


@proof(
    "I-FLOOR",
    about=cursors.settle,
    through=(cursors.next_floor,),
    scope=CURSORS,
    sabotage=("floor=last + 1", "floor=last + 2"),
)
def settling_settles_exactly_the_range(given: Given) -> bool:
    """After a settle, what was settled and the range are settled, and nothing else."""
    before = cursor(given)
    first, last, offset = given.integer("first"), given.integer("last"), given.integer("offset", 0)
    after = given.call(cursors.settle, before, first, last)
    return same(is_settled(after, offset), some(is_settled(before, offset), within(offset, first, last)))


@proof(
    "I-ATTEMPTS",
    about=cursors.settle,
    scope=CURSORS,
    sabotage=("not cursor.islands and not cursor.attempts", "not cursor.islands"),
)
def settling_keeps_the_attempts_of_the_rest(given: Given) -> bool:
    """A settle forgets the attempts of its range and of nothing else."""
    before = cursor(given)
    first, last = given.integer("first"), given.integer("last")
    offset, said = given.integer("offset", 0), given.integer("said", 0)
    after = given.call(cursors.settle, before, first, last)
    settled = every(within(offset, first, last), offset >= before.floor)
    return every(
        implies(settled, value_at(after.attempts, offset, 0)),
        implies(
            every(negated(settled), value_at(before.attempts, offset, said)), value_at(after.attempts, offset, said)
        ),
    )


@proof(
    "I-ATTEMPTS",
    about=cursors.fail,
    through=(cursors.unsettled,),
    scope=CURSORS,
    sabotage=Sabotage(cursors.unsettled, "max(first, cursor.floor)", "first"),
)
def a_failure_is_remembered_for_what_is_unsettled(given: Given) -> bool:
    """A failed attempt is written over the unsettled offsets of its range, and over nothing else."""
    before = cursor(given)
    first, last, attempt = given.integer("first"), given.integer("last"), given.integer("attempt", 1)
    offset, said = given.integer("offset", 0), given.integer("said", 0)
    after = given.call(cursors.fail, before, first, last, attempt)
    failed = every(within(offset, first, last), negated(is_settled(before, offset)))
    return every(
        implies(failed, value_at(after.attempts, offset, attempt)),
        implies(
            every(negated(failed), value_at(before.attempts, offset, said)), value_at(after.attempts, offset, said)
        ),
    )


@proof(
    "I-FLOOR",
    about=cursors.fail,
    through=(cursors.unsettled,),
    scope=CURSORS,
    sabotage=("attempts=attempts", "attempts=attempts, floor=cursor.floor + 1"),
)
def a_failure_settles_nothing(given: Given) -> bool:
    """A failed attempt leaves floor and islands as they are, and the cursor well-formed."""
    before = cursor(given)
    after = given.call(cursors.fail, before, given.integer("first"), given.integer("last"), given.integer("attempt", 1))
    return every(after.floor == before.floor, unchanged(after.islands, before.islands), is_well_formed(after))


@proof("I-FLOOR", about=cursors.unsettled, scope=CURSORS, sabotage=("max(first, cursor.floor)", "first"))
def unsettled_is_the_opposite_of_settled(given: Given) -> bool:
    """The unsettled parts of a range are its offsets that are neither below the floor nor on an island."""
    found = cursor(given)
    first, last, offset = given.integer("first"), given.integer("last"), given.integer("offset", 0)
    parts = given.call(cursors.unsettled, found, first, last)
    wanted = every(within(offset, first, last), negated(is_settled(found, offset)))
    return every(is_apart(parts), same(is_in(parts, offset), wanted))


@proof("I-FLOOR", about=cursors.is_settled, scope=CURSORS, sabotage=("offset < cursor.floor", "offset <= cursor.floor"))
def is_settled_agrees_with_its_definition(given: Given) -> bool:
    """An offset is settled when it is below the floor or on an island."""
    found, offset = cursor(given), given.integer("offset")
    return same(given.call(cursors.is_settled, found, offset), is_settled(found, offset))


@proof("I-FLOOR", about=cursors.reset, scope=CURSORS, sabotage=("islands=()", "islands=cursor.islands"))
def a_reset_forgets_everything_from_its_floor_on(given: Given) -> bool:
    """After a reset exactly what lies below the new floor is settled, and no attempt is remembered."""
    before, floor, offset = cursor(given), given.integer("to", 0), given.integer("offset", 0)
    after = given.call(cursors.reset, before, floor)
    return every(is_well_formed(after), same(is_settled(after, offset), offset < floor), after.attempts == ())
