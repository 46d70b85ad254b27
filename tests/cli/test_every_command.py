"""No command without a test: those for operators run here against a real broker, the others have tests of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dovetail.cli import app
from dovetail.runtime.exits import Exit
from tests.cli.conftest import Cli

ROOT = typer.main.get_command(app)
TESTS = Path(__file__).parents[1]
ELSEWHERE = {
    "serve": "runtime",
    "bench": "storage",
    "log": "storage",
    "sim": "sim",
    "prove": "proofs",
    "report": "reports",
}
"""Families of commands that need no broker beside them, and the folder of their tests."""


def commands() -> Iterator[str]:
    """Every command's words."""
    yield from sorted(_below(ROOT, ()))


def _below(command: Any, words: tuple[str, ...]) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None or (command.invoke_without_command and words):
        yield " ".join(words)
    for name, each in (inner or {}).items():
        yield from _below(each, (*words, name))


def test_every_command_has_help_that_says_what_it_does() -> None:
    found = list(commands())
    assert len(found) > 50
    for words in found:
        command: Any = ROOT
        for word in words.split():
            command = command.commands[word]
        assert command.help, words
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert parameter.help, (words, parameter.name)


def test_every_command_is_run_somewhere(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    ran: set[str] = set()

    def run(words: str, *more: str, code: int = 0, stdin: str | None = None) -> str:
        ran.add(words)
        return cli.run(*words.split(), *more, code=code, stdin=stdin).stdout

    def said(words: str, *more: str) -> Any:
        return json.loads(run(words, *more, "--json").splitlines()[-1])

    tokens = str(tmp_path / "tokens.yaml")
    assert run("token add", tokens, "abel", "--role", "read").startswith("dvt_")
    assert said("token list", tokens)[0]["name"] == "abel"
    run("token remove", tokens, "abel")
    run("context add", "here", "--api", cli.http.base)
    assert said("context list")[0]["current"]
    run("context use", "here")
    run("context remove", "here")
    assert "topic.lease" in run("config show")
    assert "| `topic.lease` |" in run("config reference")

    run("topic create", "orders", "--partitions", "2")
    run("topic set", "orders", "max_retries=0")
    assert said("topic show", "orders")["partitions"] == 2
    assert len(said("topic list")) == 1
    message_id = run("publish", "orders", "one", "--key", "k").strip()
    assert json.loads(run("consume", "orders", "--from", "earliest", "--count", "1", "--json"))["value"]
    assert said("trace", message_id)["message"]["message_id"] == message_id
    assert said("top")["topics"]["orders"]["depth"] == 1

    cli.http.join("crew", "orders")
    assert said("group list")[0]["name"] == "crew"
    assert said("group show", "crew")["members"]
    assert sum(each["lag"] for each in said("group lag", "crew")) == 1
    (message,) = cli.http.poll("crew", max=1)
    assert said("group pending", "crew")
    cli.http.post("/v1/groups/crew/reject", receipts=[message["receipt"]])
    assert said("group reset", "crew", "--to", "latest", "--yes")
    run("group rebalance", "crew", code=Exit.FAILED)
    run("group kick", "crew", "abel")

    (entry,) = said("dlq list", "orders")
    assert said("dlq show", "orders", str(entry["offset"]))["reason"] == "rejected"
    assert said("dlq replay", "orders")["state"] == "done"
    assert [job["id"] for job in said("dlq replays")] == [1]
    for words in ("dlq pause", "dlq resume", "dlq abort"):
        run(words, "1", code=Exit.FAILED)
    assert "0 dead letters" in run("dlq purge", "orders", "--yes")

    assert said("topic delete", "orders", "--yes", "--force")

    assert said("admin level")["level"] == "normal"
    assert said("admin level", "read-only", "--reason", "a test")["reason"] == "a test"
    run("admin level", "normal")
    run("admin level", "asleep", code=Exit.USAGE)
    assert said("admin health", "--deep")["status"] in ("ok", "warn")
    assert said("admin reload")["changed"] == []
    assert said("admin set", "topic.lease=9s") == {"topic.lease": "9s"}
    run("admin set", "topic.lease", code=Exit.USAGE)
    run("admin checkpoint")
    run("admin compact")
    run("admin shutdown", code=Exit.FAILED, stdin="n\n")
    run("admin shutdown", "--yes")
    assert cli.house.call(cli.house.server.stop_asked.is_set)

    assert json.loads(run("demo", "--seconds", "0.5", "--rate", "50", "--json").splitlines()[-1])["published"] >= 0
    run("torture", "--data", str(TESTS), code=Exit.USAGE)

    missing = [words for words in set(commands()) - ran - set(ALONE) - set(LONG) if not _is_run_elsewhere(words)]
    assert not missing, f"no test runs {sorted(missing)}: run it here, or where its family is tested"


ALONE = {
    "sim scenarios": ("--json",),
    "sim campaign": ("--scenario", "drop-during-ack", "--seeds", "1", "--seed", "2", "--jobs", "1", "--quick"),
    "sim mutants": ("no-such-mutant", "--seeds", "1"),
    "bench core": ("--quick", "--json"),
    "bench backlog": ("--messages", "200", "--json"),
    "bench pauses": ("--leases", "40", "--rounds", "1", "--json"),
    "bench browse": ("--messages", "2000", "--seconds", "0.3", "--rounds", "1", "--json"),
}
"""Commands that are run here without a broker beside them, as small as they go."""
LONG = {
    "sim speed": ("--scale", "1", "--json"),
    "sim marks": ("--seeds", "1", "--jobs", "1", "--json"),
    "bench report": ("--quick", "--json"),
}
"""The same, where even the smallest run is long: with DOVETAIL_DEPTH set."""


@pytest.mark.parametrize("words", sorted({**ALONE, **LONG}))
def test_a_command_without_a_broker_runs(words: str) -> None:
    if words in LONG and "DOVETAIL_DEPTH" not in os.environ:
        pytest.skip(f"NOT RUN: dovetail {words} is long; DOVETAIL_DEPTH=1 runs it")
    result = CliRunner().invoke(app, [*words.split(), *(ALONE | LONG)[words]])
    assert result.exit_code in (Exit.OK, Exit.FAILED), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.output


def _is_run_elsewhere(words: str) -> bool:
    """Whether a test of the family names the command as one would on the command line."""
    family, *rest = words.split()
    folder = TESTS / ELSEWHERE.get(family, "nowhere")
    wanted = f'"{(rest or [family])[-1]}"'
    return any(wanted in file.read_text("utf-8") for file in folder.glob("*.py"))
