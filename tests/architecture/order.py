"""Determinism by construction: no order of the core may come from a hash.

An `immutables.Map` and a set iterate in hash order, which for most keys changes from run to run. So maps
are keyed by ints (or tuples of them), are walked only by `ordered()`, which sorts, and names are looked up.
What can't show an order (`sorted`, `min` and `max` without a key) is free.

The rule reads annotations: parameters, fields, results, locals assigned from those. Where it can't tell what
an attribute belongs to, it assumes the Map that some class of the core declares under that name.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

from tests.architecture.sources import Source

WALKER = "ordered"
MAPS = frozenset({"Map", "MapMutation"})
SETS = frozenset({"set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet"})
VIEWS = frozenset({"items", "keys", "values"})
# Callables that walk their argument in its own order. `len`, `in`, `get` and the like do not.
WALKERS = frozenset(
    """
    list tuple iter enumerate zip map filter sum any all min max next reversed dict sorted chain extend join
    """.split()
)
# What comes out of these does not depend on the order of what goes in, unless a `key` lets two elements tie.
ORDER_FREE = MappingProxyType(
    {
        "map": frozenset({"sorted", "min", "max"}),
        "set": frozenset({"sorted", "min", "max", "any", "all", "sum"}),
    }
)
# Look-ups by name that `ordered()` may walk all the same: a wildcard stands for every child of a trie's node,
# and what is found is a set of numbers.
WALKED_LOOK_UPS = frozenset({("core/names.py", "children_by_name")})


@dataclass
class Index:
    """What the core's files declare, by name."""

    aliases: dict[str, ast.expr] = field(default_factory=dict)
    fields: dict[str, dict[str, ast.expr]] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    bases: dict[str, list[str]] = field(default_factory=dict)
    results: dict[str, ast.expr] = field(default_factory=dict)
    type_variables: set[str] = field(default_factory=set)

    def maps_named(self, attribute: str) -> ast.expr | None:
        for fields in self.fields.values():
            if attribute in fields and kind_of(fields[attribute], self) == "map":
                return fields[attribute]
        return None

    def field_of(self, class_name: str, attribute: str) -> ast.expr | None:
        for name in [class_name, *self.bases.get(class_name, [])]:
            if attribute in self.fields.get(name, {}):
                return self.fields[name][attribute]
        return None


def index(sources: Iterable[Source]) -> Index:
    found = Index()
    files = list(sources)
    for source in files:
        for node in source.tree.body:
            _declare(node, found)
        for function in ast.walk(source.tree):
            if isinstance(function, ast.FunctionDef) and function.returns is not None:
                found.results[function.name] = function.returns
    for source in files:
        walk = _Walk(source, found)
        walk.visit(source.tree)
        for class_name, attributes in walk.attributes.items():
            found.fields[class_name] = attributes | found.fields.get(class_name, {})
    return found


def _declare(node: ast.stmt, found: Index) -> None:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func, args=[_, base])) if (
            _name(func) == "NewType"
        ):
            found.aliases[name] = base
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func)) if _name(func) == "TypeVar":
            found.type_variables.add(name)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.Name() | ast.BinOp() as value):
            found.aliases[name] = value
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value) if (
            _name(annotation) == "TypeAlias"
        ):
            found.aliases[name] = value
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
            found.constants[name] = annotation
        case ast.ClassDef(name=name, bases=bases, body=body):
            found.bases[name] = [_name(base) for base in bases]
            found.fields[name] = {
                statement.target.id: statement.annotation
                for statement in body
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            }


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _name(value)
        case _:
            return ""


def _resolved(annotation: ast.expr, known: Index) -> ast.expr:
    """The annotation behind quotes, aliases, Final, ClassVar, Annotated and Optional."""
    for _ in range(20):
        match annotation:
            case ast.Constant(value=str(text)):
                annotation = ast.parse(text, mode="eval").body
            case ast.Subscript(value=value, slice=inner) if _name(value) in ("Final", "ClassVar", "Optional"):
                annotation = inner
            case ast.Subscript(value=value, slice=ast.Tuple(elts=[inner, *_])) if _name(value) == "Annotated":
                annotation = inner
            case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
                annotation = left
            case ast.BinOp(left=ast.Constant(value=None), op=ast.BitOr(), right=right):
                annotation = right
            case ast.Name(id=name) if name in known.aliases:
                annotation = known.aliases[name]
            case _:
                return annotation
    return annotation


