"""A message in a consumer's hands, and the delivery it came with.

Promises  a message is settled once: the second `ack`, `nack` or `reject` is an error of the program and says so;
          what is settled after its connection was lost is not sent, because the lease ended with the connection.
Never     copies a value: it is a slice of what the broker stored.
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Literal, NoReturn, Protocol, TypeAlias

from dovetail.core.batch import Record, RecordHeaders
from dovetail.core.codes import NackReason, Outcome, SettleAction, Wait
from dovetail.core.wire import Deliver, SettleItem, SettleOutcome
from dovetail.runtime.client.durations import Duration, milliseconds

WaitFor: TypeAlias = Literal["sent", "applied", "durable"]
"""What a settle waits for: nothing (it leaves with the tick's others), the broker's answer, the broker's disk."""

_REASONS: Final[dict[str, NackReason]] = {
    "unspecified": NackReason.UNSPECIFIED,
    "processing-error": NackReason.PROCESSING_ERROR,
    "poison": NackReason.POISON,
    "timeout": NackReason.TIMEOUT,
}
_ERROR_CHARS_MAX: Final = 1000
_DELAY_MS_MAX: Final = 0xFFFFFFFF


class Settler(Protocol):
    """Where settles go: the connection that a delivery came by."""

    in_hand: int  # messages that were handed out and are not settled

    def ack(self, lease: int, offset: int) -> None:
        """Acknowledge with the next tick; nobody waits."""
        ...

    def settle(self, item: SettleItem) -> None:
        """Settle with the next tick; nobody waits."""
        ...

    async def settled(self, item: SettleItem, wait: int) -> SettleOutcome:
        """Settle, and wait for the outcome; raises `Refused`, `Disconnected` or `TimedOut`."""
        ...


class NoLease:
    """The settler of messages that were read, not delivered: there is nothing to settle."""

    in_hand = 0

    def ack(self, lease: int, offset: int) -> NoReturn:
        self.settle(SettleItem(lease, SettleAction.ACK, offset, offset))

    def settle(self, item: SettleItem) -> NoReturn:
        raise ValueError(f"offset {item.first} was read without a lease: there is nothing to settle")

    async def settled(self, item: SettleItem, wait: int) -> NoReturn:
        self.settle(item)


class Delivery:
    """What the messages of one DELIVER have in common."""

    __slots__ = ("attempt", "deadline_ms", "lane", "lease", "partition", "settler", "topic")

    def __init__(self, deliver: Deliver, settler: Settler) -> None:
        self.topic = deliver.topic
        self.partition = deliver.partition
        self.lane = deliver.lane
        self.lease = deliver.lease
        self.attempt = deliver.attempt
        self.deadline_ms = deliver.deadline_ms
        self.settler = settler


class Message:
    """One message. `async with message:` acknowledges it at the end, or asks for another try on an exception."""

    __slots__ = ("_delivery", "_record", "_source", "settled", "value")

    def __init__(self, record: Record, delivery: Delivery, source: object = None) -> None:
        self._record = record
        self._delivery = delivery
        # A subscription that nobody refers to is ended, but not while a message of it is in somebody's hands.
        self._source = source
        delivery.settler.in_hand += delivery.lease != 0
        self.value: bytes = record.value or b""
        """The content; a record without any has empty bytes."""
        self.settled: bool = delivery.lease == 0
        """Whether it was acknowledged, given back or rejected; what came without a lease is settled from the start."""

    @property
    def topic(self) -> str:
        return self._delivery.topic

    @property
    def partition(self) -> int:
        return self._delivery.partition

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def id(self) -> str:
        """`topic:partition:offset`, or `topic:partition.lane:offset` where the topic has lanes."""
        lane = f".{self._delivery.lane - 1}" if self._delivery.lane else ""
        return f"{self._delivery.topic}:{self._delivery.partition}{lane}:{self._record.offset}"

    @property
    def key(self) -> bytes | None:
        return self._record.key

    @property
    def text(self) -> str:
        """The value as UTF-8 text."""
        return self.value.decode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers as text; of a name that stands there twice the last, of bytes that are no text an escape."""
        return {name: (value or b"").decode(errors="backslashreplace") for name, value in self._record.headers}

    @property
    def raw_headers(self) -> RecordHeaders:
        """The headers as they were sent, in their order."""
        return self._record.headers

    @property
    def timestamp_ms(self) -> int:
        """When its producer says it was made, in milliseconds since 1970 UTC."""
        return self._record.timestamp_ms

    @property
    def timestamp(self) -> datetime:
        """When its producer says it was made."""
        return datetime.fromtimestamp(self._record.timestamp_ms / 1000, UTC)

    @property
    def attempt(self) -> int:
        """1 at the first try."""
        return self._delivery.attempt

    @property
    def deadline(self) -> datetime | None:
        """When the lease ends by the broker's clock, unless it is extended; None where nothing is to be acknowledged.

        It is what the delivery said: `extend` does not change it.
        """
        ms = self._delivery.deadline_ms
        return datetime.fromtimestamp(ms / 1000, UTC) if ms else None

    async def ack(self, *, wait: WaitFor = "sent") -> None:
        """It is done with. By default this returns at once and the acknowledgment leaves with all others of the
        tick, which is what makes consuming fast; should it get lost, the message is delivered again. With `wait`
        "applied" or "durable" it returns when the broker has said so, or raises `Refused` where the lease was lost.
        A message that came without a lease, read or sent with auto_ack, has nothing to settle: this does nothing.
        """
        lease = self._delivery.lease
        if lease == 0:
            return
        if wait == "sent" and not self.settled:
            self.settled = True
            settler = self._delivery.settler
            settler.in_hand -= 1
            settler.ack(lease, self._record.offset)
            return
        await self._settle(self._item(SettleAction.ACK), wait)

    async def nack(
        self,
        *,
        delay: Duration = 0,
        reason: str | NackReason = NackReason.PROCESSING_ERROR,
        error: str = "",
        wait: WaitFor = "sent",
    ) -> Outcome | None:
        """It failed: another try, please. The first is immediate, later ones after a growing wait, or each after
        `delay`; when the tries are used up it goes to the dead letters with `reason` and `error`. The reason is
        "processing-error", "poison", "timeout" or a text of your own. With `wait` the answer says what became of it.
        """
        return await self._settle(self._item(SettleAction.NACK, reason, error, delay), wait)

    async def reject(
        self,
        *,
        reason: str | NackReason = NackReason.PROCESSING_ERROR,
        error: str = "",
        wait: WaitFor = "sent",
    ) -> Outcome | None:
        """No further try would help: to the dead letters at once, with `reason` and `error` as for `nack`."""
        return await self._settle(self._item(SettleAction.REJECT, reason, error), wait)

    async def extend(self, by: Duration) -> None:
        """Work goes on: the lease, which a message shares with its neighbours of one delivery, lasts for `by` from now
        on, or as long as it would if that is more. Waits for the broker's word, since it matters whether the message
        is still yours; raises `Refused` where it is not."""
        if self.settled:
            raise ValueError(f"message {self.id} was settled already: there is no lease to extend")
        await self._delivery.settler.settled(self._item(SettleAction.EXTEND, delay=by), Wait.APPLIED)

    async def __aenter__(self) -> Message:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.settled:
            return
        if error is None:
            await self.ack()
        elif isinstance(error, Exception):
            # Anything else ends the program or the task: then the lease returns with the connection, uncounted.
            await self.nack(error=describe(error))

    def __repr__(self) -> str:
        return f"<Message {self.id}, {len(self.value)} bytes, attempt {self.attempt}>"

    def _item(
        self,
        action: int,
        reason: str | NackReason = NackReason.UNSPECIFIED,
        error: str = "",
        delay: Duration = 0,
    ) -> SettleItem:
        delay_ms = milliseconds(delay)
        if delay_ms > _DELAY_MS_MAX:
            raise ValueError(f"a delay of {delay!r} is over the longest, which is 49 days")
        code, text = _code_and_text(reason, error)
        offset = self._record.offset
        return SettleItem(self._delivery.lease, action, offset, offset, code, delay_ms, text)

    async def _settle(self, item: SettleItem, wait: WaitFor) -> Outcome | None:
        if self.settled:
            how = "came without a lease" if self._delivery.lease == 0 else "was settled already"
            raise ValueError(f"message {self.id} {how}: settle each message that was leased to you, once")
        if wait not in _WAITS:
            raise ValueError(f"wait={wait!r} is not known: use one of {', '.join(_WAITS)}")
        self.settled = True
        self._delivery.settler.in_hand -= 1
        if wait == "sent":
            self._delivery.settler.settle(item)
            return None
        outcome = await self._delivery.settler.settled(item, _WAITS[wait])
        return Outcome(outcome.action)


_WAITS: Final[dict[WaitFor, int]] = {
    "sent": Wait.APPLIED,
    "applied": Wait.APPLIED,
    "durable": Wait.DURABLE,
}


def describe(error: Exception) -> str:
    """An exception in one line, for the history of a dead letter."""
    return f"{type(error).__name__}: {error}"


def _code_and_text(reason: str | NackReason, error: str) -> tuple[int, str]:
    """A reason of the caller's own words has no code of its own: it stands in front of the error."""
    if isinstance(reason, NackReason):
        return reason, error[:_ERROR_CHARS_MAX]
    if reason in _REASONS:
        return _REASONS[reason], error[:_ERROR_CHARS_MAX]
    text = f"{reason}: {error}" if error else reason
    return NackReason.PROCESSING_ERROR, text[:_ERROR_CHARS_MAX]
