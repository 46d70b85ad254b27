"""The client for programs without an event loop: the same words, each of which waits.

Promises  one thread with one event loop per client, ended by `close`; every method may be called from any thread.
Never     does anything itself: each call is handed to the asyncio client and its result handed back.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, Final, TypeVar

from dovetail.core.batch import NewRecord, RecordHeaders
from dovetail.core.codes import NackReason, Outcome
from dovetail.runtime.client import client as asynchronous
from dovetail.runtime.client import message as messages
from dovetail.runtime.client import producer as producers
from dovetail.runtime.client import subscription as subscriptions
from dovetail.runtime.client.appending import Identity, append
from dovetail.runtime.client.client import URL, Topic
from dovetail.runtime.client.durations import Duration
from dovetail.runtime.client.errors import Disconnected
from dovetail.runtime.client.message import WaitFor
from dovetail.runtime.client.producer import Headers, Priority, Receipt, Value
from dovetail.runtime.client.reading import Fetched

T = TypeVar("T")

_TAKE: Final = 100  # messages fetched from the loop's thread at a time, at most
_AHEAD_SECONDS: Final = 0.1  # no more are fetched at a time than are handled within this


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop.is_closed():
            work.close()
            raise Disconnected("the client was closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in the waiting thread must not leave the work running.
            future.cancel()
            raise

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def connect(url: str = URL, **options: Any) -> Client:
    """A blocking client: `with connect("dovetail://127.0.0.1:7400") as dv:`. Options as for the asyncio `connect`."""
    return Client(url, options)


class Client:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._client = asynchronous.connect(url, **options)
        self._loop: _Loop | None = None

    def open(self) -> None:
        """Connect; raises `Disconnected`."""
        loop = _Loop(f"dovetail client {self._client.name}")
        try:
            loop.run(self._client.open())
        except BaseException:
            loop.end()
            raise
        self._loop = loop

    def close(self) -> None:
        """Send the settles that were made, disconnect and end the thread."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            loop.run(self._client.close())
            loop.end()

    def __enter__(self) -> Client:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(
        self,
        topic: str,
        value: Value,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: Duration = 0,
        ttl: Duration = 0,
        priority: Priority = "normal",
        partition: int | None = None,
    ) -> Receipt:
        """Publish one message and wait until the broker has stored it."""
        return self._open_loop().run(
            self._client.publish(
                topic,
                value,
                key=key,
                headers=headers,
                delay=delay,
                ttl=ttl,
                priority=priority,
                partition=partition,
            )
        )

    def producer(self, topic: str | None = None, **options: Any) -> Producer:
        """A batching producer; options as for the asyncio client's."""
        loop = self._open_loop()

        async def make() -> producers.Producer:
            return self._client.producer(topic, **options)

        return Producer(loop.run(make()), loop)

    def subscribe(
        self,
        pattern: str,
        *,
        group: str = "",
        auto_ack: bool = False,
        max_inflight: int = 100,
        strategy: str = "",
        member: str = "",
    ) -> Subscription:
        """The messages of all topics that match, from when this returns: `for message in dv.subscribe("orders.*")`."""
        loop = self._open_loop()

        async def begin() -> subscriptions.Subscription:
            subscription = self._client.subscribe(
                pattern, group=group, auto_ack=auto_ack, max_inflight=max_inflight, strategy=strategy, member=member
            )
            await subscription.ready()
            return subscription

        return Subscription(loop.run(begin()), loop)

    def topics(self, pattern: str = "#", *, timeout: Duration | None = None) -> list[Topic]:
        """The topics that match, sorted by name."""
        return self._open_loop().run(self._client.topics(pattern, timeout=timeout))

    def fetch(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int = 0,
        lane: Priority | None = None,
        bytes_max: int = 1024 * 1024,
        wait: Duration = 0,
        timeout: Duration | None = None,
    ) -> Future[Fetched]:
        """Read a partition from an offset on, without a group. The future has what came, so that the next read may be
        under way while this one's messages are looked at."""
        return self._open_loop().submit(
            self._client.fetch(
                topic,
                partition=partition,
                offset=offset,
                lane=lane,
                bytes_max=bytes_max,
                wait=wait,
                timeout=timeout,
            )
        )

    def append(
        self, topic: str, partition: int, records: Sequence[NewRecord], identity: Identity, lane: int = 0
    ) -> Future[int | None]:
        """Store one batch as it is, once, however often it is sent under this identity. The future has its offset."""
        return self._open_loop().submit(append(self._client, topic, partition, records, identity, lane))

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has. One that does not exist is created, as its first message would do."""
        return self._open_loop().run(self._client.partition_count(topic))

    def _open_loop(self) -> _Loop:
        if self._loop is None:
            raise ValueError("the client is not open: use `with connect(…) as dv:`")
        return self._loop


class Producer:
    def __init__(self, producer: producers.Producer, loop: _Loop) -> None:
        self._producer = producer
        self._loop = loop

    def send(self, value: Value, **options: Any) -> Future[Receipt]:
        """Take a message; waits only while the producer is full. The future has the receipt."""
        confirmed: Future[Receipt] = Future()

        def pass_on(done: asyncio.Future[Receipt]) -> None:
            if done.cancelled():
                confirmed.cancel()
            elif (error := done.exception()) is not None:
                confirmed.set_exception(error)
            else:
                confirmed.set_result(done.result())

        async def take() -> None:
            (await self._producer.send(value, **options)).add_done_callback(pass_on)

        self._loop.run(take())
        return confirmed

    def publish(self, value: Value, **options: Any) -> Receipt:
        """`send`, and wait for the receipt."""
        return self._loop.run(self._producer.publish(value, **options))

    def flush(self) -> None:
        """Wait until each message has its receipt or its error."""
        self._loop.run(self._producer.flush())

    def close(self) -> None:
        """Flush, then take no more."""
        self._loop.run(self._producer.close())

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Subscription:
    def __init__(self, subscription: subscriptions.Subscription, loop: _Loop) -> None:
        self._subscription = subscription
        self._loop = loop
        self._taken: deque[Message] = deque()
        self._fetched = 0
        self._fetched_at = 0.0

    def take(self, count_max: int = _TAKE, *, timeout: Duration | None = None) -> list[Message]:
        """Wait for a message, then take all that are here, up to `count_max`; none if `timeout` comes first."""
        found = self._loop.run(self._subscription.take(count_max, timeout=timeout))
        return [Message(each, self._loop) for each in found]

    def close(self) -> None:
        """Take no more."""
        self._loop.run(self._subscription.close())

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if not self._taken:
            count = worth_fetching(self._fetched, time.monotonic() - self._fetched_at)
            self._taken.extend(self.take(count))
            self._fetched, self._fetched_at = len(self._taken), time.monotonic()
        if not self._taken:
            raise StopIteration
        return self._taken.popleft()


def worth_fetching(handled: int, seconds: float) -> int:
    """How many messages to fetch at a time after `handled` of them took so long. Fetched messages count as taken: their
    leases run, so a slow program fetches one by one, while a quick one is spared the way between threads."""
    return max(1, min(_TAKE, int(handled * _AHEAD_SECONDS / max(seconds, 1e-6))))


class Message:
    """One message. `with message:` acknowledges it at the end, or asks for another try on an exception."""

    __slots__ = ("_loop", "_message")

    def __init__(self, message: messages.Message, loop: _Loop) -> None:
        self._message = message
        self._loop = loop

    @property
    def topic(self) -> str:
        return self._message.topic

    @property
    def partition(self) -> int:
        return self._message.partition

    @property
    def offset(self) -> int:
        return self._message.offset

    @property
    def id(self) -> str:
        return self._message.id

    @property
    def key(self) -> bytes | None:
        return self._message.key

    @property
    def value(self) -> bytes:
        return self._message.value

    @property
    def text(self) -> str:
        return self._message.text

    @property
    def headers(self) -> dict[str, str]:
        return self._message.headers

    @property
    def raw_headers(self) -> RecordHeaders:
        return self._message.raw_headers

    @property
    def timestamp_ms(self) -> int:
        return self._message.timestamp_ms

    @property
    def timestamp(self) -> datetime:
        return self._message.timestamp

    @property
    def attempt(self) -> int:
        return self._message.attempt

    @property
    def deadline(self) -> datetime | None:
        return self._message.deadline

    @property
    def settled(self) -> bool:
        return self._message.settled

    def ack(self, *, wait: WaitFor = "sent") -> None:
        """It is done with."""
        self._loop.run(self._message.ack(wait=wait))

    def nack(
        self,
        *,
        delay: Duration = 0,
        reason: str | NackReason = NackReason.PROCESSING_ERROR,
        error: str = "",
        wait: WaitFor = "sent",
    ) -> Outcome | None:
        """It failed: another try, please."""
        return self._loop.run(self._message.nack(delay=delay, reason=reason, error=error, wait=wait))

    def reject(
        self,
        *,
        reason: str | NackReason = NackReason.PROCESSING_ERROR,
        error: str = "",
        wait: WaitFor = "sent",
    ) -> Outcome | None:
        """No further try would help: to the dead letters at once."""
        return self._loop.run(self._message.reject(reason=reason, error=error, wait=wait))

    def extend(self, by: Duration) -> None:
        """Work goes on: the lease lasts for `by` from now on."""
        self._loop.run(self._message.extend(by))

    def __enter__(self) -> Message:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._message.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._message)
