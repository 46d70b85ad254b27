"""Mechanical mutants that nothing can notice, because the broker does the same with them, and why.

Promises  each is still a mutant that exists: one whose function says something else now fails a test.
Never     excuses a hole: what a test could tell apart is not here.
"""

EQUIVALENT = {
    "core.flow._charge: 1000 → 1001 in settings.quota_bytes * 1000": "`refill` cuts a new bucket to what it may hold "
    "before anything is taken from it",
    "core.rebalance.disturb: 0 → 1 in (timers.GATHER, number, 0)": "nobody reads the third part of this timer, and "
    "none is ever cleared by it",
}
