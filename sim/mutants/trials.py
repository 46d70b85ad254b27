"""Trying mechanical mutants: which detectors may notice each, in which order, on how many cores.

Promises  the cheapest detectors that run the changed lines come first: tests, then the model, then simulated runs; what
          most notice is known before what few do is looked for; what was found is written down at once, so that work
          that was broken off goes on where it was, and a mutant that got away is not tried by the same ones again.
Never     counts what a detector says that says it of the unchanged broker too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dovetail.sim.mutants.equivalents import EQUIVALENT
from dovetail.sim.mutants.mechanical import Mechanical, digests_of, modules
from dovetail.sim.mutants.trial import JOBS, MODEL, Outcome, Reach, Survey, Try

BUDGET_S = 30.0
"""Processor time for one mutant."""
TESTS_S = 10.0
SIMULATED_S = 10.0
"""How much of that is spent on tests and on simulated runs, as they cost on the unchanged broker."""
QUICK_S = 2.0
"""How much of the tests each mutant gets before any of them gets more; those that are equivalent get no more."""
OWN = 4
"""How many times as much a test may cost that is named after the mutant's module, and still be tried first."""
SURVEYED = 40
"""Detectors that are observed at a time."""
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
    against: str = ""
    """What it was tried by, all of it, when it got away."""

    @property
    def is_equivalent(self) -> bool:
        """It got away, and is known to do what the unchanged function does."""
        return not self.kind and self.name in EQUIVALENT


class Trials:
    """Results and what tests reach, kept in a directory."""

    def __init__(self, where: Path, jobs: int, *, budget_s: float = BUDGET_S) -> None:
        where.mkdir(parents=True, exist_ok=True)
        self._results = where / "results.jsonl"
        self._map = where / "reach.jsonl"
        self._products = where / "products.jsonl"
        self._jobs = jobs
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
            yield from self._tried(server, left, known)
        finally:
            server.end()

    def _tried(self, server: Server, mutants: Sequence[Mechanical], known: dict[str, Found]) -> Iterator[Found]:
        reaches = self._reaches(server)
        digests = {each.reach.id: each.digest for each in reaches}
        work = []
        for mutant in mutants:
            course = _course(mutant, reaches)
            found = known.get(mutant.name)
            if found and found.against == _against(mutant, course, digests):
                yield found
            else:
                work.append((mutant, course, list(_up_to(QUICK_S, course))))
        orders = [Try(mutant, head, self._budget_s) for mutant, _, head in work]
        hard: list[tuple[Mechanical, _Course, Outcome]] = []
        with self._results.open("ab") as file:

            def note(mutant: Mechanical, course: _Course, outcome: Outcome) -> Found:
                against = "" if outcome.by else _against(mutant, course, digests)
                found = _found(mutant, course, outcome, against)
                file.write(msgspec.json.encode(found) + b"\n")
                file.flush()
                return found

            for place, answer in server.carry_out(orders):
                mutant, course, head = work[place]
                outcome = msgspec.json.decode(answer, type=Outcome)
                if outcome.by or len(head) == len(course) or mutant.name in EQUIVALENT:
                    yield note(mutant, course, outcome)
                else:
                    hard.append((mutant, course, outcome))
            orders = [
                Try(mutant, course[outcome.tried :], self._budget_s - outcome.seconds)
                for mutant, course, outcome in hard
            ]
            for place, answer in server.carry_out(orders):
                mutant, course, first = hard[place]
                outcome = msgspec.json.decode(answer, type=Outcome)
                yield note(mutant, course, _together(first, outcome))

    def _reaches(self, server: Server) -> list[_Known]:
        """What each detector runs, and of which product that is known; new and changed tests are observed."""
        now = _Product(_digest(*[f"{place} {digest}" for place, digest in _places().items()]), _places())
        products = {product.id: product for product in _read(self._products, _Product)}
        if now.id not in products:
            with self._products.open("ab") as file:
                file.write(msgspec.json.encode(now) + b"\n")
        known: dict[str, _Known] = {}
        for seen in _read(self._map, _Seen):
            if seen.text == _text_of(seen.reach.id) and seen.product in products:
                known[seen.reach.id] = _Known(seen.reach, products[seen.product].digests)
        new = [id for id in server.detectors if id not in known]
        orders = [Survey(new[start : start + SURVEYED]) for start in range(0, len(new), SURVEYED)]
        with self._map.open("ab") as file:
            for _, answer in server.carry_out(orders):
                for reach in msgspec.json.decode(answer, type=list[Reach]):
                    known[reach.id] = _Known(reach, now.digests)
                    file.write(msgspec.json.encode(_Seen(_text_of(reach.id), now.id, reach)) + b"\n")
                file.flush()
        return [known[id] for id in server.detectors if id in known]


