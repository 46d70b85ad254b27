"""Refusals over HTTP: one shape for all, with what to do about it.

Promises  every status of the core has one HTTP status; what a client may repeat says when.
Never     shows an inside: what is not a refusal is "internal" and a request id.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct

from dovetail.core.codes import Status
from dovetail.core.effects import Refused


class Trouble(Exception):
    """A request that can't be met."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *suggestions: str,
        details: dict[str, Any] | None = None,
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.suggestions = suggestions
        self.details = details or {}
        self.retry_after_ms = retry_after_ms


class Error(Struct, frozen=True):
    """What went wrong, and what to do about it."""

    code: str
    message: str
    details: dict[str, Any]
    suggestions: tuple[str, ...]
    request_id: str
    timestamp: int


class ErrorBody(Struct, frozen=True):
    error: Error


def error_body(trouble: Trouble, request_id: str) -> bytes:
    """What a refusal says, as JSON. What a client sent may be quoted in it, and need not be text."""
    said = str(trouble).encode("utf-8", "backslashreplace").decode()
    now_ms = time.time_ns() // 1_000_000
    error = Error(trouble.code, said, trouble.details, trouble.suggestions, request_id, now_ms)
    return msgspec.json.encode(ErrorBody(error))


MEANINGS: dict[int, tuple[int, str]] = {
    Status.NOT_FOUND: (404, "not_found"),
    Status.GROUP_ERROR: (409, "conflict"),
    Status.INVALID: (422, "invalid"),
    Status.UNAUTHORIZED: (401, "unauthorized"),
    Status.FENCED: (409, "fenced"),
    Status.READ_ONLY: (503, "read_only"),
    Status.EXISTS: (409, "conflict"),
    Status.BUSY: (429, "busy"),
    Status.INTERNAL: (500, "internal"),
    Status.TOO_LARGE: (413, "too_large"),
}

QUOTA = {Status.QUOTA: (429, "quota_exceeded")}
"""Status 2 as publishers mean it."""


def refused(answer: Refused, meanings: dict[Status, tuple[int, str]] | None = None) -> Trouble:
    """The core's refusal as HTTP says it; `meanings` are those that this kind of request has of its own."""
    status, code = (meanings or {}).get(Status(answer.status)) or MEANINGS[answer.status]
    return Trouble(status, code, answer.reason, retry_after_ms=answer.retry_after_ms)
