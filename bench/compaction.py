"""How fast log compaction goes over records, in memory and on one thread: the map of latest offsets, and what stays.

    python -m bench.compaction                       all of it, a minute or two
    python -m bench.compaction --map-mib 128 --megabytes 50

Records have a key of 16 bytes, a value of which half can be compressed, and a tenth as many keys as there are records;
keys are chosen at random. MB/s are those of keys and values, as they were before compression; the time is CPU time,
the best of some turns. *kept* is `filter_batches` where a record of about ten stays, *unchanged* where all of them do.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.records import BatchBuilder, Compression, stamp
from barnabas.records.compaction import COMPACTION, Filtering, OffsetMap, filter_batches
from bench.machine import describe
from bench.tables import table

KEY_BYTES = 16
RECORDS_PER_KEY = 10
CHUNK_BYTES = 8 * 1024 * 1024
TURNS = 5
MEGABYTE = 1_000_000
SECRET = bytes(range(16))
FILTERING = Filtering(1, 1, {}, 2**27)


class Log(NamedTuple):
    """Batches as they stand in a log from offset 0 on."""

    data: bytes
    record_count: int
    given_bytes: int
    """Of keys and values."""


def make_log(megabytes: int, record_bytes: int, batch_records: int, compression: Compression) -> Log:
    """Return batches of records that are `record_bytes` of key and value."""
    choose = random.Random(record_bytes)
    value_bytes = record_bytes - KEY_BYTES
    noise = os.urandom(MEGABYTE)
    batch_count = megabytes * MEGABYTE // (record_bytes * batch_records)
    record_count = batch_count * batch_records
    batches = []
    for base_offset in range(0, record_count, batch_records):
        builder = BatchBuilder(compression)
        for offset in range(base_offset, base_offset + batch_records):
            start = choose.randrange(len(noise) - value_bytes)
            value = noise[start : start + value_bytes // 2].ljust(value_bytes, b".")
            builder.append(offset, b"key-%012d" % choose.randrange(1 + record_count // RECORDS_PER_KEY), value)
        batch = bytearray(builder.build())
        stamp(batch, 0, base_offset, 0)
        batches.append(bytes(batch))
    return Log(b"".join(batches), record_count, record_count * record_bytes)


def chunks(data: bytes, take: Callable[[memoryview], int]) -> None:
    """Give all of the data to a function that returns how much of it was taken."""
    position = 0
    with memoryview(data) as view:
        while position < len(data):
            position += take(view[position : position + CHUNK_BYTES])


def megabytes_a_second(log: Log, take: Callable[[memoryview], int]) -> str:
    """Return the best of some turns."""
    best_s = float("inf")
    for _ in range(TURNS):
        begin_s = time.process_time()
        chunks(log.data, take)
        best_s = min(best_s, time.process_time() - begin_s)
    return f"{log.given_bytes / best_s / MEGABYTE:,.0f}"


def measured(megabytes: int, map_bytes: int) -> Iterator[list[str]]:
    """Yield a row for each kind of records."""
    kinds = itertools.product([(100, 1), (100, 100), (1000, 16)], [Compression.NONE, Compression.LZ4, Compression.ZSTD])
    for (record_bytes, batch_records), compression in kinds:
        if batch_records == 1 and compression is not Compression.NONE:
            continue
        log = make_log(megabytes, record_bytes, batch_records, compression)
        offset_map = OffsetMap(map_bytes, 0, SECRET)
        nothing_new = OffsetMap(map_bytes, log.record_count, SECRET)
        yield [
            f"{record_bytes:,} B, {batch_records} a batch",
            compression.name.lower(),
            megabytes_a_second(log, lambda chunk: offset_map.add(chunk, 0).size),  # noqa: B023 - used at once
            megabytes_a_second(log, lambda chunk: filter_batches(chunk, offset_map, FILTERING).bytes_read),  # noqa: B023
            megabytes_a_second(log, lambda chunk: filter_batches(chunk, nothing_new, FILTERING).bytes_read),  # noqa: B023
        ]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="How fast log compaction goes over records.")
    parser.add_argument("--megabytes", type=int, default=40, help="keys and values of each log (default: 40)")
    parser.add_argument("--map-mib", type=int, default=128, help="memory of the map in MiB (default: 128)")
    arguments = parser.parse_args()
    rows = list(measured(arguments.megabytes, arguments.map_mib * 2**20))
    lines = table(["records", "compression", "map, MB/s", "kept, MB/s", "unchanged, MB/s"], rows, left=2)
    sys.stdout.write("\n".join([f"{COMPACTION}, {describe()}", "", *lines, ""]))


if __name__ == "__main__":
    main()
