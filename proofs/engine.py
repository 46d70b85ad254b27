"""The prover: runs a claim about shipped functions on every feasible path, and proves it on each.

A claim is a plain function `claim(given) -> bool`. It takes its numbers from `given`, says what it assumes, calls
the shipped function through `given.call`, and returns what must hold. With symbolic numbers it is executed again
and again, each time down another path: the decisions of the last run, the last open one turned round. With plain
numbers the same function is a test case.

Promises  `PROVED` means: on every path that the assumptions allow, no inputs break the claim; on each path one run
          on plain numbers gave the same results, and what ran on them was read (`proofs/reading.py`), so that code
          which tells a symbolic value from a plain one is found out; a counterexample was confirmed in the same way.
Never     takes `unknown` for an answer, counts a claim as proved that never reached its conclusion, or goes on
          after something was refused.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, NoReturn, Protocol, TypeVar, cast

import z3
from msgspec import Struct, structs

from dovetail.proofs.reading import objection
from dovetail.proofs.symbolic import ENGINE_FILES, OPAQUE, Refusal, Site, SymBool, SymInt, following, number, truth
from dovetail.proofs.terms import both, either, for_z3, key_of, opposite, variable

T = TypeVar("T")

PATHS_MAX = 20_000
DECISIONS_MAX = 300
"""Truth values on one path: more are taken for a loop without an end."""
SOLVER_MS = 60_000
_NOT_DETERMINISTIC = "the same decisions led elsewhere: the code under proof is not deterministic"


class Given(Protocol):
    """Where a claim gets its inputs from. They are typed as the plain values they stand for."""

    def integer(self, name: str, low: int | None = None, high: int | None = None) -> int:
        """Any integer, or any in `low..high`."""

    def either(self, name: str) -> bool:
        """Either truth value."""

    def choice(self, name: str, options: Sequence[T]) -> T:
        """Each of `options` in turn, as it is."""

    def assume(self, holds: bool) -> None:
        """Look no further where this does not hold."""

    def call(self, function: Callable[..., T], *args: object, **options: object) -> T:
        """`function(*args, **options)`: a call of what the claim is about."""


Claim = Callable[[Given], bool]


class Verdict(StrEnum):
    PROVED = "proved"
    COUNTEREXAMPLE = "counterexample"
    UNDECIDED = "undecided"
    REFUSED = "refused"
    VACUOUS = "vacuous"


class Finding(Struct, frozen=True):
    """What the exploration of a claim came to."""

    verdict: Verdict
    paths: int
    seconds: float
    sites: dict[Site, tuple[bool, bool]]
    """For each place that forked or could have: whether it was reached with true, with false."""
    detail: str = ""
    inputs: dict[str, int] = {}

    @property
    def core_sites(self) -> dict[Site, tuple[bool, bool]]:
        """Those that are in the code under proof, not in its claim."""
        return {where: seen for where, seen in self.sites.items() if "/core/" in where[0]}

    @property
    def branches(self) -> tuple[int, int]:
        """Outcomes reached, and outcomes there are, in the code under proof."""
        return sum(map(sum, self.core_sites.values())), 2 * len(self.core_sites)


class _NotAssumed(BaseException):
    """The inputs at hand are not among those that the claim speaks of."""


class _Unknown(BaseException):
    """The solver gave no answer."""


class _Step(Struct, frozen=True, eq=False):
    """Something that happened on a path: a decision, a fact, or an answer that must be the same next time."""

    term: Any
    where: Site | None
    answer: bool
    is_open: bool
    """The other side has not been looked at yet."""
    pushed: bool
    """The solver was told."""
    other: Any = None
    """A model in which the other side is taken."""


class _Choice(Struct, frozen=True, eq=False):
    """Which of some plain options a path has taken; those after it have not been looked at yet."""

    name: str
    place: int
    last: int


class Exploration:
    """All paths of one claim, depth first; it is the `Path` that symbolic values see and the `Given` of a claim."""

    def __init__(self, fixed: Mapping[str, int] | None = None, *, solver_ms: int = SOLVER_MS) -> None:
        self.number = 0
        self.divided: dict[Any, tuple[Any, Any]] = {}
        self.solver = z3.Solver()
        self.solver.set("timeout", solver_ms)
        self.sites: dict[Site, tuple[bool, bool]] = {}
        self.inputs: dict[str, Any] = {}
        self.observed: list[object] = []
        self._fixed = fixed or {}
        self._steps: list[_Step | _Choice] = []
        self._model: Any = None  # one that meets everything on the current path, if it is known: it saves questions
        self._at = 0
        self._fresh = 0
        self._decisions = 0
        self._refusal: str | None = None
        self._unknown: str | None = None
        self._read: set[CodeType] = set()
        self._options: dict[str, int] = {}
        self._taken: set[tuple[str, int]] = set()

    # What symbolic values ask of their path.

    def decide(self, condition: Any, site: Site | None) -> bool:
        """The truth value that `condition` has on this path; where both are possible the path forks.

        A question that is no branch of the code, but of what an operator means, has no site.
        """
        self._decisions += 1
        if self._decisions > DECISIONS_MAX:
            self.refuse(f"more than {DECISIONS_MAX} decisions on one path: a loop without an end?")
        if self._at < len(self._steps):
            answer = self._replayed(condition, site).answer
        else:
            answer, is_open, other = self._sides(condition)
            self._remember(condition, site, answer, is_open=is_open, other=other)
        if site is not None:
            true, false = self.sites.get(site, (False, False))
            self.sites[site] = (true or answer, false or not answer)
        return answer

    def define(self, fact: Any) -> None:
        """A fact about values made with `fresh`, which can always be met."""
        if self._at < len(self._steps):
            self._replayed(fact, None)
        else:
            self._remember(fact, None, True, is_open=False, add=True)
            self._model = None

    def fresh(self) -> Any:
        """A new unknown integer."""
        self._fresh += 1
        return variable(f"!{self._fresh}")

    def implies(self, fact: Any) -> bool:
        """Whether `fact` is sure to hold on this path."""
        if self._at < len(self._steps):
            return self._replayed(fact, None).answer
        answer = bool(self.solver.check(for_z3(opposite(fact))) == z3.unsat)
        self._remember(fact, None, answer, is_open=False)
        return answer

    def refuse(self, why: str) -> NoReturn:
        """Give up on this claim; it sticks, whoever swallows the exception."""
        self._refusal = self._refusal or why
        raise Refusal(self._refusal)

    def read(self, codes: Mapping[CodeType, Mapping[str, Any]]) -> None:
        """Refuse code that ran and that may have told a symbolic value from a plain one."""
        for code in codes.keys() - self._read:
            why = objection(code, codes[code])
            if why is not None:
                self.refuse(why)
        self._read |= codes.keys()

    def conclude(self) -> None:
        """The path came to its end: what was chosen on it was looked at."""
        self._taken |= {(step.name, step.place) for step in self._steps if isinstance(step, _Choice)}

    @property
    def missed(self) -> str:
        """A choice with an option that no path came to its end with; empty when there is none."""
        for name, count in self._options.items():
            for place in range(count):
                if (name, place) not in self._taken:
                    return f"no inputs meet what is assumed with option {place} of {name!r}"
        return ""

    # What a claim asks of its `Given`.

    def integer(self, name: str, low: int | None = None, high: int | None = None) -> int:
        value = SymInt(self, self._input(name, variable(name)))
        if name in self._fixed:
            self.assume(cast(bool, value == self._fixed[name]))
        if low is not None:
            self.assume(cast(bool, value >= low))
        if high is not None:
            self.assume(cast(bool, value <= high))
        return cast(int, value)

    def either(self, name: str) -> bool:
        return cast(bool, SymBool(self, number(self.integer(name, 0, 1)) == 1))

    def choice(self, name: str, options: Sequence[T]) -> T:
        if self._at == len(self._steps):
            last = len(options) - 1
            place = self._fixed.get(name, 0)
            if not 0 <= place <= last:
                raise _NotAssumed
            self._steps.append(_Choice(name, place, place if name in self._fixed else last))
        step = self._steps[self._at]
        self._at += 1
        if not isinstance(step, _Choice) or step.name != name or not step.place < len(options):
            self.refuse(_NOT_DETERMINISTIC)
        self._input(name, step.place)
        self._options[name] = max(len(options), self._options.get(name, 0))
        return options[step.place]

    def assume(self, holds: bool) -> None:
        fact = truth(holds)
        if self._at < len(self._steps):
            self._replayed(fact, None)
            return
        if not self._is_so_in_the_model(for_z3(fact)):
            if not self._feasible(for_z3(fact)):
                raise _NotAssumed
            self._model = self.solver.model()
        self._remember(fact, None, True, is_open=False, add=True)

    def call(self, function: Callable[..., T], *args: object, **options: object) -> T:
        try:
            result = function(*args, **options)
        except Exception as error:
            self.observed.append(type(error).__name__)
            raise
        self.observed.append(result)
        return result

    # The exploration itself.

    def paths(self, claim: Claim) -> Iterator[object]:
        """Run `claim` down one path after the other; yields what it returned, or the exception it ended with.

        While a path is yielded, the solver holds exactly what is known on it.
        """
        while True:
            self.number += 1
            self._at = self._fresh = self._decisions = 0
            self.inputs, self.observed, self.divided = {}, [], {}
            with following(self):
                try:
                    result: object = claim(self)
                except _NotAssumed:
                    result = _NotAssumed
                except Exception as error:
                    result = error
                if self._refusal is not None:
                    raise Refusal(self._refusal)
                if self._unknown is not None:
                    raise _Unknown(self._unknown)
                if self._at < len(self._steps):
                    self.refuse(_NOT_DETERMINISTIC)
                if result is not _NotAssumed:
                    yield result
            if not self._turn_round():
                return

    def counterexample(self, result: object) -> dict[str, int] | None:
        """Inputs of this path for which the claim's `result` is not true, small ones where there are some."""
        broken = for_z3(True if isinstance(result, Exception) else opposite(truth(result)))
        if not self._feasible(broken):
            return None
        for bound in (4, 16, 256, 1 << 16, 1 << 40):
            small = [for_z3(both(term >= -bound, term <= bound)) for term in self.inputs.values()]
            if self.solver.check(broken, *small) == z3.sat:
                return self._inputs_in(self.solver.model())
        if self.solver.check(broken) != z3.sat:
            raise _Unknown("z3 found inputs once and not again")
        return self._inputs_in(self.solver.model())

    def _inputs_in(self, model: Any) -> dict[str, int]:
        return {name: model.eval(for_z3(term), model_completion=True).as_long() for name, term in self.inputs.items()}

    def witness(self, wishes: Mapping[str, int] | None = None) -> tuple[dict[str, int], list[object]]:
        """Inputs that lead down this path, as many of them as can be as wished for, and what the calls return then."""
        self.solver.push()
        for name, wish in (wishes or {}).items():
            if name in self.inputs and self.solver.check(for_z3(self.inputs[name] == wish)) == z3.sat:
                self.solver.add(for_z3(self.inputs[name] == wish))
        if wishes or self._model is None:
            if not self._feasible(z3.BoolVal(True)):
                raise _Unknown("z3 found inputs once and not again")
            self._model = self.solver.model()
        self.solver.pop()
        results = [_worked_out(self._model, leaf) for leaf in leaves(self.observed)]
        return self._inputs_in(self._model), results

    def _input(self, name: str, term: Any) -> Any:
        if name in self.inputs:
            raise ValueError(f"the claim asks for the input {name!r} twice")
        self.inputs[name] = term
        return term

    def _feasible(self, condition: Any) -> bool:
        answer = self.solver.check(condition)
        if answer == z3.unknown:
            self._unknown = f"z3 gave no answer: {self.solver.reason_unknown()}"
            raise _Unknown(self._unknown)
        return bool(answer == z3.sat)

    def _sides(self, condition: Any) -> tuple[bool, bool, Any]:
        """The answer to take, whether the other is possible too, and then a model of that."""
        plain = z3.simplify(for_z3(condition))
        if z3.is_true(plain) or z3.is_false(plain):
            return z3.is_true(plain), False, None
        if self._model is None:
            if not self._feasible(z3.BoolVal(True)):
                self.refuse("a path that can't be: the facts on it contradict each other")
            self._model = self.solver.model()
        answer = self._is_so_in_the_model(plain)
        is_open = self._feasible(z3.Not(plain) if answer else plain)
        return answer, is_open, self.solver.model() if is_open else None

    def _is_so_in_the_model(self, condition: Any) -> bool:
        if self._model is None:
            return False
        value = self._model.eval(condition, model_completion=True)
        if not (z3.is_true(value) or z3.is_false(value)):
            self.refuse("a model of z3 that leaves a condition open")
        return bool(z3.is_true(value))

    def _replayed(self, term: Any, where: Site | None) -> _Step:
        step = self._steps[self._at]
        if isinstance(step, _Choice) or step.where != where or key_of(step.term) != key_of(term):
            self.refuse(_NOT_DETERMINISTIC)
        self._at += 1
        return step

    def _remember(
        self, term: Any, where: Site | None, answer: bool, *, is_open: bool, add: bool = False, other: Any = None
    ) -> None:
        if is_open or add:
            self.solver.push()
            self.solver.add(for_z3(term if answer else opposite(term)))
        self._steps.append(_Step(term, where, answer, is_open, is_open or add, other))
        self._at = len(self._steps)

    def _turn_round(self) -> bool:
        """Go back to the last decision with another side, and take that; False when there is none."""
        while self._steps:
            step = self._steps.pop()
            if isinstance(step, _Choice):
                if step.place < step.last:
                    self._steps.append(_Choice(step.name, step.place + 1, step.last))
                    return True
                continue
            if step.pushed:
                self.solver.pop()
            if step.is_open:
                self._remember(step.term, step.where, not step.answer, is_open=False, add=True)
                self._model = step.other
                return True
        return False


