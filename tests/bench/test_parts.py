"""The micro-benchmarks do what they say they time."""

from dovetail.core.cursor import Cursor
from dovetail.runtime.bench import micro, tables


def test_a_cycle_of_the_core_publishes_delivers_and_settles_a_batch() -> None:
    cycle = micro.Cycle(100)
    cycle()
    cycle()
    (cursor,) = cycle.state.durable.cursors.values()
    assert cursor == Cursor(floor=200, settled_count=200)
    assert not cycle.state.live.leases


def test_cycles_go_on_settling_after_the_time_in_which_a_silent_session_ends() -> None:
    cycle = micro.Cycle(1)
    cycles = cycle.state.settings.session_timeout_ms // 2
    for _ in range(cycles):
        cycle()
    (cursor,) = cycle.state.durable.cursors.values()
    assert cursor.settled_count == cycles


def test_the_node_confirms_every_frame_of_a_round() -> None:
    node = micro.Frames(1)
    first, second = node(), node()
    assert first == second > 0
    (log,) = node.node.state.durable.logs.values()
    assert log.end == 2 * micro.PRODUCERS


def test_every_part_is_timed_beside_its_baseline() -> None:
    results = micro.run(0.01)
    assert len({each.name for each in results}) == len(results)
    assert all(each.ns > 0 and each.baseline_ns > 0 for each in results)
    lines = tables.parts(results, ["append 1.50 ms"]).splitlines()
    assert len(lines) == len(results) + 3
    assert lines[-1] == "append 1.50 ms"
