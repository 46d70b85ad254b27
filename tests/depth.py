"""How deep the tests search: `DOVETAIL_DEPTH=10` lets Hypothesis try ten times as many examples as by default."""

from __future__ import annotations

import os

DEPTH = int(os.environ.get("DOVETAIL_DEPTH", "1"))
EXAMPLES = 100 * DEPTH
"""Of every property that does not say otherwise."""
