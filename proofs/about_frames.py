"""Proofs about frames, entries and batches as wholes: whatever a header claims, nothing is read past its end.

The shipped decoders run on buffers of any size and content (`proofs/buffers.py`): each header field is any number that
its format can hold, each CRC may hold or not.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from dovetail.core import batch, journal_format
from dovetail.core.journal_format import Damage, FormatError, NewerFormat, NoFrame, Short
from dovetail.proofs.buffers import Buffer, Layout, any_crc, unknown_bytes
from dovetail.proofs.engine import Given, every
from dovetail.proofs.registry import Sabotage, proof

ANY = "any buffer, position and header; struct fields, slices and CRCs are modelled"


def _says(*_: object) -> str:
    return "what is wrong, which only people read"


@proof(
    "I-FRAME",
    about=journal_format.read_frame,
    through=(journal_format._frame_crc,),
    scope=f"bounded: {ANY}",
    sabotage=("end <= len(buffer) and ", ""),
)
def a_frame_is_whole_in_its_buffer_or_it_is_none(given: Given) -> bool:
    """A frame that is taken begins where it was looked for, has exactly the body that its header claims, ends inside
    the buffer, and is the very next of the chain; all else is no frame, damage, or of a later version."""
    size, at = given.integer("size", 0), given.integer("at", 0)
    lsn, chained = given.integer("lsn", 1), given.integer("chained", 0)
    given.assume(at <= size)
    header = journal_format.FRAME_HEADER_BYTES
    layout = Layout(journal_format._FRAME, (journal_format.MAGIC, b"none"))

    def read() -> tuple[int, int, int, int] | None:
        found = journal_format.read_frame(cast(bytes, Buffer(given, size)), at, lsn, chained)
        if isinstance(found, NoFrame | Damage):
            return None
        return found.lsn, found.previous_crc, found.end, cast(Buffer, found.body).size

    with unknown_bytes(journal_format, _FRAME=layout, _what_is_wrong=_says):
        try:
            found = given.call(read)
        except NewerFormat:
            return size - at >= header
    if found is None:
        return True
    found_lsn, previous_crc, end, body = found
    chain = every(found_lsn == lsn, previous_crc == chained)
    return every(chain, body >= 0, end == at + header + body, end <= size)


@proof(
    "I-ENTRY",
    about=journal_format.entry_at,
    through=(journal_format._check_batch,),
    scope=f"bounded: {ANY}",
    sabotage=("if len(buffer) < end:", "if len(buffer) < end - 1:"),
)
def an_entry_is_whole_in_its_buffer_or_it_is_refused(given: Given) -> bool:
    """An entry that is taken has a header of 64 bytes and exactly the batch that it claims, which says so too, all
    inside the buffer; one that is cut short says how many bytes would show it, more than there are."""
    size, at, verify = given.integer("size", 0), given.integer("at", 0), given.choice("verify", (True, False))
    header, least = journal_format.ENTRY_HEADER_BYTES, journal_format.BATCH_HEADER_BYTES
    given.assume(at <= size)
    layouts = {name: Layout(vars(journal_format)[name]) for name in ("_ENTRY", "_BATCH_PREFIX", "_BATCH_PRODUCER")}

    def read() -> tuple[int, int, int]:
        found = journal_format.entry_at(cast(bytes, Buffer(given, size)), at, verify=verify)
        return cast(Buffer, found.header).size, cast(Buffer, found.batch).size, found.record.size_bytes

    with unknown_bytes(journal_format, **layouts):
        try:
            head, batch, says = given.call(read)
        except Short as short:
            return at + short.need > size
        except FormatError:
            return size - at >= header
    return every(head == header, batch == says, batch >= least, at + head + batch <= size)


@proof(
    "I-LENGTH",
    about=batch._read_whole,
    through=(batch.read_header,),
    scope=f"bounded: {ANY}",
    sabotage=Sabotage(batch._read_whole, "header.size_bytes != len(data)", "header.size_bytes > len(data)"),
)
def a_batch_is_exactly_as_long_as_it_says_or_it_is_refused(given: Given) -> bool:
    """A batch that is taken for whole has its header, is exactly as long as that says, and claims no more records than
    it has offsets; whatever else the bytes are, they are refused."""
    size = given.integer("size", 0)

    def read() -> tuple[int, int, int]:
        found = batch._read_whole(cast(bytes, Buffer(given, size)))
        return found.batch_length, found.record_count, found.last_offset_delta

    checksum = SimpleNamespace(crc32c=any_crc)
    with unknown_bytes(batch, _HEADER=Layout(batch._HEADER), crc32c=checksum):
        try:
            length, count, delta = given.call(read)
        except batch.BatchError:
            return True
    return every(length + 12 == size, size >= batch.HEADER_BYTES, count >= 0, count <= delta + 1)
