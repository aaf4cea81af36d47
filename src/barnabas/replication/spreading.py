"""Where replicas go when some of their brokers are to hold them no longer: as few of them move as can be.

What stays, stays in its place, so that leaders stay leaders where they can. A new replica goes to the broker that has
the fewest, one in a rack that has none of the partition's replicas yet before all others (KIP-36). Pure: what there is
comes in, what is to be comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from barnabas.errors import ApiError, ErrorCode

Partition = TypeVar("Partition")
"""What names a partition."""


def spread(
    placed: Mapping[Partition, Sequence[int]],
    brokers: Mapping[int, str | None],
    others: Iterable[Sequence[int]] = (),
    replication_factor: int | None = None,
) -> dict[Partition, tuple[int, ...]]:
    """Return where partitions are to be that may be on some brokers only; without those that stay as they are.

    :param placed: for each partition the brokers that hold it, the preferred leader first.
    :param brokers: those that may hold them, each with its rack.
    :param others: the replicas of each other partition, which do not move, and count.
    :param replication_factor: how many replicas each is to have; None: as many as it has.
    :raises ApiError: INVALID_REPLICATION_FACTOR: there are too few brokers.

    >>> spread({"a": (1, 2), "b": (2, 3), "c": (3, 1)}, {1: None, 2: None, 4: None})
    {'b': (2, 4), 'c': (4, 1)}
    """
    counts = Counter(each for replicas in (*placed.values(), *others) for each in replicas)
    leads = Counter(replicas[0] for replicas in (*placed.values(), *others) if replicas)
    changed = {}
    for partition, before in placed.items():
        count = len(before) if replication_factor is None else replication_factor
        if not 0 < count <= len(brokers):
            message = f"{count} replicas, and there are {len(brokers)} brokers that may hold them"
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        after = _placed(before, count, brokers, counts, leads)
        if after != tuple(before):
            changed[partition] = after
    return changed


def _placed(
    before: Sequence[int], count: int, brokers: Mapping[int, str | None], counts: Counter[int], leads: Counter[int]
) -> tuple[int, ...]:
    """Return the replicas of one partition, and count them."""
    places: list[int | None] = [each if each in brokers else None for each in before]
    while len(places) > count:
        # Those that go anyway first, then the last.
        places.pop(places.index(None) if None in places else -1)
    places += [None] * (count - len(places))
    for at, each in enumerate(places):
        if each is None:
            kept = {other for other in places if other is not None}
            racks = {brokers[other] for other in kept}
            chosen = min(
                brokers.keys() - kept,
                key=lambda other: (
                    brokers[other] is not None and brokers[other] in racks,
                    leads[other] if at == 0 else 0,
                    counts[other],
                    other,
                ),
            )
            places[at] = chosen
            counts[chosen] += 1
            leads[chosen] += at == 0
    after = tuple(each for each in places if each is not None)
    counts.subtract(each for each in before if each not in after)
    if before and before[0] != after[0]:
        leads[before[0]] -= 1
    return after
