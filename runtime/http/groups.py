"""Groups over HTTP: shown and changed by operators, joined and polled by consumers.

Promises  an HTTP consumer is a member like any other: sessions, leases and fencing are the core's. Every request of
          a member is a sign of life.
Never     holds messages for a member that is not polling.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Literal, TypeVar

from immutables import Map
from msgspec.structs import replace

from dovetail.core import inputs, members, names
from dovetail.core.access import Role
from dovetail.core.codes import Outcome, SettleAction, Status, Whence
from dovetail.core.effects import Joined as CoreJoined
from dovetail.core.effects import Settlement, Sought, Subscribed
from dovetail.core.flow import arrived_ms
from dovetail.core.intervals import contains, total
from dovetail.core.levels import Level
from dovetail.core.members import Health, MemberInfo
from dovetail.core.names import BadName
from dovetail.core.state import Group, Lease, Log, State, Tenure
from dovetail.runtime.http import models
from dovetail.runtime.http.consumers import Consumer, Held, Ticket
from dovetail.runtime.http.errors import Trouble
from dovetail.runtime.http.gate import Gate, Make, paced, stored_end
from dovetail.runtime.http.messages import LANES, log_at, views
from dovetail.runtime.http.models import (
    AckBody,
    Beat,
    Commit,
    Committed,
    Done,
    ExtendBody,
    Generation,
    GroupLag,
    GroupList,
    GroupPatch,
    GroupView,
    Join,
    Joined,
    LagView,
    MemberList,
    MemberName,
    MemberView,
    MessageView,
    NackBody,
    NewOffsets,
    OffsetsSet,
    OffsetView,
    PartitionName,
    PendingList,
    PendingQuery,
    PendingView,
    Poll,
    Polled,
    PriorityName,
    RejectBody,
    SettleBody,
    SettleResult,
    SettleResults,
)
from dovetail.runtime.http.routing import Call, Nothing, Route
from dovetail.runtime.http.texts import as_ms, as_time_ms

AnyCall = Call[Any, Any]
SettleBodyT = TypeVar("SettleBodyT", bound=SettleBody)
NO_CREDIT = -1
POLL_MS_MAX = 60_000
SIGN_OF_LIFE_S = 1.0
"""How often a poll that waits is a sign of life, and answers a REVOKE: at least four times in a session timeout."""
PARTITIONED = "partitioned"


def _mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


# What operators see


async def show_all(gate: Gate, call: Call[Nothing, None]) -> GroupList:
    """All groups, by name."""
    state = gate.state
    lags = await _all_lags(state)
    found = [_view(gate, state, group, lags.get(number, 0)) for number, group in state.durable.groups.items()]
    return GroupList(sorted(found, key=lambda each: each.name), len(found))


async def _all_lags(state: State) -> dict[int, int]:
    lags: dict[int, int] = {}
    async for (number, log), cursor in paced(state.durable.cursors.items()):
        behind = stored_end(state, state.durable.logs[log]) - cursor.floor - total(cursor.islands)
        lags[number] = lags.get(number, 0) + max(0, behind)
    return lags


async def show(gate: Gate, call: Call[Nothing, None]) -> GroupView:
    """One group."""
    state, group = gate.state, gate.group(call.path["group"])
    return _view(gate, state, group, sum([row.lag async for row in _lag_rows(state, group)]))


def _view(gate: Gate, state: State, group: Group, lag: int) -> GroupView:
    roster: Map[int, str] = state.live.rosters.get(group.id) or Map()
    revoking = any(tenure.revoke_by_ms for tenure in (state.live.tenures.get(group.id) or Map()).values())
    busy = group.id in state.live.gatherings or revoking
    team = [state.live.subscriptions[number] for number in state.live.teams.get(group.id, ())]
    retrying = sum(
        retry.last - retry.first + 1
        for log in _logs_of(state, group)
        if (progress := state.live.progress.get((group.id, log.id))) is not None
        for retry in progress.retries
    )
    return GroupView(
        group.name,
        group.mode,
        group.strategy,
        "empty" if not roster else "rebalancing" if busy else "stable",
        group.generation,
        len(roster),
        list(group.patterns),
        lag,
        sum(each.in_flight for each in team),
        retrying,
        gate.history.group(group.id).settled.one,
    )


def _logs_of(state: State, group: Group) -> list[Log]:
    """The logs that a group has a place in."""
    topics = {number for pattern in group.patterns for number in state.live.topic_trie.topics_for(pattern)}
    found = []
    for number in sorted(topics):
        topic = state.durable.topics[number]
        for log in range(topic.first_log, topic.first_log + topic.log_count):
            if (group.id, log) in state.durable.cursors:
                found.append(state.durable.logs[log])
    return found


async def _lag_rows(state: State, group: Group) -> AsyncIterator[LagView]:
    tenures: Map[int, Tenure] = state.live.tenures.get(group.id) or Map()
    now_ms = _wall_ms()
    async for log in paced(_logs_of(state, group)):
        topic = state.durable.topics[log.topic]
        cursor = state.durable.cursors[group.id, log.id]
        end = stored_end(state, log)
        behind = max(0, end - cursor.floor - total(cursor.islands))
        since_ms = arrived_ms(state.live.marks.get(log.id, ()), cursor.floor, now_ms) if behind else now_ms
        tenure = tenures.get(log.id - log.lane)
        yield LagView(
            topic.name,
            log.partition,
            LANES[log.lane] if topic.lanes else None,
            cursor.floor,
            end,
            behind,
            round(max(0, now_ms - since_ms) / 1000, 3),
            tenure.member if tenure else None,
        )


async def show_lag(gate: Gate, call: Call[Nothing, None]) -> GroupLag:
    """How far a group is behind, log by log."""
    group = gate.group(call.path["group"])
    rows = [row async for row in _lag_rows(gate.state, group)]
    return GroupLag(group.name, sum(row.lag for row in rows), rows)


async def show_members(gate: Gate, call: Call[Nothing, None]) -> MemberList:
    """A group's members and how they are."""
    state, group = gate.state, gate.group(call.path["group"])
    roster: Map[int, str] = state.live.rosters.get(group.id) or Map()
    by_session = {info.session: info for info in members.describe(state, group.id, _mono_ms())}
    found = [_member(gate, state, group, by_session, each, name) async for each, name in paced(roster.items())]
    return MemberList(group.name, group.generation, sorted(found, key=lambda each: each.id))


