"""Groups, their members, and subscriptions with or without a group.

Promises  every change of membership raises the generation, which is durable (I-GENERATION); a member id that comes
          back on another connection takes its place without one; a group's patterns stay while it has no members.
Never     takes a lease away from a member because somebody else joined.
"""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.core import names, routing, timers, topics
from dovetail.core.codes import Status
from dovetail.core.effects import CloseSession, Done, Joined, Subscribed
from dovetail.core.ids import Refusal
from dovetail.core.inputs import Heartbeat, JoinGroup, LeaveGroup, SetCredit, Subscribe, Unsubscribe
from dovetail.core.names import BadName
from dovetail.core.records import GroupCreated, MemberJoined, MemberLeft, PatternAdded
from dovetail.core.state import Group, Member, Session, Subscription
from dovetail.core.turn import Turn

SHARED = "shared"
ROUND_ROBIN = "round-robin"
STRATEGIES = ("", ROUND_ROBIN)


def find_or_create(turn: Turn, text: str, strategy: str = "") -> Group:
    """The group called `text`, made now if there is none; raises `Refusal`."""
    if strategy not in STRATEGIES:
        known = ", ".join(each for each in STRATEGIES if each)
        raise Refusal(
            Status.GROUP_ERROR, f"strategy {strategy!r} is not known: use {known}, or none for the group's own"
        )
    number = turn.durable.groups_by_name.get(text)
    if number is None:
        name = _group_name(text)
        turn.emit(GroupCreated(turn.durable.next_group, name, SHARED, strategy or ROUND_ROBIN, turn.wall_ms))
        number = turn.durable.groups_by_name[name]
    group = turn.durable.groups[number]
    if strategy not in ("", group.strategy):
        raise Refusal(Status.GROUP_ERROR, f"group {text!r} uses strategy {group.strategy!r}, not {strategy!r}")
    return group


def join(turn: Turn, request: JoinGroup) -> None:
    """A session becomes a member under a name of its own choice."""
    session = turn.sessions[request.session]
    try:
        name = names.plain_name(request.member, "member name")
        group = find_or_create(turn, request.group, request.strategy)
        _enter(turn, session, group, name, implicit=False)
    except BadName as error:
        return turn.refuse(request.session, request.request, Status.GROUP_ERROR, str(error))
    except Refusal as refusal:
        return turn.refuse(request.session, request.request, refusal.status, refusal.reason)
    return turn.reply(request.session, request.request, Joined(turn.durable.groups[group.id].generation))


def _enter(turn: Turn, session: Session, group: Group, name: str, *, implicit: bool) -> None:
    mine = member_of(session, group.id)
    if mine is not None:
        if mine.name != name:
            raise Refusal(Status.GROUP_ERROR, f"this connection is member {mine.name!r} of {group.name!r} already")
        return
    key = f"{group.id}/{name}"
    holder = turn.members_by_name.get(key)
    if holder is None:
        turn.emit(MemberJoined(group.id, name, group.generation + 1, turn.wall_ms))
    else:
        _give_way(turn, holder, group.id, name)
    turn.members_by_name[key] = session.id
    turn.sessions[session.id] = replace(session, members=(*session.members, Member(group.id, name, implicit)))
    turn.set_timer(turn.mono_ms + turn.settings.session_timeout_ms, (timers.SESSION, session.id, 0))


def _give_way(turn: Turn, holder: int, group: int, name: str) -> None:
    """The member came back on another connection: the old one loses its place there, and is closed."""
    _detach_all(turn, holder, group)
    _forget_member(turn, holder, group)
    turn.effects.append(CloseSession(holder, f"member {name!r} came back on another connection"))


def member_of(session: Session, group: int) -> Member | None:
    """A session's place in a group, if it has one."""
    return next((member for member in session.members if member.group == group), None)


def leave(turn: Turn, session_id: int, member: Member) -> None:
    """A member goes: its leases return uncounted, the generation rises."""
    _detach_all(turn, session_id, member.group)
    _forget_member(turn, session_id, member.group)
    del turn.members_by_name[f"{member.group}/{member.name}"]
    generation = turn.durable.groups[member.group].generation
    turn.emit(MemberLeft(member.group, member.name, generation + 1, turn.wall_ms))


def _detach_all(turn: Turn, session_id: int, owner: int) -> None:
    for number in turn.sessions[session_id].subscriptions:
        if turn.subscriptions[number].owner == owner:
            routing.detach(turn, turn.subscriptions[number])


def _forget_member(turn: Turn, session_id: int, group: int) -> None:
    session = turn.sessions[session_id]
    rest = tuple(member for member in session.members if member.group != group)
    turn.sessions[session_id] = replace(session, members=rest)


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
    credit = request.max_inflight or turn.settings.max_inflight
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
    credit = request.max_inflight or turn.settings.max_inflight
    turn.subscriptions[subscription.id] = replace(subscription, credit_max=credit)
    turn.woken[subscription.owner] = None
    return turn.reply(request.session, request.request, Done())
