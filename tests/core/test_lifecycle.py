"""A connection goes where the table of `core/lifecycle.py` says, cell by cell; a message's is tried in `test_settling`,
a group's in `test_rebalance`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.core import frames, wire
from dovetail.core.access import Access, Role
from dovetail.core.connection import Connection, Terms
from dovetail.core.effects import Done
from dovetail.core.frames import ErrorCode, FrameType
from dovetail.core.inputs import Heartbeat
from dovetail.core.lifecycle import CONNECTION, ConnectionEvent, ConnectionState

SPEC = Path(__file__).parents[2] / "spec" / "protocol.md"

TOKEN = "known"
ASKS_FOR_TOKENS = (ConnectionEvent.STRANGER, ConnectionEvent.DENIED)


def _admit(token: str) -> Access | None:
    return Access("a reader", Role.READ) if token == TOKEN else None


class Case:
    """A connection to a broker, with or without tokens, brought into a state."""

    def __init__(self, state: ConnectionState, *, with_tokens: bool) -> None:
        self.connection = Connection(1, "peer", Terms(admit=_admit if with_tokens else None), lambda batch: 1)
        self.owed: list[int] = []
        if state in (ConnectionState.OPEN, ConnectionState.LEAVING):
            self.hello(TOKEN)
        if state is ConnectionState.LEAVING:
            self.request()
            self.goodbye()
        assert self.connection.state is state

    def say(self, data: bytes) -> None:
        self.owed += [each.request for each in self.connection.receive(data) if isinstance(each, Heartbeat)]

    def hello(self, token: str) -> None:
        self.say(frames.encode(FrameType.HELLO, wire.Hello("a client", token).encode()))

    def request(self) -> None:
        self.say(frames.encode(FrameType.HEARTBEAT, b""))

    def publish(self) -> None:
        """What a reader may not."""
        self.say(frames.encode(FrameType.PUBLISH, wire.Publish("a", (), b"", 0, True).encode()))

    def mistake(self) -> None:
        self.say(frames.encode(FrameType.RESPONSE, b""))

    def goodbye(self) -> None:
        self.say(frames.encode(FrameType.GOODBYE, wire.Goodbye("enough").encode()))

    def broken(self) -> None:
        self.say(b"GET / HTTP/1.1\r\n")

    def answer(self) -> None:
        for number in self.owed:
            self.connection.answer(number, Done())


def _owing(act: Callable[[Case], None]) -> Callable[[Case], None]:
    """The same while an answer is owed."""

    def do(case: Case) -> None:
        if case.connection.state is ConnectionState.OPEN:
            case.request()
        act(case)

    return do


ACTS: dict[ConnectionEvent, Callable[[Case], None]] = {
    ConnectionEvent.GREETED: lambda case: case.hello(TOKEN),
    ConnectionEvent.STRANGER: lambda case: case.hello("unknown"),
    ConnectionEvent.REQUEST: Case.request,
    ConnectionEvent.DENIED: Case.publish,
    ConnectionEvent.MISTAKE: Case.mistake,
    ConnectionEvent.ANSWERED: _owing(Case.answer),
    ConnectionEvent.DONE: Case.goodbye,
    ConnectionEvent.PARTING: _owing(Case.goodbye),
    ConnectionEvent.BROKEN: Case.broken,
    ConnectionEvent.BREAKING: _owing(Case.broken),
    ConnectionEvent.ENDED: lambda case: case.connection.end(ErrorCode.LIMIT, "too many connections"),
}


@pytest.mark.parametrize(("before", "event", "after"), CONNECTION)
def test_a_connection_goes_where_the_table_says(
    before: ConnectionState, event: ConnectionEvent, after: ConnectionState
) -> None:
    case = Case(before, with_tokens=event in ASKS_FOR_TOKENS)
    ACTS[event](case)
    assert case.connection.state is after


def test_a_good_token_opens_a_connection() -> None:
    case = Case(ConnectionState.NEW, with_tokens=True)
    case.hello(TOKEN)
    assert case.connection.state is ConnectionState.OPEN


@pytest.mark.parametrize("event", ConnectionEvent)
def test_what_is_closed_stays_closed(event: ConnectionEvent) -> None:
    case = Case(ConnectionState.NEW, with_tokens=False)
    case.broken()
    ACTS[event](case)
    assert case.connection.state is ConnectionState.CLOSED


def test_the_specification_shows_this_table() -> None:
    shown = SPEC.read_text().split("<!-- transitions -->")[1].split("<!-- /transitions -->")[0]
    assert shown.strip().splitlines()[2:] == [
        f"| {before} | {event} | {after} |" for before, event, after in CONNECTION
    ]
