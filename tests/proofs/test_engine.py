"""The prover itself: exact arithmetic, every path, and refusal of what it can't treat."""

import copy
import functools
import math
import operator
import pickle
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import pytest
from hypothesis import given as having
from hypothesis import settings
from hypothesis import strategies as st

from dovetail.proofs.engine import (
    Exploration,
    Given,
    Verdict,
    agrees,
    every,
    holds,
    implies,
    negated,
    prove,
    some,
    unchanged,
)
from dovetail.proofs.symbolic import Refusal

NUMBERS = st.integers(-(1 << 70), 1 << 70) | st.integers(-40, 40)


def pinned(claim: Callable[[Given], bool], inputs: dict[str, int]) -> bool:
    """Whether the claim, run on symbolic values that can only be `inputs`, has one path with Python's own results."""
    exploration = Exploration(inputs)
    found = [exploration.witness() for _ in exploration.paths(claim)]
    return len(found) == 1 and found[0][0] == inputs and agrees(claim, *found[0])


def outcome(given: Given, function: Callable[..., object], *args: object) -> bool:
    """Call it; an exception is an outcome like any other."""
    try:
        given.call(function, *args)
    except (ZeroDivisionError, ValueError):
        return True
    return True


ARITHMETIC = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    divmod,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
    min,
    max,
)


@pytest.mark.parametrize("operation", ARITHMETIC, ids=lambda function: function.__name__)
@settings(deadline=None, max_examples=60)
@having(a=NUMBERS, b=NUMBERS)
def test_arithmetic_is_python_s_own_whichever_side_is_symbolic(operation: Callable[..., Any], a: int, b: int) -> None:
    def both(given: Given) -> bool:
        return outcome(given, operation, given.integer("a"), given.integer("b"))

    def left(given: Given) -> bool:
        return outcome(given, operation, given.integer("a"), b)

    def right(given: Given) -> bool:
        return outcome(given, operation, a, given.integer("b"))

    assert pinned(both, {"a": a, "b": b})
    assert pinned(left, {"a": a})
    assert pinned(right, {"b": b})


@pytest.mark.parametrize(
    "operation", [operator.and_, operator.or_, operator.xor], ids=lambda function: function.__name__
)
@settings(deadline=None, max_examples=60)
@having(a=NUMBERS, mask=NUMBERS)
def test_masks_are_exact_for_negative_numbers_too(operation: Callable[..., Any], a: int, mask: int) -> None:
    assert pinned(lambda given: outcome(given, operation, given.integer("a"), mask), {"a": a})
    assert pinned(lambda given: outcome(given, operation, mask, given.integer("a")), {"a": a})


@pytest.mark.parametrize("operation", [operator.lshift, operator.rshift], ids=lambda function: function.__name__)
@settings(deadline=None, max_examples=60)
@having(a=NUMBERS, count=st.integers(-2, 64))
def test_shifts_are_exact_and_refuse_a_negative_count(operation: Callable[..., Any], a: int, count: int) -> None:
    def by_symbol(given: Given) -> bool:
        return outcome(given, operation, given.integer("a"), given.integer("count", -2, 64))

    assert pinned(by_symbol, {"a": a, "count": count})
    assert pinned(lambda given: outcome(given, operation, given.integer("a"), count), {"a": a})


@pytest.mark.parametrize(
    "operation", [operator.neg, operator.pos, abs, operator.invert, bool], ids=lambda f: f.__name__
)
@settings(deadline=None, max_examples=60)
@having(a=NUMBERS)
def test_operators_of_one_number_are_exact(operation: Callable[..., Any], a: int) -> None:
    assert pinned(lambda given: outcome(given, operation, given.integer("a")), {"a": a})


@settings(deadline=None, max_examples=60)
@having(a=st.booleans(), b=st.booleans())
def test_truth_values_join_as_in_python(a: bool, b: bool) -> None:
    def claim(given: Given) -> bool:
        one, other = given.either("a"), given.either("b")
        joined = one & other, one | other, one ^ other, one == other, one != other, True & one, one | False
        given.call(lambda: (*joined, every(one, other), some(one, other), implies(one, other), negated(one)))
        return True

    assert pinned(claim, {"a": int(a), "b": int(b)})


def test_every_path_is_explored_once() -> None:
    def three_ways(x: int) -> str:
        if x < 0:
            return "below"
        return "zero" if x == 0 else "above"

    seen = []
    exploration = Exploration()
    for _ in exploration.paths(lambda given: bool(given.call(three_ways, given.integer("x")))):
        seen.append(exploration.observed[0])
    assert sorted(map(str, seen)) == ["above", "below", "zero"]


