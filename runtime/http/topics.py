"""Topics over HTTP: made, listed, shown, configured, deleted; and who subscribes to them.

Promises  a change is durable when it is answered.
Never     shows the broker's own hidden topics.
"""

from __future__ import annotations

from msgspec import UnsetType
from msgspec.structs import replace

from dovetail.core import inputs, names
from dovetail.core.access import Role
from dovetail.core.codes import Status
from dovetail.core.names import BadName
from dovetail.core.records import SyncPolicy, TopicConfig
from dovetail.core.state import State, Subscription, Topic
from dovetail.core.topics import config_for
from dovetail.runtime.http.errors import Trouble
from dovetail.runtime.http.gate import Gate, logs_of, paced, stored_end
from dovetail.runtime.http.messages import LANES
from dovetail.runtime.http.models import (
    DeleteQuery,
    LogView,
    NewTopic,
    RetentionView,
    SubscriberList,
    SubscriberView,
    SyncName,
    TopicList,
    TopicQuery,
    TopicRow,
    TopicSettings,
    TopicSettingsView,
    TopicView,
)
from dovetail.runtime.http.routing import Call, Nothing, Route
from dovetail.runtime.http.texts import as_ms, duration_text

SYNCS: dict[SyncName, SyncPolicy] = {
    "always": SyncPolicy.ALWAYS,
    "interval": SyncPolicy.INTERVAL,
    "os": SyncPolicy.OS,
}
LANE_COUNT = len(LANES)
MEANINGS = {Status.QUOTA: (409, "quota_exceeded")}


async def create(gate: Gate, call: Call[Nothing, NewTopic]) -> TopicView:
    """Make a topic."""
    body, settings = call.body, gate.state.settings
    call.demand(Role.ADMIN, body.name)
    config = configured(config_for(settings, body.name.replace("/", ".")), body)
    partitions = settings.partitions if isinstance(body.partitions, UnsetType) else body.partitions
    lanes = LANE_COUNT if body.lanes else 0
    await gate.ask(
        lambda session, request: inputs.CreateTopic(session, request, body.name, partitions, lanes, config),
        meanings=MEANINGS,
    )
    return view(gate, gate.topic(body.name))


async def show_all(gate: Gate, call: Call[TopicQuery, None]) -> TopicList:
    """The topics that a pattern matches, by name."""
    state = gate.state
    try:
        pattern = names.pattern(call.query.pattern)
    except BadName as error:
        raise Trouble(422, "invalid", str(error)) from None
    topics = state.durable.topics
    matching = (topics[number].name for number in state.live.topic_trie.topics_for(pattern) if number in topics)
    wanted = call.query.contains.lower()
    found = sorted(name for name in matching if wanted in name.lower())
    page = [name for name in found if name > call.query.after][: call.query.limit]
    rows = [_row(gate, state, topics[state.durable.topics_by_name[name]]) async for name in paced(page)]
    more = page[-1] if page and page[-1] != found[-1] else None
    return TopicList(rows, len(found), more)


def _row(gate: Gate, state: State, topic: Topic) -> TopicRow:
    rates = gate.history.topic(topic.id)
    return TopicRow(
        topic.name,
        topic.partitions,
        bool(topic.lanes),
        depth(state, topic),
        rates.published.one,
        rates.delivered.one,
        gate.history.capacity(state, topic),
    )


def depth(state: State, topic: Topic) -> int:
    """Messages that a topic keeps."""
    return sum(stored_end(state, log) - log.start for log in logs_of(state, topic))


async def show(gate: Gate, call: Call[Nothing, None]) -> TopicView:
    """One topic."""
    return view(gate, gate.topic(call.path["topic"]))


async def change(gate: Gate, call: Call[Nothing, TopicSettings]) -> TopicView:
    """Other settings for a topic; recorded, so that they win over the configuration for good."""
    topic = gate.topic(call.path["topic"])
    config = configured(topic.config, call.body)
    await gate.ask(lambda session, request: inputs.ConfigureTopic(session, request, topic.name, config))
    return view(gate, gate.topic(topic.name))


async def delete(gate: Gate, call: Call[DeleteQuery, None]) -> Nothing:
    """Remove a topic and its messages."""
    name = gate.topic(call.path["topic"]).name
    try:
        await gate.ask(lambda session, request: inputs.DeleteTopic(session, request, name, call.query.force))
    except Trouble as trouble:
        if trouble.status == 409:
            trouble.suggestions = ("add ?force=true to delete it all the same",)
        raise
    return Nothing()


