"""The whole step keeps the whole state's invariants: induction over `step`, with `check_state` as the hypothesis.

A broker is brought, by steps of its own, to a state with one topic, one group with one member, and one lease; then the
numbers in that state become any that `check_state` accepts: where the log starts and ends, what is stored, the floor
and an island, what is leased, where reading stands, how much credit there is. After one more step, of an input whose
numbers are any, `check_state` must accept the result.
"""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from dovetail.core import append as appending
from dovetail.core import awaken as waking
from dovetail.core import dead_letters, delay, dispatch, groups, leases, settling, timers, topics
from dovetail.core import step as stepping
from dovetail.core.codes import SettleAction, Whence
from dovetail.core.cursor import Cursor
from dovetail.core.effects import Copy, Pick
from dovetail.core.ids import Bug, Now, ordered
from dovetail.core.inputs import (
    AnyInput,
    Ask,
    Commit,
    Copied,
    Loaded,
    Picked,
    Publish,
    Seek,
    Sent,
    SessionClosed,
    SessionOpened,
    SetCredit,
    Settle,
    SettleItem,
    Start,
    Stored,
    Subscribe,
    TrimLog,
    Unsubscribe,
)
from dovetail.core.intervals import Intervals
from dovetail.core.invariants import check_state
from dovetail.core.records import ReplayState
from dovetail.core.state import BatchMeta, Durable, Replay, Settings, State, Tail
from dovetail.proofs.engine import Given, every
from dovetail.proofs.registry import Sabotage, proof
from dovetail.proofs.shapes import is_settled

NOW = Now(1_000, 500_000)
OFFSET_MAX = 1 << 56
FEW = 4
SHAPE = "bounded: 1 log, 1 group, 1 member, 1 lease of 1 range, up to 1 island, 1 batch, no retries; offsets below 2⁵⁶"
SMALL = f"{SHAPE.rpartition(';')[0]}; offsets below {FEW}"
KEY = (1, 1)
"""Of the group's cursor in the log."""


def _running() -> State:
    """A broker with a topic, a group, a member that holds a lease, and one message more than its credit allows."""
    state = waking.awaken(Durable(), Settings())
    inputs: list[list[AnyInput]] = [
        [Start()],
        [SessionOpened(1, "s"), Subscribe(1, 1, "a", "g", 1, False)],
        [Publish("a", 0, 1, 2, 100, (Ask(1, 2, 0, 2),))],
    ]
    for each in inputs:
        state, _, _ = stepping.step(state, NOW, each)
        state, _, _ = stepping.step(state, NOW, [Stored(state.durable.lsn)])
    return state


def _any_state(given: Given, offset_max: int = OFFSET_MAX) -> State:
    """`_running` with any numbers that `check_state` accepts."""
    state = _running()
    durable, live = state.durable, state.live
    ((number, lease),) = live.leases.items()
    subscription = live.subscriptions[1]
    start, stored, end = given.integer("start", 0), given.integer("stored"), given.integer("end")
    floor, following = given.integer("floor", 0), given.integer("next")
    first, last = given.integer("held_first"), given.integer("held_last")
    given.assume(every(end < offset_max, start <= stored, stored <= end))
    given.assume(every(floor <= first, first <= last, last < following))
    islands: Intervals = ()
    if given.choice("islands", (0, 1)):
        islands = ((given.integer("island_first"), given.integer("island_last")),)
        given.assume(every(floor < islands[0][0], islands[0][0] <= islands[0][1]))
    credit, in_flight = given.integer("credit", 1), given.integer("in_flight", 0)
    counts = [given.integer(name, 0) for name in ("settled", "expired", "dead")]
    durable = replace(
        durable,
        logs=durable.logs.set(1, replace(durable.logs[1], start=start, end=end)),
        cursors=Map({KEY: Cursor(floor, islands, (), *counts)}),
    )
    live = replace(
        live,
        tails=Map({1: Tail(stored, (BatchMeta(start, end - 1, 100, 0, 0),))}),
        leases=Map({number: replace(lease, ranges=((first, last),))}),
        subscriptions=Map({1: replace(subscription, credit_max=credit, in_flight=in_flight)}),
        progress=Map({KEY: replace(live.progress[KEY], next=following)}),
    )
    found = State(durable, live, state.settings)
    try:
        _check(found)
    except Bug:
        given.assume(False)
    return found


def _check(state: State, now: Now = NOW) -> None:
    """Raise `Bug` unless the state is sound, and speaks only of offsets that are stored."""
    check_state(state, now.mono_ms)
    cursor, stored = state.durable.cursors[KEY], state.live.tails[1].stored
    if cursor.floor > stored or any(last >= stored for _, last in cursor.islands):
        raise Bug("a group has settled what is not stored")


