"""Orders that are billed: a group shares the work, failures are tried again, hopeless cases are set aside.

Three things to see here:

- Two workers are members of one group, so each order goes to one of them. A second group would get all orders too.
- `async with message:` is the whole of error handling: leaving it normally acknowledges, leaving it by an exception
  asks for another try, which goes to another member where there is one. Order 3 fails once and succeeds then.
- Order 5 can never be billed: `reject` sends it to the dead letters, the topic `orders.created.dlq`, with the reason.

Run a broker with `make serve`, then `python -m examples.orders`.
"""

import asyncio
import sys

from dovetail import Client, Message, connect

ORDERS = 8


async def main(url: str = "dovetail://127.0.0.1:7400") -> dict[str, list[str]]:
    """Publish some orders and bill them; gives what each worker billed, and what nobody could."""
    async with connect(url) as dv:
        billed: dict[str, list[str]] = {"ann": [], "bob": [], "dead": []}
        done: asyncio.Queue[str] = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(worker(url, name, billed[name], done)) for name in ("ann", "bob")]
            working.append(tasks.create_task(undertaker(dv, billed["dead"])))
            ours = set()
            for number in range(ORDERS):
                receipt = await dv.publish("orders.created", f"order {number}", key=f"customer {number % 3}")
                ours.add(receipt.message_id)
            while ours:  # the group may also have orders from before to bill
                ours.discard(await done.get())
            while not billed["dead"]:
                await asyncio.sleep(0.01)
            for task in working:
                task.cancel()
        return billed


async def worker(url: str, name: str, billed: list[str], done: asyncio.Queue[str]) -> None:
    """One member of the group, with a connection of its own as if it were a process of its own."""
    async with connect(url) as dv:
        async for message in dv.subscribe("orders.*", group="billing", max_inflight=1):
            try:
                async with message:
                    await bill(message)
            except ConnectionError as error:
                print(f"{name}: {message.text} failed ({error}), attempt {message.attempt}")
                continue
            if message.text != "order 5":
                billed.append(message.text)
            done.put_nowait(message.id)


async def bill(message: Message) -> None:
    if message.text == "order 5":
        await message.reject(reason="the customer does not exist")
    elif message.text == "order 3" and message.attempt == 1:
        raise ConnectionError("the bank does not answer")


async def undertaker(dv: Client, dead: list[str]) -> None:
    async for letter in dv.subscribe("orders.created.dlq", group="undertakers"):
        print(f"dead letter: {letter.text}: {letter.headers['dovetail-error']}")
        dead.append(letter.text)
        await letter.ack()


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:])))
