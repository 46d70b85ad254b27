"""Buffers of any bytes: what they mean where bytes mean something, and what they refuse."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
from hypothesis import given as having
from hypothesis import settings
from hypothesis import strategies as st

from dovetail.proofs.buffers import Buffer, Content, Layout, checksum_of
from dovetail.proofs.engine import Concrete, Given, Verdict, prove
from dovetail.proofs.symbolic import Refusal


def _content(data: bytes) -> Content:
    content = Content(Concrete({f"byte_{at}": byte for at, byte in enumerate(data)}))
    content.says(0, {f"byte_{at}": (at, "B") for at in range(len(data))})
    return content


def _bytes_of(found: Buffer) -> bytes:
    return bytes(found[at] for at in range(found.size))


PLACES = st.integers(0, 20) | st.none()


@settings(deadline=None)
@having(data=st.binary(max_size=12), cuts=st.lists(st.tuples(PLACES, PLACES), max_size=3), at=st.integers(0, 20))
def test_slices_and_indexes_are_those_of_bytes(data: bytes, cuts: list[tuple[int | None, int | None]], at: int) -> None:
    found = Buffer(_content(data), len(data))
    for start, stop in cuts:
        found, data = found[start:stop], data[start:stop]
    assert (found.size, _bytes_of(found), bool(found)) == (len(data), data, bool(data))
    assert (found == data, found == data + b"x", found != data) == (True, False, False)
    if at < len(data):
        assert found[at] == data[at]
    else:
        with pytest.raises(IndexError):
            found[at]


def test_a_decoder_that_reads_past_the_end_by_index_has_a_counterexample() -> None:
    def second(data: Buffer) -> object:
        return data[1] if data.size > 0 else 0

    def claim(given: Given) -> bool:
        given.call(second, Buffer(Content(given), given.integer("size", 0)))
        return True

    finding = prove(claim)
    assert (finding.verdict, finding.inputs) == (Verdict.COUNTEREXAMPLE, {"size": 1})
    assert "IndexError" in finding.detail


def test_a_field_past_the_end_is_an_error_as_with_struct() -> None:
    layout = Layout(struct.Struct(">HI"))
    with pytest.raises(struct.error):
        layout.unpack_from(Buffer(_content(b"12345"), 5))


@pytest.mark.parametrize("format", ["<I", "I", "=H", ">2I", ">Ix", ">f", ">?", "!I"])
def test_a_layout_that_is_not_modelled_is_refused(format: str) -> None:
    with pytest.raises(Refusal, match="big-endian"):
        Layout(struct.Struct(format))


def test_what_bytes_can_and_buffers_can_not_is_refused() -> None:
    found = Buffer(_content(b"abc"), 3)
    for wrong in (lambda: found[-1], lambda: found[-2:], lambda: found[:-1], lambda: found[::2]):
        with pytest.raises(Refusal):
            wrong()
    with pytest.raises(Refusal):
        Layout(struct.Struct(">B")).unpack_from(found, -1)
    with pytest.raises(Refusal):
        checksum_of(found, 17)
    with pytest.raises(Refusal):
        found[:1] + found[2:]
    with pytest.raises(Refusal):
        assert found == SimpleNamespace()
