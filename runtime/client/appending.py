"""One batch, put where its sender says, under an identity that the sender keeps.

Promises  a batch that is sent again with the same identity, by whoever and whenever, is stored once, as long as the
          broker remembers the producer (`spec/protocol.md`); it is sent again until it has its answer or time is over.
Never     gathers, splits or reorders: a program that must repeat itself exactly decides that by itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from dovetail.core import batch
from dovetail.core.batch import NewRecord
from dovetail.core.codes import Acks, Status
from dovetail.core.wire import Answer, Produce, ProduceAnswer, Request
from dovetail.runtime.client.durations import Duration
from dovetail.runtime.client.errors import Refused
from dovetail.runtime.storage.codecs import CODECS

A = TypeVar("A", bound=Answer)


class Identity(Struct, frozen=True):
    """Who sends a batch: of one producer and epoch each sequence number is stored once in each log."""

    producer: int
    epoch: int
    sequence: int
    """The number of the batch's first record in this log; records count from there."""


class Home(Protocol):
    """Where batches leave from."""

    async def call(self, request: Request, answer: type[A], *, timeout: Duration | None = None) -> A: ...


async def append(
    home: Home,
    topic: str,
    partition: int,
    records: Sequence[NewRecord],
    identity: Identity,
    lane: int = 0,
) -> int | None:
    """The offset of the first record, or None where the batch was stored so long ago that this is forgotten. Numbers
    count in a lane where the topic has lanes: 1 to 5, and 0 is the third."""
    data = batch.build(
        records,
        timestamp_ms=time.time_ns() // 1_000_000,
        codecs=CODECS,
        producer_id=identity.producer,
        producer_epoch=identity.epoch,
        base_sequence=identity.sequence,
    )
    try:
        answer = await home.call(Produce(topic, partition, Acks.STORED, 0, 0, data, lane), ProduceAnswer)
    except Refused as refusal:
        if refusal.status == Status.EXISTS:
            return None
        raise
    return answer.base_offset
