"""A short JSON format for numbers by partition: a list if most partitions have a number, else an object. Pure.

    {"0": 250, "1": 99, "2": 17}   the format of older releases
    [250,99,17]                    the same numbers, packed

The format is short because each snapshot of a table has such numbers, and each commit rewrites the properties of all
snapshots.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

Packed = list[int | None] | dict[str, int]


def pack(numbers: Mapping[int, int]) -> Packed:
    """Return the numbers in the packed JSON format.

    >>> pack({0: 7, 2: 9}), pack({40: 7})
    ([7, None, 9], {'40': 7})
    """
    width = max(numbers, default=-1) + 1
    if width <= 2 * len(numbers):
        return [numbers.get(partition) for partition in range(width)]
    return {str(partition): numbers[partition] for partition in sorted(numbers)}


def unpack(packed: Packed) -> dict[int, int]:
    """Return the numbers that `pack` has packed.

    >>> unpack([7, None, 9]), unpack({"40": 7})
    ({0: 7, 2: 9}, {40: 7})
    """
    if isinstance(packed, dict):
        return {int(partition): number for partition, number in packed.items()}
    return {partition: number for partition, number in enumerate(packed) if number is not None}


def dump_compact(value: object) -> str:
    """Return JSON without whitespace."""
    return json.dumps(value, separators=(",", ":"))
