"""What `spec/decisions.md` cites as evidence is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CITED = re.compile(r"`(tests/[a-z_/]+\.py)::(test_[a-z_0-9]+)`")


def test_every_line_of_the_sources_tables_has_a_test_or_a_reason() -> None:
    section = (ROOT / "spec" / "decisions.md").read_text().split("## Its tables of states, line by line")[1]
    rows = [row for row in section.split("\n## ")[0].splitlines() if row.startswith("| ")][1:]
    assert len(rows) == 27
    for row in rows:
        _, line, here, _ = row.split("|")
        cited = CITED.findall(here)
        assert cited or len(here.split()) > 10, f"nothing is said of: {line}"
        for path, name in cited:
            assert f"def {name}(" in (ROOT / path).read_text(), f"{path} has no {name}"
