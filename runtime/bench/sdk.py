"""The same loads through the client that people use: what a program sees, its own costs included.

Promises  the same counting as the raw load, so that figures can be put side by side; an acknowledgment counts when
          the client has taken it, which is when a program goes on.
Never     reaches into the client: only what its documentation offers.
"""

from __future__ import annotations

import asyncio
import time
from multiprocessing.connection import Connection

from dovetail.runtime.bench.loads import PAYLOAD_BYTES, Consumed, ConsumeJob, Published, PublishJob, Received, Sent
from dovetail.runtime.bench.raw import IDLE_S
from dovetail.runtime.client import Client, Producer, connect

_VALUE = bytes(PAYLOAD_BYTES)


def publish(job: PublishJob) -> Published:
    """Publish until the time is over, then wait for what is under way."""
    return asyncio.run(_publish(job))


class _Tally:
    def __init__(self, job: PublishJob) -> None:
        self.begun_ns = time.monotonic_ns()
        self.count_from_ns = self.begun_ns + int(job.warm_s * 1e9)
        self.stop_ns = self.count_from_ns + int(job.seconds * 1e9)
        self.messages = 0
        self.confirm_ns: list[int] = []
        self.sent: list[Sent] = []

    def confirmed(self, count: int, sent: Sent) -> None:
        now_ns = time.monotonic_ns()
        self.messages += count
        if self.count_from_ns <= now_ns < self.stop_ns:
            self.confirm_ns.append(now_ns - sent.at_ns)
            self.sent.append(sent)


async def _publish(job: PublishJob) -> Published:
    load = job.load
    clients = [connect(f"{job.place.host}:{job.place.port}") for _ in range(load.publishers)]
    for client in clients:
        await client.open()
    tally = _Tally(job)
    tasks = [_publish_on(client, job, number, tally) for number, client in enumerate(clients)]
    await asyncio.gather(*tasks)
    for client in clients:
        await client.close()
    counted = len(tally.confirm_ns) * load.batch
    return Published(tally.begun_ns, tally.messages, counted, job.seconds, tally.confirm_ns, tally.sent)


async def _publish_on(client: Client, job: PublishJob, number: int, tally: _Tally) -> None:
    load = job.load
    batch_bytes = load.batch * (PAYLOAD_BYTES + 64)
    async with client.producer(job.place.topic, linger_ms=0, batch_bytes=batch_bytes, max_in_flight=100) as producer:
        lanes = [_publish_in_turn(producer, job, number + place, tally) for place in range(load.outstanding)]
        await asyncio.gather(*lanes)


async def _publish_in_turn(producer: Producer, job: PublishJob, turn: int, tally: _Tally) -> None:
    """Publish a batch, wait for all of it, and again."""
    load = job.load
    while (at_ns := time.monotonic_ns()) < tally.stop_ns:
        partition = turn % load.partitions
        turn += 1
        receipts = [await producer.send(_VALUE, partition=partition) for _ in range(load.batch)]
        first = await receipts[0]
        await receipts[-1]
        tally.confirmed(load.batch, Sent(first.partition, first.offset, at_ns))


def consume(job: ConsumeJob, parent: Connection) -> Consumed:
    """Consume until the parent says so and nothing has come for a while; the parent hears when it may begin."""
    return asyncio.run(_consume(job, parent))


async def _consume(job: ConsumeJob, parent: Connection) -> Consumed:
    loop = asyncio.get_running_loop()
    finish = asyncio.Event()
    loop.add_reader(parent.fileno(), finish.set)
    received: list[Received] = []
    settled = 0
    last_settled_ns = time.monotonic_ns()
    async with (
        connect(f"{job.place.host}:{job.place.port}", name=job.member) as client,
        client.subscribe(job.place.topic, group=job.group, max_inflight=job.credit) as messages,
    ):
        await messages.ready()
        parent.send("ready")
        while True:
            taken = await messages.take(1 if job.single else job.credit, timeout=IDLE_S)
            if not taken and finish.is_set():
                break
            now_ns = time.monotonic_ns()
            received += [Received(each.partition, each.offset, each.offset, now_ns) for each in taken]
            for each in taken:
                await each.ack()
            if taken:
                settled += len(taken)
                last_settled_ns = time.monotonic_ns()
    loop.remove_reader(parent.fileno())
    parent.recv()
    return Consumed(settled, last_settled_ns, received)