HealthName = Literal["healthy", "warning", "suspicious", "failed"]
HEALTH: dict[Health, HealthName] = {
    Health.HEALTHY: "healthy",
    Health.WARNING: "warning",
    Health.SUSPICIOUS: "suspicious",
    Health.FAILED: "failed",
}


def _member(
    gate: Gate, state: State, group: Group, by_session: dict[int, MemberInfo], session: int, name: str
) -> MemberView:
    connection = gate.node.connection(session)
    info = by_session[session]
    silent = info.seen_ms_ago * 2 > state.settings.session_timeout_ms
    return MemberView(
        name,
        session,
        info.address,
        connection.peer if connection else "http",
        round(max(0, info.seen_ms_ago) / 1000, 3),
        "silent" if silent else HEALTH[info.health],
        info.in_flight,
        round(max(0, info.oldest_pending_ms) / 1000, 3),
        info.processing_ms,
        info.error_percent / 100,
        info.suggested_lease_ms or None,
        _assignments(state, group.id, name),
    )


def _assignments(state: State, group: int, member: str) -> list[PartitionName]:
    """The partitions that a member has; in a shared group everybody reads all of them."""
    known = state.durable.groups.get(group)
    if known is None:
        return []
    if known.mode == PARTITIONED:
        tenures: Map[int, Tenure] = state.live.tenures.get(group) or Map()
        logs = [state.durable.logs[slot] for slot, tenure in sorted(tenures.items()) if tenure.member == member]
    else:
        logs = [log for log in _logs_of(state, known) if log.lane == 0]
    return [PartitionName(state.durable.topics[log.topic].name, log.partition) for log in logs]


