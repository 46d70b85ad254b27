"""The broker itself over HTTP: health, figures, connections, a message's whereabouts, and what an operator may do.

Promises  health says what is wrong and what to do; admin actions are logged with who asked.
Never     shows a secret.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from importlib.metadata import version

import structlog

from dovetail.core import inputs
from dovetail.core.access import Role
from dovetail.core.state import State
from dovetail.runtime.config import BY_KEY, CHANGEABLE, BadConfig, changed_by, explain, meant
from dovetail.runtime.http.errors import Trouble
from dovetail.runtime.http.gate import Gate, paced
from dovetail.runtime.http.groups import attempts_of
from dovetail.runtime.http.history import TOTAL
from dovetail.runtime.http.messages import log_at, read_messages
from dovetail.runtime.http.models import (
    ComponentView,
    ConfigPatch,
    ConfigView,
    ConnectionList,
    ConnectionView,
    Counts,
    Done,
    GroupStats,
    GroupTrace,
    Health,
    HealthQuery,
    LevelView,
    Ready,
    SettingView,
    Stats,
    StatsQuery,
    Switch,
    TopicStats,
    Totals,
    Trace,
)
from dovetail.runtime.http.routing import Call, Nothing, Raw, Route
from dovetail.runtime.http.topics import depth

audit = structlog.get_logger("audit")

DISK_WARN_PERCENT = 80
DEEP_TOPIC = "dovetail.health"
LISTED_MAX = 1_000


async def health(gate: Gate, call: Call[HealthQuery, None]) -> Health:
    """Whether the broker works, and what to do if not."""
    state = gate.state
    components = [*_components(gate, state)]
    if call.query.deep:
        components.append(await _deep(gate))
    worst = "failed" if any(each.status == "failed" for each in components) else "ok"
    if worst == "ok" and any(each.status == "warn" for each in components):
        worst = "warn"
    return Health(
        "failed" if worst == "failed" else "warn" if worst == "warn" else "ok",
        version("dovetail"),
        gate.server.opened.broker_id,
        round(time.monotonic() - gate.started, 3),
        gate.server.connection_count,
        state.live.stored_lsn,
        _level(gate).level,
        components,
        [each.says for each in components if each.status != "ok"],
    )


def _components(gate: Gate, state: State) -> list[ComponentView]:
    failure = gate.server.failure
    journal = (
        ComponentView("journal", "failed", str(failure.result()))
        if failure.done()
        else ComponentView("journal", "ok", f"stored to lsn {state.live.stored_lsn} of {state.durable.lsn}")
    )
    used = shutil.disk_usage(gate.server.config.data)
    percent = round(100 * (used.total - used.free) / used.total)
    full = percent >= DISK_WARN_PERCENT
    disk = ComponentView(
        "disk",
        "warn" if full else "ok",
        f"{percent}% of the disk is in use" + (": shorten retention, purge dead letters or add space" if full else ""),
    )
    lag_ms = round(gate.loop_lag_ms)
    loop = ComponentView(
        "loop",
        "warn" if lag_ms > 500 else "ok",
        f"the event loop was {lag_ms} ms late" + (": the machine is overloaded" if lag_ms > 500 else ""),
    )
    level = _level(gate)
    publishing = ComponentView(
        "publishing",
        "ok" if level.level == "normal" else "warn",
        "messages are taken" if level.level == "normal" else f"{level.level}: {level.reason}",
    )
    return [journal, disk, loop, publishing]


async def _deep(gate: Gate) -> ComponentView:
    """Ask the core for something that must be decided, and wait until what was decided before is stored."""
    begun = time.monotonic()
    try:
        async with asyncio.timeout(5.0):
            await gate.ask(lambda session, request: inputs.Heartbeat(session, request, ""))
            wanted = gate.state.durable.lsn
            while gate.state.live.stored_lsn < wanted:
                await asyncio.sleep(0.01)
    except TimeoutError:
        return ComponentView("core", "failed", "the core or the journal did not answer within 5 s: look at the logs")
    return ComponentView("core", "ok", f"answered in {(time.monotonic() - begun) * 1000:.1f} ms")


async def ready(gate: Gate, call: Call[Nothing, None]) -> Ready:
    """Whether the broker takes work."""
    if gate.server.failure.done():
        raise Trouble(503, "unavailable", str(gate.server.failure.result()), retry_after_ms=5_000)
    if gate.maintenance:
        raise Trouble(503, "maintenance", f"maintenance: {gate.maintenance}", retry_after_ms=5_000)
    return Ready(True)


async def metrics(gate: Gate, call: Call[Nothing, None]) -> Raw:
    """The figures, for Prometheus."""
    text = gate.server.metrics.render(gate.state, gate.server.connection_count, gate.gauges())
    return Raw(text.encode(), "text/plain")


async def stats(gate: Gate, call: Call[StatsQuery, None]) -> Stats:
    """Depth, lag and rates, per topic and group."""
    state, history = gate.state, gate.history
    lag = gate.server.metrics.lag(state)
    topics: dict[str, TopicStats] = {}
    messages = 0
    async for number, topic in paced(state.durable.topics.items()):
        if number not in state.live.topic_trie.topics_for(topic.name):
            continue
        kept = depth(state, topic)
        messages += kept
        rates = history.topic(number)
        topics[topic.name] = TopicStats(kept, rates.published, rates.published_bytes, rates.delivered)
    groups: dict[str, GroupStats] = {}
    in_flight = 0
    async for number, group in paced(state.durable.groups.items()):
        found = history.group(number)
        held = sum(state.live.subscriptions[each].in_flight for each in state.live.teams.get(number, ()))
        in_flight += held
        groups[group.name] = GroupStats(lag[number], held, found.settled, found.failed, found.dead)
    totals = Totals(
        history.published.rates(TOTAL),
        history.delivered.rates(TOTAL),
        history.settled.rates(TOTAL),
        history.failed.rates(TOTAL),
        history.dead.rates(TOTAL),
        history.refused.rates(TOTAL),
        messages,
        lag.total(),
        in_flight,
        len(topics),
        len(groups),
        gate.server.connection_count,
    )
    minutes = list(history.minutes)[-call.query.history :] if call.query.history else []
    figures = gate.server.metrics
    counts = Counts(
        figures.published.total(),
        figures.delivered.total(),
        figures.settled.total(),
        figures.failed.total(),
        figures.dead.total(),
        figures.refused.total(),
    )
    by_name = dict(sorted(topics.items()))
    return Stats(time.time_ns() // 1_000_000, totals, counts, by_name, dict(sorted(groups.items())), minutes)


async def connections(gate: Gate, call: Call[Nothing, None]) -> ConnectionList:
    """Who is connected."""
    state = gate.state
    now_ms = time.monotonic_ns() // 1_000_000
    found: list[ConnectionView] = []
    async for number, session in paced(sorted(state.live.sessions.items())):
        connection = gate.node.connection(number)
        if number == gate.local.session or len(found) >= LISTED_MAX:
            continue
        mine = [state.live.subscriptions[each] for each in session.subscriptions]
        found.append(
            ConnectionView(
                number,
                session.name,
                connection.peer if connection else "http",
                round(max(0, now_ms - session.seen_ms) / 1000, 3),
                sorted({state.durable.groups[member.group].name for member in session.members}),
                len(mine),
                sum(each.in_flight for each in mine),
            )
        )
    return ConnectionList(found, len(state.live.sessions) - 1)


async def trace(gate: Gate, call: Call[Nothing, None]) -> Trace:
    """Where a message is now."""
    text = call.path["message_id"]
    name, _, rest = text.partition(":")
    partition, _, offset_text = rest.partition(":")
    partition_text, _, lane_text = partition.partition(".")
    numbers = (partition_text, offset_text, lane_text or "0")
    if not all(each.isascii() and each.isdecimal() and len(each) < 19 for each in numbers):
        raise Trouble(422, "invalid", f"{text!r} is not a message id: topic:partition:offset")
    topic = gate.topic(name)
    if not call.access.may(Role.READ, topic.name):
        raise Trouble(403, "forbidden", f"the token of {call.access.name!r} may not read {topic.name}")
    log = log_at(gate, topic, int(partition_text), int(lane_text or "0"))
    offset = int(offset_text)
    found = await read_messages(gate, topic, log, offset, 1) if log is not None else []
    if log is None or not found or found[0].offset != offset:
        raise Trouble(404, "not_found", f"{text} is not stored here: it was removed, or never was")
    state = gate.state
    groups = [_group_trace(state, owner, log.id, offset) for owner in state.live.readers.get(log.id, ()) if owner > 0]
    return Trace(found[0], groups)


def _group_trace(state: State, group: int, log: int, offset: int) -> GroupTrace:
    name = state.durable.groups[group].name
    cursor = state.durable.cursors[group, log]
    if offset < cursor.floor or any(first <= offset <= last for first, last in cursor.islands):
        return GroupTrace(name, "settled", "", 0)
    attempts = attempts_of(state, group, log, offset)
    for number in state.live.teams.get(group, ()):
        for lease_id in state.live.subscriptions[number].leases:
            lease = state.live.leases[lease_id]
            if lease.log == log and any(first <= offset <= last for first, last in lease.ranges):
                return GroupTrace(name, "leased", lease.member, lease.attempt)
    progress = state.live.progress.get((group, log))
    retries = progress.retries if progress else ()
    waits = any(retry.first <= offset <= retry.last for retry in retries)
    return GroupTrace(name, "retrying" if waits else "waiting", "", attempts)


# What an operator does


def _level(gate: Gate) -> LevelView:
    if gate.maintenance:
        return LevelView("maintenance", gate.maintenance)
    reason = gate.state.live.read_only
    return LevelView("read-only" if reason else "normal", reason)


async def read_only(gate: Gate, call: Call[Nothing, Switch]) -> LevelView:
    """Take no messages, or take them again; delivery goes on."""
    reason = (call.body.reason or "an operator asked for it") if call.body.on else ""
    audit.info("read-only", on=call.body.on, reason=call.body.reason, caller=call.access.name)
    await _set_read_only(gate, reason)
    return _level(gate)


async def maintenance(gate: Gate, call: Call[Nothing, Switch]) -> LevelView:
    """Like read-only, and `/ready` says no, so that a balancer sends nobody here."""
    gate.maintenance = (call.body.reason or "an operator asked for it") if call.body.on else ""
    audit.info("maintenance", on=call.body.on, reason=call.body.reason, caller=call.access.name)
    await _set_read_only(gate, gate.maintenance)
    return _level(gate)


async def _set_read_only(gate: Gate, reason: str) -> None:
    gate.submit(inputs.SetReadOnly(reason))
    await gate.ask(lambda session, request: inputs.Heartbeat(session, request, ""))


async def checkpoint(gate: Gate, call: Call[Nothing, None]) -> Done:
    """Write a checkpoint now."""
    audit.info("checkpoint", caller=call.access.name)
    gate.server.ask_checkpoint()
    return Done()


async def shutdown(gate: Gate, call: Call[Nothing, None]) -> Done:
    """Stop the broker as SIGTERM would."""
    audit.warning("shutdown", caller=call.access.name)
    gate.server.stop_asked.set()
    return Done()


async def config(gate: Gate, call: Call[Nothing, None]) -> ConfigView:
    """Every setting, its value and where it came from."""
    rows = explain(gate.server.config, gate.server.origins)
    return ConfigView([SettingView(row.key, row.text, row.origin, row.says) for row in rows])


async def change_config(gate: Gate, call: Call[Nothing, ConfigPatch]) -> ConfigView:
    """Change settings that need no restart; they last as long as the process."""
    changed = gate.server.config
    for key, text in call.body.settings.items():
        setting = BY_KEY.get(key)
        if setting is None:
            raise Trouble(422, "invalid", f"{key!r} is not a setting{meant(key, BY_KEY)}")
        if key not in CHANGEABLE:
            raise Trouble(409, "needs_restart", f"{key} takes a restart", f"without one: {', '.join(CHANGEABLE)}")
        try:
            changed = changed_by(changed, setting, text, "body")
        except BadConfig as error:
            raise Trouble(422, "invalid", str(error)) from None
    audit.warning("settings changed", settings=call.body.settings, caller=call.access.name)
    settings = changed.settings
    await gate.ask(lambda session, request: inputs.ChangeSettings(session, request, settings))
    gate.server.config = changed
    gate.server.origins = {**gate.server.origins, **dict.fromkeys(call.body.settings, "changed at run time")}
    return await config(gate, Call(call.path, Nothing(), None, call.headers, call.access))


async def compact(gate: Gate, call: Call[Nothing, None]) -> Done:
    """Do what retention and compaction have to do now."""
    audit.info("compact", caller=call.access.name)
    gate.server.ask_compaction()
    return Done()


ROUTES = (
    Route("GET", "/health", health, "Whether the broker works.", query=HealthQuery, answer=Health, role=Role.NONE),
    Route("GET", "/ready", ready, "Whether the broker takes work.", answer=Ready, role=Role.NONE),
    Route("GET", "/metrics", metrics, "Figures for Prometheus.", answer=Raw),
    Route("GET", "/v1/stats", stats, "Depth, lag and rates.", query=StatsQuery, answer=Stats),
    Route("GET", "/v1/connections", connections, "Who is connected.", answer=ConnectionList),
    Route("GET", "/v1/trace/{message_id}", trace, "Where a message is now.", answer=Trace),
    Route("POST", "/admin/checkpoint", checkpoint, "Write a checkpoint.", answer=Done, status=202, role=Role.ADMIN),
    Route("POST", "/admin/readonly", read_only, "Take no messages.", body=Switch, answer=LevelView, role=Role.ADMIN),
    Route(
        "POST",
        "/admin/maintenance",
        maintenance,
        "Take no messages and say so at /ready.",
        body=Switch,
        answer=LevelView,
        role=Role.ADMIN,
    ),
    Route("POST", "/admin/shutdown", shutdown, "Stop the broker.", answer=Done, status=202, role=Role.ADMIN),
    Route("POST", "/admin/compact", compact, "Retention and compaction now.", answer=Done, status=202, role=Role.ADMIN),
    Route(
        "PATCH",
        "/admin/config",
        change_config,
        "Change settings until the next start.",
        body=ConfigPatch,
        answer=ConfigView,
        role=Role.ADMIN,
    ),
    Route("GET", "/admin/config", config, "Every setting and its origin.", answer=ConfigView, role=Role.ADMIN),
)
