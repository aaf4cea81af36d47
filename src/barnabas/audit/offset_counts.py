"""Counts the rows per offset of a partition. The counts need little memory if each offset has one row.

Offsets are counted in blocks. A block with exactly one row per offset is stored as a single number, until one of its
offsets is counted again or taken. A block without rows needs no memory. All other blocks need one byte per offset. If
rows arrive in offset order, few blocks need that much.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from barnabas.audit.column_tallies import Numbers

BLOCK = 65_536
"""The number of offsets in a block; the last block of a partition may have fewer."""

COPIES_MAX = 255
"""The highest count of an offset; further rows do not increase it."""

Copies = np.ndarray[tuple[int], np.dtype[np.uint8]]
"""The number of rows of each offset in a range of consecutive offsets."""


class OffsetCounts:
    """Counts rows per position. Positions are the integers from 0 to `length` (exclusive).

    >>> copies = OffsetCounts(4)
    >>> copies.add(np.array([2, 0, 2]))
    >>> copies.take(0, 3).tolist(), copies.take(0, 4).tolist()
    ([1, 0, 2], [0, 0, 0, 0])
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._open: dict[int, Copies] = {}
        self._added: dict[int, int] = {}
        """The number of rows counted in each block that is stored as bytes."""
        self._whole: set[int] = set()
        """The blocks in which each position has exactly one row."""

    @property
    def size_bytes(self) -> int:
        """The memory in bytes of the blocks with one byte per position."""
        return len(self._open) * BLOCK

    def add(self, places: Numbers) -> None:
        """Count one row at each of the given positions; a position may occur several times."""
        if not bool((np.diff(places) >= 0).all()):
            places = np.sort(places)
        for part in np.split(places, np.flatnonzero(np.diff(places // BLOCK)) + 1):
            if len(part):
                self._add(int(part[0]) // BLOCK, part % BLOCK)

    def _add(self, number: int, places: Numbers) -> None:
        block = self._opened(number)
        _count(block, places)
        added = self._added[number] = self._added[number] + len(places)
        if added == len(block) and bool((block == 1).all()):
            self._whole.add(number)
            self._close(number)

    def take(self, first: int, count: int) -> Copies:
        """Return the counts of `count` positions and reset them to zero."""
        parts: list[Copies] = []
        while count > 0:
            number, inside = divmod(first, BLOCK)
            size = min(count, self._size_of(number) - inside)
            parts.append(self._take(number, inside, size))
            first, count = first + size, count - size
        return parts[0] if len(parts) == 1 else np.concatenate((_NONE, *parts))

    def _take(self, number: int, inside: int, size: int) -> Copies:
        if number not in self._open and number not in self._whole:
            return np.zeros(size, np.uint8)
        block = self._opened(number)
        taken = block[inside : inside + size].copy()
        block[inside : inside + size] = 0
        if inside + size == len(block) and not block.any():
            self._close(number)
        return taken

    def left(self) -> Iterator[tuple[int, Copies]]:
        """Yield the first position and the counts of each block with counts that `take` has not returned."""
        for number in sorted(self._open.keys() | self._whole):
            block = self._open.get(number)
            yield number * BLOCK, np.ones(self._size_of(number), np.uint8) if block is None else block

    def _size_of(self, number: int) -> int:
        return min(BLOCK, self._length - number * BLOCK)

    def _opened(self, number: int) -> Copies:
        block = self._open.get(number)
        if block is None:
            is_whole = number in self._whole
            self._whole.discard(number)
            size = self._size_of(number)
            block = self._open[number] = np.full(size, int(is_whole), np.uint8)
            self._added[number] = size if is_whole else 0
        return block

    def _close(self, number: int) -> None:
        del self._open[number], self._added[number]


_NONE: Copies = np.zeros(0, np.uint8)


def _count(copies: Copies, places: Numbers) -> None:
    """Count one row at each of the given positions, which must be in ascending order."""
    if bool((np.diff(places) > 0).all()):
        copies[places] += copies[places] < COPIES_MAX
        return
    distinct, counts = np.unique(places, return_counts=True)
    copies[distinct] = np.minimum(copies[distinct] + counts, COPIES_MAX)
