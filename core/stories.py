"""The story of a message that failed: who tried it, when, and why that did not work; and the rules that call it poison.

Promises  kept for unsettled offsets only, at most `TOLD_MAX` attempts each (I-STORY).
Never     counts: how often a message failed is its cursor's business.
"""

from __future__ import annotations

from msgspec import Struct

from dovetail.core import intervals
from dovetail.core.records import FailReason, TopicConfig

TOLD_MAX = 10
ERROR_CHARS_MAX = 500


class Attempt(Struct, frozen=True, gc=False):
    """One try that failed: at which member, from when to when (wall clock), and why."""

    member: str
    delivered_ms: int
    ended_ms: int
    reason: int
    error: str


Story = tuple[Attempt, ...]
Stories = tuple[tuple[int, int, Story], ...]
"""`(first, last, story)`, sorted and disjoint."""


def tell(stories: Stories, first: int, last: int, attempt: Attempt) -> Stories:
    """The stories after another attempt at `first..last` failed."""
    told: list[tuple[int, int, Story]] = []
    at = first
    for left, right, story in stories:
        if right < first or left > last:
            continue
        left, right = max(left, first), min(right, last)
        if at < left:
            told.append((at, left - 1, (attempt,)))
        told.append((left, right, (*story[1 - TOLD_MAX :], attempt)))
        at = right + 1
    if at <= last:
        told.append((at, last, (attempt,)))
    return tuple(sorted((*forget(stories, first, last), *told), key=_first))


def forget(stories: Stories, first: int, last: int) -> Stories:
    """The stories without `first..last`, which needs none any more."""
    return intervals.clip(stories, first, last) if stories else stories


def pieces(stories: Stories, first: int, last: int) -> Stories:
    """`first..last` in parts of one story each, which is empty where there is none."""
    found: list[tuple[int, int, Story]] = []
    at = first
    for left, right, story in stories:
        if right < first or left > last:
            continue
        left, right = max(left, first), min(right, last)
        if at < left:
            found.append((at, left - 1, ()))
        found.append((left, right, story))
        at = right + 1
    if at <= last:
        found.append((at, last, ()))
    return tuple(found)


def poison_rule(story: Story, config: TopicConfig, wall_ms: int) -> str:
    """The name of the rule that calls a message poison; empty while none does."""
    by_poison = {attempt.member for attempt in story if attempt.reason == FailReason.POISON}
    if config.poison_members and len(by_poison) >= config.poison_members:
        return f"called poison by {len(by_poison)} members"
    by_timeout = {attempt.member for attempt in story if attempt.reason == FailReason.TIMEOUT}
    if config.poison_timeouts and len(by_timeout) >= config.poison_timeouts:
        return f"timed out at {len(by_timeout)} members"
    recent = [attempt for attempt in story if wall_ms - attempt.ended_ms <= config.poison_window_ms]
    if config.poison_failures and len(recent) >= config.poison_failures:
        return f"failed {len(recent)} times within {config.poison_window_ms} ms"
    return ""


def _first(item: tuple[int, int, Story]) -> int:
    return item[0]
