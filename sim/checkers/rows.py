"""What the trace is told of what passed at the broker's socket (`spec/trace.md`).

Promises  what passed is noted before it is judged: the last row tells what was wrong. Messages are told apart by
          numbers, in the order in which their bytes were first seen.
Never     judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dovetail.core import wire
from dovetail.core.codes import Outcome, SettleAction, Status, Wait
from dovetail.sim.checkers.entries import Asked, Hold, Line, LogKey, Sub

Note = Callable[..., int]


class Rows:
    """Writes rows; `note` adds one to the trace and gives its number."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._numbers: dict[bytes, int] = {}
        """Every value that was ever seen, numbered as they came."""
        self.seq = -1
        """The last row."""

    def note(self, actor: str, kind: str, **columns: Any) -> None:
        """Add a row to the trace."""
        self.seq = self._note(actor, kind, **columns)

    def number(self, value: bytes) -> int:
        """What the trace calls a message's bytes."""
        return self._numbers.setdefault(value, len(self._numbers))

    def numbers(self, values: Iterable[bytes]) -> tuple[int, ...]:
        """What the trace calls each of them."""
        return tuple(map(self.number, values))

    def member(self, line: Line, kind: str, group: str, **columns: Any) -> None:
        """A member, or a subscriber, comes or goes."""
        self.note(line.name, kind, group=group, member=line.name, connection=line.number, **columns)

    def partitions(self, line: Line, kind: str, message: wire.Revoke | wire.Assign) -> None:
        """A row for each partition; one without any when there is none."""
        for each in message.partitions or (wire.TopicPartition("", -1),):
            self.note(
                line.name,
                kind,
                topic=each.topic,
                partition=each.partition,
                group=message.group,
                member=line.name,
                generation=message.generation,
                connection=line.number,
            )

    def publish(
        self, line: Line, topic: str, values: Sequence[bytes], mode: str, latency_us: int, deadline_us: int
    ) -> None:
        """Messages came to be published."""
        self.note(
            line.name,
            "publish",
            topic=topic,
            first=0,
            last=len(values) - 1,
            latency_us=latency_us,
            connection=line.number,
            deadline_us=deadline_us,
            mode=mode,
            values=self.numbers(values),
        )

    def delayed(
        self, line: Line, topic: str, values: Sequence[bytes], mode: str, asked: Asked, now_us: int, due_us: int
    ) -> None:
        """Delayed messages were confirmed."""
        self.note(
            line.name,
            "delayed",
            topic=topic,
            first=0,
            last=len(values) - 1,
            latency_us=now_us - asked.at_us,
            connection=line.number,
            deadline_us=due_us,
            asked=asked.seq,
            mode=mode,
            values=self.numbers(values),
        )

    def confirm(
        self, line: Line, log: LogKey, base: int, values: Sequence[bytes], mode: str, asked: Asked, now_us: int
    ) -> None:
        """Messages were confirmed."""
        self.note(
            line.name,
            "confirm",
            topic=log[0],
            partition=log[1],
            lane=log[2],
            first=base,
            last=base + len(values) - 1,
            latency_us=now_us - asked.at_us,
            connection=line.number,
            asked=asked.seq,
            mode=mode,
            values=self.numbers(values),
        )

    def refused(self, line: Line, asked: Asked, reason: str, now_us: int) -> None:
        """A request that is not a settle was refused."""
        detail = f"{asked.request.TYPE.name}: {reason}"
        self.note(line.name, "refused", detail=detail, connection=line.number, latency_us=now_us - asked.at_us)

    def delivery(
        self,
        line: Line,
        sub: Sub | None,
        log: LogKey,
        span: tuple[int, int],
        lease: tuple[int, int, int],
        values: tuple[int, ...],
        latency_us: int,
    ) -> None:
        """One range was delivered; `lease` is its number, its attempt, and its deadline."""
        number, attempt, deadline_us = lease
        self.note(
            line.name,
            "deliver",
            topic=log[0],
            partition=log[1],
            lane=log[2],
            first=span[0],
            last=span[1],
            group=sub.group if sub is not None else "",
            member=line.name,
            attempt=attempt,
            latency_us=latency_us,
            connection=line.number,
            lease=_shown(number),
            deadline_us=deadline_us,
            values=values,
        )

    def settle(
        self,
        line: Line,
        hold: Hold | None,
        item: wire.SettleItem,
        outcome: wire.SettleOutcome,
        asked: Asked,
        now_us: int,
        extended_us: int,
    ) -> None:
        """A settle was answered; `extended_us` is when a lease that was extended ends."""
        action = SettleAction(item.action).name.lower()
        is_durable = isinstance(asked.request, wire.Settle) and asked.request.wait == Wait.DURABLE
        where = (
            {
                "topic": hold.log[0],
                "partition": hold.log[1],
                "lane": hold.log[2],
                "group": hold.sub.group,
                "attempt": hold.attempt,
            }
            if hold is not None
            else {}
        )
        self.note(
            line.name,
            action if outcome.status == Status.OK else f"{action} refused",
            first=item.first,
            last=item.last,
            member=line.name,
            latency_us=now_us - asked.at_us,
            connection=line.number,
            lease=_shown(item.lease),
            deadline_us=extended_us,
            asked=asked.seq,
            mode="dropped" if outcome.action == Outcome.DROPPED else "durable" if is_durable else "",
            **where,
        )

    def seek(self, line: Line, kind: str, request: wire.Seek, offset: int, asked: int) -> None:
        """A seek was asked for, or answered."""
        self.note(
            line.name,
            kind,
            topic=request.topic,
            partition=request.partition,
            first=offset,
            group=request.group,
            connection=line.number,
            asked=asked,
        )


def _shown(lease: int) -> int:
    """A lease's number in the trace, where -1 means that there is none: single deliveries come below it."""
    return lease if lease >= 0 else lease - 1
