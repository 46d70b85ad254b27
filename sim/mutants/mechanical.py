"""Mistakes made by rule: in each function of core and storage, one thing at a time.

Promises  a mutant is named by what it changes, in which function, not by where that lies: the name holds as long as
          the function says the same. A sample is drawn by name too, so that it stays nearly the same while the code
          moves.
Never     changes annotations, docstrings, the texts of errors, checks of ours that can't fail, patterns, or how a
          module is put together: only what functions do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType

from msgspec import Struct

from dovetail.sim.mutants.mutant import Stale, path_of, source_of

LEFT_OUT = {
    "core.invariants": "it judges the state and decides nothing: a weaker judge is no bug of the broker",
    "runtime.storage.bench": "a measurement",
}
"""Modules without mutants, and why."""


class Mechanical(Struct, frozen=True):
    """One thing changed in one function."""

    name: str
    module: str
    function: str
    rule: str
    line: int
    """Where the statement begins that is changed, counted from the function's first line."""
    digest: str
    """Of the function as it stands: what was found out about a mutant holds for this text."""


def modules() -> list[str]:
    """The modules that are mutated."""
    found = []
    for package in ("dovetail.core", "dovetail.runtime.storage"):
        for path in sorted(Path(path_of(package)).parent.glob("*.py")):
            name = f"{package}.{path.stem}"
            if path.stem != "__init__" and short(name) not in LEFT_OUT:
                found.append(name)
    return found


def module_of(name: str) -> str:
    """The module that a mutant of that name is in."""
    head = f"dovetail.{name.partition(':')[0]}"
    return max((module for module in modules() if head.startswith(f"{module}.")), key=len, default="")


def short(module: str) -> str:
    """A module's name as people read it."""
    return module.removeprefix("dovetail.")


@cache
def mutants_of(module: str) -> tuple[Mechanical, ...]:
    """Every mechanical mutant of a module."""
    return tuple(mutant for mutant, _ in _mutants(module, ast.parse(source_of(module))))


def all_mutants() -> list[Mechanical]:
    """Every mechanical mutant there is."""
    return [mutant for module in modules() for mutant in mutants_of(module)]


@cache
def digests_of(module: str) -> dict[str, str]:
    """Of each function of a module: what it says, and what the module says around its functions."""
    tree = ast.parse(source_of(module))
    functions = dict(_functions(tree.body, ""))
    texts = {name: ast.unparse(function) for name, function in functions.items()}
    for function in functions.values():
        function.body = [ast.Pass()]
    around = ast.unparse(tree)
    return {name: blake2b((text + around).encode(), digest_size=6).hexdigest() for name, text in texts.items()}


def sample(count: int) -> list[Mechanical]:
    """`count` of them, every module with its share."""
    by_module: dict[str, list[Mechanical]] = {}
    mutants = all_mutants()
    for mutant in sorted(mutants, key=_lot):
        by_module.setdefault(mutant.module, []).append(mutant)
    ranked = [
        ((place + 0.5) / len(group), _lot(mutant), mutant)
        for group in by_module.values()
        for place, mutant in enumerate(group)
    ]
    return [mutant for _, _, mutant in sorted(ranked)[:count]]


def _lot(mutant: Mechanical) -> bytes:
    return blake2b(mutant.name.encode(), digest_size=8).digest()


def mutated_code(mutant: Mechanical) -> CodeType:
    """The code of the mutant's function with the mistake in it."""
    tree = ast.parse(source_of(mutant.module))
    for found, function in _mutants(mutant.module, tree, mutant.function):
        if found.name == mutant.name:
            code = compile(ast.fix_missing_locations(tree), path_of(mutant.module), "exec")
            return _code(code, mutant.function, _first_line(function))
    raise Stale(f"{mutant.name}: there is no such place any more")


def _code(code: CodeType, name: str, line: int) -> CodeType:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == name and constant.co_firstlineno == line:
                return constant
            if name.startswith(f"{constant.co_qualname}."):
                return _code(constant, name, line)
    raise Stale(f"{name} is not in the compiled module")


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