class Concrete:
    """The `Given` of a claim that is run on plain numbers."""

    def __init__(self, inputs: Mapping[str, int]) -> None:
        self._inputs = inputs
        self.observed: list[object] = []
        self.chosen: dict[str, str] = {}

    def integer(self, name: str, low: int | None = None, high: int | None = None) -> int:
        value = self._inputs[name]
        self.assume((low is None or low <= value) and (high is None or value <= high))
        return value

    def either(self, name: str) -> bool:
        return self.integer(name, 0, 1) == 1

    def choice(self, name: str, options: Sequence[T]) -> T:
        option = options[self.integer(name, 0, len(options) - 1)]
        self.chosen[name] = repr(option)
        return option

    def assume(self, holds: bool) -> None:
        if not holds:
            raise _NotAssumed

    call = Exploration.call


@contextmanager
def _noted() -> Iterator[Mapping[CodeType, Mapping[str, Any]]]:
    """The code of every function of Python that is called until the block ends, and its globals."""
    codes: dict[CodeType, Mapping[str, Any]] = {}

    def note(frame: FrameType, *_: object) -> None:
        if frame.f_code.co_filename not in ENGINE_FILES:
            codes.setdefault(frame.f_code, frame.f_globals)

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # whoever listens to the collector is not code under proof
    sys.settrace(note)
    try:
        yield codes
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()


