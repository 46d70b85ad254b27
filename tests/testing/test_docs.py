"""The programs of `docs/testing.md` and of the README's chapter on testing run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = "pytester"

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE + (ROOT / "README.md").read_text(), re.M | re.S)
TESTS = [program for program in PROGRAMS if "dovetail_broker" in program]
SCRIPTS = [program for program in PROGRAMS if "dovetail.testing" in program and program not in TESTS]


def test_the_tests_of_the_page_and_the_readme_pass(pytester: pytest.Pytester) -> None:
    assert len(TESTS) == 2
    pytester.makepyfile(**{f"test_{number}": program for number, program in enumerate(TESTS)})
    found = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert found.ret == 0
    found.stdout.no_fnmatch_line("*skipped*")


@pytest.mark.parametrize("program", SCRIPTS)
def test_the_scripts_of_the_page_run(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