def test_a_claim_that_holds_is_proved_and_says_what_it_reached() -> None:
    finding = prove(lambda given: given.call(max, given.integer("a"), 3) >= 3)
    assert finding.verdict is Verdict.PROVED
    assert finding.paths == 2
    assert list(finding.sites.values()) == [(True, True)]


def test_a_claim_that_fails_once_in_2_to_the_60_has_its_counterexample() -> None:
    needle = 0x5EED_1234_5678_9AB

    def rare(x: int) -> int:
        return 1 if x * 3 == needle * 3 else 0

    finding = prove(lambda given: given.call(rare, given.integer("x")) == 0)
    assert finding.verdict is Verdict.COUNTEREXAMPLE
    assert finding.inputs == {"x": needle}


def test_a_counterexample_is_small_where_it_can_be() -> None:
    finding = prove(lambda given: given.call(abs, given.integer("x")) < 3)
    assert finding.verdict is Verdict.COUNTEREXAMPLE
    assert abs(finding.inputs["x"]) in (3, 4)


def test_an_exception_is_a_counterexample() -> None:
    finding = prove(lambda given: given.call(operator.floordiv, 10, given.integer("x")) <= 10)
    assert finding.verdict is Verdict.COUNTEREXAMPLE
    assert finding.inputs == {"x": 0}
    assert "ZeroDivisionError" in finding.detail


def test_a_claim_about_no_inputs_at_all_is_vacuous() -> None:
    def claim(given: Given) -> bool:
        x = given.integer("x", 5)
        given.assume(x < 5)
        return given.call(_count_down, x) == 0

    assert prove(claim).verdict is Verdict.VACUOUS


def test_a_claim_that_never_calls_what_it_is_about_is_vacuous() -> None:
    assert prove(lambda given: given.integer("x") == given.integer("x2", 0) or True).verdict is Verdict.VACUOUS


def test_unknown_is_a_failure() -> None:
    def cubes(given: Given) -> bool:
        x, y, z = given.integer("x", 1), given.integer("y", 1), given.integer("z", 1)
        return given.call(lambda: x * x * x + y * y * y) != z * z * z

    assert prove(cubes, solver_ms=50).verdict is Verdict.UNDECIDED


def test_too_many_paths_are_refused() -> None:
    def bits(given: Given) -> bool:
        return given.call(sum, [1 if given.integer(f"x{place}") > 0 else 0 for place in range(8)]) <= 8

    assert prove(bits, paths_max=100).verdict is Verdict.REFUSED
    assert prove(bits, paths_max=256).verdict is Verdict.PROVED


def _unchanged(x: int) -> int:
    return x + 0


def _count_down(x: int) -> int:
    while x > 0:
        x -= 1
    return x


def _decides_by_text(x: int) -> int:
    reason = f"{x}"
    if reason == "5": raise ValueError(reason)  # noqa: E701  # fmt: skip
    return 0


def _decides_on_the_line_of_a_raise(x: int) -> int:
    if f"{x}" == "5": raise ValueError(f"{x}")  # noqa: E701  # fmt: skip
    return 0


def _swallow(x: int) -> int:
    try:
        return len({x: 1})
    except BaseException:
        return 1


_calls = [0]


def _differs_each_time(x: int) -> int:
    _calls[0] += 1
    return 1 if x > _calls[0] else 0


_kept: list[int] = []


def _remembers(x: int) -> int:
    _kept.append(x)
    return 1 if _kept[0] > 0 else 0


def _asks_for_the_type(x: int) -> int:
    return 1 if type(x) is int and x == 5 else 0


def _asks_for_the_type_by_map(x: int) -> int:
    return 1 if int in map(type, [x]) and x == 5 else 0


def _asks_for_identity(x: int) -> int:
    five = 5
    return 1 if x is five else 0


ON = True
KIND = type


def _asks_whether_it_is_true(x: int) -> int:
    return 1 if (x == 5) is True else 0


def _asks_whether_it_is_a_constant(x: int) -> int:
    return 1 if (x == 5) is ON else 0


def _matches_true(x: int) -> int:
    match x == 5:
        case True:
            return 1
    return 0


def _asks_c_code(x: int) -> int:
    try:
        return 1 if int.bit_length(x) == 3 else 0
    except TypeError:
        return 0


def _lets_c_code_fail(x: int) -> int:
    with suppress(TypeError):
        return 1 if int.bit_length(x) == 3 else 0
    return 0


def _reads_what_it_caught(x: int) -> int:
    try:
        raise ValueError(f"{x}")
    except ValueError as error:
        return 1 if str(error) == "5" else 0


