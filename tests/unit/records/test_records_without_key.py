"""A compacted log takes no record without a key: the batch is looked into, by both twins alike."""

from __future__ import annotations

import random
from types import ModuleType

import pytest

from barnabas.errors import CorruptBatchError
from barnabas.records import BATCH_HEADER_SIZE, BatchBuilder, Compression, compaction, compaction_pure
from barnabas.records.header import write_crc

BYTES_MAX = 1_000_000
TWINS = sorted({compaction_pure, compaction.compaction}, key=lambda twin: twin.CODEC)


def batch_of(*keys: bytes | None, compression: Compression = Compression.NONE) -> bytearray:
    builder = BatchBuilder(compression)
    for number, key in enumerate(keys):
        builder.append(1_000 + number, key, b"value", [("name", b"content")])
    return bytearray(builder.build())


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.CODEC)
@pytest.mark.parametrize("compression", Compression)
def test_the_records_without_a_key_are_found(twin: ModuleType, compression: Compression) -> None:
    assert twin.records_without_key(batch_of(b"a", b"", b"c", compression=compression), BYTES_MAX) == []
    assert twin.records_without_key(batch_of(b"a", None, b"c", None, compression=compression), BYTES_MAX) == [1, 3]
    assert twin.records_without_key(bytes(batch_of(None, compression=compression)), BYTES_MAX) == [0]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.CODEC)
def test_of_very_many_records_without_a_key_the_first_ones_are_told(twin: ModuleType) -> None:
    found = twin.records_without_key(batch_of(b"a", *[None] * 1_500), BYTES_MAX)
    assert found == list(range(1, compaction_pure.KEYLESS_MAX + 1))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.CODEC)
def test_a_batch_may_have_any_base_offset(twin: ModuleType) -> None:
    batch = batch_of(b"a", None)
    batch[:8] = (2**63 - 1).to_bytes(8, "big")
    assert twin.records_without_key(batch, BYTES_MAX) == [1]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.CODEC)
def test_no_more_is_decompressed_than_allowed(twin: ModuleType) -> None:
    builder = BatchBuilder(Compression.ZSTD)
    builder.append(1, b"key", bytes(10_000))
    batch = bytearray(builder.build())
    assert twin.records_without_key(batch, 20_000) == []
    with pytest.raises(CorruptBatchError):
        twin.records_without_key(batch, 9_000)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.CODEC)
def test_what_has_no_header_is_damaged(twin: ModuleType) -> None:
    with pytest.raises(CorruptBatchError):
        twin.records_without_key(b"", BYTES_MAX)


def test_the_twins_agree_on_what_is_damaged() -> None:
    picked = random.Random(7)
    sound = batch_of(b"a", b"bc", None, b"d")
    damaged = 0
    for _ in range(2_000):
        batch = bytearray(sound)
        for _ in range(picked.randint(1, 3)):
            batch[picked.randrange(BATCH_HEADER_SIZE, len(batch))] = picked.randrange(256)
        write_crc(batch, 0, len(batch))
        told = []
        for twin in TWINS:
            try:
                told.append(str(twin.records_without_key(batch, BYTES_MAX)))
            except CorruptBatchError as error:
                told.append(str(error))
        assert len(set(told)) == 1
        damaged += not told[0].startswith("[")
    assert 100 < damaged < 2_000
