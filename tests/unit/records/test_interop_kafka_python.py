"""Batches of this package read by kafka-python's own codec, and the other way round."""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from barnabas.model import TimestampType
from barnabas.records import BatchBuilder, Compression, check_batch, read_header, read_records, stamp
from barnabas.records.compaction import Filtering, OffsetMap, filter_batches

RECORDS = [
    (1_700_000_000_000 + 37 * index, key, value, headers)
    for index, (key, value, headers) in enumerate(
        [
            (None, b"plain", []),
            (b"key", None, []),
            (b"", b"", []),
            (b"k" * 70, b"v" * 10_000, [("id", b"1"), ("id", b"2"), ("none", None), ("größe", b"")]),
            *((None, b"to be, or not to be " * (index % 7), []) for index in range(300)),
        ]
    )
]


@pytest.mark.parametrize("compression", Compression)
def test_kafka_python_reads_our_batches(compression: Compression) -> None:
    builder = BatchBuilder(compression)
    for timestamp_ms, key, value, headers in RECORDS:
        builder.append(timestamp_ms, key, value, headers)
    data = builder.build(producer_id=7, producer_epoch=1, base_sequence=3)
    stamp(data, 0, 1_000, 5)

    batch = DefaultRecordBatch(bytes(data))

    assert batch.validate_crc()
    assert (batch.base_offset, batch.leader_epoch, batch.last_offset) == (1_000, 5, 1_000 + len(RECORDS) - 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 3)
    assert batch.max_timestamp == RECORDS[-1][0]
    seen = [(r.timestamp, r.key, r.value, r.headers) for r in batch]
    assert seen == RECORDS


@pytest.mark.parametrize("compression", Compression)
def test_kafka_python_reads_batches_that_were_compacted(compression: Compression) -> None:
    builder = BatchBuilder(compression)
    for timestamp_ms, key, value, headers in RECORDS:
        builder.append(timestamp_ms, key, value, headers)
    log = builder.build()
    offset_map = OffsetMap(10_000, 0, bytes(16))
    offset_map.add(log, 0)
    (chunk,) = filter_batches(log, offset_map, Filtering(1_800_000_000_000, 86_400_000, {}, 10**6)).chunks

    batch = DefaultRecordBatch(bytes(chunk))

    assert batch.validate_crc()
    assert (batch.base_offset, batch.last_offset) == (0, len(RECORDS) - 1)
    # Those with a key, a tombstone among them: the first one has none, and they are at offsets 1 to 3.
    seen = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch]
    assert seen == [(offset, *RECORDS[offset]) for offset in (1, 2, 3)]
    assert batch.max_timestamp == RECORDS[3][0]


@pytest.mark.parametrize("compression", Compression)
def test_we_read_batches_of_kafka_python(compression: Compression) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(compression),
        is_transactional=False,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        batch_size=10**7,
    )
    for index, (timestamp_ms, key, value, headers) in enumerate(RECORDS):
        assert builder.append(index, timestamp_ms, key, value, headers) is not None
    data = bytes(builder.build())

    header = read_header(data)
    check_batch(data, 0, header)

    assert header.compression is compression
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    seen = [(r.timestamp_ms, r.key, r.value, list(r.headers)) for r in read_records(data, "clicks", 0)]
    assert seen == RECORDS
