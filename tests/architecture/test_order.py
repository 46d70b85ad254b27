"""No order of the core comes from a hash, and the rules that say so catch what they should."""

import pytest

from tests.architecture.order import hash_order, index, unstable_keys
from tests.architecture.sources import Source, sources

DECLARED = """
Offset = NewType("Offset", int)
Place = NewType("Place", Offset)
Name = NewType("Name", str)
Key = tuple[Offset, int]
Leases = Map[int, Lease]
K = TypeVar("K")

LIMIT: Final[int] = 3

class Spot(NamedTuple):
    log: Offset
    lane: int

class Lease(Struct, frozen=True):
    first: Offset
    members: tuple[int, ...]

class Cursor(Struct, frozen=True):
    leases: Map[int, Lease]
    aliased: Leases
    maybe: "Map[int, int] | None"
    members: Map[int, int]
    ranges: tuple[int, ...]
    cursors: Map[int, Map[int, Lease]]

class State(Struct, frozen=True):
    cursor: Cursor
    some: tuple[Cursor, ...]
    held: tuple[Lease, ...]
    topics_by_name: Map[str, int]

class Turn:
    def __init__(self, cursor: Cursor, members: list[int]) -> None:
        self.held = cursor.leases.mutate()
        self.members = members
        self.leases: list[int] = []

def cursor_of(state: State) -> Cursor: ...
def names(state: State) -> frozenset[str]: ...
"""


def planted(text: str) -> list[str]:
    declared, source = Source("core/declared.py", DECLARED), Source("core/planted.py", text)
    known = index([declared, source])
    return hash_order(source, known) + unstable_keys(source, known)


def in_function(body: str) -> list[str]:
    return planted(f"def f(state: State, cursor: Cursor, lease: Lease, turn: Turn, unknown):\n    {body}")


def test_no_map_of_the_core_has_keys_whose_order_changes_from_run_to_run() -> None:
    known = index(sources("core"))
    assert [line for source in sources("core") for line in unstable_keys(source, known)] == []


def test_the_core_walks_maps_only_through_ordered() -> None:
    known = index(sources("core"))
    assert [line for source in sources("core") for line in hash_order(source, known)] == []


def test_the_declarations_of_these_tests_are_themselves_fine() -> None:
    assert planted(DECLARED) == []


@pytest.mark.parametrize(
    "body",
    [
        "for n in cursor.leases: pass",
        "for n in state.cursor.leases: pass",
        "for n in unknown.leases: pass",
        "for n, lease in cursor.leases.items(): pass",
        "return cursor.leases.keys()",
        "return list(cursor.leases.values())",
        "return [n for n in cursor.aliased]",
        "return list(cursor.leases)",
        "return tuple(cursor.leases)",
        "return sorted(cursor.leases, key=unknown)",
        "return min(cursor.leases, key=unknown)",
        "return sorted(cursor.leases.items())",
        "return sorted(names(state), key=len)",
        "return sum(n for n in cursor.leases)",
        "return next(iter(cursor.leases))",
        "return (*cursor.leases,)",
        "yield from cursor.leases",
        "first, second = cursor.leases",
        "for n in cursor.maybe: pass",
        "for n in cursor.cursors[1]: pass",
        "for n in cursor.cursors.get(1): pass",
        "for n in turn.held: pass",
        "for one in state.some:\n        for n in one.leases: pass",
        "return [n for one in state.some for n in one.leases]",
        "for n, held in ordered(cursor.cursors):\n        for m in held: pass",
        "for one in unknown:\n        for n in one.leases: pass",
        "def g(): return list(cursor.leases)",
        "for n in cursor_of(state).leases: pass",
        "for n in replace(cursor, floor=1).leases: pass",
        "for n in cursor.leases.set(1, lease): pass",
        "leases = cursor.leases\n    for n in leases: pass",
        "leases: Map[int, int] = unknown()\n    for n in leases: pass",
        "if (leases := cursor.leases):\n        for n in leases: pass",
        "match unknown:\n        case Cursor(leases=held):\n            for n in held: pass",
        "match unknown:\n        case Cursor() as other:\n            for n in other.leases: pass",
        "for n in ordered(cursor.leases.values()): pass",
        "for name in ordered(state.topics_by_name): pass",
        "for name, n in ordered(state.topics_by_name.items()): pass",
        "for n in {1, 2}: pass",
        "for n in set(unknown): pass",
        "for n in names(state): pass",
        "return [n for n in names(state)]",
        "seen = frozenset(unknown)\n    return list(seen)",
        "return ','.join(names(state))",
    ],
)
def test_walking_in_hash_order_is_caught(body: str) -> None:
    assert in_function(body) != []


