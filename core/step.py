"""The state machine: everything the broker decides, decided here.

    step(state, now, inputs) -> (state', records, effects)

Promises  pure and total over peers' input: the same arguments give the same result, and what a peer got wrong gets a
          refusal; all records of one step are one atomic journal frame. A broken invariant of ours raises `Bug`.
Never     waits, reads a clock or touches a disk: durability comes back as the input `Stored`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from dovetail.core import (
    append,
    dead_letters,
    delay,
    dispatch,
    flow,
    groups,
    leases,
    polls,
    publish,
    rebalance,
    replays,
    sessions,
    settling,
    timers,
    topics,
)
from dovetail.core.codes import Status
from dovetail.core.effects import AnyEffect, Done
from dovetail.core.ids import Now
from dovetail.core.inputs import (
    AnyInput,
    ChangeReplay,
    ChangeSettings,
    Commit,
    ConfigureGroup,
    ConfigureTopic,
    Copied,
    CreateTopic,
    DeleteTopic,
    Fetch,
    Found,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListTopics,
    Loaded,
    Picked,
    Publish,
    RebalanceGroup,
    Release,
    RemoveDead,
    RemoveMember,
    Seek,
    Seen,
    Sent,
    SessionClosed,
    SessionOpened,
    SetCredit,
    SetReadOnly,
    SetThrottle,
    Settle,
    Start,
    StartReplay,
    Stored,
    Subscribe,
    Tidy,
    TrimLog,
    Unsent,
    Unsubscribe,
    Written,
)
from dovetail.core.kernels import clamp_wall
from dovetail.core.records import AnyRecord, BrokerStarted
from dovetail.core.state import State
from dovetail.core.turn import Turn

Step = tuple[State, tuple[AnyRecord, ...], tuple[AnyEffect, ...]]


def step(state: State, now: Now, inputs: Iterable[AnyInput]) -> Step:
    """The state after `inputs` arrived at `now`, what was decided, and what the shell is to do about it."""
    turn = Turn(state, now)
    inputs = tuple(inputs)
    for each in inputs:
        # Who was heard of meanwhile is not silent, however late a step comes.
        if isinstance(each, Seen):
            sessions.seen(turn, each.session)
        # Nor has anybody failed at what was never sent.
        elif isinstance(each, Unsent):
            leases.not_sent(turn, each.lease)
    _fire_timers(turn)
    for each in inputs:
        decide(turn, each)
    dispatch.run(turn)
    after = turn.finish()
    return after, tuple(turn.records), tuple(turn.effects)


ALARM_MS_MAX = 1_000
"""How long an alarm may be slept for: the wall clock can jump."""


def wake_ms(state: State, now: Now) -> int | None:
    """When the next step is due at the latest, by the monotonic clock, seen from `now`; None when nothing is."""
    timer_ms, alarm_ms = state.live.timers.wake_ms, state.live.alarms.wake_ms
    if alarm_ms is None:
        return timer_ms
    until_ms = min(max(0, alarm_ms - clamp_wall(state.durable.wall_ms, now.wall_ms)), ALARM_MS_MAX)
    return min(now.mono_ms + until_ms, timer_ms if timer_ms is not None else timers.NEVER)


def _fire_timers(turn: Turn) -> None:
    turn.timers, due = timers.due(turn.timers, turn.mono_ms)
    for kind, a, b in due:
        if kind == timers.LEASE:
            leases.time_out(turn, a)
        elif kind == timers.RETRY:
            turn.wake(a, b)
        elif kind == timers.SESSION:
            sessions.fell_silent(turn, a)
        elif kind == timers.POLL:
            polls.time_out(turn, a, b)
        elif kind == timers.HELD:
            flow.let_go(turn, a)
        elif kind == timers.REPLAY:
            replays.tick(turn, a)
        elif kind == timers.GATHER:
            rebalance.fell_quiet(turn, a)
        elif kind == timers.REVOKE:
            groups.revoke_overdue(turn, a)
        elif kind == timers.GROUP_EXPIRY:
            groups.expire(turn, a)
    turn.alarms, due = timers.due(turn.alarms, turn.wall_ms)
    for kind, a, b in due:
        if kind == timers.DELAYED:
            delay.fall_due(turn, a, b)
        elif kind == timers.HOUR_NEAR:
            delay.come_near(turn, a)
        elif kind == timers.HOUR_OVER:
            delay.hour_over(turn, a)


def decide(turn: Turn, request: AnyInput) -> None:
    """React to one input: records by `turn.emit`, answers and deliveries as effects."""
    match request:
        case Publish():
            publish.publish(turn, request)
        case Stored():
            append.stored(turn, request.lsn)
        case Written():
            append.written(turn, request.lsn)
        case Loaded() if request.owner == delay.OWNER:
            delay.loaded(turn, request)
        case Loaded():
            dispatch.loaded(turn, request)
        case Picked():
            delay.picked(turn, request)
        case Sent():
            dispatch.sent(turn, request)
        case Unsent():
            leases.not_sent(turn, request.lease)
        case Copied():
            replaying = turn.replaying.pop(request.ticket, None)
            if replaying is not None:
                replays.copied(turn, replaying, request)
            else:
                dead_letters.copied(turn, request)
        case Found():
            settling.found(turn, request)
        case SetReadOnly():
            turn.read_only = request.reason
        case SetThrottle():
            turn.throttled = request.reason
        case TrimLog():
            topics.trim(turn, request)
        case Tidy():
            topics.collect_idle(turn)
        case Start():
            turn.emit(BrokerStarted(turn.durable.incarnation + 1, turn.wall_ms))
            groups.watch_expiry(turn)
        case SessionOpened():
            sessions.opened(turn, request)
        case SessionClosed():
            sessions.closed(turn, request.session)
        case Release():
            settling.release(turn, request)
        case Seen():
            sessions.seen(turn, request.session)
        case _:
            if request.session in turn.sessions:
                _decide_for(turn, request)
            else:
                turn.refuse(request.session, request.request, Status.GROUP_ERROR, "the session is over: connect again")


Request = (
    Settle
    | Subscribe
    | Unsubscribe
    | JoinGroup
    | LeaveGroup
    | Heartbeat
    | ConfigureGroup
    | RebalanceGroup
    | RemoveMember
    | SetCredit
    | Fetch
    | Commit
    | Seek
    | ListTopics
    | CreateTopic
    | ConfigureTopic
    | DeleteTopic
    | ChangeSettings
    | StartReplay
    | ChangeReplay
    | RemoveDead
)


def _decide_for(turn: Turn, request: Request) -> None:
    """What a session that is there asks for."""
    match request:
        case Settle():
            settling.settle(turn, request)
        case Subscribe():
            groups.subscribe(turn, request)
        case Unsubscribe():
            groups.unsubscribe(turn, request)
        case JoinGroup():
            groups.join(turn, request)
        case LeaveGroup():
            groups.leave_by_request(turn, request)
        case Heartbeat():
            groups.heartbeat(turn, request)
        case ConfigureGroup():
            groups.configure(turn, request)
        case RebalanceGroup():
            groups.rebalance_by_request(turn, request)
        case RemoveMember():
            groups.remove_by_request(turn, request)
        case SetCredit():
            groups.set_credit(turn, request)
        case Fetch():
            polls.fetch(turn, request)
        case Commit():
            settling.commit(turn, request)
        case Seek():
            settling.seek(turn, request)
        case ListTopics():
            topics.describe(turn, request)
        case CreateTopic():
            topics.create_by_request(turn, request)
        case ConfigureTopic():
            topics.configure(turn, request)
        case DeleteTopic():
            topics.delete(turn, request)
        case ChangeSettings():
            turn.settings = request.settings
            turn.reply(request.session, request.request, Done())
        case StartReplay():
            replays.start(turn, request)
        case ChangeReplay():
            replays.change(turn, request)
        case RemoveDead():
            replays.remove(turn, request)
        case _:
            assert_never(request)
