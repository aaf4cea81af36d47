"""Compares the rows of a table with the log that they were loaded from.

The audit first adds all rows (`add`), and then compares them with the log (`check`). The table must have each offset of
the log exactly once, up to the end of the last load. Rows whose records the log has deleted are compared with the
accounts of the loads (`tallies`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from barnabas.audit.account import offsets_of
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.column_tallies import Numbers, tallies_by_window, windows_of
from barnabas.audit.findings import RANGES_MAX, Findings, Kind
from barnabas.audit.identities import Producer
from barnabas.audit.offset_counts import Copies, OffsetCounts
from barnabas.audit.stored_log import NotAuditableError
from barnabas.audit.windows import NO_WINDOW_MS, NOTHING, Tally

MEMORY_BYTES_MAX = 4_000_000_000
"""The memory limit in bytes for the counts of incomplete blocks of offsets."""


@dataclass(slots=True)
class TableRows:
    """The rows of a table that were loaded from one topic.

    :param begins: the log start offsets by partition.
    :param next_offsets: the offsets at which the next load starts, by partition.
    :param complete_until_ms: the table's completeness watermark in ms; records of earlier windows are late.
    """

    begins: Mapping[int, int]
    next_offsets: Mapping[int, int]
    width_ms: int
    complete_until_ms: int | None = None
    is_state: bool = False
    """True for a state table, which has no row for each offset. The audit uses the offsets of its loads instead: a load
    commits them together with its changes."""
    findings: Findings = field(default_factory=Findings)
    tallies: dict[int, dict[int, Tally]] = field(default_factory=dict)
    """The tallies of all rows by window and partition, with offsets as record numbers."""
    loaded: dict[Producer, int] = field(default_factory=dict)
    """The number of rows whose records the log still has, by producer, including duplicates."""
    waiting_of: dict[tuple[int, Producer], int] = field(default_factory=dict)
    """The number of records that are in the log but not yet loaded, by window and producer."""
    first_offsets: dict[int, int] = field(default_factory=dict)
    """The lowest offset of a row, by partition."""
    _copies: dict[int, OffsetCounts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {each: max(0, end - self.begins.get(each, end)) for each, end in self.next_offsets.items()}
        self._copies = {partition: OffsetCounts(length) for partition, length in lengths.items()}

    @property
    def waiting(self) -> int:
        """The number of records that are in the log but not yet loaded."""
        return sum(self.waiting_of.values())

    @property
    def records(self) -> int:
        """The number of rows."""
        return sum(found.records for window in self.tallies.values() for found in window.values())

    def add(self, partition: int, offsets: Numbers, timestamps_ms: Numbers) -> None:
        """Count rows of a partition, in any order.

        :param timestamps_ms: the timestamps of the rows' records.
        :raises NotAuditableError: the rows have so many gaps that counting them needs too much memory.
        """
        windows_ms = windows_of(timestamps_ms, self.width_ms)
        for window_ms, found in tallies_by_window(offsets_of(partition), offsets, windows_ms).items():
            of_window = self.tallies.setdefault(window_ms, {})
            of_window[partition] = of_window.get(partition, NOTHING).plus(found)
        of_a_log = offsets[offsets >= 0]
        if len(of_a_log):
            first = int(of_a_log.min())
            self.first_offsets[partition] = min(first, self.first_offsets.get(partition, first))
        begin = self.begins.get(partition, 0)
        foreign = (offsets >= self.next_offsets.get(partition, 0)) | (offsets < 0)
        for offset, window_ms in zip(offsets[foreign].tolist(), windows_ms[foreign].tolist(), strict=True):
            self.findings.note(Kind.EXTRA, window_ms, offsets_of(partition), offset, 1)
        places = offsets[(offsets >= begin) & ~foreign] - begin
        if len(places):
            self._copies[partition].add(places)
            self._check_memory()

    def check(self, producer: Producer, offset: int, record_range: RecordRange) -> None:
        """Compare a range of records in the log with the rows. Each range must be passed once.

        :param producer: the producer and partition of the records.
        :param offset: the offset of the first record.
        """
        partition, begin = producer.partition, self.begins.get(producer.partition, 0)
        if offset < begin:  # the log start offset is inside this range, so skip the records before it
            record_range, offset = RecordRange(record_range.records - (begin - offset), record_range.window_ms), begin
        loaded = max(0, min(record_range.records, self.next_offsets.get(partition, 0) - offset))
        if loaded < record_range.records:
            self._waits(producer, offset + loaded, record_range.records - loaded, record_range.window_ms)
        if self.is_state:
            self.loaded[producer] = self.loaded.get(producer, 0) + loaded
            return
        copies = self._copies[partition].take(offset - begin, loaded) if loaded else _NONE
        self.loaded[producer] = self.loaded.get(producer, 0) + int(copies.sum(dtype=np.int64))
        if loaded and (copies.min() != 1 or copies.max() != 1):
            self._note(Kind.LOST, producer, offset, record_range.window_ms, copies == 0, copies)
            self._note(Kind.DOUBLED, producer, offset, record_range.window_ms, copies > 1, copies - 1)

    def check_is_over(self) -> None:
        """Report rows whose offsets have no record in the log. Call this after `check` has received the whole log."""
        for partition, of_partition in self._copies.items():
            named = 0
            for place, copies in of_partition.left():
                runs = _runs(np.flatnonzero(copies))
                # The findings list at most RANGES_MAX ranges; further ranges are only counted.
                names = max(1, RANGES_MAX - named)
                named += len(runs)
                for run in (*runs[:names], np.concatenate((runs[0][:0], *runs[names:]))):
                    if len(run):
                        records = int(copies[run].sum(dtype=np.int64))
                        offset = place + int(run[0]) + self.begins.get(partition, 0)
                        self.findings.note(Kind.EXTRA, NO_WINDOW_MS, offsets_of(partition), offset, records, len(run))

    def _check_memory(self) -> None:
        size_bytes = sum(each.size_bytes for each in self._copies.values())
        if size_bytes > MEMORY_BYTES_MAX:
            raise NotAuditableError(
                f"the rows have so many gaps that comparing them needs more than {MEMORY_BYTES_MAX} bytes of memory; "
                "compare a later part (--since)"
            )

    def _waits(self, producer: Producer, offset: int, records: int, window_ms: int) -> None:
        place = (window_ms, producer)
        self.waiting_of[place] = self.waiting_of.get(place, 0) + records
        until_ms = self.complete_until_ms
        is_late = until_ms is not None and window_ms + self.width_ms <= until_ms
        self.findings.note(Kind.LATE if is_late else Kind.OPEN, window_ms, producer, offset, records)

    def _note(
        self,
        kind: Kind,
        producer: Producer,
        offset: int,
        window_ms: int,
        concerned: np.ndarray[tuple[int], np.dtype[np.bool_]],
        copies: Copies,
    ) -> None:
        places = np.flatnonzero(concerned)
        if not len(places):
            return
        for part in _runs(places):
            records = len(part) if kind is Kind.LOST else int(copies[part].sum(dtype=np.int64))
            self.findings.note(kind, window_ms, producer, offset + int(part[0]), records, len(part))


_NONE: Copies = np.zeros(0, np.uint8)


def _runs(places: Numbers) -> list[Numbers]:
    """Split ascending numbers into runs without gaps. If there are no numbers, the result is one empty run."""
    return np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