NOTES = "_statements_reached"
"""The name under which a module's functions find where to note what they reach."""


def probed_codes(module: str, places: list[tuple[str, int]]) -> Iterator[tuple[str, CodeType]]:
    """The code of each function with a note in front of each statement; `places` grows by what the notes mean."""
    tree = ast.parse(source_of(module))
    functions = dict(_functions(tree.body, ""))
    for name, function in functions.items():
        for node in list(ast.walk(function)):
            for field in ("body", "orelse", "finalbody"):
                body = getattr(node, field, None)
                if isinstance(body, list):
                    noted: list[ast.stmt] = []
                    for statement in body:
                        noted += [_note(len(places), statement), statement]
                        places.append((f"{module}:{name}", statement.lineno - _first_line(function)))
                    setattr(node, field, noted)
    code = compile(ast.fix_missing_locations(tree), path_of(module), "exec")
    for name, function in functions.items():
        yield name, _code(code, name, _first_line(function))


def _note(number: int, statement: ast.stmt) -> ast.stmt:
    place = ast.Subscript(ast.Name(NOTES, ast.Load()), ast.Constant(number), ast.Store())
    return ast.copy_location(ast.Assign([place], ast.Constant(1)), statement)


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node


def _mutants(module: str, tree: ast.Module, only: str = "") -> Iterator[tuple[Mechanical, ast.FunctionDef]]:
    """Each mutant, of one function or of all, while the tree has its mistake in it."""
    numbers = _numbers(tree)
    for name, function in _functions(tree.body, ""):
        if name.rpartition(".")[2] in ("__repr__", "__str__") or only not in ("", name):
            continue
        digest = blake2b(ast.unparse(function).encode(), digest_size=6).hexdigest()
        names: dict[str, int] = {}
        for spot in list(_spots(function, function, numbers, in_init=name.endswith("__init__"))):
            label = f"{short(module)}.{name}: {spot.text}"
            names[label] = names.get(label, 0) + 1
            if names[label] > 1:
                label += f" #{names[label]}"
            _put(spot, spot.wrong)
            line = spot.statement.lineno - _first_line(function)
            yield Mechanical(label, module, name, spot.rule, line, digest), function
            _put(spot, spot.right)


class _Spot(Struct):
    parent: ast.AST
    field: str
    place: int | None
    right: ast.AST
    wrong: ast.AST
    rule: str
    text: str
    statement: ast.stmt


def _put(spot: _Spot, node: ast.AST) -> None:
    if spot.place is None:
        setattr(spot.parent, spot.field, node)
    else:
        getattr(spot.parent, spot.field)[spot.place] = node


def _spots(parent: ast.AST, statement: ast.stmt, numbers: frozenset[str], *, in_init: bool) -> Iterator[_Spot]:
    for field, place, node in _children(parent):
        if _is_text_or_check(node):
            continue
        inner = node if isinstance(node, ast.stmt) else statement
        for rule, text, wrong in _wrongs(node, parent, field, numbers, in_init=in_init):
            wrong = ast.copy_location(wrong, node)
            yield _Spot(parent, field, place, node, wrong, rule, text, inner)
        if not isinstance(node, ast.Raise):
            yield from _spots(node, inner, numbers, in_init=in_init)


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(parent, ast.Call):
            continue
        if field == "pattern":
            continue
        if isinstance(value, ast.AST):
            yield field, None, value
        elif isinstance(value, list):
            yield from ((field, place, item) for place, item in enumerate(value) if isinstance(item, ast.AST))


def _is_text_or_check(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="check" | "assert_never"))):
            return True
        case ast.Call(func=ast.Name(id="check" | "assert_never" | "cast" | "Bug")):
            return True
        case ast.Raise(exc=ast.Call(func=ast.Name(id="Bug" | "AssertionError" | "TypeError"))):
            return True
    return False


