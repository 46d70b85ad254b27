"""A real broker's trace: what clients saw, in the simulator's columns, whole after a stop and after a kill."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dovetail.core import inputs
from dovetail.core.effects import Appended, Deliver, LeaseEnded, Reply, Settlement, Subscribed
from dovetail.core.ids import Now
from dovetail.core.state import Durable
from dovetail.core.trace import Row
from dovetail.runtime.client import blocking, connect
from dovetail.runtime.tracing import FLUSH_S, Began, Died, Dropped, LogState, Stepped, Tracer
from dovetail.runtime.tracing_rows import Witness
from dovetail.sim.trace import schema
from dovetail.torture import Process
from dovetail.tracing import Files, unfinished
from tests.broker.house import wait_until

NOW = Now(0, 0)


def witnessed(*steps: Any) -> list[Row]:
    rows: list[Row] = []
    witness = Witness(rows.append, 1_000_000)
    witness.take(Began(1_000_000, "ab12", 3, 250, "{}", (LogState("orders", 0, 0, 2, 9),)))
    for place, (arrived, effects) in enumerate(steps, 1):
        witness.take(Stepped(1_000_000 + 1_000 * place, arrived, effects))
    witness.end(2_000_000, "stopped")
    return rows


def deliver(lease: int) -> Deliver:
    return Deliver(7, 11, "orders", 0, -1, 1, lease, 2, 31_000, ((4, 6),))


def settle(lease: int, first: int, last: int) -> inputs.Settle:
    return inputs.Settle(7, 2, (inputs.SettleItem(lease, 1, first, last),))


OPEN = ((inputs.SessionOpened(7, "ann"), inputs.Subscribe(7, 1, "orders", "billing", 10, False)), ())
SUBSCRIBED = ((), (Reply(7, 1, Subscribed(11)),))


def test_a_life_begins_with_its_terms_and_what_the_logs_hold_and_ends_with_its_connections() -> None:
    rows = witnessed(OPEN)
    assert [row.kind for row in rows] == ["setup", "up", "extent", "connect", "disconnect", "down"]
    assert [row.seq for row in rows] == [(3 << 40) + place for place in range(6)]
    assert (rows[2].topic, rows[2].first, rows[2].last) == ("orders", 2, 8)
    assert (rows[1].generation, rows[1].latency_us, rows[-1].detail) == (3, 250, "stopped")


def test_a_publish_and_its_confirm_are_one_story() -> None:
    ask = inputs.Ask(7, 5, 0, 3)
    publish = inputs.Publish("orders", -1, 1, 3, 100, (ask,), ttl_ms=50)
    rows = witnessed(OPEN, ((publish,), ()), ((), (Reply(7, 5, Appended("orders", 0, -1, 9, 3, 0)),)))
    published, confirmed = rows[4], rows[5]
    assert (published.kind, published.first, published.last, published.deadline_us) == ("publish", 0, 2, 52_000)
    assert (confirmed.kind, confirmed.partition, confirmed.first, confirmed.last) == ("confirm", 0, 9, 11)
    assert (confirmed.latency_us, confirmed.asked) == (1_000, published.seq)


def test_a_settle_says_whose_lease_it_was_and_what_the_broker_said() -> None:
    done, too_late = Settlement(((0, 0),)), Settlement(((2, 0),))
    steps = [OPEN, SUBSCRIBED, ((), (deliver(40),)), ((settle(40, 4, 6),), ()), ((), (Reply(7, 2, done),))]
    rows = witnessed(*steps, ((settle(40, 4, 6),), (Reply(7, 2, too_late),)))
    given, acked, late = (row for row in rows if row.kind in ("deliver", "ack", "ack refused"))
    assert (given.group, given.member, given.attempt, given.lease) == ("billing", "ann", 2, 40)
    assert given.deadline_us == 30_000_000
    assert (acked.topic, acked.group, acked.first, acked.last, acked.lease) == ("orders", "billing", 4, 6, 40)
    assert acked.latency_us == 1_000
    assert (late.kind, late.lease, late.topic) == ("ack refused", 40, "")


def test_a_lease_that_ends_by_itself_is_told() -> None:
    rows = witnessed(OPEN, SUBSCRIBED, ((), (deliver(40),)), ((), (LeaseEnded(7, 40),)))
    (ended,) = [row for row in rows if row.kind == "ended"]
    assert (ended.topic, ended.group, ended.lease, ended.first) == ("orders", "billing", 40, -1)


def test_dead_letters_and_gaps_are_rows() -> None:
    rows: list[Row] = []
    witness = Witness(rows.append, 0)
    witness.take(Died(5, (("orders", 0, 0, 17, "billing"),)))
    witness.take(Dropped(6, 12))
    assert [(row.kind, row.last, row.group) for row in rows] == [("dead", 17, "billing"), ("dropped", 12, "")]


def test_a_writer_that_does_not_keep_up_costs_steps_and_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.runtime.tracing.BUFFER_BYTES_MAX", 100_000)

    async def run() -> Tracer:
        tracer = Tracer([sys.executable, "-c", "import time; time.sleep(600)"])
        settles = tuple([settle(40, at, at) for at in range(100)])
        for _ in range(2_000):
            tracer.observe(NOW, settles, (), (), Durable())
        assert len(tracer._buffer) < 200_000
        tracer._writer.send_signal(signal.SIGKILL)
        tracer.close()
        return tracer

    assert asyncio.run(run()).dropped > 100


def test_files_are_rotated_and_the_oldest_make_room(tmp_path: Path) -> None:
    files = Files(str(tmp_path), rows_max=10, bytes_max=1)
    files.begin(Began(0, "ab12", 1, 0, "{}", ()))
    for number in range(35):
        files.keep(Row(number, 0, "ann", "connect"))
    assert unfinished(str(tmp_path)) == ["_life-00000001-000004.parquet"]
    files.end_file()
    assert [each.name for each in sorted(tmp_path.glob("*.parquet"))] == ["life-00000001-000004.parquet"]
    assert pq.read_table(next(tmp_path.glob("*.parquet"))).column("seq").to_pylist() == list(range(30, 35))


def read(directory: Path) -> list[dict[str, Any]]:
    """The rows of a trace, as any reader finds them: whole files only, in order."""
    rows: list[dict[str, Any]] = []
    for file in sorted(directory.glob("life-*.parquet")):
        table = pq.read_table(file)
        assert table.schema.equals(schema())
        rows += table.to_pylist()
    return sorted(rows, key=lambda row: int(row["seq"]))


async def work(port: int, count: int) -> None:
    """Publish, and have a group acknowledge all but one, which it rejects."""
    async with connect(f"127.0.0.1:{port}", name="worker") as dv:
        subscription = dv.subscribe("jobs", group="crew")
        async with dv.producer("jobs") as jobs:
            for number in range(count):
                await jobs.send(str(number))
        left = count
        async for message in subscription:
            await (message.reject(wait="applied") if message.text == "3" else message.ack(wait="applied"))
            left -= 1
            if not left:
                return


def test_a_brokers_trace_tells_what_its_clients_saw_over_a_kill_and_a_stop(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    data = str(tmp_path / "data")
    broker = Process(data, "--trace", str(trace))
    port = broker.port()
    asyncio.run(work(port, 50))
    with blocking.connect(f"127.0.0.1:{port}") as dv:
        dv.publish("jobs", "after that")
        # When this is answered the broker's loop has passed on all that came before.
        dv.fetch("jobs", offset=51, wait=10 * FLUSH_S).result()
    broker.kill()
    wait_until(lambda: bool(list(trace.glob("life-*.parquet"))), "the writer did not finish the file", 60)
    broker = Process(data, "--trace", str(trace))
    asyncio.run(work_on(broker.port()))
    assert broker.stop() == 0
    # A writer that is slow to finish goes on without the broker.
    wait_until(lambda: not unfinished(str(trace)), "the writer did not finish the second file", 60)
    rows = read(trace)
    assert {row["run"] for row in rows} == {rows[0]["run"]}
    assert [row["time_us"] for row in rows] == sorted(row["time_us"] for row in rows)
    assert [(row["kind"], row["generation"]) for row in rows if row["kind"] in ("up", "down")] == [
        ("up", 1),
        ("down", 1),
        ("up", 2),
        ("down", 2),
    ]
    assert offsets(rows, "confirm", "jobs") == Counter(range(51))
    assert offsets(rows, "deliver", "jobs") == Counter(range(51))
    assert offsets(rows, "ack", "jobs") == Counter(range(51)) - Counter([3])
    assert offsets(rows, "reject", "jobs") == Counter([3])
    assert offsets(rows, "dead", "jobs") == Counter([3])
    held = {(row["connection"], row["lease"]) for row in rows if row["kind"] == "deliver"}
    assert all((row["connection"], row["lease"]) in held for row in rows if row["kind"] in ("ack", "reject"))


async def work_on(port: int) -> None:
    async with connect(f"127.0.0.1:{port}", name="worker") as dv:
        async for message in dv.subscribe("jobs", group="crew"):
            assert message.text == "after that"
            await message.ack(wait="durable")
            return


def offsets(rows: list[dict[str, Any]], kind: str, topic: str) -> Counter[int]:
    spans = [(row["first"], row["last"]) for row in rows if row["kind"] == kind and row["topic"] == topic]
    return Counter(at for first, last in spans for at in range(first, last + 1))
