"""What a symbolic value can't notice, found by reading the code that ran.

Identity, `type`, and code in C that takes plain integers alone see the object and not the number that it stands for;
and the text of an exception says nothing of that number. Where any of these decides, a path looks proved that is not.

Promises  code that asks for identity or type, catches what only a symbolic value raises, looks into the text of what
          it caught, or keeps state between two calls, is named with its line, whatever it is about.
Never     runs anything. What it does not know it names too.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Iterator, Mapping
from dis import get_instructions
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

VOUCHED = frozenset({"abc", "collections.abc", "contextlib", "enum", "re", "typing"})
"""Modules of the standard library, written in Python, that treat a symbolic number as they treat a plain one."""

_TELLING = frozenset({"str", "repr", "format", "join", "map", "refuse", "append"})
"""Calls that pass a text on and don't look at it; so do those that make a record or an exception."""
_RAISED_BY_SYMBOLS = frozenset({"TypeError", "AttributeError", "Exception", "BaseException"})
_TELLING_APART = (type, id, operator.is_, operator.is_not)
_TEXTS = frozenset({"str", "repr", "format"})


class Blind(NamedTuple):
    """A place that may see through a symbolic value, unless one of the names there is a constant of another type."""

    line: int
    what: str
    constants: tuple[str, ...] = ()
    number_of: tuple[str, str] | None = None
    """The exception's class and its attribute, when that is a number there is nothing to object to."""


def objection(code: CodeType, known: Mapping[str, Any]) -> str | None:
    """Why a proof may not run this code, whose globals are `known`; None where nothing is to be said against it."""
    module = known.get("__name__", "")
    if module in VOUCHED or module.startswith("namedtuple_"):
        return None
    for each in get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            named = known.get(each.argval, vars(builtins).get(each.argval))
        else:
            named = vars(operator).get(each.argval) if each.opname in ("LOAD_ATTR", "LOAD_METHOD") else None
        if any(named is apart for apart in _TELLING_APART):
            return f"`{each.argval}`, which tells a symbolic value from a plain one, in {code.co_qualname}"
    places = _blind_places(code.co_filename)
    if places is None:
        return f"{code.co_qualname} of {code.co_filename}, which can't be read"
    for found in places.get((code.co_firstlineno, code.co_name), ()):
        if any(_is_no_number(name, known) for name in found.constants):
            continue
        if found.number_of is not None and _is_declared_number(*found.number_of, known):
            continue
        return f"{found.what}, at {Path(code.co_filename).name}:{found.line} in {code.co_qualname}"
    return None


def _resolved(name: str, known: Mapping[str, Any]) -> Any:
    head, *rest = name.split(".")
    found = known.get(head)
    for each in rest:
        found = getattr(found, each, None)
    return found


def _is_no_number(name: str, known: Mapping[str, Any]) -> bool:
    found = _resolved(name, known)
    return found is not None and type(found) not in (int, bool)


def _is_declared_number(error: str, attribute: str, known: Mapping[str, Any]) -> bool:
    made = getattr(_resolved(error, known), "__init__", None)
    return getattr(made, "__annotations__", {}).get(attribute) in (int, "int")


@cache
def _blind_places(filename: str) -> Mapping[tuple[int, str], tuple[Blind, ...]] | None:
    """For each function of a file, by first line and name, the places in it that may see through a symbolic value."""
    try:
        tree = ast.parse(Path(filename).read_text())
    except (OSError, SyntaxError):
        return None
    found: dict[tuple[int, str], tuple[Blind, ...]] = {}
    for node in ast.walk(tree):
        if name := _code_name(node):
            first = min(line for line in (node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))))  # type: ignore[attr-defined]
            found[first, name] = (*found.get((first, name), ()), *_blind_in(node))
    return found


def _code_name(node: ast.AST) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.Lambda():
            return "<lambda>"
        case ast.GeneratorExp():
            return "<genexpr>"
        case ast.ListComp():
            return "<listcomp>"
        case ast.SetComp():
            return "<setcomp>"
        case ast.DictComp():
            return "<dictcomp>"
    return ""