async def show_pending(gate: Gate, call: Call[PendingQuery, None]) -> PendingList:
    """What is under way, and what waits for another try."""
    state, group = gate.state, gate.group(call.path["group"])
    now_ms = _mono_ms()
    found: list[PendingView] = []
    count = 0
    async for number in paced(state.live.teams.get(group.id, ())):
        for lease_id in sorted(state.live.subscriptions[number].leases):
            lease = state.live.leases[lease_id]
            log = state.durable.logs[lease.log]
            place = (state.durable.topics[log.topic].name, log.partition)
            left = (lease.deadline_ms - now_ms) / 1000
            for first, last in lease.ranges:
                count += last - first + 1
                if len(found) < call.query.limit:
                    found.append(PendingView(*place, first, last, "leased", lease.member, lease.attempt, left))
    async for log in paced(_logs_of(state, group)):
        progress = state.live.progress.get((group.id, log.id))
        for retry in progress.retries if progress else ():
            count += retry.last - retry.first + 1
            if len(found) < call.query.limit:
                place = (state.durable.topics[log.topic].name, log.partition)
                attempt = attempts_of(state, group.id, log.id, retry.first)
                left = max(0.0, (retry.due_ms - now_ms) / 1000)
                found.append(PendingView(*place, retry.first, retry.last, "retrying", "", attempt, left))
    return PendingList(group.name, count, found)


def attempts_of(state: State, group: int, log: int, offset: int) -> int:
    """How many attempts of a message have failed."""
    runs = state.durable.cursors[group, log].attempts
    return next((value for first, last, value in runs if first <= offset <= last), 0)


async def change(gate: Gate, call: Call[Nothing, GroupPatch]) -> GroupView:
    """Choose a group's strategy while it has no members; it is made if there is none."""
    name, strategy = call.path["group"], call.body.strategy
    await gate.ask(lambda session, request: inputs.ConfigureGroup(session, request, name, strategy))
    return await show(gate, Call(call.path, Nothing(), None, call.headers, call.access))


async def kick(gate: Gate, call: Call[Nothing, None]) -> Done:
    """Take a member out."""
    group, member = call.path["group"], call.path["member"]
    await gate.ask(lambda session, request: inputs.RemoveMember(session, request, group, member))
    return Done()


async def rebalance(gate: Gate, call: Call[Nothing, None]) -> Generation:
    """Have the plan of a partitioned group made anew."""
    group = call.path["group"]
    answer = await gate.ask(lambda session, request: inputs.RebalanceGroup(session, request, group))
    assert isinstance(answer, CoreJoined)
    return Generation(answer.generation)


async def set_offsets(gate: Gate, call: Call[Nothing, NewOffsets]) -> OffsetsSet:
    """Move a group's place: everywhere, in one topic, or exactly where it is said."""
    group, body = gate.group(call.path["group"]), call.body
    if bool(body.offsets) == (body.to != ""):
        raise Trouble(422, "invalid", 'say either "to" (earliest, latest, an offset, a time) or "offsets"')
    wanted: list[tuple[str, int, PriorityName | None, Whence, int]]
    if body.offsets:
        wanted = [(each.topic, each.partition, each.lane, Whence.OFFSET, each.offset) for each in body.offsets]
    else:
        whence, value = _place(str(body.to))
        topic = gate.topic(body.topic).id if body.topic else 0
        wanted = [
            (gate.state.durable.topics[log.topic].name, log.partition, lane, whence, value)
            for log in _logs_of(gate.state, group)
            for lane in [_lane_of(gate.state, log)]
            if topic in (0, log.topic) and body.partition in (None, log.partition) and body.lane in (None, lane)
        ]
        if not wanted:
            raise Trouble(404, "not_found", f"group {group.name!r} reads nothing of that kind")
    for name, partition, lane, whence, value in wanted:
        if whence is Whence.OFFSET:
            _check_offset(gate, group, name, partition, lane, value)
    found = []
    for name, partition, lane, whence, value in wanted:
        answer = await gate.ask(_seek(group.name, name, partition, lane, whence, value))
        assert isinstance(answer, Sought)
        found.append(OffsetView(names.topic_name(name), partition, answer.offset, lane))
    return OffsetsSet(group.name, found)


