"""Dead letters: a message whose tries are used up moves, with its story, to its topic's `.dlq`.

Promises  the copy and the settle of its original are one frame: both happen or neither (I-DEAD).
Never     makes a dead letter of a dead letter.
"""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.core import names, topics
from dovetail.core.append import append
from dovetail.core.cursor import is_settled
from dovetail.core.inputs import Copied, Publish
from dovetail.core.publish import record_of
from dovetail.core.records import DeadLettered, TopicConfig
from dovetail.core.state import Topic
from dovetail.core.turn import Turn


def copied(turn: Turn, answer: Copied) -> None:
    """The copy of a dying message is there: append it and settle the original."""
    dying = turn.dying.pop(answer.ticket, None)
    progress = turn.progress.get((dying.owner, dying.log)) if dying else None
    if dying is None or progress is None or progress.era != dying.era:
        return
    turn.progress[dying.owner, dying.log] = replace(progress, dying=progress.dying - 1)
    if is_settled(turn.cursor(dying.owner, dying.log), dying.offset):
        return
    turn.wake(dying.owner, dying.log)
    if answer.size_bytes == 0:
        turn.expire(dying.owner, dying.log, dying.offset, dying.offset)
        return
    topic = _topic(turn, turn.topic_of(dying.log).name)
    log = turn.durable.logs[topic.first_log]
    copy = Publish(topic.name, 0, answer.handle, 1, answer.size_bytes, ())
    append(turn, topic, record_of(turn, topic, log, copy))
    if dying.owner > 0:
        turn.emit(DeadLettered(dying.owner, dying.log, dying.offset, log.id, log.end, dying.reason))
    else:
        turn.settle(dying.owner, dying.log, dying.offset, dying.offset)


def _topic(turn: Turn, original: str) -> Topic:
    """The dead-letter topic of `original`, made when first needed, whatever the limit on topics says."""
    name = names.dead_letters_of(original) or original
    number = turn.durable.topics_by_name.get(name)
    if number is not None:
        return turn.durable.topics[number]
    config = TopicConfig(retention_ms=turn.settings.dead_letter_retention_ms, dead_letters=False)
    return topics.create(turn, name, 1, 0, config, automatic=True, limited=False)
