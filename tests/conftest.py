"""Settings of every test: how fast a machine is decides about none of them. The simulator's fresh seeds are told."""

import re

import pytest
from hypothesis import HealthCheck, settings

from tests.depth import EXAMPLES

settings.register_profile("patient", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

FRESH = re.compile(r"test_a_seed_nobody_has_seen_keeps_every_promise\[(\d+)\]")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which seeds nobody had seen before, and how to run them again."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    seeds = sorted({int(found[1]) for report in reports if (found := FRESH.search(report.nodeid))})
    if seeds:
        told = (
            f"the simulator's fresh seeds were {seeds[0]} to {seeds[-1]}: DOVETAIL_SIM_SEED={seeds[0]} runs them again"
        )
        terminalreporter.write_line(told)
