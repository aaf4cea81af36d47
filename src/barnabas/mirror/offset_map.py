"""Which offset of the target stands for which one of the source, both ways, and never too far on.

A map is a list of runs: from `source` and `target` on, `count` records follow one another without holes on both sides.
What lies behind a run and before the next one is known in its bounds only: there the map answers with the end of the
run, in either direction. So nobody who goes on where the map says leaves a record out; he may have some again.

Where nothing was compacted there is one run, and the map is exact. Of very many runs every second one is forgotten,
which makes the map coarser and never wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

RUNS_MAX = 256
"""A map has less than 10 KB in the ledger."""

Run = tuple[int, int, int]
"""Source offset, target offset, number of records."""


class OffsetMap:
    """The map of one partition, as far as it is mirrored.

    >>> offsets = OffsetMap(100, 0)
    >>> offsets.add(110, 10)
    >>> offsets.to_target(105), offsets.to_source(5), offsets.to_target(200)
    (5, 105, 10)
    """

    def __init__(self, source_start: int, target_start: int) -> None:
        self._runs: list[Run] = [(source_start, target_start, 0)]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> OffsetMap:
        """Return the map with these runs.

        :raises ValueError: they are none, or do not follow one another.
        """
        if not runs:
            raise ValueError("a map without runs")
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
        """The source offset that is to be mirrored next."""
        source, _, count = self._runs[-1]
        return source + count

    @property
    def target_end(self) -> int:
        """The target offset where that is to be."""
        _, target, count = self._runs[-1]
        return target + count

    def add(self, source_next: int, count: int, source_first: int | None = None) -> None:
        """Note `count` records at the target's end, which were those up to before `source_next`.

        :param source_first: the source offset of the first of them, where they have no holes.
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
        """Go on from these offsets, whatever lies before them."""
        if (source_next, target_end) != (self.source_end, self.target_end):
            self._append((source_next, target_end, 0))

    def rewind(self, source_next: int, target_end: int) -> None:
        """Forget what the target has no longer: it ends here now."""
        while len(self._runs) > 1 and (self._runs[-1][1] > target_end or self._runs[-1][0] > source_next):
            self._runs.pop()
        source, target, count = self._runs[-1]
        kept = max(0, min(count, target_end - target, source_next - source))
        self._runs[-1] = (min(source, source_next), min(target, target_end), kept)
        self.jump(source_next, target_end)

    def to_target(self, source_offset: int) -> int:
        """Return a target offset from which on nothing is missing of what the source has from `source_offset` on."""
        place = bisect_right(self._runs, source_offset, key=lambda run: run[0]) - 1
        source, target, count = self._runs[max(place, 0)]
        return target + max(0, min(source_offset - source, count))

    def to_source(self, target_offset: int) -> int:
        """Return a source offset from which on nothing is missing of what the target has from `target_offset` on."""
        place = bisect_right(self._runs, target_offset, key=lambda run: run[1]) - 1
        source, target, count = self._runs[max(place, 0)]
        return source + max(0, min(target_offset - target, count))

    def _append(self, run: Run) -> None:
        self._runs.append(run)
        if len(self._runs) > RUNS_MAX:
            self._runs = [*self._runs[:-1][::2], self._runs[-1]]