class _Product(Struct, frozen=True):
    """Digests of its functions, by `module:function`."""

    id: str
    digests: dict[str, str]


class _Seen(Struct, frozen=True):
    text: str
    """Digest of the test's file."""
    product: str
    reach: Reach


class _Known(Struct, frozen=True):
    reach: Reach
    digests: dict[str, str]
    """Of the product's functions when that was observed."""

    def may_notice(self, mutant: Mechanical) -> bool:
        """Whether it runs the changed statement, as far as that is known: what is out of date may cost a catch, but
        never makes one."""
        place = f"{mutant.module}:{mutant.function}"
        then = self.digests.get(place)
        if then is None:
            return any(each.startswith(f"{mutant.module}:") for each in self.reach.lines)
        lines = self.reach.lines.get(place, ())
        return mutant.line in lines if then == _places()[place] else bool(lines)

    @property
    def digest(self) -> str:
        """Of the test's file and of all functions that it runs."""
        places = [f"{place} {_places().get(place)}" for place in sorted(self.reach.lines)]
        return _digest(self.reach.id, _text_of(self.reach.id), *places)


@cache
def _places() -> dict[str, str]:
    return {f"{module}:{name}": digest for module in modules() for name, digest in digests_of(module).items()}


@cache
def _text_of(id: str) -> str:
    path = Path(id.partition("::")[0])
    return _digest(path.read_text("utf-8")) if path.is_file() else ""


def _digest(*texts: str) -> str:
    return blake2b(" ".join(texts).encode(), digest_size=6).hexdigest()


def _found(mutant: Mechanical, course: _Course, outcome: Outcome, against: str) -> Found:
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
        against,
    )


def _together(first: Outcome, then: Outcome) -> Outcome:
    return replace(
        then, tried=first.tried + then.tried, runs=first.runs + then.runs, seconds=first.seconds + then.seconds
    )


def _against(mutant: Mechanical, course: _Course, digests: dict[str, str]) -> str:
    """Of a mutant and all that may notice it: while both are the same, so is what comes of it."""
    return _digest(mutant.name, mutant.digest, *sorted(digests[id] for id, _ in course))


def _course(mutant: Mechanical, known: Sequence[_Known]) -> _Course:
    """The detectors that run the changed statement: tests, then the model, then simulated runs, the cheapest first."""
    own = f"/test_{mutant.module.rpartition('.')[2]}.py"
    near = [each.reach for each in known if each.reach.fine and each.may_notice(mutant)]
    near.sort(key=lambda reach: reach.seconds / (OWN if own in reach.id else 1))
    tests = [reach for reach in near if _kind(reach.id) != "simulation" and MODEL not in reach.id]
    models = [reach for reach in near if MODEL in reach.id]
    runs = [reach for reach in near if _kind(reach.id) == "simulation"]
    costs = [[(reach.id, reach.seconds) for reach in each] for each in (tests, models, runs)]
    chosen = [*_up_to(TESTS_S, costs[0]), *costs[1], *_up_to(SIMULATED_S, costs[2])]
    return chosen


def _up_to(seconds: float, course: _Course) -> Iterator[tuple[str, float]]:
    for id, cost in course:
        yield id, cost
        seconds -= cost
        if seconds < 0:
            return


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
