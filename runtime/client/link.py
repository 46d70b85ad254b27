"""One TCP connection to the broker: bytes and time around an `Exchange` and a `Gatherer`.

Promises  settles of one tick leave as one SETTLE; a heartbeat goes out when nothing else did for as long as the broker
          asked; a broker that says nothing for its own session timeout is given up; when the connection ends,
          everyone who waits is told, once.
Never     connects again: that is the client's to decide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol
from weakref import WeakValueDictionary

from dovetail.core.codes import Status
from dovetail.core.frames import PAYLOAD_BYTES_MAX, ErrorCode
from dovetail.core.wire import (
    Assign,
    Deliver,
    Delivery,
    Error,
    Goodbye,
    Heartbeat,
    Hello,
    HelloAnswer,
    Refusal,
    Request,
    Revoke,
    SettleAnswer,
    SettleItem,
    SettleOutcome,
)
from dovetail.runtime.client.errors import Disconnected, DovetailError, Refused, TimedOut, broker_error, refused
from dovetail.runtime.client.exchange import Answered, Broken, Event, Exchange, Lost, Reply, Told
from dovetail.runtime.client.settling import Gathered, Gatherer

log = logging.getLogger("dovetail.client")

WRITE_BUFFER_BYTES: Final = 1024 * 1024
GOODBYE_SECONDS: Final = 5.0
_LOST_LEASE: Final = "the connection that delivered the message is gone, and the lease with it: it is delivered again"


class Owner(Protocol):
    """Whose connection it is."""

    def leaving(self, link: Link) -> None:
        """The broker stops: what was not handed out yet is better left to the next connection."""
        ...

    def writable(self, link: Link) -> None: ...

    def assigned(self, link: Link, given: Assign) -> None: ...

    def revoked(self, link: Link, asked: Revoke) -> None: ...

    def lost(self, link: Link, reason: str) -> None: ...


class Receiver(Protocol):
    """Who gets what is delivered to one subscription."""

    def deliver(self, link: Link, deliver: Deliver) -> None: ...


class Link(asyncio.Protocol):
    def __init__(self, owner: Owner, timeout: float) -> None:
        self.usable = False
        """Whether requests may be sent: after HELLO was answered, until either side says goodbye."""
        self.writable = True
        """Whether the socket takes more; large things wait for it."""
        self.frame_bytes_max = PAYLOAD_BYTES_MAX
        self.routes: WeakValueDictionary[str, Receiver] = WeakValueDictionary()
        """Where deliveries go, by the broker's subscription id; what nobody wants any longer is dropped."""
        self.in_hand = 0
        """Leased messages that were handed out and are not settled: a broker that stops is asked to wait for them."""
        self.refusals = 0
        """Settles that the broker refused and nobody waited for."""
        self._owner = owner
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._exchange = Exchange()
        self._gatherer: Gatherer[asyncio.Future[SettleOutcome]] = Gatherer()
        self._flush_due = False
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._reason = ""
        self._beat_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._spoke = False
        self._heard_at = self._loop.time()
        self._silence_max = 0.0
        self._reading_held = 0
        self._leaving = False

    async def hello(self, name: str, token: str) -> HelloAnswer:
        """Introduce ourselves; raises `Refused` or `Disconnected`."""
        answered: asyncio.Future[Reply] = self._loop.create_future()
        self.ask(Hello(name, token), partial(resolve, answered))
        reply = await answered
        match reply:
            case HelloAnswer() if self._ended.done() or self._leaving:
                raise Disconnected(self._reason)
            case HelloAnswer():
                self.usable = True
                self.frame_bytes_max = reply.frame_bytes_max
                self._exchange.expect(reply.frame_bytes_max)
                self._silence_max = reply.session_timeout_ms / 1000
                self._beat_after(reply.heartbeat_ms / 1000)
                return reply
            case Refusal():
                raise refused(reply)
            case Error(code=ErrorCode.UNAUTHORIZED):
                raise Refused(Status.UNAUTHORIZED, reply.text)
            case Error():
                raise broker_error(reply)
            case Lost(reason=reason):
                raise Disconnected(reason)
            case _:
                raise AssertionError(f"{reply} does not answer HELLO")

    def ask(self, request: Request, told: Told) -> None:
        """Send a request; `told` gets its answer, or `Lost`."""
        if self._transport is None or self._ended.done():
            told(Lost(self._reason))
            return
        self._write(self._exchange.ask(request, told))

    def say(self, request: Request) -> None:
        """Send what has no answer."""
        self._write(self._exchange.say(request))

    def ack(self, lease: int, offset: int) -> None:
        self._gatherer.ack(lease, offset)
        if not self._flush_due:
            self._flush_soon()

    def settle(self, item: SettleItem) -> None:
        self._gatherer.add(item)
        self._flush_soon()

    async def settled(self, item: SettleItem, wait: int) -> SettleOutcome:
        if self._ended.done():
            raise Disconnected(_LOST_LEASE)
        waiter: asyncio.Future[SettleOutcome] = self._loop.create_future()
        self._gatherer.add(item, wait, waiter)
        self._flush_soon()
        try:
            async with asyncio.timeout(self._timeout):
                return await waiter
        except TimeoutError:
            raise TimedOut(f"no answer to a settle within {self._timeout:g} s") from None

    def flush(self) -> None:
        """Send the settles that were gathered."""
        self._flush_due = False
        if self._ended.done():
            self._gatherer.take()
            return
        for gathered in self._gatherer.take():
            self.ask(gathered.settle, partial(self._settled, gathered))

    def hold_reading(self) -> None:
        """Somebody has as much as they can keep: leave the rest in the socket until `release_reading`."""
        self._reading_held += 1
        if self._reading_held == 1 and self._transport is not None:
            self._transport.pause_reading()

    def release_reading(self) -> None:
        self._reading_held -= 1
        if self._reading_held == 0 and self._transport is not None and not self._ended.done():
            self._heard_at = self._loop.time()
            self._transport.resume_reading()

    async def close(self, reason: str) -> None:
        """Settle what was gathered, say goodbye, and wait until the broker has closed, though not for long."""
        if self._transport is not None and not self._ended.done():
            self.flush()
            self.usable = False
            self.say(Goodbye(reason))
            self._close_within(GOODBYE_SECONDS)
        if self._transport is not None:
            await asyncio.shield(self._ended)

    def abort(self, reason: str) -> None:
        """End it now."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"a stream transport is needed, this is {type(transport).__name__}")
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        for event in self._exchange.feed(data):
            self._handle(event)
        if self._leaving and not (self.in_hand or self._exchange.waiting or self._gatherer):
            self._close()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._owner.writable(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        self._reason = self._reason or (str(error) if error else "the broker closed the connection")
        for timer in (self._beat_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        self._ended.set_result(None)
        for gathered in self._gatherer.take():
            self._settled(gathered, Lost(self._reason))
        for event in self._exchange.end(self._reason):
            self._handle(event)
        self._owner.lost(self, self._reason)

    def _handle(self, event: Event) -> None:
        match event:
            case Answered(told=told, reply=reply):
                told(reply)
            case Deliver():
                receiver = self.routes.get(event.subscription_id)
                if receiver is not None:
                    receiver.deliver(self, event)
            case Error(code=ErrorCode.NOT_STORED):
                log.error("a batch sent with acks='none' was not stored: %s", event.text)
            case Error(code=ErrorCode.OVERTAKEN | ErrorCode.LEVEL):
                log.warning("%s", event.text)
            case Error():
                # The connection ends with it, or a frame of ours was skipped; either way it says why.
                self._reason = f"error {event.code}: {event.text}"
                log.warning("the broker reports error %d: %s", event.code, event.text)
            case Goodbye():
                self._broker_stops(event.reason)
            case Broken(reason=reason):
                self.abort(f"the broker sent what can't be read: {reason}")
            case Assign():
                self._owner.assigned(self, event)
            case Revoke():
                self._owner.revoked(self, event)
            case Delivery():
                log.debug("ignored %s", type(event).__name__)

    def _broker_stops(self, reason: str) -> None:
        self._reason = f"the broker said goodbye: {reason}" if reason else "the broker said goodbye"
        self.flush()
        self.usable = False
        self._leaving = True
        self._owner.leaving(self)
        self._close_within(GOODBYE_SECONDS)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: Iterable[bytes]) -> None:
        if self._transport is not None:
            self._spoke = True
            self._transport.writelines(data)

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self.flush)

    def _settled(self, gathered: Gathered[asyncio.Future[SettleOutcome]], reply: Reply) -> None:
        if not isinstance(reply, SettleAnswer):
            error = _why_not_settled(reply)
            for waiter in (waiter for waiters in gathered.waiters for waiter in waiters):
                _reject(waiter, error)
            return
        for waiter, outcome in gathered.outcomes(reply.outcomes):
            if outcome.status != Status.OK:
                _reject(
                    waiter, Refused(outcome.status, "the lease has ended: the message was or will be delivered again")
                )
            elif not waiter.done():
                waiter.set_result(outcome)
        unheard = [
            item
            for item, waiters, outcome in zip(gathered.settle.items, gathered.waiters, reply.outcomes, strict=False)
            if outcome.status != Status.OK and not waiters
        ]
        if unheard:
            self.refusals += len(unheard)
            log.warning("%d settles were refused, their leases had ended; the first: %s", len(unheard), unheard[0])

    def _beat_after(self, seconds: float) -> None:
        if seconds > 0 and not self._ended.done():
            self._beat_timer = self._loop.call_later(seconds, self._beat, seconds)

    def _beat(self, seconds: float) -> None:
        silence = self._loop.time() - self._heard_at
        if self._silence_max and silence > self._silence_max and not self._reading_held:
            self.abort(f"the broker has said nothing for {silence:.1f} s")
            return
        # Who only sends what has no answer hears nothing either, unless it asks.
        if not self._spoke or silence >= seconds:
            self.ask(Heartbeat(), ignore)
        self._spoke = False
        self._beat_after(seconds)

    def _close_within(self, seconds: float) -> None:
        if self._close_timer is None:
            why = "the broker did not close the connection"
            self._close_timer = self._loop.call_later(seconds, self.abort, why)


def resolve(future: asyncio.Future[Reply], reply: Reply) -> None:
    """Hand a reply to whoever awaits it, unless they have given up."""
    if not future.done():
        future.set_result(reply)


def _reject(waiter: asyncio.Future[SettleOutcome], error: DovetailError) -> None:
    if not waiter.done():
        waiter.set_exception(error)


def ignore(reply: Reply) -> None:
    """An answer that says nothing worth knowing."""


def _why_not_settled(reply: Reply) -> DovetailError:
    match reply:
        case Refusal():
            return refused(reply)
        case Error():
            return broker_error(reply)
        case _:
            return Disconnected(_LOST_LEASE)