async def subscribers(gate: Gate, call: Call[Nothing, None]) -> SubscriberList:
    """Who reads a topic now."""
    state = gate.state
    topic = gate.topic(call.path["topic"])
    owners = state.live.readers.get(topic.first_log, ())
    numbers = [number for owner in owners for number in state.live.routes.get((owner, topic.id), ())]
    found = [_subscriber(state, state.live.subscriptions[number]) async for number in paced(numbers)]
    return SubscriberList(found)


def _subscriber(state: State, subscription: Subscription) -> SubscriberView:
    return SubscriberView(
        subscription.id,
        subscription.session,
        state.live.sessions[subscription.session].name,
        state.durable.groups[subscription.owner].name if subscription.owner > 0 else "",
        subscription.member,
        subscription.pattern,
        subscription.credit_max,
        subscription.in_flight,
        subscription.auto_ack,
    )


def configured(config: TopicConfig, said: TopicSettings) -> TopicConfig:
    """`config` with what a request says about it."""
    changes: dict[str, object] = {
        name: value for name in _PLAIN if not isinstance(value := getattr(said, name), UnsetType)
    }
    for name, field in _DURATIONS.items():
        value = getattr(said, name)
        if not isinstance(value, UnsetType):
            changes[field] = as_ms(value, name)
    if not isinstance(said.sync, UnsetType):
        changes["sync"] = SYNCS[said.sync]
    if not isinstance(said.retention, UnsetType):
        kept = said.retention
        if not isinstance(kept.hours, UnsetType):
            changes["retention_ms"] = int(kept.hours * 3_600_000)
        if not isinstance(kept.bytes, UnsetType):
            changes["retention_bytes"] = kept.bytes
        if not isinstance(kept.count, UnsetType):
            changes["retention_count"] = kept.count
    changed = replace(config, **changes)
    if changed.lease_ms < 1 or changed.lease_max_ms < changed.lease_ms:
        raise Trouble(422, "invalid", "lease is at least 1ms, and lease_max is not shorter than lease")
    return changed


_PLAIN = (
    "max_retries",
    "retain_on_ack",
    "bytes_max_hard",
    "compact",
    "dead_letters",
    "expired_to_dead_letters",
    "lag_warning",
    "lag_critical",
)
_DURATIONS = {
    "lease": "lease_ms",
    "lease_max": "lease_max_ms",
    "ttl": "ttl_ms",
    "lag_critical_time": "lag_critical_ms",
}


def view(gate: Gate, topic: Topic) -> TopicView:
    """A topic as JSON shows it."""
    state, config, rates = gate.state, topic.config, gate.history.topic(topic.id)
    sync = next(name for name, policy in SYNCS.items() if policy == config.sync)
    settings = TopicSettingsView(
        RetentionView(config.retention_ms / 3_600_000, config.retention_bytes, config.retention_count),
        duration_text(config.lease_ms),
        duration_text(config.lease_max_ms),
        config.max_retries,
        config.retain_on_ack,
        config.bytes_max_hard,
        config.compact,
        sync,
        duration_text(config.ttl_ms),
        config.dead_letters,
        config.expired_to_dead_letters,
        config.lag_warning,
        config.lag_critical,
        duration_text(config.lag_critical_ms),
    )
    logs = [
        LogView(log.partition, log.start, stored_end(state, log), LANES[log.lane] if topic.lanes else None)
        for log in logs_of(state, topic)
    ]
    return TopicView(
        topic.name,
        topic.partitions,
        bool(topic.lanes),
        topic.created_ms,
        topic.automatic,
        depth(state, topic),
        rates.published.one,
        rates.delivered.one,
        gate.history.capacity(state, topic),
        settings,
        logs,
    )


ROUTES = (
    Route(
        "POST",
        "/v1/topics",
        create,
        "Make a topic.",
        body=NewTopic,
        answer=TopicView,
        status=201,
        role=Role.ADMIN,
        body_names_topic=True,
    ),
    Route("GET", "/v1/topics", show_all, "Topics by name.", query=TopicQuery, answer=TopicList),
    Route(
        "GET",
        "/v1/topics/{topic}/subscribers",
        subscribers,
        "Who reads a topic now.",
        answer=SubscriberList,
    ),
    Route("GET", "/v1/topics/{topic}", show, "A topic.", answer=TopicView),
    Route(
        "PATCH",
        "/v1/topics/{topic}",
        change,
        "Change a topic's settings.",
        body=TopicSettings,
        answer=TopicView,
        role=Role.ADMIN,
    ),
    Route(
        "DELETE",
        "/v1/topics/{topic}",
        delete,
        "Remove a topic and its messages; refused while somebody subscribes, unless forced.",
        query=DeleteQuery,
        role=Role.ADMIN,
    ),
)
