"""A batch that is too large becomes two halves with the same records."""

from __future__ import annotations

import pytest

from barnabas.client.producer.accumulator import ProducerBatch
from barnabas.client.producer.sender import split_records
from barnabas.records import BatchBuilder, Compression, read_header, read_records


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("count", [2, 3, 10])
def test_the_halves_hold_all_records_in_order(count, compression):
    builder = BatchBuilder(compression)
    for number in range(count):
        builder.append(1000 + number, b"k" if number % 2 else None, b"%d" % number, [("h", None)])
    batch = ProducerBatch("t", 0, (0,), 0.0, builder, waiter=None)
    whole = read_records(batch.payload(), "t", 0)
    halves = [half.build() for half in split_records(batch)]
    parts = [record for half in halves for record in read_records(half, "t", 0)]
    assert [record[3:] for record in parts] == [record[3:] for record in whole]
    assert {read_header(half).compression for half in halves} == {compression}
    assert [read_header(half).record_count for half in halves] == [count // 2, count - count // 2]
