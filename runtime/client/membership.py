"""A client's place in a group: joined under a name, given partitions, asked for them back.

Promises  a member's name is joined before its first subscription, on every connection anew, so that it takes its place
          again; a REVOKE is answered when what was handed out of those partitions is settled, `on_revoke` has
          returned, or `RELEASE_SECONDS` are over, whichever of the last two comes first; what was not handed out is
          dropped here, because its leases return to the group.
Never     answers a REVOKE of a connection that is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeAlias

from dovetail.core.wire import Assign, Error, JoinGroup, Refusal, Revoke, SettleItem, SettleOutcome
from dovetail.runtime.client.errors import DovetailError, broker_error, refused
from dovetail.runtime.client.exchange import Reply
from dovetail.runtime.client.link import Link, ignore

log = logging.getLogger("dovetail.client")

RELEASE_SECONDS: Final = 20.0
"""How long what is in hand may take before a REVOKE is answered; the broker waits 30 s by default."""

Place: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""
Told: TypeAlias = Callable[[frozenset[Place]], Awaitable[None] | None]


class Desk:
    """The settler of one partition's messages: what is in hand of it is counted by itself."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._in_hand = 0
        self.idle = asyncio.Event()
        self.idle.set()

    @property
    def in_hand(self) -> int:
        return self._in_hand

    @in_hand.setter
    def in_hand(self, count: int) -> None:
        self._link.in_hand += count - self._in_hand
        self._in_hand = count
        if count == 0:
            self.idle.set()
        else:
            self.idle.clear()

    def ack(self, lease: int, offset: int) -> None:
        self._link.ack(lease, offset)

    def settle(self, item: SettleItem) -> None:
        self._link.settle(item)

    async def settled(self, item: SettleItem, wait: int) -> SettleOutcome:
        return await self._link.settled(item, wait)


class Membership:
    """One group that this client is in. Without a `member` name its subscriptions make it a member."""

    def __init__(self, group: str, member: str, strategy: str, on_assign: Told | None, on_revoke: Told | None) -> None:
        self.group = group
        self.member = member
        self.strategy = strategy
        self.generation = 0
        self.assigned: frozenset[Place] = frozenset()
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._desks: dict[Place, Desk] = {}
        self._partitioned = False
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, link: Link, on_failure: Callable[[DovetailError], None]) -> None:
        """A connection is there: join on it, if there is a name to join under."""
        self._desks = {}
        self._partitioned = False
        self.assigned = frozenset()
        if self.member:
            link.ask(JoinGroup(self.group, self.member, self.strategy), lambda reply: _check(reply, on_failure))

    def settler(self, link: Link, place: Place) -> Link | Desk:
        """Where settles of a partition's messages go; counted by partition where partitions can be asked back."""
        if not self._partitioned:
            return link
        desk = self._desks.get(place)
        if desk is None:
            desk = self._desks[place] = Desk(link)
        return desk

    def assign(self, given: Assign) -> None:
        """The broker says what the member has."""
        before, self.assigned = self.assigned, _places(given)
        self.generation = given.generation
        self._partitioned = True
        if before != self.assigned and self._on_assign is not None:
            self._start(_tell(self._on_assign, self.assigned))

    def revoke(self, link: Link, asked: Revoke) -> None:
        """The broker wants partitions back: finish what is in hand of them, then answer."""
        self.assigned -= _places(asked)
        self._start(self._release(link, _places(asked)))

    async def _release(self, link: Link, places: frozenset[Place]) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                if self._on_revoke is not None:
                    await _tell(self._on_revoke, places)
                for place in sorted(places):
                    if (desk := self._desks.get(place)) is not None:
                        await desk.idle.wait()
        except TimeoutError:
            log.warning("%s: partitions are given up with messages in hand: %s", self.group, sorted(places))
        link.flush()
        link.ask(JoinGroup(self.group, self.member, ""), ignore)

    def stop(self) -> None:
        """The client ends: nobody waits for what is in hand any more."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _check(reply: Reply, on_failure: Callable[[DovetailError], None]) -> None:
    if isinstance(reply, Refusal):
        on_failure(refused(reply))
    elif isinstance(reply, Error):
        on_failure(broker_error(reply))


async def _tell(told: Told, places: frozenset[Place]) -> None:
    try:
        answer = told(places)
        if answer is not None:
            await answer
    except Exception:
        log.exception("%s failed on %s", getattr(told, "__name__", "a callback"), sorted(places))


def _places(named: Assign | Revoke) -> frozenset[Place]:
    return frozenset((each.topic, each.partition) for each in named.partitions)
