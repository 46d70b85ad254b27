"""The process in which mechanical mutants are tried: all is imported once, each mutant lives in a fork of its own.

A pytest run whose tests are collected as always; then, instead of running them, it waits for orders on its input, one
line of JSON each, and answers each with one line. What may notice a mutant is a *detector*: a collected test, or a
simulated run named `sim:<scenario>:<seed>`.

Promises  the mistaken code is put into the function itself, so that whoever imported it has it; tests that draw
          examples draw the same ones every time; what does not come to an end is ended by the processor time it used.
Never     plants anything in the process that waits for orders.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from multiprocessing.pool import ThreadPool
from types import CodeType, FunctionType
from typing import IO

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from dovetail.sim.mutants.mechanical import NOTES, Mechanical, modules, mutated_code, probed_codes
from dovetail.sim.mutants.mutant import path_of

WHERE = ("tests/core", "tests/spec", "tests/storage", "tests/broker", "tests/proofs/alone.py")
"""The tests that may notice a mutant."""
LEFT_OUT = (
    "test_planted_bugs",
    "test_crowd",
    "test_bench",
    "test_kill",
    "test_command",
    "test_ledger",
    "test_determinism",
    "TestCoreAndModel",
)
"""Tests of tests, and those that work in processes of their own, where no mutant is."""
SWARM_SEEDS = 12
MODEL = "test_core_and_model_agree_over_many_seeds"
MODEL_S = 6.0
"""How long the core is compared with the model, which is never done."""
NO_END = "it does not come to an end"
MEMORY_BYTES_MAX = 4 << 30
JOBS = "DOVETAIL_MUTANTS_JOBS"
"""The environment variable that says how many forks work at a time."""
SURVEY_S = 300.0
"""How long a detector may take on the unchanged broker."""
SLACK_S = 3.0
"""Processor time that a detector may use on top of five times what it used on the unchanged broker."""


class Try(Struct, tag=True, frozen=True):
    """See which of the detectors, tried in this order, notices the mutant first."""

    mutant: Mechanical | None
    """Without one the detectors run on the unchanged broker."""
    detectors: list[tuple[str, float]]
    """Each with the seconds it takes on the unchanged broker."""
    budget_s: float
    wall_s: float = 600.0


class Survey(Struct, tag=True, frozen=True):
    """See which statements of the product each of the detectors runs."""

    detectors: list[str]


class Outcome(Struct, frozen=True):
    """What came of a try; `by` is empty when nothing was noticed."""

    by: str = ""
    how: str = ""
    tried: int = 0
    runs: int = 0
    """How many of those tried were simulated runs."""
    seconds: float = 0.0
    error: str = ""
    """Why the mutant could not be planted."""


class Reach(Struct, frozen=True):
    """What a detector runs on the unchanged broker."""

    id: str
    fine: bool
    seconds: float
    lines: dict[str, list[int]]
    """Where the statements that it runs begin: by `module:function`, counted from the function's first line."""


class _NoEnd(BaseException):
    """It used too much processor time."""


def main() -> None:
    """Collect, then carry out orders until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    orders = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    from hypothesis import Phase, settings

    settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None, phases=(Phase.explicit, Phase.generate)
    )
    settings.load_profile("mutants")
    where = [each for each in WHERE if os.path.exists(each)] or [os.devnull]
    pytest.main([*where, "-p", "no:cacheprovider", "-p", "no:xdist"], [_Server(orders, answers)])


class _Server:
    def __init__(self, orders: IO[bytes], answers: IO[bytes]) -> None:
        self._orders = orders
        self._answers = answers
        self._detectors: dict[str, Callable[[], str]] = {}
        self._fine: dict[str, bool] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests."""
        from dovetail.sim.scenarios import SCENARIOS

        for item in session.items:
            if not any(name in item.nodeid for name in LEFT_OUT):
                self._detectors[item.nodeid] = _test(item)
        for name in [*SCENARIOS, *["swarm"] * SWARM_SEEDS]:
            seed = sum(id.startswith(f"sim:{name}:") for id in self._detectors)
            self._detectors[f"sim:{name}:{seed}"] = _simulated(name, seed)
        self._answer(list(self._detectors))
        self._modules = {os.path.realpath(path_of(module)): module for module in modules()}
        for module in self._modules.values():
            import_module(module)
        self._functions = _functions(self._modules)
        gc.collect()
        gc.freeze()
        with ThreadPool(int(os.environ.get(JOBS, "1"))) as pool:
            for answer in pool.imap_unordered(self._carry_out, self._orders):
                self._answer(answer)
        return True

    def _answer(self, answer: object) -> None:
        self._answers.write(msgspec.json.encode(answer) + b"\n")
        self._answers.flush()

    def _carry_out(self, line: bytes) -> tuple[int, Outcome | list[Reach]]:
        place, order = msgspec.json.decode(line, type=tuple[int, Try | Survey])
        if isinstance(order, Survey):
            return place, self._survey(order)
        while (outcome := self._try(order)).by and not self._is_fine_unchanged(outcome.by, order):
            order = replace(order, detectors=[each for each in order.detectors if each[0] != outcome.by])
        return place, outcome

    def _is_fine_unchanged(self, id: str, order: Try) -> bool:
        if id not in self._fine:
            alone = [each for each in order.detectors if each[0] == id]
            self._fine[id] = not self._try(replace(order, mutant=None, detectors=alone)).by
        return self._fine[id]

    def _try(self, order: Try) -> Outcome:
        def work(tell: Callable[[object], None]) -> None:
            if order.mutant is not None:
                plant(order.mutant, self._functions)
            began = time.process_time()
            runs = 0
            for number, (id, seconds) in enumerate(order.detectors):
                used = time.process_time() - began
                if used > order.budget_s:
                    break
                runs += id.startswith("sim:")
                tell(Outcome(id, NO_END, number + 1, runs, used))
                patience = min(MODEL_S, order.budget_s - used) if MODEL in id else SLACK_S + 5 * seconds
                how = _limited(self._detectors[id], patience)
                how = "" if MODEL in id and how == NO_END else how
                tell(Outcome(id if how else "", how, number + 1, runs, time.process_time() - began))
                if how:
                    break

        last = Outcome()
        for line in _in_a_fork(work, order.wall_s):
            last = msgspec.json.decode(line, type=Outcome)
        return last

    def _survey(self, order: Survey) -> list[Reach]:
        probes = probes_of(tuple(self._modules.values()))

        def work(tell: Callable[[object], None]) -> None:
            probes.plant(self._functions)
            for id in order.detectors:
                began = time.process_time()
                how = _limited(self._detectors[id], SURVEY_S)
                tell(Reach(id, not how, time.process_time() - began, probes.reached()))

        return [msgspec.json.decode(line, type=Reach) for line in _in_a_fork(work, 7200)]


