"""The journal of a broker that runs shows what was decided, frame by frame."""

from __future__ import annotations

from dovetail.core.journal_format import Frame
from dovetail.runtime.storage.disk import run
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.lookback import PIECE_BYTES, look_back
from tests.storage.build import Broker, sim_disk


def shown(broker: Broker) -> list[int]:
    frames: list[Frame] = []
    run(broker.disk, look_back(frames.append))
    return [frame.lsn for frame in frames]


def test_every_frame_is_shown_in_order_from_segment_to_segment() -> None:
    broker = Broker(sim_disk())
    assert shown(broker) == []
    log = broker.create("orders")
    for number in range(40):
        broker.publish(log, b"x" * (number * 20))
    assert shown(broker) == list(range(1, broker.durable.lsn + 1))


def test_a_frame_larger_than_a_piece_is_shown_too() -> None:
    broker = Broker(sim_disk(), StoreOptions(journal_segment_bytes=8 * PIECE_BYTES))
    log = broker.create("orders")
    for size in (10, PIECE_BYTES - 100, 10, 2 * PIECE_BYTES + 1, 10):
        broker.publish(log, b"x" * size)
    assert shown(broker) == list(range(1, broker.durable.lsn + 1))


def test_what_a_recovery_wrote_again_is_shown_once() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    for _ in range(10):
        broker.publish(log, b"x")
    disk.kill()
    broker = Broker(disk)
    broker.publish(log, b"x")
    lsns = shown(broker)
    assert lsns == list(range(lsns[0], broker.durable.lsn + 1))
    assert len(lsns) > 5
