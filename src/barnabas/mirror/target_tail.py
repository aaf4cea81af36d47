"""Determines the mirrored offsets from the end of a target partition's log, and detects batches of other writers.

The module does no I/O: its input is batch headers. The map of offsets comes from the ledger or from the mirror's
memory. If the map and the log differ, the log decides. Each batch names its source offsets, so the result does not
depend on the number of running mirrors.
"""

from __future__ import annotations

from barnabas.mirror.batch_verification import Claim, remedy_text
from barnabas.mirror.errors import DivergedError, ForeignBatchError
from barnabas.mirror.offset_map import OffsetMap
from barnabas.model import TopicPartition
from barnabas.records.header import BatchHeader
from barnabas.records.mirror_identity import Provenance, provenance_of


def lost_records(where: TopicPartition, end: int, expected: int) -> str:
    """Return the message about a target log that is shorter than expected."""
    return f"{where}: the target lost {expected - end} records from offset {end} on; the mirror sends them again"


class TargetTail:
    """One read of the end of a target partition.

    :param offsets: the known part of the offset map; None if no offsets are known.
    :param origin: the first source offset of the last run in the map; None if it is not known.
    :param log_start, log_end: log start offset and log end offset of the target's log.
    """

    def __init__(
        self,
        where: TopicPartition,
        lineage: int,
        offsets: OffsetMap | None,
        origin: int | None,
        log_start: int,
        log_end: int,
    ) -> None:
        self.offsets = offsets
        self.origin = origin
        self.remark: str | None = None
        """A message for the user about lost records; None if no records are lost."""
        self.has_gap = False
        """True if the target's log has lost some records that were written after the end of the map."""
        self._where = where
        self._lineage = lineage
        self._log_start = log_start
        self._log_end = log_end
        self._is_cut = offsets is not None and log_end < offsets.target_end

    @property
    def scan_from(self) -> int:
        """The target offset at which the scan starts, if the last batch alone does not determine the resume
        position."""
        if self.offsets is None or self._is_cut:
            return self._log_start
        return max(self.offsets.target_end, self._log_start)

    @property
    def ends_in_map(self) -> bool:
        """True if the log ends at or before the end of the map, so that the last batch may be sufficient."""
        return self.offsets is not None and self._log_end <= self.offsets.target_end

    def last(self, header: BatchHeader) -> Claim | None:
        """Process the last batch of a log that ends within the map. Return None if the map does not fit the batch, so
        that the log must be scanned.

        :raises ForeignBatchError: another writer wrote the batch.
        """
        assert self.offsets is not None
        found = provenance_of(self._lineage, header)
        if found is None:
            raise self._foreign(header)
        if not self._fits_map(header, found):
            self.offsets = None  # another log has replaced this one: the map describes other records
            self._is_cut = False
            return None
        if self._is_cut:
            # The target lost records, after an unclean leader election or a disk failure.
            self.remark = lost_records(self._where, header.next_offset, self.offsets.target_end)
            self._is_cut = False
            self.offsets.rewind(found.source_next, header.next_offset)
            self.origin = found.origin
        return Claim(found.source_next - header.last_offset_delta - 1, found.source_next)

    def _fits_map(self, header: BatchHeader, found: Provenance) -> bool:
        """Return whether the map agrees with the offsets of this batch. Both directions of a map return lower
        bounds."""
        assert self.offsets is not None
        if header.next_offset == self.offsets.target_end:
            return found.source_next == self.offsets.source_end and self.origin in (None, found.origin)
        return (
            self.offsets.to_target(found.source_next) <= header.next_offset
            and self.offsets.to_source(header.next_offset) <= found.source_next
        )

    def take(self, header: BatchHeader) -> Claim:
        """Process the next batch of the log, in offset order from `scan_from`. Return the source offsets that the batch
        claims.

        A batch directly after the previous one also claims that the source has no records between the two.

        :raises ForeignBatchError: another writer wrote the batch.
        """
        found = provenance_of(self._lineage, header)
        if found is None:
            raise self._foreign(header)
        count = header.last_offset_delta + 1
        source_from = found.source_next - count
        if self.offsets is None:
            self.offsets = OffsetMap(0, header.base_offset)
            self.origin = found.origin  # earlier records are unknown
        elif header.base_offset == self.offsets.target_end:
            self._check_follows(header, found)
            source_from = self.offsets.source_end
        if header.base_offset > self.offsets.target_end:  # compaction or retention removed the records between them
            self.has_gap = True
            self.offsets.jump(self.offsets.source_end, header.base_offset)
        self.offsets.add(found.source_next, count)
        self.origin = found.origin
        return Claim(source_from, found.source_next)

    def _check_follows(self, header: BatchHeader, found: Provenance) -> None:
        """Check a batch that directly follows the previous batch.

        A run begins with sequence 0; a batch with another sequence must continue the previous batch.

        :raises DivergedError: records are duplicated or missing.
        """
        assert self.offsets is not None
        first = found.source_next - header.last_offset_delta - 1
        if first < self.offsets.source_end:
            what = f"the records up to source offset {self.offsets.source_end} are stored twice"
        elif header.base_sequence and (found.origin != self.origin or first != self.offsets.source_end):
            what = f"the records from source offset {self.offsets.source_end} to {first} are missing"
        else:
            return
        raise DivergedError(
            f"{self._where}: from target offset {header.base_offset} on {what}; {remedy_text(self._where)}"
        )

    def end(self) -> None:
        """Finish the read after the last batch.

        :raises DivergedError: records that the ledger does not cover are deleted.
        """
        if self.offsets is None:
            return
        if self._is_cut:
            # The log has no batch, and the ledger's last offsets are beyond its end. So use the map alone.
            source_next = self.offsets.to_source(self._log_end)
            self.offsets.rewind(source_next, self._log_end)
            self.remark = f"{self._where}: the target is empty and ends at {self._log_end}; resuming at {source_next}"
            self.origin = None
            return
        unseen = self._log_end - self.offsets.target_end
        if unseen > 0:
            raise DivergedError(
                f"{self._where}: the target deleted {unseen} records from offset {self.offsets.target_end} on before"
                f" the ledger covered them, so nothing proves that the source has them; {remedy_text(self._where)}"
            )

    def _foreign(self, header: BatchHeader) -> ForeignBatchError:
        return ForeignBatchError(
            f"{self._where}: another writer (producer {header.producer_id}) wrote offset {header.base_offset};"
            f" only the mirror may write to this partition; {remedy_text(self._where)}"
        )
