"""Planted bugs: a shipped function with one thing wrong, for as long as a block lasts.

Promises  everyone who calls the function gets the wrong one, however they imported it, and the right one afterwards.
Never     writes a file: the code of the function object is exchanged.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from msgspec import Struct


class Mutant(Struct, frozen=True):
    """A function with one comparison or number changed."""

    label: str
    code: CodeType


@contextmanager
def swapped(function: Callable[..., Any], code: CodeType) -> Iterator[None]:
    """Have `function` run `code` until the block ends."""
    assert isinstance(function, FunctionType)
    before = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = before


def reworded(function: Callable[..., Any], old: str, new: str) -> CodeType:
    """The code of `function` with the text `old`, which must be in it once, replaced by `new`."""
    lines, first = inspect.getsourcelines(function)
    text = "".join(lines)
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is {text.count(old)} times in {function.__qualname__}, it must be there once")
    whole = list(linecache.getlines(function.__code__.co_filename))
    whole[first - 1 : first - 1 + len(lines)] = text.replace(old, new).splitlines(keepends=True)
    return _code_of(function, compile("".join(whole), function.__code__.co_filename, "exec"))


def mutants(function: Callable[..., Any]) -> Iterator[Mutant]:
    """`function` with each comparison moved by one or turned round, each number one up and one down, each sum a
    difference, and each minimum a maximum."""
    filename = function.__code__.co_filename
    tree = ast.parse("".join(linecache.getlines(filename)))
    constants = vars(sys.modules[function.__module__])
    for parent in list(ast.walk(_definition(tree, function))):
        if isinstance(parent, ast.arguments):
            continue
        for field, index, node in _children(parent):
            for wrong in _wrongs(node, constants):
                right_text, around = ast.unparse(node), _around(parent, node)
                _put(parent, field, index, ast.fix_missing_locations(ast.copy_location(wrong, node)))
                label = f"{function.__qualname__}: {right_text} → {ast.unparse(wrong)}{around}"
                yield Mutant(label, _code_of(function, compile(tree, filename, "exec")))
                _put(parent, field, index, node)


_SHIFTED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
_SWAPPED: dict[type[ast.operator], ast.operator] = {ast.Add: ast.Sub(), ast.Sub: ast.Add()}
_OPPOSITE = {"min": "max", "max": "min"}


def _wrongs(node: ast.AST, constants: dict[str, Any]) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for place, op in enumerate(ops):
                for other in _SHIFTED.get(type(op), ()):
                    yield ast.Compare(left, [*ops[:place], other(), *ops[place + 1 :]], comparators)
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Name(id=name) if name.isupper() and type(constants.get(name)) is int:
            yield ast.BinOp(node, ast.Add(), ast.Constant(1))
            yield ast.BinOp(node, ast.Sub(), ast.Constant(1))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SWAPPED:
            yield ast.BinOp(left, _SWAPPED[type(op)], right)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _OPPOSITE:
            yield ast.Call(ast.Name(_OPPOSITE[name], ast.Load()), args, keywords)


def _around(parent: ast.AST, node: ast.AST) -> str:
    """Where a lone number or name stands, so that a label says which of several it is."""
    is_lone = isinstance(node, ast.Constant | ast.Name) and isinstance(parent, ast.expr)
    return f" in {ast.unparse(parent)}" if is_lone else ""


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(value, ast.AST):
            yield field, None, value
        elif isinstance(value, list):
            yield from ((field, place, item) for place, item in enumerate(value) if isinstance(item, ast.AST))


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _definition(tree: ast.Module, function: Callable[..., Any]) -> ast.FunctionDef:
    first = function.__code__.co_firstlineno
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            if node.name == function.__name__ and min(lines) == first:
                return node
    raise ValueError(f"the source of {function.__qualname__} was not found")


def _code_of(function: Callable[..., Any], module: CodeType) -> CodeType:
    for constant in module.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == function.__code__.co_qualname:
                return constant
            if function.__code__.co_qualname.startswith(constant.co_qualname + "."):
                return _code_of(function, constant)
    raise ValueError(f"no code of {function.__qualname__} in its own module")
