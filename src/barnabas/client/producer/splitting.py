"""Cutting a batch that a broker finds too large into two halves, record by record."""

from __future__ import annotations

from barnabas.client.producer.accumulator import ProducerBatch
from barnabas.records import BatchBuilder, read_header, read_records


def split_records(batch: ProducerBatch) -> list[BatchBuilder]:
    """Return builders of the two halves of `batch`, in order. It must hold at least two records.

    This is rare, so the records are read back out of the built batch rather than kept apart for the case.
    """
    assert batch.count > 1
    compression = read_header(batch.payload()).compression
    records = read_records(batch.payload(), batch.topic, batch.partition, check_crc=False)
    middle = len(records) // 2
    halves = []
    for part in (records[:middle], records[middle:]):
        builder = BatchBuilder(compression)
        for record in part:
            builder.append(record.timestamp_ms, record.key, record.value, record.headers)
        halves.append(builder)
    return halves