def kind_of(annotation: ast.expr | None, known: Index) -> str:
    """ "map", "set", or "" for everything else."""
    if annotation is None:
        return ""
    resolved = _resolved(annotation, known)
    if isinstance(resolved, ast.BinOp):
        return kind_of(resolved.left, known) or kind_of(resolved.right, known)
    name = _name(resolved)
    return "map" if name in MAPS else "set" if name in SETS else ""


def unstable_keys(source: Source, known: Index) -> list[str]:
    """Maps annotated with keys whose hash, and so whose order, changes from run to run."""
    found = []
    for named, annotation in _annotations(source.tree):
        for node in _maps_in(annotation):
            key = _key(node)
            if key is None:
                found.append(source.at(annotation, f"{named}: a Map without its key type; write Map[int, …]"))
            elif _is_stable(key, known) or (_is_a_look_up(named) and _is_text(key, known)):
                continue
            elif not (isinstance(key, ast.Name) and key.id in known.type_variables):
                found.append(
                    source.at(
                        annotation,
                        f"{named}: a Map keyed by {ast.unparse(key)}; key it by int, a NewType of int or"
                        " a tuple of those, or, if names are only looked up in it, call it …_by_name",
                    )
                )
    return found


def _annotations(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                alias = _name(annotation) == "TypeAlias" and value is not None
                yield _name(target), value if alias and value is not None else annotation
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value) if _name(value) in MAPS:
                yield name, value
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                yield name, annotation
            case ast.FunctionDef(name=name, returns=ast.expr() as annotation):
                yield name, annotation


def _maps_in(annotation: ast.expr) -> Iterator[ast.expr]:
    """Each Map in the annotation: the subscript where it has one, the bare name where not."""
    match annotation:
        case ast.Constant(value=str(text)):
            yield from _maps_in(ast.parse(text, mode="eval").body)
        case ast.Subscript(value=value, slice=inner):
            if _name(value) in MAPS:
                yield annotation
            yield from _maps_in(inner)
        case ast.Name() | ast.Attribute():
            if _name(annotation) in MAPS:
                yield annotation
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for element in elements:
                yield from _maps_in(element)
        case ast.BinOp(left=left, right=right):
            yield from _maps_in(left)
            yield from _maps_in(right)


