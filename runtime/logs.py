"""What the broker logs: one event a line, always with `timestamp`, `level`, `component` and `event`.

Where an event belongs to something that can be followed, `correlation_id` says to what: a request's id over HTTP, a
message's id (`topic:partition:offset`) from its arrival to its settle, `lsn:N` for the journal.

Promises  a level can be changed while the broker runs; operations that took longer than `SLOW_S` are logged.
Never     logs a token or a payload; costs nothing for what is not logged; fails because a line can't be written.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from typing import Any, TextIO

import structlog

from dovetail.core import names
from dovetail.core.effects import AnyEffect, Deliver
from dovetail.core.ids import Now
from dovetail.core.inputs import AnyInput
from dovetail.core.records import AnyRecord, AttemptFailed, BatchAppended, DeadLettered, Expired, Settled
from dovetail.core.state import Durable, State
from dovetail.runtime.terminal import plain

SLOW_S = 0.1
"""Operations that take longer are worth a line."""
LEVELS = ("debug", "info", "warning", "error")
_NUMBERS = logging.getLevelNamesMapping()
_least = [logging.INFO]
_Event = MutableMapping[str, Any]


def set_level(name: str) -> None:
    """Log events of this level and above from now on."""
    _least[0] = _NUMBERS[name.upper()]


def set_up(form: str, level: str, out: TextIO | None = None) -> None:
    """Log to `out` (standard error): `text`, `json`, or `auto`: text on a terminal, else JSON."""
    stream = out or sys.stderr
    set_level(level)
    as_text = form == "text" or (form == "auto" and stream.isatty())
    text, lines = _text(structlog.dev.ConsoleRenderer(colors=stream.isatty())), structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _only_from_level,
            _add_component,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            text if as_text else lines,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=lambda *name: _Printer(out, *name),
        cache_logger_on_first_use=out is None,
    )


def _text(render: structlog.dev.ConsoleRenderer) -> structlog.typing.Processor:
    """`render`, for what others wrote too: a request's path or a consumer's error makes no line of its own."""

    def run(logger: Any, method: str, event: _Event) -> str:
        shown = {key: _shown(key, each) for key, each in event.items()}
        return render(logger, method, shown)

    return run


def _shown(key: str, value: object) -> object:
    return plain(value, keep="\n" if key == "exception" else "") if isinstance(value, str) else value


class _Printer:
    """Prints for one part of the broker; without a place of its own, to what is standard error at that moment."""

    def __init__(self, out: TextIO | None, component: str = "dovetail") -> None:
        self.component = component
        self._out = out

    def msg(self, message: str) -> None:
        """One line; lost where nobody reads it any more, or its disk is full: whoever logs has more important work."""
        with suppress(OSError, ValueError):
            print(message, file=self._out or sys.stderr, flush=True)

    debug = info = warning = warn = error = critical = fatal = exception = failure = err = log = msg


def _only_from_level(logger: object, method: str, event: _Event) -> _Event:
    if _NUMBERS.get(event["level"].upper(), logging.INFO) < _least[0]:
        raise structlog.DropEvent
    return event


def _add_component(logger: object, method: str, event: _Event) -> _Event:
    event["component"] = getattr(logger, "component", "dovetail")
    return event


class MessageLog:
    """Logs what becomes of each message, at level debug: its id is the `correlation_id` of every line.

    `observe` listens to the steps of a node whose `state` it may look at.
    """

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._log = structlog.get_logger("messages")

    def observe(
        self,
        now: Now,
        arrived: tuple[AnyInput, ...],
        records: tuple[AnyRecord, ...],
        effects: tuple[AnyEffect, ...],
    ) -> None:
        """Log one step, if anybody wants to know."""
        if _least[0] > logging.DEBUG:
            return
        durable = self._state().durable
        for record in records:
            for event, log, offset, more in _told(durable, record):
                self._log.debug(event, correlation_id=_id(durable, log, offset), **more)
        for effect in effects:
            if isinstance(effect, Deliver):
                for first, last in effect.ranges:
                    for offset in range(first, last + 1):
                        message_id = _id(durable, effect.log, offset)
                        self._log.debug(
                            "delivered", correlation_id=message_id, session=effect.session, attempt=effect.attempt
                        )


def _told(durable: Durable, record: AnyRecord) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """What a record says of messages: event, log, offset, and more."""
    match record:
        case BatchAppended():
            for offset in range(record.base, record.base + record.count):
                yield "arrived", record.log, offset, {}
        case Settled():
            for offset in range(record.first, record.last + 1):
                yield "settled", record.log, offset, {"group": _group(durable, record.group)}
        case AttemptFailed():
            more = {"group": _group(durable, record.group), "attempt": record.attempt, "member": record.member}
            for offset in range(record.first, record.last + 1):
                yield "failed", record.log, offset, {**more, "error": record.error}
        case Expired():
            for offset in range(record.first, record.last + 1):
                yield "expired", record.log, offset, {"group": _group(durable, record.group)}
        case DeadLettered():
            more = {"group": _group(durable, record.group), "entry": _id(durable, record.dead_log, record.dead_offset)}
            yield "dead letter", record.log, record.offset, more
        case _:
            pass


def _group(durable: Durable, number: int) -> str:
    group = durable.groups.get(number)
    return group.name if group is not None else str(number)


def _id(durable: Durable, log: int, offset: int) -> str:
    found = durable.logs.get(log)
    if found is None:
        return f"log {log}:{offset}"
    topic = durable.topics[found.topic]
    return names.message_id(topic.name, found.partition, found.lane if topic.lanes else -1, offset)
