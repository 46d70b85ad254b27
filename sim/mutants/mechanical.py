"""Mistakes made by rule: comparisons, off by one, dropped statements, swapped arguments, skipped branches.

Promises  the spots of a module are numbered in the order of its source, so that a number means the same mistake as long
          as the module stays as it is.
Never     changes annotations, docstrings or how a module is put together: only what functions do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from hashlib import blake2b

from dovetail.sim.mutants.mutant import Mutant, source_of

MODULES = tuple(
    f"dovetail.{name}"
    for name in """
    core.append core.publish core.leases core.settling core.dispatch core.cursor core.evolve core.intervals core.timers
    core.sessions core.routing core.dead_letters core.awaken core.committer core.connection core.shelf core.turn
    core.node runtime.storage.journal runtime.storage.store runtime.storage.log runtime.storage.logs
    runtime.storage.recover runtime.storage.scan runtime.storage.checkpoint runtime.storage.index
    """.split()
)
_FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
Spot = tuple[ast.AST, str]


def spots(tree: ast.Module) -> list[Spot]:
    """Every place where a rule applies, and which."""
    return [spot for function in _functions(tree) for spot in _spots_in(function)]


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def _spots_in(function: ast.FunctionDef) -> Iterator[Spot]:
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.FunctionDef):
                continue
            if isinstance(node, ast.Call) and _is_check(node):
                continue
            match node:
                case ast.Compare(ops=[op]) if type(op) in _FLIPS:
                    yield node, "comparison"
                case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=int())):
                    yield node, "off by one"
                case ast.BinOp(op=ast.Add() | ast.Sub()):
                    yield node, "sign"
                case ast.BoolOp():
                    yield node, "and, or"
                case ast.UnaryOp(op=ast.Not()):
                    yield node, "not"
                case ast.Expr(value=ast.Call() | ast.YieldFrom() | ast.Yield()):
                    if not (isinstance(node.value, ast.Call) and _is_check(node.value)):
                        yield node, "dropped"
                case ast.Call(args=[ast.Name(), ast.Name(), *_]):
                    yield node, "swapped"
                case ast.Return(value=ast.Constant(value=bool())):
                    yield node, "answer"


def _is_check(call: ast.Call) -> bool:
    """A check of ours that never fails can be left out without anybody noticing: that is what it is for."""
    return isinstance(call.func, ast.Name) and call.func.id in ("check", "assert_never")


def mutate(tree: ast.Module, spot: int) -> ast.Module:
    """The tree with the mistake number `spot` in it."""
    node, rule = spots(tree)[spot]
    match node, rule:
        case ast.Compare(), _:
            node.ops = [_FLIPS[type(node.ops[0])]()]
        case ast.BinOp(right=ast.Constant(value=int(value))), "off by one":
            node.right = ast.Constant(value + 1 if value == 0 else value - 1)
        case ast.BinOp(op=op), _:
            node.op = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
        case ast.BoolOp(op=op), _:
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(), _:
            node.op = ast.UAdd()
            node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case ast.Expr(), _:
            node.value = ast.Constant(None)
        case ast.Call(args=[first, second, *rest]), _:
            node.args = [second, first, *rest]
        case ast.Return(value=ast.Constant(value=bool(value))), _:
            node.value = ast.Constant(not value)
    return ast.fix_missing_locations(tree)


def all_mutants() -> list[Mutant]:
    """Every mechanical mutant there is."""
    found: list[Mutant] = []
    for module in MODULES:
        tree = ast.parse(source_of(module))
        for number, (node, rule) in enumerate(spots(tree)):
            line = getattr(node, "lineno", 0)
            short = module.removeprefix("dovetail.")
            found.append(Mutant(f"{short}:{line}:{rule}#{number}", module, _text(node), spot=number))
    return found


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]


def sample(count: int) -> list[Mutant]:
    """A sample that is the same as long as the code is, spread over all modules."""
    return sorted(all_mutants(), key=_lot)[:count]


def _lot(mutant: Mutant) -> bytes:
    return blake2b(f"{mutant.module}{mutant.story}".encode(), digest_size=8).digest()
