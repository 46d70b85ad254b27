"""When a publisher is slowed, and when it is refused, as naively as can be: the oracle of flow control.

Every message is kept with the time it came at; what a group has not settled is a set. A topic is looked at when
somebody publishes to it, at most every 100 ms: its lag is what the group that is furthest behind has not settled, in
percent of the critical limit; where there is a limit in time, also the age of the oldest message that some group has
not settled.

    level       begins at        ends below
    warning     100% (warning)   80%
    critical    100%             80%
    overloaded  200%             160%

From critical on confirms are held back, up to two seconds, and a priority p (1 critical to 5 background) is refused
from 200 - 15 (p - 1) percent on. What is refused is refused in this order: the broker takes nothing; the client's quota
is used up; the broker is throttled and the message is not important enough; the topic is too far behind.

Promises  what it accepts is what DESIGN says of flow control; what is refused has changed nothing.
Never     imports anything of the project, or is clever.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOOK_MS = 100
HELD_MS_MAX = 2_000
THROTTLED_MS = 100
GRAIN_MS = 1_000
"""When a message came is remembered so coarsely: it may be taken for so much older than it is."""
TIMER_MS = 10
FORGOTTEN_LOOKS = 40
"""After so many looks without anything settled nothing is left of the rate at which consumers settle."""
NORMAL = 3
OK, QUOTA, READ_ONLY, BUSY = 0, 2, 7, 9


class Disagreement(AssertionError):
    """The broker slowed or refused somebody whom it should not have, or did not where it should."""


def require(holds: bool, claim: str, *values: object) -> None:
    """Say what was claimed and with which values it does not hold."""
    if not holds:
        raise Disagreement(f"{claim}: {', '.join(map(repr, values))}")


@dataclass
class Topic:
    warning: int
    critical: int
    critical_ms: int
    came_ms: dict[int, int] = field(default_factory=dict)
    """Each message, by its number, and when it came."""
    levels: set[int] = field(default_factory=lambda: {0})
    """What the level may be: the age of a message is known roughly."""
    loads: tuple[int, int] = (0, 0)
    lag: int = 0
    looked_ms: int = -LOOK_MS
    looks_in_vain: int = 0
    """Looks since any group settled anything."""

    @property
    def is_watched(self) -> bool:
        return bool(self.warning or self.critical or self.critical_ms)


@dataclass
class Held:
    """A confirm that is to come."""

    earliest_ms: int
    latest_ms: int


class Pressure:
    """Topics, groups, clients."""

    def __init__(self, quota: int = 0, quota_bytes: int = 0) -> None:
        self.quota, self.quota_bytes = quota, quota_bytes
        self.topics: dict[str, Topic] = {}
        self.unsettled: dict[str, dict[str, set[int]]] = {}
        """Group to what it has not settled of each topic that it reads."""
        self.admitted: dict[str, list[tuple[int, int, int]]] = {}
        """Client to what it was allowed to publish: when, messages, bytes."""
        self.held: dict[int, Held] = {}
        self.began_ms = 0
        self.is_read_only = self.is_throttled = False

    def topic(self, name: str, warning: int, critical: int, critical_ms: int) -> None:
        self.topics[name] = Topic(warning, critical, critical_ms)

    def group(self, name: str, topic: str) -> None:
        """A group reads a topic from its start."""
        self.unsettled.setdefault(name, {})[topic] = set(self.topics[topic].came_ms)

    def settled(self, group: str, topic: str, message: int) -> None:
        self.unsettled[group][topic].discard(message)
        self.topics[topic].looks_in_vain = 0

    def moved_back(self, group: str, topic: str) -> None:
        """The group is to read the topic from its start again."""
        self.unsettled[group][topic] = set(self.topics[topic].came_ms)

    def crashed(self, now_ms: int) -> None:
        """What was known of levels, rates and quotas is gone, and who waits for a confirm hears nothing."""
        for topic in self.topics.values():
            topic.levels, topic.loads, topic.looked_ms, topic.looks_in_vain = {0}, (0, 0), -LOOK_MS, 0
        self.admitted.clear()
        self.held.clear()
        self.began_ms = now_ms
        self.is_read_only = self.is_throttled = False

    def published(
        self,
        now_ms: int,
        client: str,
        name: str,
        priority: int,
        sizes: tuple[int, int],
        answer: tuple[int, int, str],
        request: int,
        messages: list[int],
    ) -> None:
        """A batch of `sizes` (messages, bytes) was offered. The answer is status, retry-after and reason; for a batch
        that was taken it says OK, `messages` are its messages, and the confirm is still to come."""
        status, retry_after_ms, reason = answer
        allowed = self._allowed(now_ms, client, name, priority)
        require(status in allowed, "who is refused, and why", now_ms, client, name, priority, answer, allowed)
        if status != OK:
            require(0 < retry_after_ms <= 10_000 or status == QUOTA, "a refusal says when to try again", answer)
            self._require_a_way_back(now_ms, client, name, status, retry_after_ms, reason)
            return
        topic = self.topics[name]
        self.admitted.setdefault(client, []).append((now_ms, *sizes))
        for message in messages:
            topic.came_ms[message] = now_ms
            for topics in self.unsettled.values():
                if name in topics:
                    topics[name].add(message)
        self.held[request] = self._confirm(now_ms, topic)

    def _require_a_way_back(
        self, now_ms: int, client: str, name: str, status: int, retry_after_ms: int, reason: str
    ) -> None:
        if status == QUOTA:
            later_ms = now_ms + retry_after_ms
            require(self._has_quota(later_ms, client), "the quota is there when it was said", client, retry_after_ms)
            require(not self._has_quota(later_ms - 1, client), "and not much sooner", client, retry_after_ms)
        if status == BUSY and not self.is_throttled:
            require(repr(name) in reason, "a refusal names the topic", reason)

    def _confirm(self, now_ms: int, topic: Topic) -> Held:
        least = THROTTLED_MS if self.is_throttled else 0
        if not topic.is_watched or max(topic.levels) < 2:
            return Held(now_ms + least, now_ms + least)
        stands_still = topic.looks_in_vain >= FORGOTTEN_LOOKS and min(topic.levels) >= 2
        return Held(now_ms + (HELD_MS_MAX if stands_still else least), now_ms + HELD_MS_MAX)

    def confirmed(self, now_ms: int, request: int) -> None:
        held = self.held.pop(request, None)
        require(held is not None, "a confirm comes once", request)
        if held is not None:
            late_ms = held.latest_ms + (TIMER_MS if held.latest_ms % TIMER_MS else 0)
            require(held.earliest_ms <= now_ms <= late_ms, "a confirm is held back as it should be", now_ms, held)

    def overdue(self, now_ms: int) -> None:
        """Nobody waits for a confirm for longer than allowed."""
        late = {request: held for request, held in self.held.items() if held.latest_ms + TIMER_MS <= now_ms}
        require(not late, "every confirm comes", now_ms, late)

    def _allowed(self, now_ms: int, client: str, name: str, priority: int) -> set[int]:
        """What the answer may be."""
        if self.is_read_only:
            return {READ_ONLY}
        if not self._has_quota(now_ms, client):
            return {QUOTA}
        if self.is_throttled and priority > NORMAL:
            return {BUSY}
        topic = self.topics[name]
        if not topic.is_watched:
            return {OK}
        self._look(now_ms, name)
        limit = 200 - 15 * (priority - 1)
        low, high = topic.loads
        answers = set()
        if min(topic.levels) < 2 or low < limit:
            answers.add(OK)
        if max(topic.levels) >= 2 and high >= limit:
            answers.add(BUSY)
        return answers

    def _look(self, now_ms: int, name: str) -> None:
        topic = self.topics[name]
        if now_ms - topic.looked_ms < LOOK_MS:
            return
        topic.looked_ms = now_ms
        topic.looks_in_vain += 1
        behind = [topics[name] for topics in self.unsettled.values() if name in topics]
        topic.lag = max(map(len, behind), default=0)
        by_lag = percent(topic.lag, topic.critical)
        oldest_ms = min((topic.came_ms[each] for left in behind for each in left), default=now_ms)
        # A broker that was started again does not know when what it found came.
        least = percent(now_ms - oldest_ms, topic.critical_ms) if oldest_ms > self.began_ms else 0
        most = percent(now_ms - oldest_ms + GRAIN_MS, topic.critical_ms) if oldest_ms < now_ms else least
        topic.loads = max(by_lag, least), max(by_lag, most)
        warning = percent(topic.lag, topic.warning)
        loads = range(topic.loads[0], topic.loads[1] + 1)
        topic.levels = {level_after(level, load, warning) for level in topic.levels for load in loads}

    def _has_quota(self, now_ms: int, client: str) -> bool:
        """Since no moment was more admitted than one second's worth and what the time since then brings."""
        admitted = self.admitted.get(client, []) if self.quota or self.quota_bytes else []
        for place, (since_ms, _, _) in enumerate(admitted):
            messages = sum(count for _, count, _ in admitted[place:])
            size = sum(each for _, _, each in admitted[place:])
            for limit, used in ((self.quota, messages), (self.quota_bytes, size)):
                if limit and used * 1000 >= limit * 1000 + limit * (now_ms - since_ms):
                    return False
        return True


def percent(part: int, whole: int) -> int:
    """Rounded down; 0 where there is no limit."""
    return part * 100 // whole if whole else 0


def level_after(level: int, load: int, warning: int) -> int:
    """A level begins at its limit and ends at four fifths of it."""
    found = 0
    for number, begins, reached in ((1, 100, warning), (2, 100, load), (3, 200, load)):
        if reached >= (begins * 4 // 5 if level >= number else begins):
            found = number
    return found
