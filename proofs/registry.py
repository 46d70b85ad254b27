"""The list of proofs: what each says, which shipped function it is about, how far it reaches, what breaks it.

Promises  a proof is a claim with its facts beside it: `@proof(...)` over a function whose docstring is the statement.
Never     proves anything by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from textwrap import wrap
from typing import Any

from msgspec import Struct

from dovetail.proofs.engine import Claim, Finding, Verdict, chosen, holds, prove
from dovetail.proofs.sabotage import reworded, swapped

ALL = "all integers"

_NO_BUG = ("raises NameError", "raises AttributeError", "raises UnboundLocalError", "raises TypeError")
"""What code raises that says something that does not exist: any claim notices that."""

MODULES = (
    "kernels",
    "flow",
    "timers",
    "intervals",
    "cursor",
    "evolve",
    "leases",
    "stories",
    "settling",
    "publish",
    "producers",
    "assignment",
    "shelf",
    "codecs",
    "files",
    "frames",
    "names",
    "step",
)
"""Each `proofs/about_<name>.py` holds the proofs about that part of the core."""


class Sabotage(Struct, frozen=True):
    """A planted bug: `old`, once in the source of `function`, becomes `new`."""

    function: Callable[..., Any]
    old: str
    new: str


class Proof(Struct, frozen=True):
    """A claim and the facts about it."""

    id: str
    invariant: str
    statement: str
    about: Callable[..., Any]
    through: tuple[Callable[..., Any], ...]
    scope: str
    claim: Claim
    sabotage: Sabotage

    @property
    def function(self) -> str:
        """The name of what it is about, as one would import it."""
        return f"{self.about.__module__.removeprefix('dovetail.')}.{self.about.__qualname__}"

    @property
    def covers(self) -> tuple[Callable[..., Any], ...]:
        """Every shipped function that the proof answers for."""
        return (self.about, *self.through)


_proofs: dict[str, Proof] = {}


def proof(
    invariant: str,
    *,
    about: Callable[..., Any],
    sabotage: tuple[str, str] | Sabotage,
    scope: str = ALL,
    through: tuple[Callable[..., Any], ...] = (),
) -> Callable[[Claim], Claim]:
    """Register a claim; its name becomes the proof's id, its docstring the statement."""

    def register(claim: Claim) -> Claim:
        id = claim.__name__.strip("_").replace("_", "-")
        if id in _proofs:
            raise ValueError(f"there are two proofs called {id}")
        planted = sabotage if isinstance(sabotage, Sabotage) else Sabotage(about, *sabotage)
        statement = " ".join((claim.__doc__ or "").split())
        _proofs[id] = Proof(id, invariant, statement, about, through, scope, claim, planted)
        return claim

    return register


def proofs() -> tuple[Proof, ...]:
    """All proofs, in the order of the modules they are about."""
    for name in MODULES:
        import_module(f"dovetail.proofs.about_{name}")
    return tuple(_proofs.values())


def named(id: str) -> Proof:
    """The proof with this id."""
    found = {proof.id: proof for proof in proofs()}
    if id not in found:
        raise KeyError(f"there is no proof {id!r}; `dovetail prove` lists them")
    return found[id]


def keeps(id: str, **inputs: int) -> bool:
    """Whether the claim of proof `id`, run on plain numbers, is kept: a counterexample as a test calls this."""
    return holds(named(id).claim, inputs)


def prove_sabotaged(proof: Proof) -> Finding:
    """What the proof finds while its bug is planted: a counterexample, or the proof is worth nothing."""
    planted = proof.sabotage
    try:
        code = reworded(planted.function, planted.old, planted.new)
    except ValueError as error:
        return Finding(Verdict.REFUSED, 0, 0.0, {}, str(error))
    with swapped(planted.function, code):
        finding = prove(proof.claim)
    if finding.verdict is Verdict.COUNTEREXAMPLE and finding.detail.startswith(_NO_BUG):
        return Finding(Verdict.REFUSED, finding.paths, finding.seconds, {}, f"no bug, but nonsense: {finding.detail}")
    return finding


def as_test(proof: Proof, finding: Finding) -> str:
    """A counterexample as a pytest case that fails until the function is right."""
    if finding.verdict is not Verdict.COUNTEREXAMPLE:
        return ""
    inputs = "".join(f", {name}={value}" for name, value in finding.inputs.items())
    options = ", ".join(f"{name} stands for {option}" for name, option in chosen(proof.claim, finding.inputs).items())
    return "\n".join(
        [
            "from dovetail.proofs.registry import keeps",
            "\n",
            f"def test_{proof.id.replace('-', '_')}() -> None:",
            *_wrapped(f'"""{proof.invariant}, {proof.function}: {proof.statement}"""', ""),
            *(_wrapped(f"# {options}", "# ") if options else ()),
            *_wrapped(f'assert keeps("{proof.id}"{inputs})', "    "),
            "",
        ]
    )


def _wrapped(text: str, indent: str) -> list[str]:
    return wrap(
        text,
        100,
        initial_indent="    ",
        subsequent_indent=f"    {indent}",
        break_long_words=False,
        break_on_hyphens=False,
    )
