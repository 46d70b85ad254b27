"""Who may import whom: the arrows between the folders, and the core's few libraries."""

import ast
import sys
from collections.abc import Iterator

from tests.architecture.sources import FOLDERS, Source

# For each folder the prefixes of the project's modules it may import. The face and the tests see everything.
ARROWS = {
    "spec": ("dovetail.spec",),
    "core": ("dovetail.core",),
    "runtime": ("dovetail.core", "dovetail.runtime"),
    "sim": ("dovetail.core", "dovetail.runtime.storage", "dovetail.sim"),
    "proofs": ("dovetail.core", "dovetail.proofs"),
    "reports": ("dovetail.sim", "dovetail.runtime.client", "dovetail.reports"),
}

CORE_LIBRARIES = frozenset({"immutables", "msgspec", "crc32c"})

IMPURE = frozenset(
    """
    asyncio atexit builtins concurrent contextvars ctypes curses datetime fcntl fileinput ftplib gc
    getpass glob http imaplib importlib inspect io locale logging mmap multiprocessing os pathlib
    pickle platform poplib posix pty queue random readline resource sched secrets select selectors
    shelve shutil signal smtplib socket socketserver sqlite3 ssl subprocess sys syslog tempfile
    termios threading time timeit traceback tracemalloc urllib uuid warnings weakref webbrowser
    _thread
    """.split()
)


def imported(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Every module or name the file imports, as an absolute dotted name, wherever in the file it does so."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node, alias.name
            case ast.ImportFrom(module=module, names=names, level=level):
                base = ".".join(part for part in (_package(source, level), module) if part)
                for alias in names:
                    yield node, base if alias.name == "*" else f"{base}.{alias.name}"
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if ast.unparse(func) in _DYNAMIC_IMPORTS:
                yield node, name


_DYNAMIC_IMPORTS = frozenset({"__import__", "import_module", "importlib.import_module"})


def _package(source: Source, level: int) -> str:
    if level == 0:
        return ""
    parts = source.module.split(".")
    up = level - 1 if source.path.endswith("/__init__.py") else level
    return ".".join(parts[: len(parts) - up])


def _is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def against_the_arrows(source: Source) -> list[str]:
    """Imports of the project's own modules that the folder must not know about."""
    allowed = ARROWS.get(source.folder)
    if allowed is None:
        return []
    return [
        source.at(node, f"{source.folder}/ imports {name}; of the project it may import {', '.join(allowed)}")
        for node, name in imported(source)
        if name.partition(".")[0] in ("dovetail", "tests", "examples")
        and not any(_is_within(name, prefix) for prefix in allowed)
    ]


def bare_imports(source: Source) -> list[str]:
    """Imports of `core` that should be of `dovetail.core`: installed, there is no module of the bare name."""
    return [
        source.at(node, f"imports {name}; write dovetail.{name}")
        for node, name in imported(source)
        if name.partition(".")[0] in FOLDERS
    ]


def foreign_to_the_core(source: Source) -> list[str]:
    """Imports of the core that are neither the project's, nor pure, nor one of its few libraries."""
    found = []
    for node, name in imported(source):
        top = name.partition(".")[0]
        if top in IMPURE:
            found.append(source.at(node, f"imports {name}; the core is pure: have the shell hand it in as an input"))
        elif top not in CORE_LIBRARIES and top not in sys.stdlib_module_names and top not in _PROJECT:
            allowed = ", ".join(sorted(CORE_LIBRARIES))
            found.append(source.at(node, f"imports {name}; the core's libraries are {allowed}"))
    return found


_PROJECT = frozenset({"dovetail", "tests", "examples", *FOLDERS})
