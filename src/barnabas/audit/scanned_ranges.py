"""A cache of the record ranges that a scan of a log has found, for later comparisons with the whole log.

Each comparison of a table or a group with its log needs the whole log. The cache makes a second scan unnecessary. It
joins adjacent offset ranges that have the same producer and time window. If it exceeds `RANGES_MAX`, it discards all
ranges, and the log is scanned again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.identities import Producer

RANGES_MAX = 1_000_000
"""The maximum number of ranges in the cache. They take 32 MB of memory."""

RECORDS_MAX = 65_536
"""The maximum number of records in one range. A comparison may need memory for each record of a range."""

OnRange = Callable[[Producer, int, RecordRange], None]
"""A function that takes a range of records: its producer, the offset of its first record, and its record count and
window.
"""


class _Kept:
    """The ranges of one partition in offset order, stored as columns."""

    __slots__ = ("offsets", "producers", "records", "windows_ms")

    def __init__(self) -> None:
        self.producers: list[Producer] = []
        self.offsets = array("q")
        self.records = array("q")
        self.windows_ms = array("q")

    def continues(self, producer: Producer, offset: int, record_range: RecordRange) -> bool:
        """Extend the last range if the given range continues it, and return whether it does."""
        if not self.producers or self.producers[-1] != producer or self.windows_ms[-1] != record_range.window_ms:
            return False
        records = self.records[-1]
        if self.offsets[-1] + records != offset or records + record_range.records > RECORDS_MAX:
            return False
        self.records[-1] = records + record_range.records
        return True

    def append(self, producer: Producer, offset: int, record_range: RecordRange) -> None:
        """Append a range."""
        self.producers.append(producer)
        self.offsets.append(offset)
        self.records.append(record_range.records)
        self.windows_ms.append(record_range.window_ms)


class ScannedRanges:
    """Stores the ranges of a scan, and passes each range to a listener.

    :param listener: called with each range during the scan; None if there is no listener.
    """

    def __init__(self, listener: OnRange | None = None) -> None:
        self.listener = listener
        self.is_whole = True
        """True if the cache holds all ranges of the scan."""
        self._kept: dict[int, _Kept] = {}
        self._names: dict[Producer, Producer] = {}
        """One `Producer` object per producer, shared by all of its ranges to save memory."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __call__(self, producer: Producer, offset: int, record_range: RecordRange) -> None:
        """Store a range and pass it to the listener. Ranges of a partition arrive in offset order."""
        if self.is_whole:
            self._keep(producer, offset, record_range)
        if self.listener is not None:
            self.listener(producer, offset, record_range)

    def _keep(self, producer: Producer, offset: int, record_range: RecordRange) -> None:
        kept = self._kept.setdefault(producer.partition, _Kept())
        if kept.continues(producer, offset, record_range):
            return
        if self._count >= RANGES_MAX:
            self.is_whole = False
            self._kept, self._names, self._count = {}, {}, 0
            return
        kept.append(self._names.setdefault(producer, producer), offset, record_range)
        self._count += 1

    def show(self, listener: OnRange) -> None:
        """Call `listener` with all stored ranges, in the order of offsets within each partition."""
        for kept in self._kept.values():
            columns = zip(kept.producers, kept.offsets, kept.records, kept.windows_ms, strict=True)
            for producer, offset, records, window_ms in columns:
                listener(producer, offset, RecordRange(records, window_ms))
