"""The replay page in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dovetail.core.trace import Row
from dovetail.sim.replay_page import write_page
from dovetail.sim.run import run
from dovetail.sim.scenarios import plan_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


def rendered(path: Path) -> str:
    """The page as it stands after its script has run."""
    assert CHROMIUM is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent}/profile", "--dump-dom"]
    drawn = "--virtual-time-budget=10000"  # what is drawn in the next frame is waited for, however slow the machine is
    done = subprocess.run([CHROMIUM, *options, drawn, path.as_uri()], capture_output=True, text=True, timeout=120)
    return done.stdout


@needs_chromium
def test_the_page_shows_the_run_and_the_state_at_the_chosen_moment(tmp_path: Path) -> None:
    rows: list[Row] = []
    result = run(plan_of("crash-after-delivery", 1), rows.append)
    write_page(str(tmp_path / "run.html"), rows, "a run", {"verdict": "safety", "hash": result.hash})
    text = rendered(tmp_path / "run.html")
    assert f"hash {result.hash}" in text
    assert re.search(r"of [\d,]+ events in sight", text)
    # A failed run opens at its last fault, with the state there.
    assert "Crash(" in text
    assert re.search(r"workers · orders:\d</th><td class=\"detail\">floor \d+", text)


@needs_chromium
def test_the_slider_moves_through_time_and_what_changed_is_shown_with_what_it_was(tmp_path: Path) -> None:
    rows: list[Row] = []
    run(plan_of("crash-after-delivery", 1), rows.append)
    path = tmp_path / "run.html"
    write_page(str(path), rows, "a run", {"verdict": "ok"})
    moves = (
        'const moved = document.getElementById("slider"); moved.focus();'
        'for (const place of [300000, 600000]) { moved.value = place; moved.dispatchEvent(new Event("input")); }'
        'document.body.dataset.arrow = moved.dispatchEvent(new KeyboardEvent("keydown",'
        '{key: "ArrowRight", bubbles: true, cancelable: true}));'
    )
    path.write_text(path.read_text().replace("</body>", f"<script>{moves}</script></body>"))
    text = rendered(path)
    last = max(place for place, row in enumerate(rows) if row.time_us <= 0.6 * rows[-1].time_us)
    assert f'<th>number</th><td class="detail">{last}</td>' in text
    assert re.search(
        r'<tr class="changed"><th>workers · orders:0</th><td class="detail">floor \d+[^<]*<span[^>]*>was', text
    )
    assert 'class="bar"' in text
    # The slider keeps its arrow keys for itself.
    assert 'data-arrow="true"' in text


@needs_chromium
def test_the_state_tells_the_lanes_of_a_partition_apart(tmp_path: Path) -> None:
    rows = [
        Row(lane, lane * 1000, "c1", kind, "orders", 0, 0, 4, "g", lane=lane)
        for lane in (1, 5)
        for kind in ("confirm", "deliver", "ack")
    ]
    rows.append(Row(9, 9000, "c1", "violated", fault="I-LANE"))
    write_page(str(tmp_path / "lanes.html"), rows, "lanes", {"verdict": "safety"})
    text = rendered(tmp_path / "lanes.html")
    for lane in (1, 5):
        assert f'<th>g · orders:0.{lane}</th><td class="detail">floor 5, 0 held' in text


@needs_chromium
def test_the_page_opens_with_a_hundred_thousand_events(tmp_path: Path) -> None:
    rows = [
        Row(number, number * 50, f"c{number % 9}", "deliver", "orders", 0, number, number, "g", latency_us=200)
        for number in range(100_000)
    ]
    write_page(str(tmp_path / "large.html"), rows, "large", {"verdict": "ok"})
    assert "100,000 of 100,000 events in sight" in rendered(tmp_path / "large.html")
