"""Groups, their members, and subscriptions with or without a group.

Promises  a group's mode and strategy are its own (I-MODE); every change of membership raises the generation, which is
          durable (I-GENERATION), in a partitioned group together with the plan that follows from it; a member id that
          comes back on another connection takes its place without one; a group's patterns stay while it has no
          members, until it expires.
Never     takes a lease away from a member of a shared group because somebody else joined.
"""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from dovetail.core import names, rebalance, routing, timers, topics
from dovetail.core.assignment import PARTITIONED_STRATEGIES
from dovetail.core.choosing import LEAST_LOADED
from dovetail.core.codes import Status
from dovetail.core.effects import CloseSession, Done, Joined, Subscribed
from dovetail.core.ids import Refusal, ordered
from dovetail.core.inputs import (
    ConfigureGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    RebalanceGroup,
    RemoveMember,
    SetCredit,
    Subscribe,
    Unsubscribe,
)
from dovetail.core.keys import KEY_ORDERED
from dovetail.core.names import BadName
from dovetail.core.records import (
    GroupConfigured,
    GroupCreated,
    GroupDeleted,
    MemberJoined,
    MemberLeft,
    PatternAdded,
)
from dovetail.core.state import Group, Member, Session, Subscription
from dovetail.core.turn import Turn

SHARED = "shared"
ROUND_ROBIN = "round-robin"
SHARED_STRATEGIES = (ROUND_ROBIN, LEAST_LOADED, KEY_ORDERED)


def mode_of(strategy: str) -> str:
    """The mode that a strategy belongs to; raises `Refusal` for one that is not known."""
    if strategy in SHARED_STRATEGIES:
        return SHARED
    if strategy in PARTITIONED_STRATEGIES:
        return rebalance.PARTITIONED
    known = ", ".join((*SHARED_STRATEGIES, *PARTITIONED_STRATEGIES))
    raise Refusal(Status.GROUP_ERROR, f"strategy {strategy!r} is not known: use {known}, or none for the group's own")


def find_or_create(turn: Turn, text: str, strategy: str = "") -> Group:
    """The group called `text`, made now if there is none; raises `Refusal`."""
    mode = mode_of(strategy or ROUND_ROBIN)
    number = turn.durable.groups_by_name.get(text)
    if number is None:
        name = _group_name(text)
        turn.emit(GroupCreated(turn.durable.next_group, name, mode, strategy or ROUND_ROBIN, turn.wall_ms))
        number = turn.durable.groups_by_name[name]
        turn.set_timer(turn.mono_ms + turn.settings.group_expiry_ms, (timers.GROUP_EXPIRY, number, 0))
    group = turn.durable.groups[number]
    if strategy not in ("", group.strategy):
        raise Refusal(Status.GROUP_ERROR, f"group {text!r} uses strategy {group.strategy!r}, not {strategy!r}")
    return group


def join(turn: Turn, request: JoinGroup) -> None:
    """A session becomes a member under a name of its own choice; a member may leave its name out."""
    session = turn.sessions[request.session]
    mine = member_of(session, turn.durable.groups_by_name.get(request.group, 0))
    known = mine.name if mine is not None and request.member in ("", mine.name) else ""
    try:
        name = known or names.plain_name(request.member, "member name")
        group = find_or_create(turn, request.group, request.strategy)
        _enter(turn, session, group, name, implicit=False)
    except BadName as error:
        return turn.refuse(request.session, request.request, Status.GROUP_ERROR, str(error))
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    turn.reply(request.session, request.request, Joined(turn.durable.groups[group.id].generation))
    # To join again is to answer a REVOKE.
    return rebalance.answered(turn, group.id, name)


