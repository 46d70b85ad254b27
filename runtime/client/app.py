"""Consumers as decorated functions: `@app.subscriber("orders.*", group="billing")`.

Promises  each message is settled as its subscriber's policy says, whatever the function does; one that fails never
          stops the others; on `stop` what is being worked on is finished first.
Never     decides how often a message is tried: that is the broker's, by the topic's settings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from dovetail.runtime.client.client import URL, Client, connect
from dovetail.runtime.client.message import Message, describe
from dovetail.runtime.client.subscription import Subscription

log = logging.getLogger("dovetail.client")

AckPolicy: TypeAlias = Literal["on-success", "first", "manual"]
"""on-success: acknowledged when the function returns, another try when it raises (at least once);
first: acknowledged before the function is called (at most once); manual: the function settles."""

Handler: TypeAlias = Callable[[Message], Awaitable[None]]
H = TypeVar("H", bound=Handler)

_POLICIES: Final = ("on-success", "first", "manual")


class _Subscriber(Struct, frozen=True):
    handler: Handler
    pattern: str
    group: str
    ack: AckPolicy
    workers: int
    max_inflight: int
    strategy: str


class App:
    """Subscribers that share one connection: `await app.run()`, or `async with app:` to have them work beside the
    block. `options` are those of `connect`."""

    def __init__(self, url: str = URL, **options: Any) -> None:
        self._url = url
        self._options = options
        self._subscribers: list[_Subscriber] = []
        self._client: Client | None = None
        self._stopping = asyncio.Event()
        self._running = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        """The client, while the app runs: to publish with."""
        if self._client is None:
            raise ValueError("the app does not run: its client is there between run() and stop()")
        return self._client

    def subscriber(
        self,
        pattern: str,
        *,
        group: str = "",
        ack: AckPolicy = "on-success",
        workers: int = 1,
        max_inflight: int = 100,
        strategy: str = "",
    ) -> Callable[[H], H]:
        """Have the function get every message that matches.

        group         share messages with the other members; default "": a copy of every message
        ack           "on-success" (default), "first" or "manual"
        workers       how many messages at a time; default 1: one after the other, in order
        max_inflight  messages that the broker sends ahead; default 100
        strategy      how the group shares, as for `Client.subscribe`; default "": the group's own
        """
        if ack not in _POLICIES:
            raise ValueError(f"ack={ack!r} is not known: use one of {', '.join(_POLICIES)}")
        if workers < 1:
            raise ValueError(f"workers is 1 or more, this is {workers}")

        def register(handler: H) -> H:
            self._subscribers.append(_Subscriber(handler, pattern, group, ack, workers, max_inflight, strategy))
            return handler

        return register

    async def run(self) -> None:
        """Connect and work until `stop`, or until the broker refuses a subscription, which is raised."""
        if not self._subscribers:
            raise ValueError("the app has no subscribers: decorate a function with @app.subscriber(…)")
        self._stopping.clear()
        async with connect(self._url, **self._options) as self._client:
            try:
                await self._work(self._client)
            except ExceptionGroup as several:
                raise several.exceptions[0] from None
            finally:
                self._client = None
                self._running.clear()

    async def __aenter__(self) -> App:
        """Run beside the block: every subscriber has its subscription when it begins, and is done when it ends."""
        self._task = asyncio.create_task(self.run())
        begun = asyncio.create_task(self.running())
        await asyncio.wait((self._task, begun), return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            begun.cancel()
            await self._task
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._task is not None:
            await self._task

    async def running(self) -> None:
        """Wait until every subscriber has its subscription."""
        await self._running.wait()

    def stop(self) -> None:
        """Have `run` return once the messages being worked on are done."""
        self._stopping.set()

    async def _work(self, client: Client) -> None:
        subscriptions: list[Subscription] = []
        async with asyncio.TaskGroup() as group:
            for each in self._subscribers:
                # With "first" the acknowledgment still is the client's, so that the broker's credit bounds memory.
                subscription = client.subscribe(
                    each.pattern, group=each.group, max_inflight=each.max_inflight, strategy=each.strategy
                )
                subscriptions.append(subscription)
                for _ in range(each.workers):
                    group.create_task(_consume(each, subscription))
            for subscription in subscriptions:
                await subscription.ready()
            self._running.set()
            await self._stopping.wait()
            for subscription in subscriptions:
                subscription.stop()


async def _consume(subscriber: _Subscriber, subscription: Subscription) -> None:
    async for message in subscription:
        if subscriber.ack == "first":
            await message.ack()
        try:
            await subscriber.handler(message)
        except Exception as error:
            log.exception("%s failed on %s", getattr(subscriber.handler, "__name__", "a subscriber"), message.id)
            if not message.settled and subscriber.ack == "on-success":
                await message.nack(error=describe(error))
        else:
            if not message.settled and subscriber.ack == "on-success":
                await message.ack()
