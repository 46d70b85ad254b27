"""Trying mechanical mutants: which detectors may notice each, in which order, on how many cores.

Promises  the cheapest detectors that run the changed lines come first: tests, then the model, then simulated runs; what
          was found is written down at once, so that work that was broken off goes on where it was.
Never     counts what a detector says that says it of the unchanged broker too.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dovetail.sim.mutants.equivalents import EQUIVALENT
from dovetail.sim.mutants.mechanical import Mechanical
from dovetail.sim.mutants.trial import JOBS, MODEL, Outcome, Reach, Survey, Try

BUDGET_S = 20.0
"""Processor time for one mutant."""
TESTS_S = 10.0
"""How much of that is spent on tests, as they cost on the unchanged broker under observation."""
SIMULATED = (
    *(f"sim:swarm:{seed}" for seed in range(2)),
    *(f"sim:{name}:0" for name in "crash-after-confirm rebalance-storm damaged-checkpoint torn-writes".split()),
)
SIMULATED_S = 3.0
UNKNOWN_S = 0.2
"""What a test is taken to cost that was not observed."""
SURVEYED = 10
"""Tests that are observed at a time."""
_Course = list[tuple[str, float]]


class Found(Struct, frozen=True, omit_defaults=True):
    """What became of one mutant."""

    name: str
    digest: str
    rule: str
    kind: str = ""
    """test, simulation, model or proof; nothing when it got away."""
    by: str = ""
    how: str = ""
    tried: int = 0
    runs: int = 0
    seconds: float = 0.0
    reached: int = 0
    """How many tests run the lines that were changed."""

    @property
    def is_equivalent(self) -> bool:
        """It got away, and is known to do what the unchanged function does."""
        return not self.kind and self.name in EQUIVALENT


class Trials:
    """Results and what tests reach, kept in a directory."""

    def __init__(self, where: Path, jobs: int, *, budget_s: float = BUDGET_S, observe: bool = True) -> None:
        where.mkdir(parents=True, exist_ok=True)
        self._results = where / "results.jsonl"
        self._map = where / "reach.jsonl"
        self._jobs = jobs
        self._observe = observe
        self._budget_s = budget_s

    def known(self) -> dict[str, Found]:
        """What was found out before."""
        return {found.name: found for found in _read(self._results, Found)}

    def carry_out(self, mutants: Sequence[Mechanical]) -> Iterator[Found]:
        """What becomes of each; those caught before, in functions that have not changed since, are not tried again."""
        known = self.known()
        left = []
        for mutant in mutants:
            found = known.get(mutant.name)
            if found and found.kind and found.digest == mutant.digest:
                yield found
            else:
                left.append(mutant)
        if not left:
            return
        server = Server(self._jobs)
        try:
            reaches = self._reaches(server)
            courses = [_course(mutant, reaches) for mutant in left]
            orders = [Try(mutant, course, self._budget_s) for mutant, course in zip(left, courses, strict=True)]
            with self._results.open("ab") as file:
                for place, answer in server.carry_out(orders):
                    found = _found(left[place], courses[place], msgspec.json.decode(answer, type=Outcome))
                    file.write(msgspec.json.encode(found) + b"\n")
                    file.flush()
                    yield found
        finally:
            server.end()

    def _reaches(self, server: Server) -> list[Reach]:
        """What each test runs; those that are not known yet are observed."""
        known = {reach.id: reach for reach in _read(self._map, Reach)}
        ids = [id for id in server.detectors if not id.startswith("sim:")]
        known |= {_function(id): reach for id, reach in known.items()}
        new = list(
            {_function(id): id for id in reversed(ids) if _function(id) not in known and MODEL not in id}.values()
        )
        if not self._observe:
            new = []
        orders = [Survey(new[start : start + SURVEYED]) for start in range(0, len(new), SURVEYED)]
        with self._map.open("ab") as file:
            for _, answer in server.carry_out(orders):
                for reach in msgspec.json.decode(answer, type=list[Reach]):
                    known[_function(reach.id)] = reach
                    file.write(msgspec.json.encode(reach) + b"\n")
                file.flush()
        return [replace(known.get(_function(id), Reach("", True, UNKNOWN_S, {})), id=id) for id in ids]


def _function(id: str) -> str:
    """A test without its parameters: one of them is observed for all."""
    return id.partition("[")[0]


def _found(mutant: Mechanical, course: _Course, outcome: Outcome) -> Found:
    return Found(
        mutant.name,
        mutant.digest,
        mutant.rule,
        _kind(outcome.by),
        outcome.by,
        outcome.how or outcome.error,
        outcome.tried,
        outcome.runs,
        round(outcome.seconds, 2),
        sum(not id.startswith("sim:") for id, _ in course),
    )


def _course(mutant: Mechanical, reaches: Sequence[Reach]) -> _Course:
    function = f"{mutant.module}:{mutant.function}"
    first, last = mutant.lines
    near = [reach for reach in reaches if reach.fine and function in reach.lines]
    near = [reach for reach in near if any(first <= line <= last for line in reach.lines[function])] or near
    near.sort(key=lambda reach: reach.seconds)
    stem = mutant.module.rpartition(".")[2]
    unseen = [reach for reach in reaches if not reach.lines and _is_about(reach.id, mutant.module)]
    near += sorted(unseen, key=lambda reach: f"/test_{stem}" not in reach.id)
    course: _Course = []
    spent = 0.0
    for reach in near:
        spent += reach.seconds
        if course and spent > TESTS_S:
            break
        course.append((reach.id, reach.seconds))
    if mutant.module.startswith("dovetail.core."):
        course += [(reach.id, reach.seconds) for reach in reaches if MODEL in reach.id]
    return course + [(id, SIMULATED_S) for id in SIMULATED]


def _is_about(id: str, module: str) -> bool:
    """Whether a test that was not observed is in a file that names the module in its imports."""
    return MODEL not in id and module in _imports(id.partition("::")[0])


@cache
def _imports(path: str) -> frozenset[str]:
    found = set()
    for node in ast.parse(Path(path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def _kind(id: str) -> str:
    if not id:
        return ""
    if id.startswith("sim:"):
        return "simulation"
    if MODEL in id or id.startswith("tests/spec"):
        return "model"
    return "proof" if id.startswith("tests/proofs") else "test"


def _read(path: Path, kind: type[Any]) -> Iterator[Any]:
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                yield msgspec.json.decode(line, type=kind)
            except msgspec.DecodeError:
                continue  # the last line of work that was broken off


class Server:
    """A process that tries mutants, several at a time."""

    def __init__(self, jobs: int) -> None:
        command = [sys.executable, "-m", "dovetail.sim.mutants.trial"]
        environment = {**os.environ, JOBS: str(jobs)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.detectors: list[str] = msgspec.json.decode(self._line(), type=list[str])

    def carry_out(self, orders: Sequence[Try | Survey]) -> Iterator[tuple[int, msgspec.Raw]]:
        """The answers as they come, each with the place of its order."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(msgspec.json.encode(each) + b"\n" for each in enumerate(orders)))
        self._process.stdin.flush()
        for _ in orders:
            yield msgspec.json.decode(self._line(), type=tuple[int, msgspec.Raw])

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that tries mutants has ended")
        return line

    def end(self) -> None:
        """No more orders."""
        self._process.kill()
        self._process.wait()
