"""The codec's part of compaction, in memory and on one thread: the map of latest offsets, and the filter of batches.

MB/s refer to uncompressed keys and values. The time is the lowest CPU time of several runs. In the row *kept*,
`filter_batches` keeps about a tenth of the records; in the row *unchanged*, it keeps all records.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.records import Compression, stamp
from barnabas.records.compaction import Filtering, OffsetMap, filter_batches
from bench.compaction.records import MEGABYTE, Kind, batches
from bench.tables import table

CHUNK_BYTES = 8 * 1024 * 1024
TURNS = 5
SECRET = bytes(range(16))
FILTERING = Filtering(1, 1, {}, 2**27)


class Log(NamedTuple):
    """Batches with offsets that start at 0, as in a log."""

    data: bytes
    record_count: int
    given_bytes: int
    """The size of keys and values."""


def make_log(kind: Kind, megabytes: int) -> Log:
    """Return batches with their offsets."""
    stamped = []
    for number, batch in enumerate(map(bytearray, batches(kind, megabytes, 0))):
        stamp(batch, 0, number * kind.batch_records, 0)
        stamped.append(bytes(batch))
    record_count = kind.record_count(megabytes)
    return Log(b"".join(stamped), record_count, record_count * kind.record_bytes)


def chunks(data: bytes, take: Callable[[memoryview], int]) -> None:
    """Pass the data in chunks to a function, which returns the number of processed bytes."""
    position = 0
    with memoryview(data) as view:
        while position < len(data):
            position += take(view[position : position + CHUNK_BYTES])


def megabytes_a_second(log: Log, take: Callable[[memoryview], int]) -> str:
    """Return the best result of several runs in MB/s."""
    best_s = float("inf")
    for _ in range(TURNS):
        begin_s = time.process_time()
        chunks(log.data, take)
        best_s = min(best_s, time.process_time() - begin_s)
    return f"{log.given_bytes / best_s / MEGABYTE:,.0f}"


def measured(megabytes: int, map_bytes: int) -> Iterator[list[str]]:
    """Yield a table row for each kind of records."""
    kinds = itertools.product([(100, 1), (100, 100), (1000, 16)], [Compression.NONE, Compression.LZ4, Compression.ZSTD])
    for (record_bytes, batch_records), compression in kinds:
        if batch_records == 1 and compression is not Compression.NONE:
            continue
        log = make_log(Kind(record_bytes, batch_records, compression), megabytes)
        offset_map = OffsetMap(map_bytes, 0, SECRET)
        nothing_new = OffsetMap(map_bytes, log.record_count, SECRET)
        yield [
            f"{record_bytes:,} B, {batch_records} a batch",
            compression.name.lower(),
            megabytes_a_second(log, lambda chunk: offset_map.add(chunk, 0).size),  # noqa: B023 - called immediately
            megabytes_a_second(log, lambda chunk: filter_batches(chunk, offset_map, FILTERING).bytes_read),  # noqa: B023
            megabytes_a_second(log, lambda chunk: filter_batches(chunk, nothing_new, FILTERING).bytes_read),  # noqa: B023
        ]


def lines(megabytes: int, map_mib: int) -> Iterator[str]:
    """Run the measurements, and return a table."""
    rows = list(measured(megabytes, map_mib * 2**20))
    yield from table(["records", "compression", "map, MB/s", "kept, MB/s", "unchanged, MB/s"], rows, left=2)
