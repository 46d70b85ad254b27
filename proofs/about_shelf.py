"""Proofs about what is kept in memory."""

from __future__ import annotations

from dovetail.core.journal_format import Entry
from dovetail.core.records import BatchAppended
from dovetail.core.shelf import ENTRY_BYTES, Shelf
from dovetail.proofs.engine import Given, every, implies
from dovetail.proofs.registry import proof
from dovetail.proofs.shapes import same


@proof(
    "I-PINNED",
    about=Shelf._shed,
    through=(Shelf.add, Shelf.written_behind),
    scope="bounded: 3 entries of 2 logs; limits and what is written behind any integers",
    sabotage=("self._order[0][0] <= self._behind_lsn", "True"),
)
def what_the_files_do_not_have_stays_in_memory(given: Given) -> bool:
    """Whatever the limit, an entry whose frame the logs' files do not have yet is found; what they have stays
    as long as all of it fits, and goes first where it does not. Each counts with what it costs as an object."""
    limit, behind = given.integer("limit", 0), given.integer("behind", 0)
    shelf = Shelf(limit, 0)
    shelf.written_behind(given.integer("before", 0, 0))
    for lsn, log, base in ((1, 1, 0), (2, 2, 0), (3, 1, 1)):
        given.call(shelf.add, lsn, _entry(log, base))
    total = shelf.bytes_pinned_at_most
    given.call(shelf.written_behind, behind)
    kept = [bool(shelf.entries(log, base, 1)) for _, log, base in ((1, 1, 0), (2, 2, 0), (3, 1, 1))]
    pinned = [implies(behind < lsn, found) for lsn, found in zip((1, 2, 3), kept, strict=True)]
    held = shelf.bytes_pinned_at_most
    over = [implies(every(behind >= lsn, held > limit), not found) for lsn, found in zip((1, 2, 3), kept, strict=True)]
    fits = implies(limit >= total, all(kept))
    each = _entry(1, 0).size_bytes + ENTRY_BYTES
    counted = total == 3 * each and held == kept.count(True) * each
    return every(*pinned, *over, fits, implies(behind >= 3, held <= limit), counted)


@proof(
    "I-PINNED",
    about=Shelf._shed,
    through=(Shelf.add, Shelf.written_behind),
    scope="bounded: 2 delayed entries and 1 that is not; limits and what is written behind any integers",
    sabotage=("self._delayed[0][0] <= self._behind_lsn", "False"),
)
def what_is_delayed_stays_until_the_files_have_it(given: Given) -> bool:
    """Whatever the limit, what is delayed is found exactly until the logs' files have its frame."""
    limit, behind = given.integer("limit", 0), given.integer("behind", 0)
    shelf = Shelf(limit, 0)
    for lsn, base in ((5, 0), (7, 1)):
        given.call(shelf.add, lsn, _entry(4, base, deliver_at_ms=9))
    given.call(shelf.add, 8, _entry(6, 0))
    given.call(shelf.written_behind, behind)
    delayed = [bool(shelf.entries(4, base, 1)) for base in (0, 1)]
    waits = [same(found, behind < lsn) for lsn, found in zip((5, 7), delayed, strict=True)]
    return every(*waits, implies(behind < 8, bool(shelf.entries(6, 0, 1))))


def _entry(log: int, base: int, deliver_at_ms: int = 0) -> Entry:
    record = BatchAppended(log, base, 1, 0, deliver_at_ms, 0, 0, 100, -1, -1, -1, 0)
    return Entry(record, b"h" * 52, b"b" * 100)
