"""A recording, told in the words of a trace: what a real broker's clients did and got, and what became of it.

Promises  one time for all lives of a broker, by its wall clock; each session is an actor under its client's name;
          what was settled, failed or given back is said with its topic, offsets and group.
Never     judges: whether a recording gives the same again is `recorded.replay`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.core import effects, inputs, recording, records
from dovetail.core.awaken import awaken
from dovetail.core.codes import SettleAction, Status
from dovetail.core.effects import AnyEffect
from dovetail.core.ids import Now
from dovetail.core.inputs import AnyInput
from dovetail.core.records import AnyRecord, FailReason
from dovetail.core.state import State
from dovetail.core.step import step
from dovetail.core.trace import Row
from dovetail.runtime.storage import checkpoint

INSIDE = (inputs.Seen, inputs.Sent, inputs.Stored, inputs.Written, inputs.Loaded, inputs.Copied, inputs.Picked)
"""Between the broker and its own disk and sockets: nothing that somebody did."""
SAID = (records.BatchAppended, records.Settled, records.AttemptFailed, records.BrokerStarted)
"""Records that other rows tell of."""
DETAIL_CHARS = 200


def rows(paths: Iterable[str]) -> Iterator[Row]:
    """All lives, oldest first."""
    teller = _Teller()
    for path in paths:
        with open(path, "rb") as file:
            began, steps = recording.read(file.read())
        state = awaken(checkpoint.decode(began.checkpoint), began.settings)
        yield from teller.ended()
        for number, each in enumerate(steps):
            before = state
            state, decided, done = step(state, Now(each.mono_ms, each.wall_ms), each.inputs)
            teller.at(each.wall_ms)
            if not number:
                yield teller.began(path)
            yield from teller.stepped(before, state, each.inputs, decided, done)


class _Teller:
    """Numbers rows, and knows who is who."""

    def __init__(self) -> None:
        self._seq = 0
        self._first_ms = -1
        self._now_ms = 0
        self._lives = 0
        self._names: dict[int, str] = {}
        self._online: set[str] = set()
        self._asked_ms: dict[tuple[int, int], int] = {}

    def at(self, wall_ms: int) -> None:
        """The time of what follows; it never goes back."""
        if self._first_ms < 0:
            self._first_ms = wall_ms
        self._now_ms = max(self._now_ms, wall_ms - self._first_ms)

    def _row(self, actor: str, kind: str, **columns: object) -> Row:
        self._seq += 1
        return Row(self._seq - 1, self._now_ms * 1000, actor, kind, **columns)  # type: ignore[arg-type]  # by name

    def ended(self) -> Iterator[Row]:
        """There is another life: the one before has ended, however that was."""
        if self._lives:
            yield self._row("broker", "down", detail="how it ended, the recording does not say")

    def began(self, path: str) -> Row:
        """A life of the broker begins."""
        self._lives += 1
        self._names.clear()
        self._online.clear()
        self._asked_ms.clear()
        return self._row("broker", "up", generation=self._lives, detail=path)

    def stepped(
        self,
        before: State,
        after: State,
        arrived: tuple[AnyInput, ...],
        decided: tuple[AnyRecord, ...],
        done: tuple[AnyEffect, ...],
    ) -> Iterator[Row]:
        """One step: what came, what was decided, what left."""
        answers = {(each.session, each.request): each.answer for each in done if isinstance(each, effects.Reply)}
        for each in arrived:
            yield from self._arrived(before, each, answers)
        for record in decided:
            yield from self._decided(after, record)
        for effect in done:
            yield from self._left(before, after, effect)

    def _who(self, session: int) -> str:
        return self._names.get(session, f"session {session}" if session else "broker")

    def _arrived(self, before: State, each: AnyInput, answers: dict[tuple[int, int], effects.Answer]) -> Iterator[Row]:
        session = getattr(each, "session", 0)
        match each:
            case inputs.SessionOpened():
                name = each.name if each.name not in self._online else f"{each.name} #{session}"
                self._names[session] = name
                self._online.add(name)
                yield self._row(name, "connect", connection=session)
            case inputs.SessionClosed():
                yield self._row(self._who(session), "disconnect", connection=session)
                self._online.discard(self._who(session))
            case inputs.Publish():
                for ask in each.asks[:1]:
                    self._asked_ms[ask.session, ask.request] = self._now_ms
                who = self._who(each.asks[0].session) if each.asks else "broker"
                yield self._row(who, "publish", topic=each.topic, first=0, last=each.count - 1, latency_us=0)
            case inputs.Settle():
                answer = answers.get((each.session, each.request))
                results = answer.results if isinstance(answer, effects.Settlement) else ()
                for place, item in enumerate(each.items):
                    ok = place >= len(results) or results[place][0] == Status.OK
                    yield self._settle(before, each.session, item, ok=ok)
            case _:
                if not isinstance(each, INSIDE):
                    topic = getattr(each, "topic", "")
                    named = topic if isinstance(topic, str) else ""
                    yield self._row(self._who(session), _word(each), topic=named, detail=repr(each)[:DETAIL_CHARS])

    def _settle(self, before: State, session: int, item: inputs.SettleItem, *, ok: bool) -> Row:
        action = SettleAction(item.action).name.lower() if item.action in _ACTIONS else f"settle {item.action}"
        lease = before.live.leases.get(item.lease)
        where = self._where(before, lease.owner, lease.log) if lease is not None else {}
        kind = action if ok else f"{action} refused"
        return self._row(self._who(session), kind, first=item.first, last=item.last, lease=item.lease, **where)

    def _where(self, state: State, owner: int, log: int) -> dict[str, object]:
        found = state.durable.logs.get(log)
        topic = state.durable.topics.get(found.topic) if found is not None else None
        group = state.durable.groups.get(owner)
        if found is None or topic is None:
            return {}
        lane = found.lane + 1 if topic.lanes else 0
        named = group.name if group is not None else f"~{-owner}"
        return {"topic": topic.name, "partition": found.partition, "lane": lane, "group": named}

    def _decided(self, state: State, each: AnyRecord) -> Iterator[Row]:
        if isinstance(each, records.AttemptFailed):
            if each.reason == FailReason.TIMEOUT:
                where = self._where(state, each.group, each.log)
                span = {"first": each.first, "last": each.last, "attempt": each.attempt, "member": each.member}
                yield self._row("broker", "timed out", **span, **where)
        elif isinstance(each, records.DeadLettered):
            where = self._where(state, each.group, each.log)
            yield self._row("broker", "dead", first=each.offset, last=each.offset, **where)
        elif isinstance(each, records.Expired):
            yield self._row(
                "broker", "expired", first=each.first, last=each.last, **self._where(state, each.group, each.log)
            )
        elif not isinstance(each, SAID):
            group = state.durable.groups.get(getattr(each, "group", 0))
            named = group.name if group is not None else ""
            yield self._row("broker", _word(each), group=named, detail=repr(each)[:DETAIL_CHARS])

    def _left(self, before: State, after: State, each: AnyEffect) -> Iterator[Row]:
        match each:
            case effects.Reply():
                yield from self._answered(each)
            case effects.Deliver():
                subscription = after.live.subscriptions.get(each.subscription)
                owner = subscription.owner if subscription is not None else 0
                where = self._where(after, owner, each.log)
                for first, last in each.ranges:
                    span = {"first": first, "last": last, "attempt": each.attempt, "lease": each.lease}
                    yield self._row(self._who(each.session), "deliver", latency_us=0, **span, **where)
                    if not each.lease:
                        yield self._row(self._who(each.session), "ack", first=first, last=last, mode="sent", **where)
            case effects.LeaseEnded():
                lease = before.live.leases.get(each.lease)
                for first, last in lease.ranges if lease is not None else ():
                    where = self._where(before, lease.owner, lease.log) if lease is not None else {}
                    yield self._row(self._who(each.session), "lease ended", first=first, last=last, **where)
            case effects.Revoke() | effects.Assign():
                for topic, partition in each.partitions or (("", -1),):
                    what = {"topic": topic, "partition": partition, "group": each.group}
                    yield self._row(self._who(each.session), _word(each), generation=each.generation, **what)
            case effects.CloseSession():
                yield self._row(self._who(each.session), "error", detail=each.reason)
            case _:
                pass

    def _answered(self, reply: effects.Reply) -> Iterator[Row]:
        who, answer = self._who(reply.session), reply.answer
        if isinstance(answer, effects.Appended):
            asked_ms = self._asked_ms.pop((reply.session, reply.request), self._now_ms)
            yield self._row(
                who,
                "confirm",
                topic=answer.topic,
                partition=answer.partition,
                lane=answer.lane + 1,
                first=answer.offset,
                last=answer.offset + answer.count - 1,
                latency_us=(self._now_ms - asked_ms) * 1000,
            )
        elif isinstance(answer, effects.Refused):
            yield self._row(who, "refused", detail=answer.reason)


_ACTIONS = frozenset(SettleAction)


def _word(each: object) -> str:
    """What something is called in a trace: its type's name as words."""
    name = type(each).__name__
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
