"""Each proof as a test that runs in this process: for those who have changed the core in it, as mutants do.

Not collected by its name; `tests/proofs/test_proofs.py` has the same proofs, side by side in processes of their own.
"""

import pytest

from dovetail.proofs.engine import Verdict, prove
from dovetail.proofs.registry import Proof, proofs


@pytest.mark.parametrize("proof", proofs(), ids=lambda proof: proof.id)
def test_it_has_no_counterexample(proof: Proof) -> None:
    finding = prove(proof.claim)
    assert finding.verdict is not Verdict.COUNTEREXAMPLE, f"{finding.detail} {finding.inputs}"
