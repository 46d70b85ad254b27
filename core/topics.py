"""Topics: found, made on first use, listed, deleted, trimmed.

Promises  a topic that appears is read by every group and subscription whose pattern matches it, from its start;
          one that is created again goes on from its old end (I-IDS).
Never     removes anything that a group still needs (I-RETAIN).
"""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.core import leases, names, polls, routing
from dovetail.core.codes import Status
from dovetail.core.effects import Done, LogInfo, TopicInfo, Topics
from dovetail.core.ids import Refusal, ordered
from dovetail.core.inputs import ConfigureTopic, CreateTopic, DeleteTopic, ListTopics, TrimLog
from dovetail.core.names import BadName
from dovetail.core.records import (
    LogTrimmed,
    ReplayState,
    SyncPolicy,
    TopicConfig,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from dovetail.core.state import Settings, Tail, Topic
from dovetail.core.turn import Turn

LOGS_MAX = 0xFFFF
"""Logs of one topic: what the wire can count."""
HEALTH_CONFIG = TopicConfig(retention_ms=3_600_000, lag_warning=0)
"""A deep look removes what it wrote; what is left after a crash goes within the hour."""


def config_for(settings: Settings, name: str) -> TopicConfig:
    """What a new topic of this canonical name gets: the defaults, and over them each rule whose pattern matches it."""
    config = settings.topic_defaults
    for rule in settings.topic_rules:
        if names.matches(rule.pattern, name):
            config = replace(config, **dict(rule.changes))
    return replace(config, sync=SyncPolicy(config.sync))


def find(turn: Turn, text: str) -> Topic | None:
    """The topic called `text`, if there is one; raises `Refusal` for what can't be a topic's name."""
    found = turn.durable.topics_by_name.get(text)
    if found is None or (names.is_hidden(text) and text != names.HEALTH):
        if text == names.HEALTH:
            return None
        try:
            found = turn.durable.topics_by_name.get(names.topic_name(text))
        except BadName as error:
            raise Refusal(Status.INVALID, str(error)) from None
    return None if found is None else turn.durable.topics[found]


def check_name(text: str) -> None:
    """Raise `Refusal` for what can't be a topic's name."""
    try:
        names.topic_name(text)
    except BadName as error:
        raise Refusal(Status.INVALID, str(error)) from None


def find_or_create(turn: Turn, text: str) -> Topic:
    """The topic called `text`, made now if topics are made on first use; raises `Refusal`."""
    found = find(turn, text)
    if found is not None:
        return found
    if text == names.HEALTH:
        return create(turn, text, 1, 0, HEALTH_CONFIG, automatic=False, limited=False)
    name = names.topic_name(text)
    if not turn.settings.auto_create:
        raise Refusal(Status.NOT_FOUND, f"topic {name!r} does not exist and topics are not created on first use here")
    return create(turn, name, turn.settings.partitions, 0, config_for(turn.settings, name), automatic=True)


def create(
    turn: Turn,
    name: str,
    partitions: int,
    lanes: int,
    config: TopicConfig,
    *,
    automatic: bool,
    limited: bool = True,
) -> Topic:
    """A new topic under a canonical name; everyone whose pattern matches starts to read it."""
    if limited and len(turn.durable.topics) >= turn.settings.topics_max:
        raise Refusal(Status.QUOTA, f"there are {turn.settings.topics_max} topics already, the most this broker allows")
    count = partitions * max(1, lanes)
    old_ends = turn.durable.retired_by_name.get(name, ())
    # A partition keeps its old end even if the new topic has fewer or more: the highest end is safe for all.
    starts = old_ends if len(old_ends) == count else (max(old_ends, default=0),) * count
    turn.emit(
        TopicCreated(
            turn.durable.next_topic,
            name,
            partitions,
            lanes,
            turn.durable.next_log,
            starts,
            config,
            automatic,
            turn.wall_ms,
        )
    )
    topic = turn.durable.topics[turn.durable.topics_by_name[name]]
    if not names.is_hidden(name):
        turn.topic_trie = turn.topic_trie.insert(name, topic.id)
    for log in routing.logs_of(topic):
        turn.tails[log] = Tail(turn.durable.logs[log].end)
    if not names.is_hidden(name):
        routing.topic_appeared(turn, topic)
    return topic


def create_by_request(turn: Turn, request: CreateTopic) -> None:
    """An operator's explicit creation."""
    try:
        name = names.topic_name(request.topic)
    except BadName as error:
        return turn.refuse(request.session, request.request, Status.INVALID, str(error))
    if name in turn.durable.topics_by_name:
        return turn.refuse(request.session, request.request, Status.EXISTS, f"topic {name!r} exists already")
    most = min(turn.settings.partitions_max, LOGS_MAX // max(1, request.lanes))
    if not 1 <= request.partitions <= most or request.lanes not in (0, 5):
        reason = f"{request.partitions} partitions and {request.lanes} lanes: 1 to {most} partitions, 0 or 5 lanes"
        return turn.refuse(request.session, request.request, Status.INVALID, reason)
    try:
        create(turn, name, request.partitions, request.lanes, request.config, automatic=False)
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    return turn.reply_stored(request.session, request.request, Done())


def configure(turn: Turn, request: ConfigureTopic) -> None:
    """An operator's other settings for a topic: recorded, so that they win over the defaults for good."""
    number = turn.durable.topics_by_name.get(request.topic.replace("/", "."))
    if number is None:
        reason = f"topic {request.topic!r} does not exist"
        return turn.refuse(request.session, request.request, Status.NOT_FOUND, reason)
    if turn.durable.topics[number].config != request.config:
        turn.emit(TopicConfigured(number, request.config))
    return turn.reply_stored(request.session, request.request, Done())


def delete(turn: Turn, request: DeleteTopic) -> None:
    """Remove a topic with its messages; refused while somebody subscribes, unless forced."""
    number = turn.durable.topics_by_name.get(request.topic.replace("/", "."))
    if number is None:
        reason = f"topic {request.topic!r} does not exist"
        return turn.refuse(request.session, request.request, Status.NOT_FOUND, reason)
    topic = turn.durable.topics[number]
    subscribers = routing.subscriber_count(turn, topic)
    if subscribers and not request.force:
        reason = f"topic {topic.name!r} has {subscribers} subscribers: unsubscribe them or force the deletion"
        return turn.refuse(request.session, request.request, Status.EXISTS, reason)
    _remove(turn, topic)
    return turn.reply_stored(request.session, request.request, Done())


def _remove(turn: Turn, topic: Topic) -> None:
    # No plan that is made from here on counts with it, not even for a member that has just come back to it.
    turn.topic_trie = turn.topic_trie.remove(topic.name, topic.id)
    routing.topic_vanishes(turn, topic)
    for log in routing.logs_of(topic):
        del turn.tails[log]
        turn.marks.pop(log, None)
        polls.end_all(turn, log, f"topic {topic.name!r} was deleted")
    turn.emit(TopicDeleted(topic.id))


def trim(turn: Turn, request: TrimLog) -> None:
    """Retention: what is below the proposed start, below every group's floor and stored may go."""
    log = turn.durable.logs.get(request.log)
    if log is None:
        return
    start = min(request.start, turn.tails[log.id].stored)
    for owner in turn.readers.get(log.id, ()):
        if owner > 0:
            start = min(start, turn.durable.cursors[owner, log.id].floor)
    for _, replay in ordered(turn.durable.replays):
        if replay.log == log.id and replay.state <= ReplayState.PAUSED:
            start = min([start, *(offset for offset, _, _ in replay.items[replay.done :])])
    if request.hard_start > start:
        start = min(request.hard_start, turn.tails[log.id].stored)
        for owner in turn.readers.get(log.id, ()):
            leases.expire_below(turn, owner, log.id, start)
    if start > log.start:
        turn.emit(LogTrimmed(log.id, start))


def collect_idle(turn: Turn) -> None:
    """Delete topics that were made on first use, hold nothing, are read by nobody and heard of nothing for long."""
    for _, topic in ordered(turn.durable.topics):
        logs = [turn.durable.logs[number] for number in routing.logs_of(topic)]
        heard_ms = max([topic.created_ms, *(turn.marks[log.id][-1][1] for log in logs if log.id in turn.marks)])
        is_idle = turn.wall_ms - heard_ms >= turn.settings.topic_idle_ms
        is_empty = all(log.start == log.end for log in logs)
        if topic.automatic and is_idle and is_empty and not any(turn.readers.get(log.id) for log in logs):
            _remove(turn, topic)


def describe(turn: Turn, request: ListTopics) -> None:
    """The topics that a pattern matches, with their logs' bounds."""
    try:
        pattern = names.pattern(request.pattern or "#")
    except BadName as error:
        return turn.refuse(request.session, request.request, Status.INVALID, str(error))
    found = []
    for number in turn.topic_trie.topics_for(pattern):
        topic = turn.durable.topics[number]
        logs = [turn.durable.logs[log] for log in routing.logs_of(topic)]
        infos = tuple(LogInfo(log.partition, log.lane, log.start, turn.tails[log.id].stored) for log in logs)
        found.append(TopicInfo(topic.name, infos))
    return turn.reply(request.session, request.request, Topics(tuple(found)))
