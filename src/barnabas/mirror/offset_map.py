"""Maps source offsets to target offsets and back. A mapped offset never skips records.

A map is a list of runs `(source, target, count)`: starting at these two offsets, both logs have the same `count`
records without gaps. For an offset between two runs the map returns the end of the earlier run, in either direction. So
a consumer that resumes at a mapped offset misses no record, but may read some records twice.

Without compaction there is one run, and the map is exact. If there are more than `RUNS_MAX` runs, the map drops every
second run. It then becomes less exact but never wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

RUNS_MAX = 256
"""The maximum number of runs in a map, so that a map takes less than 10 KB in the ledger."""

Run = tuple[int, int, int]
"""A run: first source offset, first target offset, number of records."""


class OffsetMap:
    """The map between source and target offsets of the mirrored part of a partition.

    >>> offsets = OffsetMap(100, 0)
    >>> offsets.add(110, 10)
    >>> offsets.to_target(105), offsets.to_source(5), offsets.to_target(200)
    (5, 105, 10)
    """

    def __init__(self, source_start: int, target_start: int) -> None:
        self._runs: list[Run] = [(source_start, target_start, 0)]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> OffsetMap:
        """Return a map with the given runs.

        :raises ValueError: there are no runs, or they overlap or are out of order.
        """
        if not runs:
            raise ValueError("an offset map needs at least one run")
        made = cls(0, 0)
        made._runs = [(int(source), int(target), int(count)) for source, target, count in runs]
        for (source, target, count), (next_source, next_target, _) in zip(made._runs, made._runs[1:], strict=False):
            if count < 0 or next_source < source + count or next_target < target + count:
                raise ValueError(f"run {next_source, next_target} does not follow {source, target, count}")
        return made

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._runs)

    @property
    def source_end(self) -> int:
        """The source offset of the next record to mirror."""
        source, _, count = self._runs[-1]
        return source + count

    @property
    def target_end(self) -> int:
        """The target offset of the next mirrored record."""
        _, target, count = self._runs[-1]
        return target + count

    def add(self, source_next: int, count: int, source_first: int | None = None) -> None:
        """Add `count` records at the end of the target; the last record has source offset `source_next - 1`.

        :param source_first: the source offset of the first record; None if the source offsets have gaps.
        """
        source, target, known = self._runs[-1]
        at = target + known
        if source + known + count == source_next:
            self._runs[-1] = (source, target, known + count)
            return
        if source_first is not None and source_first + count == source_next:
            self._append((source_first, at, count))
        else:
            self._append((source_next, at + count, 0))

    def jump(self, source_next: int, target_end: int) -> None:
        """Continue the map at the given offsets, with a gap before them."""
        if (source_next, target_end) != (self.source_end, self.target_end):
            self._append((source_next, target_end, 0))

    def rewind(self, source_next: int, target_end: int) -> None:
        """Remove the records that the target has lost, so that the map ends at the given offsets."""
        while len(self._runs) > 1 and (self._runs[-1][1] > target_end or self._runs[-1][0] > source_next):
            self._runs.pop()
        source, target, count = self._runs[-1]
        kept = max(0, min(count, target_end - target, source_next - source))
        self._runs[-1] = (min(source, source_next), min(target, target_end), kept)
        self.jump(source_next, target_end)

    def to_target(self, source_offset: int) -> int:
        """Return a target offset that does not skip any record at or after `source_offset`."""
        place = bisect_right(self._runs, source_offset, key=lambda run: run[0]) - 1
        source, target, count = self._runs[max(place, 0)]
        return target + max(0, min(source_offset - source, count))

    def to_source(self, target_offset: int) -> int:
        """Return a source offset that does not skip any record at or after `target_offset`."""
        place = bisect_right(self._runs, target_offset, key=lambda run: run[1]) - 1
        source, target, count = self._runs[max(place, 0)]
        return source + max(0, min(target_offset - target, count))

    def _append(self, run: Run) -> None:
        self._runs.append(run)
        if len(self._runs) > RUNS_MAX:
            self._runs = [*self._runs[:-1][::2], self._runs[-1]]