_SHIFTED: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
}
_TURNED: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
_OTHER: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.FloorDiv(),
    ast.LShift: ast.RShift(),
    ast.RShift: ast.LShift(),
    ast.BitAnd: ast.BitOr(),
    ast.BitOr: ast.BitAnd(),
}
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
_Wrong = tuple[str, str, ast.AST]


def _wrongs(node: ast.AST, parent: ast.AST, field: str, numbers: frozenset[str], *, in_init: bool) -> Iterator[_Wrong]:
    if isinstance(node, ast.stmt):
        if _can_be_dropped(node, in_init=in_init):
            rule = "skipped record" if _is_record(node) else "dropped"
            yield rule, f"{_text(node)} → dropped", ast.If(ast.Constant(False), [node], [])
        return
    if not isinstance(node, ast.expr):
        return
    is_test = field == "test" or (isinstance(parent, ast.comprehension) and field == "ifs")
    if is_test:
        wrong = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else _not(node)
        yield "negated", f"if {_text(node)} → if not", wrong
    around = f" in {_text(parent)}" if isinstance(parent, ast.expr | ast.keyword | ast.Return) else ""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for place, op in enumerate(ops):
                other = _SHIFTED.get(type(op)) or (None if is_test and len(ops) == 1 else _TURNED.get(type(op)))
                if other:
                    wrong = ast.Compare(left, [*ops[:place], other, *ops[place + 1 :]], comparators)
                    yield "comparison", f"{_text(node)} → {_text(wrong)}", wrong
        case ast.BoolOp(op=op, values=values):
            for place in range(len(values)):
                rest = [*values[:place], *values[place + 1 :]]
                wrong = rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
                yield "forgotten condition", f"{_text(node)} → {_text(wrong)}", wrong
        case ast.UnaryOp(op=ast.Not(), operand=operand) if not is_test:
            yield "negated", f"{_text(node)} → {_text(operand)}", operand
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OTHER and not _is_sequence(left, right):
            wrong = ast.BinOp(left, _OTHER[type(op)], right)
            yield "arithmetic", f"{_text(node)} → {_text(wrong)}", wrong
        case ast.Constant(value=bool(value)) if isinstance(parent, ast.Return | ast.keyword | ast.Assign):
            yield "answer", f"{value} → {not value} in {_text(parent)}", ast.Constant(not value)
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield "constant", f"{value} → {value + 1}{around}", ast.Constant(value + 1)
        case ast.Name(id=name, ctx=ast.Load()) if name in numbers:
            yield "constant", f"{name} → {name} + 1{around}", ast.BinOp(node, ast.Add(), ast.Constant(1))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _OPPOSITE:
            wrong = ast.Call(ast.Name(_OPPOSITE[name], ast.Load()), args, keywords)
            yield "opposite", f"{_text(node)} → {_text(wrong)}", wrong
        case ast.Call(func=func, args=[first, second, *rest], keywords=keywords) if _can_be_swapped(first, second):
            wrong = ast.Call(func, [second, first, *rest], keywords)
            yield "swapped", f"{_text(node)} → {_text(wrong)}", wrong


def _not(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def _can_be_dropped(node: ast.stmt, *, in_init: bool) -> bool:
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break() | ast.Raise():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return not in_init
        case ast.Return(value=None):
            return True
    return False


def _is_record(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _text(node.value.func).endswith(".emit")


def _can_be_swapped(first: ast.expr, second: ast.expr) -> bool:
    simple = ast.Name | ast.Attribute
    return isinstance(first, simple) and isinstance(second, simple) and _text(first) != _text(second)


def _is_sequence(left: ast.expr, right: ast.expr) -> bool:
    literal = ast.Tuple | ast.List | ast.JoinedStr | ast.ListComp
    return any(
        isinstance(side, literal) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (left, right)
    )


def _numbers(tree: ast.Module) -> frozenset[str]:
    """The module's own constants that are numbers, or look like it where they are imported."""
    found = set()
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if name.isupper() and _is_number(value):
                    found.add(name)
    return frozenset(found)


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=int(value)):
            return not isinstance(value, bool)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
    return False


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:89]}…"
