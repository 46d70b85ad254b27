"""Proofs about frames, entries and batches as wholes: what is taken, what is refused, and as what.

The shipped decoders run on buffers of any size and content (`proofs/buffers.py`): each header field is any number that
its format can hold, each CRC may hold or not. The tables here are those of `spec/formats.md` and of Kafka's protocol,
not those of the code: a decoder that reads a field elsewhere, or sums other bytes, reads something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from dovetail.core import batch, frames, journal_format
from dovetail.core.journal_format import Damage, FormatError, NewerFormat, NoFrame, Short
from dovetail.proofs.buffers import Buffer, Content, Layout, Table, checksum_of, unknown_bytes
from dovetail.proofs.engine import Given, every, negated, some
from dovetail.proofs.registry import Sabotage, proof

ANY = "any buffer, position and header; struct fields, slices and CRCs are modelled"

FRAME: Table = {
    "magic_0": (0, "B"),
    "magic_1": (1, "B"),
    "magic_2": (2, "B"),
    "magic_3": (3, "B"),
    "version": (4, "B"),
    "flags": (5, "B"),
    "reserved": (6, "H"),
    "length": (8, "I"),
    "lsn": (12, "Q"),
    "wall_ms": (20, "Q"),
    "synced_lsn": (28, "Q"),
    "chained": (36, "I"),
    "crc": (40, "I"),
}
FRAME_BODY_AT = 44

ENTRY: Table = {
    "version": (0, "B"),
    "flags": (1, "B"),
    "reserved": (2, "H"),
    "log": (4, "I"),
    "base": (8, "Q"),
    "count": (16, "I"),
    "arrival_ms": (20, "Q"),
    "deliver_at_ms": (28, "Q"),
    "expires_at_ms": (36, "Q"),
    "other_log": (44, "I"),
    "other_base": (48, "Q"),
    "length": (56, "I"),
    "crc": (60, "I"),
}
BATCH_AT = 64

ITEM: Table = {"kind": (0, "B"), "length": (1, "I")}
ITEM_HEADER_BYTES = 5

BATCH: Table = {
    "base_offset": (0, "q"),
    "length": (8, "i"),
    "leader_epoch": (12, "i"),
    "magic": (16, "b"),
    "crc": (17, "I"),
    "attributes": (21, "h"),
    "last_offset_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "producer_epoch": (51, "h"),
    "base_sequence": (53, "i"),
    "record_count": (57, "i"),
}
BATCH_CHECKED_AT = 21
"""The batch's own CRC is of everything from here on; what is before is in the entry's."""
BATCH_HEADER_BYTES = 61
BATCH_LENGTH_AFTER = 12
"""A batch's length counts what follows it."""

WIRE: Table = {
    "magic_0": (0, "B"),
    "magic_1": (1, "B"),
    "magic_2": (2, "B"),
    "magic_3": (3, "B"),
    "version": (4, "B"),
    "type": (5, "B"),
    "flags": (6, "B"),
    "reserved": (7, "B"),
    "length": (8, "I"),
    "correlation": (12, "I"),
}
WIRE_IN_ONE: Table = {"magic": (0, "I"), "word": (0, "Q")}
"""What the same bytes say when they are read as one number."""
WIRE_HEADER_BYTES = 12
WIRE_TYPES = (*range(1, 8), 10, 11, *range(20, 33), 99)


def _says(*_: object) -> str:
    return "what is wrong, which only people read"


