"""A real broker's recording, run through `step` again.

Promises  says whether every step gave the same records and effects as it did then, and if not, which was the first.
Never     needs payloads: a recording has none.
"""

from __future__ import annotations

import os

from msgspec import Struct

from dovetail.core import recording
from dovetail.core.awaken import awaken
from dovetail.runtime.storage import checkpoint


class Replayed(Struct, frozen=True):
    """What came of one file of a recording."""

    path: str
    steps: int
    inputs: int
    span_ms: int
    differs: str = ""


def files(directory: str) -> list[str]:
    """The recordings in a directory, oldest first."""
    return sorted(os.path.join(directory, name) for name in os.listdir(directory))


def replay(path: str) -> Replayed:
    """Run one file again."""
    with open(path, "rb") as file:
        began, steps = recording.read(file.read())
    state = awaken(checkpoint.decode(began.checkpoint), began.settings)
    count = inputs = first_ms = last_ms = 0
    for _, stepped, differs in recording.live_again(state, steps):
        first_ms = first_ms or stepped.mono_ms
        last_ms = stepped.mono_ms
        count += 1
        inputs += len(stepped.inputs)
        if differs is not None:
            said = f"step {differs.number} gives {len(differs.records)} records and {len(differs.effects)} effects"
            return Replayed(path, count, inputs, last_ms - first_ms, f"{said} that are not those of the recording")
    return Replayed(path, count, inputs, last_ms - first_ms)
