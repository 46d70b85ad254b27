"""A broker's life on record, byte by byte; `tests/runtime/test_recording.py` lives one again."""

import pytest

from dovetail.core import recording
from dovetail.core.ids import Now
from dovetail.core.recording import Began, NotARecording, Stepped
from dovetail.core.state import Settings

BEGAN = Began(b"a checkpoint", Settings())
STEPS = [Stepped(number, Now(number, 7).wall_ms, (), bytes(8)) for number in range(3)]


def recorded() -> bytes:
    return recording.head() + b"".join(recording.encode(each) for each in (BEGAN, *STEPS))


def test_a_recording_begins_with_its_name_and_version() -> None:
    assert recording.head() == b"DVTR\x01\0\0\0"


def test_what_was_recorded_is_read_again() -> None:
    began, steps = recording.read(recorded())
    assert (began, list(steps)) == (BEGAN, STEPS)


def test_a_torn_or_damaged_end_is_left_out() -> None:
    data = recorded()
    whole = len(data) - len(recording.encode(STEPS[-1]))
    for cut in range(whole, len(data)):
        assert list(recording.read(data[:cut])[1]) == STEPS[:-1]
    for at in range(whole, len(data)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert list(recording.read(damaged)[1]) == STEPS[:-1]


@pytest.mark.parametrize("head", [b"", b"DVTR", b"DVTX\x01\0\0\0", b"DVTR\x02\0\0\0"])
def test_what_is_no_recording_is_refused(head: bytes) -> None:
    with pytest.raises(NotARecording):
        recording.read(head + recorded()[8:] * (len(head) == 8))


def test_a_recording_that_ends_in_its_beginning_is_none() -> None:
    for cut in range(8, len(recording.head() + recording.encode(BEGAN))):
        with pytest.raises(NotARecording):
            recording.read(recorded()[:cut])
