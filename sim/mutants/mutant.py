"""A mistake as data: in which module, what stands there, and what would stand there instead.

Promises  a mutant whose place is gone says so; a mechanical one is found again by its number in the module's tree.
Never     touches a file of the product.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec

from msgspec import Struct


class Stale(Exception):
    """The code that a mutant changes is not there any more."""


class Mutant(Struct, frozen=True):
    """`old`, which stands once in `module`, becomes `new`; with `spot` it is a mechanical one instead."""

    name: str
    module: str
    story: str = ""
    old: str = ""
    new: str = ""
    spot: int = -1
    scenarios: tuple[str, ...] = ()
    """Where to look first."""


def source_of(module: str) -> str:
    """A module's source as it lies there."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise Stale(f"there is no module {module}")
    with open(spec.origin, encoding="utf-8") as file:
        return file.read()


def mutated(mutant: Mutant) -> str:
    """The module's source with the mistake in it."""
    source = source_of(mutant.module)
    if mutant.spot >= 0:
        from dovetail.sim.mutants import mechanical

        return ast.unparse(mechanical.mutate(ast.parse(source), mutant.spot))
    count = source.count(mutant.old)
    if count != 1:
        raise Stale(f"{mutant.name}: {mutant.module} has {count} places like {mutant.old!r}, one is needed")
    return source.replace(mutant.old, mutant.new)
