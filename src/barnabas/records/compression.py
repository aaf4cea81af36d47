"""The four compression codecs of record batches. The caller limits the memory for the output, even for malicious input.

Every Kafka client can read the output:

- gzip: one gzip member. The reader follows Java's GZIPInputStream: it joins several members, and ignores bytes after a
  member that do not start another one, such as zero padding.
- snappy: the block framing of xerial's snappy-java (a 16-byte header, then length-prefixed blocks of 32 KiB). The
  reader also accepts raw snappy, which librdkafka and Go clients write.
- lz4: an LZ4 frame with independent blocks (`compress_frame`), because Java's reader does not support linked blocks
  (KIP-57).
- zstd: one zstd frame (KIP-110).
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable

import cramjam

from barnabas.errors import CorruptBatchError

Data = bytes | bytearray | memoryview

_HEADER = bytes.fromhex("04224d18604082")
"""The LZ4 frame header: magic number, version 1 with independent blocks of 64 KiB, and the header checksum."""
_BLOCK_BYTES = 64 * 1024
_PLAIN_HEADERS = {
    _HEADER: _BLOCK_BYTES,
    bytes.fromhex("04224d186050fb"): 256 * 1024,
    bytes.fromhex("04224d18606051"): 1024 * 1024,
    bytes.fromhex("04224d18607073"): 4 * 1024 * 1024,
}
"""The LZ4 frame headers that this module supports itself, with their block sizes in bytes."""
_BLOCK_SIZE = struct.Struct("<I")
_STORED_FLAG = 0x80000000
"""The flag of a block that is stored uncompressed, because compression would enlarge it."""


def compress_frame(data: Data) -> bytes:
    """Return `data` as an LZ4 frame.

    >>> compress_frame(b"").hex()
    '04224d1860408200000000'
    """
    with memoryview(data) as content, memoryview(bytearray(_frame_bytes_max(len(content)))) as frame:
        at = len(_HEADER)
        frame[:at] = _HEADER
        for start in range(0, len(content), _BLOCK_BYTES):
            at = _write_block(content[start : start + _BLOCK_BYTES], frame, at)
        _BLOCK_SIZE.pack_into(frame, at, 0)  # the end mark: a block without bytes
        return bytes(frame[: at + _BLOCK_SIZE.size])


def decompress_frame_into(data: Data, output: bytearray) -> int:
    """Write the content of an LZ4 frame into `output`; return the number of bytes.

    :raises cramjam.DecompressionError: `data` is damaged, or its content does not fit into `output`.
    """
    written = _decompress_blocks_into(data, output)
    return cramjam.lz4.decompress_into(data, output) if written is None else written


def _frame_bytes_max(size: int) -> int:
    """Return the maximum size of an LZ4 frame for `size` bytes of content.

    A block may grow by one byte per 255 bytes.
    """
    blocks = -(-size // _BLOCK_BYTES)
    return len(_HEADER) + size + size // 255 + blocks * (16 + _BLOCK_SIZE.size) + _BLOCK_SIZE.size


def _write_block(content: memoryview, frame: memoryview, at: int) -> int:
    """Write the size and the data of a block at position `at`; return the position after the block."""
    start = at + _BLOCK_SIZE.size
    size = cramjam.lz4.compress_block_into(content, frame[start:], store_size=False)
    if size < len(content):
        _BLOCK_SIZE.pack_into(frame, at, size)
        return start + size
    _BLOCK_SIZE.pack_into(frame, at, len(content) | _STORED_FLAG)
    frame[start : start + len(content)] = content
    return start + len(content)


def _decompress_blocks_into(data: Data, output: bytearray) -> int | None:
    """Decompress a frame of independent blocks into `output`. Return None if cramjam must decompress the frame."""
    block_bytes_max = _PLAIN_HEADERS.get(bytes(data[: len(_HEADER)]))
    if block_bytes_max is None:
        return None
    with memoryview(data) as frame, memoryview(output) as content:
        at, written = len(_HEADER), 0
        try:
            while size := _BLOCK_SIZE.unpack_from(frame, at)[0]:
                at += _BLOCK_SIZE.size
                end = at + (size & ~_STORED_FLAG)
                if end > len(frame):
                    return None
                room = content[written : written + block_bytes_max]
                written += _read_block(frame[at:end], size, room)
                at = end
        except (cramjam.DecompressionError, struct.error):
            return None
        return written if at + _BLOCK_SIZE.size == len(frame) else None


def _read_block(block: memoryview, size: int, room: memoryview) -> int:
    """Decompress a block into `room`; return the number of bytes."""
    if not size & _STORED_FLAG:
        return cramjam.lz4.decompress_block_into(block, room, output_len=len(room))
    if len(block) > len(room):
        raise cramjam.DecompressionError("an uncompressed block is larger than its limit")
    room[: len(block)] = block
    return len(block)


DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""The default maximum size of a decompressed batch, in bytes."""


