"""The core is pure, and the rules that say so catch what they should."""

import pytest

from tests.architecture.purity import asynchronous, forbidden_calls, global_state
from tests.architecture.sources import Source, sources


def core(text: str) -> Source:
    return Source("core/planted.py", text)


def test_the_core_never_waits() -> None:
    assert [line for source in sources("core") for line in asynchronous(source)] == []


def test_the_core_keeps_no_global_state() -> None:
    assert [line for source in sources("core") for line in global_state(source)] == []


def test_the_core_calls_nothing_that_touches_the_world_or_depends_on_the_process() -> None:
    assert [line for source in sources("core") for line in forbidden_calls(source)] == []


@pytest.mark.parametrize(
    "text",
    [
        "async def f(): pass",
        "class A:\n    async def f(self): pass",
        "async def f(x):\n    return [y async for y in x]",
    ],
)
def test_waiting_is_caught(text: str) -> None:
    assert asynchronous(core(text)) != []


def test_a_plain_function_does_not_wait() -> None:
    assert asynchronous(core("def f(): return [y for y in (1, 2)]")) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    global n\n    n = 1",
        "seen = []",
        "seen: Final = {}",
        "seen: Final[dict[int, int]] = {1: 2}",
        "seen = {1, 2}",
        "seen = [n for n in range(3)]",
        "seen = dict(a=1)",
        "seen = set()",
        "seen = collections.defaultdict(list)",
        "seen = defaultdict[int, int](int)",
        "buffer = bytearray(8)",
        "numbers = itertools.count()",
        "pair = ([], 1)",
        "table = MappingProxyType({1: []})",
        "table = MappingProxyType({n: [] for n in range(3)})",
        "table = tuple([[], []])",
        "if True:\n    seen = []",
        "try:\n    pass\nexcept ValueError:\n    seen = []",
        "seen = [] if True else ()",
        "seen = [1] + [2]",
        "@cache\ndef f(x): return x",
        "@functools.lru_cache(maxsize=8)\ndef f(x): return x",
        "class A:\n    @cached_property\n    def f(self): return 1",
    ],
)
def test_global_state_is_caught(text: str) -> None:
    assert global_state(core(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "__all__ = ['a']",
        "table: Final = MappingProxyType({1: 2})",
        "table: Final = MappingProxyType({n: (n,) for n in range(3)})",
        "names = frozenset({'a', 'b'})",
        "steps = (1, 2, 3)",
        "steps = tuple([n for n in range(3)])",
        "empty: Map[int, int] = Map()",
        "header = struct.Struct('>qi')",
        "Offset = NewType('Offset', int)",
        "Input = Publish | Settle",
        "def f():\n    seen = []\n    return tuple(seen)",
    ],
)
def test_constants_and_locals_are_fine(text: str) -> None:
    assert global_state(core(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        "def f(): open('x')",
        "key = id(x)",
        "key = hash(x)",
        "eval('1')",
        "object.__setattr__(x, 'a', 1)",
        "msgspec.structs.force_setattr(x, 'a', 1)",
    ],
)
def test_a_forbidden_call_is_caught(text: str) -> None:
    assert forbidden_calls(core(text)) != []


@pytest.mark.parametrize("text", ["x.open()", "x.hash()", "len(x)", "def f(id): return id"])
def test_a_method_or_a_name_alike_is_fine(text: str) -> None:
    assert forbidden_calls(core(text)) == []
