"""The README and the how-to are true: every command in them runs, in its order, as a reader would run it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
HOWTO = (ROOT / "docs" / "howto.md").read_text()
TEXT = README + HOWTO


def commands_of(page: str) -> list[str]:
    bodies = re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S)
    return [line for body in bodies for line in body.splitlines() if line.strip()]


BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
PROGRAMS = [body for kind, body in BLOCKS if kind == "python" and "dovetail_broker" not in body]
"""Those that use the test broker are run by `tests/testing/test_docs.py`."""
INLINE = sorted(set(re.findall(r"`((?:dovetail|DOVETAIL_\w+=\S+ make) [^`]+)`", TEXT)))
ELSEWHERE = {
    "make serve": "test_make_serve_runs_a_broker_until_it_is_told_to_stop",
    "make test": "this very run",
    "source .venv/bin/activate": "the environment below",
}
LONG = re.compile(r"^dovetail (serve --|torture|prove|bench|sim campaign|report)")
"""Commands that tests of their own run, smaller; here they only have to be known with these options."""


ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT),
}


class Place:
    """A directory with a broker beside it, on ports of its own instead of those that the README names."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = dict(ENVIRONMENT)
        listen = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json"]
        self.broker = subprocess.Popen(
            [sys.executable, "-m", "dovetail", "serve", *listen],
            cwd=directory,
            env=self.env,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.ready = wait_ready(self.broker)
        self.env["DOVETAIL_URL"] = self.ready["tcp"]
        self.env["DOVETAIL_API"] = f"http://{self.ready['http']}"

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        here = command.replace("127.0.0.1:7480", self.ready["http"]).replace("127.0.0.1:7400", self.ready["tcp"])
        return subprocess.run(
            ["bash", "-c", here], cwd=self.directory, env=self.env, capture_output=True, text=True, timeout=120
        )

    def stop(self) -> None:
        self.broker.send_signal(signal.SIGTERM)
        assert self.broker.wait(30) == 0


def wait_ready(broker: subprocess.Popen[str]) -> dict[str, str]:
    assert broker.stderr is not None
    for line in broker.stderr:
        if '"ready"' in line:
            found: dict[str, str] = json.loads(line)
            return found
    raise AssertionError("the broker ended before it was ready")


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = Place(tmp_path_factory.mktemp("readme"))
    yield found
    found.stop()


@pytest.mark.parametrize("page", [README, HOWTO], ids=["README", "howto"])
def test_every_command_of_the_page_runs_in_its_order(place: Place, page: str) -> None:
    assert len(commands_of(page)) > 8
    for command in commands_of(page):
        if command in ELSEWHERE or LONG.match(command):
            continue
        if command.startswith("dovetail log"):
            place.stop()
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_the_python_of_the_readme_runs_as_it_stands(place: Place) -> None:
    assert PROGRAMS
    for program in PROGRAMS:
        here = program.replace("connect()", f"connect({place.ready['tcp']!r})")
        done = subprocess.run(
            [sys.executable, "-c", here], cwd=place.directory, env=place.env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert "the bill" in done.stdout


@pytest.mark.parametrize("command", sorted({*INLINE, *[each for each in commands_of(TEXT) if LONG.match(each)]}))
def test_commands_that_the_readme_mentions_exist_with_their_options(command: str) -> None:
    words = [word for word in command.split() if "=" not in word or word.startswith("-")]
    if words[0] == "make":
        return
    names = [word for word in words[1:] if not word.startswith("-")]
    for depth in (2, 1):
        help_of = ["dovetail", *names[:depth], "--help"]
        shown = subprocess.run(help_of, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
        if shown.returncode == 0:
            break
    assert shown.returncode == 0, shown.stderr
    plain = re.sub(r"[^\w-]+", " ", shown.stdout).split()
    for option in (word.partition("=")[0] for word in words if word.startswith("--")):
        assert option in plain, f"{option} is not an option of {command}"


@pytest.mark.skipif(not (shutil.which("make") and shutil.which("pgrep")), reason="no make or no pgrep here")
def test_make_serve_runs_a_broker_until_it_is_told_to_stop(tmp_path: Path) -> None:
    arguments = f"--data {tmp_path} --listen 127.0.0.1:0 --http 127.0.0.1:0 --log-format json"
    broker = subprocess.Popen(
        ["make", "--no-print-directory", "serve", f"ARGS={arguments}", f"BIN={Path(sys.executable).parent}"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert wait_ready(broker)["tcp"].startswith("127.0.0.1:")
    except BaseException:
        os.killpg(broker.pid, signal.SIGKILL)
        raise
    # Told to stop, the broker ends with 0, and so does make; a make that is killed itself would say its own number.
    (told,) = subprocess.run(["pgrep", "-P", str(broker.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(told), signal.SIGTERM)
    _, said = broker.communicate(timeout=30)
    assert [json.loads(line)["event"] for line in said.splitlines() if line.startswith("{")][-1] == "stopped"
    assert broker.returncode == 0


def test_every_link_to_a_file_of_the_project_leads_somewhere() -> None:
    for path in re.findall(r"`((?:spec|tests|examples|docs|core|sim|proofs)/[\w./-]*)`", TEXT):
        assert (ROOT / path).exists(), path
    for folder, page in ((ROOT, README), (ROOT / "docs", (ROOT / "docs" / "README.md").read_text())):
        for path in re.findall(r"\]\((?!https?:)([^)#]+)\)", page):
            assert (folder / path).exists(), path
