"""Coverage marks: rare paths that a campaign must reach, or it has not tested them.

Promises  a mark is taken from what the broker, its disk and its clients did, never from hooks in the product's code.
Never     changes a run.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.core import effects, inputs, records
from dovetail.core.codes import Status
from dovetail.core.effects import AnyEffect
from dovetail.core.inputs import AnyInput
from dovetail.core.records import AnyRecord, FailReason

REQUIRED = (
    "a damaged disk was repaired",
    "crash",
    "crash during recovery",
    "dead letter",
    "dead letter purged",
    "dead letter replayed",
    "delivered from a lane",
    "disk failure ended the broker",
    "disk refused: full",
    "expired",
    "job Chore",
    "job FindTime",
    "job ReadLog",
    "job WriteBehind",
    "lease timed out",
    "level by itself: emergency",
    "level by itself: throttled",
    "level: read-only",
    "member left",
    "member removed for its silence",
    "member removed for not answering",
    "nack",
    "partition asked back",
    "publisher refused for lag",
    "recovery: cut",
    "redelivered at a later attempt",
    "reject",
    "seek",
    "session closed by the broker",
    "settle waits to be durable",
    "topic configured",
    "topic deleted",
    "written without a sync",
)
"""What a campaign of the default swarm must have seen at least once."""
PROMISES = (
    "I-ATTEMPTS",
    "I-BACKOFF",
    "I-CAPACITY",
    "I-CONTENT",
    "I-CREDIT",
    "I-DEAD",
    "I-DELIVERY",
    "I-DELAY",
    "I-DENSE",
    "I-FENCE",
    "I-FLOW",
    "I-GONE",
    "I-HEALTH",
    "I-INVENTED",
    "I-KEY",
    "I-LAG",
    "I-LANE",
    "I-LEASE",
    "I-LEVEL",
    "I-LIFE",
    "I-LOST",
    "I-ONCE",
    "I-ORDER",
    "I-OWNER",
    "I-POISON",
    "I-QUOTA",
    "I-REPAIR",
    "I-REPLAY",
    "I-SESSION",
    "I-SETTLED",
    "I-STORED",
    "I-TTL",
)
"""What the books judge: a promise that no run put to the test is not kept, only unbroken."""


def of_step(
    arrived: tuple[AnyInput, ...], decided: tuple[AnyRecord, ...], done: tuple[AnyEffect, ...]
) -> Iterator[str]:
    """The marks of one step."""
    for each in arrived:
        if isinstance(each, inputs.Settle) and each.wait:
            yield "settle waits to be durable"
    for record in decided:
        if isinstance(record, records.AttemptFailed):
            if record.reason == FailReason.TIMEOUT:
                yield "lease timed out"
            else:
                yield "reject" if record.reason == FailReason.REJECTED else "nack"
        elif isinstance(record, records.DeadLettered):
            yield "dead letter"
        elif isinstance(record, records.Expired):
            yield "expired"
        elif isinstance(record, records.MemberLeft):
            yield "member left"
        elif isinstance(record, records.FloorReset):
            yield "seek"
        elif isinstance(record, records.Replayed):
            yield "dead letter replayed"
        elif isinstance(record, records.DeadRemoved):
            yield "dead letter purged"
        elif isinstance(record, records.TopicDeleted):
            yield "topic deleted"
        elif isinstance(record, records.TopicConfigured):
            yield "topic configured"
    for effect in done:
        if isinstance(effect, effects.CloseSession):
            yield "session closed by the broker"
            yield from (mark for word, mark in _ENDS if word in effect.reason)
        elif isinstance(effect, effects.Revoke):
            yield "partition asked back"
        elif isinstance(effect, effects.Deliver):
            if effect.attempt > 1:
                yield "redelivered at a later attempt"
            if effect.lane >= 0:
                yield "delivered from a lane"
        elif isinstance(effect, effects.Reply) and _is_refused_for_lag(effect.answer):
            yield "publisher refused for lag"


_ENDS = (
    ("nothing was heard", "member removed for its silence"),
    ("was not answered", "member removed for not answering"),
)
"""What the reason for which a session is closed says of a member."""


def _is_refused_for_lag(answer: effects.Answer) -> bool:
    return isinstance(answer, effects.Refused) and answer.status == Status.BUSY and "behind" in answer.reason
