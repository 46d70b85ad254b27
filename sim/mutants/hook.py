"""Loads one module of the product with a mistake in it, in a process of its own.

Promises  whoever imports the module gets the mistaken one; all else is as it is.
Never     is imported by anything but the processes that hunt mutants.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from dovetail.sim.mutants.mutant import Mutant, mutated


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._mistaken = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mistaken, self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._source)
        return spec


def install(mutant: Mutant) -> None:
    """Plant the mistake, before anything has imported the module."""
    source = mutated(mutant)
    for name in [name for name in sys.modules if name.startswith("dovetail.") and ".mutants" not in name]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder(mutant.module, source))
