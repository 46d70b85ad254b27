"""Many messages, quickly: a batching producer, and a consumer whose acknowledgments travel as ranges.

- `send` returns as soon as the message is in a batch; it waits only while 10,000 messages are unconfirmed, so memory
  is bounded however fast the loop runs. Leaving the producer's `async with` waits for the last receipt.
- The consumer acknowledges message by message, and yet one frame with one range leaves for all that were handled in
  the same moment. A larger `max_inflight` lets the broker send further ahead.

Run a broker with `make serve`, then `python -m examples.bulk`.
"""

import asyncio
import sys
import time

from dovetail import connect


async def main(url: str = "dovetail://127.0.0.1:7400", *, count: int = 100_000) -> int:
    """Publish `count` messages and read them back; gives how many came."""
    async with connect(url) as dv:
        started = time.perf_counter()
        async with dv.producer("readings", linger_ms=5, compression="lz4") as readings:
            for number in range(count):
                await readings.send(f'{{"sensor": {number % 100}, "value": {number}}}', key=f"{number % 100}")
        published = time.perf_counter()
        received = 0
        async for message in dv.subscribe("readings", group=f"bulk-{started}", max_inflight=5_000):
            received += 1
            await message.ack()
            if received == count:
                break
        done = time.perf_counter()
        print(f"published {count / (published - started):,.0f}/s, received {count / (done - published):,.0f}/s")
        return received


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
