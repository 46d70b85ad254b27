"""What is wrong with a dataset is said in one line with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dovetail.cli import app
from dovetail.reports.campaign import _in_words, manifest_for
from dovetail.reports.dataset import BadDataset, code_hash, open_dataset, read_manifest, write_manifest
from tests.reports.traces import Story, write

runner = CliRunner()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write(tmp_path, {1: Story().rows})
    return tmp_path


def test_a_directory_of_trace_files_is_a_dataset(trace: Path) -> None:
    assert open_dataset(str(trace)).trace == str(trace)


def test_what_is_not_there_is_said_with_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=r"there is no .*nowhere: `dovetail sim campaign --out"):
        open_dataset(str(tmp_path / "nowhere"))


def test_a_directory_without_a_trace_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="holds no trace"):
        open_dataset(str(tmp_path))


def test_an_address_is_no_directory() -> None:
    with pytest.raises(BadDataset, match="name a directory"):
        open_dataset("s3a://bucket/campaign")


def test_a_campaign_that_is_not_finished_says_how_to_go_on_and_is_read_if_asked(trace: Path) -> None:
    (trace / "trace").mkdir()
    (trace / "1.parquet").rename(trace / "trace" / "1.parquet")
    write_manifest(trace, manifest_for("swarm", 1, 5))
    with pytest.raises(BadDataset, match=r"is not finished: `dovetail sim campaign --out .*--partial"):
        open_dataset(str(trace))
    assert open_dataset(str(trace), partial=True).manifest is not None


def test_a_half_written_file_is_named(trace: Path) -> None:
    data = (trace / "1.parquet").read_bytes()
    (trace / "2.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(BadDataset, match=r"2\.parquet is damaged or half written .*delete it"):
        open_dataset(str(trace))


def test_an_older_schema_is_said_with_what_it_lacks(trace: Path) -> None:
    old = pq.read_table(trace / "1.parquet").drop_columns(["lease", "asked"])
    pq.write_table(old, trace / "1.parquet")
    with pytest.raises(BadDataset, match="is of an older schema, without lease, asked: run it again"):
        open_dataset(str(trace))


def test_a_file_that_is_still_written_is_left_alone(trace: Path) -> None:
    (trace / "_now.parquet").write_bytes(b"PAR1")
    assert open_dataset(str(trace)).manifest is None


def test_a_manifest_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(BadDataset, match="is no manifest"):
        read_manifest(tmp_path)
    later = {"version": "9", "code": "", "scenario": "", "seed": 1, "seeds": 1, "format": 99}
    (tmp_path / "manifest.json").write_text(json.dumps(later))
    with pytest.raises(BadDataset, match="is of format 99"):
        read_manifest(tmp_path)


def test_a_full_disk_is_said_with_what_to_do(tmp_path: Path) -> None:
    text = str(_in_words(Exception("Job aborted ... java.io.IOException: No space left on device"), tmp_path))
    assert "is full" in text
    assert "the same command goes on" in text


def test_the_code_has_one_name() -> None:
    assert code_hash() == code_hash()
    assert len(code_hash()) == 16


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "no-such"], "there is no no-such"),
        (["report", "TRACE", "--master", "lokal"], "is no Spark master: use"),
        (["report", "TRACE", "--master", "spark://127.0.0.1:1"], "no Spark master answers"),
    ],
)
def test_the_command_fails_with_one_line(trace: Path, words: list[str], said: str) -> None:
    done = runner.invoke(app, [word.replace("TRACE", str(trace)) for word in words])
    assert done.exit_code == 1
    assert said in done.output
    assert len(done.output.strip().splitlines()) == 1
