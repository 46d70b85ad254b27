"""The broker itself over HTTP: health, figures, connections, and what an operator may do.

Promises  health says what is wrong and what to do.
Never     shows a secret.
"""

from __future__ import annotations

import asyncio
import heapq
import secrets
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version

from dovetail.core import batch, inputs
from dovetail.core.access import Role
from dovetail.core.effects import Appended
from dovetail.core.levels import BY_WORD, OPERATOR, Level
from dovetail.core.names import HEALTH, is_hidden
from dovetail.core.state import State
from dovetail.runtime.config import BY_KEY, CHANGEABLE, BadConfig, changed_by, explain, meant
from dovetail.runtime.http.errors import Trouble
from dovetail.runtime.http.gate import Gate, paced
from dovetail.runtime.http.history import EVERY_S, TOTAL
from dovetail.runtime.http.models import (
    AskedLevel,
    ComponentView,
    ConfigPatch,
    ConfigView,
    ConnectionList,
    ConnectionView,
    Counts,
    Done,
    GroupStats,
    Health,
    HealthQuery,
    LevelView,
    LevelWord,
    NewLevel,
    Ready,
    ReloadedView,
    SettingView,
    Stats,
    StatsQuery,
    Switch,
    TopicStats,
    Totals,
)
from dovetail.runtime.http.routing import Call, Nothing, Raw, Route
from dovetail.runtime.http.topics import depth
from dovetail.runtime.process import resident_bytes
from dovetail.runtime.reload import reload, with_settings
from dovetail.runtime.security import Insecure

DEEP_S = 5.0
LATE_MS = 500
"""A loop that was later than this is worth a warning."""
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
    percent = round(100 * gate.disk_used_ratio)
    full = percent >= gate.server.config.space.warn_percent
    disk = ComponentView(
        "disk",
        "warn" if full else "ok",
        f"{percent}% of the disk is in use" + (": shorten retention, purge dead letters or add space" if full else ""),
    )
    return [journal, disk, _memory(gate), _loop(gate), _publishing(gate), _recovery(gate)]


def _memory(gate: Gate) -> ComponentView:
    used, most = resident_bytes(), gate.server.memory_bytes
    percent = used * 100 // max(1, most)
    high = percent >= gate.server.config.pressure.throttle_percent
    advice = ": give it more, or fewer clients" if high else ""
    return ComponentView("memory", "warn" if high else "ok", f"{used >> 20} of {most >> 20} MiB are in use{advice}")


def _loop(gate: Gate) -> ComponentView:
    late_ms = round(gate.server.late_ms)
    is_late = late_ms > LATE_MS
    says = f"the event loop was {late_ms} ms late" + (": the machine is overloaded" if is_late else "")
    return ComponentView("loop", "warn" if is_late else "ok", says)


def _publishing(gate: Gate) -> ComponentView:
    levels = gate.server.levels
    if levels.level is Level.NORMAL:
        return ComponentView("publishing", "ok", "messages are taken")
    asked_by_operator = levels.asked.get(OPERATOR, (Level.NORMAL, ""))[0] == levels.level
    way_out = ": `dovetail admin level normal` takes that back" if asked_by_operator else ""
    return ComponentView("publishing", "warn", f"{levels.level.word}: {levels.reason}{way_out}")


def _recovery(gate: Gate) -> ComponentView:
    aside = gate.server.opened.quarantined
    if not aside:
        return ComponentView("recovery", "ok", f"took {gate.server.recovery_s:.1f} s")
    return ComponentView(
        "recovery",
        "warn",
        f"{aside} damaged files are kept in quarantine/ of the data directory: its .json files list what was lost; "
        "restore what matters, then remove them",
    )


async def _deep(gate: Gate) -> ComponentView:
    """A deep look; those who ask while one is under way are told what it finds."""
    if gate.deep_look is None or gate.deep_look.done():
        gate.deep_look = asyncio.ensure_future(_look_deep(gate))
    return await asyncio.shield(gate.deep_look)


async def _look_deep(gate: Gate) -> ComponentView:
    """Publish on a hidden topic and read it back; where nothing may be published, only what is stored is asked for."""
    begun = time.monotonic()
    try:
        async with asyncio.timeout(DEEP_S):
            if gate.server.levels.level >= Level.READ_ONLY:
                await _wait_stored(gate)
                return ComponentView("round trip", "ok", f"the journal is stored; {gate.server.levels.level.word}")
            await _publish_and_read(gate)
    except TimeoutError:
        text = f"a message was not stored and read back within {DEEP_S:.0f} s: look at the logs"
        return ComponentView("round trip", "failed", text)
    except Trouble as trouble:
        return ComponentView("round trip", "failed", f"a message was refused: {trouble}")
    took = f"{(time.monotonic() - begun) * 1000:.1f} ms"
    return ComponentView("round trip", "ok", f"a message was published, stored and read back in {took}")


