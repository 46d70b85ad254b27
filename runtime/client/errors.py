"""What can go wrong between a program and its broker, each with what to do about it.

Promises  everything the client raises for a reason outside the program is a `DovetailError`; a wrong argument
          is a `ValueError` or a `TypeError`, raised before anything is sent.
Never     hides a status: what the broker said is in the error, in the broker's own words.
"""

from typing import Final

from dovetail.core.codes import Status
from dovetail.core.wire import Error, Refusal

# Statuses 1 and 2 mean different things for different commands, so the reason says it, not a name.
_NAMES: Final = {
    Status.INVALID: "invalid",
    Status.UNAUTHORIZED: "unauthorized",
    Status.FENCED: "fenced",
    Status.READ_ONLY: "read-only",
    Status.EXISTS: "exists",
    Status.BUSY: "busy",
    Status.INTERNAL: "internal error",
    Status.TOO_LARGE: "too large",
}


class DovetailError(Exception):
    """Base of what the client raises."""


class Refused(DovetailError):
    """The broker understood and said no. `retry_after` is in seconds; 0 where waiting does not help."""

    def __init__(self, status: int, reason: str, retry_after: float = 0.0) -> None:
        named = f" ({_NAMES[Status(status)]})" if status in _NAMES else ""
        super().__init__(f"refused with status {status}{named}: {reason}")
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class Disconnected(DovetailError):
    """There is no connection, and none came within the time that was given."""


class TimedOut(DovetailError, TimeoutError):
    """The broker was there but did not answer in time. What was asked for may have happened all the same."""


class BrokerError(DovetailError):
    """The broker could not read a frame of ours: versions that do not fit, or a mistake in this client."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the broker answered with error {code}: {text}")
        self.code = code
        self.text = text


def refused(refusal: Refusal) -> Refused:
    """A refusal of the wire as an exception."""
    return Refused(refusal.status, refusal.reason, refusal.retry_after_ms / 1000)


def broker_error(error: Error) -> BrokerError:
    """An ERROR of the wire as an exception."""
    return BrokerError(error.code, error.text)