def _parses_what_it_caught(x: int) -> int:
    try:
        raise ValueError(f"{x}")
    except ValueError as error:
        text = error.args[0]
        return 1 if text.startswith("5") else 0


def _chooses_what_to_raise_by_text(x: int) -> int:
    try:
        raise (KeyError if f"{x}" == "5" else ValueError)(x)
    except KeyError:
        return 1
    except ValueError:
        return 0


def _puts_a_decision_into_a_reason(x: int) -> int:
    reason = 1 if f"{x}" == "5" else 0
    if x > 100:
        raise ValueError(reason)
    return 0


def _raises_what_a_text_decided(x: int) -> int:
    text = f"{x}"
    if x >= 0:
        raise ValueError(text if text == "5" else 0)
    return 0


def _keeps_a_list(x: int, seen: list[int] = []) -> int:  # noqa: B006  # this very mistake
    seen.append(0)
    return 1 if len(seen) > 1_000 else 0


def _counts_in_a_global(x: int) -> int:
    global _counted
    _counted += 1
    return 1 if _counted > 1_000 else 0


_counted = 0


UNSOUND: dict[str, Callable[[int], object]] = {
    "a key of a map": lambda x: {x: 1}[x],
    "a member of a set": lambda x: x in {1, 2},
    "hash": hash,
    "range": lambda x: list(range(x)),
    "index": lambda x: [1, 2, 3][x],
    "slice": lambda x: (1, 2, 3)[:x],
    "repeat": lambda x: [0] * x,
    "float": float,
    "float beside": lambda x: x + 0.5,
    "float compared": lambda x: x == 1.0,
    "true division": lambda x: x / 2,
    "round": round,
    "int": int,
    "power": lambda x: x**2,
    "two to the power": lambda x: 2**x,
    "shift without a bound": lambda x: 1 << x if x >= 0 else 0,
    "mask of two symbols": lambda x: x & (x + 1),
    "str": lambda x: str(x) == "5",
    "repr": lambda x: repr(x) == "5",
    "format": lambda x: f"{x:>3}",
    "text that is compared": _decides_by_text,
    "text beside a raise": _decides_on_the_line_of_a_raise,
    "percent": lambda x: "%d" % x,  # noqa: UP031  # this very operator
    "bit_length": lambda x: x.bit_length(),
    "to_bytes": lambda x: x.to_bytes(8, "big"),
    "from_bytes": lambda x: bytes([x]),
    "copy": copy.copy,
    "pickle": pickle.dumps,
    "a truth value as a number": lambda x: (x > 0) + 1,
    "a truth value as an index": lambda x: [1, 2][x > 0],
    "not by tilde": lambda x: ~(x > 0),
    "a loop without an end": _count_down,
    "a refusal that is swallowed": _swallow,
    "state outside": _differs_each_time,
    "a value that outlives its path": _remembers,
    "type": _asks_for_the_type,
    "type of each": _asks_for_the_type_by_map,
    "type by another name": lambda x: KIND(x) in (int,) and x == 5,
    "id": lambda x: id(x) == id(5),
    "identity as a function": lambda x: operator.is_(x, 5),
    "identity": _asks_for_identity,
    "is True": _asks_whether_it_is_true,
    "is a constant": _asks_whether_it_is_a_constant,
    "case True": _matches_true,
    "a TypeError that is caught": _asks_c_code,
    "a TypeError that is suppressed": _lets_c_code_fail,
    "the text of what was caught": _reads_what_it_caught,
    "an argument of what was caught": _parses_what_it_caught,
    "an exception chosen by a text": _chooses_what_to_raise_by_text,
    "a reason that is a decision": _puts_a_decision_into_a_reason,
    "a variable's text that decides": _raises_what_a_text_decided,
    "a default that remembers": _keeps_a_list,
    "a global that counts": _counts_in_a_global,
    "a decimal": lambda x: Decimal(5) == x,
    "a fraction": lambda x: x == Fraction(5),
    "an infinity": lambda x: x < math.inf,
    "a slice from the end": lambda x: (1, 2, 3)[-x:],
    "a cache": functools.lru_cache(lambda x: x > 0),
    "format method": lambda x: "{}".format(x),  # noqa: UP032  # this very method
    "join": lambda x: ",".join(map(str, (x,))),
    "code made at run time": eval("lambda x: x is True"),
}


@pytest.mark.parametrize("function", UNSOUND.values(), ids=UNSOUND.keys())
def test_what_can_not_be_treated_exactly_is_refused(function: Callable[[int], object]) -> None:
    def claim(given: Given) -> bool:
        given.call(function, given.integer("x"))
        return True

    finding = prove(claim)
    assert finding.verdict is Verdict.REFUSED, finding.detail
    assert finding.detail


