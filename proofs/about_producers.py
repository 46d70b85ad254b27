"""Proofs about idempotent producers: a batch is appended once, however often it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from immutables import Map

from dovetail.core import producers
from dovetail.core.codes import Status
from dovetail.core.ids import Refusal
from dovetail.core.inputs import Publish
from dovetail.core.records import BatchAppended
from dovetail.core.state import Durable, Producer, SentBatch
from dovetail.proofs.engine import Given, every, negated, some, unchanged
from dovetail.proofs.registry import proof

SENT = "bounded: up to 5 batches remembered of one producer in one log; sequences, counts and epochs any integers"
PRODUCER, LOG = 77, 1


def _known(given: Given) -> Producer:
    """A producer that has sent one to five batches one after the other."""
    count = given.choice("batches", range(1, producers.RECENT_MAX + 1))
    sequence = given.integer("sequence", 0, (1 << 31) - 1)
    recent = []
    for place in range(count):
        length = given.integer(f"count_{place}", 1, 1_000_000)
        recent.append(SentBatch(sequence, length, LOG, 100 + place))
        sequence = (sequence + length) % (1 << 31)
    return Producer(given.integer("epoch", 0), tuple(recent), 1, given.integer("stored", 0, producers.STORED_MAX))


def _batch(given: Given) -> Publish:
    return Publish(
        "a",
        0,
        1,
        given.integer("sent_count", 1, 1_000_000),
        100,
        (),
        producer_id=PRODUCER,
        producer_epoch=given.integer("sent_epoch", 0),
        base_sequence=given.integer("sent_sequence", 0, (1 << 31) - 1),
    )


@proof("I-ONCE", about=producers.judge, scope=SENT, sabotage=("sent.sequence == batch.base_sequence and", "False and"))
def a_batch_is_taken_once(given: Given) -> bool:
    """In its epoch a producer's batch is new only with the sequence that follows the last; one of the last five is
    recognised as what it is; an older epoch is fenced, a newer one begins anew, and all else is refused: as stored only
    if all of it lies within what this epoch has stored one after the other."""
    known, batch = _known(given), _batch(given)
    durable = Durable(producers=Map({(LOG, PRODUCER): known}))
    same_epoch = batch.producer_epoch == known.epoch
    repeats = [every(sent.sequence == batch.base_sequence, sent.count == batch.count) for sent in known.recent]
    newest = known.recent[-1]
    follows = (newest.sequence + newest.count) % (1 << 31) == batch.base_sequence
    try:
        found = given.call(producers.judge, durable, LOG, batch)
    except Refusal as refusal:
        if refusal.status == Status.FENCED:
            return batch.producer_epoch < known.epoch
        behind = (newest.sequence + newest.count - batch.base_sequence) % (1 << 31)
        lies_within = every(batch.count <= behind, behind <= known.stored)
        right = lies_within if refusal.status == Status.EXISTS else negated(lies_within)
        return every(same_epoch, negated(some(*repeats)), negated(follows), right)
    if found is None:
        return some(batch.producer_epoch > known.epoch, every(same_epoch, follows, negated(some(*repeats))))
    places = [every(found.base == sent.base, hit) for sent, hit in zip(known.recent, repeats, strict=True)]
    return every(same_epoch, some(*places))


@proof(
    "I-ONCE",
    about=producers.remember,
    through=(producers.judge,),
    scope=SENT,
    sabotage=("1 - RECENT_MAX", "2 - RECENT_MAX"),
)
def what_was_appended_is_recognised(given: Given) -> bool:
    """After a batch was appended the same batch is recognised with its place, the one that follows is taken, and of
    those before it the last four are still known; another epoch's are forgotten."""
    known, batch = _known(given), _batch(given)
    durable = Durable(producers=Map({(LOG, PRODUCER): known}), producer_touches=Map({1: (LOG, PRODUCER)}), next_touch=2)
    record = BatchAppended(
        LOG, 500, batch.count, 0, 0, 0, 0, 100, PRODUCER, batch.producer_epoch, batch.base_sequence, 1
    )
    given.assume(batch.producer_epoch >= known.epoch)
    after = given.call(producers.remember, durable, record)
    now = after.producers[LOG, PRODUCER]
    kept = known.recent[-4:] if batch.producer_epoch == known.epoch else ()
    given.assume(every(True, *(sent.sequence != batch.base_sequence for sent in kept)))
    in_a_row = batch.count + (known.stored if batch.producer_epoch == known.epoch else 0)
    again = given.call(producers.judge, after, LOG, batch)
    return every(
        unchanged(again, now.recent[-1]),
        again is not None and every(again.base == 500, again.sequence == batch.base_sequence),
        now.recent[:-1] == kept,
        now.epoch == batch.producer_epoch,
        some(now.stored == in_a_row, every(in_a_row > 1 << 30, now.stored == 1 << 30)),
        now.stored <= 1 << 30,
        dict(after.producer_touches) == {2: (LOG, PRODUCER)},
        every(after.next_touch == 3, now.touch == 2),
    )


