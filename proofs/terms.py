"""What is known of a symbolic value: cheap to write down and compare on every run, shown to z3 only when asked.

Promises  a term over plain numbers alone is a plain number; equal terms have equal keys.
Never     decides what an operator of Python means: `symbolic` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import z3

Key = tuple[Any, ...] | int | str
"""A number, a truth value or a name, or an operator and the keys it is applied to."""


class Term:
    """An operator applied to terms; its operators make larger ones."""

    __slots__ = ("_built", "key", "operator", "parts")

    def __init__(self, operator: str, *parts: Any) -> None:
        self.operator = operator
        self.parts = parts
        self.key: Key = (operator, *map(key_of, parts))
        self._built: Any = None

    def for_z3(self) -> Any:
        """The term as z3 knows it, made once."""
        if self._built is None:
            self._built = _OPERATORS[self.operator](*map(for_z3, self.parts))
        return self._built

    def __add__(self, other: Any) -> Term:
        return Term("+", self, other)

    def __radd__(self, other: Any) -> Term:
        return Term("+", other, self)

    def __sub__(self, other: Any) -> Term:
        return Term("-", self, other)

    def __rsub__(self, other: Any) -> Term:
        return Term("-", other, self)

    def __mul__(self, other: Any) -> Term:
        return Term("*", self, other)

    def __rmul__(self, other: Any) -> Term:
        return Term("*", other, self)

    def __neg__(self) -> Term:
        return Term("-", 0, self)

    def __lt__(self, other: Any) -> Term:
        return Term("<", self, other)

    def __le__(self, other: Any) -> Term:
        return Term("<=", self, other)

    def __gt__(self, other: Any) -> Term:
        return Term("<", other, self)

    def __ge__(self, other: Any) -> Term:
        return Term("<=", other, self)

    def __eq__(self, other: object) -> Any:
        return Term("==", self, other)

    def __ne__(self, other: object) -> Any:
        return Term("not", Term("==", self, other))

    __hash__ = None  # type: ignore[assignment]  # equality is a term, so terms are no keys of a map


def variable(name: str) -> Term:
    """An unknown integer."""
    return Term("variable", name)


def quotient(a: Any, divisor: int) -> Any:
    """`a` divided by a plain number above zero, rounded down."""
    return Term("/", a, divisor) if isinstance(a, Term) else a // divisor


def remainder(a: Any, divisor: int) -> Any:
    """What `quotient` leaves."""
    return Term("%", a, divisor) if isinstance(a, Term) else a % divisor


def opposite(condition: Any) -> Any:
    """Whether a condition does not hold."""
    return Term("not", condition) if isinstance(condition, Term) else not condition


def both(*conditions: Any) -> Any:
    """Whether all conditions hold."""
    return _joined("and", conditions, neutral=True)


def either(*conditions: Any) -> Any:
    """Whether any condition holds."""
    return _joined("or", conditions, neutral=False)


def chosen(condition: Any, yes: Any, no: Any) -> Any:
    """One number where a condition holds, else another."""
    if not isinstance(condition, Term):
        return yes if condition else no
    return Term("if", condition, yes, no)


def key_of(term: Any) -> Key:
    """A term's key; a plain number or truth value is its own."""
    key: Key = term.key if isinstance(term, Term) else term
    return key


def _joined(operator: str, conditions: tuple[Any, ...], *, neutral: bool) -> Any:
    open_ones = [each for each in conditions if isinstance(each, Term)]
    if any(each is not neutral for each in conditions if not isinstance(each, Term)):
        return not neutral
    return Term(operator, *open_ones) if open_ones else neutral


_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": lambda a, b: a % b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "variable": lambda unknown: unknown,
    "not": z3.Not,
    "and": z3.And,
    "or": z3.Or,
    "if": z3.If,
}


def for_z3(term: Any) -> Any:
    """A term, a number, a truth value or a name as z3 knows it."""
    return term.for_z3() if isinstance(term, Term) else _plain(term)


@lru_cache(10_000, typed=True)
def _plain(value: int | str) -> Any:
    match value:
        case bool():
            return z3.BoolVal(value)
        case int():
            return z3.IntVal(value)
        case _:
            return z3.Int(value)