def _check_offset(gate: Gate, group: Group, name: str, partition: int, lane: PriorityName | None, offset: int) -> None:
    """A `Trouble` for a place that a group can't go to, before it has gone to any other that was named with it."""
    topic = gate.topic(name)
    if topic.lanes and lane is None:
        raise Trouble(422, "invalid", f"topic {topic.name!r} has lanes, and each counts its own offsets: name one")
    log = log_at(gate, topic, partition, _lane_number(lane) - 1)
    if log is None or (group.id, log.id) not in gate.state.durable.cursors:
        hint = f"GET /v1/groups/{group.name}/lag lists what it reads"
        raise Trouble(
            422, "invalid", f"group {group.name!r} does not read partition {partition} of {topic.name!r}", hint
        )
    end = stored_end(gate.state, log)
    if not log.start <= offset <= end:
        text = f"{topic.name}, partition {partition}, has offsets {log.start} to {end}, not {offset}; nothing was moved"
        raise Trouble(422, "invalid", text)


def _lane_of(state: State, log: Log) -> PriorityName | None:
    return LANES[log.lane] if state.durable.topics[log.topic].lanes else None


def _lane_number(lane: PriorityName | None) -> int:
    return 0 if lane is None else LANES.index(lane) + 1


def _seek(group: str, topic: str, partition: int, lane: PriorityName | None, whence: Whence, value: int) -> Make:
    place = (group, topic, partition)
    return lambda session, request: inputs.Seek(session, request, *place, whence, value, _lane_number(lane))


def _place(text: str) -> tuple[Whence, int]:
    if text == "earliest":
        return Whence.EARLIEST, 0
    if text == "latest":
        return Whence.LATEST, 0
    if text.isascii() and text.isdecimal() and len(text) < 19:
        return Whence.OFFSET, int(text)
    return Whence.TIME, as_time_ms(text, "to", _wall_ms())


# What consumers do


async def join(gate: Gate, call: Call[Nothing, Join]) -> Joined:
    """Become a member; the same consumerId again takes its own place over."""
    group, body = call.path["group"], call.body
    if gate.server.levels.level is Level.EMERGENCY:
        text = f"the broker takes no new members: {gate.server.levels.reason}"
        raise Trouble(503, "emergency", text, retry_after_ms=5_000)
    name = body.consumer_id or gate.consumers.new_name()
    try:
        names.plain_name(name, "consumerId")
        patterns = tuple(dict.fromkeys([names.pattern(each) for each in body.topics]))
    except BadName as error:
        raise Trouble(422, "invalid", str(error)) from None
    for pattern in patterns:
        call.demand(Role.READ, pattern)
    consumer = Consumer(group, name, body.strategy, patterns)
    local = consumer.local = gate.node.open_local(name, consumer.deliver)
    try:
        await gate.ask(_join(consumer), local=local)
        for pattern in patterns:
            answer = await gate.ask(_subscribe(group, pattern, body.auto_ack), local=local, meanings=_BAD_PATTERN)
            assert isinstance(answer, Subscribed)
            consumer.subscriptions.append(answer.subscription)
    except BaseException:
        _end(gate, consumer)
        raise
    gate.consumers.add(consumer)
    await _until_assigned(gate, consumer)
    state = gate.state
    number = state.durable.groups_by_name[group]
    return Joined(name, state.durable.groups[number].generation, _assignments(state, number, name))


_BAD_PATTERN = {Status.INVALID_PATTERN: (422, "invalid")}


def _join(consumer: Consumer) -> Make:
    who = (consumer.group, consumer.name, consumer.strategy)
    return lambda session, request: inputs.JoinGroup(session, request, *who)


