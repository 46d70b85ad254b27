"""The programs of `docs/testing.md` and `docs/howto.md`, and of the README's chapter on testing, run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = "pytester"

ROOT = Path(__file__).parents[2]
PAGES = "".join((ROOT / page).read_text() for page in ("docs/testing.md", "docs/howto.md", "README.md"))
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGES, re.M | re.S)
TESTS = [program for program in PROGRAMS if "dovetail_broker" in program]
SCRIPTS = [program for program in PROGRAMS if "dovetail.testing" in program and program not in TESTS]


def test_the_tests_of_the_pages_pass(pytester: pytest.Pytester) -> None:
    assert len(TESTS) == 4
    pytester.makepyfile(**{f"test_{number}": program for number, program in enumerate(TESTS)})
    found = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert found.ret == 0
    found.stdout.no_fnmatch_line("*skipped*")


@pytest.mark.parametrize("program", SCRIPTS)
def test_the_scripts_of_the_page_run(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
