"""Freezes a whole data directory as this version of the formats writes it, and what was in it.

python -m tests.storage.freeze_directory    when a format has a new version: a directory that is frozen stays as it is
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import tempfile
import zlib
from pathlib import Path

from dovetail import connect
from dovetail.core.state import Settings
from dovetail.runtime.storage import tools
from dovetail.runtime.storage.disk import run
from dovetail.runtime.storage.identity import FORMAT
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.real_disk import RealDisk
from tests.broker.house import House, wait_until
from tests.http.api import Api

OPTIONS = StoreOptions(
    journal_segment_bytes=4 << 10, log_segment_bytes=1 << 10, index_every_bytes=256, preallocate=False
)
VECTORS_PATH = Path(__file__).parents[1] / "vectors"


async def live(house: House, api: Api) -> None:
    """A bit of everything that leaves something behind."""
    async with connect(f"dovetail://127.0.0.1:{house.port}") as dv:
        for number in range(12):
            await dv.publish("orders.eu", f"order {number}", key=f"customer {number % 3}", headers={"n": str(number)})
        for priority in ("critical", "low"):
            await dv.publish("alarms", priority, priority=priority)
        await dv.publish("orders.eu", "in a year", delay="300d")
        await dv.publish("orders.eu", "for a while", ttl="300d")
        async with dv.producer("events", idempotent=True, compression="zstd") as producer:
            for number in range(5):
                await producer.publish(f"event {number} " * 20)
        taken = 0
        async for message in dv.subscribe("orders.*", group="billing"):
            taken += 1
            if message.offset == 3:
                await message.reject(reason="processing_error")
            elif message.offset == 5:
                await message.nack(delay="30d")
            elif message.offset in (0, 1, 2, 7, 8):
                await message.ack(wait="durable")
            if taken >= 10:
                break
        await dv.publish("gone", "forgotten")
        api.call("DELETE", "/v1/topics/gone")
        await dv.publish("gone", "not forgotten")


def main() -> None:
    path = VECTORS_PATH / f"directory-{FORMAT}.json"
    if path.exists():
        raise SystemExit(f"{path} is frozen")
    with tempfile.TemporaryDirectory() as directory:
        house = House(directory, Settings(partitions=1), store=OPTIONS)
        api = Api(house)
        api.post("/v1/topics", name="alarms", lanes=True)
        api.post("/v1/topics", name="orders.eu", partitions=1, retention={"hours": 10**6})
        asyncio.run(live(house, api))
        wait_until(lambda: api.get("/v1/topics", pattern="orders.eu.dlq")["topics"] != [], "a dead letter")
        api.post("/admin/checkpoint")
        wait_until(lambda: len(os.listdir(Path(directory, "checkpoints"))) == 2, "a checkpoint")
        api.publish("orders.eu", "after the checkpoint")
        house.kill()
        files = {
            os.path.relpath(os.path.join(place, name), directory): zlib.compress(Path(place, name).read_bytes(), 9)
            for place, _, names in sorted(os.walk(directory))
            for name in sorted(names)
            if name != "lock" and not name.startswith("spare-")
        }
        rows: dict[str, list[tools.Row]] = {"state": [], "logs": []}
        disk = RealDisk(directory)
        run(disk, tools.dump_state(OPTIONS, rows["state"].append))
        run(disk, tools.dump_logs(OPTIONS, "", rows["logs"].append, with_records=True))
    frozen = {"files": {name: base64.b64encode(data).decode() for name, data in files.items()}, **plain(rows)}
    path.write_text(json.dumps(frozen, indent=1) + "\n")
    print(f"frozen: {path.name}, {len(files)} files, {path.stat().st_size} bytes")


def plain(rows: dict[str, list[tools.Row]]) -> dict[str, list[tools.Row]]:
    """The rows as JSON gives them back."""
    found: dict[str, list[tools.Row]] = json.loads(json.dumps(rows, default=repr))
    return found


if __name__ == "__main__":
    main()
