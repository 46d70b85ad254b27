"""Running proofs and mutants, on as many cores as are wanted.

Promises  results come in the order of the registry, whatever finished first; each proof has the process to itself
          while it runs, so that a planted bug is seen by nobody else.
Never     prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from operator import itemgetter
from signal import ITIMER_REAL, SIGALRM, setitimer, signal
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from dovetail.proofs.engine import Finding, Verdict, prove
from dovetail.proofs.equivalents import EQUIVALENT
from dovetail.proofs.registry import Proof, as_test, named, proofs, prove_sabotaged
from dovetail.proofs.sabotage import mutants, swapped
from dovetail.proofs.symbolic import place

T = TypeVar("T")

MUTANT_MS = 10_000
"""For one question about a mutant: what takes longer than any question about the right function is not proved."""
MUTANT_S_MIN, MUTANT_TIMES = 20, 5
"""So long may a proof of a mutant take: this much, and so many times what it takes of the right function. A loop that
z3 is never asked about has no other end."""


class Row(Struct, frozen=True):
    """A line of the table: a proof and what became of it."""

    id: str
    invariant: str
    statement: str
    function: str
    scope: str
    verdict: Verdict
    paths: int
    branches: tuple[int, int]
    """Outcomes reached, and outcomes there are, at the places of the core that ask about a symbolic value."""
    seconds: float
    reached: dict[str, tuple[bool, bool]]
    """For each of those places, whether it was reached with true and with false."""
    detail: str
    inputs: dict[str, int]
    test: str
    """A counterexample as a pytest case."""
    sabotage: Verdict
    """What the proof finds with its bug planted: a counterexample, or it shows nothing."""

    @property
    def is_good(self) -> bool:
        """It is proved, and would not be if the function were wrong."""
        return self.verdict is Verdict.PROVED and self.sabotage is Verdict.COUNTEREXAMPLE


class Score(Struct, frozen=True):
    """How many mutants of a function its proofs kill, and which live on; some only because they change nothing."""

    function: str
    mutants: int
    survivors: tuple[str, ...]
    equivalent: tuple[str, ...]
    unanswered: tuple[str, ...]
    """No longer proved, but without a counterexample: z3 gave no answer, or the engine refused. Not killed."""

    @property
    def killed(self) -> int:
        return self.mutants - len(self.survivors) - len(self.equivalent) - len(self.unanswered)


def check(id: str) -> Row:
    """Prove one, and see that it fails when it should."""
    proof = named(id)
    finding = prove(proof.claim)
    return row(proof, finding, prove_sabotaged(proof))


def row(proof: Proof, finding: Finding, sabotaged: Finding) -> Row:
    """A proof and what was found, as a line of the table."""
    return Row(
        proof.id,
        proof.invariant,
        proof.statement,
        proof.function,
        proof.scope,
        finding.verdict,
        finding.paths,
        finding.branches,
        finding.seconds,
        {place(site): seen for site, seen in finding.core_sites.items()},
        finding.detail,
        finding.inputs,
        as_test(proof, finding),
        sabotaged.verdict,
    )


def check_all(ids: Sequence[str], jobs: int) -> Iterator[Row]:
    """The lines of the table, as they come."""
    return _spread(check, ids, jobs)


def proved_functions() -> dict[str, Callable[..., Any]]:
    """Every shipped function that some proof answers for, by the name one would import it by."""
    return {f"{each.__module__}.{each.__qualname__}": each for proof in proofs() for each in proof.covers}


def score(name: str) -> Score:
    """Which mutants of a function its proofs kill: those for which one of them has a counterexample."""
    function = proved_functions()[name]
    covering = [(_seconds(proof.id), proof) for proof in proofs() if function in proof.covers]
    covering.sort(key=itemgetter(0))
    verdicts: list[tuple[str, Verdict]] = []
    for mutant in mutants(function):
        with swapped(function, mutant.code):
            verdicts.append((mutant.label, _verdict(covering)))
    alive = [label for label, verdict in verdicts if verdict is Verdict.PROVED]
    holes = tuple(label for label in alive if label not in EQUIVALENT)
    equivalent = tuple(label for label in alive if label in EQUIVALENT)
    unanswered = tuple(label for label, verdict in verdicts if verdict is Verdict.UNDECIDED)
    return Score(name.removeprefix("dovetail."), len(verdicts), holes, equivalent, unanswered)


@cache
def _seconds(id: str) -> float:
    return prove(named(id).claim).seconds


def _verdict(covering: Sequence[tuple[float, Proof]]) -> Verdict:
    """What proofs, each with the seconds it takes, say together of the function that is in place now."""
    is_answered = True
    for seconds, proof in covering:
        match _within(MUTANT_S_MIN + MUTANT_TIMES * seconds, proof):
            case Verdict.COUNTEREXAMPLE:
                return Verdict.COUNTEREXAMPLE
            case Verdict.PROVED:
                pass
            case _:
                is_answered = False
    return Verdict.PROVED if is_answered else Verdict.UNDECIDED


class _TooLong(BaseException):
    """A mutant that goes round and round."""


def _within(seconds: float, proof: Proof) -> Verdict:
    def stop(*_: object) -> NoReturn:
        raise _TooLong

    before = signal(SIGALRM, stop)
    setitimer(ITIMER_REAL, seconds)
    try:
        return prove(proof.claim, solver_ms=MUTANT_MS).verdict
    except _TooLong:
        return Verdict.UNDECIDED
    finally:
        setitimer(ITIMER_REAL, 0)
        signal(SIGALRM, before)


def score_all(names: Sequence[str], jobs: int) -> Iterator[Score]:
    """The scores of functions, as they come."""
    return _spread(score, names, jobs)


def _spread(work: Callable[[str], T], names: Sequence[str], jobs: int) -> Iterator[T]:
    if jobs <= 1:
        yield from map(work, names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, names)
