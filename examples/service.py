"""A service made of decorated functions: what comes in, what is done, what goes out.

The ack policy of each subscriber says what a crash means for it:

- "on-success" (the default): acknowledged when the function returns. A crash in between repeats the work, so the
  work must bear that: at least once.
- "first": acknowledged before the function is called. A crash in between loses the work: at most once.
- "manual": the function calls `ack`, `nack` or `reject` itself.

Run a broker with `make serve`, then `python -m examples.service`.
"""

import asyncio
import sys

from dovetail import App, Message


def make(url: str = "dovetail://127.0.0.1:7400") -> tuple[App, list[str]]:
    """The service, and the log that it writes."""
    app = App(url)
    written: list[str] = []

    @app.subscriber("orders.created", group="shipping", workers=4)
    async def ship(message: Message) -> None:
        await app.client.publish("orders.shipped", message.value, key=message.key, headers={"by": "train"})

    @app.subscriber("orders.shipped", group="mail", ack="first")
    async def tell_customer(message: Message) -> None:
        written.append(f"{message.text} is on its way by {message.headers['by']}")
        if "last" in message.text:
            app.stop()

    return app, written


async def main(url: str = "dovetail://127.0.0.1:7400") -> list[str]:
    """Run the service until it has handled two orders."""
    app, written = make(url)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(app.run())
        await app.running()
        await app.client.publish("orders.created", "the first order")
        while not written:
            await asyncio.sleep(0.01)
        await app.client.publish("orders.created", "the last order")
    return written


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:])))
