"""The rows of a table against the log that they were loaded from.

Rows are counted first, then the log is read past them (`check`): an offset that the log holds must be in the table
once, up to where its last load ended. Of what the log holds no more, rows are left to be compared with the account
that loads have given of themselves (`tallies`).
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
"""So much memory may be needed for offsets that are not whole blocks of rows."""


@dataclass(slots=True)
class TableRows:
    """What a table holds of a topic.

    :param begins: by partition, the first offset that the log still has.
    :param next_offsets: by partition, where the next load goes on.
    :param complete_until_ms: up to when the table calls itself complete: what comes to earlier windows is late.
    """

    begins: Mapping[int, int]
    next_offsets: Mapping[int, int]
    width_ms: int
    complete_until_ms: int | None = None
    findings: Findings = field(default_factory=Findings)
    tallies: dict[int, dict[int, Tally]] = field(default_factory=dict)
    """By window and partition: all rows, with offsets for numbers."""
    loaded: dict[Producer, int] = field(default_factory=dict)
    """By producer: rows of records that the log still has, with second copies."""
    waiting_of: dict[tuple[int, Producer], int] = field(default_factory=dict)
    """By window and producer: records of the log that are not loaded yet."""
    first_offsets: dict[int, int] = field(default_factory=dict)
    """By partition, the least offset of a row."""
    _copies: dict[int, OffsetCounts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {each: max(0, end - self.begins.get(each, end)) for each, end in self.next_offsets.items()}
        self._copies = {partition: OffsetCounts(length) for partition, length in lengths.items()}

    @property
    def waiting(self) -> int:
        """How many records of the log are not loaded yet."""
        return sum(self.waiting_of.values())

    @property
    def records(self) -> int:
        """How many rows there are."""
        return sum(found.records for window in self.tallies.values() for found in window.values())

    def add(self, partition: int, offsets: Numbers, timestamps_ms: Numbers) -> None:
        """Count rows of a partition, in any order.

        :param timestamps_ms: of their records.
        :raises NotAuditableError: the rows have so many gaps that they need too much memory.
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
        """Compare a range of the log with the rows. Each is compared once.

        :param producer: whose records they are.
        :param offset: of the first of them.
        """
        partition, begin = producer.partition, self.begins.get(producer.partition, 0)
        if offset < begin:  # a batch of which the log still has the end
            record_range, offset = RecordRange(record_range.records - (begin - offset), record_range.window_ms), begin
        loaded = max(0, min(record_range.records, self.next_offsets.get(partition, 0) - offset))
        if loaded < record_range.records:
            self._waits(producer, offset + loaded, record_range.records - loaded, record_range.window_ms)
        copies = self._copies[partition].take(offset - begin, loaded) if loaded else _NONE
        self.loaded[producer] = self.loaded.get(producer, 0) + int(copies.sum(dtype=np.int64))
        if loaded and (copies.min() != 1 or copies.max() != 1):
            self._note(Kind.LOST, producer, offset, record_range.window_ms, copies == 0, copies)
            self._note(Kind.DOUBLED, producer, offset, record_range.window_ms, copies > 1, copies - 1)

    def check_is_over(self) -> None:
        """Note the rows of offsets at which the log has no record."""
        for partition, of_partition in self._copies.items():
            named = 0
            for place, copies in of_partition.left():
                runs = _runs(np.flatnonzero(copies))
                # So many are named; what is beyond is counted, all at once.
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
                f"the rows have so many gaps that to look at them needs more than {MEMORY_BYTES_MAX} bytes of memory: "
                "begin later (--since)"
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
    """Return ascending places as runs without a gap; one that is empty where there are none."""
    return np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
