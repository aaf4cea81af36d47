"""Statistics about batches and records."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.cli.topic_statistics import HASHES_KEPT, DistinctCount, PartitionStatistics, percentiles
from barnabas.records import BatchBuilder, Compression
from barnabas.records.header import empty_batch, stamp


def batch(
    base: int, records: list[tuple[bytes | None, bytes | None]], *, codec: Compression = Compression.NONE
) -> bytes:
    """Return a batch; the timestamps of its records are their offsets in seconds."""
    builder = BatchBuilder(codec)
    for at, (key, value) in enumerate(records):
        builder.append((base + at) * 1_000, key, value)
    data = bytearray(builder.build())
    stamp(data, 0, base, 0)
    return bytes(data)


def statistics(data: bytes, start: int = 0, end: int = 100) -> PartitionStatistics:
    found = PartitionStatistics(start, end)
    found.add(data, "clicks", 0)
    return found


def test_records_sizes_keys_and_gaps_are_counted() -> None:
    first = batch(0, [(b"a", b"x" * 9), (b"b", None), (None, b"")])
    second = batch(10, [(b"a", b"x" * 99)])
    found = statistics(first + second + bytes(empty_batch(11, 14, 0)), end=15)
    assert (found.records, found.null_keys, found.null_values) == (4, 1, 1)
    assert (found.batches, found.stored_bytes) == (3, len(first) + len(second) + 61)
    assert found.record_sizes == Counter([10, 1, 0, 100])
    assert found.batch_records == Counter([3, 0, 1])
    assert (found.keys.estimate, found.keys.is_exact) == (2, True)
    assert found.compression_ratio == 1


def test_offsets_without_records_are_missing() -> None:
    found = statistics(batch(0, [(b"a", b"1")]) + batch(7, [(b"b", b"2"), (b"c", b"3")]), end=9)
    assert (found.offsets, found.records, found.missing_offsets) == (9, 3, 6)


def test_only_records_of_the_range_are_counted() -> None:
    data = batch(0, [(None, b"%d" % each) for each in range(10)]) + batch(10, [(None, b"x")])
    found = statistics(data, 3, 8)
    assert (found.offsets, found.records, found.batches, found.missing_offsets) == (5, 5, 1, 0)
    assert (found.first_ms, found.last_ms) == (3_000, 7_000)
    assert found.per_second == (1.25, found.stored_bytes / 4)


@pytest.mark.parametrize("codec", list(Compression))
def test_compression_is_measured(codec: Compression) -> None:
    records: list[tuple[bytes | None, bytes | None]] = [(b"key", b"the same text " * 20)] * 50
    found = statistics(batch(0, records, codec=codec))
    assert found.codecs == {codec.name.lower(): 1}
    assert found.plain_bytes == len(batch(0, records))
    assert found.compression_ratio is not None
    assert (found.compression_ratio > 5) == (codec is not Compression.NONE)


def test_partitions_are_added_up() -> None:
    one, two = statistics(batch(0, [(b"a", b"1")])), statistics(batch(0, [(b"a", b"1"), (b"b", b"22")]))
    total = PartitionStatistics(0, 0)
    for each in (one, two):
        total.merge(each)
    assert (total.records, total.batches, total.offsets, total.keys.estimate) == (3, 2, 3, 2)
    assert (total.first_ms, total.last_ms) == (0, 1_000)
    assert total.record_sizes == Counter([2, 2, 3])
    assert PartitionStatistics(0, 0).as_json()["records_per_s"] is None


@pytest.mark.parametrize("count", [1, HASHES_KEPT - 1, 50_000])
def test_distinct_keys_are_exact_if_few_and_close_if_many(count: int) -> None:
    counters = [DistinctCount(), DistinctCount()]
    for number in range(count):
        counters[number % 2].add([b"key-%d" % number] * 2)
    counters[0].merge(counters[1])
    assert counters[0].is_exact == (count < HASHES_KEPT)
    assert abs(counters[0].estimate - count) <= (0 if count < HASHES_KEPT else count * 0.08)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], {}),
        ([5], {"p50": 5, "p90": 5, "p99": 5, "max": 5}),
        (list(range(1, 101)), {"p50": 50, "p90": 90, "p99": 99, "max": 100}),
    ],
)
def test_percentiles_are_values_that_occur(values: list[int], expected: dict[str, int]) -> None:
    assert percentiles(Counter(values)) == expected