def _subscribe(group: str, pattern: str, auto_ack: bool) -> Make:
    return lambda session, request: inputs.Subscribe(session, request, pattern, group, NO_CREDIT, auto_ack)


async def _until_assigned(gate: Gate, consumer: Consumer) -> None:
    """Give a partitioned group's quiet period the time to end, so that a first answer names partitions."""
    settings = gate.state.settings
    number = gate.state.durable.groups_by_name.get(consumer.group, 0)
    deadline = time.monotonic() + settings.quiet_ms * 2 / 1000
    while number in gate.state.live.gatherings and time.monotonic() < deadline:
        await asyncio.sleep(settings.quiet_ms / 4000)


def _end(gate: Gate, consumer: Consumer) -> None:
    gate.consumers.remove(consumer)
    if consumer.local is not None:
        consumer.local.end(0, f"member {consumer.name!r} left")
        gate.node.disconnect(consumer.local.session)
        gate.server.wake()


def _consumer(gate: Gate, call: AnyCall, member: str) -> Consumer:
    """A member that is there, for somebody who may read what it reads; its request is a sign of life, and answers a
    REVOKE."""
    group = call.path["group"]
    found = gate.consumers.find(group, member)
    if found is None:
        text = f"{member!r} is not a member of group {group!r} that polls: it left, or nothing was heard of it for long"
        raise Trouble(404, "not_a_member", text, f"POST /v1/groups/{group}/join")
    for pattern in found.patterns:
        call.demand(Role.READ, pattern)
    _touch(gate, found)
    return found


def _touch(gate: Gate, consumer: Consumer) -> None:
    local = consumer.local
    if local is None or local.closing:
        return
    gate.submit(inputs.Seen(local.session))
    if local.revoked:
        local.revoked = ()
        request = local.register(lambda answer, entries: None)
        gate.submit(_join(consumer)(local.session, request))


async def poll(gate: Gate, call: Call[Nothing, Poll]) -> Polled:
    """Messages for a member, waiting for the first of them."""
    return await _poll(gate, call, call.body)


async def poll_by_query(gate: Gate, call: Call[Poll, None]) -> Polled:
    """The same, as GET."""
    return await _poll(gate, call, call.query)


async def _poll(gate: Gate, call: AnyCall, asked: Poll) -> Polled:
    consumer = _consumer(gate, call, asked.member)
    wait_ms = min(as_ms(asked.timeout, "timeout"), POLL_MS_MAX)
    async with consumer.polling:
        if asked.seq is not None and asked.seq == consumer.last_seq:
            taken = consumer.last
        else:
            taken = await _gather(gate, consumer, asked.max, wait_ms / 1000)
            if asked.seq is not None:
                consumer.last_seq, consumer.last = asked.seq, taken
    number = gate.state.durable.groups_by_name.get(consumer.group, 0)
    known = gate.state.durable.groups.get(number)
    generation = known.generation if known else 0
    return Polled(await _shown(gate, taken), generation, _assignments(gate.state, number, consumer.name))


async def _gather(gate: Gate, consumer: Consumer, most: int, wait_s: float) -> list[Held]:
    """Open the member's credit until something has come, then close it and give back what is too much."""
    deadline = time.monotonic() + wait_s
    sign_s = min(SIGN_OF_LIFE_S, gate.state.settings.session_timeout_ms / 4000)
    try:
        _open_credit(gate, consumer, most)
        # One turn for what is there already: it comes with the step that opens the credit.
        await gate.ask(lambda session, request: inputs.Heartbeat(session, request, ""), local=consumer.local)
        while not consumer.inbox and (left := deadline - time.monotonic()) > 0:
            consumer.arrived.clear()
            try:
                async with asyncio.timeout(min(left, sign_s)):
                    await consumer.arrived.wait()
            except TimeoutError:
                _touch(gate, consumer)
            if consumer.local is None or consumer.local.closing:
                break
        return consumer.take(most)
    finally:
        _close_credit(gate, consumer)
        _give_back(gate, consumer)


