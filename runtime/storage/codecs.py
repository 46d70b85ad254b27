"""The codecs that record batches may be packed with: Python's own, lz4 and zstd.

Promises  the bound of `core.compression`: nothing is unpacked beyond the limit given.
Never     keeps a codec between calls.
"""

from types import MappingProxyType
from typing import Final

import lz4.frame
import zstandard

from dovetail.core.compression import (
    STANDARD,
    Codec,
    Codecs,
    Compression,
    CompressionError,
    ExpandsTooFar,
    check_whole,
)

_ZSTD_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024  # both codecs set aside at once what they are asked for at most


def _lz4(data: bytes) -> bytes:
    # The Java client refuses linked blocks.
    packed: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
    return packed


def _unlz4(data: bytes | memoryview, bytes_max: int) -> bytes:
    unpacker = lz4.frame.LZ4FrameDecompressor()
    source = bytes(data)
    plain = bytearray()
    try:
        while len(plain) <= bytes_max and not unpacker.eof:
            piece = unpacker.decompress(source, max_length=_PIECE_BYTES)
            source = b""
            if not piece:
                break
            plain += piece
    except (RuntimeError, EOFError) as error:
        raise CompressionError(f"the records are not lz4 data: {error}") from None
    if len(plain) <= bytes_max:
        check_whole("lz4", unpacker.eof, unpacker.unused_data)
    return bytes(plain)


def _unzstd(data: bytes | memoryview, bytes_max: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    source = bytes(data)
    try:
        size = zstandard.frame_content_size(source)
        if size < 0:
            return _unzstd_of_unknown_size(unpacker, source, bytes_max)
        if size > bytes_max:
            raise ExpandsTooFar(f"the records say they decompress to {size} bytes, the limit is {bytes_max}")
        return unpacker.decompress(source, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CompressionError(f"the records are not zstd data: {error}") from None


def _unzstd_of_unknown_size(unpacker: zstandard.ZstdDecompressor, data: bytes, bytes_max: int) -> bytes:
    plain = bytearray()
    with unpacker.stream_reader(data) as reader:
        while len(plain) <= bytes_max and (piece := reader.read(_PIECE_BYTES)):
            plain += piece
    if len(plain) <= bytes_max:
        # The reader does not say whether the frame was whole; this one does, but has no bound of its own.
        again = unpacker.decompressobj()
        again.decompress(data)
        check_whole("zstd", again.eof, again.unused_data)
    return bytes(plain)


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


CODECS: Final[Codecs] = MappingProxyType(
    {**STANDARD, Compression.LZ4: Codec(_lz4, _unlz4), Compression.ZSTD: Codec(_zstd, _unzstd)}
)
