"""One step under way: the state as it is being changed, and what came out of it so far.

Promises  durable state changes only through `emit`, which records and evolves in one breath; volatile maps are
          transients that nobody outside the step ever sees.
Never     survives its step.
"""

from __future__ import annotations

from immutables import MapMutation
from msgspec.structs import replace

from dovetail.core import cursor as cursors
from dovetail.core import timers
from dovetail.core.cursor import Cursor
from dovetail.core.effects import Answer, AnyEffect, Refused, Reply
from dovetail.core.evolve import evolve
from dovetail.core.ids import Now
from dovetail.core.kernels import clamp_wall
from dovetail.core.records import AnyRecord, AttemptFailed, Expired, Settled
from dovetail.core.state import Line, Live, Progress, Queue, Settings, State, Subscription, Topic, Waiting
from dovetail.core.stories import Attempt
from dovetail.core.timers import Timer


class Turn:
    """The mutable inside of a step; decisions are functions that take one."""

    __slots__ = (
        "alarms",
        "buckets",
        "conduct",
        "dirty",
        "durable",
        "dying",
        "effects",
        "ends",
        "ends_written",
        "ephemeral",
        "flows",
        "gatherings",
        "group_trie",
        "held",
        "held_replies",
        "lane_turns",
        "leases",
        "lsn",
        "marks",
        "members_by_name",
        "mono_ms",
        "moving",
        "moving_by_place",
        "near",
        "next_lease",
        "next_poll",
        "next_spread",
        "next_subscription",
        "next_ticket",
        "polls",
        "progress",
        "queues",
        "read_only",
        "readers",
        "records",
        "replay_asked",
        "replay_due",
        "replaying",
        "replies",
        "replies_written",
        "rosters",
        "routes",
        "seeking",
        "served_last",
        "sessions",
        "settings",
        "stored_lsn",
        "subscription_trie",
        "subscriptions",
        "tails",
        "teams",
        "tenures",
        "throttled",
        "timers",
        "topic_trie",
        "unsynced",
        "unwritten",
        "wall_ms",
        "woken",
    )

    def __init__(self, state: State, now: Now) -> None:
        live = state.live
        self.durable = state.durable
        self.settings: Settings = state.settings
        self.mono_ms = now.mono_ms
        self.wall_ms = clamp_wall(state.durable.wall_ms, now.wall_ms)
        self.lsn = state.durable.lsn + 1
        self.records: list[AnyRecord] = []
        self.effects: list[AnyEffect] = []
        self.ends: dict[int, int] = {}
        self.replies: list[Reply] = []
        self.ends_written: dict[int, int] = {}
        self.replies_written: list[Reply] = []
        self.dirty: dict[tuple[int, int], None] = {}
        self.woken: dict[int, None] = {}
        self.topic_trie = live.topic_trie
        self.group_trie = live.group_trie
        self.subscription_trie = live.subscription_trie
        self.timers = live.timers
        self.alarms = live.alarms
        self.flows = live.flows.mutate()
        self.buckets = live.buckets.mutate()
        self.held = live.held.mutate()
        self.marks = live.marks.mutate()
        self.read_only = live.read_only
        self.throttled = live.throttled
        self.held_replies: list[tuple[int, Reply]] = []
        self.near = live.near.mutate()
        self.replaying = live.replaying.mutate()
        self.replay_asked = live.replay_asked.mutate()
        self.replay_due = live.replay_due.mutate()
        self.moving = live.moving.mutate()
        self.moving_by_place = live.moving_by_place.mutate()
        self.lane_turns = live.lane_turns.mutate()
        self.unsynced = live.unsynced
        self.unwritten = live.unwritten
        self.stored_lsn = live.stored_lsn
        self.next_subscription = live.next_subscription
        self.next_lease = live.next_lease
        self.next_ticket = live.next_ticket
        self.next_poll = live.next_poll
        self.next_spread = live.next_spread
        self.tails = live.tails.mutate()
        self.readers = live.readers.mutate()
        self.routes = live.routes.mutate()
        self.teams = live.teams.mutate()
        self.sessions = live.sessions.mutate()
        self.subscriptions = live.subscriptions.mutate()
        self.members_by_name: MapMutation[str, int] = live.members_by_name.mutate()
        self.rosters = live.rosters.mutate()
        self.tenures = live.tenures.mutate()
        self.gatherings = live.gatherings.mutate()
        self.conduct = live.conduct.mutate()
        self.progress = live.progress.mutate()
        self.ephemeral = live.ephemeral.mutate()
        self.leases = live.leases.mutate()
        self.dying = live.dying.mutate()
        self.queues = live.queues.mutate()
        self.served_last = live.served_last.mutate()
        self.polls = live.polls.mutate()
        self.seeking = live.seeking.mutate()

    def emit(self, record: AnyRecord) -> None:
        """Decide `record`: it joins this step's journal frame, and the durable state follows it."""
        self.durable = evolve(self.durable, record)
        self.records.append(record)

    def reply(self, session: int, request: int, answer: Answer) -> None:
        """Answer now."""
        self.effects.append(Reply(session, request, answer))

    def refuse(self, session: int, request: int, status: int, reason: str, retry_after_ms: int = 0) -> None:
        """Answer that it was not done, and why."""
        self.effects.append(Reply(session, request, Refused(status, reason, retry_after_ms)))

    def reply_stored(self, session: int, request: int, answer: Answer) -> None:
        """Answer when this step's frame is stored (I-CONFIRM)."""
        self.replies.append(Reply(session, request, answer))

    def reply_after_all(self, replies: list[Reply]) -> None:
        """Answer when everything that was decided before this step is stored."""
        last = self.lsn - 1
        waiting = self.unsynced.waiting.get(last) or Waiting((), ())
        waiting = replace(waiting, replies=(*waiting.replies, *replies))
        self.unsynced = replace(self.unsynced, waiting=self.unsynced.waiting.set(last, waiting))

    def set_timer(self, at_ms: int, timer: Timer) -> None:
        """Have `timer` fire at `at_ms` of the monotonic clock."""
        self.timers = timers.put(self.timers, at_ms, timer)

    def clear_timer(self, at_ms: int, timer: Timer) -> None:
        """Forget a timer set for `at_ms`."""
        self.timers = timers.drop(self.timers, at_ms, timer)

    def set_alarm(self, at_ms: int, timer: Timer) -> None:
        """Have `timer` fire at `at_ms` of the wall clock."""
        self.alarms = timers.put(self.alarms, at_ms, timer)

    def topic_of(self, log: int) -> Topic:
        """The topic that a log belongs to."""
        return self.durable.topics[self.durable.logs[log].topic]

    def cursor(self, owner: int, log: int) -> Cursor:
        """A group's durable cursor, or the ephemeral one of a session's ungrouped subscriptions."""
        return self.durable.cursors[owner, log] if owner > 0 else self.ephemeral[owner, log]

    def settle(self, owner: int, log: int, first: int, last: int) -> None:
        """`first..last` needs no delivery any more: it was acknowledged."""
        if owner > 0:
            self.emit(Settled(owner, log, first, last))
        else:
            self.ephemeral[owner, log] = cursors.settle(self.ephemeral[owner, log], first, last)

    def expire(self, owner: int, log: int, first: int, last: int) -> None:
        """`first..last` needs no delivery any more: its time is over, or it is gone."""
        if owner > 0:
            self.emit(Expired(owner, log, first, last))
        else:
            self.ephemeral[owner, log] = cursors.settle(self.ephemeral[owner, log], first, last)

    def fail(self, owner: int, log: int, first: int, last: int, attempt: int, told: Attempt) -> None:
        """Attempt number `attempt` of `first..last` ended without success, as `told`."""
        if owner > 0:
            self.emit(
                AttemptFailed(
                    owner,
                    log,
                    first,
                    last,
                    attempt,
                    told.reason,
                    told.member,
                    told.delivered_ms,
                    told.ended_ms,
                    told.error,
                )
            )
        else:
            self.ephemeral[owner, log] = cursors.fail(self.ephemeral[owner, log], first, last, attempt)

    def wake(self, owner: int, log: int) -> None:
        """Have the dispatcher look at this cursor before the step ends."""
        self.dirty[owner, log] = None

    def has_credit(self, subscription: Subscription) -> bool:
        """Whether it may be sent another message."""
        return subscription.in_flight < subscription.credit_max

    def enqueue(self, owner: int, log: int, progress: Progress) -> None:
        """Let a cursor with work wait until one of its owner's members has credit."""
        if progress.waiting:
            return
        self.progress[owner, log] = replace(progress, waiting=True)
        queue = self.queues.get(owner) or Queue()
        self.queues[owner] = Queue(queue.items.set(queue.tail, log), queue.head, queue.tail + 1)

    def dequeue(self, owner: int) -> int | None:
        """The log that has waited longest for credit of this owner's members."""
        queue = self.queues.get(owner)
        if queue is None:
            return None
        if queue.head == queue.tail:
            del self.queues[owner]
            return None
        log = queue.items[queue.head]
        self.queues[owner] = Queue(queue.items.delete(queue.head), queue.head + 1, queue.tail)
        return log

    def finish(self) -> State:
        """The state after this step."""
        durable = self.durable
        if self.records:
            durable = replace(durable, lsn=self.lsn, wall_ms=self.wall_ms)
            held = tuple(self.held_replies)
            self.unsynced = _join_line(self.unsynced, self.lsn, self.ends, self.replies, held)
            self.unwritten = _join_line(self.unwritten, self.lsn, self.ends_written, self.replies_written)
        else:
            self.effects.extend(self.replies)
        live = Live(
            topic_trie=self.topic_trie,
            group_trie=self.group_trie,
            subscription_trie=self.subscription_trie,
            tails=self.tails.finish(),
            readers=self.readers.finish(),
            routes=self.routes.finish(),
            teams=self.teams.finish(),
            sessions=self.sessions.finish(),
            subscriptions=self.subscriptions.finish(),
            members_by_name=self.members_by_name.finish(),
            rosters=self.rosters.finish(),
            tenures=self.tenures.finish(),
            gatherings=self.gatherings.finish(),
            conduct=self.conduct.finish(),
            progress=self.progress.finish(),
            ephemeral=self.ephemeral.finish(),
            leases=self.leases.finish(),
            dying=self.dying.finish(),
            queues=self.queues.finish(),
            served_last=self.served_last.finish(),
            polls=self.polls.finish(),
            seeking=self.seeking.finish(),
            near=self.near.finish(),
            replaying=self.replaying.finish(),
            replay_asked=self.replay_asked.finish(),
            replay_due=self.replay_due.finish(),
            moving=self.moving.finish(),
            moving_by_place=self.moving_by_place.finish(),
            lane_turns=self.lane_turns.finish(),
            timers=self.timers,
            alarms=self.alarms,
            flows=self.flows.finish(),
            buckets=self.buckets.finish(),
            held=self.held.finish(),
            marks=self.marks.finish(),
            read_only=self.read_only,
            throttled=self.throttled,
            unsynced=self.unsynced,
            unwritten=self.unwritten,
            stored_lsn=self.stored_lsn,
            next_subscription=self.next_subscription,
            next_lease=self.next_lease,
            next_ticket=self.next_ticket,
            next_poll=self.next_poll,
            next_spread=self.next_spread,
        )
        return State(durable, live, self.settings)


def _join_line(
    line: Line, lsn: int, ends: dict[int, int], replies: list[Reply], held: tuple[tuple[int, Reply], ...] = ()
) -> Line:
    if not ends and not replies and not held:
        return line
    return Line(line.waiting.set(lsn, Waiting(tuple(ends.items()), tuple(replies), held)), line.first)