def _key(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Subscript(slice=ast.Tuple(elts=[key, _])):
            return key
        case _:
            return None


def _is_stable(key: ast.expr, known: Index) -> bool:
    if any(isinstance(node, ast.Constant) and node.value is None for node in ast.walk(key)):
        return False  # the hash of None is an address
    match _resolved(key, known):
        case ast.Name(id="int"):
            return True
        case ast.Subscript(value=ast.Name(id="tuple"), slice=inner):
            elements = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return all(_is_ellipsis(element) or _is_stable(element, known) for element in elements)
        case ast.Name(id=name) if "NamedTuple" in known.bases.get(name, []):
            return all(_is_stable(element, known) for element in known.fields[name].values())
        case _:
            return False


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _is_text(key: ast.expr, known: Index) -> bool:
    resolved = _resolved(key, known)
    return isinstance(resolved, ast.Name) and resolved.id == "str"


def _is_a_look_up(name: str) -> bool:
    return name.endswith(("_by_name", "ByName"))


def hash_order(source: Source, known: Index) -> list[str]:
    """Places that walk a Map or a set in its own order."""
    walk = _Walk(source, known)
    walk.visit(source.tree)
    return walk.found


class _Walk(ast.NodeVisitor):
    def __init__(self, source: Source, known: Index) -> None:
        self.source = source
        self.known = known
        self.found: list[str] = []
        self.scopes: list[dict[str, ast.expr]] = [dict(known.constants)]
        self.classes: list[str] = []
        self.accepted: set[ast.expr] = set()
        self.attributes: dict[str, dict[str, ast.expr]] = {}  # what methods assign to self

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.classes.append(node.name)
        self.generic_visit(node)
        self.classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name == WALKER:
            return
        scope: dict[str, ast.expr] = {}
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            # An argument without an annotation hides what an outer scope says of the name.
            scope[argument.arg] = argument.annotation or ast.Constant(value=None)
        if self.classes and arguments and arguments[0].annotation is None:
            scope[arguments[0].arg] = ast.Name(id=self.classes[-1])
        self.scopes.append(scope)
        self.generic_visit(node)
        self.scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and not (self.classes and len(self.scopes) == 1):
            self.scopes[-1][node.target.id] = node.annotation
        self._assigned_to_self(node.target, node.annotation)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._bind(target.id, node.value)
            elif isinstance(target, ast.Attribute):
                self._assigned_to_self(target, self.type_of(node.value))
            elif isinstance(target, ast.Tuple | ast.List):
                self._walked(node.value, "unpacks")

    def _assigned_to_self(self, target: ast.expr, annotation: ast.expr | None) -> None:
        match target:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute) if self.classes and annotation:
                self.attributes.setdefault(self.classes[-1], {}).setdefault(attribute, annotation)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self._bind(node.target.id, node.value)

    def _bind(self, name: str, value: ast.expr) -> None:
        self.scopes[-1][name] = self.type_of(value) or ast.Constant(value=None)

    def visit_match_case(self, node: ast.match_case) -> None:
        self._bind_pattern(node.pattern)
        self.generic_visit(node)

    def _bind_pattern(self, pattern: ast.pattern) -> None:
        match pattern:
            case ast.MatchAs(pattern=ast.MatchClass(cls=cls) as matched, name=name):
                if name is not None:
                    self.scopes[-1][name] = cls
                self._bind_pattern(matched)
            case ast.MatchClass(cls=cls, kwd_attrs=attributes, kwd_patterns=patterns):
                for attribute, inner in zip(attributes, patterns, strict=True):
                    declared = self.known.field_of(_name(cls), attribute)
                    if isinstance(inner, ast.MatchAs) and inner.name is not None and declared is not None:
                        self.scopes[-1][inner.name] = declared
                    self._bind_pattern(inner)
            case ast.MatchOr(patterns=patterns) | ast.MatchSequence(patterns=patterns):
                for inner in patterns:
                    self._bind_pattern(inner)

    def visit_For(self, node: ast.For) -> None:
        self._walked(node.iter, "iterates over")
        self._bind_loop(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._walked(node.iter, "iterates over")
        self.generic_visit(node)

    def _visit_comprehension_of(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.scopes.append({})
        for generator in node.generators:
            # A set made from a set has no order to lose.
            if isinstance(node, ast.SetComp) and kind_of(self.type_of(generator.iter), self.known) == "set":
                self.accepted.add(generator.iter)
            self._bind_loop(generator.target, generator.iter)
        self.generic_visit(node)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension_of

    def _bind_loop(self, target: ast.expr, iterable: ast.expr) -> None:
        match target, iterable:
            case ast.Name(id=name), _:
                self.scopes[-1][name] = self._element_type(iterable) or ast.Constant(value=None)
            case ast.Tuple(elts=[_, ast.Name(id=name)]), ast.Call(func=func, args=[walked]) if _name(func) == WALKER:
                self.scopes[-1][name] = self._value_type(walked) or ast.Constant(value=None)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._walked(node.value, "unpacks")
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self._walked(node.value, "yields from")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node.func)
        if name == WALKER:
            for argument in node.args:
                self._given_to_the_walker(argument)
        elif name in WALKERS:
            for argument in node.args:
                if not node.keywords or all(keyword.arg == "default" for keyword in node.keywords):
                    self._accept_order_free(name, argument)
                self._walked(argument, f"gives {name}()")
        if isinstance(node.func, ast.Attribute) and name in VIEWS and node not in self.accepted:
            self._walked(node.func.value, f"takes .{name}() of")
        self.generic_visit(node)

    def _given_to_the_walker(self, argument: ast.expr) -> None:
        match argument:
            case ast.Call(func=ast.Attribute(attr="items" | "keys", value=walked)):
                self.accepted.add(argument)
            case walked:
                pass
        name = _name(walked)
        if _is_a_look_up(name) and (self.source.path, name) not in WALKED_LOOK_UPS:
            self._report(walked, f"iterates over {ast.unparse(walked)}: names are looked up, never iterated over")

    def _accept_order_free(self, callee: str, argument: ast.expr) -> None:
        iterables = [argument]
        if isinstance(argument, ast.GeneratorExp | ast.ListComp):
            iterables = [generator.iter for generator in argument.generators]
        for one in iterables:
            kind = kind_of(self.type_of(one), self.known)
            if kind and callee in ORDER_FREE[kind]:
                self.accepted.add(one)

    def _walked(self, walked: ast.expr, verb: str) -> None:
        kind = kind_of(self.type_of(walked), self.known)
        if kind and walked not in self.accepted:
            advice = {
                "map": f"a Map; go through {WALKER}(), which sorts (no Map? annotate what it belongs to)",
                "set": "a set; sort it first",
            }
            self._report(walked, f"{verb} {ast.unparse(walked)}, {advice[kind]}")

    def _report(self, node: ast.expr, message: str) -> None:
        self.found.append(self.source.at(node, message))

    def type_of(self, value: ast.expr) -> ast.expr | None:
        """The annotation that says what the expression is, where the source says so."""
        match value:
            case ast.Name(id=name):
                return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)
            case ast.Attribute(value=owner, attr=attribute):
                return self._type_of_attribute(owner, attribute)
            case ast.Subscript(value=container):
                return self._value_type(container)
            case ast.Call(func=ast.Attribute(value=container, attr="get")):
                return self._value_type(container)
            case ast.Call(func=ast.Attribute(value=owner, attr="set" | "delete" | "update" | "mutate" | "finish")):
                return self.type_of(owner)
            case ast.Call(func=func, args=[first, *_]) if _name(func) == "replace":
                return self.type_of(first)
            case ast.Call(func=func) if _name(func) in MAPS | SETS or _name(func) in self.known.fields:
                return func
            case ast.Call(func=func):
                return self.known.results.get(_name(func))
            case ast.Set() | ast.SetComp():
                return ast.Name(id="set")
            case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other]):
                return self.type_of(one) or self.type_of(other)
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
                return self.type_of(left)
            case ast.NamedExpr(value=inner):
                return self.type_of(inner)
            case _:
                return None

    def _type_of_attribute(self, owner: ast.expr, attribute: str) -> ast.expr | None:
        owner_type = self.type_of(owner)
        if owner_type is not None:
            class_name = _name(_resolved(owner_type, self.known))
            declared = self.known.field_of(class_name, attribute)
            if declared is not None:
                return declared
        return self.known.results.get(attribute) or self.known.maps_named(attribute)

    def _element_type(self, iterable: ast.expr) -> ast.expr | None:
        annotation = self.type_of(iterable)
        match None if annotation is None else _resolved(annotation, self.known):
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[element, ast.Constant(value=end)])):
                return element if end is ... else None
            case ast.Subscript(value=generic, slice=element) if _name(generic) in (
                "list",
                "Sequence",
                "Iterable",
            ):
                return element
            case _:
                return None

    def _value_type(self, container: ast.expr) -> ast.expr | None:
        annotation = self.type_of(container)
        if annotation is None:
            return None
        match _resolved(annotation, self.known):
            case ast.Subscript(value=generic, slice=ast.Tuple(elts=[_, value])) if _name(generic) in MAPS | {
                "dict",
                "Mapping",
                "MappingProxyType",
            }:
                return value
            case ast.Subscript(value=generic, slice=value) if _name(generic) in ("list", "Sequence"):
                return value
            case _:
                return None
