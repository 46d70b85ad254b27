"""How members do: what they hold, how long they take, how often they fail, and what that says of their health.

Promises  a member is judged by its last `SAMPLES_MAX` outcomes of the last `WINDOW_MS`, and not before it has
          `kernels.SAMPLES_MIN` of them; an outcome is a range that was settled, or whose lease ran out, and it took
          from its delivery to its end; those of one instant that are alike count once; five minutes without an
          outcome make a member healthy again (I-HEALTH).
Never     takes anything from a member, and never changes a lease: what it suggests is shown.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from dovetail.core import kernels
from dovetail.core.ids import ordered
from dovetail.core.state import Conduct, Lease, Sample, State
from dovetail.core.turn import Turn

SAMPLES_MAX = 100
WINDOW_MS = 300_000


class Health(IntEnum):
    """Thresholds are `kernels.health`'s."""

    HEALTHY = 0
    WARNING = 1
    SUSPICIOUS = 2
    FAILED = 3


class MemberInfo(Struct, frozen=True):
    """What can be said of a member; times in milliseconds."""

    name: str
    session: int
    address: str
    seen_ms_ago: int
    health: Health
    in_flight: int
    oldest_pending_ms: int
    outcomes: int
    processing_ms: int
    """The mean from delivery to outcome."""
    error_percent: int
    suggested_lease_ms: int
    """Two and a half times the mean; 0 while too little is known."""


def note(turn: Turn, lease: Lease, *, failed: bool) -> None:
    """A range of a lease has come to its end at the member that held it."""
    if lease.owner < 0:
        return
    key = (lease.owner, turn.subscriptions[lease.subscription].session)
    sample = Sample(turn.mono_ms, turn.mono_ms - lease.granted_ms, lease.deadline_ms - lease.granted_ms, failed)
    conduct = turn.conduct.get(key) or Conduct()
    if conduct.samples[-1:] != (sample,):
        turn.conduct[key] = after(conduct, sample)


def after(conduct: Conduct, sample: Sample) -> Conduct:
    """The conduct with one more outcome, without those that are too old or too many."""
    failures = conduct.failures + sample.failed
    took_ms = conduct.took_ms + sample.took_ms
    allowed_ms = conduct.allowed_ms + sample.allowed_ms
    known = (*conduct.samples, sample)
    stale = max(0, len(known) - SAMPLES_MAX)
    while known[stale].at_ms < sample.at_ms - WINDOW_MS:
        stale += 1
    for old in known[:stale]:
        failures -= old.failed
        took_ms -= old.took_ms
        allowed_ms -= old.allowed_ms
    return Conduct(known[stale:], failures, took_ms, allowed_ms)


def health(conduct: Conduct | None, mono_ms: int) -> Health:
    """A member's health as its latest outcomes show it."""
    if conduct is None or conduct.samples[-1].at_ms < mono_ms - WINDOW_MS:
        return Health.HEALTHY
    known = len(conduct.samples)
    return Health(kernels.health(known, conduct.failures, conduct.took_ms, conduct.allowed_ms))


def describe(state: State, group: int, mono_ms: int) -> tuple[MemberInfo, ...]:
    """All members of a group, in order of member id."""
    roster = state.live.rosters.get(group)
    found = [_describe(state, group, session, name, mono_ms) for session, name in ordered(roster or {})]
    return tuple(sorted(found, key=lambda info: info.name))


def _describe(state: State, group: int, session_id: int, name: str, mono_ms: int) -> MemberInfo:
    live = state.live
    session = live.sessions[session_id]
    mine = [live.subscriptions[number] for number in session.subscriptions]
    mine = [subscription for subscription in mine if subscription.owner == group]
    held = [live.leases[lease] for subscription in mine for lease, _ in ordered(subscription.leases)]
    conduct = live.conduct.get((group, session_id)) or Conduct()
    known = len(conduct.samples)
    mean_ms = conduct.took_ms // known if known else 0
    return MemberInfo(
        name=name,
        session=session_id,
        address=session.name,
        seen_ms_ago=mono_ms - session.seen_ms,
        health=health(conduct if known else None, mono_ms),
        in_flight=sum(subscription.in_flight for subscription in mine),
        oldest_pending_ms=max((mono_ms - lease.granted_ms for lease in held), default=0),
        outcomes=known,
        processing_ms=mean_ms,
        error_percent=100 * conduct.failures // known if known else 0,
        suggested_lease_ms=mean_ms * 5 // 2 if known >= kernels.SAMPLES_MIN else 0,
    )
