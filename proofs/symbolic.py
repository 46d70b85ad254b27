"""Integers and truth values that stand for all their values at once.

Promises  every operator means for all values, negative ones too, exactly what it means for Python's `int` and
          `bool`; a truth value that is not settled forks the path.
Never     guesses: what can't be treated exactly is refused, and the code under proof can't catch a refusal.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path as File
from types import CodeType, FrameType
from typing import Any, NoReturn, Protocol

from dovetail.proofs import terms
from dovetail.proofs.reading import only_tells, text_variables
from dovetail.proofs.terms import both, chosen, either

SHIFT_MAX = 64
"""The largest shift count that is a symbolic value: each possible one is a path of its own."""

INDEX_MAX = 16
"""The largest index or key that is a symbolic value: each possible one is a path of its own."""

OPAQUE = "\ue000"
"""Stands in a text where people would read a number."""

ENGINE_FILES = frozenset(str(File(__file__).with_name(name)) for name in ("terms.py", "symbolic.py", "engine.py"))

Site = tuple[str, str, int, int]
"""Where code asks for a truth value: file, function, line, column."""


class Refusal(BaseException):
    """The engine can't treat this exactly. Not an `Exception`: no handler of the code under proof sees it."""


class Path(Protocol):
    """One way through the code under proof, as the values on it need it."""

    number: int
    """Which run it is: a value of another run is not to be used."""
    divided: dict[Any, tuple[Any, Any]]
    """Quotient and remainder of what was divided on this path, so that the same division has the same result."""

    def decide(self, condition: Any, site: Site | None) -> bool: ...
    def define(self, fact: Any) -> None: ...
    def fresh(self) -> Any: ...
    def implies(self, fact: Any) -> bool: ...
    def refuse(self, why: str) -> NoReturn: ...


_following: Path | None = None


@contextmanager
def following(path: Path | None) -> Iterator[None]:
    """Let symbolic values belong to `path` until the block ends; with None there may be none."""
    global _following
    before, _following = _following, path
    try:
        yield
    finally:
        _following = before


def site() -> Site:
    """The place in the code under proof, or in its claim, that is being executed."""
    frame = _caller()
    code = frame.f_code
    # Not the instruction itself: the interpreter rewrites instructions as it gets to know a function.
    return code.co_filename, code.co_qualname, frame.f_lineno, _columns(code)[frame.f_lasti // 2]


@cache
def _columns(code: CodeType) -> tuple[int, ...]:
    return tuple(column or 0 for _, _, column, _ in code.co_positions())


def _caller() -> FrameType:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in ENGINE_FILES:
        frame = frame.f_back
    assert frame is not None
    return frame


Span = tuple[tuple[int, int], tuple[int, int]]
"""From line and column to line and column."""


@cache
def _texts_for_people(filename: str) -> tuple[Span, ...]:
    """The parts of a file whose text goes nowhere but into an exception, a refusal, or a report of damage."""
    try:
        tree = ast.parse(File(filename).read_text())
    except (OSError, SyntaxError):
        return ()
    texts = text_variables(tree)
    spans = [
        _span(node)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Raise) or _is_refusal(node)) and only_tells(node, texts)
    ]
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        for node in reversed([node for node in ast.walk(function) if isinstance(node, ast.Assign)]):
            match node.targets:
                case [ast.Name(id=name)] if only_tells(node.value, texts):
                    uses = [each for each in names if each.id == name and isinstance(each.ctx, ast.Load)]
                    if all(_is_within(_span(use)[0], spans) for use in uses):
                        spans.append(_span(node))
    return tuple(spans)


def _is_refusal(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="refuse") | ast.Name(id="Damage" | "FrameError")):
            return True
    return False


def _span(node: Any) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _is_within(position: tuple[int, int], spans: Sequence[Span]) -> bool:
    return any(start <= position < end for start, end in spans)


class _Symbol:
    """What integers and truth values have in common: they belong to one path, and refuse the same things."""

    __slots__ = ("_number", "_path", "_term")

    def __init__(self, path: Path, term: Any) -> None:
        self._path = path
        self._number = path.number
        self._term = term

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse(f"attribute {name!r} of a symbolic value")

    def _own(self) -> Path:
        if self._path is not _following or self._number != self._path.number:
            what = "a symbolic value is used outside the path it belongs to"
            if _following is not None:
                _following.refuse(what)
            raise Refusal(what)
        return self._path

    def _refuse(self, what: str) -> NoReturn:
        self._own().refuse(f"{what}, at {place(site())}")

    def _text(self) -> str:
        # Text could be compared or parsed. The text of an exception or a refusal is one that only people read.
        where = site()
        if not _is_within((where[2], where[3]), _texts_for_people(where[0])):
            self._refuse("the text of a symbolic value that is not just the reason of an exception")
        return OPAQUE

    def __repr__(self) -> str:
        return self._text()

    def __str__(self) -> str:
        return self._text()

    def __format__(self, spec: str) -> str:
        return self._text()

    def __eq__(self, other: object) -> Any:
        return _compare(self, other, lambda a, b: a == b)

    def __ne__(self, other: object) -> Any:
        return _compare(self, other, lambda a, b: a != b)

    def __hash__(self) -> int:
        self._refuse("a key of a map or set that is a symbolic truth value")