def _open_credit(gate: Gate, consumer: Consumer, most: int) -> None:
    if consumer.local is None:
        return
    for number in consumer.subscriptions:
        known = gate.state.live.subscriptions.get(number)
        _set_credit(gate, consumer, number, (known.in_flight if known else 0) + most)


def _close_credit(gate: Gate, consumer: Consumer) -> None:
    for number in consumer.subscriptions:
        _set_credit(gate, consumer, number, NO_CREDIT)


def _set_credit(gate: Gate, consumer: Consumer, subscription: int, credit: int) -> None:
    local = consumer.local
    if local is not None and not local.closing:
        request = local.register(lambda answer, entries: None)
        gate.submit(inputs.SetCredit(local.session, request, subscription, credit))


def _give_back(gate: Gate, consumer: Consumer) -> None:
    """Nobody will see what is left in the inbox: others may have it, at the same attempt."""
    left, consumer.inbox = consumer.inbox, []
    local = consumer.local
    if local is None or local.closing:
        return
    for held in left:
        if held.delivery.lease:
            gate.submit(inputs.Release(local.session, held.delivery.lease, held.offset, held.offset))
    # What needed no acknowledgment has left: its credit is free again.
    gate.node.wrote(local.session, 0)


async def _shown(gate: Gate, taken: list[Held]) -> list[MessageView]:
    state = gate.state
    found: list[MessageView] = []
    parsed: dict[int, dict[int, MessageView]] = {}
    wanted: dict[int, set[int]] = {}
    for held in taken:
        wanted.setdefault(id(held.entry), set()).add(held.offset)
    async for held in paced(taken):
        log = state.durable.logs.get(held.delivery.log)
        if log is None:
            continue
        if id(held.entry) not in parsed:
            topic = state.durable.topics[log.topic]
            offsets = wanted[id(held.entry)]
            parsed[id(held.entry)] = {each.offset: each for each in views(topic, log, held.entry, offsets)}
        message = parsed[id(held.entry)].get(held.offset)
        if message is None:
            continue
        if held.delivery.lease:
            receipt = gate.consumers.receipt(held)
            message = replace(
                message, receipt=receipt, attempt=held.delivery.attempt, deadline=held.delivery.deadline_ms
            )
        found.append(message)
    return found


async def heartbeat(gate: Gate, call: Call[Nothing, MemberName]) -> Beat:
    """A sign of life."""
    consumer = _consumer(gate, call, call.body.member)
    answer = await gate.ask(
        lambda session, request: inputs.Heartbeat(session, request, consumer.name), local=consumer.local
    )
    assert isinstance(answer, CoreJoined)
    number = gate.state.durable.groups_by_name.get(consumer.group, 0)
    return Beat(answer.generation, _assignments(gate.state, number, consumer.name))


async def leave(gate: Gate, call: Call[Nothing, MemberName]) -> Done:
    """Go; what was leased returns at once, uncounted."""
    consumer = _consumer(gate, call, call.body.member)
    await gate.ask(
        lambda session, request: inputs.LeaveGroup(session, request, consumer.group, consumer.name),
        local=consumer.local,
    )
    _end(gate, consumer)
    return Done()


async def commit(gate: Gate, call: Call[Nothing, Commit]) -> Committed:
    """Everything below each offset is done."""
    consumer = _consumer(gate, call, call.body.member)
    for each in call.body.offsets:
        call.demand(Role.READ, each.topic)
    for each in call.body.offsets:
        await gate.ask(_commit(consumer.group, each), local=consumer.local)
    return Committed(len(call.body.offsets))


def _commit(group: str, each: models.OffsetSet) -> Make:
    place = (each.topic, each.partition, each.offset, _lane_number(each.lane))
    return lambda session, request: inputs.Commit(session, request, group, *place)


async def ack(gate: Gate, call: Call[Nothing, AckBody]) -> SettleResults:
    """Done with these."""
    return await _settle(gate, call, SettleAction.ACK, 0, "")


async def nack(gate: Gate, call: Call[Nothing, NackBody]) -> SettleResults:
    """These failed: another try."""
    delay_ms = as_ms(call.body.delay, "delay")
    return await _settle(gate, call, SettleAction.NACK, delay_ms, call.body.reason)