def test_what_z3_could_not_answer_is_not_forgotten_by_who_swallows_it() -> None:
    def swallow(x: int, y: int, z: int) -> int:
        with suppress(BaseException):
            return 1 if x * x * x + y * y * y == z * z * z else 0
        return 0

    def claim(given: Given) -> bool:
        return given.call(swallow, *(given.integer(name, 1) for name in "xyz")) == 0

    assert prove(claim, solver_ms=50).verdict is Verdict.UNDECIDED


def test_a_choice_with_an_option_that_no_inputs_meet_is_vacuous() -> None:
    def claim(given: Given) -> bool:
        x, least = given.integer("x", 0, 9), given.choice("least", (0, 5, 10))
        given.assume(x >= least)
        return given.call(_unchanged, x) >= least

    finding = prove(claim)
    assert finding.verdict is Verdict.VACUOUS
    assert "option 2 of 'least'" in finding.detail


def test_the_same_object_is_not_asked_of_numbers() -> None:
    assert prove(lambda given: unchanged(given.call(_unchanged, given.integer("x")), 5)).verdict is Verdict.REFUSED
    assert prove(lambda given: given.call(_unchanged, given.integer("x")) == 1 or unchanged(ARITHMETIC, ARITHMETIC))


def test_what_may_see_through_a_symbol_is_taken_where_it_can_not() -> None:
    def fine(x: int | None) -> None:
        if x is None or Verdict.PROVED is Verdict.REFUSED:
            return
        try:
            raise ValueError(f"{x} is a number")
        except ValueError as error:
            raise _Said(str(error)) from error

    def claim(given: Given) -> bool:
        try:
            given.call(fine, given.integer("x"))
        except _Said:
            return True
        return False

    assert prove(claim).verdict is Verdict.PROVED


class _Said(Exception):
    """Passes a reason on."""


def test_a_symbolic_value_is_of_no_use_after_its_proof() -> None:
    leaked: list[int] = []

    def claim(given: Given) -> bool:
        leaked.append(given.integer("x"))
        return given.call(_unchanged, leaked[-1]) == leaked[-1]

    assert prove(claim).verdict is Verdict.PROVED
    with pytest.raises(Refusal):
        leaked[0] + 1


def test_a_symbolic_number_is_an_int_to_whoever_asks() -> None:
    def kind(x: int | str | bool) -> str:
        match x:
            case bool():
                return "bool"
            case int():
                return "int"
            case str():
                return "str"

    assert prove(lambda given: given.call(kind, given.integer("x")) == "int").verdict is Verdict.PROVED
    assert prove(lambda given: given.call(kind, given.integer("x") > 0) == "bool").verdict is Verdict.PROVED
    assert prove(lambda given: negated(given.call(lambda x: x == "5", given.integer("x")))).verdict is Verdict.PROVED


def test_the_text_of_an_exception_may_name_a_symbolic_value() -> None:
    def checked(x: int) -> int:
        if x < 0:
            said = ", ".join(f"{each}" for each in (x, x + 1))
            reason = f"{said} is below zero, {x!r} and {x:>5} too"
            raise ValueError(reason)
        return x

    def claim(given: Given) -> bool:
        x = given.integer("x")
        try:
            return given.call(checked, x) == x
        except ValueError:
            return x < 0

    assert prove(claim).verdict is Verdict.PROVED


def test_an_index_with_a_small_bound_is_a_path_for_each_value() -> None:
    def claim(given: Given) -> bool:
        x = given.integer("x", 0, 2)
        return given.call(lambda place: (5, 6, 7)[place], x) == x + 5

    finding = prove(claim)
    assert (finding.verdict, finding.paths) == (Verdict.PROVED, 3)


def test_a_key_with_a_small_bound_finds_what_a_plain_one_finds() -> None:
    def claim(given: Given) -> bool:
        x = given.integer("x", 0, 3)
        return given.call(lambda key: {0: 5, 2: 7}.get(key, 0) + {key: 1}[key], x) == (
            6 if x == 0 else 8 if x == 2 else 1
        )

    finding = prove(claim)
    assert (finding.verdict, finding.paths) == (Verdict.PROVED, 4)


def test_a_claim_runs_on_plain_numbers_as_it_stands() -> None:
    def claim(given: Given) -> bool:
        x, option = given.integer("x", 0), given.choice("option", ("a", "b"))
        return given.call(len, option * 2) == 2 and cast(bool, given.call(abs, x) < 5)

    assert holds(claim, {"x": 4, "option": 1})
    assert not holds(claim, {"x": 5, "option": 0})
    assert holds(claim, {"x": -9, "option": 0}), "it does not speak of numbers below zero"
