"""Who may publish how much, and who is refused first.

Promises  a connection publishes no more than its quota, and is refused for it only when it has used it up (I-QUOTA);
          of what comes together for a topic that lags, nothing is refused while less important messages are taken
          (I-FLOW).
Never     knows how much of a quota the broker thinks is left.
"""

from __future__ import annotations

from dovetail.core import wire
from dovetail.core.codes import Priority, Status
from dovetail.sim.checkers.contents import values_of
from dovetail.sim.checkers.entries import ROUNDING_US, Asked, Line
from dovetail.sim.checkers.ground import Ground
from dovetail.sim.checkers.levels import is_throttled

Publish = wire.Produce | wire.Publish


class _Use:
    """What a connection has published."""

    __slots__ = ("begun_us", "pending", "pending_max", "repeated", "taken")

    def __init__(self, begun_us: int) -> None:
        self.begun_us = begun_us
        self.taken = 0
        self.repeated = 0
        """What had been sent before: it was stored then, or it is stored now and counts."""
        self.pending = 0
        self.pending_max = 0
        """What comes in one tick is decided together, and may all be taken by who has not used up the quota yet."""


class Quotas:
    """Every publish, from its request to its answer."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._limit = ground.plan.broker.quota_messages
        self._uses: dict[int, _Use] = {}
        self._refused: dict[tuple[str, int], int] = {}
        """By topic and time of arrival: the most important that was refused for a lag."""

    def asked(self, line: Line, request: Publish, now_us: int) -> None:
        """A publish came."""
        if self._limit:
            use = self._uses.setdefault(line.number, _Use(now_us))
            use.pending += len(values_of(request))
            use.pending_max = max(use.pending_max, use.pending)

    def answered(
        self, line: Line, asked: Asked, request: Publish, answer: wire.Answer | wire.Refusal, now_us: int, again: bool
    ) -> None:
        """It was answered; `again` says that it had been sent before."""
        self._in_turn(asked, request, answer, again)
        use = self._uses.get(line.number)
        if use is None:
            return
        count = len(values_of(request))
        if isinstance(answer, wire.Refusal):
            if answer.status == Status.QUOTA:
                text = f"{line.name} was refused for its quota after {use.taken} messages: {answer.reason}"
                most = use.taken + use.repeated + use.pending - count
                is_due = most >= self._limit and answer.retry_after_ms > 0
                self._ground.judge("I-QUOTA", is_due, text)
        elif again:
            use.repeated += count
        else:
            use.taken += count
            elapsed_us = now_us - use.begun_us + ROUNDING_US
            most = self._limit + self._limit * elapsed_us // 1_000_000 + use.pending_max
            text = f"{line.name} published {use.taken} messages in {elapsed_us // 1000} ms, its quota is {self._limit}"
            self._ground.judge("I-QUOTA", use.taken <= most, text)
        use.pending -= count

    def _in_turn(self, asked: Asked, request: Publish, answer: wire.Answer | wire.Refusal, again: bool) -> None:
        priority = (request.priority if isinstance(request, wire.Produce) else 0) or Priority.NORMAL
        place = (request.topic, asked.at_us)
        refused = self._refused.get(place)
        if isinstance(answer, wire.Refusal):
            if answer.status == Status.BUSY and not is_throttled(answer):
                self._refused[place] = min(priority, refused or priority)
        elif refused is not None and not again:
            text = f"a publish of priority {priority} to {request.topic} was taken while one of {refused} was refused"
            self._ground.judge("I-FLOW", priority <= refused, text)