async def _publish_and_read(gate: Gate) -> None:
    """Raises `Trouble` where what is read is not what was published; leaves nothing behind."""
    token = secrets.token_bytes(16)
    data = batch.build([(None, token, ())], timestamp_ms=time.time_ns() // 1_000_000)

    def make(session: int, request: int) -> inputs.Publish:
        asks = (inputs.Ask(session, request, 0, 1),)
        return inputs.Publish(HEALTH, 0, gate.node.keep(data), 1, len(data), asks)

    answer = await gate.ask(make)
    assert isinstance(answer, Appended)
    state = gate.state
    log = state.durable.topics[state.durable.topics_by_name[HEALTH]].first_log
    found = [record for entry in await gate.entries(log, answer.offset, 1) for record in batch.parse(entry.batch)]
    gate.submit(inputs.TrimLog(log, answer.offset + 1))
    if not any(record.offset == answer.offset and record.value == token for record in found):
        text = "it was stored, but something else was read back: verify the data directory"
        raise Trouble(503, "unavailable", text)


async def _wait_stored(gate: Gate) -> None:
    """Wait until everything decided so far is stored."""
    await gate.ask(lambda session, request: inputs.Heartbeat(session, request, ""))
    wanted = gate.state.durable.lsn
    while gate.state.live.stored_lsn < wanted:
        await asyncio.sleep(0.01)


async def ready(gate: Gate, call: Call[Nothing, None]) -> Ready:
    """Whether the broker takes work."""
    if gate.server.failure.done():
        raise Trouble(503, "unavailable", str(gate.server.failure.result()), retry_after_ms=5_000)
    levels = gate.server.levels
    if levels.level >= Level.MAINTENANCE:
        raise Trouble(503, "unavailable", f"{levels.level.word}: {levels.reason}", retry_after_ms=5_000)
    return Ready(True)


async def metrics(gate: Gate, call: Call[Nothing, None]) -> Raw:
    """The figures, for Prometheus."""
    lines = gate.server.metrics.lines(gate.state, gate.server.connection_count, gate.gauges())
    text = "".join([f"{line}\n" async for line in paced(lines)])
    return Raw(text.encode(), "text/plain; version=0.0.4")


async def stats(gate: Gate, call: Call[StatsQuery, None]) -> Stats:
    """Depth, lag and rates, per topic and group."""
    state, history = gate.state, gate.history
    lag = gate.server.metrics.lag(state)
    depths = {
        topic.id: depth(state, topic)
        async for topic in paced(state.durable.topics.values())
        if not is_hidden(topic.name)
    }
    held = {
        group: sum(state.live.subscriptions[each].in_flight for each in state.live.teams.get(group, ()))
        async for group in paced(state.durable.groups)
    }
    topics: dict[str, TopicStats] = {}
    async for number in paced(_first(depths, call.query.top, history.activity)):
        topic, rates = state.durable.topics[number], history.topic(number)
        topics[topic.name] = TopicStats(
            depths[number], rates.published, rates.published_bytes, rates.delivered, history.capacity(state, topic)
        )
    groups: dict[str, GroupStats] = {}
    async for number in paced(_first(held, call.query.top, lag.__getitem__)):
        found = history.group(number)
        groups[state.durable.groups[number].name] = GroupStats(
            lag[number], held[number], found.settled, found.failed, found.dead
        )
    totals = Totals(
        history.published.rates(TOTAL),
        history.delivered.rates(TOTAL),
        history.settled.rates(TOTAL),
        history.failed.rates(TOTAL),
        history.dead.rates(TOTAL),
        history.refused.rates(TOTAL),
        sum(depths.values()),
        lag.total(),
        sum(held.values()),
        len(depths),
        len(held),
        gate.server.connection_count,
    )
    recent = list(history.recent)[-call.query.recent :] if call.query.recent else []
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
    at_ms, by_group = time.time_ns() // 1_000_000, dict(sorted(groups.items()))
    return Stats(at_ms, totals, counts, by_name, by_group, EVERY_S, recent, minutes)


def _first(numbers: Iterable[int], top: int, weight: Callable[[int], float]) -> list[int]:
    """All of them, or the few of the most weight."""
    return heapq.nlargest(top, numbers, key=weight) if top else list(numbers)


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


# What an operator does


def _level(gate: Gate) -> LevelView:
    levels = gate.server.levels
    asked = [AskedLevel(source, _word(level), reason) for source, (level, reason) in levels.asked.items()]
    return LevelView(_word(levels.level), levels.reason, asked)


def _word(level: Level) -> LevelWord:
    word: LevelWord = level.word  # type: ignore[assignment]  # the words of the type are those of the levels, by test
    return word


async def level(gate: Gate, call: Call[Nothing, None]) -> LevelView:
    """What the broker does, and who asked for that."""
    return _level(gate)


async def set_level(gate: Gate, call: Call[Nothing, NewLevel]) -> LevelView:
    """An operator's level: what the disk, memory or the loop ask for is not ended by it."""
    return await _ask_level(gate, BY_WORD[call.body.level], call.body.reason)


async def read_only(gate: Gate, call: Call[Nothing, Switch]) -> LevelView:
    """Take no messages, or take them again; delivery goes on."""
    return await _ask_level(gate, Level.READ_ONLY if call.body.on else Level.NORMAL, call.body.reason)


async def maintenance(gate: Gate, call: Call[Nothing, Switch]) -> LevelView:
    """Like read-only, and `/ready` says no, so that a balancer sends nobody here."""
    return await _ask_level(gate, Level.MAINTENANCE if call.body.on else Level.NORMAL, call.body.reason)


async def _ask_level(gate: Gate, level: Level, reason: str) -> LevelView:
    gate.server.levels.ask(OPERATOR, level, reason or "an operator asked for it")
    await gate.ask(lambda session, request: inputs.Heartbeat(session, request, ""))
    return _level(gate)


async def reload_files(gate: Gate, call: Call[Nothing, None]) -> ReloadedView:
    """Read settings, tokens and certificates again, and say what takes a restart."""
    try:
        found = reload(gate.server)
    except (BadConfig, Insecure) as error:
        raise Trouble(409, "conflict", f"nothing was changed: {error}", "mend the file and call again") from None
    return ReloadedView(found.changed, found.needs_restart, found.kept, found.files)


async def checkpoint(gate: Gate, call: Call[Nothing, None]) -> Done:
    """Write a checkpoint now."""
    gate.server.ask_checkpoint()
    return Done()


async def shutdown(gate: Gate, call: Call[Nothing, None]) -> Done:
    """Stop the broker as SIGTERM would."""
    gate.server.stop_asked.set()
    return Done()


async def config(gate: Gate, call: Call[Nothing, None]) -> ConfigView:
    """Every setting, its value and where it came from."""
    rows = explain(gate.server.config, gate.server.origins)
    return ConfigView([SettingView(row.key, row.text, row.origin, row.says, row.key in CHANGEABLE) for row in rows])


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
    gate.server.change(*with_settings(gate.server, call.body.settings))
    await gate.ask(lambda session, request: inputs.Heartbeat(session, request, ""))
    return await config(gate, Call(call.path, Nothing(), None, call.headers, call.access))


async def compact(gate: Gate, call: Call[Nothing, None]) -> Done:
    """Do what retention and compaction have to do now."""
    gate.server.ask_compaction()
    return Done()


ROUTES = (
    Route("GET", "/health", health, "Whether the broker works.", query=HealthQuery, answer=Health, role=Role.NONE),
    Route("GET", "/ready", ready, "Whether the broker takes work.", answer=Ready, role=Role.NONE),
    Route("GET", "/metrics", metrics, "Figures for Prometheus.", answer=Raw),
    Route("GET", "/v1/stats", stats, "Depth, lag and rates.", query=StatsQuery, answer=Stats),
    Route("GET", "/v1/connections", connections, "Who is connected.", answer=ConnectionList),
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
    Route("GET", "/admin/level", level, "What the broker does, and why.", answer=LevelView, role=Role.ADMIN),
    Route(
        "PUT",
        "/admin/level",
        set_level,
        "Have the broker do less, or everything again.",
        body=NewLevel,
        answer=LevelView,
        role=Role.ADMIN,
    ),
    Route(
        "POST",
        "/admin/reload",
        reload_files,
        "Read settings, tokens and certificates again.",
        answer=ReloadedView,
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
