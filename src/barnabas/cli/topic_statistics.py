"""Statistics about the batches and records of partitions, for `barnabas topic analyze`. The module does no I/O."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.records.codec import Record, decode_records
from barnabas.records.header import BATCH_HEADER_SIZE, Buffer, iter_headers
from barnabas.records.reader import iter_bodies

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
HASHES_KEPT = 4096
"""The number of hashes in a `DistinctCount`. The standard error of the estimate is 1 / sqrt(HASHES_KEPT), 1.6 %."""
_HASH_BYTES = 8
_HASHES = float(2 ** (8 * _HASH_BYTES))


class DistinctCount:
    """Estimates the number of distinct keys from the smallest hashes (Bar-Yossef et al., 2002: k minimum values).

    Up to `HASHES_KEPT` distinct keys, the number is exact.

    >>> count = DistinctCount()
    >>> count.add([b"a", b"b", b"a"])
    >>> count.estimate
    2
    """

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._limit = int(_HASHES)

    def add(self, keys: Iterable[bytes]) -> None:
        """Count keys."""
        for key in keys:
            found = int.from_bytes(hashlib.blake2b(key, digest_size=_HASH_BYTES).digest(), "big")
            if found < self._limit:
                self._hashes.add(found)
                if len(self._hashes) > 2 * HASHES_KEPT:
                    self._shrink()

    def merge(self, other: DistinctCount) -> None:
        """Count the keys of another counter."""
        self._hashes |= other._hashes
        self._shrink()

    def _shrink(self) -> None:
        if len(self._hashes) > HASHES_KEPT:
            self._hashes = set(heapq.nsmallest(HASHES_KEPT, self._hashes))
            self._limit = max(self._hashes)

    @property
    def is_exact(self) -> bool:
        return len(self._hashes) < HASHES_KEPT

    @property
    def estimate(self) -> int:
        """The number of distinct keys; an estimate unless `is_exact`."""
        self._shrink()
        if self.is_exact:
            return len(self._hashes)
        return round((HASHES_KEPT - 1) * _HASHES / max(self._hashes))


def percentiles(sizes: Mapping[int, int]) -> dict[str, int]:
    """Return the percentiles of values by their frequencies; empty without values.

    >>> percentiles({10: 98, 200: 1, 3000: 1})
    {'p50': 10, 'p90': 10, 'p99': 200, 'max': 3000}
    """
    total = sum(sizes.values())
    wanted = [(name, max(1, -int(-share * total // 1))) for name, share in PERCENTILES.items()] if total else []
    found: dict[str, int] = {}
    reached = 0
    for size, count in sorted(sizes.items()):
        reached += count
        while wanted and reached >= wanted[0][1]:
            found[wanted.pop(0)[0]] = size
    return found


@dataclass(slots=True)
class PartitionStatistics:
    """The statistics of a range of offsets, from `start` up to, but not including, `end`.

    Batch statistics include the whole batches at the borders of the range; record statistics only records within it.
    """

    start: int
    end: int
    offsets: int = 0
    """The number of offsets that were read."""
    records: int = 0
    control_batches: int = 0
    null_keys: int = 0
    null_values: int = 0
    batches: int = 0
    stored_bytes: int = 0
    plain_bytes: int = 0
    """The size of the batches without compression."""
    codecs: Counter[str] = field(default_factory=Counter)
    record_sizes: Counter[int] = field(default_factory=Counter)
    """The number of records by the size of key and value together."""
    batch_sizes: Counter[int] = field(default_factory=Counter)
    batch_records: Counter[int] = field(default_factory=Counter)
    first_ms: int | None = None
    last_ms: int | None = None
    keys: DistinctCount = field(default_factory=DistinctCount)

    def add(self, data: Buffer, topic: str, partition: int) -> None:
        """Add the whole batches of a response to a fetch.

        :raises CorruptBatchError: a batch is damaged.
        """
        view = memoryview(data)
        for _, header in iter_headers(view, partial_ok=True):
            if header.last_offset < self.start or header.base_offset >= self.end:
                continue
            self.offsets = min(header.next_offset, self.end) - self.start
            self.batches += 1
            self.stored_bytes += header.size
            self.batch_sizes[header.size] += 1
            if header.is_control:
                self.control_batches += 1
                self.plain_bytes += header.size
        for header, body in iter_bodies(view, self.start, self.end):
            self.plain_bytes += BATCH_HEADER_SIZE + len(body)
            self.codecs[header.compression.name.lower()] += 1
            self.batch_records[header.record_count] += 1
            records = decode_records(body, header, topic, partition, self.start)
            self._add_records(records if header.last_offset < self.end else [r for r in records if r.offset < self.end])

    def _add_records(self, records: list[Record]) -> None:
        if not records:
            return
        self.records += len(records)
        keys = [record.key for record in records if record.key is not None]
        self.keys.add(keys)
        self.null_keys += len(records) - len(keys)
        self.null_values += sum(record.value is None for record in records)
        self.record_sizes.update(len(record.key or b"") + len(record.value or b"") for record in records)
        times = [record.timestamp_ms for record in records if record.timestamp_ms >= 0]
        if times:
            self._note_times(min(times), max(times))

    def _note_times(self, first_ms: int | None, last_ms: int | None) -> None:
        self.first_ms = min((each for each in (self.first_ms, first_ms) if each is not None), default=None)
        self.last_ms = max((each for each in (self.last_ms, last_ms) if each is not None), default=None)

    def merge(self, other: PartitionStatistics) -> None:
        """Add the statistics of another partition. The range becomes meaningless."""
        for name in (
            *("offsets", "records", "control_batches", "null_keys", "null_values"),
            *("batches", "stored_bytes", "plain_bytes"),
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("codecs", "record_sizes", "batch_sizes", "batch_records"):
            getattr(self, name).update(getattr(other, name))
        self._note_times(other.first_ms, other.last_ms)
        self.keys.merge(other.keys)

    @property
    def missing_offsets(self) -> int:
        """The number of offsets without a record: compaction removes records, and transactions add markers."""
        return self.offsets - self.records - self.control_batches

    @property
    def compression_ratio(self) -> float | None:
        """The size without compression in relation to the stored size."""
        return round(self.plain_bytes / self.stored_bytes, 3) if self.stored_bytes else None

    @property
    def per_second(self) -> tuple[float, float] | None:
        """Records and stored bytes per second of the records' timestamps; None without a span of time."""
        if self.first_ms is None or self.last_ms is None or self.last_ms <= self.first_ms:
            return None
        seconds = (self.last_ms - self.first_ms) / 1000
        return round(self.records / seconds, 3), round(self.stored_bytes / seconds, 3)

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as a JSON value, without the range."""
        rates = self.per_second
        return {
            "offsets": self.offsets,
            "records": self.records,
            "missing_offsets": self.missing_offsets,
            "control_batches": self.control_batches,
            "null_keys": self.null_keys,
            "null_values": self.null_values,
            "distinct_keys": self.keys.estimate,
            "distinct_keys_are_exact": self.keys.is_exact,
            "batches": self.batches,
            "bytes": self.stored_bytes,
            "bytes_without_compression": self.plain_bytes,
            "compression_ratio": self.compression_ratio,
            "batches_by_codec": dict(sorted(self.codecs.items())),
            "record_bytes": percentiles(self.record_sizes),
            "batch_bytes": percentiles(self.batch_sizes),
            "batch_records": percentiles(self.batch_records),
            "first_timestamp_ms": self.first_ms,
            "last_timestamp_ms": self.last_ms,
            "records_per_s": None if rates is None else rates[0],
            "bytes_per_s": None if rates is None else rates[1],
        }
