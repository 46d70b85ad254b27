"""What is older than the broker's memory is read from its files, and comes as it was."""

from __future__ import annotations

import pytest

from dovetail.core.node import NodeOptions
from dovetail.core.state import Settings
from tests.broker.conftest import Start
from tests.broker.raw import Raw, ack, frame
from tests.broker.test_http import page

SMALL = NodeOptions(tail_bytes_max=32 << 10, read_bytes_max=64 << 10)
VALUES = [b"%05d" % number * 100 for number in range(3_000)]


def read_all(client: Raw, count: int) -> list[bytes]:
    """That many messages, each acknowledged as it comes."""
    values = []
    for _ in range(count):
        delivery = client.delivery()
        values.append(delivery.value)
        client.send(frame(3, ack(delivery.id)))
    for _ in range(count):
        assert client.answer().status == 0
    return values


@pytest.mark.parametrize("restarted", [False, True])
def test_a_backlog_larger_than_memory_is_delivered_in_order(start: Start, restarted: bool) -> None:
    broker = start(node=SMALL)
    publisher = broker.client()
    for first in range(0, len(VALUES), 100):
        publisher.publish_all("t", VALUES[first : first + 100])
    if restarted:
        broker.stop()
        broker = start(broker.data, node=SMALL)
    late = broker.client()
    late.subscribe("t", "late")
    assert read_all(late, len(VALUES)) == VALUES
    assert late.so_far() == []


def test_a_slow_group_and_a_fast_one_each_get_everything(start: Start) -> None:
    broker = start(node=SMALL)
    slow, fast, publisher = broker.client(), broker.client(), broker.client()
    slow.subscribe("t", "slow", max_inflight=3)
    fast.subscribe("t", "fast")
    for first in range(0, 1_000, 100):
        publisher.publish_all("t", VALUES[first : first + 100])
        assert read_all(fast, 100) == VALUES[first : first + 100]
    assert read_all(slow, 1_000) == VALUES[:1_000]


def test_pages_of_what_is_not_in_memory_any_more_are_read_from_the_files(start: Start) -> None:
    broker = start(node=SMALL)
    publisher = broker.client()
    for first in range(0, 1_000, 100):
        publisher.publish_all("t", VALUES[first : first + 100])
    offsets: list[int] = []
    follow: int | None = 0
    while follow is not None:
        found = page(broker, f"/v1/topics/t/messages?limit=300&offset={follow}")
        offsets += [each["offset"] for each in found["messages"]]
        follow = found.get("next")
    assert offsets == list(range(1_000))


def test_each_partition_has_its_own_order_and_a_group_gets_all_of_them(start: Start) -> None:
    broker = start(settings=Settings(partitions=4))
    publisher = broker.client()
    ids = [publisher.publish("t", b"%d" % number) for number in range(40)]
    places = [tuple(map(int, each.split(":")[1:])) for each in ids]
    assert {partition for partition, _ in places} == {0, 1, 2, 3}
    for partition in range(4):
        offsets = [offset for where, offset in places if where == partition]
        assert offsets == list(range(len(offsets)))
    reader = broker.client()
    reader.subscribe("t", "g")
    got = reader.deliveries(40)
    assert sorted(each.id.partition("#")[0] for each in got) == sorted(ids)
    for partition in range(4):
        mine = [each for each in got if each.id.startswith(f"t:{partition}:")]
        assert [int(each.value) for each in mine] == sorted(int(each.value) for each in mine)
