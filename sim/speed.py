"""How fast the simulator is: deliveries per second with faults and checkers on, beside a bare SimPy loop.

Promises  counts processor time of this process; the bare loop runs as many events as the run did.
Never     asserts a time.
"""

from __future__ import annotations

import time

import simpy
from msgspec import Struct

from dovetail.sim.run import CHECK_EVERY
from dovetail.sim.swarm import swarm
from dovetail.sim.trace import Trace
from dovetail.sim.world import World


class Speed(Struct, frozen=True):
    """What a run cost."""

    delivered: int
    events: int
    seconds: float
    simulated_s: float
    bare_seconds: float

    @property
    def deliveries_per_s(self) -> int:
        return round(self.delivered / self.seconds)

    @property
    def times_real_time(self) -> float:
        """How much faster than life."""
        return self.simulated_s / self.seconds

    @property
    def times_bare(self) -> float:
        """How much longer than the same number of empty events."""
        return self.seconds / self.bare_seconds


def measure(seed: int = 3, scale: int = 8) -> Speed:
    """Run one seed of the swarm with larger batches, and a bare loop of the same number of events."""
    world = World(swarm(seed, scale=scale), Trace(), CHECK_EVERY)
    events = 0
    step = world.env.step

    def counted() -> None:
        nonlocal events
        events += 1
        step()

    world.env.step = counted  # type: ignore[method-assign]  # counts what the loop does
    began = time.process_time()
    world.run()
    seconds = time.process_time() - began
    return Speed(world.books.deliveries.delivered, events, seconds, world.now_us / 1e6, _bare(events))


def _bare(events: int) -> float:
    env = simpy.Environment()

    def tick() -> simpy.events.ProcessGenerator:
        while True:
            yield env.timeout(1)

    env.process(tick())
    began = time.process_time()
    env.run(until=events)
    return max(1e-9, time.process_time() - began)