def _sound_after(given: Given, state: State, *inputs: AnyInput, now: Now = NOW) -> State:
    for each in inputs:
        state, _, _ = given.call(stepping.step, state, now, [each])
        _check(state, now)
    return state


def _stays_sound(given: Given, state: State, *inputs: AnyInput, now: Now = NOW) -> bool:
    _sound_after(given, state, *inputs, now=now)
    return True


def _settle(given: Given, state: State, action: SettleAction) -> Settle:
    (lease,) = state.live.leases
    item = SettleItem(lease, action, given.integer("first"), given.integer("last"), delay_ms=2_000)
    return Settle(1, 5, (item,))


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(
        settling._settle_item,
        "turn.settle(lease.owner, lease.log, first, last)",
        "turn.settle(lease.owner, lease.log, first, first)",
    ),
)
def an_acknowledgment_keeps_the_state_sound(given: Given) -> bool:
    """Whatever range an acknowledgment names, held or not, the state is sound after it, and what credit it frees is
    used."""
    state = _any_state(given)
    return _stays_sound(given, state, _settle(given, state, SettleAction.ACK))


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(settling._extend, "turn.set_timer(deadline_ms, (timers.LEASE, lease.id, 0))", "None"),
)
def an_extension_keeps_the_state_sound(given: Given) -> bool:
    """Whatever range an extension names, the state is sound after it, and the lease has its timer."""
    state = _any_state(given)
    return _stays_sound(given, state, _settle(given, state, SettleAction.EXTEND))


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SMALL,
    sabotage=Sabotage(leases._try_again, "start + length - 1)", "start + length)"),
)
def a_failure_keeps_the_state_sound(given: Given) -> bool:
    """Whatever range is given back or rejected, the state is sound after it: each offset still leased, waiting for a
    retry or on its way to the dead letters."""
    state = _any_state(given, FEW)
    action = given.choice("action", (SettleAction.NACK, SettleAction.REJECT))
    return _stays_sound(given, state, _settle(given, state, action))


@proof("I-ACCOUNT", about=stepping.step, scope=SMALL, sabotage=Sabotage(leases.time_out, "_end(turn, lease)", "None"))
def a_deadline_keeps_the_state_sound(given: Given) -> bool:
    """When a lease runs out, and one step later still, the state is sound: all of it waits for another try."""
    state = _any_state(given, FEW)
    return _stays_sound(given, state, Sent(1, 0), Sent(1, 0), now=Now(NOW.mono_ms + 30_000, NOW.wall_ms))


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(appending.append, "BatchMeta(record.base, end - 1,", "BatchMeta(record.base, end,"),
)
def a_publish_and_its_sync_keep_the_state_sound(given: Given) -> bool:
    """A batch of any size leaves the state sound, and so does its sync, when it goes out as far as credit does."""
    state = _any_state(given)
    batch = Publish("a", 0, 7, given.integer("count", 1, 1 << 20), given.integer("size", 0), (Ask(1, 5, 0, 1),))
    return _stays_sound(given, state, batch, Stored(state.durable.lsn + 1))


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(groups.set_credit, "turn.woken[subscription.owner] = None", "pass"),
)
def a_change_of_credit_keeps_the_state_sound(given: Given) -> bool:
    """Whatever credit a member asks for, the state is sound, and more of it is used at once."""
    state = _any_state(given)
    return _stays_sound(given, state, SetCredit(1, 5, 1, given.integer("wanted", 0)))


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(leases._cut_below, "offset - 1", "offset"),
)
def a_commit_keeps_the_state_sound(given: Given) -> bool:
    """Wherever a commit points, the state is sound after it, and the floor has not gone back."""
    state = _any_state(given)
    after = _sound_after(given, state, Commit(1, 5, "g", "a", 0, given.integer("to")))
    return after.durable.cursors[KEY].floor >= state.durable.cursors[KEY].floor


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(settling._move, "leases.end_all(turn, group, log)", "None"),
)
def a_seek_keeps_the_state_sound(given: Given) -> bool:
    """Wherever a seek goes, back or ahead or nowhere, the state is sound after it."""
    state = _any_state(given)
    whence = given.choice("whence", (Whence.OFFSET, Whence.EARLIEST, Whence.LATEST))
    return _stays_sound(given, state, Seek(1, 5, "g", "a", 0, whence, given.integer("to")))


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(
        topics.trim, "start = min(start, turn.durable.cursors", "start = max(start, turn.durable.cursors"
    ),
)
def retention_keeps_the_state_sound(given: Given) -> bool:
    """Whatever start storage proposes, the state is sound after it."""
    state = _any_state(given)
    return _stays_sound(given, state, TrimLog(1, given.integer("to", 0)))


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(dispatch.sent, "found.in_flight - done.count", "found.in_flight - done.count - 1"),
)
def what_was_sent_keeps_the_state_sound(given: Given) -> bool:
    """When the shell says how many of the messages without a lease it has sent, the state is sound after it."""
    state = _any_state(given)
    ((first, last),) = next(iter(state.live.leases.values())).ranges
    count = given.integer("count", 0)
    given.assume(count <= state.live.subscriptions[1].in_flight - (last - first + 1))
    return _stays_sound(given, state, Sent(1, count))


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(leases.give_back, "add_retries(turn, lease.owner, lease.log, retries)", "None"),
)
def a_member_that_goes_leaves_the_state_sound(given: Given) -> bool:
    """When a member unsubscribes or its connection ends, the state is sound: what it held waits for somebody else."""
    state = _any_state(given)
    ways: tuple[AnyInput, ...] = (SessionClosed(1), Unsubscribe(1, 5, 1))
    return _stays_sound(given, state, given.choice("how", ways))