class _Words:
    """Stands for a table of the words that frames begin with, when it is asked for one that is symbolic."""

    def __init__(self, plain: Mapping[int, int]) -> None:
        if any(type != word // (1 << 16) % (1 << 8) for word, type in plain.items()):
            raise ValueError("a word whose type is not its sixth byte")
        self._words = tuple(plain)

    def get(self, word: int) -> int | None:
        return word // (1 << 16) % (1 << 8) if some(*(word == each for each in self._words)) else None


class _Among:
    """Stands for a set of numbers, when it is asked for one that is symbolic."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = tuple(numbers)

    def __contains__(self, number: int) -> bool:
        return bool(some(*(number == each for each in self._numbers)))


@proof(
    "I-FRAME",
    about=journal_format.read_frame,
    through=(journal_format._frame_crc,),
    scope=f"bounded: {ANY}",
    sabotage=("end <= len(buffer) and ", ""),
)
def a_frame_is_taken_exactly_when_it_is_whole_and_next(given: Given) -> bool:
    """A frame is taken, as it stands in its buffer, when its magic, length, CRC, version, lsn and chain are all right,
    and else never. A whole one with other bits set is of a later version; an older one is no frame; what begins as the
    next one does, or claims to be it, and is not whole is damage."""
    size, at = given.integer("size", 0), given.integer("at", 0)
    lsn, chained = given.integer("next_lsn", 1), given.integer("chain", 0)
    given.assume(at <= size)
    content, left = Content(given), size - at
    said = content.says(at, FRAME)
    right = content.checksum("right", (at, at + 40), (at + FRAME_BODY_AT, at + FRAME_BODY_AT + said.length))

    def read() -> tuple[str, *tuple[int, ...]]:
        found = journal_format.read_frame(cast(bytes, Buffer(content, size)), at, lsn, chained)
        if isinstance(found, NoFrame | Damage):
            return (found.__class__.__name__,)
        body = cast(Buffer, found.body)
        numbers = found.lsn, found.wall_ms, found.synced_lsn, found.previous_crc, found.crc
        return "Frame", *numbers, body.start, body.size, found.end

    with unknown_bytes(journal_format, _FRAME=Layout(journal_format._FRAME), _what_is_wrong=_says):
        try:
            kind, *numbers = given.call(read)
        except NewerFormat:
            kind, numbers = "NewerFormat", []

    magic = zip((said.magic_0, said.magic_1, said.magic_2, said.magic_3), b"DVTL", strict=True)
    agree = [some(left <= place, byte == letter) for place, (byte, letter) in enumerate(magic)]
    is_cut, begins = left < FRAME_BODY_AT, every(left > 0, *agree)
    is_next = every(said.lsn == lsn, said.chained == chained)
    is_whole = every(FRAME_BODY_AT + said.length <= left, right == said.crc)
    is_ours = every(said.version == 1, said.flags == 0, said.reserved == 0)
    whole = every(negated(is_cut), begins, is_whole)
    damaged = some(
        every(is_cut, begins),
        every(negated(is_cut), negated(begins), is_next),
        every(negated(is_cut), begins, negated(is_whole)),
        every(whole, is_ours, said.lsn >= lsn, negated(is_next)),
    )
    match kind:
        case "Frame":
            body = at + FRAME_BODY_AT
            expected = (lsn, said.wall_ms, said.synced_lsn, chained, said.crc, body, said.length, body + said.length)
            values = [number == other for number, other in zip(numbers, expected, strict=True)]
            return every(whole, is_ours, is_next, *values, body + said.length <= size)
        case "NewerFormat":
            return every(whole, negated(is_ours))
        case "Damage":
            return damaged
    stale = every(whole, is_ours, said.lsn < lsn)
    nothing = every(negated(begins), negated(every(negated(is_cut), is_next)))
    return every(some(stale, nothing), negated(damaged))


@proof(
    "I-FRAME",
    about=journal_format.decode_items,
    scope="bounded: a body of any size and content with up to 2 items; what records and entries hold is not read",
    sabotage=("if end > len(body):", "if end > len(body) + 1:"),
)
def the_items_of_a_frame_make_up_its_body(given: Given) -> bool:
    """Each item is read where the one before it ends, as long as it says and never past the body's end; a body that
    ends inside one, or an entry of another size than its item, is damage, and a kind that is not known is of a later
    version."""
    size, content = given.integer("size", 0), Content(given)
    first = content.says(0, ITEM, "first_")
    second = content.says(ITEM_HEADER_BYTES + first.length, ITEM, "second_")
    given.assume(size <= 2 * ITEM_HEADER_BYTES + first.length + second.length)
    entries = [given.integer("entry_first", 0), given.integer("entry_second", 0)]
    expected, wrong, at = [], "", 0
    for said, entry_bytes in zip((first, second), entries, strict=True):
        if wrong or at == size:
            break
        end = at + ITEM_HEADER_BYTES + said.length
        if size - at < ITEM_HEADER_BYTES or end > size or (said.kind == 2 and entry_bytes != said.length):
            wrong = "FormatError"
        elif said.kind < 1 or said.kind > 3:
            wrong = "NewerFormat"
        elif said.kind != 3:
            expected.append((said.kind, at + ITEM_HEADER_BYTES, said.length))
        at = end

    def entry(part: Buffer, at: int, *, verify: bool) -> SimpleNamespace:
        size_bytes = entries[0] if part.start == ITEM_HEADER_BYTES else entries[1]
        return SimpleNamespace(kind=1 if verify else 2, start=part.start + at, size=part.size, size_bytes=size_bytes)

    def records(part: Buffer) -> tuple[SimpleNamespace, ...]:
        return (SimpleNamespace(kind=1, start=part.start, size=part.size),)

    def read() -> list[tuple[int, int, int]]:
        found = cast(list[SimpleNamespace], journal_format.decode_items(cast(memoryview, Buffer(content, size))))
        return [(each.kind, each.start, each.size) for each in found]

    stubs = {"entry_at": entry, "_decode_records": records, "_ITEM": Layout(journal_format._ITEM)}
    with unknown_bytes(journal_format, **stubs):
        try:
            found = given.call(read)
        except NewerFormat:
            return wrong == "NewerFormat"
        except FormatError:
            return wrong == "FormatError"
    return not wrong and found == expected


@proof(
    "I-ENTRY",
    about=journal_format.entry_at,
    through=(journal_format._check_batch,),
    scope=f"bounded: {ANY}",
    sabotage=("if len(buffer) < end:", "if len(buffer) < end - 1:"),
)
def an_entry_is_taken_exactly_when_it_holds_one_whole_batch(given: Given) -> bool:
    """An entry is taken, every field as it stands in its buffer, when all of it is there, of this version, with the
    batch that it claims and the CRCs that both claim, and else never. One that is cut short says how many bytes would
    show more; a whole header with other bits set is of a later version; all else is damage."""
    size, at, verify = given.integer("size", 0), given.integer("at", 0), given.choice("verify", (True, False))
    given.assume(at <= size)
    content, left = Content(given), size - at
    said, inner = content.says(at, ENTRY), content.says(at + BATCH_AT, BATCH, "batch_")
    end = at + BATCH_AT + said.length
    right = content.checksum("right", (at, at + 60), (at + BATCH_AT, at + BATCH_AT + BATCH_CHECKED_AT))
    batch_right = content.checksum("batch_right", (at + BATCH_AT + BATCH_CHECKED_AT, end))

    def read() -> tuple[int, ...]:
        found = journal_format.entry_at(cast(bytes, Buffer(content, size)), at, verify=verify)
        header, body, record = cast(Buffer, found.header), cast(Buffer, found.batch), found.record
        producer = record.producer_id, record.producer_epoch, record.base_sequence
        return (
            *(header.start, header.size, body.start, body.size),
            *(record.log, record.base, record.count, record.arrival_ms, record.deliver_at_ms, record.expires_at_ms),
            *(record.flags, record.size_bytes, *producer, record.handle, record.other_log, record.other_base),
        )

    seen = every(left >= BATCH_AT, not verify or left >= BATCH_AT + BATCH_CHECKED_AT)
    holds = every(seen, not verify or right == said.crc)
    ours = every(holds, said.version == 1, said.reserved == 0)
    long_enough = every(ours, said.length >= BATCH_HEADER_BYTES)
    whole = every(long_enough, left >= BATCH_AT + said.length)
    is_of_it = every(inner.base_offset == said.base, inner.length + BATCH_LENGTH_AFTER == said.length)
    taken = every(whole, is_of_it, not verify or batch_right == inner.crc)
    layouts = {name: Layout(vars(journal_format)[name]) for name in ("_ENTRY", "_BATCH_PREFIX", "_BATCH_PRODUCER")}
    with unknown_bytes(journal_format, **layouts):
        try:
            numbers = given.call(read)
        except Short as short:
            return some(
                every(left < BATCH_AT, short.need == BATCH_AT),
                every(left >= BATCH_AT, negated(seen), short.need == BATCH_AT + BATCH_HEADER_BYTES),
                every(long_enough, negated(whole), short.need == BATCH_AT + said.length),
            )
        except NewerFormat:
            return every(holds, negated(ours))
        except FormatError:
            damaged = every(seen, negated(holds)), every(ours, negated(long_enough)), every(whole, negated(taken))
            return some(*damaged)
    expected = (
        *(at, BATCH_AT, at + BATCH_AT, said.length),
        *(said.log, said.base, said.count, said.arrival_ms, said.deliver_at_ms, said.expires_at_ms),
        *(said.flags, said.length, inner.producer_id, inner.producer_epoch, inner.base_sequence, 0),
        *(said.other_log, said.other_base),
    )
    return every(taken, end <= size, *(number == other for number, other in zip(numbers, expected, strict=True)))


def _numbers(header: batch.BatchHeader) -> tuple[int, ...]:
    return (
        *(header.base_offset, header.batch_length, header.leader_epoch, header.magic, header.crc, header.attributes),
        *(header.last_offset_delta, header.base_timestamp_ms, header.max_timestamp_ms, header.producer_id),
        *(header.producer_epoch, header.base_sequence, header.record_count),
    )


def _is_header(said: SimpleNamespace, left: int) -> bool:
    """Whether `left` bytes begin with a batch header that can be: as long as a header at least, and no more records
    than offsets."""
    return every(
        left >= BATCH_HEADER_BYTES,
        said.magic == 2,
        said.length + BATCH_LENGTH_AFTER >= BATCH_HEADER_BYTES,
        said.last_offset_delta >= 0,
        said.record_count >= 0,
        said.record_count <= said.last_offset_delta + 1,
    )


@proof(
    "I-LENGTH",
    about=batch.read_header,
    scope=f"bounded: {ANY}",
    sabotage=("header.batch_length < _BATCH_LENGTH_MIN", "header.batch_length <= _BATCH_LENGTH_MIN"),
)
def a_batch_header_is_taken_exactly_when_it_can_be(given: Given) -> bool:
    """A batch header is taken, field by field as it stands in its buffer, when it is all there, of magic 2, long
    enough and has no more records than offsets; else it is refused."""
    size, at = given.integer("size", 0), given.integer("at", 0)
    given.assume(at <= size)
    content = Content(given)
    said = content.says(at, BATCH)

    def read() -> tuple[int, ...]:
        return _numbers(batch.read_header(cast(bytes, Buffer(content, size)), at))

    with unknown_bytes(batch, _HEADER=Layout(batch._HEADER), crc32c=SimpleNamespace(crc32c=checksum_of)):
        try:
            numbers = given.call(read)
        except batch.BatchError:
            return negated(_is_header(said, size - at))
    values = [number == vars(said)[name] for number, name in zip(numbers, BATCH, strict=True)]
    return every(_is_header(said, size - at), *values)


@proof(
    "I-LENGTH",
    about=batch._read_whole,
    through=(batch.read_header,),
    scope=f"bounded: {ANY}",
    sabotage=Sabotage(batch._read_whole, "_LENGTH_COUNTS_FROM != size", "_LENGTH_COUNTS_FROM > size"),
)
def a_batch_is_taken_exactly_when_it_is_as_long_as_it_says(given: Given) -> bool:
    """A batch is taken for whole when its header can be, it is exactly as long as that says and has the CRC that it
    says; whatever else the bytes are, they are refused."""
    size, at = given.integer("size", 0), given.integer("at", 0)
    given.assume(at <= size)
    content, left = Content(given), size - at
    said = content.says(at, BATCH)
    right = content.checksum("right", (at + BATCH_CHECKED_AT, size))

    def read() -> tuple[int, ...]:
        return _numbers(batch._read_whole(cast(bytes, Buffer(content, size)), at))

    whole = every(_is_header(said, left), said.length + BATCH_LENGTH_AFTER == left, right == said.crc)
    with unknown_bytes(batch, _HEADER=Layout(batch._HEADER), crc32c=SimpleNamespace(crc32c=checksum_of)):
        try:
            numbers = given.call(read)
        except batch.BatchError:
            return negated(whole)
    values = [number == vars(said)[name] for number, name in zip(numbers, BATCH, strict=True)]
    return every(whole, *values)


def _wire(given: Given) -> tuple[Content, SimpleNamespace]:
    """A content that begins with the header of a frame of the wire, any of them."""
    content = Content(given)
    said, one = content.says(0, WIRE), content.says(0, WIRE_IN_ONE)
    magic = said.magic_0 * (1 << 24) + said.magic_1 * (1 << 16) + said.magic_2 * (1 << 8) + said.magic_3
    given.assume(one.magic == magic)
    rest = said.version * (1 << 24) + said.type * (1 << 16) + said.flags * (1 << 8) + said.reserved
    given.assume(one.word == magic * (1 << 32) + rest)
    return content, said


def _first_of(found: list[frames.Frame | frames.FrameError]) -> tuple[Any, ...]:
    match found:
        case []:
            return ("nothing",)
        case [frames.Frame(type, correlation, payload), *_]:
            inside = cast(Buffer, payload)
            return "frame", type, -1 if correlation is None else correlation, inside.start, inside.size
        case [frames.FrameError(code, _, fatal, correlation), *_]:
            return "error", int(code), fatal, -1 if correlation is None else correlation
    raise AssertionError(found)


@proof(
    "I-FRAME",
    about=frames.FrameDecoder.feed,
    through=(
        frames.FrameDecoder._begin,
        frames.FrameDecoder._take,
        frames.FrameDecoder._resume_header,
        frames.FrameDecoder._hold_header,
        frames._judge,
        frames._judge_start,
    ),
    scope="bounded: any bytes in two pieces, cut anywhere: a frame and less than a header after it",
    sabotage=Sabotage(frames.FrameDecoder._take, "min(at + self._missing, len(data))", "at + self._missing"),
)
def a_frame_of_the_wire_is_taken_exactly_when_it_is_whole(given: Given) -> bool:
    """Wherever a stream is cut in two, its first frame comes out once all of it is there, as it stands in the stream
    and within the limit; what is wrong with it is said in its place, and of magic, version or length as soon as the
    bytes that show it are there."""
    size, cut, limit = given.integer("size", 0), given.integer("cut", 0), given.integer("limit", 0)
    content, said = _wire(given)
    given.assume(cut <= size)
    given.assume(size - WIRE_HEADER_BYTES - said.length < WIRE_HEADER_BYTES)

    def read() -> tuple[Any, ...]:
        decoder = frames.FrameDecoder(limit)
        found = decoder.feed(cast(bytes, Buffer(content, cut)))
        return _first_of(found + decoder.feed(cast(bytes, Buffer(content, size - cut, cut))))

    layouts = {name: Layout(vars(frames)[name]) for name in ("_HEADER", "_WORD_LENGTH", "_CORRELATION")}
    tables = {name: _Words(vars(frames)[name]) for name in ("_PLAIN", "_CORRELATED")}

    def gathered(value: Buffer | None = None) -> Buffer:
        return Buffer(content, 0) if value is None else value

    with unknown_bytes(frames, **layouts, **tables, _TYPES=_Among(frames._TYPES), bytearray=gathered):
        kind, *numbers = given.call(read)

    letters = zip((said.magic_0, said.magic_1, said.magic_2, said.magic_3), b"MQUE", strict=True)
    is_header = size >= WIRE_HEADER_BYTES
    bad_magic = every(size >= 4, negated(every(True, *(byte == letter for byte, letter in letters))))
    bad_version = every(size >= 5, negated(bad_magic), said.version != 1)
    trusted = every(is_header, negated(bad_magic), negated(bad_version))
    over_long = every(trusted, said.length > limit)
    is_fatal = some(bad_magic, bad_version, over_long)
    correlated = said.flags % 4 >= 2
    is_numbered = every(correlated, said.length >= 4)
    end = WIRE_HEADER_BYTES + said.length
    whole = every(is_header, size >= end)
    is_known = some(*(said.type == each for each in WIRE_TYPES))
    is_good = every(said.reserved == 0, some(said.flags == 0, every(said.flags == 2, said.length >= 4)), is_known)
    match kind:
        case "frame":
            type, correlation, start, length = numbers
            skipped = WIRE_HEADER_BYTES - start
            numbered = every(is_numbered, correlation == said.correlation, skipped == -4)
            plain = every(negated(is_numbered), correlation == -1, skipped == 0)
            placed = every(type == said.type, start + length == end, end <= size, some(numbered, plain))
            return every(whole, negated(is_fatal), is_good, placed)
        case "error":
            code, fatal, _ = numbers
            codes = (every(bad_magic, code == 1), every(bad_version, code == 2), every(over_long, code == 3))
            if fatal:
                return some(*codes)
            return every(whole, negated(is_fatal), negated(is_good), code >= 4)
    return every(negated(whole), negated(is_fatal))
