"""Freezes the bytes of record kinds that have no vector yet; what is frozen already is never changed.

python -m tests.storage.freeze      after adding a record; its row goes into spec/formats.md by hand
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgspec

from dovetail.core.records import AnyRecord, BatchAppended
from tests.storage.test_checkpoint import example

PATH = Path(__file__).parents[1] / "vectors" / "storage.json"


def main() -> None:
    vectors = json.loads(PATH.read_text())
    for kind in get_args(AnyRecord):
        if kind is not BatchAppended and kind.__name__ not in vectors["records"]:
            vectors["records"][kind.__name__] = msgspec.msgpack.encode(example(kind)).hex()
            print(f"frozen: {kind.__name__} (tag {kind.__struct_config__.tag})")
    PATH.write_text(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
