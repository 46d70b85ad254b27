"""What an operator is shown: members and their health, how far behind consumers are, and what happened to a message.

Promises  what is shown agrees with what passed at the broker's socket, as far as that tells: members hold at least what
          they were sent and have not settled, and fail as often as they were heard failing (I-HEALTH); a lag is no less
          than what is stored and was never settled, no more than what was published and is not settled, and the level
          follows from it (I-CAPACITY); a message's life has each of its deliveries and settles, and no settle that
          nobody sent (I-LIFE).
Never     expects that what is only on its way was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from dovetail.core import names, wire
from dovetail.core.codes import SettleAction, Status
from dovetail.sim import plan
from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.entries import Hold, Line, LogKey
from dovetail.sim.checkers.ground import SLACK_US, Ground
from dovetail.sim.checkers.readers import Readers

LEVELS = ("normal", "warning", "critical", "overloaded")
OUTCOMES_MIN = 20
"""Fewer than this say nothing about a member."""


class Shown(Struct, frozen=True):
    """What an operator was shown of a member."""

    group: str
    line: int
    health: str
    in_flight: int
    oldest_pending_ms: int
    outcomes: int
    error_percent: int


class Told(Struct, frozen=True):
    """One thing that an operator was told about a message."""

    what: str
    group: str
    attempt: int


class _Conduct:
    """How a member has done, as it was heard."""

    __slots__ = ("failed", "latest", "said_done", "said_failed")

    def __init__(self) -> None:
        self.said_done = 0
        self.said_failed = 0
        self.failed = 0
        """Of that, what the broker has answered."""
        self.latest: dict[int, Hold] = {}
        """Leases of which something was never settled."""


class Looks:
    """Judges what is shown by what was seen."""

    def __init__(self, ground: Ground, readers: Readers, contents: Contents) -> None:
        self._ground = ground
        self._readers = readers
        self._contents = contents
        self._is_wanted = any(isinstance(event, plan.Look) for event in ground.plan.events)
        self._conducts: dict[tuple[int, str], _Conduct] = {}
        self._leased: dict[tuple[str, LogKey, int], list[int]] = {}
        """The attempts at which each group was sent each message, in this life of the broker."""
        self._ended: dict[tuple[str, LogKey, int], list[str]] = {}
        """How each of them was settled, in this life of the broker."""

    # What passes

    def broker_died(self) -> None:
        """Whoever was connected is not, and what happened is in the journal alone."""
        self._conducts.clear()
        self._leased.clear()
        self._ended.clear()

    def delivered(self, hold: Hold | None, message: wire.Deliver) -> None:
        """A delivery under a lease left."""
        if not self._is_wanted or hold is None:
            return
        self.leased(hold)
        for first, last in message.ranges:
            for offset in range(first, last + 1):
                self._leased.setdefault((hold.sub.group, hold.log, offset), []).append(message.attempt)

    def leased(self, hold: Hold | None) -> None:
        """Something is held, which may run out."""
        if self._is_wanted and hold is not None:
            self._conduct(hold).latest[hold.lease] = hold

    def asked(self, hold: Hold | None, item: wire.SettleItem) -> None:
        """A settle came."""
        if self._is_wanted and hold is not None and item.action != SettleAction.EXTEND:
            conduct = self._conduct(hold)
            conduct.said_done += item.action == SettleAction.ACK
            conduct.said_failed += item.action != SettleAction.ACK

    def settled(self, hold: Hold | None, item: wire.SettleItem, outcome: wire.SettleOutcome) -> None:
        """A settle was answered."""
        is_end = outcome.status == Status.OK and item.action != SettleAction.EXTEND
        if not self._is_wanted or hold is None or not is_end:
            return
        conduct = self._conduct(hold)
        conduct.failed += item.action != SettleAction.ACK
        if hold.open <= 0:
            conduct.latest.pop(hold.lease, None)
        word = "settled" if item.action == SettleAction.ACK else "failed"
        for offset in range(item.first, item.last + 1):
            self._ended.setdefault((hold.sub.group, hold.log, offset), []).append(word)

    def _conduct(self, hold: Hold) -> _Conduct:
        return self._conducts.setdefault((hold.line.number, hold.sub.group), _Conduct())

    # What is shown

    def members(self, shown: Sequence[Shown], now_us: int) -> None:
        """The members of a group."""
        for member in shown:
            line = self._ground.lines.get(member.line)
            if line is not None:
                self._member(line, member, now_us)

    def _member(self, line: Line, member: Shown, now_us: int) -> None:
        conduct = self._conducts.get((line.number, member.group), _Conduct())
        holds = [hold for hold in conduct.latest.values() if not hold.sub.over and not hold.given_up]
        is_late = any(hold.is_due(now_us + SLACK_US) for hold in conduct.latest.values())
        is_moved = any(self._is_moved(hold.sub.group, hold.log) for hold in holds)
        if not is_moved and not is_late:
            held = sum(hold.open for hold in holds)
            text = f"{line.name} of {member.group} is shown to hold {member.in_flight}, it was sent {held}"
            self._judge("I-HEALTH", member.in_flight >= held, text)
            oldest_us = max([now_us - hold.granted_us for hold in holds if hold.open > 0], default=0)
            text = f"{line.name}'s oldest is shown as {member.oldest_pending_ms} ms old, it is {oldest_us // 1000}"
            is_so_old = member.oldest_pending_ms * 1000 >= oldest_us - SLACK_US
            self._judge("I-HEALTH", is_so_old or not self._ground.honest, text)
        if is_late or not member.outcomes:
            return
        text = f"{line.name} is shown as {member.health} with {member.error_percent}% errors"
        if not conduct.said_failed:
            self._judge("I-HEALTH", member.error_percent == 0, f"{text}, and never failed")
        if not conduct.said_done and conduct.failed:
            text = f"{text}, and failed {conduct.failed} times of as many"
            self._judge("I-HEALTH", member.error_percent == 100, text)
            self._judge("I-HEALTH", member.outcomes < OUTCOMES_MIN or member.health == "failed", text)

    def _is_moved(self, group: str, log: LogKey) -> bool:
        reader = self._readers.reader(group, log)
        return reader.seeking > 0 or reader.sought_us >= 0

    def capacity(self, topic: str, lag: int, level: str, limit: int, now_us: int) -> None:
        """A topic's lag, and the level that publishers feel; `limit` is what is critical there, 0 for nothing."""
        groups = [
            group
            for group, patterns in self._readers.groups.items()
            if any(names.matches(pattern, topic) for pattern in patterns)
        ]
        logs = [log for log in self._contents.logs if log[0] == topic]
        if not groups or topic in self._excused or any(self._is_moved(group, log) for group in groups for log in logs):
            return
        sent = sum(self._contents.offered.get(topic, {}).values())
        careful = [group for group in groups if group not in self._readers.careless]
        low = max([sum(self._surely_open(group, log, now_us) for log in logs) for group in careful], default=0)
        high = max(sent - sum(self._surely_done(group, log) for log in logs) for group in groups)
        text = f"the lag of {topic} is shown as {lag} and {level}, it is {low} to {high}"
        self._judge("I-CAPACITY", low <= lag <= high, text)
        if limit:
            place = LEVELS.index(level)
            self._judge("I-CAPACITY", low < limit or place >= 2, text)
            self._judge("I-CAPACITY", low < 2 * limit or place == 3, text)
            self._judge("I-CAPACITY", high >= limit * 4 // 5 or place < 2, text)

    @property
    def _excused(self) -> set[str]:
        events = self._ground.plan.events
        return {event.topic for event in events if isinstance(event, plan.DeleteTopic)}

    def _surely_open(self, group: str, log: LogKey, now_us: int) -> int:
        """Messages that are stored, and that a group cannot have settled or buried."""
        known = self._contents.logs[log]
        messages = self._readers.reader(group, log).messages
        count = 0
        for offset, value in known.content.items():
            message = messages.get(offset)
            is_new = message is None or not (message.is_settled or message.failures or message.rejected)
            is_young = message is None or message.hold is None or not message.hold.is_due(now_us)
            if is_new and is_young and offset not in known.excused and value not in self._contents.mortal:
                count += message is None or not message.called_poison
        return count

    def _surely_done(self, group: str, log: LogKey) -> int:
        """Messages that a group has settled in this life of the broker."""
        messages = self._readers.reader(group, log).messages.values()
        return sum(message.acked_us >= 0 and message.acked_life == self._ground.life for message in messages)

    def life(self, log: LogKey, offset: int, told: Sequence[Told]) -> None:
        """What happened to a message, oldest first, as far as it happened where it is now."""
        where = f"{log[0]}:{log[1]}.{log[2]}:{offset}"
        published = sum(event.what in ("published", "delayed") for event in told)
        self._judge("I-LIFE", published <= 1, f"{where} is told to be published {published} times")
        if not published:
            # So long ago that its beginning is no longer remembered.
            return
        for group in self._readers.groups:
            mine = [event for event in told if event.group == group]
            sent = self._leased.get((group, log, offset), [])
            leases = [event.attempt for event in mine if event.what == "leased"]
            text = f"{where} went to {group} at attempts {sent}, it is told: {leases}"
            reader = self._readers.reader(group, log)
            is_moved = self._is_moved(group, log)
            self._judge("I-LIFE", is_moved or Counter(sent) <= Counter(leases), text)
            heard = self._ended.get((group, log, offset), [])
            ends = [event.what for event in mine if event.what in ("settled", "failed")]
            text = f"{where} was {', '.join(heard)} by {group}, it is told: {', '.join(ends)}"
            self._judge("I-LIFE", Counter(heard) <= Counter(ends), text)
            message = reader.messages.get(offset)
            is_known = message is not None and (message.is_settled or message.excused)
            is_free = is_known or is_moved or group in self._readers.careless
            text = f"{where} is told to be settled by {group}, which has not settled it"
            self._judge("I-LIFE", "settled" not in ends or is_free, text)

    def _judge(self, invariant: str, holds: bool, text: str) -> None:
        self._ground.judge(invariant, holds, text)