def place(where: Site) -> str:
    """A place as people name it."""
    return f"{File(where[0]).name}:{where[2]}:{where[3]} in {where[1]}"


class SymInt(_Symbol):
    """All integers that the path allows."""

    __slots__ = ()

    @property  # type: ignore[misc]  # read-only: nobody assigns it
    def __class__(self) -> Any:
        return int

    def __bool__(self) -> bool:
        return self._own().decide(self._term != 0, site())

    def __index__(self) -> int:
        return self._one_of_few("an index, a length or a range")

    def __hash__(self) -> int:
        # The path then says which number it is, so that every comparison with another key is decided.
        return hash(self._one_of_few("a key of a map or set"))

    def _one_of_few(self, what: str) -> int:
        if not self._own().implies(both(self._term >= 0, self._term <= INDEX_MAX)):
            self._refuse(f"{what} that is a symbolic value without a small bound")
        return next(value for value in range(INDEX_MAX + 1) if self == value)

    def __lt__(self, other: object) -> Any:
        return _compare(self, other, lambda a, b: a < b)

    def __le__(self, other: object) -> Any:
        return _compare(self, other, lambda a, b: a <= b)

    def __gt__(self, other: object) -> Any:
        return _compare(self, other, lambda a, b: a > b)

    def __ge__(self, other: object) -> Any:
        return _compare(self, other, lambda a, b: a >= b)

    def __add__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: a + b)

    def __sub__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: a - b)

    def __mul__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: a * b)

    def __floordiv__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: _divide(self._path, a, b)[0])

    def __mod__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: _divide(self._path, a, b)[1])

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __lshift__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: a * _power(self._path, b))

    def __rshift__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: terms.quotient(a, _power(self._path, b)))

    def __and__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: _and(self._path, a, b))

    def __or__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: a + b - _and(self._path, a, b))

    def __xor__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: a + b - 2 * _and(self._path, a, b))

    def __radd__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: b + a)

    def __rsub__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: b - a)

    def __rmul__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: b * a)

    def __rfloordiv__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: _divide(self._path, b, a)[0])

    def __rmod__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: _divide(self._path, b, a)[1])

    def __rdivmod__(self, other: object) -> Any:
        return other // self, other % self

    def __rlshift__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: b * _power(self._path, a))

    def __rrshift__(self, other: object) -> Any:
        return _combine(self, other, lambda a, b: terms.quotient(b, _power(self._path, a)))

    def __rand__(self, other: object) -> Any:
        return self & other

    def __ror__(self, other: object) -> Any:
        return self | other

    def __rxor__(self, other: object) -> Any:
        return self ^ other

    def __neg__(self) -> SymInt:
        return SymInt(self._own(), -self._term)

    def __pos__(self) -> SymInt:
        return SymInt(self._own(), self._term)

    def __abs__(self) -> SymInt:
        return SymInt(self._own(), chosen(self._term < 0, -self._term, self._term))

    def __invert__(self) -> SymInt:
        return SymInt(self._own(), -self._term - 1)


class SymBool(_Symbol):
    """A truth value that may be either."""

    __slots__ = ()

    @property  # type: ignore[misc]  # read-only: nobody assigns it
    def __class__(self) -> Any:
        return bool

    def __bool__(self) -> bool:
        return self._own().decide(self._term, site())

    def __and__(self, other: object) -> Any:
        return self._join(other, both)

    def __or__(self, other: object) -> Any:
        return self._join(other, either)

    def __xor__(self, other: object) -> Any:
        return self._join(other, lambda a, b: both(either(a, b), terms.opposite(both(a, b))))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def _join(self, other: object, join: Callable[[Any, Any], Any]) -> SymBool:
        if not isinstance(other, bool):
            self._refuse("a symbolic truth value used as a number")
        return SymBool(self._own(), join(self._term, truth(other)))


def _refuser(what: str) -> Callable[..., NoReturn]:
    def refuse(self: _Symbol, *_: object) -> NoReturn:
        self._refuse(what)

    return refuse


