"""Where things lie in a data directory, and how large they may get.

Promises  a path says what is in the file; names sort in the order of what they hold.
Never     touches the disk.
"""

from __future__ import annotations

from msgspec import Struct

BROKER = "broker.json"
LOCK = "lock"
JOURNAL = "journal"
CHECKPOINTS = "checkpoints"
TOPICS = "topics"
QUARANTINE = "quarantine"

LANES = ("critical", "high", "normal", "low", "background")
BESIDE = ".tmp"
"""How a file that is not whole yet ends."""
SPARE = "spare-"
NUMBER_MAX = 2**63 - 1
"""No lsn, offset or segment comes near: a file that is named by more is none of ours."""


class StoreOptions(Struct, frozen=True):
    """The storage engine's settings; `docs/settings.md` has the reasons."""

    journal_segment_bytes: int = 32 << 20
    log_segment_bytes: int = 64 << 20
    log_segment_ms: int = 24 * 3_600_000
    index_every_bytes: int = 4096
    indexes_loaded_max: int = 64
    """Indexes of closed parts that stay in memory; one of a full part takes 400 KiB."""
    preallocate: bool = True
    """Write journal segments full of zeros first: a sync then has no metadata to write."""
    checkpoint_journal_bytes: int = 64 << 20
    """The journal goes round in a little more than twice this: from then on a sync finds its blocks, and a write its
    memory, there already, which is worth more than rarer checkpoints."""
    spare_segments_max: int = 4
    sync_each_max: int = 8
    """So many logs are synced one by one; more of them all at once, with whatever else is on that disk."""


def journal_path(number: int) -> str:
    return f"{JOURNAL}/{number:020}.wal"


def spare_path(number: int) -> str:
    """A segment that is ready to be begun: never read, whatever is in it."""
    return f"{JOURNAL}/{SPARE}{number:020}"


def checkpoint_path(lsn: int) -> str:
    return f"{CHECKPOINTS}/{lsn:020}.ckpt"


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def log_path(topic: str, partition: int, lane: int, lanes: int) -> str:
    """The directory of one log; only a topic with lanes shows them."""
    return f"{TOPICS}/{topic}/{partition}" + (f".{LANES[lane]}" if lanes else "")


def number_of(name: str, suffix: str) -> int | None:
    """The number a file is named by; None when it is not such a file."""
    stem = name.removesuffix(suffix)
    is_number = name.endswith(suffix) and len(stem) == 20 and stem.isascii() and stem.isdecimal()
    return int(stem) if is_number and int(stem) <= NUMBER_MAX else None
