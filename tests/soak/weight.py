"""What something holds in memory: every object that can be reached from it, counted once.

Promises  what is left out, and what can be reached through it alone, is not counted; code and types never are.
Never     changes what it looks at.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

from msgspec import Struct

_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)


def weight(things: Iterable[object], without: Iterable[object] = ()) -> int:
    """How many bytes `things` hold, but for what `without` stands for."""
    seen = {id(each) for each in without}
    waiting = list(things)
    size = 0
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, _CODE):
            continue
        seen.add(id(each))
        size += sys.getsizeof(each)
        waiting.extend(_parts(each))
    return size


def _parts(thing: object) -> Iterable[object]:
    """What a thing refers to. A record that the collector does not know says it by its fields."""
    if isinstance(thing, Struct):
        return [getattr(thing, field) for field in thing.__struct_fields__]
    return gc.get_referents(thing)