def _blind_in(function: ast.AST) -> Iterator[Blind]:
    parents = {child: parent for parent in ast.walk(function) for child in ast.iter_child_nodes(parent)}
    own = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(function):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                for one, op, other in zip((left, *comparators), ops, comparators, strict=False):
                    if isinstance(op, ast.Is | ast.IsNot) and not (_is_none(one) or _is_none(other)):
                        constants = tuple(name for each in (one, other) if (name := _dotted(each, own)))
                        yield Blind(node.lineno, "identity, which a symbolic value has not", constants)
            case ast.MatchSingleton(value=True | False):
                yield Blind(node.lineno, "identity, which a symbolic value has not")
            case ast.Name(id=name) if name in _RAISED_BY_SYMBOLS and not _is_raised(node, parents):
                yield Blind(node.lineno, f"a handler of {name}, which only a symbolic value may raise")
            case ast.ExceptHandler(type=None):
                yield Blind(node.lineno, "a handler of everything")
            case ast.ExceptHandler(type=kind, name=str(name)):
                yield from _texts_looked_at(node, name, _dotted(kind, own), parents)
            case ast.Global():
                yield Blind(node.lineno, "state between two calls")
            case ast.arguments(defaults=defaults, kw_defaults=more):
                for each in (*defaults, *more):
                    if isinstance(each, ast.List | ast.Dict | ast.Set):
                        yield Blind(each.lineno, "state between two calls")


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _dotted(node: ast.AST | None, own: set[str]) -> str:
    """A name that is not the function's own, with its attributes."""
    match node:
        case ast.Name(id=name) if name not in own:
            return name
        case ast.Attribute(value=value, attr=attr) if before := _dotted(value, own):
            return f"{before}.{attr}"
    return ""


def _is_raised(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    while (parent := parents.get(node)) is not None:
        if isinstance(parent, ast.Raise):
            return True
        node = parent
    return False


def _texts_looked_at(
    handler: ast.ExceptHandler, name: str, error: str, parents: Mapping[ast.AST, ast.AST]
) -> Iterator[Blind]:
    """The uses of a caught exception that do more than to pass its text on."""
    for node in ast.walk(handler):
        if isinstance(node, ast.Name) and node.id == name and not _is_passed_on(node, parents):
            parent = parents[node]
            number_of = (error, parent.attr) if isinstance(parent, ast.Attribute) and error else None
            yield Blind(node.lineno, "the text of an exception, which says nothing of a symbolic value", (), number_of)


def _is_passed_on(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    while not isinstance(node, ast.stmt):
        parent = parents[node]
        match parent:
            case ast.Call(func=function) if function is node or not is_telling(function):
                return False
            case ast.Call() | ast.Attribute() | ast.Tuple() | ast.keyword() | ast.JoinedStr() | ast.FormattedValue():
                pass
            case ast.Raise() | ast.Return() | ast.Expr():
                pass
            case _:
                return False
        node = parent
    return True


def is_telling(function: ast.AST) -> bool:
    """Whether a call of this only passes on the texts it is given."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _TELLING or name.lstrip("_")[:1].isupper()
    return False


def only_tells(node: ast.AST, texts: frozenset[str]) -> bool:
    """Whether nothing in `node` is decided by a text that is made there, or is in one of the variables `texts`."""
    return not any(_makes_text(part, texts) for each in ast.walk(node) for part in _deciding(each))


def _deciding(node: ast.AST) -> tuple[ast.AST, ...]:
    match node:
        case ast.IfExp(test=test):
            return (test,)
        case ast.comprehension(ifs=ifs):
            return tuple(ifs)
        case ast.Call(func=function):
            return () if is_telling(function) else (node,)
        case ast.Compare() | ast.BoolOp() | ast.Subscript() | ast.Lambda() | ast.NamedExpr():
            return (node,)
        case ast.UnaryOp(op=ast.Not()):
            return (node,)
    return ()


def _makes_text(node: ast.AST, texts: frozenset[str]) -> bool:
    for each in ast.walk(node):
        match each:
            case ast.JoinedStr() | ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                return True
            case ast.Name(id=name) if name in _TEXTS or name in texts:
                return True
    return False


def text_variables(tree: ast.AST) -> frozenset[str]:
    """The variables that are somewhere given a text made there."""
    return frozenset(
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _makes_text(node.value, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    )
