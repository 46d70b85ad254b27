"""Subscribers without a group: each gets everything from its first message on, or is told what it missed.

Promises  whatever is published after its subscription stands comes to it, in order and without a gap, but for what is
          past its time to live, deleted or lost by a repair; where it is too far behind, what was skipped is exactly
          what it was told, and it was further behind than it may be (I-LAG).
Never     judges those who acknowledge by hand: what they get follows their acknowledgments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dovetail.core import names
from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.entries import Line, LogKey, Sub, parse_id
from dovetail.sim.checkers.ground import Ground

_SKIPPED = re.compile(r"subscription (\S+) is too far behind: (\S+) to (\d+) were skipped")


class Fanout:
    """Who is to get what next."""

    def __init__(self, ground: Ground, contents: Contents) -> None:
        self._ground = ground
        self._contents = contents

    def confirmed(self, log: LogKey, base: int, asked_us: int) -> None:
        """What was asked for after a subscription stood is the subscriber's, too."""
        for sub in self._alone():
            if sub.since_us <= asked_us and log not in sub.following and names.matches(sub.pattern, log[0]):
                sub.following[log] = base

    def delivered(self, sub: Sub, log: LogKey, ranges: Iterable[tuple[int, int]]) -> None:
        """Something was sent to a subscriber."""
        if sub.is_alone:
            for first, last in ranges:
                missed = next(self._missed(sub, log, sub.following.get(log, first), first), None)
                text = f"{sub.line.name} was sent {log} from {first} on, and never offset {missed}"
                self._ground.judge("I-LAG", missed is None, text)
                sub.following[log] = max(sub.following.get(log, 0), last + 1)

    def skipped(self, line: Line, text: str) -> None:
        """A subscriber is told that it missed something."""
        found = _SKIPPED.match(text)
        sub = line.subs.get(found[1]) if found is not None else None
        if found is None or sub is None:
            return self._ground.judge("I-LAG", False, f"{line.name} was told: {text}")
        log, first = parse_id(found[2])
        last, following = int(found[3]), sub.following.get(log, first)
        behind = last - following + 1
        limit = self._ground.plan.broker.ephemeral_lag_max
        text = f"{line.name} was said to be too far behind in {log} with {behind} messages of {limit}"
        # What comes before that may still be read from the disk, and is sent after this.
        sub.jumps.setdefault(log, []).append((first, last))
        return self._ground.judge("I-LAG", behind > limit // 2, text)

    def left(self) -> list[str]:
        """What somebody still waits for, in words."""
        left = []
        for sub in self._alone():
            for log, following in sorted(sub.following.items()):
                known = self._contents.logs.get(log)
                end = max(known.content, default=-1) + 1 if known is not None else 0
                missed = next(self._missed(sub, log, following, end), None)
                if missed is not None:
                    left.append(f"{sub.line.name}, who has no group, was not sent offset {missed} of {log}")
        return left

    def _alone(self) -> Iterator[Sub]:
        for line in self._ground.lines.values():
            for sub in line.subs.values():
                if sub.is_alone:
                    yield sub

    def _missed(self, sub: Sub, log: LogKey, first: int, end: int) -> Iterator[int]:
        """Offsets that are known, that the subscriber was not told of, and that nothing excuses."""
        known, jumps = self._contents.log(log), sub.jumps.get(log, ())
        for offset in range(max(first, known.gone_below), end):
            value = known.content.get(offset)
            if value is None or offset in known.excused or any(low <= offset <= high for low, high in jumps):
                continue
            if not self._contents.may_be_over(value):
                yield offset