_REFUSED = {
    "a symbolic truth value used as a number": "__index__",
    "a symbolic value made a plain number": "__int__ __float__ __complex__ __trunc__",
    "rounding of a symbolic value": "__round__ __floor__ __ceil__",
    "true division: floats are not modelled": "__truediv__ __rtruediv__",
    "a power with a symbolic value": "__pow__ __rpow__",
    "a copy or pickle of a symbolic value": "__reduce__ __reduce_ex__ __getnewargs__ __copy__ __deepcopy__",
}
_NUMBERS_ONLY = """
    __lt__ __le__ __gt__ __ge__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __floordiv__ __rfloordiv__ __mod__
    __rmod__ __divmod__ __rdivmod__ __lshift__ __rlshift__ __rshift__ __rrshift__ __neg__ __pos__ __abs__ __invert__
"""
for _what, _names in _REFUSED.items():
    for _name in _names.split():
        setattr(_Symbol, _name, _refuser(_what))
for _name in _NUMBERS_ONLY.split():
    setattr(SymBool, _name, _refuser("a symbolic truth value used as a number"))


def truth(value: object) -> Any:
    """The term of a truth value, plain or symbolic."""
    if type(value) is SymBool:
        value._own()
        return value._term
    if isinstance(value, bool):
        return bool(value)
    raise Refusal(f"a claim ends in a truth value, not in {type(value).__name__}")


def number(value: object) -> Any:
    """The term of an integer, plain or symbolic; None for what is no number."""
    if type(value) is SymInt:
        value._own()
        return value._term
    if type(value) is SymBool:
        value._own()
        return chosen(value._term, 1, 0)
    if isinstance(value, int):
        return int(value)
    return None


def _operands(left: _Symbol, right: object) -> tuple[Any, Any] | None:
    left._own()
    if isinstance(right, float | complex):
        left._refuse("a float beside a symbolic value")
    other = number(right)
    return None if other is None else (number(left), other)


def _compare(left: _Symbol, right: object, relation: Callable[[Any, Any], Any]) -> Any:
    terms = _operands(left, right)
    return NotImplemented if terms is None else SymBool(left._path, relation(*terms))


def _combine(left: _Symbol, right: object, operation: Callable[[Any, Any], Any]) -> Any:
    terms = _operands(left, right)
    return NotImplemented if terms is None else SymInt(left._path, operation(*terms))


def _constant(term: Any) -> int | None:
    return term if isinstance(term, int) else None


def _divide(path: Path, a: Any, b: Any) -> tuple[Any, Any]:
    """Python's quotient and remainder: rounded down, the remainder with the divisor's sign.

    z3 rounds so that the remainder is never negative, which is the same for divisors above zero only.
    """
    known = _constant(b)
    if known == 0 or (known is None and path.decide(b == 0, None)):
        raise ZeroDivisionError("integer division or modulo by zero")
    if known is not None:
        if known > 0:
            return terms.quotient(a, known), terms.remainder(a, known)
        rounded = terms.quotient(-a, -known)
        return rounded, a - known * rounded
    # A divisor that varies: the quotient and the remainder are the two numbers that fit, and no others do.
    operands = terms.key_of(a), terms.key_of(b)
    if operands in path.divided:
        return path.divided[operands]
    quotient, rest = path.fresh(), path.fresh()
    fits = both(rest >= 0, rest < b) if path.decide(b > 0, None) else both(b < rest, rest <= 0)
    path.define(both(a == b * quotient + rest, fits))
    path.divided[operands] = quotient, rest
    return quotient, rest


def _power(path: Path, count: Any) -> int:
    """Two to the `count`; a symbolic count is a path for each of its values."""
    known = _constant(count)
    if known is None:
        if path.decide(count < 0, site()):
            raise ValueError("negative shift count")
        for value in range(SHIFT_MAX + 1):
            if path.decide(count == value, site()):
                return 1 << value
        path.refuse(f"a shift by a symbolic value that may be above {SHIFT_MAX}, at {place(site())}")
    if known < 0:
        raise ValueError("negative shift count")
    return 1 << known


def _and(path: Path, a: Any, b: Any) -> Any:
    """The bits that two numbers share, as in two's complement without end."""
    left, right = _constant(a), _constant(b)
    if left is not None:
        return _masked(b, left)
    if right is not None:
        return _masked(a, right)
    for one, other in ((a, b), (b, a)):
        for bits in (1, 7, 8, 14, 16, 21, 28, 32, 35, 42, 49, 56, 63):
            if path.implies(both(one >= 0, one < 1 << bits, terms.remainder(other, 1 << bits) == 0)):
                return 0
        if path.implies(either(one == 0, one == -1)):
            return chosen(one == 0, 0, other)
    path.refuse(f"&, | or ^ of two symbolic values, at {place(site())}")


def _masked(term: Any, mask: int) -> Any:
    if mask < 0:
        return term - _masked(term, ~mask)
    shared: Any = 0
    low = 0
    while mask >> low:
        if not mask >> low & 1:
            low += 1
            continue
        high = low
        while mask >> high & 1:
            high += 1
        shared = shared + terms.remainder(terms.quotient(term, 1 << low), 1 << (high - low)) * (1 << low)
        low = high
    return shared