@proof(
    "I-AWAKE",
    about=waking.awaken,
    scope=SHAPE,
    sabotage=("progress[key] = Progress(cursor.floor)", "progress[key] = Progress(cursor.floor + 1)"),
)
def a_broker_that_starts_is_sound(given: Given) -> bool:
    """From whatever survived a sound state is made: nothing is leased, and everything unsettled is read again."""
    durable = _any_state(given).durable
    state = given.call(waking.awaken, durable, Settings())
    check_state(state)
    return every(not state.live.leases, state.live.progress[KEY].next == durable.cursors[KEY].floor)


@proof(
    "I-AWAKE",
    about=waking.awaken,
    scope="bounded: 1 job that replays dead letters, in each state",
    sabotage=("replay.state == ReplayState.RUNNING", "replay.state != ReplayState.RUNNING"),
)
def a_job_that_ran_goes_on_after_a_restart(given: Given) -> bool:
    """A job that was running is due at once, in the first step; one that was paused or is over is not."""
    state, number = given.choice("state", tuple(ReplayState)), given.choice("number", (1, 2))
    job = Replay(number, 1, ((0, "a", 0),), 0, 0, 0, 0, 0, state=state)
    found = given.call(waking.awaken, Durable(replays=Map({number: job})), Settings())
    left, due = timers.due(found.live.timers, 0)
    return due == ([(timers.REPLAY, number, 0)] if state is ReplayState.RUNNING else []) and not left.rows


def _balances(state: State) -> bool:
    """Published is settled (acknowledged, expired or dead), leased, retrying, dying and pending together."""
    live, cursor, progress = state.live, state.durable.cursors[KEY], state.live.progress[KEY]
    end = state.durable.logs[1].end
    following = max(progress.next, cursor.floor)
    total = cursor.floor + end - following
    for _, dying in ordered(live.dying):
        total = total + (0 if is_settled(cursor, dying.offset) else 1)
    for first, last in cursor.islands:
        total = total + max(0, min(last + 1, following) - first)
    for _, lease in ordered(live.leases):
        for first, last in lease.ranges:
            total = total + last - first + 1
    for retry in progress.retries:
        total = total + retry.last - retry.first + 1
    return total == end


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    through=(dead_letters.copied,),
    scope=SMALL,
    sabotage=Sabotage(dead_letters.copied, "if is_settled(turn.cursor", "if not is_settled(turn.cursor"),
)
def a_death_is_counted_until_its_copy_is_made(given: Given) -> bool:
    """Published = settled + leased + retrying + pending + dying, counted one by one, when a range is rejected, when a
    commit passes it meanwhile or not, and after each copy that is made or can't be made. With its copy the dead-letter
    topic has one message more, and it counts as dead; without one it counts as expired; what was settled meanwhile
    counts as neither."""
    state = _any_state(given, FEW)
    end = state.durable.logs[1].end
    state, _, effects = given.call(stepping.step, state, NOW, [_settle(given, state, SettleAction.REJECT)])
    kept = [_balances(state), state.durable.logs[1].end == end]
    if given.choice("is_committed", (False, True)):
        state, _, _ = given.call(stepping.step, state, NOW, [Commit(1, 6, "g", "a", 0, given.integer("to"))])
        kept.append(_balances(state))
    before = state.durable.cursors[KEY]
    copies = [each for each in effects if isinstance(each, Copy)]
    size, made, gone = given.choice("size", (0, 100)), 0, 0
    for copy in copies:
        waits = 0 if is_settled(before, copy.offset) else 1
        was = len(state.live.dying)
        state, _, _ = given.call(stepping.step, state, NOW, [Copied(copy.ticket, 9, size)])
        made, gone = (made + waits, gone) if size else (made, gone + waits)
        letters = sum(log.end for number, log in ordered(state.durable.logs) if number != 1)
        kept += [_balances(state), len(state.live.dying) == was - 1, letters == made]
    after = state.durable.cursors[KEY]
    kept += [after.dead_count - before.dead_count == made, after.settled_count == before.settled_count]
    kept.append(after.expired_count - before.expired_count == gone)
    return every(*kept, not state.live.dying)


