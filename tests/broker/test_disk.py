"""A disk that fills up, as a client on a plain socket sees it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dovetail.core.codes import Status
from tests.broker.conftest import Start
from tests.broker.raw import PUBLISH, frame, publish

TOTAL = 64 << 20


def test_a_disk_that_fills_up_fast_makes_the_broker_read_only_before_it_is_full(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used() -> int:
        return sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())

    def small_disk(_: object) -> SimpleNamespace:
        left = max(0, TOTAL - used())
        return SimpleNamespace(f_blocks=TOTAL, f_bfree=left, f_bavail=left, f_frsize=1)

    monkeypatch.setattr(os, "statvfs", small_disk)
    client = start().client()
    while True:
        client.send(frame(PUBLISH, publish("logs", b"x" * 200_000)))
        answer = client.answer()
        if answer.status != Status.OK:
            break
        assert used() < TOTAL
    assert answer.status == Status.READ_ONLY
    assert "full" in answer.reason
    client.subscribe("logs", "readers")
    assert len(client.deliveries(10)) == 10, "what is there can still be read"
