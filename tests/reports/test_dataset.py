"""What is wrong with a dataset is said in one line with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dovetail.cli import app
from dovetail.reports import report
from dovetail.reports.campaign import _in_words, manifest_for, run_campaign
from dovetail.reports.dataset import BadDataset, Dataset, code_hash, open_dataset, read_manifest, write_manifest
from dovetail.reports.errors import cause
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
    with pytest.raises(BadDataset, match=r"2\.parquet is damaged or half written .*take it away"):
        open_dataset(str(trace))


def test_a_half_written_file_of_a_campaign_is_deleted_and_its_seeds_run_again(trace: Path) -> None:
    (trace / "trace").mkdir()
    (trace / "trace" / "1.parquet").write_bytes(b"PAR1")
    write_manifest(trace, manifest_for("swarm", 1, 5))
    with pytest.raises(BadDataset, match=r"1\.parquet is damaged .*delete it, and `dovetail sim campaign --out"):
        open_dataset(str(trace), partial=True)
    # The campaign itself says the same when it is to go on, before it asks anything of Spark.
    with pytest.raises(BadDataset, match=r"1\.parquet is damaged .*delete it"):
        run_campaign(None, trace, manifest_for("swarm", 1, 5), ["swarm"])  # type: ignore[arg-type]


def test_where_a_campaign_can_not_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no campaign")
    for place, says in (("file", "is there and is no campaign"), ("file/below", "can't write into .*Not a directory")):
        with pytest.raises(BadDataset, match=says):
            run_campaign(None, tmp_path / place, manifest_for("swarm", 1, 5), ["swarm"])  # type: ignore[arg-type]


def test_what_spark_raises_is_said_in_its_most_telling_line() -> None:
    assert cause(Exception("[FAILED_READ_FILE.NO_HINT] Encountered error while reading a.parquet.\n\tat Spark")) == (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading a.parquet."
    )
    assert cause(Exception("Job aborted\n\tat x\nCaused by: java.io.EOFException: no more\n\tat y")) == (
        "java.io.EOFException: no more"
    )
    assert cause(ValueError()) == "ValueError"


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


def test_what_stops_a_report_is_said_with_what_to_do(tmp_path: Path) -> None:
    chosen = Dataset(tmp_path, None)
    full = str(report._in_words(Exception("java.io.IOException: No space left on device"), chosen, None))
    assert "name another disk with SPARK_LOCAL_DIRS" in full
    damaged = str(report._in_words(Exception("Caused by: x.ChecksumException: 1.parquet at 18432\n\tat"), chosen, None))
    assert "(x.ChecksumException: 1.parquet at 18432): a file that this names is damaged, delete it" in damaged


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
