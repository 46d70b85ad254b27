"""Ten members at work, and one of them is gone: what the others get, when, and that nobody holds what another has.

The books are kept from what was sent alone: deliveries, ends of leases, revokes.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dovetail.core import effects as out
from dovetail.core.ids import ordered
from dovetail.core.state import Settings
from tests.core.crew import Crew

NAMES = [f"m{number}" for number in range(10)]
GONE = "m4"
PARTITIONS = 20
SESSION_TIMEOUT_MS = Settings().session_timeout_ms


class Books:
    """Who holds what, and when each message was delivered first."""

    def __init__(self, team: Crew) -> None:
        self.team = team
        self.leases: dict[int, tuple[int, int, int, int]] = {}
        """Lease to session, log, first, last."""
        self.first_ms: dict[tuple[int, int], int] = {}
        self.silent = 0

    def read(self, effects: Iterable[out.AnyEffect]) -> None:
        """Note what was sent; whoever is there acknowledges at once, and gives up what it is asked to."""
        for each in effects:
            match each:
                case out.LeaseEnded():
                    self.leases.pop(each.lease, None)
                case out.Deliver():
                    self._delivered(each)
                case out.Revoke() if each.session != self.silent:
                    self.team.join(self.team.name_of(each.session))
                case _:
                    pass

    def _delivered(self, sent: out.Deliver) -> None:
        ((first, last),) = sent.ranges
        for session, log, left, right in self.leases.values():
            overlaps = log == sent.log and left <= last and first <= right
            assert not overlaps, f"{log}:{first}-{last} went to {sent.session} while {session} holds {left}-{right}"
        self.leases[sent.lease] = (sent.session, sent.log, first, last)
        for offset in range(first, last + 1):
            self.first_ms.setdefault((sent.log, offset), self.team.mono_ms)

    def settle_all(self) -> None:
        """Everybody who is there acknowledges what it has."""
        while mine := [(lease, held[0]) for lease, held in self.leases.items() if held[0] != self.silent]:
            for lease, session in mine:
                del self.leases[lease]
                before = len(self.team.effects)
                self.team.ack(lease, self.team.name_of(session))
                self.read(self.team.effects[before:])


def at_work(strategy: str) -> tuple[Crew, Books]:
    team = Crew()
    team.topic(partitions=PARTITIONS)
    for name in NAMES:
        team.enter(name, strategy, credit=1_000)
    team.pass_time(500)
    return team, Books(team)


def work(team: Crew, books: Books, for_ms: int, every_ms: int) -> dict[tuple[int, int], int]:
    """A message for every partition now and then; gives when each was published."""
    published: dict[tuple[int, int], int] = {}
    for _ in range(for_ms // every_ms):
        for partition in range(PARTITIONS):
            log = team.log(partition)
            published[log, team.state.durable.logs[log].end] = team.mono_ms
            books.read(team.publish(partition))
        books.settle_all()
        books.read(team.pass_time(every_ms))
        books.settle_all()
    return published


def unsettled(team: Crew) -> int:
    return sum(team.state.durable.logs[log].end - each.floor for (_, log), each in ordered(team.state.durable.cursors))


@pytest.mark.parametrize("strategy", ["round-robin", "least-loaded", "range", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("how", ["leaves", "its socket closes", "falls silent"])
def test_the_group_delivers_again_in_time_and_what_stays_is_never_paused(strategy: str, how: str) -> None:
    team, books = at_work(strategy)
    before = team.holders()
    work(team, books, for_ms=400, every_ms=200)
    assert unsettled(team) == 0
    gone = team.sessions[GONE]
    for partition in range(PARTITIONS):
        books.read(team.publish(partition))
    held_by_it = [held for held in books.leases.values() if held[0] == gone]
    assert held_by_it
    if how == "leaves":
        seen = len(team.effects)
        team.leave(GONE)
        books.read(team.effects[seen:])
    elif how == "its socket closes":
        books.leases = {lease: held for lease, held in books.leases.items() if held[0] != gone}
        seen = len(team.effects)
        team.vanish(GONE)
        books.read(team.effects[seen:])
    else:
        books.silent = gone
        del team.sessions[GONE]
    limit_ms = 1_000 + (SESSION_TIMEOUT_MS if how == "falls silent" else 0)
    published = work(team, books, for_ms=limit_ms, every_ms=limit_ms // 5)
    assert GONE not in team.holders().values()
    assert unsettled(team) == 0, "an offset is lost, or not delivered in time"
    after = team.holders()
    stayed = {team.log(partition) for partition, name in before.items() if after[partition] == name}
    for (log, offset), at_ms in published.items():
        if log in stayed:
            assert books.first_ms[log, offset] == at_ms, f"log {log} did not move and paused all the same"
