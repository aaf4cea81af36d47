"""What was seen of a log, stretch by stretch, to be shown again to whoever compares the whole log anew.

A table, or a group, is compared with all of the log at each look, and changes between two of them; the log only grows.
So it is read once, and what follows on each other is kept as one: a partition to which one producer writes needs few
numbers. Where it is too much, nothing is kept, and the log is read again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.identities import Producer

RANGES_MAX = 1_000_000
"""So many are kept: 32 MB."""

RECORDS_MAX = 65_536
"""Of a stretch: whoever compares one may need memory for each of its records."""

OnRange = Callable[[Producer, int, RecordRange], None]
"""Called with whose records were seen, the offset of the first, and how many are in which window."""


class _Kept:
    """The stretches of one partition, in their order, as columns."""

    __slots__ = ("offsets", "producers", "records", "windows_ms")

    def __init__(self) -> None:
        self.producers: list[Producer] = []
        self.offsets = array("q")
        self.records = array("q")
        self.windows_ms = array("q")

    def continues(self, producer: Producer, offset: int, record_range: RecordRange) -> bool:
        """Make the last one longer, where this one follows on it; return whether that was so."""
        if not self.producers or self.producers[-1] != producer or self.windows_ms[-1] != record_range.window_ms:
            return False
        records = self.records[-1]
        if self.offsets[-1] + records != offset or records + record_range.records > RECORDS_MAX:
            return False
        self.records[-1] = records + record_range.records
        return True

    def append(self, producer: Producer, offset: int, record_range: RecordRange) -> None:
        """Keep another one."""
        self.producers.append(producer)
        self.offsets.append(offset)
        self.records.append(record_range.records)
        self.windows_ms.append(record_range.window_ms)


class ScannedRanges:
    """Keeps what it is called with, and hands it on.

    :param listener: who sees the stretches at once; None: nobody.
    """

    def __init__(self, listener: OnRange | None = None) -> None:
        self.listener = listener
        self.is_whole = True
        """Whether all that was seen is kept."""
        self._kept: dict[int, _Kept] = {}
        self._names: dict[Producer, Producer] = {}
        """Each producer once, for there are many stretches of one."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __call__(self, producer: Producer, offset: int, record_range: RecordRange) -> None:
        """See a stretch. Those of a partition come in their order."""
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
        """Show all that was kept, each partition in its order."""
        for kept in self._kept.values():
            columns = zip(kept.producers, kept.offsets, kept.records, kept.windows_ms, strict=True)
            for producer, offset, records, window_ms in columns:
                listener(producer, offset, RecordRange(records, window_ms))
