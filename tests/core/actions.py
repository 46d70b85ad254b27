"""What may happen to a broker, as small actions on a `World`; who picks decides how: Hypothesis, or a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from dovetail.core.codes import Acks, SettleAction, Whence
from dovetail.core.ids import ordered
from dovetail.core.inputs import (
    AnyInput,
    Ask,
    Commit,
    CreateTopic,
    DeleteTopic,
    Fetch,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListTopics,
    Publish,
    Seek,
    Seen,
    SessionClosed,
    SetCredit,
    Settle,
    SettleItem,
    Subscribe,
    Unsent,
    Unsubscribe,
)
from dovetail.core.records import EntryFlag, SyncPolicy, TopicConfig
from dovetail.core.state import Settings
from tests.core.world import World

T = TypeVar("T")

SETTINGS = Settings(max_inflight=5, partitions=1, topics_max=9, patterns_max=5, session_timeout_ms=20_000)
TOPICS = ("a", "a.b", "a/b", "b")
PATTERNS = ("a", "a.b", "a.*", "#", "a.#", "*.dlq", "b")
GROUPS = ("g", "g", "h")
MEMBERS = ("m", "n", "o")
SESSIONS_MAX = 6


class Pick(Protocol):
    """Who decides what happens next."""

    def integer(self, low: int, high: int) -> int:
        """A number in `low..high`."""

    def choice(self, options: Sequence[T]) -> T:
        """One of `options`."""


class Seeded:
    """Picks by a seed: quick, and the same every time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def choice(self, options: Sequence[T]) -> T:
        return self._random.choice(options)


def _mostly(pick: Pick, usual: T, rare: T) -> T:
    return usual if pick.integer(0, 15) else rare


def _sessions(world: World) -> list[int]:
    return [number for number, _ in ordered(world.state.live.sessions)]


def _session(world: World, pick: Pick) -> int:
    return pick.choice(_sessions(world)) if len(world.state.live.sessions) else world.session()


def _ask(world: World, session: int, request: AnyInput) -> None:
    """As a shell does: any frame is a sign of life too."""
    world.step(Seen(session), request)


def open_session(world: World, pick: Pick) -> None:
    if len(world.state.live.sessions) < SESSIONS_MAX:
        world.session(pick.choice(("c", "d")))


def close_session(world: World, pick: Pick) -> None:
    world.step(SessionClosed(_session(world, pick)))


def publish(world: World, pick: Pick) -> None:
    session, count = _session(world, pick), pick.integer(1, 6)
    request = world.request()
    topic, partition = _mostly(pick, pick.choice(TOPICS), "a..b"), _mostly(pick, -1, pick.integer(0, 1))
    acks = pick.choice((Acks.STORED, Acks.STORED, Acks.NONE))
    flags = _mostly(pick, 0, EntryFlag.NO_ACK)
    ttl_ms = _mostly(pick, 0, 1_500)
    asks = (Ask(session, request, 0, count),)
    _ask(world, session, Publish(topic, partition, request, count, 100 * count, asks, acks, 0, ttl_ms, flags))


def publish_stored(world: World, pick: Pick) -> None:
    publish(world, pick)
    if world.together is None:
        world.store()


def subscribe(world: World, pick: Pick) -> None:
    session = _session(world, pick)
    pattern = _mostly(pick, pick.choice(PATTERNS), "a.#.b")
    group = _mostly(pick, pick.choice(("", *GROUPS)), " g")
    auto_ack = _mostly(pick, False, True)
    request = Subscribe(session, world.request(), pattern, group, pick.integer(0, 4), auto_ack)
    _ask(world, session, request)


def unsubscribe(world: World, pick: Pick) -> None:
    session, number = _subscription(world, pick)
    _ask(world, session, Unsubscribe(session, world.request(), number))


def credit(world: World, pick: Pick) -> None:
    session, number = _subscription(world, pick)
    _ask(world, session, SetCredit(session, world.request(), number, pick.integer(0, 6)))


def _subscription(world: World, pick: Pick) -> tuple[int, int]:
    """Mostly one's own."""
    known = ordered(world.state.live.subscriptions)
    if not known:
        return _session(world, pick), 1
    number, subscription = pick.choice(known)
    return _mostly(pick, subscription.session, _session(world, pick)), number


def join(world: World, pick: Pick) -> None:
    session = _session(world, pick)
    group, member = pick.choice(GROUPS), _mostly(pick, pick.choice(MEMBERS), "")
    strategy = _mostly(pick, pick.choice(("", "round-robin")), "best")
    _ask(world, session, JoinGroup(session, world.request(), group, member, strategy))


