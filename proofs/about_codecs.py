"""Proofs about lengths and numbers in bytes that anybody may have sent: nothing is read past its end.

The bytes are a tuple of integers 0..255, each any of them, which the shipped decoders index as they index bytes.
"""

from __future__ import annotations

from typing import cast

from dovetail.core import batch, varint
from dovetail.proofs.engine import Given, every, implies, some
from dovetail.proofs.registry import proof
from dovetail.proofs.shapes import within

VARINTS = "bounded: 0 to 11 bytes, each any byte"


def _bytes(given: Given, most: int) -> tuple[bytes, list[int]]:
    size = given.choice("size", range(most + 1))
    data = [given.integer(f"byte_{place}", 0, 255) for place in range(size)]
    return cast(bytes, tuple(data)), data


def _zigzag(data: list[int]) -> int:
    """What the bytes of a varint say, by its definition: groups of seven bits, low ones first, sign in the lowest."""
    total = 0
    for place, byte in enumerate(data):
        total = total + byte % 128 * 128**place
    return total // 2 if total % 2 == 0 else -(total // 2) - 1


@proof("I-LENGTH", about=varint.decode, scope=VARINTS, sabotage=("while shift < 7 * BYTES_MAX", "while shift < 70 + 7"))
def a_varint_is_at_most_ten_bytes(given: Given) -> bool:
    """A varint ends where its first byte below 128 is, ten bytes at most; where the data ends first, or it has more
    than 64 bits, it is refused."""
    data, plain = _bytes(given, 11)
    ends = [every(plain[place] < 128, *(byte >= 128 for byte in plain[:place])) for place in range(len(plain))]
    try:
        number, at = given.call(varint.decode, data, 0)
    except IndexError:
        return every(len(plain) < 10, *(byte >= 128 for byte in plain))
    except varint.VarintError:
        return every(len(plain) >= 10, *(byte >= 128 for byte in plain[:9]), plain[9] > 1)
    return every(within(at, 1, min(10, len(plain))), ends[at - 1], within(number, -(1 << 63), (1 << 63) - 1))


@proof(
    "I-LENGTH",
    about=varint.decode,
    scope="bounded: 0 to 4 bytes, each any byte",
    sabotage=("total >> 1 ^", "total >> 2 ^"),
)
def a_varint_says_its_zigzag_number(given: Given) -> bool:
    """The number of a varint is what its groups of seven bits and its sign bit define."""
    data, plain = _bytes(given, 4)
    try:
        number, at = given.call(varint.decode, data, 0)
    except IndexError:
        return every(True, *(byte >= 128 for byte in plain))
    return number == _zigzag(plain[:at])


@proof(
    "I-LENGTH",
    about=batch._record_bounds,
    scope="bounded: a length of 0 to 3 bytes, each any byte; ends any integers",
    sabotage=("start + length > end", "start + length > end + 1"),
)
def a_record_ends_inside_its_section(given: Given) -> bool:
    """Whatever length a record claims, it starts after its length and ends within the section, or it is refused."""
    data, _ = _bytes(given, 3)
    end = given.integer("end")
    try:
        start, stop = given.call(batch._record_bounds, data, 0, end)
    except batch.BatchError:
        return True
    return every(start >= 1, start <= stop, stop <= end)


@proof(
    "I-LENGTH",
    about=batch._record_bounds,
    scope="bounded: a length of 1 byte, any byte; ends any integers",
    sabotage=("length < 0", "length <= 0"),
)
def a_record_that_fits_is_not_refused(given: Given) -> bool:
    """A record is refused only for a length below zero or past the section's end."""
    byte, end = given.integer("byte", 0, 127), given.integer("end")
    length = _zigzag([byte])
    fits = every(length >= 0, 1 + length <= end)
    try:
        start, stop = given.call(batch._record_bounds, cast(bytes, (byte,)), 0, end)
    except batch.BatchError:
        return implies(fits, False)
    return every(fits, start == 1, stop == 1 + length)


@proof("I-LENGTH", about=batch._check_room, sabotage=("> size_bytes", ">= size_bytes"))
def a_count_of_records_that_can_not_fit_is_refused(given: Given) -> bool:
    """No work is begun for more records than the section has room for, and none that fit are refused."""
    count, size = given.integer("count"), given.integer("size")
    try:
        given.call(batch._check_room, count, size)
    except batch.BatchError:
        return count * 7 > size
    return count * 7 <= size


@proof("I-LENGTH", about=batch._check_nothing_left, sabotage=("if size_bytes", "if size_bytes > 0"))
def bytes_after_the_last_record_are_refused(given: Given) -> bool:
    """A section that holds more, or less, than its records is refused."""
    count, size = given.integer("count"), given.integer("size")
    try:
        given.call(batch._check_nothing_left, count, size)
    except batch.BatchError:
        return some(size < 0, size > 0)
    return size == 0