def _enter(turn: Turn, session: Session, group: Group, name: str, *, implicit: bool) -> None:
    mine = member_of(session, group.id)
    if mine is not None:
        if mine.name != name:
            raise Refusal(Status.GROUP_ERROR, f"this connection is member {mine.name!r} of {group.name!r} already")
        return
    key = f"{group.id}/{name}"
    holder = turn.members_by_name.get(key)
    if holder is None and group.mode == SHARED:
        turn.emit(MemberJoined(group.id, name, group.generation + 1, turn.wall_ms))
    returned_by_ms = 0 if holder is None else turn.mono_ms + turn.settings.rebalance_answer_ms
    member = Member(group.id, name, implicit, returned_by_ms)
    turn.members_by_name[key] = session.id
    turn.sessions[session.id] = replace(session, members=(*session.members, member))
    turn.rosters[group.id] = (turn.rosters.get(group.id) or Map()).set(session.id, name)
    turn.set_timer(turn.mono_ms + turn.settings.session_timeout_ms, (timers.SESSION, session.id, 0))
    if holder is None:
        rebalance.disturb(turn, group.id)
    else:
        _give_way(turn, holder, group.id, name)
        turn.set_timer(returned_by_ms, (timers.GATHER, group.id, 0))


def _give_way(turn: Turn, holder: int, group: int, name: str) -> None:
    """The member came back on another connection: the old one loses its place there, and is closed."""
    _forget_member(turn, holder, group)
    _detach_all(turn, holder, group)
    turn.effects.append(CloseSession(holder, f"member {name!r} came back on another connection"))


def member_of(session: Session, group: int) -> Member | None:
    """A session's place in a group, if it has one."""
    return next((member for member in session.members if member.group == group), None)


def leave(turn: Turn, session_id: int, member: Member) -> None:
    """A member goes: its leases return uncounted, the generation rises."""
    _detach_all(turn, session_id, member.group)
    _forget_member(turn, session_id, member.group)
    del turn.members_by_name[f"{member.group}/{member.name}"]
    group = turn.durable.groups[member.group]
    if group.mode == SHARED:
        turn.emit(MemberLeft(member.group, member.name, group.generation + 1, turn.wall_ms))
    rebalance.member_gone(turn, member.group, member.name)
    if member.group not in turn.rosters:
        turn.set_timer(turn.mono_ms + turn.settings.group_expiry_ms, (timers.GROUP_EXPIRY, member.group, 0))


def _detach_all(turn: Turn, session_id: int, owner: int) -> None:
    for number in turn.sessions[session_id].subscriptions:
        if turn.subscriptions[number].owner == owner:
            routing.detach(turn, turn.subscriptions[number])


def _forget_member(turn: Turn, session_id: int, group: int) -> None:
    session = turn.sessions[session_id]
    rest = tuple(member for member in session.members if member.group != group)
    turn.sessions[session_id] = replace(session, members=rest)
    turn.conduct.pop((group, session_id), None)
    roster = turn.rosters[group].delete(session_id)
    if roster:
        turn.rosters[group] = roster
    else:
        del turn.rosters[group]


def leave_by_request(turn: Turn, request: LeaveGroup) -> None:
    """LEAVE_GROUP: of a group the session is in, under the name it has there."""
    number = turn.durable.groups_by_name.get(request.group, 0)
    member = member_of(turn.sessions[request.session], number)
    if member is None or member.name != request.member:
        reason = f"this connection is not member {request.member!r} of group {request.group!r}"
        return turn.refuse(request.session, request.request, Status.GROUP_ERROR, reason)
    leave(turn, request.session, member)
    return turn.reply(request.session, request.request, Done())


def heartbeat(turn: Turn, request: Heartbeat) -> None:
    """A sign of life, answered with the generation of the member's group (0 for a session in none)."""
    members = turn.sessions[request.session].members
    if request.member:
        members = tuple(member for member in members if member.name == request.member)
        if not members:
            reason = f"this connection is not a member called {request.member!r} of any group: join again"
            return turn.refuse(request.session, request.request, Status.GROUP_ERROR, reason)
    generation = turn.durable.groups[members[0].group].generation if members else 0
    return turn.reply(request.session, request.request, Joined(generation))


