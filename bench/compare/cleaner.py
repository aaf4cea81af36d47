"""Measures the log cleaner of a side in the same way as `bench.compaction`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from barnabas.clock import SYSTEM_CLOCK
from barnabas.records import Compression
from bench.compaction.accounts import of_barnabas
from bench.compaction.cleaning import Cleaned, Work
from bench.compaction.records import KEY_BYTES, Kind, batches
from bench.compare.sides import Side
from bench.compare.verdicts import Measurement
from bench.peers.barnabas import Barnabas

RECORD_BYTES = KEY_BYTES + 1_000
BATCH_BYTES = 16_384
KIND = Kind(RECORD_BYTES, BATCH_BYTES // RECORD_BYTES, Compression.NONE)
SEGMENTS = 8
SEGMENT_BYTES_MIN = 1024 * 1024


class SideBroker(Barnabas):
    """The broker of a side."""

    def __init__(self, folder: Path, side: Side) -> None:
        super().__init__(folder)
        self._side = side

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), **self._side.environment}


def measure_cleaner(side: Side, folder: Path, megabytes: int) -> Measurement:
    """Start a broker and let it clean a log once. Return the speed in MB/s, and the CPU seconds per million records.

    :param megabytes: the size of keys and values in the log.
    """
    server = SideBroker(folder, side)
    try:
        server.start()
        run = Cleaned(server, of_barnabas).measure("compacted", _work(megabytes))
    finally:
        server.stop()
    return Measurement(run.megabytes_per_s, run.cpu_s / KIND.record_count(megabytes) * 1e6)


@functools.cache
def _work(megabytes: int) -> Work:
    made = list(batches(KIND, megabytes, SYSTEM_CLOCK.time_ms()))
    return Work(KIND, made, max(SEGMENT_BYTES_MIN, sum(map(len, made)) // SEGMENTS))
