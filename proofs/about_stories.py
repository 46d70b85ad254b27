"""Proofs about the stories of messages that failed: each offset has its own, and only the latest of it."""

from __future__ import annotations

from itertools import pairwise

from dovetail.core import stories
from dovetail.core.stories import Attempt, Stories, Story
from dovetail.proofs.engine import Given, every, implies, negated, some
from dovetail.proofs.registry import proof
from dovetail.proofs.shapes import within

TOLD = "bounded: up to 2 stories, of 1 or 10 attempts; ends any integers"
OLD, NEW = Attempt("m", 1, 2, 1, "old"), Attempt("n", 3, 4, 2, "new")


def _stories(given: Given) -> Stories:
    found: list[tuple[int, int, Story]] = []
    for place in range(given.choice("stories", range(3))):
        first, last = given.integer(f"first_{place}"), given.integer(f"last_{place}")
        given.assume(first <= last)
        if found:
            given.assume(found[-1][1] < first)
        found.append((first, last, (OLD,) * given.choice(f"length_{place}", (1, stories.TOLD_MAX))))
    return tuple(found)


def _tells(told: Stories, offset: int, story: Story) -> bool:
    """Whether `offset` has this story; an empty one is none."""
    hits = [implies(within(offset, first, last), each == story) for first, last, each in told]
    somewhere = some(False, *(within(offset, first, last) for first, last, _ in told))
    return every(True, *hits, implies(negated(somewhere), story == ()))


def _in_order(told: Stories) -> bool:
    pairs = [left[1] < right[0] for left, right in pairwise(told)]
    return every(True, *(first <= last for first, last, _ in told), *pairs)


@proof(
    "I-STORY", about=stories.tell, through=(stories.forget,), scope=TOLD, sabotage=("story[1 - TOLD_MAX :]", "story")
)
def an_attempt_is_told_for_its_range_alone(given: Given) -> bool:
    """After an attempt each offset of its range has it as the last of its story, which is ten attempts at the most;
    all others have the story they had."""
    before, offset = _stories(given), given.integer("offset")
    first, last = given.integer("first"), given.integer("last")
    given.assume(first <= last)
    after = given.call(stories.tell, before, first, last, NEW)
    possible: tuple[Story, ...] = ((), (OLD,), (OLD,) * stories.TOLD_MAX)
    kept = [_in_order(after)]
    for story in possible:
        had = _tells(before, offset, story)
        inside = within(offset, first, last)
        kept.append(implies(every(had, inside), _tells(after, offset, (*story[1 - stories.TOLD_MAX :], NEW))))
        kept.append(implies(every(had, negated(inside)), _tells(after, offset, story)))
    return every(*kept)


@proof("I-STORY", about=stories.pieces, scope=TOLD, sabotage=("found.append((at, left - 1, ()))", "None"))
def the_pieces_of_a_range_make_up_the_whole(given: Given) -> bool:
    """A range falls into parts that make it up, in order, each with the story that its offsets have."""
    before, offset = _stories(given), given.integer("offset")
    first, last = given.integer("first"), given.integer("last")
    given.assume(first <= last)
    parts = given.call(stories.pieces, before, first, last)
    inside = within(offset, first, last)
    possible: tuple[Story, ...] = ((), (OLD,), (OLD,) * stories.TOLD_MAX)
    told = [implies(every(inside, _tells(before, offset, story)), _tells(parts, offset, story)) for story in possible]
    joined = [left[1] + 1 == right[0] for left, right in pairwise(parts)]
    return every(_in_order(parts), parts[0][0] == first, parts[-1][1] == last, *joined, *told)
