"""A mistake as data: in which module, what stands there, and what would stand there instead.

Promises  a mutant whose place is gone says so.
Never     touches a file of the product.
"""

from __future__ import annotations

from importlib.util import find_spec

from msgspec import Struct


class Stale(Exception):
    """The code that a mutant changes is not there any more."""


class Mutant(Struct, frozen=True):
    """`old`, which stands once in `module`, becomes `new`."""

    name: str
    module: str
    story: str
    old: str
    new: str
    scenarios: tuple[str, ...] = ()
    """Where to look first."""


def path_of(module: str) -> str:
    """Where a module's source lies."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise Stale(f"there is no module {module}")
    return spec.origin


def source_of(module: str) -> str:
    """A module's source as it lies there."""
    with open(path_of(module), encoding="utf-8") as file:
        return file.read()


def mutated(mutant: Mutant) -> str:
    """The module's source with the mistake in it."""
    source = source_of(mutant.module)
    count = source.count(mutant.old)
    if count != 1:
        raise Stale(f"{mutant.name}: {mutant.module} has {count} places like {mutant.old!r}, one is needed")
    return source.replace(mutant.old, mutant.new)
