"""Finds the resume position of a mirrored partition and verifies it by comparing records. The module does no I/O.

`ResumeSearch.steps` is a generator: it yields the necessary fetches and receives the fetched bytes. So tests run the
same steps as the mirror. The end of the target's log shows which records are mirrored (`target_tail.py`). The search
compares each target batch beyond the offset map with the source, and always the last batch (`batch_verification.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from itertools import takewhile
from typing import NamedTuple

from barnabas.mirror.batch_verification import Batch, Claim, SourceBatch, remedy_text, verify_batch, verify_source
from barnabas.mirror.errors import DivergedError
from barnabas.mirror.target_tail import TargetTail
from barnabas.model import TopicPartition
from barnabas.records.header import iter_headers


class Read(NamedTuple):
    """A fetch from the log of the source or the target, starting at an offset."""

    is_source: bool
    offset: int


class Ends(NamedTuple):
    """The log start offset and the log end offset of a partition."""

    start: int
    end: int


Steps = Generator[Read, memoryview, None]


class ResumeSearch:
    """Reads the end of the target's log, and the source records that the target claims to have.

    :param where: the target partition, which error messages name.
    :param source: log start offset and log end offset of the source. The caller must request them after the target's
    offsets.
    :param last_source: the source batch that was mirrored last; None if it is not known.
    """

    def __init__(
        self,
        where: TopicPartition,
        tail: TargetTail,
        source: Ends,
        target: Ends,
        last_source: SourceBatch | None = None,
    ) -> None:
        self._where = where
        self._tail = tail
        self._source = source
        self._target = target
        self.last_source = last_source
        self._batches: deque[Batch] = deque()
        """The buffered source batches, in offset order."""
        self._covered = Ends(0, 0)
        """The range of source offsets whose batches are in `_batches`."""
        self.is_confirmed = False
        """True if the source still has records of the target's last batch, and they are equal to the batch."""
        self.is_proved = True
        """True if the source has confirmed each batch that this search compared."""
        self.source_epoch = -1
        """The highest leader epoch among the source batches read."""

    def steps(self) -> Steps:
        """Run the search. Afterwards, `tail` contains the resume position.

        :raises DivergedError: the target's records differ from the source's.
        :raises MirrorError: another writer wrote a batch to the target's log (see `TargetTail`).
        """
        tail, target = self._tail, self._target
        is_settled = target.start == target.end
        if not is_settled and tail.ends_in_map:
            last = self._last_of((yield Read(is_source=False, offset=target.end - 1)))
            claim = None if last is None else tail.last(last.header)
            if last is not None and claim is not None:
                yield from self._confirm(last, claim)
            is_settled = last is None or claim is not None
        if not is_settled:
            yield from self._scan()
        tail.end()
        if tail.offsets is not None and tail.offsets.source_end > self._source.end:
            raise self._lost_end(tail.offsets.source_end)
        known = self.last_source
        if known is not None and not self.is_confirmed and known.next_offset > self._source.start:
            if known.next_offset > self._source.end:
                raise self._lost_end(known.next_offset)
            overlapping = yield from self._read_source(max(known.base_offset, self._source.start), known.next_offset)
            self.is_confirmed = verify_source(self._where, known, overlapping)
        if known is None or tail.offsets is None or known.next_offset != tail.offsets.source_end:
            self.last_source = None

    def _last_of(self, data: memoryview) -> Batch | None:
        found = None
        for place, header in iter_headers(data, partial_ok=True):
            if header.next_offset <= self._target.end:
                found = Batch(header, data[place : place + header.size])
        return found

    def _scan(self) -> Steps:
        offset, end = self._tail.scan_from, self._target.end
        while offset < end:
            reached = offset
            data = yield Read(is_source=False, offset=offset)
            for place, header in iter_headers(data, partial_ok=True):
                if header.next_offset <= end and header.base_offset >= offset:
                    yield from self._confirm(Batch(header, data[place : place + header.size]), self._tail.take(header))
                reached = max(reached, header.next_offset)
            if reached == offset:
                return  # empty response: compaction removed all remaining records
            offset = reached

    def _confirm(self, batch: Batch, claim: Claim) -> Steps:
        if claim.source_next > self._source.end:
            raise self._lost_end(claim.source_next)
        first = max(claim.source_from, self._source.start)
        overlapping = yield from self._read_source(first, claim.source_next)
        self.is_confirmed = verify_batch(self._where, batch, claim, overlapping, self._source.start)
        self.is_proved = self.is_proved and self.is_confirmed
        if overlapping and overlapping[-1].header.next_offset == claim.source_next:
            header = overlapping[-1].header
            self.last_source = SourceBatch(header.base_offset, header.next_offset, header.crc)

    def _read_source(self, first: int, end: int) -> Generator[Read, memoryview, list[Batch]]:
        """Return the source batches that overlap the offsets from `first` to `end` (exclusive); drop earlier
        batches."""
        if not self._covered.start <= first <= self._covered.end:
            self._batches.clear()
            self._covered = Ends(first, first)
        while self._batches and self._batches[0].header.next_offset <= first:
            self._batches.popleft()
        while self._covered.end < end:
            offset = self._covered.end
            data = yield Read(is_source=True, offset=offset)
            reached = offset
            for place, header in iter_headers(data, partial_ok=True):
                if header.next_offset > offset:
                    self._batches.append(Batch(header, data[place : place + header.size]))
                    self.source_epoch = max(self.source_epoch, header.leader_epoch)
                    reached = max(reached, header.next_offset)
            # An empty response means that compaction removed the remaining records.
            self._covered = Ends(first, self._source.end if reached == offset else reached)
        return list(takewhile(lambda each: each.header.base_offset < end, self._batches))

    def _lost_end(self, claimed: int) -> DivergedError:
        return DivergedError(
            f"{self._where}: the source ends at offset {self._source.end}, but the target has records up to source"
            f" offset {claimed - 1}: the source has lost mirrored records; {remedy_text(self._where)}"
        )
