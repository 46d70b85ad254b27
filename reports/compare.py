"""Two campaigns side by side: what moved, and whether that is more than noise.

Promises  runs are the unit, because messages of one run share their luck: they are drawn anew with replacement, and a
          figure has moved only if 99 of 100 draws put it on the same side; where both campaigns have the same seeds,
          each is compared with itself. The same campaigns always give the same answer.
Never     says that nothing moved: only that these runs do not show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any

from msgspec import Struct

DRAWS = 2_000
SHARE = 0.99
LEAST = 5
"""Fewer runs say nothing."""
FIGURES = {
    "latency_p50_us": "delivery latency, median (µs)",
    "latency_p99_us": "delivery latency, 99 of 100 (µs)",
    "sent_again_share": "share of deliveries that were not the first",
    "down_ms": "time without a broker in a run (ms)",
    "drain_ms": "time to drain after the faults (ms)",
    "delivered_per_s": "messages delivered in a simulated second",
}


class Moved(Struct, frozen=True):
    """One figure in both campaigns: means over runs, and where the difference lies with 99% confidence."""

    figure: str
    before: float
    after: float
    low: float
    high: float
    runs: int
    paired: bool
    verdict: str


def moved(after: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> list[Moved]:
    """Compare two campaigns run by run."""
    return [_moved(name, title, after, before) for name, title in FIGURES.items()]


def _moved(name: str, title: str, after: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> Moved:
    ours, theirs = _values(after, name), _values(before, name)
    both = sorted(ours.keys() & theirs.keys())
    paired = len(both) >= LEAST
    random = Random(name)
    if paired:
        pairs = [(ours[key], theirs[key]) for key in both]
        differences = [new - old for new, old in pairs]
        draws = sorted(fmean(random.choices(differences, k=len(differences))) for _ in range(DRAWS))
        mine, other = [new for new, _ in pairs], [old for _, old in pairs]
    else:
        mine, other = list(ours.values()), list(theirs.values())
        if min(len(mine), len(other)) < LEAST:
            count = min(len(mine), len(other))
            return Moved(title, _mean(other), _mean(mine), 0.0, 0.0, count, False, "too few runs")
        draws = sorted(
            fmean(random.choices(mine, k=len(mine))) - fmean(random.choices(other, k=len(other))) for _ in range(DRAWS)
        )
    edge = round((1 - SHARE) / 2 * DRAWS)
    low, high = draws[edge], draws[-1 - edge]
    verdict = "rose" if low > 0 else "fell" if high < 0 else "noise" if low < high else "the same"
    return Moved(title, _mean(other), _mean(mine), low, high, min(len(mine), len(other)), paired, verdict)


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> dict[tuple[str, int], float]:
    return {(row["run"], row["seed"]): float(row[name]) for row in rows if row[name] is not None}


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
