"""The settles of one connection between two ticks, said in as few words as possible.

A consumer acknowledges message after message; what leaves is one SETTLE whose items are ranges: offsets of one
lease that follow each other and are settled alike become one item.

Promises  every offset added is in exactly one item, with its own lease, action, reason, delay and error; the
          answer to an item reaches everyone who waits for an offset in it.
Never     joins offsets of different leases, or offsets with a gap between them.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from dovetail.core.codes import SettleAction, Wait
from dovetail.core.wire import Settle, SettleItem, SettleOutcome

ITEMS_MAX: Final = 10_000  # in one SETTLE; the wire allows 65,535

W = TypeVar("W")
_Way: TypeAlias = tuple[int, int, int, int, int, str]  # wait, lease, action, reason, delay_ms, error


class Gathered(Struct, Generic[W], frozen=True):
    """A SETTLE to be sent, and for each of its items those who wait for its outcome."""

    settle: Settle
    waiters: tuple[tuple[W, ...], ...]

    def outcomes(self, outcomes: Sequence[SettleOutcome]) -> list[tuple[W, SettleOutcome]]:
        """Who is to be told what."""
        return [
            (waiter, outcome) for waiters, outcome in zip(self.waiters, outcomes, strict=False) for waiter in waiters
        ]


class Gatherer(Generic[W]):
    """Collects settles until `take`."""

    __slots__ = ("_acks", "_others", "_waiters")

    def __init__(self) -> None:
        self._acks: dict[int, list[int]] = {}  # the common case, by lease: nobody waits for it
        self._others: dict[_Way, list[int]] = {}
        self._waiters: dict[_Way, dict[int, list[W]]] = {}  # by the first offset each waits for

    def __bool__(self) -> bool:
        return bool(self._acks or self._others)

    def ack(self, lease: int, offset: int) -> None:
        """An acknowledgment that nobody waits for."""
        offsets = self._acks.get(lease)
        if offsets is None:
            self._acks[lease] = [offset]
        else:
            offsets.append(offset)

    def add(self, item: SettleItem, wait: int = Wait.APPLIED, waiter: W | None = None) -> None:
        """Any settle of the range in `item`."""
        way = (wait, item.lease, item.action, item.reason, item.delay_ms, item.error)
        self._others.setdefault(way, []).extend(range(item.first, item.last + 1))
        if waiter is not None:
            self._waiters.setdefault(way, {}).setdefault(item.first, []).append(waiter)

    def take(self) -> list[Gathered[W]]:
        """All that was collected, ready to be sent; nothing stays."""
        gathered: list[Gathered[W]] = []
        for wait in (Wait.APPLIED, Wait.DURABLE):
            items, waiters = self._items(wait)
            for at in range(0, len(items), ITEMS_MAX):
                settle = Settle(tuple(items[at : at + ITEMS_MAX]), wait)
                gathered.append(Gathered(settle, tuple(waiters[at : at + ITEMS_MAX])))
        self._acks = {}
        self._others = {}
        self._waiters = {}
        return gathered

    def _items(self, wait: int) -> tuple[list[SettleItem], list[tuple[W, ...]]]:
        items: list[SettleItem] = []
        waiters: list[tuple[W, ...]] = []
        if wait == Wait.APPLIED:
            for lease, offsets in self._acks.items():
                items += [SettleItem(lease, SettleAction.ACK, first, last) for first, last in runs(offsets)]
            waiters = [()] * len(items)
        for way, offsets in self._others.items():
            if way[0] != wait:
                continue
            _, lease, action, reason, delay_ms, error = way
            waiting = self._waiters.get(way, {})
            for first, last in runs(offsets):
                items.append(SettleItem(lease, action, first, last, reason, delay_ms, error))
                offsets_here = range(first, last + 1) if waiting else ()
                waiters.append(tuple([who for offset in offsets_here for who in waiting.get(offset, ())]))
        return items, waiters


def runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """The offsets, in any order, as ranges without gaps: both ends included, lowest first."""
    rising = sorted(set(offsets))
    first, last = rising[0], rising[-1]
    if last - first == len(rising) - 1:
        return [(first, last)]
    found = []
    last = first
    for offset in rising:
        if offset > last + 1:
            found.append((first, last))
            first = offset
        last = offset
    found.append((first, last))
    return found
