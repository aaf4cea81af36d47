"""The four compressions: what is written, what is read, and what is refused."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import CorruptBatchError
from barnabas.records import Compression, compress, decompress
from barnabas.records.compression import Decompressor

TEXT = b"It was late in the evening when K. arrived. " * 5_000
NOISE = random.Random(1).randbytes(150_000)
COMPRESSED = [kind for kind in Compression if kind is not Compression.NONE]
XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


@pytest.mark.parametrize("kind", Compression)
@pytest.mark.parametrize("data", [b"", b"a", TEXT, bytes(range(256)) * 300])
def test_round_trip(kind: Compression, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), max_bytes=len(data)) == data
    assert decompress(kind, memoryview(compress(kind, memoryview(data))), max_bytes=len(data)) == data


@pytest.mark.parametrize("kind", Compression)
def test_content_larger_than_allowed_is_refused(kind: Compression) -> None:
    with pytest.raises(CorruptBatchError, match=f"larger than {len(TEXT) - 1} bytes"):
        decompress(kind, compress(kind, TEXT), max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("kind", Compression)
def test_memory_that_is_used_again_holds_what_comes_out_and_no_more_than_allowed(kind: Compression) -> None:
    decompressor = Decompressor(len(TEXT))
    for data in (TEXT[:100], TEXT[:90], b"", TEXT, b"a"):
        assert decompressor.decompress(kind, compress(kind, data)) == data
    with pytest.raises(CorruptBatchError, match=f"larger than {len(TEXT)} bytes"):
        decompressor.decompress(kind, compress(kind, TEXT + b"a"))
    assert decompressor.decompress(kind, memoryview(compress(kind, TEXT))) == TEXT


@pytest.mark.parametrize("kind", COMPRESSED)
def test_dense_content_is_not_unpacked_beyond_the_limit(kind: Compression) -> None:
    bomb = compress(kind, bytes(64 * 1024 * 1024))
    tracemalloc.start()
    with pytest.raises(CorruptBatchError):
        decompress(kind, bomb, max_bytes=1024 * 1024)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


@pytest.mark.parametrize("kind", COMPRESSED)
def test_truncated_data_is_refused(kind: Compression) -> None:
    data = compress(kind, TEXT)
    for size in (0, 1, 7, len(data) // 2, len(data) - 1):
        if kind is Compression.SNAPPY and size == 0:
            continue
        with pytest.raises(CorruptBatchError):
            decompress(kind, data[:size])


def test_lz4_frames_have_independent_blocks_as_java_requires() -> None:
    data = compress(Compression.LZ4, TEXT)
    assert data[:4] == bytes.fromhex("04224d18")
    flags = data[4]
    assert flags >> 6 == 1, "version"
    assert flags & 0x20, "blocks must be independent"
    assert not flags & 0x03, "neither dictionary nor reserved bits"
    assert lz4.frame.decompress(data) == TEXT


@pytest.mark.parametrize("block_linked", [True, False])
@pytest.mark.parametrize("store_size", [True, False])
def test_lz4_frames_of_others_are_read(block_linked: bool, store_size: bool) -> None:
    data = lz4.frame.compress(TEXT, block_linked=block_linked, store_size=store_size, content_checksum=True)
    assert decompress(Compression.LZ4, data) == TEXT


def test_lz4_frames_have_no_checksums_as_those_of_java() -> None:
    for data in (b"", TEXT, NOISE):
        frame = compress(Compression.LZ4, data)
        assert frame.startswith(bytes.fromhex("04224d18604082"))
        assert frame.endswith(bytes(4)), "the end mark"
        assert lz4.frame.decompress(frame) == data
        assert bytes(cramjam.lz4.decompress(frame)) == data


def test_what_lz4_cannot_compress_is_stored() -> None:
    for size in (1, 100, 2**16, len(NOISE)):
        frame = compress(Compression.LZ4, NOISE[:size])
        blocks = -(-size // 2**16)
        assert len(frame) == 7 + 4 * blocks + size + 4
        assert decompress(Compression.LZ4, frame, max_bytes=size) == NOISE[:size]


@pytest.mark.parametrize("block_size", range(lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB + 1))
def test_lz4_blocks_of_every_size_are_read_without_the_decoder_of_frames(
    block_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (TEXT + NOISE) * 30
    frame = lz4.frame.compress(content, block_size=block_size, block_linked=False, store_size=False)
    monkeypatch.setattr(cramjam.lz4, "decompress_into", None)
    decompressor = Decompressor(len(content))
    monkeypatch.setattr(decompressor, "_memory", bytearray(len(content)))
    assert decompressor.decompress(Compression.LZ4, frame) == content


def test_an_lz4_block_that_is_damaged_or_larger_than_announced_is_refused() -> None:
    frame = compress(Compression.LZ4, TEXT)
    big = bytes(cramjam.lz4.compress_block(bytes(2**16 + 1), store_size=False))
    stored = NOISE[: 2**16 + 1]
    for damaged in (
        frame[:7] + struct.pack("<I", len(big)) + big + bytes(4),
        frame[:7] + struct.pack("<I", len(stored) | 1 << 31) + stored + bytes(4),
        frame[:7] + struct.pack("<I", 2**31 - 1) + frame[11:],
        frame[:7] + struct.pack("<I", 2**32 - 1) + frame[11:],
        frame[:7] + struct.pack("<I", 10) + b"\xff" * 10 + bytes(4),
        frame[:6] + b"\x00" + frame[7:],
    ):
        with pytest.raises(CorruptBatchError):
            decompress(Compression.LZ4, damaged)
        with pytest.raises(CorruptBatchError):
            Decompressor(2**20).decompress(Compression.LZ4, damaged)


@given(at=st.integers(0, 2**17), value=st.integers(0, 255))
def test_one_wrong_byte_in_an_lz4_frame_does_nothing_unforeseen(at: int, value: int) -> None:
    frame = bytearray(compress(Compression.LZ4, TEXT[:1_000] + NOISE[:1_000]))
    frame[at % len(frame)] = value
    with contextlib.suppress(CorruptBatchError):
        assert len(decompress(Compression.LZ4, frame, max_bytes=10_000)) <= 10_000


def test_snappy_is_written_in_the_framing_of_java() -> None:
    data = compress(Compression.SNAPPY, TEXT)
    assert data.startswith(XERIAL_HEADER)
    (size,) = struct.unpack_from(">i", data, 16)
    assert snappy.decompress(data[20 : 20 + size]) == TEXT[: 32 * 1024]


def test_snappy_is_read_raw_and_framed() -> None:
    block = snappy.compress(TEXT)
    assert decompress(Compression.SNAPPY, block) == TEXT
    assert decompress(Compression.SNAPPY, XERIAL_HEADER + struct.pack(">i", len(block)) + block) == TEXT


def test_snappy_framing_with_little_endian_versions_is_read() -> None:
    block = snappy.compress(b"x")
    header = b"\x82SNAPPY\x00" + struct.pack("<ii", 1, 1)
    assert decompress(Compression.SNAPPY, header + struct.pack(">i", len(block)) + block) == b"x"


@pytest.mark.parametrize("size", [-1, 0, -(2**31), 2**31 - 1, 100])
def test_snappy_block_length_that_cannot_be_is_refused(size: int) -> None:
    data = XERIAL_HEADER + struct.pack(">i", size) + snappy.compress(b"x")
    with pytest.raises(CorruptBatchError, match="block"):
        decompress(Compression.SNAPPY, data)


def test_forged_sizes_allocate_nothing() -> None:
    forged_snappy = b"\xff\xff\xff\xff\x07" + b"\x00a"
    frame = bytearray(zstandard.ZstdCompressor(write_content_size=True).compress(b"tiny"))
    # Single segment, content size in eight bytes: 100 MB.
    forged_zstd = bytes(frame[:4]) + b"\xe0" + struct.pack("<Q", 100_000_000) + bytes(frame[6:])
    tracemalloc.start()
    with pytest.raises(CorruptBatchError, match="claims"):
        decompress(Compression.SNAPPY, forged_snappy)
    with pytest.raises(CorruptBatchError):
        decompress(Compression.ZSTD, forged_zstd)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_gzip_of_several_members_is_read() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"to be ") + gzip.compress(b"or not")) == b"to be or not"


@pytest.mark.parametrize(
    "padding",
    [b"\0", bytes(17), bytes(100_000), b"\x1f", b"\x1f\x8b\x08", b"\x1f\x8b\x08" + bytes(6), b"end", b"\xff" * 40],
)
@pytest.mark.parametrize("content", [b"", b"to be or not", TEXT])
def test_gzip_ends_where_no_other_member_begins_as_in_java(padding: bytes, content: bytes) -> None:
    data = gzip.compress(content)
    assert decompress(Compression.GZIP, data + padding, max_bytes=len(content)) == content
    assert decompress(Compression.GZIP, data + data + padding) == content * 2


@pytest.mark.parametrize(
    "data", [b"", b"\0", bytes(100), b"\x1f\x8b", b"plain text", gzip.compress(b"x", mtime=0)[:-1]]
)
def test_gzip_begins_with_a_whole_member(data: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        decompress(Compression.GZIP, data)
    with pytest.raises(CorruptBatchError):
        decompress(Compression.GZIP, data[:0] + b"\0" + gzip.compress(b"x"))


def test_gzip_of_a_second_member_that_is_damaged_is_refused() -> None:
    for end in (20, 25):
        with pytest.raises(CorruptBatchError):
            decompress(Compression.GZIP, gzip.compress(b"to be ") + gzip.compress(b"or not")[:end])


def test_gzip_members_of_any_size_are_read() -> None:
    contents = [random.Random(1).randbytes(size) for size in (1, 4_000, 0, 5_000, 300_000, 2)] + [b"x"] * 100
    data = b"".join(map(gzip.compress, contents))
    assert decompress(Compression.GZIP, memoryview(data)) == b"".join(contents)


def test_gzip_of_many_members_costs_no_more_than_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    given = 0
    make = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self.member = make(wbits)

        def decompress(self, data: memoryview, max_length: int) -> bytes:
            nonlocal given
            given += len(data)
            return self.member.decompress(data, max_length)

        def __getattr__(self, name: str) -> object:
            return getattr(self.member, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    member = gzip.compress(b"x")
    assert decompress(Compression.GZIP, member * 2_000) == b"x" * 2_000
    assert given <= 2_000 * 4096


def test_gzip_of_many_empty_members_is_refused() -> None:
    empty = gzip.compress(b"")
    assert decompress(Compression.GZIP, empty * 3) == b""
    with pytest.raises(CorruptBatchError, match="members without content"):
        decompress(Compression.GZIP, empty * 1_000)


def test_zstd_without_content_size_is_read() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    assert decompress(Compression.ZSTD, compressor.compress(TEXT)) == TEXT


def test_growth_depends_on_what_the_library_says_when_output_is_full() -> None:
    """If a new cramjam says it otherwise, large batches would be taken for damaged: this fails first."""
    for module in (cramjam.zstd, cramjam.lz4):
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            module.decompress_into(bytes(module.compress(TEXT)), bytearray(10))
    content = bytes(50_000_000)
    assert decompress(Compression.ZSTD, compress(Compression.ZSTD, content)) == content
