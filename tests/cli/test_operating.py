"""Every command for operators, against a real broker."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovetail.cli import app, dlq
from dovetail.runtime.exits import Exit
from tests.broker.house import wait_until
from tests.cli.conftest import Cli


def test_topics_are_made_listed_shown_set_and_deleted(cli: Cli) -> None:
    assert "no topics yet" in cli.run("topic", "list").stdout
    made = cli.run("topic", "create", "orders.eu", "--partitions", "3", "--set", "retention.hours=24").stdout
    assert made == "topic orders.eu made: 3 partitions\n"
    assert "orders.eu" in cli.run("topic", "list", "orders.*").stdout
    assert cli.json("topic", "show", "orders.eu")["settings"]["retention"]["hours"] == 24
    assert "settings.lease" in cli.run("topic", "show", "orders.eu").stdout
    assert cli.json("topic", "set", "orders.eu", "lease=10s", "compact=true")["compact"] is True
    cli.run("topic", "create", "orders.us")
    assert cli.run("topic", "set", "orders.*", "retention.count=7").stdout == "2 topics changed: orders.eu, orders.us\n"
    assert cli.json("topic", "show", "orders.us")["settings"]["retention"]["count"] == 7
    assert cli.json("topic", "show", "orders.eu")["settings"]["retention"] == {"hours": 24, "bytes": 0, "count": 7}
    assert "no topic matches 'x.#'" in cli.run("topic", "set", "x.#", "compact=true", code=Exit.FAILED).stderr
    cli.run("topic", "delete", "orders.us", "--yes")
    assert "nothing was deleted" in cli.run("topic", "delete", "orders.eu", stdin="n\n", code=1).stderr
    assert cli.run("topic", "delete", "orders.eu", "--yes").stdout == "topic orders.eu deleted, 0 messages\n"
    assert cli.json("topic", "list") == []


def test_lists_come_as_a_table_a_document_or_lines(cli: Cli) -> None:
    for name in ("a", "b"):
        cli.run("topic", "create", name)
    assert [each["name"] for each in json.loads(cli.run("topic", "list", "-o", "json").stdout)] == ["a", "b"]
    lines = cli.run("topic", "list", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["a", "b"]
    assert len(cli.run("topic", "list").stdout.splitlines()) == 3


def test_a_refusal_is_one_line_and_a_code(cli: Cli) -> None:
    refused = cli.run("topic", "show", "missing", code=Exit.FAILED)
    assert refused.stderr.startswith("dovetail: topic 'missing' does not exist")
    assert len(refused.stderr.splitlines()) == 1
    cli.run("topic", "set", "missing", "lease", code=Exit.USAGE)
    cli.run("topic", "create", "a b", code=Exit.USAGE)


def test_no_broker_is_a_code_of_its_own() -> None:
    result = CliRunner().invoke(app, ["topic", "list", "--api", "http://127.0.0.1:9"])
    assert result.exit_code == Exit.UNAVAILABLE
    assert "dovetail serve" in result.stderr


def test_groups_are_looked_at_and_moved(cli: Cli) -> None:
    assert "no groups yet" in cli.run("group", "list").stdout
    for number in range(3):
        cli.run("publish", "orders", str(number))
    cli.http.join("billing", "orders")
    cli.http.poll("billing", max=2)
    assert cli.json("group", "list")[0]["name"] == "billing"
    assert cli.json("group", "show", "billing")["members"][0]["id"] == "abel"
    assert "abel" in cli.run("group", "show", "billing").stdout
    assert cli.json("group", "lag", "billing")[0]["lag"] == 3
    assert cli.json("group", "pending", "billing")[0]["member"] == "abel"
    assert cli.json("group", "reset", "billing", "--to", "latest", "--yes")[0]["offset"] == 3
    assert cli.json("group", "lag", "billing")[0]["lag"] == 0
    assert "abel is out" in cli.run("group", "kick", "billing", "abel").stdout
    assert "is shared" in cli.run("group", "rebalance", "billing", code=1).stderr
    cli.run("group", "reset", "billing", "--to", "someday", "--yes", code=Exit.USAGE)


def test_dead_letters_are_listed_shown_and_purged(cli: Cli) -> None:
    assert "no dead letters" in cli.run("dlq", "list").stdout
    cli.http.join("billing", "orders")
    cli.run("publish", "orders", "broken")
    (message,) = cli.http.poll("billing")
    cli.http.post("/v1/groups/billing/reject", receipts=[message["receipt"]], reason="no such customer")
    wait_until(lambda: bool(cli.json("dlq", "list")), "it is dead")
    assert cli.json("dlq", "list") == [{"topic": "orders", "dlq": "orders.dlq", "messages": 1}]
    table = cli.run("dlq", "list", "orders").stdout
    assert "no such customer" in table
    assert "broken" in table
    entry = cli.json("dlq", "show", "orders", "0")
    assert entry["reason"] == "rejected"
    shown = cli.run("dlq", "show", "orders", "0").stdout
    assert str(entry["died"]) not in shown
    assert datetime.fromtimestamp(entry["died"] / 1000).strftime("%Y-%m-%d %H:%M:%S") in shown
    assert cli.run("dlq", "replay", "orders", "--dry-run").stdout == "would replay 1 dead letter: 1 to orders\n"
    assert cli.json("dlq", "replay", "orders", "--to", "repairs")["state"] == "done"
    assert cli.json("topic", "show", "repairs")["messages"] == 1
    cli.run("dlq", "replay", "orders", code=1)
    (job,) = cli.json("dlq", "replays")
    assert job["state"] == "done"
    listed = cli.run("dlq", "replays").stdout
    assert datetime.fromtimestamp(job["started"] / 1000).strftime("%Y-%m-%d %H:%M:%S") in listed
    for too_late in ("pause", "resume", "abort"):
        assert "done already" in cli.run("dlq", too_late, str(job["id"]), code=1).stderr
    assert "no replay" in cli.run("dlq", "pause", "99", code=1).stderr
    cli.run("publish", "orders", "broken too")
    (message,) = cli.http.poll("billing", timeout="5s")
    cli.http.post("/v1/groups/billing/reject", receipts=[message["receipt"]])
    wait_until(lambda: len(cli.json("dlq", "list", "orders")) == 1, "it is dead too")
    assert "would be removed" in cli.run("dlq", "purge", "orders").stdout
    assert "1 dead letter removed" in cli.run("dlq", "purge", "orders", "--yes").stdout
    assert cli.json("dlq", "list", "orders") == []
    assert cli.json("dlq", "list") == []


def test_top_and_trace_show_what_is_going_on(cli: Cli) -> None:
    cli.http.join("billing", "orders")
    message_id = cli.run("publish", "orders", "x").stdout.strip()
    shown = cli.run("top", "--once").stdout
    assert "orders" in shown
    assert "billing" in shown
    assert cli.json("top")["topics"]["orders"]["depth"] == 1
    assert cli.json("trace", message_id)["groups"][0]["state"] == "waiting"
    assert "message.value       x\n" in cli.run("trace", message_id).stdout


def test_a_line_that_was_refused_is_not_counted_as_published(cli: Cli) -> None:
    result = cli.run("publish", "orders", stdin="small\n" + "x" * 1_100_000 + "\n", code=1)
    assert "1 of 2 messages were not published" in result.stderr
    assert "too large" in result.stderr
    assert "published to" not in result.stdout


def test_torture_takes_only_an_empty_directory(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    assert "is not empty" in cli.run("torture", "--data", str(tmp_path), code=2).stderr


def test_a_message_goes_to_its_lane_or_waits_for_its_time(cli: Cli) -> None:
    cli.run("topic", "create", "jobs", "--lanes")
    cli.run("publish", "jobs", "now", "--priority", "critical")
    cli.run("publish", "jobs", "later", "--delay", "1h")
    kept = {log["lane"]: log["end"] for log in cli.json("topic", "show", "jobs")["logs"]}
    assert kept == {"critical": 1, "high": 0, "normal": 0, "low": 0, "background": 0}
    for option in ("--delay", "--ttl"):
        refused = cli.run("publish", "jobs", "never", option, "banana", code=Exit.USAGE)
        assert option in refused.stderr
        assert "banana" in refused.stderr


WRONG = (
    "publish jobs x --delay 400d",
    "publish jobs x --delay -5s",
    "publish jobs x --ttl soon",
    "publish jobs x --priority urgent",
    "publish jobs x --header banana",
    "publish jobs x --partition 7",
    "publish jobs..a x",
    "consume jobs.#.a",
    "consume jobs --from someday",
    "consume jobs --count -1",
    "topic create new --partitions 0",
    "topic create new --set lease=banana",
    "topic set jobs max_retries=banana",
    "topic set jobs leese=5s",
    "group reset crew --to banana --yes",
    "dlq replay jobs --rate -1",
)


def test_a_wrong_value_is_wrong_usage_and_said_in_a_line(cli: Cli) -> None:
    cli.run("topic", "create", "jobs")
    cli.http.join("crew", "jobs")
    for words in WRONG:
        said = cli.run(*words.split(), code=Exit.USAGE).stderr
        assert said.strip(), words
        assert "Traceback" not in said


def test_a_replay_is_paused_resumed_and_aborted(cli: Cli) -> None:
    cli.http.join("billing", "orders")
    cli.run("publish", "orders", stdin="".join(f"letter {number}\n" for number in range(5)))
    dead = 0
    while dead < 5:
        receipts = [message["receipt"] for message in cli.http.poll("billing", timeout="5s")]
        cli.http.post("/v1/groups/billing/reject", receipts=receipts)
        dead += len(receipts)
    wait_until(lambda: len(cli.json("dlq", "list", "orders")) == 5, "all are dead")
    job = cli.json("dlq", "replay", "orders", "--to", "repairs", "--rate", "1", "--no-wait")
    assert job["state"] == "running"
    number = str(job["id"])
    assert f"replay {number} is paused" in cli.run("dlq", "pause", number).stdout
    assert cli.json("dlq", "replays")[0]["state"] == "paused"
    assert f"replay {number} is running" in cli.run("dlq", "resume", number).stdout
    assert cli.json("dlq", "abort", number)["state"] == "aborted"
    left = len(cli.json("dlq", "list", "orders"))
    assert left == 5 - cli.json("dlq", "replays")[0]["done"]
    assert left > 0


def test_config_shows_values_with_their_origins(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text("topic:\n  lease: 5s\n")
    run = CliRunner()
    result = run.invoke(app, ["config", "show", "--config", str(file), "--changed", "--json"])
    assert json.loads(result.stdout)[0]["origin"] == f"{file} line 2"
    file.write_text("topic:\n  leese: 5s\n")
    for command in (["config", "show"], ["serve"]):
        refused = run.invoke(app, [*command, "--config", str(file)])
        assert refused.exit_code == Exit.USAGE
        assert "did you mean 'topic.lease'" in refused.stderr


def test_what_others_wrote_is_shown_as_text_and_never_steers_the_terminal(cli: Cli) -> None:
    odd = "[/red] :smile: \x1b]0;mine\x07\u202e"
    cli.http.publish("orders", odd)
    cli.http.join("billing", "orders", member="[b]")
    (message,) = cli.http.poll("billing", member="[b]")
    cli.http.post("/v1/groups/billing/reject", receipts=[message["receipt"]], reason=odd)
    wait_until(lambda: bool(cli.json("dlq", "list")), "it is dead")
    seen = "[/red] :smile: \\x1b]0;mine\\x07\\u202e"
    assert cli.run("dlq", "list", "orders").stdout.count(seen) == 2
    assert cli.run("dlq", "show", "orders", "0").stdout.count(seen) == 3
    assert seen in cli.run("trace", "orders:0:0").stdout
    assert "[b]" in cli.run("group", "show", "billing").stdout
    assert cli.json("dlq", "show", "orders", "0")["error"] == odd


def test_dead_letters_are_listed_beyond_a_page_and_purged_dry(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq, "PAGE", 2)
    for number in range(5):
        cli.http.publish("orders.dlq", f"letter {number}")
    assert [each["offset"] for each in cli.json("dlq", "list", "orders", "--limit", "0")] == [0, 1, 2, 3, 4]
    few = cli.run("dlq", "list", "orders", "--limit", "3", "--json")
    assert [each["offset"] for each in json.loads(few.stdout)] == [0, 1, 2]
    assert "the 3 oldest of 5" in few.stderr
    assert "5 dead letters would be removed" in cli.run("dlq", "purge", "orders", "--dry-run", "--yes").stdout
    assert cli.json("dlq", "purge", "orders", "--yes", "--older-than", "1h")["messages"] == 0
    assert cli.json("dlq", "purge", "orders", "--yes", "--newer-than", "1h")["messages"] == 5


@pytest.mark.parametrize("words", [["--set", "x"], ["--set", "leese=5"], ["--config", "/missing.yaml"]])
def test_wrong_usage_of_serve_ends_at_once(words: list[str]) -> None:
    assert CliRunner().invoke(app, ["serve", *words]).exit_code == Exit.USAGE


def test_brokers_are_known_by_name(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("DOVETAIL_API", "DOVETAIL_URL", "DOVETAIL_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    run = CliRunner()
    assert run.invoke(app, ["context", "add", "here"]).exit_code == Exit.USAGE
    assert run.invoke(app, ["context", "add", "here", "--api", cli.http.base, "--token", "secret"]).exit_code == 0
    assert run.invoke(app, ["context", "add", "away", "--api", "http://127.0.0.1:9"]).exit_code == 0
    assert "secret" not in run.invoke(app, ["context", "list"]).stdout
    assert (tmp_path / "dovetail" / "contexts.json").stat().st_mode & 0o077 == 0
    assert run.invoke(app, ["topic", "list", "--json"]).stdout == "[]\n"
    monkeypatch.delenv("DOVETAIL_API")
    assert run.invoke(app, ["--context", "away", "topic", "list"]).exit_code == Exit.UNAVAILABLE
    assert run.invoke(app, ["--context", "nowhere", "topic", "list"]).exit_code == Exit.USAGE
    assert run.invoke(app, ["context", "use", "away"]).exit_code == 0
    assert run.invoke(app, ["context", "remove", "away"]).exit_code == 0
    assert run.invoke(app, ["context", "remove", "away"]).exit_code == Exit.FAILED
    listed = json.loads(run.invoke(app, ["context", "list", "--json"]).stdout)
    assert [(each["name"], each["current"]) for each in listed] == [("here", False)]


def test_tokens_are_made_listed_and_taken_away(tmp_path: Path) -> None:
    run, file = CliRunner(), str(tmp_path / "tokens.yaml")
    made = run.invoke(app, ["token", "add", file, "shop", "--role", "write", "--topic", "orders.#", "--expires", "30d"])
    assert made.exit_code == 0
    assert made.stdout.strip() not in Path(file).read_text()
    assert run.invoke(app, ["token", "add", file, "shop"]).exit_code == Exit.FAILED
    nowhere = run.invoke(app, ["token", "add", str(tmp_path / "missing" / "tokens.yaml"), "shop"])
    assert (nowhere.exit_code, nowhere.stdout, "can't write" in nowhere.stderr) == (Exit.FAILED, "", True)
    assert run.invoke(app, ["token", "add", file, "other", "--role", "king"]).exit_code == Exit.USAGE
    listed = json.loads(run.invoke(app, ["token", "list", file, "--json"]).stdout)
    assert [(each["name"], each["role"], each["topics"]) for each in listed] == [("shop", "write", ["orders.#"])]
    assert run.invoke(app, ["token", "remove", file, "shop"]).exit_code == 0
    assert run.invoke(app, ["token", "remove", file, "shop"]).exit_code == Exit.FAILED
