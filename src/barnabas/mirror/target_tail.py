"""Reads the end of a target partition's log: the mirrored offsets, and records of other writers.

Pure: takes batch headers. What is known (the map) comes from the ledger, or from this mirror's own memory; what the log
says counts. The answer does not depend on how many mirrors write, or wrote: each batch says where it is from.
"""

from __future__ import annotations

from barnabas.mirror.batch_verification import Claim, remedy_text
from barnabas.mirror.errors import DivergedError, ForeignBatchError
from barnabas.mirror.offset_map import OffsetMap
from barnabas.model import TopicPartition
from barnabas.records.header import BatchHeader
from barnabas.records.mirror_identity import Provenance, provenance_of


def lost_records(where: TopicPartition, end: int, expected: int) -> str:
    """Return the remark on a target's log that ends too early."""
    return f"{where}: the target lost {expected - end} records from offset {end} on; the mirror sends them again"


class TargetTail:
    """One look at the end of one partition.

    :param offsets: the map as far as it is known; None: nothing is.
    :param origin: of the stretch that the map ends in, where that is known.
    :param log_start, log_end: of the target's log.
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
        """What is worth a line: records that are gone."""
        self.has_gap = False
        """Whether the log has no longer all that it got since the map ended."""
        self._where = where
        self._lineage = lineage
        self._log_start = log_start
        self._log_end = log_end
        self._is_cut = offsets is not None and log_end < offsets.target_end

    @property
    def scan_from(self) -> int:
        """The target offset to be read from, after `last` has not settled it."""
        if self.offsets is None or self._is_cut:
            return self._log_start
        return max(self.offsets.target_end, self._log_start)

    @property
    def ends_in_map(self) -> bool:
        """Whether the log ends where the map ends, or before: then the last batch may settle the look."""
        return self.offsets is not None and self._log_end <= self.offsets.target_end

    def last(self, header: BatchHeader) -> Claim | None:
        """Take the last batch of a log that ends in the map; None: the map does not fit, and all has to be scanned.

        :raises ForeignBatchError: somebody else wrote it.
        """
        assert self.offsets is not None
        found = provenance_of(self._lineage, header)
        if found is None:
            raise self._foreign(header)
        if not self._fits_map(header, found):
            self.offsets = None  # what is there now is not what was there
            self._is_cut = False
            return None
        if self._is_cut:
            # The leader was elected uncleanly, or lost its disk.
            self.remark = lost_records(self._where, header.next_offset, self.offsets.target_end)
            self._is_cut = False
            self.offsets.rewind(found.source_next, header.next_offset)
            self.origin = found.origin
        return Claim(found.source_next - header.last_offset_delta - 1, found.source_next)

    def _fits_map(self, header: BatchHeader, found: Provenance) -> bool:
        """Return whether the map allows a batch where it is. Both directions of a map never answer too far on."""
        assert self.offsets is not None
        if header.next_offset == self.offsets.target_end:
            return found.source_next == self.offsets.source_end and self.origin in (None, found.origin)
        return (
            self.offsets.to_target(found.source_next) <= header.next_offset
            and self.offsets.to_source(header.next_offset) <= found.source_next
        )

    def take(self, header: BatchHeader) -> Claim:
        """Take the next batch of the log, in their order from `scan_from` on; return what it claims.

        A batch right behind the one before it also claims that the source has nothing between the two.

        :raises ForeignBatchError: somebody else wrote it.
        """
        found = provenance_of(self._lineage, header)
        if found is None:
            raise self._foreign(header)
        count = header.last_offset_delta + 1
        source_from = found.source_next - count
        if self.offsets is None:
            self.offsets = OffsetMap(0, header.base_offset)
            self.origin = found.origin  # what was before it, nobody knows
        elif header.base_offset == self.offsets.target_end:
            self._check_follows(header, found)
            source_from = self.offsets.source_end
        if header.base_offset > self.offsets.target_end:  # compaction or retention took what was between
            self.has_gap = True
            self.offsets.jump(self.offsets.source_end, header.base_offset)
        self.offsets.add(found.source_next, count)
        self.origin = found.origin
        return Claim(source_from, found.source_next)

    def _check_follows(self, header: BatchHeader, found: Provenance) -> None:
        """Check a batch that lies right behind the one before it.

        A stretch begins with sequence 0; any other number goes on where the batch before has ended.

        :raises DivergedError: records are there twice, or are missing.
        """
        assert self.offsets is not None
        first = found.source_next - header.last_offset_delta - 1
        if first < self.offsets.source_end:
            what = f"records up to source offset {self.offsets.source_end} are there once more"
        elif header.base_sequence and (found.origin != self.origin or first != self.offsets.source_end):
            what = f"records from source offset {self.offsets.source_end} to {first} are missing"
        else:
            return
        raise DivergedError(f"{self._where}: at target offset {header.base_offset} {what}; {remedy_text(self._where)}")

    def end(self) -> None:
        """All was taken.

        :raises DivergedError: records are gone that nobody has seen.
        """
        if self.offsets is None:
            return
        if self._is_cut:
            # Nothing is left that says how far it was; what the ledger knew of it is beyond the end of the log.
            source_next = self.offsets.to_source(self._log_end)
            self.offsets.rewind(source_next, self._log_end)
            self.remark = f"{self._where}: the target is empty and ends at {self._log_end}; going on at {source_next}"
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
            f"{self._where}: somebody else wrote offset {header.base_offset} (producer {header.producer_id});"
            f" a mirror must be the only one to write there; {remedy_text(self._where)}"
        )