class DecompressedTooLargeError(CorruptBatchError):
    """The decompressed content is larger than the caller allows."""


class Compression(enum.IntEnum):
    """The compression of a batch, with its number in the low bits of the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(kind: Compression, data: Data) -> bytes:
    """Compress `data`.

    >>> decompress(Compression.ZSTD, compress(Compression.ZSTD, b"to be " * 9), max_bytes=100) == b"to be " * 9
    True
    """
    return _COMPRESSORS[kind](data)


def decompress(kind: Compression, data: Data, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress `data`.

    :param max_bytes: the maximum size of the result, and of the memory for the result.
    :raises DecompressedTooLargeError: the content is larger than `max_bytes`.
    :raises CorruptBatchError: `data` is damaged.
    """
    content = decompressed(kind, data, max_bytes)
    return content if isinstance(content, bytes) else bytes(content)


def decompressed(kind: Compression, data: Data, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes | bytearray:
    """Decompress data like `decompress`, but without the final copy to bytes.

    Copying a large result takes milliseconds and blocks all other threads.
    """
    try:
        return _DECOMPRESSORS[kind](data, max_bytes)
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise CorruptBatchError(f"{kind.name.lower()} data is damaged: {error}") from error


class Decompressor:
    """Decompresses batches one after the other into reused memory.

    The memory is reused because new memory must be cleared, which takes longer than the decompression of a small batch.

    :param max_bytes: the maximum size of a result, and of the memory.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._memory = bytearray()

    def decompress(self, kind: Compression, data: Data) -> Data:
        """Decompress `data`. The next call overwrites the result.

        :raises CorruptBatchError: `data` is damaged, or the content is larger than `max_bytes`.
        """
        decompress_into = _INTO.get(kind)
        if decompress_into is not None and self._memory:
            try:
                return memoryview(self._memory)[: decompress_into(data, self._memory)]
            except cramjam.DecompressionError:
                # The result does not fit, or `data` is damaged. The next step determines the cause.
                self._memory = bytearray()
        content = decompressed(kind, data, self._max_bytes)
        if isinstance(content, bytearray):
            self._memory = content
        return content


def expanded_bytes_max(kind: Compression, size: int) -> int:
    """Return the maximum decompressed size that the format allows for `size` compressed bytes."""
    if kind == Compression.ZSTD:
        return size // _ZSTD_BLOCK_SIZE_MIN * _ZSTD_BLOCK_CONTENT_MAX
    return size * _RATIO_MAX[kind]


def _too_large(kind: Compression, max_bytes: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(f"{kind.name.lower()} data is larger than {max_bytes} bytes when decompressed")


# --- none ---


def _decompress_none(data: Data, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(Compression.NONE, max_bytes)
    return bytes(data)


# --- gzip ---

_GZIP_WINDOW_BITS = 31
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_HEADER_SIZE = 10
_GZIP_EMPTY_MEMBERS_MAX = 16
"""The maximum number of gzip members without content.

Such a member has only 20 bytes, but takes as much time as a member with content.
"""
_GZIP_FIRST_INPUT_BYTES = 4 * 1024
_GZIP_INPUT_GROWTH = 8
_GZIP_RATIO_MAX = 1032
"""The maximum compression ratio of deflate.

A match of 258 bytes takes at least two bits, one for its length and one for its distance (RFC 1951).
"""


def _compress_gzip(data: Data) -> bytes:
    return zlib.compress(data, wbits=_GZIP_WINDOW_BITS)


def _decompress_gzip(data: Data, max_bytes: int) -> bytes:
    view = memoryview(data)
    if not view:
        raise CorruptBatchError("gzip data is empty")
    parts: list[bytes] = []
    left = max_bytes
    position = empty_members = 0
    while not _is_gzip_over(view, position):
        size, position = _decompress_gzip_member(view, position, left, max_bytes, parts)
        left -= size
        empty_members += not size
        if empty_members > _GZIP_EMPTY_MEMBERS_MAX:
            raise CorruptBatchError(f"gzip data has more than {_GZIP_EMPTY_MEMBERS_MAX} members without content")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_gzip_over(view: memoryview, position: int) -> bool:
    """Return whether no gzip member begins at this position.

    In this case, the bytes after the first member are padding.
    """
    begins = view[position : position + len(_GZIP_MAGIC)] == _GZIP_MAGIC
    return position > 0 and not (begins and len(view) - position >= _GZIP_HEADER_SIZE)


def _decompress_gzip_member(
    view: memoryview, position: int, left: int, max_bytes: int, parts: list[bytes]
) -> tuple[int, int]:
    """Append the content of a gzip member to `parts`; return its size and the position after the member."""
    member = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
    size = 0
    # zlib copies the input that a member does not use. So the input is limited to little more than a member needs.
    input_bytes = _GZIP_FIRST_INPUT_BYTES
    while not member.eof:
        if position >= len(view):
            raise CorruptBatchError("gzip data ends within a member")
        given = view[position : position + input_bytes]
        # The limit has one extra byte: it detects content that is too large, and a max_length of 0 would mean "no
        # limit".
        content = member.decompress(given, left - size + 1)
        size += len(content)
        if size > left:
            raise _too_large(Compression.GZIP, max_bytes)
        if content:
            parts.append(content)
        position += len(given) - len(member.unused_data)
        input_bytes *= _GZIP_INPUT_GROWTH
    return size, position


# --- snappy ---

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">i")

_SNAPPY_RATIO_MAX = 22
"""The maximum compression ratio of snappy. Its densest element encodes a copy of 64 bytes in 3 bytes."""


def _compress_snappy(data: Data) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Data, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes, max_bytes)
    blocks: list[bytes] = []
    left = max_bytes
    position = len(_XERIAL_HEADER)
    while position < len(view):
        (size,) = _XERIAL_LENGTH.unpack_from(view, position)
        position += _XERIAL_LENGTH.size
        if not 0 < size <= len(view) - position:
            raise CorruptBatchError(f"the snappy block has size {size}, but {len(view) - position} bytes are left")
        block = _decompress_snappy_block(view[position : position + size], left, max_bytes)
        blocks.append(block)
        left -= len(block)
        position += size
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, left: int, max_bytes: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > len(block) * _SNAPPY_RATIO_MAX:
        raise CorruptBatchError(f"snappy block of {len(block)} bytes claims a content of {size} bytes")
    if size > left:
        raise _too_large(Compression.SNAPPY, max_bytes)
    content = bytearray(size)
    written = cramjam.snappy.decompress_raw_into(block, content)
    if written != size:
        raise CorruptBatchError(f"the snappy block contains {written} bytes, but claims {size}")
    return bytes(content)


# --- lz4 ---

_LZ4_RATIO_MAX = 255
"""The maximum compression ratio of LZ4. Each byte of a match length adds at most 255 bytes."""


def _decompress_lz4(data: Data, max_bytes: int) -> bytearray:
    content_max = min(max_bytes, len(data) * _LZ4_RATIO_MAX)
    return _decompress_growing(Compression.LZ4, decompress_frame_into, data, content_max, max_bytes)


# --- zstd ---


def _compress_zstd(data: Data) -> bytes:
    return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL))


_ZSTD_LEVEL = 3
"""Kafka's default level."""
_ZSTD_BLOCK_SIZE_MIN = 4
_ZSTD_BLOCK_CONTENT_MAX = 128 * 1024
"""The maximum content of a zstd block in bytes (RFC 8878, 3.1.1.2).

The smallest encoding of a block has four bytes: a header of three bytes, and one byte to repeat.
"""


def _decompress_zstd(data: Data, max_bytes: int) -> bytearray:
    return _decompress_growing(Compression.ZSTD, cramjam.zstd.decompress_into, data, max_bytes, max_bytes)


_FIRST_GUESS_BYTES = 64 * 1024
_FIRST_GUESS_RATIO = 8
_GROWTH = 4
_FULL = "failed to write whole buffer"
"""The text of cramjam's error if the output buffer is too small.

It is the message of Rust's io::ErrorKind::WriteZero.
"""


def _decompress_growing(
    kind: Compression,
    decompress_into: Callable[[Data, bytearray], int],
    data: Data,
    content_max: int,
    max_bytes: int,
) -> bytearray:
    """Decompress into a buffer that grows with the actual output. The sizes in `data` are not trusted."""
    if not data:
        raise CorruptBatchError(f"{kind.name.lower()} data is empty")
    size = min(content_max, max(_FIRST_GUESS_BYTES, _FIRST_GUESS_RATIO * len(data)))
    while True:
        content = bytearray(size)
        try:
            written = decompress_into(data, content)
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise
        else:
            del content[written:]
            return content
        if size >= content_max:
            raise _too_large(kind, max_bytes)
        size = min(content_max, size * _GROWTH)


_INTO: dict[Compression, Callable[[Data, bytearray], int]] = {
    Compression.LZ4: decompress_frame_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}

_COMPRESSORS: dict[Compression, Callable[[Data], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: compress_frame,
    Compression.ZSTD: _compress_zstd,
}

_DECOMPRESSORS: dict[Compression, Callable[[Data, int], bytes | bytearray]] = {
    Compression.NONE: _decompress_none,
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}

_RATIO_MAX: dict[Compression, int] = {
    Compression.NONE: 1,
    Compression.GZIP: _GZIP_RATIO_MAX,
    Compression.SNAPPY: _SNAPPY_RATIO_MAX,
    Compression.LZ4: _LZ4_RATIO_MAX,
}
