"""Consumers that poll over HTTP: each is a session of its own and a real member of its group.

A subscription of such a member has credit only while a poll waits: between polls nothing is leased that nobody has
seen. A poll that is repeated with the same sequence number gives the same messages.

Promises  what a poll leased and its client never got is given back, uncounted; a member is kept as long as the core
          keeps its session.
Never     settles by itself, but for members that asked for it.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from hashlib import blake2s

from msgspec import Struct

from dovetail.core import names
from dovetail.core.effects import Deliver
from dovetail.core.journal_format import Entry
from dovetail.core.node import Local

NO_SEQ = -1
MEMBERS_MAX = 10_000


class Held(Struct, frozen=True):
    """A delivered message on its way to a poll: where its bytes are, and the lease it is under (0: none)."""

    delivery: Deliver
    entry: Entry
    offset: int


class Ticket(Struct, frozen=True):
    """What a receipt says."""

    message_id: str
    offset: int
    attempt: int
    lease: int


class Consumer:
    """One member: its session, its subscriptions, and what was delivered and not yet handed out."""

    def __init__(self, group: str, name: str, strategy: str, patterns: tuple[str, ...]) -> None:
        self.group = group
        self.name = name
        self.strategy = strategy
        self.patterns = patterns
        self.subscriptions: list[int] = []
        self.inbox: list[Held] = []
        self.arrived = asyncio.Event()
        self.polling = asyncio.Lock()
        self.last_seq = NO_SEQ
        self.last: list[Held] = []
        self.local: Local | None = None

    def deliver(self, delivery: Deliver, entries: tuple[Entry, ...]) -> None:
        """A delivery of the node's."""
        for first, last in delivery.ranges:
            for entry in entries:
                for offset in range(max(first, entry.base), min(last, entry.last) + 1):
                    self.inbox.append(Held(delivery, entry, offset))
        self.arrived.set()

    def take(self, most: int) -> list[Held]:
        """The oldest of what was delivered."""
        taken, self.inbox = self.inbox[:most], self.inbox[most:]
        return taken


class Consumers:
    """The members that poll, and their receipts."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], Consumer] = {}
        self._secret = secrets.token_bytes(32)
        self._count = 0

    def new_name(self) -> str:
        """A member id for somebody who chose none."""
        self._count += 1
        return f"http-{self._count}-{secrets.token_hex(3)}"

    def add(self, consumer: Consumer) -> None:
        """Keep a member that has joined; those whose session is over are forgotten when there are many."""
        if len(self._members) >= MEMBERS_MAX:
            self._members = {key: each for key, each in self._members.items() if each.local and not each.local.closing}
        self._members[consumer.group, consumer.name] = consumer

    def find(self, group: str, name: str) -> Consumer | None:
        """A member, if it is there and its session is not over."""
        found = self._members.get((group, name))
        if found is not None and found.local is not None and found.local.closing:
            del self._members[group, name]
            return None
        return found

    def remove(self, consumer: Consumer) -> None:
        """Forget a member."""
        if self._members.get((consumer.group, consumer.name)) is consumer:
            del self._members[consumer.group, consumer.name]

    def receipt(self, held: Held) -> str:
        """What a client settles a message with: its place and attempt, its lease, and a proof that it is ours."""
        found = held.delivery
        place = names.message_id(found.topic, found.partition, found.lane, held.offset)
        text = f"{place}:{found.attempt}:{found.lease:x}"
        return f"{text}.{self._proof(text)}"

    def ticket(self, receipt: str) -> Ticket | None:
        """What a receipt says; None for one that this broker has not given out since it started."""
        text, _, proof = receipt.rpartition(".")
        if not hmac.compare_digest(proof.encode("utf-8", "replace"), self._proof(text).encode()):
            return None
        message_id, attempt, lease = text.rsplit(":", 2)
        return Ticket(message_id, int(message_id.rsplit(":", 1)[1]), int(attempt), int(lease, 16))

    def _proof(self, text: str) -> str:
        return blake2s(text.encode("utf-8", "replace"), key=self._secret, digest_size=8).hexdigest()
