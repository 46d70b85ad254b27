"""Who can be called from where, by looking names up as the interpreter would: for functions that nobody uses any more.

A name stands for the object that it has in its module; an attribute of something unknown for the methods of that name
of classes that the same module mentions, or of the only class that has such a method.
"""

from __future__ import annotations

import ast
import builtins
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from immutables import Map

_CONTAINERS = (set, dict, list, tuple, str, bytes, bytearray, memoryview, deque, Map, type({}.items()))


def reachable(sources: Mapping[str, tuple[ModuleType, str]], roots: Iterable[str]) -> set[Callable[..., Any]]:
    """Every function of these modules, by name with their source, that something in a root module leads to."""
    trees = {name: ast.parse(source) for name, (_, source) in sources.items()}
    modules = {name: module for name, (module, _) in sources.items()}
    named = {name: {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} for name, tree in trees.items()}
    methods: dict[str, list[tuple[type, Callable[..., Any]]]] = {}
    bodies: dict[Callable[..., Any], tuple[str, ast.AST]] = {}
    for name, tree in trees.items():
        for function, owner, node in _functions(modules[name], tree):
            bodies[function] = name, node
            if owner is not None:
                methods.setdefault(function.__name__, []).append((owner, function))
    found: set[Callable[..., Any]] = set()
    entered: set[str] = set()
    waiting: list[tuple[str, ast.AST]] = []

    def enter(name: str) -> None:
        if name in trees and name not in entered:
            entered.add(name)
            waiting.extend((name, each) for each in trees[name].body if not isinstance(each, ast.FunctionDef))

    def reach(function: Callable[..., Any]) -> None:
        if function in bodies and function not in found:
            found.add(function)
            enter(bodies[function][0])
            waiting.append(bodies[function])

    for root in roots:
        enter(root)
        for function, (name, _) in bodies.items():
            if name == root:
                reach(function)
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, ast.ClassDef) and name not in roots:
            continue  # its methods count when somebody calls them
        for each in _loads(node):
            target = _resolved(each, modules[name])
            if isinstance(target, FunctionType):
                reach(target)
            elif isinstance(target, type):
                for function in vars(target).values():
                    if isinstance(function, FunctionType) and function.__name__.startswith("__"):
                        reach(function)
            elif target is None and isinstance(each, ast.Attribute):
                is_common = any(hasattr(kind, each.attr) for kind in _CONTAINERS)
                possible = methods.get(each.attr, [])
                is_only = len(possible) == 1 and not is_common
                for owner, function in possible:
                    if is_only or owner.__name__ in named[name] or owner.__module__ == modules[name].__name__:
                        reach(function)
    return found


def _functions(module: ModuleType, tree: ast.Module) -> Iterator[tuple[Callable[..., Any], type | None, ast.AST]]:
    for node in tree.body:
        found = vars(module).get(getattr(node, "name", ""))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and isinstance(found, FunctionType):
            yield found, None, node
        elif isinstance(node, ast.ClassDef) and isinstance(found, type):
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    method = vars(found).get(each.name)
                    method = getattr(method, "fget", getattr(method, "__func__", method))
                    if isinstance(method, FunctionType):
                        yield method, found, each


def _loads(node: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    own = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    own |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) or (isinstance(each, ast.Name) and each.id not in own):
            yield each


def _resolved(node: ast.AST, module: ModuleType) -> Any:
    match node:
        case ast.Name(id=name):
            return vars(module).get(name, vars(builtins).get(name))
        case ast.Attribute(value=value, attr=attr):
            before = _resolved(value, module)
            return getattr(before, attr, None) if isinstance(before, ModuleType | type) else None
    return None
