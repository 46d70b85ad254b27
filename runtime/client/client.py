"""The client: one connection to a broker, kept up, and everything a program does through it.

Promises  a lost connection is made again, after waits that grow and are spread; subscriptions are taken up anew and
          what was not confirmed is sent again (so a message is published and delivered *at least once*); every
          call ends: with its answer, `Refused`, `TimedOut`, or `Disconnected` where no connection came in time.
Never     leaves a task, a timer or a socket behind once it is closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import ssl
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final, Literal, TypeVar
from weakref import WeakSet

from msgspec import Struct

from dovetail.core import names
from dovetail.core.codes import Status, Whence
from dovetail.core.wire import (
    TEXT_BYTES_MAX,
    Answer,
    Assign,
    Commit,
    Error,
    Fetch,
    FetchAnswer,
    LeaveGroup,
    Metadata,
    MetadataAnswer,
    PlainAnswer,
    Refusal,
    Request,
    Revoke,
    Seek,
    SeekAnswer,
    Subscribe,
    SubscribeAnswer,
    TopicMetadata,
    Unsubscribe,
)
from dovetail.runtime.client import address
from dovetail.runtime.client.backoff import Backoff
from dovetail.runtime.client.durations import Duration, milliseconds, seconds
from dovetail.runtime.client.errors import (
    BrokerError,
    Disconnected,
    DovetailError,
    Refused,
    TimedOut,
    broker_error,
    refused,
)
from dovetail.runtime.client.exchange import Lost, Reply
from dovetail.runtime.client.link import Link, ignore, resolve
from dovetail.runtime.client.membership import Membership, Told
from dovetail.runtime.client.partitioning import PartitionerName
from dovetail.runtime.client.producer import (
    AcksName,
    CompressionName,
    Headers,
    Priority,
    Producer,
    Receipt,
    Value,
    lane_number,
)
from dovetail.runtime.client.reading import Fetched, fetched
from dovetail.runtime.client.subscription import Subscription

log = logging.getLogger("dovetail.client")

URL: Final = f"{address.SCHEME}://127.0.0.1:{address.PORT}"
_STEADY_SECONDS: Final = 10.0  # a connection that held for this long has earned a quick retry
_COUNT_SECONDS: Final = 300.0  # how long a topic's number of partitions is taken for granted
_COUNTS_MAX: Final = 10_000
_INFLIGHT_MAX: Final = 0xFFFF

A = TypeVar("A", bound=Answer)


class Partition(Struct, frozen=True):
    """One log of a topic: offsets from `start`, inclusive, to `end`, exclusive."""

    partition: int
    start: int
    end: int
    lane: int = 0
    """From 1, critical, to 5, background; 0 where the topic has no lanes."""


class Topic(Struct, frozen=True):
    name: str
    partitions: tuple[Partition, ...]

    @property
    def messages(self) -> int:
        """How many offsets it keeps."""
        return sum(each.end - each.start for each in self.partitions)


def made_up_name() -> str:
    """The name of a client that was given none."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def connect(
    url: str = URL,
    *,
    name: str | None = None,
    token: str = "",
    ca: str = "",
    timeout: Duration = "30s",
    connect_timeout: Duration = "10s",
    reconnect_timeout: Duration | None = None,
    backoff: Backoff | None = None,
) -> Client:
    """A client for the broker at `url`: `async with connect("dovetail://127.0.0.1:7400") as dv:`.

    url                dovetail://host:port, host:port or host; default 127.0.0.1:7400; dovetails://host:port for TLS
    name               who we are, in the broker's lists and as a member of groups; unique, or the broker takes the
                       newcomer for the old one come back; default: host, process and a random part
    token              shown to the broker; default none
    ca                 with dovetails://, a file (PEM) of the authorities that are trusted; default: this machine's
    timeout            for each call, and for each message from `send` to its receipt; default 30s
    connect_timeout    until the first connection stands, however often it takes to try; default 10s
    reconnect_timeout  how long a lost connection is tried for before everything fails with `Disconnected`; default
                       None: for ever, while each call has its own timeout; 0: not at all
    backoff            the waits between tries; default 50ms, doubling up to 5s, half of each random
    """
    place = address.parse(url)
    for what, text in (("name", name or ""), ("token", token)):
        if (size := len(text.encode())) > TEXT_BYTES_MAX:
            raise ValueError(f"the {what} has {size} bytes, the most is {TEXT_BYTES_MAX}")
    return Client(
        place,
        name=name or made_up_name(),
        token=token,
        tls=_trust(place, ca),
        timeout=seconds(timeout),
        connect_timeout=seconds(connect_timeout),
        reconnect_timeout=None if reconnect_timeout is None else seconds(reconnect_timeout),
        backoff=backoff or Backoff(),
    )


