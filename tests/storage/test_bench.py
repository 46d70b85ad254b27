"""The benchmark runs; what it measures is for people to read."""

from __future__ import annotations

import os
from pathlib import Path

from dovetail.runtime.storage.bench import figures
from dovetail.runtime.storage.layout import StoreOptions


def test_the_benchmark_gives_figures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    directory = os.fspath(tmp_path / "bench")
    small = StoreOptions(journal_segment_bytes=1 << 20)
    found = list(figures(directory, messages=2_400, topics=20, commits=5, options=small))
    assert len(found) == 3 * 4 + 2 + 2
    assert all(figure.value > 0 for figure in found)
    assert list((tmp_path / "bench").iterdir()) == []
