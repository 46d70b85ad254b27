"""What a record batch's compression is, behind one bound; the codecs themselves are handed in.

Promises  what is unpacked never grows beyond the limit given, whatever the data claims.
Never     keeps a codec between calls. `STANDARD` is what Python itself has; a shell adds lz4 and zstd.
"""

import zlib
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from msgspec import Struct

_GZIP_WBITS: Final = 31


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(Exception):
    """Data that is not what its codec makes, or a codec that is not supported."""


class ExpandsTooFar(CompressionError):
    """Data that decompresses to more than the limit."""


class Codec(Struct, frozen=True):
    """`unpack` takes the data and the most bytes it may become, and raises `CompressionError`."""

    pack: Callable[[bytes], bytes]
    unpack: Callable[[bytes | memoryview, int], bytes]


Codecs: TypeAlias = Mapping[Compression, Codec]


def compress(codecs: Codecs, compression: Compression, data: bytes) -> bytes:
    """`data` packed; `CompressionError` where there is no such codec."""
    return _codec(codecs, compression).pack(data)


def decompress(codecs: Codecs, compression: Compression, data: bytes | memoryview, bytes_max: int) -> bytes:
    """`data` unpacked, at most `bytes_max` of it."""
    plain = _codec(codecs, compression).unpack(data, bytes_max)
    if len(plain) > bytes_max:
        raise ExpandsTooFar(f"the records decompress to more than the limit of {bytes_max} bytes")
    return plain


def _codec(codecs: Codecs, compression: Compression) -> Codec:
    codec = codecs.get(compression)
    if codec is None:
        known = ", ".join(each.name.lower() for each in sorted(codecs) if each is not Compression.NONE)
        raise CompressionError(f"{compression.name.lower()} is not supported: use {known}")
    return codec


def check_whole(name: str, complete: bool, rest: bytes | None) -> None:
    """Raise unless a codec's data ended where it should."""
    if not complete:
        raise CompressionError(f"the {name} data of the records ends too early")
    if rest:
        raise CompressionError(f"{len(rest)} bytes follow the {name} data of the records")


def _as_it_is(data: bytes) -> bytes:
    return data


def _bounded(data: bytes | memoryview, bytes_max: int) -> bytes:
    return bytes(data[: bytes_max + 1])


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=_GZIP_WBITS)
    return packer.compress(data) + packer.flush()


def _gunzip(data: bytes | memoryview, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        plain = unpacker.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise CompressionError(f"the records are not gzip data: {error}") from None
    if len(plain) <= bytes_max:
        check_whole("gzip", unpacker.eof, unpacker.unused_data)
    return plain


STANDARD: Final[Codecs] = MappingProxyType(
    {Compression.NONE: Codec(_as_it_is, _bounded), Compression.GZIP: Codec(_gzip, _gunzip)}
)
