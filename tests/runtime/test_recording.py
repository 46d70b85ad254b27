"""A real broker's life is lived again from its recording, step by step the same."""

import asyncio
from pathlib import Path

import pytest

from dovetail import connect
from dovetail.core import recording
from dovetail.core.awaken import awaken
from dovetail.runtime.config import Config
from dovetail.runtime.exits import Exit
from dovetail.runtime.server import Server, StartFailed
from dovetail.runtime.storage import checkpoint


async def live(data: Path, *, crash: bool) -> None:
    """A busy second: publishes, a delayed message, nacks, acks; then a stop or a crash."""
    config = Config(data=str(data), listen="127.0.0.1:0", http="", record=str(data / "recording"))
    server = await Server.start(config)
    async with connect(f"127.0.0.1:{server.port}") as client, client.subscribe("a.*", group="g") as messages:
        await asyncio.gather(*[client.publish("a.b", f"message {number}") for number in range(300)])
        await client.publish("a.b", "later", delay="100ms")
        seen = 0
        async for message in messages:
            await (message.nack() if seen % 7 == 0 else message.ack())
            seen += 1
            if message.text == "later":
                break
    await (server.kill() if crash else server.stop())


def steps_that_differ(path: Path) -> tuple[int, int]:
    """How many steps a recording has, and how many of them came out otherwise when lived again."""
    began, steps = recording.read(path.read_bytes())
    state = awaken(checkpoint.decode(began.checkpoint), began.settings)
    verdicts = [differs for _, _, differs in recording.live_again(state, steps)]
    return len(verdicts), sum(differs is not None for differs in verdicts)


def test_a_recorded_run_gives_identical_records_and_effects_across_a_crash(tmp_path: Path) -> None:
    asyncio.run(live(tmp_path, crash=True))
    asyncio.run(live(tmp_path, crash=False))
    recordings = sorted((tmp_path / "recording").iterdir())
    assert len(recordings) == 2
    for path in recordings:
        steps, differ = steps_that_differ(path)
        assert steps > 5
        assert differ == 0


def test_a_core_that_decides_otherwise_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(live(tmp_path, crash=False))
    (path,) = (tmp_path / "recording").iterdir()
    monkeypatch.setattr("dovetail.core.leases.kernels.backoff_ms", lambda failures, salt: 77)
    _, differ = steps_that_differ(path)
    assert differ > 0


def test_a_recording_that_was_cut_is_read_up_to_the_cut(tmp_path: Path) -> None:
    asyncio.run(live(tmp_path, crash=False))
    (path,) = (tmp_path / "recording").iterdir()
    whole, _ = steps_that_differ(path)
    path.write_bytes(path.read_bytes()[:-3])
    cut, differ = steps_that_differ(path)
    assert (cut, differ) == (whole - 1, 0)


def test_a_file_that_is_no_recording_is_refused() -> None:
    with pytest.raises(recording.NotARecording, match="serve --record"):
        recording.read(b"GIF89a, not a recording")


def test_a_recording_that_cannot_be_kept_stops_the_start_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = Config(data=str(tmp_path / "data"), listen="127.0.0.1:0", http="", record=str(tmp_path / "file"))
    with pytest.raises(StartFailed, match="--record") as failed:
        asyncio.run(Server.start(config))
    assert failed.value.code is Exit.DISK


def test_a_data_directory_that_is_a_file_stops_the_start_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartFailed, match="a directory is needed") as failed:
        asyncio.run(Server.start(Config(data=str(tmp_path / "file"), listen="127.0.0.1:0", http="")))
    assert failed.value.code is Exit.DISK
