"""Finds the offset at which the mirror of a partition resumes, and proves it by the records. Pure: a generator.

`look` yields what has to be read and is sent the bytes, so tests and the mirror run the same steps. The target's log
says how far the partition is mirrored (`target_tail.py`). The source must confirm each batch that the map does not
cover yet, and always the last batch (`batch_verification.py`).
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
    """A fetch of one of the two logs, from an offset on."""

    is_source: bool
    offset: int


class Ends(NamedTuple):
    """Where a log starts and ends."""

    start: int
    end: int


Steps = Generator[Read, memoryview, None]


class ResumeSearch:
    """A look at the end of a target's log, and at the source records that the target claims to have.

    :param where: the target's partition, for messages.
    :param source: the source's ends, read after those of the target's log that `tail` knows.
    :param last_source: the source batch that was mirrored last, where that is known.
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
        """Of the source, in the order of their offsets."""
        self._covered = Ends(0, 0)
        """The source offsets whose batches were read."""
        self.is_confirmed = False
        """Whether the source still has records of the target's last batch, and they are the same."""
        self.is_proved = True
        """Whether the source has confirmed every batch that this look compared."""
        self.source_epoch = -1
        """The newest leader epoch among the source batches that were read."""

    def steps(self) -> Steps:
        """Run the look; `tail` then says where to go on.

        :raises DivergedError: the source does not confirm what the target has.
        :raises MirrorError: see `TargetTail`.
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
                return  # nothing is left there: compaction took it
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
        """Return all source batches that have offsets from `first` up to before `end`; forget those before."""
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
            # Without a batch, nothing follows: compaction took it.
            self._covered = Ends(first, self._source.end if reached == offset else reached)
        return list(takewhile(lambda each: each.header.base_offset < end, self._batches))

    def _lost_end(self, claimed: int) -> DivergedError:
        return DivergedError(
            f"{self._where}: the source ends at offset {self._source.end}, but the target has its records up to offset"
            f" {claimed - 1}: the source has lost records that were mirrored; {remedy_text(self._where)}"
        )
