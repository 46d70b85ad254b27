"""Sessions: opened, seen, ended by their socket or by silence.

Promises  whatever a session held is free again when it ends: leases return uncounted, memberships and ephemeral
          cursors go (I-SESSION); a session in a group ends when nothing was heard of it for the session timeout.
Never     ends a session that is in no group for being quiet: it holds nothing that others wait for.
"""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.core import groups, routing, timers
from dovetail.core.effects import CloseSession
from dovetail.core.ids import check
from dovetail.core.inputs import SessionOpened
from dovetail.core.state import Session
from dovetail.core.turn import Turn


def opened(turn: Turn, request: SessionOpened) -> None:
    """A connection was made."""
    check(request.session not in turn.sessions, "I-SESSION", request)
    turn.sessions[request.session] = Session(request.session, request.name, turn.mono_ms)


def seen(turn: Turn, session_id: int) -> None:
    """Something was heard of a session."""
    session = turn.sessions.get(session_id)
    if session is not None:
        turn.sessions[session_id] = replace(session, seen_ms=turn.mono_ms)


def closed(turn: Turn, session_id: int) -> None:
    """A session is over, for whatever reason; one that is over already is fine."""
    session = turn.sessions.get(session_id)
    if session is None:
        return
    for member in session.members:
        groups.leave(turn, session_id, member)
    for number in turn.sessions[session_id].subscriptions:
        routing.detach(turn, turn.subscriptions[number])
    turn.buckets.pop(session_id, None)
    del turn.sessions[session_id]


def fell_silent(turn: Turn, session_id: int) -> None:
    """The session timer fired: end a member nothing was heard of, or look again when it would be due."""
    session = turn.sessions.get(session_id)
    if session is None or not session.members:
        return
    due_ms = session.seen_ms + turn.settings.session_timeout_ms
    if due_ms > turn.mono_ms:
        turn.set_timer(due_ms, (timers.SESSION, session_id, 0))
        return
    closed(turn, session_id)
    reason = f"nothing was heard of the session for {turn.settings.session_timeout_ms} ms: send heartbeats"
    turn.effects.append(CloseSession(session_id, reason))