def run(claim: Claim, inputs: Mapping[str, int]) -> tuple[bool | Exception | None, list[object]]:
    """What the claim comes to on plain numbers (None: it does not speak of them), and what its calls returned."""
    given = Concrete(inputs)
    return _outcome(claim, given), given.observed


def chosen(claim: Claim, inputs: Mapping[str, int]) -> dict[str, str]:
    """What the numbers of choices among `inputs` stand for, where it is another text."""
    given = Concrete(inputs)
    _outcome(claim, given)
    return {name: option for name, option in given.chosen.items() if option != str(inputs[name])}


def _outcome(claim: Claim, given: Concrete) -> bool | Exception | None:
    try:
        with following(None):
            return claim(given)
    except _NotAssumed:
        return None
    except Exception as error:
        return error


def holds(claim: Claim, inputs: Mapping[str, int]) -> bool:
    """Whether the claim, run on plain numbers, is kept; it is where it does not speak of them."""
    result, _ = run(claim, inputs)
    return result is None or result is True


def agrees(claim: Claim, inputs: Mapping[str, int], results: Sequence[object]) -> bool:
    """Whether plain numbers keep the claim, and give the results that were worked out for them."""
    return _agree(*run(claim, inputs), results)


def _agree(result: bool | Exception | None, observed: Sequence[object], results: Sequence[object]) -> bool:
    plain = list(leaves(observed))
    return result is True and len(plain) == len(results) and all(map(_is_same, plain, results))