def leave(world: World, pick: Pick) -> None:
    session = _session(world, pick)
    members = world.state.live.sessions[session].members
    mine = pick.choice(members) if members else None
    group, member = (world.groups[mine.group], mine.name) if mine else ("g", "m")
    _ask(world, session, LeaveGroup(session, world.request(), group, _mostly(pick, member, "x")))


def heartbeat(world: World, pick: Pick) -> None:
    session = _session(world, pick)
    _ask(world, session, Heartbeat(session, world.request(), pick.choice(("", *MEMBERS))))


def settle(world: World, pick: Pick) -> None:
    """Ack, nack, reject or extend: parts of leases mostly, sometimes what is held by nobody or by another."""
    leases = ordered(world.state.live.leases)
    if not leases:
        return
    _, lease = pick.choice(leases)
    session = world.state.live.subscriptions[lease.subscription].session
    items = []
    for _ in range(pick.integer(1, 2)):
        first, last = pick.choice(lease.ranges)
        first = pick.integer(first, last)
        last = _mostly(pick, pick.integer(first, last), last + 1)
        action = _mostly(pick, pick.choice((*SettleAction, SettleAction.ACK, SettleAction.NACK, SettleAction.NACK)), 9)
        delay_ms = pick.choice((0, 0, 500)) if action == SettleAction.NACK else pick.choice((0, 40_000))
        items.append(SettleItem(lease.id, action, first, last, pick.integer(0, 4), delay_ms))
    session = _mostly(pick, session, _session(world, pick))
    _ask(world, session, Settle(session, world.request(), tuple(items), pick.integer(0, 3) == 0))


def settle_everything(world: World, pick: Pick) -> None:
    """One session acks or nacks all it holds."""
    session, action = _session(world, pick), pick.choice((SettleAction.ACK, SettleAction.NACK))
    items = tuple(
        SettleItem(number, action, first, last)
        for number, lease in ordered(world.state.live.leases)
        if world.state.live.subscriptions[lease.subscription].session == session
        for first, last in lease.ranges
    )
    _ask(world, session, Settle(session, world.request(), items))


def pass_a_moment(world: World, pick: Pick) -> None:
    world.pass_time(pick.choice((7, 500, 1_300, 3_000)))


def pass_a_lease(world: World, pick: Pick) -> None:
    """Long enough for leases to run out; sessions that give signs of life live on."""
    for _ in range(2):
        world.pass_time(pick.choice((15_000, 16_000)))
        for session in _sessions(world):
            if pick.integer(0, 7):
                world.step(Seen(session))


def pass_a_lease_unsent(world: World, pick: Pick) -> None:
    """The shell is late with some deliveries: their leases run out before anybody has seen them."""
    leases = [lease for _, lease in ordered(world.state.live.leases) if pick.integer(0, 1)]
    if leases and world.together is None:
        deadline_ms = min(lease.deadline_ms for lease in leases)
        world.pass_time(max(0, deadline_ms - 1 - world.mono_ms))
        late_ms = pick.choice((0, 1, 6, 20))
        world.mono_ms, world.wall_ms = world.mono_ms + late_ms, world.wall_ms + late_ms
        world.step(*[Unsent(lease.id) for lease in leases])


def commit(world: World, pick: Pick) -> None:
    session, (group, topic, partition) = _session(world, pick), _place(world, pick)
    offset = pick.integer(0, _end(world, topic, partition) + 1)
    _ask(world, session, Commit(session, world.request(), group, topic, partition, offset))


def seek(world: World, pick: Pick) -> None:
    session, (group, topic, partition) = _session(world, pick), _place(world, pick)
    offset = pick.integer(0, _end(world, topic, partition) + 1)
    whence = pick.choice((Whence.OFFSET, Whence.OFFSET, Whence.EARLIEST, Whence.LATEST, Whence.TIME))
    _ask(world, session, Seek(session, world.request(), group, topic, partition, whence, offset))


def _place(world: World, pick: Pick) -> tuple[str, str, int]:
    """Mostly where a group reads."""
    known = [(world.groups[group], *world.logs[log]) for (group, log), _ in ordered(world.state.durable.cursors)]
    anywhere = (pick.choice(GROUPS), pick.choice(TOPICS), pick.integer(0, 1))
    return _mostly(pick, pick.choice(known), anywhere) if known else anywhere


def _log(world: World, pick: Pick) -> tuple[str, int]:
    known = [world.logs[number] for number, _ in ordered(world.state.durable.logs)]
    anywhere = (pick.choice(TOPICS), pick.integer(0, 1))
    return _mostly(pick, pick.choice(known), anywhere) if known else anywhere


def _end(world: World, topic: str, partition: int) -> int:
    logs = ordered(world.state.durable.logs)
    return max((log.end for number, log in logs if world.logs[number] == (topic, partition)), default=0)


