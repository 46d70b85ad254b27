"""The project's source files, as the rules see them: a path, its text, its tree."""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core", "runtime", "sim", "spec", "proofs", "reports")
EVERYWHERE = (*FOLDERS, "dovetail", "tests", "examples")


@dataclass(frozen=True)
class Source:
    path: str  # from the repository's root, with slashes: core/cursor.py
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def folder(self) -> str:
        return self.path.partition("/")[0]

    @property
    def module(self) -> str:
        """The dotted name people import: core/cursor.py is dovetail.core.cursor."""
        parts = self.path.removesuffix(".py").removesuffix("/__init__").split("/")
        return ".".join(["dovetail", *parts] if parts[0] in FOLDERS else parts)

    def at(self, node: ast.AST, message: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {message}"


def sources(*folders: str) -> Iterator[Source]:
    """Every Python file below these folders; links are not followed, so each file comes once."""
    for folder in folders:
        for where, subfolders, names in os.walk(ROOT / folder, followlinks=False):
            subfolders.sort()
            for name in sorted(names):
                if name.endswith(".py"):
                    path = Path(where, name)
                    yield Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
