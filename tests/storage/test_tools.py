"""What people do to a data directory without a broker: verify, dump, repair."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from dovetail.cli.log import app
from dovetail.core.names import DEAD_LETTERS, NAME_BYTES_MAX
from dovetail.runtime.exits import Exit
from dovetail.runtime.storage import tools
from dovetail.runtime.storage.disk import DiskError, SyncAll, Task, replace_file, run
from dovetail.runtime.storage.findings import Corrupted, Outcome, Progress
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.real_disk import RealDisk
from dovetail.sim.disk import SimDisk
from tests.storage.build import SALT, SMALL, Broker, sim_disk, values_of


def filled(disk: SimDisk | RealDisk, options: StoreOptions = SMALL) -> Broker:
    """Thirty messages that the journal need not have any more."""
    broker = Broker(disk, options)
    log = broker.create("orders")
    group = broker.join("billing", log)
    for number in range(30):
        broker.publish(log, b"message %d" % number * 10)
    broker.checkpoint()
    broker.settle(group, log, 0, 9)
    broker.checkpoint()
    return broker


def test_a_sound_directory_is_verified_as_such() -> None:
    disk = sim_disk()
    broker = filled(disk)
    broker.close()
    found = run(disk, tools.verify(SMALL))
    assert found.is_sound
    assert (found.broker_id, found.last_lsn) == (broker.opened.broker_id, broker.durable.lsn)
    assert found.findings == ()
    assert (found.topics, found.logs, found.messages) == (1, 1, 30)


def test_verify_changes_nothing_and_reports_every_flipped_bit_of_a_log() -> None:
    disk = sim_disk()
    filled(disk).close()
    path, data = next((path, data) for path, data in disk.files() if path.endswith("00.log"))
    for bit in range(5, len(data) * 8, 97):
        twin = disk.copy()
        twin.flip(path, bit)
        before = dict(twin.files())
        found = run(twin, tools.verify(SMALL))
        assert [finding.outcome for finding in found.findings] == [Outcome.LOST]
        assert found.findings[0].path == path
        assert 0 <= found.findings[0].first <= found.findings[0].last
        assert dict(twin.files()) == before


def test_repair_puts_a_hole_where_an_entry_can_not_be_read_and_keeps_the_rest() -> None:
    disk = sim_disk()
    broker = filled(disk)
    entries = broker.read_all(1)
    broker.close()
    path = next(path for path, _ in disk.files() if path.endswith("00.log"))
    damaged = dict(disk.files())[path]
    disk.flip(path, 300 * 8)
    done = run(disk, tools.repair(SMALL, 1, SALT))
    lost = {offset for each in done.findings for offset in range(each.first, each.last + 1)}
    assert len(lost) == 1
    again = Broker(disk)
    assert again.read_all(1) == [entry for entry in entries if entry.base not in lost]
    _, kept = done.quarantined
    assert len(dict(disk.files())[kept]) == len(damaged)
    again.close()
    assert run(disk, tools.verify(SMALL)).findings == ()


def test_a_part_that_is_gone_becomes_a_hole() -> None:
    disk = sim_disk()
    broker = filled(disk)
    entries = broker.read_all(1)
    parts = run(disk, broker.store.parts(1))
    broker.close()
    disk.remove(f"topics/orders/0/{parts[1].base:020}.log")
    assert not run(disk, tools.verify(SMALL)).is_sound
    run(disk, tools.repair(SMALL, 1, SALT))
    again = Broker(disk)
    assert again.read_all(1) == [each for each in entries if not parts[1].base <= each.base < parts[1].end]
    again.close()
    assert run(disk, tools.verify(SMALL)).is_sound


def test_a_repair_takes_from_the_journal_what_a_log_has_lost() -> None:
    disk = sim_disk()
    broker = Broker(disk, StoreOptions(journal_segment_bytes=1 << 20, log_segment_bytes=2048))
    log = broker.create("orders")
    published = [broker.publish(log, b"message %d" % number * 10) for number in range(30)]
    broker.checkpoint()
    broker.close()
    path = next(path for path, _ in disk.files() if path.endswith("00.log"))
    disk.flip(path, 300 * 8)
    assert not run(disk, tools.verify(SMALL)).is_sound
    done = run(disk, tools.repair(SMALL, 1, SALT))
    assert [(each.path, each.outcome) for each in done.findings] == [(path, Outcome.REPAIRED)]
    again = Broker(disk)
    assert again.read_all(log) == published
    again.close()
    assert run(disk, tools.verify(SMALL)).findings == ()


def test_a_repair_takes_nothing_from_the_journal_that_a_compaction_may_have_seen() -> None:
    disk = sim_disk()
    broker = Broker(disk, StoreOptions(journal_segment_bytes=1 << 20, log_segment_bytes=2048))
    log = broker.create("orders")
    for number in range(30):
        broker.publish(log, b"message %d" % number * 10)
    for _ in range(2):
        broker.checkpoint()
        broker.publish(log, b"later")
    broker.close()
    disk.flip(next(path for path, _ in disk.files() if path.endswith("00.log")), 300 * 8)
    (found,) = run(disk, tools.repair(SMALL, 1, SALT)).findings
    assert found.outcome is Outcome.LOST


@pytest.mark.parametrize("damaged", ["journal", "log", "both"])
def test_a_repair_may_be_stopped_anywhere_and_the_next_one_finds_as_much(damaged: str) -> None:
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.create("orders")
    group = broker.join("billing", log)
    for number in range(45):
        broker.publish(log, b"message %d" % number * 10)
        if number in (8, 12):
            broker.settle(group, log, number - 4, number)
            broker.checkpoint()
    disk.kill()
    disk.execute(SyncAll())
    paths = [path for path, _ in disk.files()]
    if damaged != "log":
        disk.flip([path for path in paths if path.endswith(".wal")][-2], 2000 * 8)
    if damaged != "journal":
        disk.flip(next(path for path in paths if path.endswith(".log")), 300 * 8)
    whole = disk.copy()
    run(whole, tools.repair(SMALL, 1, SALT))
    found = Broker(whole)
    entries = found.read_all(log)
    assert len(entries) == (45 if damaged == "journal" else 44), "the log has what the journal has lost"
    at = 0
    while not is_done(stopped := disk.copy(Random(at)), tools.repair(SMALL, 1, SALT), at):
        stopped.crash() if at % 2 else stopped.kill()
        run(stopped, tools.repair(SMALL, 1, SALT))
        assert run(stopped, tools.verify(SMALL)).is_sound
        again = Broker(stopped)
        assert again.read_all(log) == entries
        assert again.durable.cursors == found.durable.cursors
        at += 3
    assert at > 100


def is_done(disk: SimDisk, task: Task[object], operations: int) -> bool:
    """Do so many operations of a task; whether it ended with them."""
    try:
        op = next(task)
        for _ in range(operations):
            try:
                result = disk.execute(op)
            except DiskError as error:
                op = task.throw(error)
            else:
                op = task.send(result)
    except StopIteration:
        return True
    return False


def test_files_that_were_mixed_up_are_put_right_by_a_repair() -> None:
    disk = sim_disk()
    broker = filled(disk)
    entries = broker.read_all(1)
    broker.close()
    one, other = [path for path, _ in disk.files() if path.endswith(".log")][1:3]
    contents = dict(disk.files())
    run(disk, replace_file(one, (contents[other],)))
    run(disk, replace_file(other, (contents[one],)))
    done = run(disk, tools.repair(SMALL, 1, SALT))
    assert {each.outcome for each in done.findings} == {Outcome.REPAIRED}
    assert Broker(disk).read_all(1) == entries


def test_what_lies_behind_a_parts_last_entry_is_read_by_nobody() -> None:
    disk = sim_disk()
    broker = filled(disk)
    entries = broker.read_all(1)
    broker.close()
    path, data = next((path, data) for path, data in disk.files() if path.endswith("00.log"))
    run(disk, replace_file(path, (data + b"hello" * 100,)))
    assert run(disk, tools.verify(SMALL)).is_sound
    again = Broker(disk)
    assert again.read_all(1) == entries
    assert [run(disk, again.store.offset_at(1, entry.record.arrival_ms)) for entry in entries] == list(range(30))


def test_a_part_that_is_a_link_to_nowhere_becomes_a_hole(tmp_path: Path) -> None:
    disk = RealDisk(os.fspath(tmp_path))
    broker = filled(disk)
    entries = broker.read_all(1)
    second, third = run(disk, broker.store.parts(1))[1:3]
    broker.close()
    path = tmp_path / f"topics/orders/0/{second.base:020}.log"
    path.unlink()
    path.symlink_to("nowhere")
    with pytest.raises(Corrupted, match=f"offsets {second.base} to {third.base - 1}"):
        Broker(disk).read(1, second.base)
    disk.close()
    assert not run(disk, tools.verify(SMALL)).is_sound
    run(disk, tools.repair(SMALL, 1, SALT))
    assert Broker(disk).read_all(1) == [entry for entry in entries if not second.base <= entry.base < third.base]


@pytest.mark.parametrize("size", [0, 300])
def test_what_becomes_a_hole_is_about_as_old_as_it_was(size: int) -> None:
    disk = sim_disk()
    broker = filled(disk)
    before = run(disk, broker.store.parts(1))
    broker.close()
    path = f"topics/orders/0/{before[1].base:020}.log"
    content = dict(disk.files())[path]
    run(disk, replace_file(path, (content[size + 1 :] if size else b"",)))
    run(disk, tools.repair(SMALL, 1, SALT))
    parts = run(disk, Broker(disk).store.parts(1))
    assert [each.base for each in parts] == [each.base for each in before]
    assert before[1].first_arrival_ms <= parts[1].first_arrival_ms <= before[2].first_arrival_ms
    assert all(each.last_arrival_ms >= old.last_arrival_ms for each, old in zip(parts, before, strict=True))


def test_what_an_earlier_repair_kept_is_never_replaced() -> None:
    disk = sim_disk()
    filled(disk).close()
    path = next(path for path, _ in disk.files() if path.endswith("00.log"))
    kept: dict[str, bytes] = {}
    for bit in (300 * 8, 900 * 8):
        disk.flip(path, bit)
        damaged = dict(disk.files())[path]
        *_, place = run(disk, tools.repair(SMALL, 1, SALT)).quarantined
        kept[place] = damaged
    assert len(kept) == 2
    assert kept.items() <= dict(disk.files()).items()


def test_a_topic_with_the_longest_name_there_is_can_be_repaired(tmp_path: Path) -> None:
    disk = RealDisk(os.fspath(tmp_path))
    broker = Broker(disk)
    name = "x" * NAME_BYTES_MAX + DEAD_LETTERS
    entries = [broker.publish(broker.create(name), b"m" * 100)]
    entries += [broker.publish(1, b"m" * 100) for _ in range(3)]
    broker.checkpoint()
    broker.create("another")
    broker.checkpoint()
    broker.close()
    log = tmp_path / "topics" / name / "0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    done = run(disk, tools.repair(SMALL, 1, SALT))
    assert (tmp_path / done.quarantined[-1]).read_bytes() == content
    assert Broker(disk).read_all(1) == entries[1:]


def test_what_is_left_without_broker_json_and_journal_can_be_verified_and_repaired() -> None:
    disk = sim_disk()
    filled(disk).close()
    for path, _ in list(disk.files()):
        if path.startswith("journal/") or path == "broker.json":
            disk.remove(path)
    found = run(disk, tools.verify(SMALL))
    assert [each.path for each in found.findings if each.outcome is Outcome.LOST] == ["journal"]
    run(disk, tools.repair(SMALL, 1, SALT))
    assert len(Broker(disk).read_all(1)) == 30


def test_the_way_of_a_look_at_all_logs_is_told() -> None:
    disk = sim_disk()
    filled(disk).close()
    told: list[Progress] = []
    found = run(disk, tools.verify(SMALL, told.append))
    reading = [each for each in told if each.stage == "reading the logs"]
    assert len(reading) > 1
    assert (reading[-1].done_bytes, reading[-1].total_bytes) == (found.log_bytes, found.log_bytes)


def test_a_dump_shows_journal_logs_and_state() -> None:
    disk = sim_disk()
    filled(disk).close()
    journal: list[dict[str, object]] = []
    logs: list[dict[str, object]] = []
    state: list[dict[str, object]] = []
    run(disk, tools.dump_journal(SMALL, journal.append))
    run(disk, tools.dump_logs(SMALL, "orders", logs.append, with_records=True))
    run(disk, tools.dump_state(SMALL, state.append))
    assert "Settled" in {row["kind"] for row in journal}
    assert [row["base"] for row in logs] == list(range(30))
    records = [json.loads(json.dumps(row["records"], default=str)) for row in logs]
    assert [[record["offset"] for record in each] for each in records] == [[offset] for offset in range(30)]
    assert {row["kind"] for row in state} == {"state", "topic", "log", "group", "cursor"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    disk = RealDisk(os.fspath(tmp_path / "data"))
    filled(disk, StoreOptions(journal_segment_bytes=8192, log_segment_bytes=2048)).close()
    disk.close()
    return tmp_path / "data"


def test_the_command_verifies_dumps_and_repairs(data: Path) -> None:
    runner = CliRunner()
    verified = runner.invoke(app, ["verify", os.fspath(data), "--json"])
    assert verified.exit_code == 0
    assert json.loads(verified.stdout)["messages"] == 30
    assert json.loads(verified.stdout)["sound"] is True
    dumped = runner.invoke(app, ["dump", os.fspath(data), "logs", "--records", "--json"])
    assert len([json.loads(line) for line in dumped.stdout.splitlines()]) == 30
    assert "Settled" in runner.invoke(app, ["dump", os.fspath(data)]).stdout
    state = runner.invoke(app, ["dump", os.fspath(data), "state", "--json"])
    assert [
        json.loads(line)["config"]["max_retries"] for line in state.stdout.splitlines() if '"topic","id"' in line
    ] == [3]
    misplaced = runner.invoke(app, ["dump", os.fspath(data), "state", "--topic", "orders"])
    assert misplaced.exit_code == Exit.USAGE
    log = min((data / "topics/orders/0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(content)
    damaged = runner.invoke(app, ["verify", os.fspath(data)])
    assert damaged.exit_code == Exit.DAMAGED
    assert f"{log.name} at" in damaged.stdout
    assert runner.invoke(app, ["repair", os.fspath(data)]).exit_code == Exit.USAGE
    repaired = runner.invoke(app, ["repair", os.fspath(data), "--yes"])
    assert repaired.exit_code == 0, repaired.output
    assert "kept: quarantine/" in repaired.stdout
    assert runner.invoke(app, ["verify", os.fspath(data)]).exit_code == 0


def test_a_directory_in_use_or_not_there_is_refused(data: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    disk = RealDisk(os.fspath(data))
    broker = Broker(disk, StoreOptions(journal_segment_bytes=8192))
    locked = runner.invoke(app, ["verify", os.fspath(data)])
    assert locked.exit_code == Exit.LOCKED
    assert "a test" in locked.output
    assert values_of(broker.read(1, 0, 1)) == [b"message 0" * 10]
    disk.close()
    for command in (["verify"], ["dump"], ["repair", "--yes"]):
        refused = runner.invoke(app, [*command, os.fspath(tmp_path / "nowhere")])
        assert refused.exit_code == Exit.DAMAGED
        assert "not a data directory" in refused.output
    assert not (tmp_path / "nowhere").exists()
