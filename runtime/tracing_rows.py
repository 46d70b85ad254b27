"""What a broker's core took in and gave out, as rows of a trace.

Promises  the same rows for the same steps; a request and its answer are one story: the answer's row names when it was
          asked, a settle's whose lease it is about. Memory grows with what is under way: connections, unanswered
          requests, leases.
Never     does I/O, or looks at a clock: times come with the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dovetail.core import inputs
from dovetail.core.codes import Acks, Outcome, SettleAction, Status
from dovetail.core.effects import (
    Appended,
    Assign,
    CloseSession,
    Deliver,
    Done,
    Fetched,
    Joined,
    LeaseEnded,
    Overtaken,
    Refused,
    Reply,
    Revoke,
    Settlement,
    Sought,
    Subscribed,
)
from dovetail.core.inputs import AnyInput
from dovetail.core.trace import Row
from dovetail.runtime.tracing import Began, Died, Dropped, Ended, Stepped, Told

PENDING_MAX = 100_000
"""Requests of one session whose answers are waited for: the broker allows no more."""

_ACTIONS = {each.value: each.name.lower() for each in SettleAction}


class _Asked(Struct, frozen=True):
    request: AnyInput
    at_us: int
    seq: int
    count: int = 0


class _Lease:
    """A delivery under a lease."""

    __slots__ = ("attempt", "group", "lane", "open", "partition", "topic")

    def __init__(self, given: Deliver, group: str) -> None:
        self.topic = given.topic
        self.partition = given.partition
        self.lane = given.lane + 1
        self.attempt = given.attempt
        self.group = group
        self.open = sum(last - first + 1 for first, last in given.ranges)


class _Session:
    """A connection, or somebody inside the broker who speaks for an HTTP client."""

    __slots__ = ("leases", "members", "name", "number", "pending", "subscriptions")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.pending: dict[int, _Asked] = {}
        self.subscriptions: dict[int, tuple[str, str]] = {}
        """Group and pattern."""
        self.leases: dict[int, _Lease] = {}
        self.members: dict[str, str] = {}
        """Its name in each group."""


class Witness:
    """Turns what a broker tells into rows; `keep` takes each."""

    def __init__(self, keep: Callable[[Row], None], began_us: int) -> None:
        self._keep = keep
        self._began_us = began_us
        self._life = 0
        self._seq = 0
        self._now_us = 0
        self._sessions: dict[int, _Session] = {}
        self.is_over = False
        """The broker has said that it stops."""

    def take(self, told: Told) -> None:
        """Make rows of one thing that was told."""
        self._now_us = max(self._now_us, told.wall_us - self._began_us)
        match told:
            case Began():
                self._begin(told)
            case Stepped():
                for each in told.inputs:
                    self._arrived(each)
                for effect in told.effects:
                    self._given(effect)
            case Died():
                for topic, partition, lane, offset, group in told.letters:
                    where: dict[str, Any] = {"topic": topic, "partition": partition, "lane": lane}
                    self._row("broker", "dead", **where, first=offset, last=offset, group=group)
            case Dropped():
                self._row("broker", "dropped", last=told.steps, detail=f"{told.steps} steps are missing here")
            case Ended():
                self.end(told.wall_us, "stopped")

    def end(self, wall_us: int, how: str) -> None:
        """The broker is gone, and all connections with it."""
        if self.is_over or not self._life:
            return
        self._now_us = max(self._now_us, wall_us - self._began_us)
        for session in list(self._sessions.values()):
            self._closed(session)
        self._row("broker", "down", generation=self._life, detail=how)
        self.is_over = True

    def _row(self, actor: str, kind: str, **columns: Any) -> int:
        row = Row((self._life << 40) + self._seq, self._now_us, actor, kind, **columns)
        self._seq += 1
        self._keep(row)
        return row.seq

    def _begin(self, began: Began) -> None:
        self._life = began.life
        self._row("broker", "setup", detail=began.terms)
        self._row("broker", "up", generation=began.life, latency_us=began.recovery_us)
        for each in began.logs:
            where: dict[str, Any] = {"topic": each.topic, "partition": each.partition, "lane": each.lane}
            self._row("broker", "extent", **where, first=each.start, last=each.end - 1)

    # What arrived

    def _arrived(self, arrived: AnyInput) -> None:
        if isinstance(arrived, inputs.Publish):
            return self._publish(arrived)
        number: int = getattr(arrived, "session", 0)
        if isinstance(arrived, inputs.SessionOpened):
            self._sessions[number] = _Session(number, arrived.name)
            self._row(arrived.name, "connect", connection=number)
            return None
        session = self._sessions.get(number)
        if session is None:
            return None
        match arrived:
            case inputs.SessionClosed():
                return self._closed(session)
            case inputs.Release():
                return self._released(session, arrived)
            case inputs.Unsubscribe():
                group, pattern = session.subscriptions.pop(arrived.subscription, ("", ""))
                self._member(session, "unsubscribe", group, topic=pattern)
            case inputs.LeaveGroup():
                self._member(session, "leave", arrived.group)
                session.members.pop(arrived.group, None)
            case inputs.JoinGroup():
                if arrived.member:
                    session.members[arrived.group] = arrived.member
                self._member(session, "join", arrived.group, mode=arrived.strategy)
            case inputs.Seek():
                self._seek(session, "seek asked", arrived, -1, -1)
            case _:
                pass
        self._ask(session, getattr(arrived, "request", 0), arrived)
        return None

    def _ask(self, session: _Session, number: int, request: AnyInput, count: int = 0) -> None:
        if number and len(session.pending) < PENDING_MAX:
            session.pending[number] = _Asked(request, self._now_us, (self._life << 40) + self._seq - 1, count)

    def _publish(self, publish: inputs.Publish) -> None:
        for ask in publish.asks:
            session = self._sessions.get(ask.session)
            if session is None:
                continue
            self._row(
                session.name,
                "publish",
                topic=publish.topic,
                first=0,
                last=ask.count - 1,
                latency_us=0,
                connection=session.number,
                deadline_us=self._now_us + publish.ttl_ms * 1000 if publish.ttl_ms else -1,
                mode=_producing(publish),
            )
            if publish.acks != Acks.NONE:
                self._ask(session, ask.request, publish, ask.count)

    def _closed(self, session: _Session) -> None:
        self._sessions.pop(session.number, None)
        self._row(session.name, "disconnect", connection=session.number)

    def _released(self, session: _Session, release: inputs.Release) -> None:
        lease = session.leases.get(release.lease)
        if lease is not None:
            self._ended(session, release.lease, lease, release.first, release.last)
            self._shrink(session, release.lease, release.last - release.first + 1)

    def _ended(self, session: _Session, number: int, lease: _Lease, first: int = -1, last: int = -1) -> None:
        self._row(
            session.name,
            "ended",
            first=first,
            last=last,
            member=self._name(session, lease.group),
            connection=session.number,
            lease=number,
            **_where(lease),
        )

    def _shrink(self, session: _Session, number: int, count: int) -> None:
        lease = session.leases[number]
        lease.open -= count
        if lease.open <= 0:
            del session.leases[number]

    def _name(self, session: _Session, group: str) -> str:
        return session.members.get(group, session.name)

    def _member(self, session: _Session, kind: str, group: str, **columns: Any) -> None:
        name = self._name(session, group)
        self._row(session.name, kind, group=group, member=name, connection=session.number, **columns)

    def _seek(self, session: _Session, kind: str, seek: inputs.Seek, offset: int, asked: int) -> None:
        where: dict[str, Any] = {"topic": seek.topic, "partition": seek.partition, "group": seek.group}
        self._row(session.name, kind, **where, first=offset, connection=session.number, asked=asked)

    # What was given out

    def _given(self, effect: object) -> None:
        session = self._sessions.get(getattr(effect, "session", 0))
        if session is None:
            return
        match effect:
            case Reply():
                asked = session.pending.pop(effect.request, None)
                if asked is not None:
                    self._answered(session, asked, effect.answer)
            case Deliver():
                self._delivered(session, effect)
            case LeaseEnded():
                lease = session.leases.pop(effect.lease, None)
                if lease is not None:
                    self._ended(session, effect.lease, lease)
            case Revoke() | Assign():
                kind = type(effect).__name__.lower()
                for topic, partition in effect.partitions or (("", -1),):
                    place: dict[str, Any] = {"topic": topic, "partition": partition}
                    self._member(session, kind, effect.group, generation=effect.generation, **place)
            case Overtaken():
                detail = f"{effect.first}-{effect.last} were skipped: it is too far behind"
                place = {"topic": effect.topic, "partition": effect.partition, "lane": effect.lane + 1}
                self._row(session.name, "error", connection=session.number, detail=detail, **place)
            case CloseSession():
                self._row(session.name, "error", connection=session.number, detail=effect.reason)
            case _:
                pass

    def _delivered(self, session: _Session, given: Deliver) -> None:
        group, _ = session.subscriptions.get(given.subscription, ("", ""))
        if given.lease:
            session.leases[given.lease] = _Lease(given, group)
        for first, last in given.ranges:
            self._row(
                session.name,
                "deliver",
                topic=given.topic,
                partition=given.partition,
                lane=given.lane + 1,
                first=first,
                last=last,
                group=group,
                member=self._name(session, group),
                attempt=given.attempt,
                latency_us=0,
                connection=session.number,
                lease=given.lease,
                deadline_us=given.deadline_ms * 1000 - self._began_us if given.deadline_ms else -1,
            )

    def _answered(self, session: _Session, asked: _Asked, answer: object) -> None:
        request, latency_us = asked.request, self._now_us - asked.at_us
        match request, answer:
            case _, Refused():
                if isinstance(request, inputs.Seek):
                    self._seek(session, "seek refused", request, -1, asked.seq)
                detail = f"{type(request).__name__.upper()}: {answer.reason}"
                self._row(session.name, "refused", detail=detail, connection=session.number, latency_us=latency_us)
            case inputs.Publish(), Appended():
                self._stored(session, asked, request, answer)
            case inputs.Subscribe(), Subscribed():
                group = request.group or f"~{session.number}"
                session.subscriptions[answer.subscription] = (group, request.pattern)
                mode = "auto-ack" if request.auto_ack else ""
                self._member(session, "subscribe", group, topic=request.pattern, mode=mode)
            case inputs.Settle(), Settlement():
                for item, (status, outcome) in zip(request.items, answer.results, strict=False):
                    self._settled(session, asked, item, status, outcome, is_durable=request.wait)
            case inputs.JoinGroup(), Joined():
                self._member(session, "joined", request.group, generation=answer.generation, latency_us=latency_us)
            case inputs.Seek(), Sought():
                self._seek(session, "seek", request, answer.offset, asked.seq)
            case inputs.Fetch(), Fetched():
                where: dict[str, Any] = {"topic": request.topic, "partition": request.partition}
                about = {"connection": session.number, "asked": asked.seq}
                self._row(session.name, "extent", first=answer.start, last=answer.end - 1, **where, **about)
            case inputs.Commit(), Done():
                where = {"topic": request.topic, "partition": request.partition, "asked": asked.seq}
                self._member(session, "commit", request.group, first=request.offset, **where)
            case _:
                pass

    def _stored(self, session: _Session, asked: _Asked, request: inputs.Publish, answer: Appended) -> None:
        about: dict[str, Any] = {
            "latency_us": self._now_us - asked.at_us,
            "connection": session.number,
            "asked": asked.seq,
            "mode": _producing(request),
        }
        if request.delay_ms:
            due_us = asked.at_us + request.delay_ms * 1000
            where: dict[str, Any] = {"topic": request.topic, "first": 0, "last": asked.count - 1}
            self._row(session.name, "delayed", deadline_us=due_us, **where, **about)
            return
        where = {"topic": answer.topic, "partition": answer.partition, "lane": answer.lane + 1}
        span = {"first": answer.offset, "last": answer.offset + answer.count - 1}
        self._row(session.name, "confirm", **where, **span, **about)

    def _settled(
        self,
        session: _Session,
        asked: _Asked,
        item: inputs.SettleItem,
        status: int,
        outcome: int,
        *,
        is_durable: bool,
    ) -> None:
        lease = session.leases.get(item.lease)
        kind = _ACTIONS.get(item.action, "settle")
        is_extension = item.action == SettleAction.EXTEND
        self._row(
            session.name,
            kind if status == Status.OK else f"{kind} refused",
            first=item.first,
            last=item.last,
            member=self._name(session, lease.group) if lease is not None else session.name,
            latency_us=self._now_us - asked.at_us,
            connection=session.number,
            lease=item.lease,
            deadline_us=asked.at_us + item.delay_ms * 1000 if is_extension else -1,
            asked=asked.seq,
            mode="dropped" if outcome == Outcome.DROPPED else "durable" if is_durable else "",
            **(_where(lease) if lease is not None else {}),
        )
        if lease is not None and status == Status.OK and not is_extension:
            self._shrink(session, item.lease, item.last - item.first + 1)


def _where(lease: _Lease) -> dict[str, Any]:
    return {
        "topic": lease.topic,
        "partition": lease.partition,
        "lane": lease.lane,
        "group": lease.group,
        "attempt": lease.attempt,
    }


def _producing(publish: inputs.Publish) -> str:
    return "idempotent" if publish.producer_id >= 0 else ""
