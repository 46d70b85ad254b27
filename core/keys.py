"""Key-ordered groups: one key's messages are at one member at a time.

The core knows keys by a hash that the shell adds when a cursor of such a group reads metadata; two keys with one hash
are treated as one. A lease keeps the hashes of what it was granted with, and until it ends they stay with its member.

Promises  while a member holds a message of a key, that key's messages go to nobody else (I-KEY).
Never     sees a key, and never holds back a message without one for its key's sake.
"""

from __future__ import annotations

from bisect import bisect_right

from dovetail.core.state import BatchMeta
from dovetail.core.turn import Turn

KEY_ORDERED = "key-ordered"
NO_KEY = -1
HASH_MAX = 0xFFFF
READ_BYTES = 256 << 10
"""How much backlog one `Read` with keys asks metadata for: there is a hash for every message of it."""


def are_ordered(turn: Turn, owner: int) -> bool:
    """Whether `owner` is a group that keeps keys together."""
    return owner > 0 and turn.durable.groups[owner].strategy == KEY_ORDERED


def at(batches: tuple[BatchMeta, ...], offset: int) -> int:
    """The hash of the key at an offset; `NO_KEY` where there is none or none is known."""
    batch = batches[bisect_right(batches, offset, key=_base) - 1]
    place = offset - batch.base
    return batch.keys[place] if place < len(batch.keys) else NO_KEY


def _base(batch: BatchMeta) -> int:
    return batch.base


def between(batches: tuple[BatchMeta, ...], first: int, last: int) -> tuple[int, ...]:
    """The hashes of the keys in `first..last`, each once."""
    if not batches[0].keys:
        return ()
    found = {at(batches, offset): None for offset in range(first, last + 1)}
    return tuple(sorted(key for key in found if key != NO_KEY))


def pins(turn: Turn, owner: int, log: int) -> dict[int, str]:
    """Which keys of a log are at which member now."""
    found: dict[int, str] = {}
    for number in turn.teams.get(owner, ()):
        for lease_id in sorted(turn.subscriptions[number].leases):
            lease = turn.leases[lease_id]
            if lease.log == log:
                found.update(dict.fromkeys(lease.keys, lease.member))
    return found


def allowed(turn: Turn, owner: int, log: int, ring: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The part of a ring that messages with these keys may go to: whoever has some of them already, else everyone."""
    if not wanted:
        return ring
    held = pins(turn, owner, log)
    holders = {held[key] for key in wanted if key in held}
    return tuple(number for number in ring if holders <= {turn.subscriptions[number].member})
