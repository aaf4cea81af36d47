"""The distribution of a run's work among processes."""

from __future__ import annotations

from collections.abc import Sequence


def share_partitions(partitions: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Return the partitions that each of `count` processes reads.

    >>> share_partitions(range(6), 4)
    [(0, 4), (1, 5), (2,), (3,)]
    """
    return [tuple(partitions[number::count]) for number in range(count)]


def share_records(records: int, limits: Sequence[int]) -> list[int]:
    """Return the number of records of each process: an even share, but at most the limit of the process.

    >>> share_records(10, [2, 100, 100]), share_records(10, [1, 1])
    ([2, 4, 4], [1, 1])
    """
    shares = [0] * len(limits)
    left = min(records, sum(limits))
    while left:
        unsated = [number for number, limit in enumerate(limits) if shares[number] < limit]
        each = max(1, left // len(unsated))
        for number in unsated:
            taken = min(each, limits[number] - shares[number], left)
            shares[number] += taken
            left -= taken
    return shares


def share_evenly(records: int, count: int) -> list[int]:
    """Return the number of records of each of `count` processes.

    >>> share_evenly(10, 3)
    [4, 3, 3]
    """
    return [records // count + (number < records % count) for number in range(count)]