def test_a_method_that_walks_its_own_map_is_caught() -> None:
    text = "class Ring(Struct):\n    spots: Map[int, int]\n    def f(self):\n        return list(self.spots)"
    assert planted(text) != []


def test_a_constant_map_that_is_walked_is_caught() -> None:
    assert planted("EMPTY: Final[Map[int, int]] = Map()\ndef f():\n    return list(EMPTY)") != []


@pytest.mark.parametrize(
    "body",
    [
        "for n, lease in ordered(cursor.leases): pass",
        "for n, lease in ordered(cursor.leases.items()): pass",
        "for n in ordered(cursor.leases.keys()): pass",
        "return len(cursor.leases), 1 in cursor.leases, cursor.leases.get(1), cursor.leases[1]",
        "return state.topics_by_name.get('a')",
        "return sorted(cursor.leases), sorted(n for n in cursor.leases if n), min(cursor.leases, default=0)",
        "for n in cursor.ranges: pass",
        "for n in lease.members: pass",
        "for n in turn.members: pass",
        "for n in turn.leases: pass",
        "for n in turn.held[1].members: pass",
        "for one in state.held:\n        for n in one.members: pass",
        "return [n for one in state.held for n in one.members]",
        "return sorted(names(state)), len(names(state)), any(n for n in names(state))",
        "return {n for n in names(state)}",
        "table = {}\n    for n in table.items(): pass",
        "leases = tuple(ordered(cursor.leases))\n    for n in leases: pass",
        "held = cursor.leases.mutate()\n    held[1] = lease\n    return held.finish()",
    ],
)
def test_look_ups_and_ordered_walks_are_fine(body: str) -> None:
    assert in_function(body) == []


def test_ordered_itself_may_walk_the_map() -> None:
    assert planted("def ordered(entries: Map[K, int]):\n    return sorted(entries.items())") == []


@pytest.mark.parametrize(
    "text",
    [
        "class A(Struct):\n    topics: Map[str, int]",
        "class A(Struct):\n    topics: Map[Name, int]",
        "class A(Struct):\n    topics: Map[bytes, int]",
        "class A(Struct):\n    topics: Map[Lease, int]",
        "class A(Struct):\n    topics: Map[tuple[int, str], int]",
        "class A(Struct):\n    topics: Map[int | None, int]",
        "class A(Struct):\n    topics: Map[int, Map[str, int]]",
        "class A(Struct):\n    topics: 'Map[str, int]'",
        "class A(Struct):\n    topics: immutables.Map[str, int] | None",
        "class A(Struct):\n    topics: Map",
        "class A(Struct):\n    leases_by_name: Map[Lease, int]",
        "def f(topics: Map[str, int]): pass",
        "def f() -> Map[str, int]: ...",
        "def f():\n    topics: MapMutation[str, int] = g()",
        "Topics = Map[str, int]",
        "Topics: TypeAlias = Map[str, int]",
    ],
)
def test_a_map_with_unstable_keys_is_caught(text: str) -> None:
    assert planted(text) != []


@pytest.mark.parametrize(
    "key",
    ["int", "Offset", "Place", "Key", "Spot", "tuple[int, Offset]", "tuple[int, ...]", "tuple[Key, int]"],
)
def test_a_map_keyed_by_numbers_is_fine(key: str) -> None:
    assert planted(f"class A(Struct):\n    held: Map[{key}, int]") == []


@pytest.mark.parametrize("key", ["str", "Name"])
def test_a_look_up_by_name_may_be_keyed_by_text(key: str) -> None:
    assert planted(f"class A(Struct):\n    topic_by_name: Map[{key}, int]") == []
