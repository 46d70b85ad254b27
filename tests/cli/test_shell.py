"""The commands among other programs: live pipes, keys in lines, ends of logs, Tab, and a broker that goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from dovetail.cli import app
from dovetail.cli.rest import Rest
from dovetail.cli.top import _look_again, lasting
from dovetail.core import batch
from dovetail.runtime.exits import Exit
from tests.broker import raw
from tests.broker.house import wait_until
from tests.cli.conftest import Cli
from tests.http.api import Refused


def messages(cli: Cli, topic: str) -> list[Any]:
    try:
        found: list[Any] = cli.http.get(f"/v1/topics/{topic}/messages")["messages"]
    except Refused:
        return []
    return found


def environment(cli: Cli, **more: str) -> dict[str, str]:
    where = {"DOVETAIL_API": cli.http.base, "DOVETAIL_URL": f"dovetail://127.0.0.1:{cli.house.port}"}
    return {**os.environ, **where, "DOVETAIL_TOKEN": "", **more}


def test_a_line_leaves_while_the_pipe_is_still_open(cli: Cli) -> None:
    words = [sys.executable, "-m", "dovetail", "publish", "live", "--key-separator", ":"]
    publisher = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(cli), bufsize=1
    )
    assert publisher.stdin is not None
    publisher.stdin.write("k1:one\n")
    wait_until(lambda: len(messages(cli, "live")) == 1, "the first line is stored before there is a second", 60)
    publisher.stdin.write("without a key\nk2:a:b")
    said, _ = publisher.communicate(timeout=60)
    assert (publisher.returncode, said) == (0, "3 messages published to live\n")
    assert [each["key"] for each in messages(cli, "live")] == ["k1", None, "k2"]
    shown = cli.run("consume", "live", "-e", "-K", "=").stdout
    assert shown == "k1=one\n=without a key\nk2=a:b\n"


@pytest.mark.parametrize("source", ["/dev/null", "file"])
def test_what_is_no_pipe_is_read_too(cli: Cli, source: str, tmp_path: Any) -> None:
    (tmp_path / "file").write_text("one\ntwo\n")
    with open(source if source.startswith("/") else tmp_path / source) as stdin:
        words = [sys.executable, "-m", "dovetail", "publish", "lines", "--json"]
        done = subprocess.run(words, stdin=stdin, capture_output=True, text=True, env=environment(cli), timeout=60)
    assert json.loads(done.stdout)["published"] == (0 if source.startswith("/") else 2), done.stderr


def test_a_log_is_read_to_its_end_in_every_lane_and_partition(cli: Cli) -> None:
    cli.run("topic", "create", "jobs", "--lanes", "--partitions", "2")
    wanted = set()
    for lane in ("critical", "normal", "background"):
        for number in range(4):
            wanted.add(cli.run("publish", "jobs", f"{lane} {number}", "--priority", lane).stdout.strip())
    lines = cli.run("consume", "jobs", "--from", "earliest", "--until-end", "--json").stdout.splitlines()
    assert {json.loads(line)["message_id"] for line in lines} == wanted
    assert len(lines) == len(wanted)
    assert cli.run("consume", "jobs", "--from", "latest", "-e").stdout == ""
    cli.run("consume", "jobs", "-e", "--group", "crew", code=Exit.USAGE)


def test_reading_from_a_time_goes_past_what_is_older_however_much_it_is(cli: Cli) -> None:
    client = cli.house.client()
    old = batch.build([(None, b"x" * 900_000, ())], timestamp_ms=1)
    for _ in range(3):
        client.done(raw.PRODUCE, raw.produce("orders", old))
    cli.run("publish", "orders", "fresh")
    assert cli.run("consume", "orders", "--from", "5m", "--count", "1").stdout == "fresh\n"
    assert cli.run("consume", "orders", "--from", "5m", "-e").stdout == "fresh\n"


def test_tab_offers_what_there_is_and_nothing_where_there_is_no_broker(cli: Cli) -> None:
    for name in ("orders.eu", "orders.us", "stock"):
        cli.run("publish", name, "x")
    cli.http.join("billing", "orders.*")

    def offered(line: str, **more: str) -> set[str]:
        asked = {"_DOVETAIL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        words = [
            sys.executable,
            "-c",
            "from dovetail.__main__ import main; import sys; sys.argv = ['dovetail']; main()",
        ]
        env = environment(cli, **asked, **more)
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=60)
        assert done.stderr == ""
        return set(done.stdout.split())

    assert offered("dovetail topic show ord") == {"orders.eu", "orders.us"}
    assert offered("dovetail group lag ") == {"billing"}
    assert offered("dovetail topic show ord", DOVETAIL_API="http://127.0.0.1:9") == set()


def test_top_waits_for_a_broker_that_is_restarted() -> None:
    said = _look_again(Rest("http://127.0.0.1:9"))
    assert "is a broker running" in str(said)
    assert "asked again" in str(said)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (61, "1m 1s"), (3600, "1h"), (90_061, "1d 1h"), (3601, "1h 1s")]
)
def test_spans_are_written_as_people_read_them(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


def test_a_context_with_one_address_knows_the_other(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    run = CliRunner()
    run.invoke(app, ["context", "add", "prod", "--api", "https://broker.example:9443"])
    run.invoke(app, ["context", "add", "lab", "--url", "dovetail://[::1]:9000"])
    found = {each["name"]: each for each in json.loads(run.invoke(app, ["context", "list", "--json"]).stdout)}
    assert found["prod"]["url"] == "dovetail://broker.example:7400"
    assert found["lab"]["api"] == "http://[::1]:7480"
    assert run.invoke(app, ["context", "add", "odd", "--api", "http://["]).exit_code == Exit.USAGE
