"""A batch that is written again with other values is what building it anew gives."""

from __future__ import annotations

import pytest

from barnabas.records import BatchBuilder
from barnabas.records.repeated_batch import RepeatedBatch


@pytest.mark.parametrize("sizes", [[0], [1], [40], [3, 200, 0, 64]])
def test_other_values_make_the_batch_that_a_builder_makes(sizes: list[int]) -> None:
    keys = [b"k" * (size + 1) for size in sizes]
    batch = RepeatedBatch([(key, bytes(size)) for key, size in zip(keys, sizes, strict=True)])
    for timestamp_ms, letter in ((1_700_000_000_000, b"a"), (1_700_000_000_123, b"b")):
        values = [letter * size for size in sizes]
        builder = BatchBuilder()
        for key, value in zip(keys, values, strict=True):
            builder.append(timestamp_ms, key, value)
        assert batch.with_values(timestamp_ms, values) == builder.build()