async def reject(gate: Gate, call: Call[Nothing, RejectBody]) -> SettleResults:
    """These go to the dead letters."""
    return await _settle(gate, call, SettleAction.REJECT, 0, call.body.reason)


async def extend(gate: Gate, call: Call[Nothing, ExtendBody]) -> SettleResults:
    """More time for these."""
    by_ms = as_ms(call.body.by, "by")
    return await _settle(gate, call, SettleAction.EXTEND, by_ms, "")


async def _settle(
    gate: Gate, call: Call[Nothing, SettleBodyT], action: SettleAction, delay_ms: int, error: str
) -> SettleResults:
    group, body = gate.group(call.path["group"]), call.body
    if bool(body.receipts) == bool(body.topic):
        raise Trouble(
            422, "invalid", 'name either "receipts" or one message by "topic", "partition", "offset", "member"'
        )
    tickets = [gate.consumers.ticket(receipt) for receipt in body.receipts] or [_by_place(gate, group, body)]
    names_of = body.receipts or [f"{body.topic}:{body.partition}:{body.offset}"]
    outcomes: list[tuple[bool, int, str]] = [(False, 0, "the receipt is not of this broker since it started")] * len(
        tickets
    )
    by_session: dict[int, list[int]] = {}
    for place, ticket in enumerate(tickets):
        lease = gate.state.live.leases.get(ticket.lease) if ticket else None
        if ticket is not None and (lease is None or lease.owner != group.id):
            outcomes[place] = (False, 0, f"{ticket.message_id} is not held any more: settled, timed out, or moved")
        elif lease is not None:
            call.demand(Role.READ, gate.state.durable.topics[gate.state.durable.logs[lease.log].topic].name)
            session = gate.state.live.subscriptions[lease.subscription].session
            by_session.setdefault(session, []).append(place)
    for session, places in by_session.items():
        items = tuple([_item(tickets[place], action, delay_ms, error) for place in places])
        for place, outcome in zip(places, await _settle_as(gate, session, items, body.wait), strict=True):
            outcomes[place] = outcome
    results = [_result(name, *outcome) for name, outcome in zip(names_of, outcomes, strict=True)]
    settled = sum(each.ok for each in results)
    if results and not settled:
        raise Trouble(409, "lease_lost", results[0].reason, "poll again", details={"results": results})
    return SettleResults(settled, results)


def _by_place(gate: Gate, group: Group, body: SettleBody) -> Ticket | None:
    """The lease under which a member has a message, named by its place."""
    state = gate.state
    topic = gate.topic(body.topic)
    session = state.live.members_by_name.get(f"{group.id}/{body.member}")
    known = state.live.sessions.get(session) if session else None
    if known is None:
        raise Trouble(404, "not_a_member", f"group {group.name!r} has no member {body.member!r}")
    for number in known.subscriptions:
        for lease_id in sorted(state.live.subscriptions[number].leases):
            if _holds(state, state.live.leases[lease_id], topic.id, body):
                name = f"{topic.name}:{body.partition}:{body.offset}"
                return Ticket(name, body.offset, state.live.leases[lease_id].attempt, lease_id)
    text = f"{body.member!r} does not hold {topic.name}:{body.partition}:{body.offset}"
    raise Trouble(409, "lease_lost", text, "poll again")


def _holds(state: State, lease: Lease, topic: int, body: SettleBody) -> bool:
    log = state.durable.logs[lease.log]
    here = log.topic == topic and log.partition == body.partition and body.lane in (None, _lane_of(state, log))
    return here and contains(lease.ranges, body.offset, body.offset)


def _item(ticket: Ticket | None, action: SettleAction, delay_ms: int, error: str) -> inputs.SettleItem:
    assert ticket is not None
    return inputs.SettleItem(ticket.lease, action, ticket.offset, ticket.offset, 0, delay_ms, error)


