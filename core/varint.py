"""Zigzag varints, as record batches use them: small numbers of either sign in few bytes.

Promises  `decode(encode(n), 0) == (n, len(encode(n)))` for every n of 64 bits.
Never     reads more than ten bytes for one number.
"""

from typing import Final

BYTES_MAX: Final = 10
SMALL_MAX: Final = 8191  # the largest number of two bytes


class VarintError(ValueError):
    """Ten bytes or more without an end, or a number of more than 64 bits."""


def encode(number: int) -> bytes:
    if 0 <= number <= SMALL_MAX:
        return SMALL[number]
    return _encode(number)


def _encode(number: int) -> bytes:
    left = number << 1 if number >= 0 else (-number << 1) - 1
    if left >> 64:
        raise VarintError(f"{number} does not fit 64 bits")
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


SMALL: Final = tuple(_encode(number) for number in range(SMALL_MAX + 1))
MINUS_ONE: Final = _encode(-1)


def decode(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and the position after it; IndexError where the data ends inside it."""
    byte = data[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    total = byte & 0x7F
    shift = 7
    while shift < 7 * BYTES_MAX:
        at += 1
        byte = data[at]
        total |= (byte & 0x7F) << shift
        if byte < 0x80:
            if total >> 64:
                break
            return total >> 1 ^ -(total & 1), at + 1
        shift += 7
    raise VarintError(f"the varint that ends near byte {at} has more than 64 bits")
