"""LZ4 frames, block by block: in the form that Kafka's own producer writes, a frame costs no more than its blocks.

The library's frames cost more than what is in them: it makes an encoder or a decoder for each, and compresses at a
level that takes ten times as long for a few percent. Kafka's producer takes the fast one by default, blocks of 64 KiB
that do not depend on each other, and no checksums: the CRC of the batch covers the frame. That is what is written.
Of what is read, frames with a header like that are taken apart here; all others, and whatever is wrong with one, are
the library's. The format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md
"""

from __future__ import annotations

import struct

import cramjam

Data = bytes | bytearray | memoryview

_HEADER = bytes.fromhex("04224d18604082")
"""Magic, version 1 with independent blocks and nothing else, blocks of 64 KiB, a byte of the header's xxHash."""
_BLOCK_BYTES = 64 * 1024
_PLAIN_HEADERS = {
    _HEADER: _BLOCK_BYTES,
    bytes.fromhex("04224d186050fb"): 256 * 1024,
    bytes.fromhex("04224d18606051"): 1024 * 1024,
    bytes.fromhex("04224d18607073"): 4 * 1024 * 1024,
}
"""The headers of frames that are read here, and what a block of them may hold."""
_BLOCK_SIZE = struct.Struct("<I")
_STORED_FLAG = 0x80000000
"""A block that is not compressed, since that would make it larger."""


def compress_frame(data: Data) -> bytes:
    """Return `data` as a frame.

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
    """Write what a frame holds into `output`; return how many bytes these are.

    :raises cramjam.DecompressionError: `data` is damaged, or holds more than `output` has room for.
    """
    written = _decompress_blocks_into(data, output)
    return cramjam.lz4.decompress_into(data, output) if written is None else written


def _frame_bytes_max(size: int) -> int:
    """Return what a frame of `size` bytes may need while it is written; a block needs one byte more for each 255."""
    blocks = -(-size // _BLOCK_BYTES)
    return len(_HEADER) + size + size // 255 + blocks * (16 + _BLOCK_SIZE.size) + _BLOCK_SIZE.size


def _write_block(content: memoryview, frame: memoryview, at: int) -> int:
    """Write a block with its size at `at`; return where it ends."""
    start = at + _BLOCK_SIZE.size
    size = cramjam.lz4.compress_block_into(content, frame[start:], store_size=False)
    if size < len(content):
        _BLOCK_SIZE.pack_into(frame, at, size)
        return start + size
    _BLOCK_SIZE.pack_into(frame, at, len(content) | _STORED_FLAG)
    frame[start : start + len(content)] = content
    return start + len(content)


def _decompress_blocks_into(data: Data, output: bytearray) -> int | None:
    """Do as `decompress_frame_into` does, or return None: this is a matter for the library."""
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
    """Write what a block holds into `room`; return how many bytes these are."""
    if not size & _STORED_FLAG:
        return cramjam.lz4.decompress_block_into(block, room, output_len=len(room))
    if len(block) > len(room):
        raise cramjam.DecompressionError("a block is larger than the room for it")
    room[: len(block)] = block
    return len(block)
