"""The benchmark of the whole: which loads are run against what, and what came of it.

Promises  every load meets the broker and the bare server in turn, in the same rounds, so that noise of the machine
          meets both; ratios are of figures from one run.
Never     prints: `tables` does.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from dovetail.runtime.bench.disk_limit import Pages, Synced, pages, write_and_sync
from dovetail.runtime.bench.loads import (
    PAYLOAD_BYTES,
    ConsumeJob,
    Driver,
    Figures,
    Load,
    Place,
    PublishJob,
    deliver_times_ns,
    frame_of,
    middle,
    percentiles_ms,
)
from dovetail.runtime.bench.processes import BenchFailed, ServerProcess, Worker, broker_arguments, server, workers
from dovetail.runtime.bench.sampler import Profile, read_profile

CONSUMERS = 2
WARM_SHARE = 0.25

PUBLISH_LOADS = (
    Load("one message, confirm each"),
    Load("one message, 16 outstanding", outstanding=16),
    Load("one message, 16 outstanding", outstanding=16, partitions=12),
    Load("one message, 16 outstanding", outstanding=16, partitions=100),
    Load("joined by the broker, 16 outstanding", outstanding=16, joined=True),
    Load("batches of 100", batch=100),
    Load("batches of 100", batch=100, partitions=12),
    Load("batches of 100", batch=100, partitions=100),
    Load("batches of 100, 4 outstanding", batch=100, outstanding=4),
    Load("batches of 100, keys and uneven sizes", batch=100, uneven=True),
)


class Flow(Struct, frozen=True):
    """Publish → ack: what is published, and how two consumers of one group settle it."""

    load: Load
    credit: int
    single: bool


FLOWS = (
    Flow(Load("one publisher, confirm each, ack each", publishers=1), credit=1_000, single=True),
    Flow(Load("one message, 16 outstanding, ack each", outstanding=16), credit=1_000, single=True),
    Flow(Load("one message, 16 outstanding, ack ranges", outstanding=16), credit=1_000, single=False),
    Flow(Load("batches of 100, ack ranges", batch=100), credit=10_000, single=False),
    Flow(Load("batches of 100, ack each", batch=100), credit=10_000, single=True),
)

QUICK_LOADS = (PUBLISH_LOADS[1], PUBLISH_LOADS[4], Load("batches of 100", batch=100, partitions=12))
QUICK_FLOWS = (FLOWS[1], FLOWS[3])


class Plan(Struct, frozen=True):
    """What to run, for how long, and where the scratch data goes."""

    loads: tuple[Load, ...] = PUBLISH_LOADS
    flows: tuple[Flow, ...] = FLOWS
    seconds: float = 1.0
    rounds: int = 3
    driver: Driver = Driver.RAW
    directory: Path | None = None
    profile: bool = False


class PublishResult(Struct, frozen=True):
    """One load against the broker and against each limit."""

    load: Load
    broker: Figures
    bare: Figures
    appending: Figures
    sockets: Figures
    disk: Synced

    @property
    def disk_per_second(self) -> float:
        """Messages that the bare loop writes and syncs when each sync takes all that are under way."""
        return self.disk.per_second * self.load.messages_under_way


class FlowResult(Struct, frozen=True):
    flow: Flow
    figures: Figures


class Profiled(Struct, frozen=True):
    """Where the broker spent its time under one load."""

    name: str
    messages: int
    profile: Profile


class Results(Struct, frozen=True):
    """Everything one run has measured."""

    cores: int
    busy: float
    """The load average before anything was started: what else this machine had to do."""
    python: str
    directory: str
    driver: Driver
    pages: Pages
    syncs: tuple[Synced, ...]
    publish: tuple[PublishResult, ...]
    flows: tuple[FlowResult, ...]
    profiles: tuple[Profiled, ...] = ()


Say = Callable[[str], None]


def run(plan: Plan, say: Say) -> Results:
    """Measure everything in the plan; `say` hears what is being done."""
    busy = os.getloadavg()[0]
    with _scratch(plan.directory) as scratch, workers(1 + CONSUMERS) as crew:
        say("the disk alone")
        memory = pages(scratch)
        syncs = tuple(write_and_sync(scratch, size, plan.seconds / 2) for size in (PAYLOAD_BYTES, 100 << 10, 1 << 20))
        if plan.profile:
            profiles = tuple(_profiles(plan, scratch, crew, say))
            return _results(plan, busy, scratch, memory, syncs, (), (), profiles)
        publish = tuple(_publish_results(plan, scratch, crew[0], say))
        flows = tuple(_flow_results(plan, scratch, crew, say))
        return _results(plan, busy, scratch, memory, syncs, publish, flows, ())


def _results(
    plan: Plan,
    busy: float,
    scratch: Path,
    memory: Pages,
    syncs: tuple[Synced, ...],
    publish: tuple[PublishResult, ...],
    flows: tuple[FlowResult, ...],
    profiles: tuple[Profiled, ...],
) -> Results:
    python = ".".join(map(str, sys.version_info[:3]))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Results(cores, busy, python, str(scratch.parent), plan.driver, memory, syncs, publish, flows, profiles)


@contextmanager
def _scratch(parent: Path | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="dovetail-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _broker(scratch: Path, partitions: int) -> Iterator[ServerProcess]:
    """A broker on an empty directory, which is removed with it."""
    directory = Path(tempfile.mkdtemp(prefix="broker-", dir=scratch))
    try:
        with server(broker_arguments(directory / "data", partitions), directory) as running:
            yield running
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _publish_results(plan: Plan, scratch: Path, worker: Worker, say: Say) -> Iterator[PublishResult]:
    bare_arguments = ["-m", "dovetail.runtime.bench.bare", str(scratch)]
    with ExitStack() as stack:
        bare = stack.enter_context(server(bare_arguments, scratch / "bare"))
        appending = stack.enter_context(server([*bare_arguments, "--appended"], scratch / "appending"))
        sockets = stack.enter_context(server([*bare_arguments, "--unstored"], scratch / "sockets"))
        limits = (bare, appending, sockets)
        for load in plan.loads:
            say(f"publish: {load.name}, {_partitions(load)}")
            size = load.publishers * load.outstanding * len(frame_of(load, "bench", 0))
            disk = write_and_sync(scratch, size, plan.seconds / 2)
            with _broker(scratch, load.partitions) as broker:
                rounds = [_publish_round(plan, load, worker, (broker, *limits)) for _ in range(plan.rounds)]
            of_broker, of_bare, of_appending, of_sockets = (middle(figures) for figures in zip(*rounds, strict=True))
            yield PublishResult(load, of_broker, of_bare, of_appending, of_sockets, disk)


def _partitions(load: Load) -> str:
    return "1 partition" if load.partitions == 1 else f"{load.partitions} partitions"


def _publish_round(plan: Plan, load: Load, worker: Worker, servers: tuple[ServerProcess, ...]) -> list[Figures]:
    """The load against the broker, driven as the plan says, then against the limits, driven as lean as can be."""
    drivers = (plan.driver, *[Driver.RAW] * (len(servers) - 1))
    pairs = zip(servers, drivers, strict=True)
    return [_publish(plan, load, worker, running, driver) for running, driver in pairs]


def _publish(plan: Plan, load: Load, worker: Worker, running: ServerProcess, driver: Driver) -> Figures:
    before_us = running.processor_us()
    job = PublishJob(Place(running.port, "bench"), load, plan.seconds, plan.seconds * WARM_SHARE, driver)
    published = worker.publish(job)
    server_us = _per_message(before_us, running, published.messages)
    return Figures(published.counted / published.counted_s, server_us, percentiles_ms(published.confirm_ns))


def _per_message(before_us: float | None, running: ServerProcess, messages: int) -> float | None:
    after_us = running.processor_us()
    return (after_us - before_us) / messages if before_us is not None and after_us is not None else None


def _flow_results(plan: Plan, scratch: Path, crew: list[Worker], say: Say) -> Iterator[FlowResult]:
    for flow in plan.flows:
        say(f"publish → ack: {flow.load.name}, {_partitions(flow.load)}")
        with _broker(scratch, flow.load.partitions) as broker:
            rounds = [_flow(plan, flow, crew, broker, number)[0] for number in range(plan.rounds)]
        yield FlowResult(flow, middle(rounds))


def _flow(plan: Plan, flow: Flow, crew: list[Worker], broker: ServerProcess, number: int) -> tuple[Figures, int]:
    publisher, *consumers = crew
    place = Place(broker.port, f"flow.{number}")
    before_us = broker.processor_us()
    for place_in_group, consumer in enumerate(consumers):
        member = f"{number}-{place_in_group}"
        job = ConsumeJob(place, f"group-{number}", member, flow.credit, flow.single, plan.driver)
        consumer.begin_consuming(job)
    published = publisher.publish(PublishJob(place, flow.load, plan.seconds, 0, plan.driver))
    for consumer in consumers:
        consumer.finish_consuming()
    consumed = [consumer.consumed() for consumer in consumers]
    settled = sum(each.messages for each in consumed)
    if settled != published.messages:
        raise BenchFailed(f"{published.messages} messages were published, but {settled} were acknowledged")
    taken_s = (max(each.last_settled_ns for each in consumed) - published.begun_ns) / 1e9
    received = [found for each in consumed for found in each.received]
    figures = Figures(
        settled / taken_s,
        _per_message(before_us, broker, settled),
        percentiles_ms(published.confirm_ns),
        percentiles_ms(deliver_times_ns(published.sent, received)),
    )
    return figures, settled


def _profiles(plan: Plan, scratch: Path, crew: list[Worker], say: Say) -> Iterator[Profiled]:
    """Each load and flow again, against a broker whose stack is sampled."""
    works: tuple[Load | Flow, ...] = (*plan.loads, *plan.flows)
    for work in works:
        load = work if isinstance(work, Load) else work.load
        kind = "publish" if isinstance(work, Load) else "publish → ack"
        name = f"{kind}: {load.name}, {_partitions(load)}"
        say(f"profile of {name}")
        directory = Path(tempfile.mkdtemp(prefix="profiled-", dir=scratch))
        out = directory / "profile.json"
        _, *arguments = broker_arguments(directory / "data", load.partitions)
        sampled = ["-m", "dovetail.runtime.bench.sampler", str(out), *arguments]
        with server(sampled, directory) as broker:
            broker.signal(signal.SIGUSR1)
            if isinstance(work, Load):
                job = PublishJob(Place(broker.port, "bench"), work, plan.seconds, 0, plan.driver)
                messages = crew[0].publish(job).messages
            else:
                _, messages = _flow(plan, work, crew, broker, 0)
        yield Profiled(name, messages, read_profile(out))
        shutil.rmtree(directory, ignore_errors=True)