def fetch(world: World, pick: Pick) -> None:
    session, (topic, partition) = _session(world, pick), _log(world, pick)
    offset = pick.integer(0, _end(world, topic, partition) + 1)
    wait_ms = pick.choice((0, 500))
    _ask(world, session, Fetch(session, world.request(), topic, partition, offset, 1_000, wait_ms))


def list_topics(world: World, pick: Pick) -> None:
    session = _session(world, pick)
    _ask(world, session, ListTopics(session, world.request(), pick.choice(("", *PATTERNS))))


def create_topic(world: World, pick: Pick) -> None:
    session = _session(world, pick)
    sync = pick.choice((SyncPolicy.ALWAYS, SyncPolicy.OS))
    config = TopicConfig(
        lease_ms=pick.choice((30_000, 5_000)),
        lease_max_ms=40_000,
        max_retries=pick.integer(0, 3),
        sync=sync,
        ttl_ms=pick.choice((0, 0, 60_000)),
        dead_letters=pick.integer(0, 3) > 0,
        expired_to_dead_letters=pick.integer(0, 2) == 0,
    )
    topic, partitions = _mostly(pick, pick.choice(TOPICS), "a b"), _mostly(pick, pick.integer(1, 3), 0)
    _ask(world, session, CreateTopic(session, world.request(), topic, partitions, 0, config))


def delete_topic(world: World, pick: Pick) -> None:
    session, (topic, _) = _session(world, pick), _log(world, pick)
    _ask(world, session, DeleteTopic(session, world.request(), topic, pick.integer(0, 1) == 1))


def store(world: World, pick: Pick) -> None:
    """Durability arrives late and in steps."""
    if world.together is None:
        world.store(pick.integer(world.stored_lsn, world.frames[-1][0]))


def store_all(world: World, pick: Pick) -> None:
    if world.together is None:
        world.store()


def write(world: World, pick: Pick) -> None:
    if world.together is None:
        world.write(pick.integer(world.written_lsn, world.frames[-1][0]))


def answer(world: World, pick: Pick) -> None:
    """The store or the network gets something done, in any order."""
    if world.reads:
        world.answer_read(pick.integer(0, len(world.reads) - 1))
    if world.copies:
        world.answer_copy(pick.integer(0, len(world.copies) - 1))
    if world.finds:
        world.answer_find(pick.integer(0, 9))
    if world.unsent:
        world.report_sent(pick.integer(0, len(world.unsent) - 1))


def trim(world: World, pick: Pick) -> None:
    logs = ordered(world.state.durable.logs)
    if logs and world.together is None:
        number, log = pick.choice(logs)
        world.trim(number, pick.integer(0, log.end))


def crash(world: World, pick: Pick) -> None:
    """The frames that were stored survive, and some of those that were not."""
    if world.together is None:
        world.crash(pick.integer(world.stored_lsn, world.frames[-1][0]), pick.choice((0, 777)))


Action = Callable[[World, Pick], None]

ACTIONS: tuple[tuple[int, Action], ...] = (
    (4, open_session),
    (2, close_session),
    (4, publish),
    (12, publish_stored),
    (12, subscribe),
    (2, unsubscribe),
    (3, credit),
    (3, join),
    (1, leave),
    (1, heartbeat),
    (24, settle),
    (4, settle_everything),
    (12, pass_a_moment),
    (3, pass_a_lease),
    (3, pass_a_lease_unsent),
    (2, commit),
    (3, seek),
    (1, fetch),
    (1, list_topics),
    (3, create_topic),
    (1, delete_topic),
    (2, store),
    (8, store_all),
    (1, write),
    (16, answer),
    (2, trim),
    (3, crash),
)
"""Each action with its weight."""

REQUESTS: tuple[Action, ...] = (
    publish,
    subscribe,
    settle,
    settle_everything,
    unsubscribe,
    join,
    leave,
    credit,
    commit,
    seek,
    create_topic,
    delete_topic,
    close_session,
)
"""What may arrive together with others in one tick."""


def several(world: World, pick: Pick) -> None:
    """Several requests that arrive in one tick and so are one step."""
    if not len(world.state.live.sessions):
        world.session()
    world.begin_tick()
    for _ in range(pick.integer(2, 4)):
        pick.choice(REQUESTS)(world, pick)
    world.end_tick()


def run(seed: int, count: int) -> World:
    """`count` actions on a new world, as `seed` picks them; then it heals.

    Each seed leaves some kinds of action out: a run that never crashes or never deletes gets further elsewhere.
    """
    pick, world = Seeded(seed), World(SETTINGS)
    actions = [action for weight, action in ACTIONS if weight > 3 or pick.integer(0, 2) for _ in range(weight)]
    for _ in range(count):
        action = several if pick.integer(0, 24) == 0 else pick.choice(actions)
        action(world, pick)
    world.heal()
    return world
