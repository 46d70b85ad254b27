"""What each group knows of each log, and what a seek changes in that.

Promises  between a seek's request and its answer, and where there is no answer, whoever relies on what was settled
          before is excused: it happened at some time in between, or not at all.
Never     judges.
"""

from __future__ import annotations

from dovetail.core import wire
from dovetail.core.codes import Whence
from dovetail.sim.checkers.entries import Asked, Line, LogKey, Reader, Sub
from dovetail.sim.checkers.ground import SLACK_US, Ground

UNKNOWN = 1 << 62
"""Past the end of any log."""


class Readers:
    """Groups and lone sessions, with their view of each log."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.all: dict[tuple[str, str, int, int], Reader] = {}
        self.groups: dict[str, set[str]] = {}
        """Groups that are there for good, and their patterns."""
        self.careless: set[str] = set()
        """Groups with members that acknowledge nothing: what they are sent counts as settled."""
        self.partitioned: set[str] = set()
        """Groups in which each partition belongs to one member."""
        self.key_ordered: set[str] = set()
        """Groups in which the messages of a key are at one member at a time."""
        self.disturbed_us: dict[str, int] = {}
        """When a group last lost a member, or the broker."""

    def reader(self, group: str, log: LogKey) -> Reader:
        """A group's view of a log."""
        key = (group, *log)
        found = self.all.get(key)
        if found is None:
            found = self.all[key] = Reader()
        return found

    def of_topic(self, topic: str) -> list[tuple[str, LogKey]]:
        """Who has a view of a topic's logs."""
        return [(key[0], key[1:]) for key in sorted(self.all) if key[1] == topic]

    def subscribed(self, line: Line, request: wire.Subscribe, number: str, now_us: int) -> None:
        """A subscription stands."""
        group = request.group or f"~{line.number}"
        if request.group:
            self.groups.setdefault(request.group, set()).add(request.pattern)
            if request.auto_ack:
                self.careless.add(request.group)
        self.disturbed_us.setdefault(group, -1)
        line.subs[number] = Sub(line, group, request.pattern, request.max_inflight or 100, request.auto_ack, now_us)
        mode = "auto-ack" if request.auto_ack else ""
        self._ground.rows.member(line, "subscribe", group, topic=request.pattern, mode=mode)

    def end(self, sub: Sub, now_us: int) -> None:
        """A subscription is over."""
        sub.end()
        self.disturbed_us[sub.group] = now_us

    def broker_died(self, now_us: int) -> None:
        """All groups have lost the broker."""
        for group in self.disturbed_us:
            self.disturbed_us[group] = now_us

    def may_hold_unsent(self, group: str, now_us: int) -> bool:
        """Whether a member is so far behind in reading that a lease of its may run out before anything of it is sent:
        that shows on the wire as bytes on their way for as long as a lease lasts."""
        return any(
            sub.group == group and line.behind_until_us >= now_us - SLACK_US
            for line in self._ground.lines.values()
            for sub in line.subs.values()
        )

    def release_credit(self, group: str, log: LogKey) -> None:
        """What members held of a log counts no more: a command took it from them."""
        for line in self._ground.lines.values():
            for sub in line.subs.values():
                if sub.group == group:
                    for lease in [lease for lease, hold in sub.holds.items() if hold.log == log]:
                        del sub.holds[lease]

    def seek_asked(self, line: Line, request: wire.Seek, now_us: int) -> None:
        """A group is to be moved."""
        self._ground.rows.seek(line, "seek asked", request, -1, -1)
        for log in self._ground.moved(request):
            reader = self.reader(request.group, log)
            reader.seeking += 1
            reader.sought_us = now_us
            for message in reader.messages.values():
                message.over = True
            self.release_credit(request.group, log)

    def seek_unanswered(self, request: wire.Seek) -> None:
        """It may have happened or not."""
        for log in self._ground.moved(request):
            reader = self.reader(request.group, log)
            reader.seeking = max(0, reader.seeking - 1)
            for message in reader.messages.values():
                message.excused = True
                message.over = True
            self.release_credit(request.group, log)

    def seek_refused(self, line: Line, request: wire.Seek, asked: Asked) -> None:
        """The broker says that it did not happen."""
        self._ground.rows.seek(line, "seek refused", request, -1, asked.seq)
        self.seek_unanswered(request)

    def sought(self, line: Line, request: wire.Seek, offset: int, asked: Asked, now_us: int) -> None:
        """A group was moved, at some time between question and answer: until now everybody is excused."""
        self._ground.rows.seek(line, "seek", request, offset, asked.seq)
        self._ground.said_durable(asked.at_us)
        *others, told = self._ground.moved(request)
        for log in others:
            # Where a time lies in the other lanes is not told: before the end of all there is.
            is_known = request.whence == Whence.EARLIEST
            self._moved(request.group, log, 0, 0 if is_known else UNKNOWN, asked, now_us)
        self._moved(request.group, told, offset, offset, asked, now_us)

    def commit_asked(self, request: wire.Commit, now_us: int) -> None:
        """A group is to take all before an offset for done: leases on that end, at some time until the answer."""
        log = self._ground.committed(request)
        reader = self.reader(request.group, log)
        reader.seeking += 1
        reader.sought_us = now_us
        self.release_credit(request.group, log)

    def commit_ended(self, request: wire.Commit, now_us: int, *, ok: bool) -> None:
        """It was answered, or will never be: then it may have happened or not."""
        reader = self.reader(request.group, self._ground.committed(request))
        reader.seeking = max(0, reader.seeking - 1)
        reader.sought_us = now_us
        if ok:
            reader.skipped_below = max(reader.skipped_below, request.offset)
        for offset, message in reader.messages.items():
            message.excused = message.excused or offset < request.offset

    def _moved(self, group: str, log: LogKey, first: int, skipped: int, asked: Asked, now_us: int) -> None:
        """A group goes on in a log somewhere from `first` to `skipped`."""
        reader = self.reader(group, log)
        reader.seeking = max(0, reader.seeking - 1)
        reader.skipped_below = skipped
        reader.sought_us = now_us
        self.release_credit(group, log)
        for at, message in reader.messages.items():
            message.over = True
            # Its story begins anew, too.
            message.poisoned.clear()
            message.told = ()
            if at >= first and message.acked_us < asked.at_us:
                # An acknowledgment that came before is undone with the rest: the group is owed all of it again.
                message.perhaps = message.perhaps and message.acked_us < 0
                message.acked_us = -1
                message.dead = 0
                message.rejected = False
                message.excused = True
