"""What the core never does: wait, keep state between calls, or touch the world."""

import ast
from collections.abc import Iterator

from tests.architecture.sources import Source

FORBIDDEN_CALLS = {
    "print": "the core has no output; return an effect",
    "input": "the core has no input but its arguments",
    "open": "the core has no I/O; return an effect",
    "id": "an address changes with every run; use a number assigned by a record",
    "hash": "it changes with PYTHONHASHSEED; use a checksum",
    "eval": "write the function",
    "exec": "write the function",
    "globals": "the core has no global state",
    "breakpoint": "the core has no I/O",
    "force_setattr": "records are frozen; make a new one",
    "object.__setattr__": "records are frozen; make a new one",
}

MUTABLE_MAKERS = frozenset(
    "list dict set bytearray defaultdict deque Counter OrderedDict ChainMap array count cycle iter".split()
)
FREEZERS = frozenset({"MappingProxyType", "frozenset", "tuple", "Map"})
CACHES = frozenset({"cache", "lru_cache", "cached_property"})


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value) | ast.Call(func=value):
            return _last_name(value)
        case _:
            return ""


def asynchronous(source: Source) -> list[str]:
    kinds = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    found: list[ast.AST] = [node for node in ast.walk(source.tree) if isinstance(node, kinds)]
    found += [node.iter for node in ast.walk(source.tree) if isinstance(node, ast.comprehension) and node.is_async]
    return [
        source.at(node, "the core does not wait; return an effect and take its result as an input") for node in found
    ]


def global_state(source: Source) -> list[str]:
    """`global` statements, caches, and containers of a module that someone could change."""
    found = []
    for node in ast.walk(source.tree):
        match node:
            case ast.Global(names=names):
                found.append(source.at(node, f"global {', '.join(names)}; the core's state is an argument"))
            case ast.FunctionDef(decorator_list=decorators, name=name):
                found += [
                    source.at(node, f"{name} is cached; a cache is state that outlives the call")
                    for decorator in decorators
                    if _last_name(decorator) in CACHES
                ]
    for statement in _statements_run_at_import(source.tree.body):
        found += _mutable_value(source, statement)
    return found


def _statements_run_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for block in ("body", "orelse", "finalbody"):
            yield from _statements_run_at_import(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements_run_at_import(handler.body)


def _mutable_value(source: Source, statement: ast.stmt) -> list[str]:
    match statement:
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return []
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return [
                source.at(node, "a mutable container at module level; use a tuple, a frozenset or MappingProxyType")
                for node in _mutable_parts(value)
            ]
        case _:
            return []


def _mutable_parts(value: ast.expr) -> Iterator[ast.expr]:
    match value:
        case ast.Call(func=func) if _last_name(func) in MUTABLE_MAKERS:
            yield value
        case ast.Call(func=func, args=args) if _last_name(func) in FREEZERS:
            for argument in args:
                yield from _mutable_elements(argument)
        case ast.List() | ast.Dict() | ast.Set() | ast.ListComp() | ast.DictComp() | ast.SetComp():
            yield value
        case ast.Tuple(elts=elements):
            for element in elements:
                yield from _mutable_parts(element)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _mutable_parts(body)
            yield from _mutable_parts(orelse)
        case ast.BinOp(left=left, right=right):
            yield from _mutable_parts(left)
            yield from _mutable_parts(right)
        case ast.NamedExpr(value=inner):
            yield from _mutable_parts(inner)


def _mutable_elements(argument: ast.expr) -> Iterator[ast.expr]:
    """What stays mutable in a container that is itself about to be frozen."""
    match argument:
        case ast.List(elts=elements) | ast.Set(elts=elements) | ast.Dict(values=elements):
            for element in elements:
                yield from _mutable_parts(element)
        case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
            yield from _mutable_parts(element)
        case ast.DictComp(value=element):
            yield from _mutable_parts(element)
        case _:
            yield from _mutable_parts(argument)


def forbidden_calls(source: Source) -> list[str]:
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            short = name if isinstance(node.func, ast.Name) or name in FORBIDDEN_CALLS else _only(name)
            if short in FORBIDDEN_CALLS:
                found.append(source.at(node, f"calls {name}(); {FORBIDDEN_CALLS[short]}"))
    return found


def _only(name: str) -> str:
    """`msgspec.structs.force_setattr` is the function; `x.hash()` is somebody's method of that name."""
    return "force_setattr" if name.endswith(".force_setattr") else ""