@contextmanager
def _producers_at_most(limit: int) -> Iterator[None]:
    names = vars(producers)
    before, names["PRODUCERS_MAX"] = names["PRODUCERS_MAX"], limit
    try:
        yield
    finally:
        names["PRODUCERS_MAX"] = before


@proof(
    "I-ONCE",
    about=producers.remember,
    scope="bounded: a limit of 2 producers, of which 1 or 2 are known; epoch and sequence any integers",
    sabotage=("oldest = durable.oldest_touch", "oldest = durable.oldest_touch + 2"),
)
def who_was_silent_for_longest_is_forgotten_first(given: Given) -> bool:
    """Over the limit the producer that sent nothing for longest is forgotten, and only that; a delayed batch counts
    where it goes, once: when it is moved, it is as little remembered as one without a producer."""
    silent, other = given.choice("order", ((5, 6), (6, 5)))
    known = {2: (LOG, silent), 4: (LOG, other)} if given.choice("both_known", (True, False)) else {4: (LOG, other)}
    number, kind = given.choice("producer", (-1, 0, 77)), given.choice("kind", ("plain", "delayed", "moved"))
    other_log, deliver_at_ms = {"plain": (0, 0), "delayed": (9, 5_000), "moved": (9, 0)}[kind]
    epoch, sequence = given.integer("epoch", 0), given.integer("sequence", 0)
    record = BatchAppended(LOG, 500, 1, 0, deliver_at_ms, 0, 0, 100, number, epoch, sequence, 1, other_log)
    before: Map[tuple[int, int], Producer] = Map({key: Producer(0, (), touch) for touch, key in known.items()})
    durable = Durable(producers=before, producer_touches=Map(known), next_touch=5, oldest_touch=1)
    with _producers_at_most(2):
        after = given.call(producers.remember, durable, record)
    if number < 0 or kind == "moved":
        return unchanged(after, durable)
    left = {4: (LOG, other), 5: (other_log or LOG, number)}
    return (
        dict(after.producer_touches) == left
        and set(after.producers) == set(left.values())
        and after.oldest_touch <= min(left)
    )


@proof(
    "I-ONCE",
    about=producers.judge,
    scope="bounded: nothing remembered; any integers",
    sabotage=("producer_id < 0", "producer_id < 1"),
)
def who_sends_without_an_id_is_never_judged(given: Given) -> bool:
    """A batch without a producer id is always new, and so is the first of a producer that is not known."""
    batch = _batch(given)
    plain = Publish("a", 0, 1, 1, 100, (), producer_id=-1, producer_epoch=-1, base_sequence=-1)
    durable = Durable(producers=Map({(LOG, 0): Producer(5, (SentBatch(0, 1, LOG, 9),), 1)}))
    zero = Publish("a", 0, 1, 1, 100, (), producer_id=0, producer_epoch=5, base_sequence=0)
    unknown = given.call(producers.judge, durable, LOG, batch)
    anonymous = given.call(producers.judge, durable, LOG, plain)
    repeated = given.call(producers.judge, durable, LOG, zero)
    return every(unknown is None, anonymous is None, repeated is not None)
