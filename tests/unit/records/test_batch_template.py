"""A batch with other numbers equals the batch that a builder makes of them."""

from __future__ import annotations

import struct

import pytest

from barnabas.records import BatchBuilder
from barnabas.records.batch_template import BatchTemplate


@pytest.mark.parametrize("fields", [[0], [1], [5], [3, 0, 2]])
def test_batch_with_other_numbers_equals_built_batch(fields: list[int]) -> None:
    keys = [b"k" * (count + 1) for count in fields]

    def records(numbers: list[int]) -> list[tuple[bytes, bytes]]:
        rest = iter(numbers)
        return [
            (key, b"v" + b"".join(struct.pack(">hq", 7, next(rest)) for _ in range(count)))
            for key, count in zip(keys, fields, strict=True)
        ]

    batch = BatchTemplate(lambda number: records([number] * sum(fields)))
    for timestamp_ms, first in ((1_700_000_000_000, 258), (1_700_000_000_123, -(2**63)), (0, 2**62)):
        numbers = [first + number for number in range(sum(fields))]
        builder = BatchBuilder()
        for key, value in records(numbers):
            builder.append(timestamp_ms, key, value)
        assert batch.with_numbers(timestamp_ms, numbers) == builder.build()