def subscribe(turn: Turn, request: Subscribe) -> None:
    """Have a session read what a pattern matches, alone or as a member of a group."""
    session = turn.sessions[request.session]
    if len(session.subscriptions) >= turn.settings.patterns_max:
        reason = f"this connection has {turn.settings.patterns_max} subscriptions already, the most it may have"
        return turn.refuse(request.session, request.request, Status.QUOTA, reason)
    try:
        pattern = names.pattern(request.pattern)
    except BadName as error:
        return turn.refuse(request.session, request.request, Status.INVALID_PATTERN, str(error))
    try:
        _check_group(turn, request.group, pattern)
        if names.is_plain(pattern) and turn.settings.auto_create:
            topics.find_or_create(turn, pattern)
        owner, member = _owner(turn, session, request.group, pattern)
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    credit = _credit(turn, request.max_inflight)
    number = turn.next_subscription
    turn.next_subscription += 1
    # Answered before anything is sent under the new number.
    turn.reply(request.session, request.request, Subscribed(number))
    subscription = Subscription(number, session.id, owner, member, pattern, credit, 0, request.auto_ack)
    return routing.attach(turn, subscription)


def _check_group(turn: Turn, name: str, pattern: str) -> None:
    """Refuse what the group can't take before anything is made on its behalf."""
    number = turn.durable.groups_by_name.get(name)
    if number is None:
        if name:
            _group_name(name)
        return
    patterns = turn.durable.groups[number].patterns
    if pattern not in patterns and len(patterns) >= turn.settings.patterns_max:
        raise Refusal(Status.GROUP_ERROR, f"group {name!r} has {len(patterns)} patterns, the most it may have")


def _group_name(text: str) -> str:
    try:
        return names.plain_name(text, "group name")
    except BadName as error:
        raise Refusal(Status.GROUP_ERROR, str(error)) from None


def _owner(turn: Turn, session: Session, group_name: str, pattern: str) -> tuple[int, str]:
    """Whose cursors a subscription reads with: the group's, which it joins, or the session's own."""
    if not group_name:
        return -session.id, ""
    group = find_or_create(turn, group_name)
    mine = member_of(session, group.id)
    name = mine.name if mine else f"{session.name}-{session.id}"
    _enter(turn, session, group, name, implicit=True)
    _add_pattern(turn, turn.durable.groups[group.id], pattern)
    return group.id, name


def _add_pattern(turn: Turn, group: Group, pattern: str) -> None:
    """A group reads what a pattern matches from now on, existing topics from their start."""
    if pattern in group.patterns:
        return
    turn.emit(PatternAdded(group.id, pattern))
    turn.group_trie = turn.group_trie.insert(pattern, group.id)
    for number in turn.topic_trie.topics_for(pattern):
        routing.open_cursors(turn, group.id, turn.durable.topics[number], from_start=True)


def unsubscribe(turn: Turn, request: Unsubscribe) -> None:
    """End one subscription; a membership that only subscriptions made goes with the last of them."""
    subscription = turn.subscriptions.get(request.subscription)
    if subscription is None or subscription.session != request.session:
        reason = f"this connection has no subscription {request.subscription}"
        return turn.refuse(request.session, request.request, Status.NOT_FOUND, reason)
    routing.detach(turn, subscription)
    session = turn.sessions[request.session]
    member = member_of(session, subscription.owner)
    owners = [turn.subscriptions[number].owner for number in session.subscriptions]
    if member is not None and member.implicit and member.group not in owners:
        leave(turn, session.id, member)
    return turn.reply(request.session, request.request, Done())


def set_credit(turn: Turn, request: SetCredit) -> None:
    """Change how many messages a subscription may hold at once."""
    subscription = turn.subscriptions.get(request.subscription)
    if subscription is None or subscription.session != request.session:
        reason = f"this connection has no subscription {request.subscription}"
        return turn.refuse(request.session, request.request, Status.NOT_FOUND, reason)
    credit = _credit(turn, request.max_inflight)
    turn.subscriptions[subscription.id] = replace(subscription, credit_max=credit)
    turn.woken[subscription.owner] = None
    return turn.reply(request.session, request.request, Done())


def _credit(turn: Turn, asked: int) -> int:
    """How many messages a subscription may hold: a pull consumer asks for less than 0, none, between its polls."""
    return turn.settings.max_inflight if asked == 0 else max(0, asked)