def _trust(place: address.Address, ca: str) -> ssl.SSLContext | None:
    """What a broker's certificate must satisfy; None where the connection is plain."""
    if not place.tls:
        if ca:
            raise ValueError(f"ca is for brokers that speak TLS: write {address.SECURE}://{place.host}:{place.port}")
        return None
    try:
        return ssl.create_default_context(cafile=ca or None)
    except ssl.SSLError:
        reason = "it holds no certificate"
    except OSError as error:
        reason = error.strerror or str(error)
    raise ValueError(f"ca: {ca} can't be used ({reason}): name a file of certificates, PEM")


class Client:
    """Made by `connect`; open inside `async with`, or between `open` and `close`."""

    def __init__(
        self,
        place: address.Address,
        *,
        name: str,
        token: str,
        tls: ssl.SSLContext | None,
        timeout: float,
        connect_timeout: float,
        reconnect_timeout: float | None,
        backoff: Backoff,
    ) -> None:
        self.name = name
        self._address = place
        self._token = token
        self._tls = tls
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._reconnect_timeout = reconnect_timeout
        self._backoff = backoff
        self._link: Link | None = None
        self._connected = asyncio.Event()  # also set when it never will be, so that everyone looks
        self._failure: DovetailError | None = None
        self._last_problem = "it was not tried so far"
        self._keeper: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._memberships: dict[str, Membership] = {}
        self._producers: set[Producer] = set()
        self._direct: Producer | None = None
        self._counts: dict[str, tuple[int, float]] = {}
        self._counting: dict[str, asyncio.Task[int]] = {}

    @property
    def connected(self) -> bool:
        return self.link is not None

    @property
    def link(self) -> Link | None:
        """The connection, while there is one that takes requests."""
        link = self._link
        return link if link is not None and link.usable else None

    async def open(self) -> None:
        """Connect; raises `Disconnected` if that takes longer than `connect_timeout`."""
        if self._keeper is not None:
            raise ValueError("the client is open, or was: make a new one with connect()")
        self._keeper = asyncio.create_task(self._keep_connected(), name=f"dovetail client {self.name}")
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._usable_link()
        except TimeoutError:
            await self.close()
            raise Disconnected(
                f"no broker at {self._address} within {self._connect_timeout:g} s ({self._last_problem}): "
                "is it running there? `dovetail serve` starts one"
            ) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Send the settles that were made, say goodbye and disconnect. Producers are for their own `async with` to
        finish; what they still hold fails with `Disconnected`."""
        closed = Disconnected("the client was closed")
        self._failure = self._failure or closed
        for subscription in list(self._subscriptions):
            subscription.stop()
        self._subscriptions.clear()
        for membership in self._memberships.values():
            membership.stop()
        for producer in list(self._producers):
            producer.stop(closed)
        self._producers.clear()
        self._connected.set()
        ended = [each for each in (self._keeper, *self._counting.values()) if each is not None]
        for each in ended:
            each.cancel()
        if ended:
            await asyncio.wait(ended)
        if self._link is not None:
            await self._link.close("the client was closed")

    async def __aenter__(self) -> Client:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def publish(
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
        """Publish one message and wait until the broker has stored it. What many tasks publish at the same moment
        leaves in one batch. Should the connection be lost before the answer, it is sent again: at least once.

        key        messages of one key go to one partition, in order; default none
        headers    names and values; default none
        delay      deliver it that much later; default 0: at once
        ttl        forget it if it was not delivered by then; default 0: never
        priority   its lane in a topic that has lanes: critical, high, normal (the default), low or background
        partition  default None: by the key's murmur3 hash, without a key as the broker likes
        """
        return await self._direct_producer().publish(
            value,
            topic=topic,
            key=key,
            headers=headers,
            delay=delay,
            ttl=ttl,
            priority=priority,
            partition=partition,
        )

    def producer(
        self,
        topic: str | None = None,
        *,
        linger_ms: float = 5,
        batch_bytes: int = 128 * 1024,
        acks: AcksName = "stored",
        retries: int = 10,
        compression: CompressionName = "none",
        partitioner: PartitionerName = "key",
        max_pending: int = 10_000,
        max_pending_bytes: int = 64 * 1024 * 1024,
        max_in_flight: int = 8,
        timeout: Duration | None = None,
        idempotent: bool = False,
    ) -> Producer:
        """A producer that gathers messages into batches: `async with dv.producer("orders") as orders:`.

        topic              where messages go that name none; default none
        linger_ms          how long a message may wait for company; default 5
        batch_bytes        a batch that has as many leaves at once; default 128 KiB
        acks               what a receipt means: "none" (sent), "stored" (synced, the default), "all" (all replicas)
        retries            how often a batch is sent again that the broker was too busy for; default 10
        compression        "none" (default), "gzip", "lz4" or "zstd"
        partitioner        "key" (murmur3, default), "kafka-key" (murmur2), "round-robin" or "sticky"
        max_pending        messages not confirmed beyond which `send` waits; default 10,000
        max_pending_bytes  the same in bytes; default 64 MiB
        max_in_flight      batches on their way at a time; default 8. A batch that is refused as BUSY may be overtaken
                           by those on their way behind it: with 1 a partition's order holds even then
        timeout            from `send` to the receipt; default the client's
        idempotent         a batch that is sent again, because its receipt did not come, is recognised by the broker and
                           stored once; then one batch is on its way at a time, and messages without a key take the
                           partitions in turn, batch by batch; default False
        """
        self._check_open()
        producer = Producer(
            self,
            topic,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            acks=acks,
            retries=retries,
            compression=compression,
            partitioner_name=partitioner,
            max_pending=max_pending,
            max_pending_bytes=max_pending_bytes,
            max_in_flight=max_in_flight,
            timeout=self._timeout if timeout is None else timeout,
            idempotent=idempotent,
        )
        self._producers.add(producer)
        return producer

    def subscribe(
        self,
        pattern: str,
        *,
        group: str = "",
        auto_ack: bool = False,
        max_inflight: int = 100,
        strategy: str = "",
        member: str = "",
        on_assign: Told | None = None,
        on_revoke: Told | None = None,
    ) -> Subscription:
        """The messages of all topics that match: `async for message in dv.subscribe("orders.*", group="billing")`.

        The request leaves at once, so what this client publishes next arrives; for what others publish
        `async with` the subscription, or await its `ready()`. A lost connection is made again and the subscription
        with it: a group goes on where it was; without a group, what is published in between is missed. It ends with
        `async with`, with `close`, or when nothing refers to it any longer.

        pattern       a topic, or a pattern: `*` is one level, `#` at the end any number
        group         share the messages with the other members, each to one; default "": a copy of every message
                      from now on
        auto_ack      a message is settled when it is sent, and lost if this program fails; default False: settle each
        max_inflight  unsettled messages that the broker sends ahead, 1 to 65,535; default 100. While you go on taking
                      messages, the leases of those that wait here are extended for you
        strategy      how the group shares: "round-robin", "least-loaded" or "key-ordered" by message; "range",
                      "partitioned-round-robin", "sticky" or "cooperative-sticky" by partition; default "": the group's
                      own. Its first member decides, whoever asks for another is refused
        member        our name in the group, under which a new connection takes its place again; default: this client's
                      name if a strategy is named, else one that lasts as long as the connection
        on_assign     called with all partitions, each a topic and a number, that we have from now on
        on_revoke     called with the partitions that are wanted back; messages of them that are in hand are waited
                      for, up to 20 s, others return to the group
        """
        self._check_open()
        if not 1 <= max_inflight <= _INFLIGHT_MAX:
            raise ValueError(f"max_inflight is 1 to {_INFLIGHT_MAX}, this is {max_inflight}")
        request = Subscribe(names.pattern(pattern), group, max_inflight, auto_ack)
        membership = self._membership(group, member, strategy, on_assign, on_revoke)
        subscription = Subscription(self, request, self._timeout, membership)
        self._subscriptions.add(subscription)
        if (link := self.link) is not None:
            subscription.attach(link)
        return subscription

    def _membership(
        self, group: str, member: str, strategy: str, on_assign: Told | None, on_revoke: Told | None
    ) -> Membership | None:
        """Our place in a group, one for all subscriptions to it."""
        if not group:
            if member or strategy or on_assign or on_revoke:
                raise ValueError("member, strategy, on_assign and on_revoke are a group's: name the group")
            return None
        member = member or (self.name if strategy else "")
        known = self._memberships.get(group)
        if known is None or not self._of_group(group):
            known = self._memberships[group] = Membership(group, member, strategy, on_assign, on_revoke)
            if (link := self.link) is not None:
                known.attach(link, partial(self._fail_group, group))
        elif member not in ("", known.member) or strategy not in ("", known.strategy) or on_assign or on_revoke:
            raise ValueError(f"this client is in group {group!r} already: the first subscription has named all of it")
        return known

    def _fail_group(self, group: str, error: DovetailError) -> None:
        for subscription in self._of_group(group):
            subscription.fail(error)

    def _of_group(self, group: str) -> list[Subscription]:
        return [subscription for subscription in self._subscriptions if subscription.group == group]

    async def topics(self, pattern: str = "#", *, timeout: Duration | None = None) -> list[Topic]:
        """The topics that match, sorted by name, with their partitions; default all."""
        answer = await self.call(Metadata(names.pattern(pattern)), MetadataAnswer, timeout=timeout)
        return sorted((_topic(each) for each in answer.topics), key=lambda topic: topic.name)

    async def fetch(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int = 0,
        lane: Priority | None = None,
        bytes_max: int = 1024 * 1024,
        wait: Duration = 0,
        timeout: Duration | None = None,
    ) -> Fetched:
        """Read a partition from an offset on, without a group: nothing is leased, nothing is settled.

        offset     where to begin; default 0, which is the oldest kept
        lane       which lane of a topic that has lanes; default its first, critical
        bytes_max  about how much at a time; default 1 MiB; at least one batch comes if there is one
        wait       if there is nothing yet, wait that long for it; default 0: not at all
        timeout    for the answer beyond `wait`; default the client's
        """
        wait_ms = milliseconds(wait)
        limit = (self._timeout if timeout is None else seconds(timeout)) + wait_ms / 1000
        name = names.topic_name(topic)
        request = Fetch(name, partition, offset, bytes_max, wait_ms, lane_number(lane))
        return fetched(request, await self.call(request, FetchAnswer, timeout=limit))

    async def seek(
        self,
        group: str,
        topic: str,
        *,
        to: int | datetime | Literal["earliest", "latest"],
        partition: int = 0,
        lane: Priority | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Have a group go on elsewhere in a partition: at an offset, at the first message that arrived at a time or
        later, at the earliest, or behind the latest. Where the topic has lanes, all of them move unless one is named,
        which an offset needs. Gives the offset, of several lanes that of the last."""
        whence, value = _whence(to)
        request = Seek(group, names.topic_name(topic), partition, whence, value, lane_number(lane))
        return (await self.call(request, SeekAnswer, timeout=timeout)).offset

    async def commit(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        lane: Priority | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Settle everything of a partition below `offset` for a group; `lane` says which where the topic has lanes."""
        request = Commit(group, names.topic_name(topic), partition, offset, lane_number(lane))
        await self.call(request, PlainAnswer, timeout=timeout)

    async def partition_count(self, topic: str) -> int:
        """How many partitions a topic has. One that does not exist is created, as its first message would do."""
        now = asyncio.get_running_loop().time()
        known = self._counts.get(topic)
        if known is not None and now < known[1]:
            return known[0]
        task = self._counting.get(topic)
        if task is None:
            task = self._counting[topic] = asyncio.create_task(self._count(topic))
        return await asyncio.shield(task)

    async def call(self, request: Request, answer: type[A], *, timeout: Duration | None = None) -> A:
        """Send a request that may be sent twice, until it has its answer; the timeout is the client's by default."""
        limit = self._timeout if timeout is None else seconds(timeout)
        last: DovetailError | None = None
        try:
            async with asyncio.timeout(limit):
                while True:
                    reply = await self._ask(request)
                    match reply:
                        case Lost():
                            last = None
                        case Refusal() if reply.retry_after_ms:
                            last = refused(reply)
                            await asyncio.sleep(last.retry_after * (1 + random.random() / 5))
                        case Refusal():
                            raise refused(reply)
                        case Error():
                            raise broker_error(reply)
                        case _ if isinstance(reply, answer):
                            return reply
                        case _:
                            raise AssertionError(f"{reply} does not answer {type(request).__name__}")
        except TimeoutError:
            raise last or self._out_of_time(request, limit) from None

    def forget_partition_count(self, topic: str) -> None:
        """Ask for it anew when it is needed next: part of what a `Producer` asks of its home."""
        self._counts.pop(topic, None)

    def leaving(self, link: Link) -> None:
        """The broker stops: part of what a `Link` asks of its owner."""
        for subscription in list(self._subscriptions):
            subscription.detach()

    def writable(self, link: Link) -> None:
        """The connection takes more: part of what a `Link` asks of its owner."""
        self._pump()

    def lost(self, link: Link, reason: str) -> None:
        """The connection ended: part of what a `Link` asks of its owner."""
        if link is not self._link:
            return
        self._last_problem = reason
        self._link = None
        if self._failure is None:
            self._connected.clear()
        for subscription in list(self._subscriptions):
            subscription.detach()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    def subscription_closed(self, subscription: Subscription) -> None:
        """Part of what a `Subscription` asks of its home."""
        self._subscriptions.discard(subscription)
        if subscription.group and not self._of_group(subscription.group):
            membership = self._memberships.pop(subscription.group)
            if membership.member and (link := self.link) is not None:
                link.flush()
                link.ask(LeaveGroup(membership.group, membership.member), ignore)

    def assigned(self, link: Link, given: Assign) -> None:
        """Part of what a `Link` asks of its owner."""
        if (membership := self._memberships.get(given.group)) is not None:
            membership.assign(given)

    def revoked(self, link: Link, asked: Revoke) -> None:
        """Part of what a `Link` asks of its owner."""
        places = frozenset((each.topic, each.partition) for each in asked.partitions)
        for subscription in self._of_group(asked.group):
            subscription.give_up(places)
        if (membership := self._memberships.get(asked.group)) is not None:
            membership.revoke(link, asked)

    def producer_closed(self, producer: Producer) -> None:
        """Part of what a `Producer` asks of its home."""
        self._producers.discard(producer)

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        attempt = 0
        lost_at: float | None = None
        while True:
            try:
                await self._dial()
            except (Refused, BrokerError) as error:
                # Another try would hear the same: a wrong token, or a protocol that does not fit.
                self._fail(error)
                return
            except ssl.SSLCertVerificationError as error:
                # Nor does a certificate become another one while we wait.
                self._fail(Disconnected(f"{self._address} is not trusted: {error.verify_message}; `ca` names who is"))
                return
            except TimeoutError:
                """What it waited for is noted already."""
            except Disconnected as error:
                # So it ends too where a broker waits for a TLS handshake that does not come.
                self._last_problem = str(error) if self._tls else f"{error}; is it {address.SECURE}:// there, with TLS?"
            except OSError as error:
                self._last_problem = str(error)
            except ValueError as error:
                # A host's name that no look-up takes.
                self._fail(Disconnected(f"{self._address} is no address: {error}"))
                return
            else:
                since = loop.time()
                await self._until_lost()
                lost_at = loop.time()
                attempt = 0 if lost_at - since > _STEADY_SECONDS else attempt
                log.info("connection to %s lost: %s", self._address, self._last_problem)
            if lost_at is not None and self._gave_up(loop.time() - lost_at):
                self._fail(Disconnected(f"the connection to {self._address} is lost: {self._last_problem}"))
                return
            await asyncio.sleep(self._backoff.wait(attempt, random.random()))
            attempt += 1

    def _gave_up(self, seconds_without: float) -> bool:
        return self._reconnect_timeout is not None and seconds_without >= self._reconnect_timeout

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        link = Link(self, self._timeout)
        try:
            async with asyncio.timeout(self._connect_timeout):
                self._last_problem = "it does not take the connection"
                await loop.create_connection(lambda: link, self._address.host, self._address.port, ssl=self._tls)
                self._last_problem = "it takes the connection but does not answer"
                await link.hello(self.name, self._token)
        except BaseException:
            link.abort("connecting did not succeed")
            raise
        self._lost = loop.create_future()
        self._link = link
        self._connected.set()
        for group, membership in self._memberships.items():
            membership.attach(link, partial(self._fail_group, group))
        for subscription in list(self._subscriptions):
            subscription.attach(link)
        self._pump()

    async def _until_lost(self) -> None:
        if self._lost is not None:
            await self._lost

    def _fail(self, error: DovetailError) -> None:
        self._failure = self._failure or error
        self._connected.set()
        for subscription in list(self._subscriptions):
            subscription.fail(error)
        for producer in list(self._producers):
            producer.stop(error)

    async def _usable_link(self) -> Link:
        while True:
            if (link := self.link) is not None:
                return link
            if self._failure is not None:
                raise self._failure
            if self._link is not None:
                # The broker said goodbye on it: the next one is the one to wait for.
                self._connected.clear()
            await self._connected.wait()

    async def _ask(self, request: Request) -> Reply:
        link = await self._usable_link()
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        link.ask(request, partial(resolve, answered))
        return await answered

    def _out_of_time(self, request: Request, limit: float) -> DovetailError:
        what = type(request).__name__
        if self.link is None:
            return Disconnected(f"{what}: no connection to {self._address} within {limit:g} s ({self._last_problem})")
        return TimedOut(f"{what}: no answer from {self._address} within {limit:g} s")

    async def _count(self, topic: str) -> int:
        try:
            found = await self.topics(topic)
            if not found:
                # A subscription to a plain name creates the topic, so that already the first message of a key goes
                # to the partition of all its later ones.
                made = await self.call(Subscribe(topic, "", 1, True), SubscribeAnswer)
                await self.call(Unsubscribe(made.subscription_id), PlainAnswer)
                found = await self.topics(topic)
            if not found:
                raise Refused(Status.NOT_FOUND, f"topic {topic!r} does not exist and was not created")
            count = len({each.partition for each in found[0].partitions})
            if len(self._counts) >= _COUNTS_MAX:
                self._counts.clear()
            self._counts[topic] = (count, asyncio.get_running_loop().time() + _COUNT_SECONDS)
            return count
        finally:
            del self._counting[topic]

    def _direct_producer(self) -> Producer:
        if self._direct is None:
            self._direct = self.producer(linger_ms=0)
        return self._direct

    def _pump(self) -> None:
        for producer in list(self._producers):
            producer.pump()

    def _check_open(self) -> None:
        if self._keeper is None:
            raise ValueError("the client is not open: use `async with connect(…) as dv:`")
        if self._failure is not None:
            raise self._failure


def _whence(to: int | datetime | Literal["earliest", "latest"]) -> tuple[Whence, int]:
    match to:
        case "earliest":
            return Whence.EARLIEST, 0
        case "latest":
            return Whence.LATEST, 0
        case datetime():
            return Whence.TIME, int(to.timestamp() * 1000)
        case int():
            return Whence.OFFSET, to
    raise ValueError(f"to={to!r}: seek to an offset, a datetime, 'earliest' or 'latest'")


def _topic(found: TopicMetadata) -> Topic:
    # METADATA counts lanes from 0, as names of messages do; all else of the protocol from 1.
    first = 1 if any(log.lane for log in found.logs) else 0
    return Topic(
        found.topic, tuple([Partition(log.partition, log.start, log.end, log.lane + first) for log in found.logs])
    )