async def _settle_as(
    gate: Gate, session: int, items: tuple[inputs.SettleItem, ...], wait: bool
) -> list[tuple[bool, int, str]]:
    local = gate.node.local(session)
    if local is None:
        return [(False, 0, "it is held by a member that does not poll")] * len(items)
    gate.submit(inputs.Seen(session))
    answer = await gate.ask(lambda who, request: inputs.Settle(who, request, items, wait), local=local)
    assert isinstance(answer, Settlement)
    return [
        (status == Status.OK, outcome, reason)
        for (status, outcome), reason in zip(answer.results, answer.reasons, strict=True)
    ]


def _result(name: str, ok: bool, outcome: int, reason: str) -> SettleResult:
    if not ok:
        return SettleResult(name, False, "refused", reason)
    match Outcome(outcome):
        case Outcome.REQUEUED:
            return SettleResult(name, True, "requeued", "")
        case Outcome.DEAD_LETTERED:
            return SettleResult(name, True, "dead_lettered", "")
        case Outcome.DROPPED:
            return SettleResult(name, True, "dropped", "")
        case Outcome.SETTLED:
            return SettleResult(name, True, "settled", "")


_GROUP = "/v1/groups/{group}"

ROUTES = (
    Route("GET", "/v1/groups", show_all, "All groups, by name.", answer=GroupList),
    Route("GET", _GROUP, show, "A group.", answer=GroupView),
    Route("PATCH", _GROUP, change, "Choose a group's strategy.", body=GroupPatch, answer=GroupView, role=Role.ADMIN),
    Route("GET", f"{_GROUP}/lag", show_lag, "How far a group is behind, log by log.", answer=GroupLag),
    Route("GET", f"{_GROUP}/members", show_members, "A group's members and how they are.", answer=MemberList),
    Route("DELETE", f"{_GROUP}/members/{{member}}", kick, "Take a member out.", answer=Done, role=Role.ADMIN),
    Route(
        "GET",
        f"{_GROUP}/pending",
        show_pending,
        "What is under way or waits for another try.",
        query=PendingQuery,
        answer=PendingList,
    ),
    Route("POST", f"{_GROUP}/rebalance", rebalance, "Make the plan anew.", answer=Generation, role=Role.ADMIN),
    Route(
        "POST",
        f"{_GROUP}/offsets",
        set_offsets,
        "Move a group's place.",
        body=NewOffsets,
        answer=OffsetsSet,
        role=Role.ADMIN,
    ),
    Route("POST", f"{_GROUP}/join", join, "Become a member.", body=Join, answer=Joined, role=Role.READ),
    Route(
        "POST",
        f"{_GROUP}/poll",
        poll,
        "Messages, waiting for the first.",
        body=Poll,
        answer=Polled,
        role=Role.READ,
        no_store=True,
    ),
    Route(
        "GET",
        f"{_GROUP}/poll",
        poll_by_query,
        "Messages, waiting for the first.",
        query=Poll,
        answer=Polled,
        role=Role.READ,
        no_store=True,
    ),
    Route(
        "POST",
        f"{_GROUP}/commit",
        commit,
        "Everything below these offsets is done.",
        body=Commit,
        answer=Committed,
        role=Role.READ,
    ),
    Route("POST", f"{_GROUP}/heartbeat", heartbeat, "A sign of life.", body=MemberName, answer=Beat, role=Role.READ),
    Route("POST", f"{_GROUP}/ack", ack, "Done with.", body=AckBody, answer=SettleResults, role=Role.READ),
    Route("POST", f"{_GROUP}/nack", nack, "Try again.", body=NackBody, answer=SettleResults, role=Role.READ),
    Route("POST", f"{_GROUP}/reject", reject, "Give up.", body=RejectBody, answer=SettleResults, role=Role.READ),
    Route("POST", f"{_GROUP}/extend", extend, "More time.", body=ExtendBody, answer=SettleResults, role=Role.READ),
    Route("POST", f"{_GROUP}/leave", leave, "Go.", body=MemberName, answer=Done, role=Role.READ),
)
