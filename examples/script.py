"""A plain script without an event loop: the blocking twin has the same words, each of which waits.

Run a broker with `make serve`, then `python -m examples.script`.
"""

import sys

from dovetail.runtime.client.blocking import connect


def main(url: str = "dovetail://127.0.0.1:7400") -> list[str]:
    """Publish three lines and read them back."""
    with connect(url) as dv:
        for line in ("one", "two", "three"):
            receipt = dv.publish("lines", line)
            print("published", receipt.message_id)
        lines = []
        for message in dv.subscribe("lines", group="script"):
            with message:
                lines.append(message.text)
            if len(lines) == 3:
                return lines
    return lines


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