def _in_a_fork(work: Callable[[Callable[[object], None]], None], wall_s: float) -> Iterator[bytes]:
    """The lines that `work` tells from a process of its own, which is ended after `wall_s`."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        signal.alarm(int(wall_s))
        with os.fdopen(write, "wb", buffering=0) as out:
            try:
                work(lambda answer: (out.write(msgspec.json.encode(answer) + b"\n"), None)[1])
            except Exception as error:
                traceback.print_exc()
                out.write(msgspec.json.encode(Outcome(error=repr(error))) + b"\n")
            finally:
                os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as lines:
        yield from lines
    os.waitpid(child, 0)


_Functions = dict[tuple[str, str], list[FunctionType]]


def _functions(paths: dict[str, str]) -> _Functions:
    """The product's functions, by module and name."""
    found: _Functions = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            module = paths.get(os.path.realpath(each.__code__.co_filename))
            if module is not None:
                found.setdefault((module, each.__code__.co_qualname), []).append(each)
    return found


def plant(mutant: Mechanical, functions: _Functions) -> None:
    """Have the function run the mistaken code, for good."""
    if not _replace(mutant.module, mutant.function, mutated_code(mutant), functions):
        raise ValueError(f"{mutant.function} was not found in the process")


def _replace(module: str, function: str, code: CodeType, functions: _Functions) -> list[FunctionType]:
    same = functions.get((module, function), [])
    found = [each for each in same if each.__code__.co_firstlineno == code.co_firstlineno]
    for each in found:
        each.__code__ = code
    return found


def _limited(detector: Callable[[], str], seconds: float) -> str:
    """What the detector says, or that it used more than `seconds` of processor time."""

    fired = False

    def end(*_: object) -> None:
        nonlocal fired
        fired = True
        raise _NoEnd

    signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        how = detector()
    except (_NoEnd, Exception) as error:
        how = repr(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    # Whatever a detector that was ended says is of no account.
    return NO_END if fired else how


def _test(item: pytest.Item) -> Callable[[], str]:
    def run() -> str:
        from _pytest.runner import runtestprotocol

        for report in runtestprotocol(item, log=False, nextitem=None):
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                return str(getattr(crash, "message", report.longrepr))[:200] or "failed"
        return ""

    return run


def _simulated(name: str, seed: int) -> Callable[[], str]:
    def run_it() -> str:
        from dovetail.sim.run import run
        from dovetail.sim.scenarios import plan_of

        result = run(plan_of(name, seed))
        return "" if result.verdict.is_fine else f"{result.invariant} ({result.verdict}): {result.text[:150]}"

    return run_it


class _Probes:
    """The product's functions with a note in front of each statement that it was reached."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._places: list[tuple[str, int]] = []
        self._codes: list[tuple[str, str, CodeType]] = []
        for module in modules:
            self._codes += [(module, name, code) for name, code in probed_codes(module, self._places)]
        self._seen = bytearray(len(self._places))

    def plant(self, functions: _Functions) -> None:
        """Have the functions take notes, for good."""
        for module, name, code in self._codes:
            for each in _replace(module, name, code, functions):
                each.__globals__[NOTES] = self._seen

    def reached(self) -> dict[str, list[int]]:
        """Where the statements begin that ran since this was asked last."""
        found: dict[str, list[int]] = {}
        for (function, line), seen in zip(self._places, self._seen, strict=True):
            if seen:
                found.setdefault(function, []).append(line)
        self._seen[:] = bytes(len(self._seen))
        return found


probes_of = cache(_Probes)


if __name__ == "__main__":
    main()
