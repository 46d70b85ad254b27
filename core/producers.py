"""Idempotent producers: a batch that was sent again is recognised, also after a restart.

Promises  of one producer, epoch and log each sequence number is appended once (I-ONCE); what is remembered is bounded:
          five batches of each, and the producers heard of last.
Never     hands out ids: a producer chooses one at random and keeps it as long as it lives.
"""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.core.codes import Status
from dovetail.core.ids import Refusal
from dovetail.core.inputs import Publish
from dovetail.core.kernels import next_sequence
from dovetail.core.records import BatchAppended
from dovetail.core.state import Durable, Producer, SentBatch

RECENT_MAX = 5
PRODUCERS_MAX = 10_000
"""Pairs of a producer and a log that are remembered; beyond that the one heard of longest ago is forgotten."""
STORED_MAX = 1 << 30
"""How far back a sequence number is known to be stored: half of those there are, so that old and new are told apart."""


def judge(durable: Durable, log: int, batch: Publish) -> SentBatch | None:
    """The same batch, if it was appended before; None if it is the next one; raises `Refusal` for all others."""
    if batch.producer_id < 0:
        return None
    known = durable.producers.get((log, batch.producer_id))
    if known is None or batch.producer_epoch > known.epoch:
        return None
    if batch.producer_epoch < known.epoch:
        old, new = batch.producer_epoch, known.epoch
        reason = f"producer {batch.producer_id} has gone on to epoch {new}: this one, {old}, is over"
        raise Refusal(Status.FENCED, reason)
    for sent in known.recent:
        if sent.sequence == batch.base_sequence and sent.count == batch.count:
            return sent
    newest = known.recent[-1]
    expected = next_sequence(newest.sequence, newest.count)
    behind = (expected - batch.base_sequence) % (1 << 31)
    if batch.count <= behind <= known.stored:
        reason = f"producer {batch.producer_id} is at sequence {expected}: this batch, {batch.base_sequence}, is stored"
        raise Refusal(Status.EXISTS, f"{reason}, and where is no longer remembered")
    if behind:
        reason = f"producer {batch.producer_id} is at sequence {expected}, this batch has {batch.base_sequence}"
        raise Refusal(Status.INVALID, reason)
    return None


def remember(durable: Durable, record: BatchAppended) -> Durable:
    """The durable state after an idempotent producer's batch was appended. One that was moved counted before."""
    if record.producer_id < 0 or (record.other_log and not record.deliver_at_ms):
        return durable
    key = (record.other_log or record.log, record.producer_id)
    known = durable.producers.get(key)
    sent = SentBatch(record.base_sequence, record.count, record.log, record.base)
    recent: tuple[SentBatch, ...] = ()
    stored = record.count
    touches = durable.producer_touches
    if known is not None:
        touches = touches.delete(known.touch)
        if known.epoch == record.producer_epoch:
            recent = known.recent[1 - RECENT_MAX :]
            stored = min(STORED_MAX, stored + known.stored)
    producer = Producer(record.producer_epoch, (*recent, sent), durable.next_touch, stored)
    producers = durable.producers.set(key, producer)
    touches = touches.set(durable.next_touch, key)
    oldest = durable.oldest_touch
    while len(producers) > PRODUCERS_MAX:
        forgotten = touches.get(oldest)
        if forgotten is not None:
            touches, producers = touches.delete(oldest), producers.delete(forgotten)
        oldest += 1
    return replace(
        durable,
        producers=producers,
        producer_touches=touches,
        next_touch=durable.next_touch + 1,
        oldest_touch=oldest,
    )
