"""The lives of a message and of a connection, each as one table; a group's stands in `rebalance`.

Promises  these are the tables that `spec/` shows as text and as pictures, and every cell of them is tried against the
          running core by a test.
Never     decides: where a message is follows from leases, retries and floors, where a connection is from what it owes.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class MessageState(StrEnum):
    """Where a message is, for one group or session."""

    PENDING = "pending"
    LEASED = "leased"
    RETRYING = "retrying"
    DYING = "dying"
    SETTLED = "settled"


_PENDING, _LEASED, _RETRYING, _DYING, _SETTLED = MessageState

MESSAGE: Final = MappingProxyType(
    {
        "ack": (_PENDING, _SETTLED, _RETRYING, _DYING, _SETTLED),
        "nack": (_PENDING, _RETRYING, _RETRYING, _DYING, _SETTLED),
        "last_nack": (_PENDING, _DYING, _RETRYING, _DYING, _SETTLED),
        "reject": (_PENDING, _DYING, _RETRYING, _DYING, _SETTLED),
        "extend": (_PENDING, _LEASED, _RETRYING, _DYING, _SETTLED),
        "deadline": (_PENDING, _RETRYING, _RETRYING, _DYING, _SETTLED),
        "leaver": (_PENDING, _RETRYING, _RETRYING, _DYING, _SETTLED),
        "credit": (_LEASED, _LEASED, _LEASED, _DYING, _SETTLED),
        "commit": (_SETTLED, _SETTLED, _SETTLED, _SETTLED, _SETTLED),
        "seek_back": (_PENDING, _PENDING, _PENDING, _PENDING, _PENDING),
        "expiry": (_SETTLED, _LEASED, _SETTLED, _DYING, _SETTLED),
        "copy": (_PENDING, _LEASED, _RETRYING, _SETTLED, _SETTLED),
        "crash": (_PENDING, _PENDING, _PENDING, _PENDING, _SETTLED),
    }
)
"""Event to the next state, for each state in order; what an event can't change in a state stays as it is."""


class ConnectionState(StrEnum):
    """Where a connection is."""

    NEW = "new"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


class ConnectionEvent(StrEnum):
    GREETED = "HELLO, its token is good where one is asked for"
    STRANGER = "HELLO with a token that is not known"
    REQUEST = "a request, the peer may make it"
    DENIED = "a request without the token for it"
    MISTAKE = "a frame that makes no sense"
    ANSWERED = "the last answer it is owed"
    DONE = "GOODBYE, nothing is owed"
    PARTING = "GOODBYE, answers are owed"
    BROKEN = "bytes that can't be trusted, nothing is owed"
    BREAKING = "bytes that can't be trusted, answers are owed"
    ENDED = "the broker ends it"


_NEW, _OPEN, _LEAVING, _CLOSED = ConnectionState

CONNECTION: Final = (
    (_NEW, ConnectionEvent.GREETED, _OPEN),
    (_NEW, ConnectionEvent.REQUEST, _OPEN),
    (_NEW, ConnectionEvent.STRANGER, _CLOSED),
    (_NEW, ConnectionEvent.DENIED, _NEW),
    (_NEW, ConnectionEvent.MISTAKE, _NEW),
    (_NEW, ConnectionEvent.DONE, _CLOSED),
    (_NEW, ConnectionEvent.BROKEN, _CLOSED),
    (_NEW, ConnectionEvent.ENDED, _CLOSED),
    (_OPEN, ConnectionEvent.REQUEST, _OPEN),
    (_OPEN, ConnectionEvent.DENIED, _OPEN),
    (_OPEN, ConnectionEvent.MISTAKE, _OPEN),
    (_OPEN, ConnectionEvent.ANSWERED, _OPEN),
    (_OPEN, ConnectionEvent.DONE, _CLOSED),
    (_OPEN, ConnectionEvent.PARTING, _LEAVING),
    (_OPEN, ConnectionEvent.BROKEN, _CLOSED),
    (_OPEN, ConnectionEvent.BREAKING, _LEAVING),
    (_OPEN, ConnectionEvent.ENDED, _CLOSED),
    (_LEAVING, ConnectionEvent.REQUEST, _LEAVING),
    (_LEAVING, ConnectionEvent.MISTAKE, _LEAVING),
    (_LEAVING, ConnectionEvent.BREAKING, _LEAVING),
    (_LEAVING, ConnectionEvent.ANSWERED, _CLOSED),
    (_LEAVING, ConnectionEvent.ENDED, _CLOSED),
)
"""A connection's life; cells that are not here can't happen. Who leaves is not read any more, but still answered."""