def _is_same(plain: object, worked_out: object) -> bool:
    if isinstance(worked_out, str) and OPAQUE in worked_out:
        return isinstance(plain, str)
    return plain == worked_out


def prove(claim: Claim, *, paths_max: int = PATHS_MAX, solver_ms: int = SOLVER_MS) -> Finding:
    """Prove a claim on all its paths, or say why not."""
    started = perf_counter()
    exploration = Exploration(solver_ms=solver_ms)
    paths = concluded = 0

    def finding(verdict: Verdict, detail: str = "", inputs: dict[str, int] | None = None) -> Finding:
        return Finding(verdict, paths, perf_counter() - started, exploration.sites, detail, inputs or {})

    try:
        for result in exploration.paths(claim):
            paths += 1
            if paths > paths_max:
                return finding(Verdict.REFUSED, f"more than {paths_max} paths")
            concluded += bool(exploration.observed)
            exploration.conclude()
            inputs = exploration.counterexample(result)
            if inputs is not None:
                plain, _ = run(claim, inputs)
                if plain is None or plain is True:
                    return finding(Verdict.REFUSED, f"symbolic and plain numbers disagree about {inputs}", inputs)
                what = f"raises {plain!r}" if isinstance(plain, Exception) else "the claim does not hold"
                return finding(Verdict.COUNTEREXAMPLE, what, inputs)
            inputs, results = exploration.witness()
            with _noted() as codes:
                result, observed = run(claim, inputs)
            exploration.read(codes)
            if not _agree(result, observed, results):
                return finding(Verdict.REFUSED, f"symbolic and plain numbers disagree about {inputs}", inputs)
    except Refusal as refusal:
        return finding(Verdict.REFUSED, str(refusal))
    except _Unknown as unknown:
        return finding(Verdict.UNDECIDED, str(unknown))
    if not concluded:
        why = "no inputs meet what it assumes" if not paths else "no path calls what it is about"
        return finding(Verdict.VACUOUS, why)
    if exploration.missed:
        return finding(Verdict.VACUOUS, exploration.missed)
    return finding(Verdict.PROVED)