@proof(
    "I-ACCOUNT",
    about=stepping.step,
    scope=SHAPE,
    sabotage=Sabotage(leases.give_back, "add_retries(turn, lease.owner, lease.log, retries)", "None"),
)
def what_was_published_is_what_the_states_add_up_to(given: Given) -> bool:
    """Before and after a settle, a publish and its sync, or a member's end: published = settled + leased + retrying +
    pending, counted one by one. What is settled is acknowledged, expired or dead: `the-books-balance`; what is dying is
    added by `a-death-is-counted-until-its-copy-is-made`, what is delayed by `a-delayed-message-is-in-one-place`."""
    state = _any_state(given)
    batch = Publish("a", 0, 7, given.integer("count", 1, 1 << 20), 100, (Ask(1, 5, 0, 1),))
    how = given.choice("what", (0, 1, 2))
    told: tuple[AnyInput, ...] = (
        (_settle(given, state, SettleAction.ACK),),
        (batch, Stored(state.durable.lsn + 1)),
        (SessionClosed(1),),
    )[how]
    kept = [_balances(state)]
    for each in told:
        state, _, _ = given.call(stepping.step, state, NOW, [each])
        kept.append(_balances(state))
    return every(*kept)


def _here_and_waiting(state: State) -> int:
    """How many messages the topic's log has, and how many wait in delay logs for their time."""
    durable = state.durable
    waiting = sum(
        durable.logs[log].end - durable.logs[log].start - found.messages for log, found in durable.moved.items()
    )
    return durable.logs[1].end + waiting


@proof(
    "I-DELAY",
    about=stepping.step,
    scope="bounded: 1 log of any length below 2⁵⁶, 1 delayed batch of any count up to 2²⁰, restarted meanwhile or not",
    sabotage=Sabotage(delay.picked, "turn.emit(Moved(moving.log, moving.base, answer.count))", "None"),
)
def a_delayed_message_is_in_one_place(given: Given) -> bool:
    """What was published is in its log or waits for its time, and never both, counted after each step: when it is
    accepted, when it is stored, when the broker starts anew meanwhile, when it is due, and when it has moved. It is
    not in its log before it is due, and is in it then."""
    state = _any_state(given)
    before, count = state.durable.logs[1].end, given.integer("count", 1, 1 << 20)
    batch = Publish("a", 0, 7, count, 100, (Ask(1, 5, 0, 1),), delay_ms=2_000)
    due = Now(NOW.mono_ms + 2_000, NOW.wall_ms + 2_000)
    state, _, _ = given.call(stepping.step, state, NOW, [batch])
    kept = [_here_and_waiting(state) == before + count]
    state, _, _ = given.call(stepping.step, state, NOW, [Stored(state.durable.lsn)])
    kept.append(state.durable.logs[1].end == before)
    (log,) = state.durable.moved
    if given.choice("restarted", (False, True)):
        state = given.call(waking.awaken, state.durable, Settings())
        kept.append(_here_and_waiting(state) == before + count)
        state, _, _ = given.call(stepping.step, state, NOW, [Start()])
        state, _, _ = given.call(stepping.step, state, NOW, [Loaded(delay.OWNER, log, _waiting(state, log, count))])
    state, _, effects = given.call(stepping.step, state, due, [])
    kept.append(_here_and_waiting(state) == before + count)
    (pick,) = [each for each in effects if isinstance(each, Pick)]
    state, _, _ = given.call(stepping.step, state, due, [Picked(pick.ticket, 9, 100, count, 1, 0, 0)])
    return every(*kept, _here_and_waiting(state) == before + count, state.durable.logs[1].end == before + count)


def _waiting(state: State, log: int, count: int) -> tuple[BatchMeta, ...]:
    """What a delay log's files say of the only batch in it."""
    return (BatchMeta(state.durable.logs[log].start, count - 1, 100, 0, NOW.wall_ms + 2_000),)
