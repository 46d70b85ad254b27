"""The whole benchmark runs: a real broker, the bare server, publishers and consumers in their own processes."""

from pathlib import Path

import msgspec
import pytest

from dovetail.runtime.bench import run, tables
from dovetail.runtime.bench.loads import Driver, Load

SHORT_S = 0.1


def _plan(directory: Path, **changes: object) -> run.Plan:
    plan = run.Plan(
        loads=(Load("batches", publishers=2, batch=10, partitions=3),),
        flows=(run.Flow(Load("singles", publishers=2, outstanding=4), credit=100, single=True),),
        seconds=SHORT_S,
        rounds=1,
        directory=directory,
    )
    return msgspec.structs.replace(plan, **changes)


@pytest.mark.parametrize("driver", list(Driver))
def test_a_run_measures_the_broker_beside_its_limits_and_leaves_nothing_behind(tmp_path: Path, driver: Driver) -> None:
    said: list[str] = []
    results = run.run(_plan(tmp_path, driver=driver), said.append)
    (published,) = results.publish
    (flow,) = results.flows
    for figures in (published.broker, published.bare, published.appending, published.sockets, flow.figures):
        assert figures.per_second > 0
        assert figures.confirm_ms.keys() == {"p50", "p95", "p99", "max"}
    assert flow.figures.deliver_ms
    assert said
    assert list(tmp_path.iterdir()) == []


def test_single_publishes_are_joined_and_ranges_are_settled(tmp_path: Path) -> None:
    joined = Load("joined", publishers=2, outstanding=4, joined=True)
    ranges = run.Flow(Load("batches", publishers=2, batch=10, partitions=2), credit=100, single=False)
    results = run.run(_plan(tmp_path, loads=(joined,), flows=(ranges,)), lambda _: None)
    text = tables.report(results)
    assert "joined" in text
    assert "publish → ack" in text
    assert msgspec.json.decode(msgspec.json.encode(results), type=run.Results) == results


def test_a_profile_names_the_functions_that_took_the_time(tmp_path: Path) -> None:
    results = run.run(_plan(tmp_path, flows=(), profile=True, seconds=0.5), lambda _: None)
    (profiled,) = results.profiles
    assert profiled.messages > 0
    assert any("server.py:Server._tick" in share.function for share in profiled.profile.shares)
    assert "µs of processor time per message" in tables.report(results)