def revoke_overdue(turn: Turn, number: int) -> None:
    """Members that did not answer a REVOKE in time are taken out of the group; what they had moves on."""
    for name in rebalance.overdue(turn, number):
        reason = f"a REVOKE was not answered within {turn.settings.rebalance_answer_ms} ms: answer it with JOIN_GROUP"
        _remove(turn, number, name, reason)


def _remove(turn: Turn, number: int, name: str, reason: str) -> None:
    session = turn.members_by_name[f"{number}/{name}"]
    member = member_of(turn.sessions[session], number)
    if member is not None:
        leave(turn, session, member)
        turn.effects.append(CloseSession(session, reason))


def remove_by_request(turn: Turn, request: RemoveMember) -> None:
    """An operator takes a member out; its connection is closed."""
    number = turn.durable.groups_by_name.get(request.group, 0)
    if f"{number}/{request.member}" not in turn.members_by_name:
        reason = f"group {request.group!r} has no member {request.member!r}"
        return turn.refuse(request.session, request.request, Status.NOT_FOUND, reason)
    _remove(turn, number, request.member, f"an operator removed member {request.member!r} from {request.group!r}")
    return turn.reply_stored(request.session, request.request, Done())


def rebalance_by_request(turn: Turn, request: RebalanceGroup) -> None:
    """An operator has the plan made now, without waiting for a burst to end."""
    number = turn.durable.groups_by_name.get(request.group)
    if number is None:
        reason = f"group {request.group!r} does not exist"
        return turn.refuse(request.session, request.request, Status.NOT_FOUND, reason)
    if turn.durable.groups[number].mode != rebalance.PARTITIONED:
        reason = f"group {request.group!r} is shared: it has no partitions to move"
        return turn.refuse(request.session, request.request, Status.GROUP_ERROR, reason)
    rebalance.plan_now(turn, number)
    return turn.reply_stored(request.session, request.request, Joined(turn.durable.groups[number].generation))


def configure(turn: Turn, request: ConfigureGroup) -> None:
    """An operator chooses the strategy of a group without members, made now if there is none."""
    try:
        mode = mode_of(request.strategy)
        group = find_or_create(turn, request.group)
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    members = len(turn.rosters.get(group.id) or ())
    if members and group.strategy != request.strategy:
        reason = f"group {group.name!r} has {members} members: its strategy can be changed when they have left"
        return turn.refuse(request.session, request.request, Status.EXISTS, reason)
    if group.strategy != request.strategy:
        if group.id in turn.gatherings:
            rebalance.plan_now(turn, group.id)
        turn.emit(GroupConfigured(group.id, mode, request.strategy))
    return turn.reply_stored(request.session, request.request, Done())


def watch_expiry(turn: Turn) -> None:
    """The broker starts: nobody is a member, and groups go on growing old."""
    for number, group in ordered(turn.durable.groups):
        left_ms = group.changed_ms + turn.settings.group_expiry_ms - turn.wall_ms
        turn.set_timer(turn.mono_ms + max(0, left_ms), (timers.GROUP_EXPIRY, number, 0))


def expire(turn: Turn, number: int) -> None:
    """The expiry timer fired: a group without members for that long is deleted, its floors with it."""
    group = turn.durable.groups.get(number)
    if group is None or number in turn.rosters:
        return
    due_ms = group.changed_ms + turn.settings.group_expiry_ms
    if due_ms > turn.wall_ms or number in turn.gatherings:
        # It had members meanwhile, or the plan without them is about to be made.
        wait_ms = max(due_ms - turn.wall_ms, turn.settings.quiet_ms)
        return turn.set_timer(turn.mono_ms + wait_ms, (timers.GROUP_EXPIRY, number, 0))
    for pattern in group.patterns:
        turn.group_trie = turn.group_trie.remove(pattern, number)
        for topic in turn.topic_trie.topics_for(pattern):
            routing.close_cursors(turn, number, turn.durable.topics[topic])
    turn.queues.pop(number, None)
    turn.served_last.pop(number, None)
    return turn.emit(GroupDeleted(number))