def leaves(value: object) -> Iterator[object]:
    """The numbers, texts and the like that a result is made of, in a fixed order."""
    if isinstance(value, tuple | list):
        yield len(value)
        for item in value:
            yield from leaves(item)
    elif isinstance(value, Mapping):
        yield from leaves(sorted(value.items(), key=lambda item: repr(item[0])))
    elif isinstance(value, Struct):
        yield from leaves(structs.astuple(value))
    else:
        yield value


def _worked_out(model: Any, leaf: object) -> object:
    if type(leaf) is SymInt:
        return model.eval(for_z3(number(leaf)), model_completion=True).as_long()
    if type(leaf) is SymBool:
        return z3.is_true(model.eval(for_z3(truth(leaf)), model_completion=True))
    return leaf


def every(*conditions: bool) -> bool:
    """Whether all hold, without a fork for each."""
    return _joined(both, conditions) if any(map(_is_symbolic, conditions)) else all(conditions)


def some(*conditions: bool) -> bool:
    """Whether any holds, without a fork for each."""
    return _joined(either, conditions) if any(map(_is_symbolic, conditions)) else any(conditions)


def negated(condition: bool) -> bool:
    """The opposite, without a fork."""
    return condition == False  # noqa: E712  # `not` would fork


def implies(premise: bool, conclusion: bool) -> bool:
    """Whether the conclusion holds where the premise does."""
    return some(negated(premise), conclusion)


def unchanged(now: object, before: object) -> bool:
    """Whether it is still the same object; a number has no identity that could be asked for."""
    if isinstance(now, int) or isinstance(before, int):
        raise Refusal("the identity of a number")
    return now is before


def _is_symbolic(condition: object) -> bool:
    return type(condition) is SymBool


def _joined(join: Callable[..., Any], conditions: Sequence[bool]) -> bool:
    path = next(condition for condition in conditions if _is_symbolic(condition))._path  # type: ignore[attr-defined]
    return cast(bool, SymBool(path, join(*map(truth, conditions))))
