"""Replaces the replicas on brokers that must no longer hold them, with as few moves as possible.

Remaining replicas keep their positions in the replica list, so leaders stay leaders where possible. A new replica goes
to the broker with the fewest replicas, preferably in a rack without a replica of the partition (KIP-36), and never on a
machine with another replica. The module does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.machines import NO_LABELS, Machines, machine_count, machine_of

Partition = TypeVar("Partition")
"""The type of the keys that identify partitions."""


def spread(
    placed: Mapping[Partition, Sequence[int]],
    brokers: Mapping[int, str | None],
    others: Iterable[Sequence[int]] = (),
    replication_factor: int | None = None,
    machines: Machines = NO_LABELS,
) -> dict[Partition, tuple[int, ...]]:
    """Return the new replicas of each partition that must change, so that only `brokers` hold partitions.

    :param placed: the brokers that hold each partition, with the preferred leader first.
    :param brokers: the brokers that may hold the partitions, each with its rack.
    :param others: the replicas of all other partitions. They are not moved, but are part of the load of their brokers.
    :param replication_factor: the target number of replicas, or None to keep each partition's number of replicas.
    :param machines: the labels of the brokers' machines.
    :raises ApiError: INVALID_REPLICATION_FACTOR if there are too few brokers, or too few machines.

    >>> spread({"a": (1, 2), "b": (2, 3), "c": (3, 1)}, {1: None, 2: None, 4: None})
    {'b': (2, 4), 'c': (4, 1)}
    """
    counts = Counter(each for replicas in (*placed.values(), *others) for each in replicas)
    leads = Counter(replicas[0] for replicas in (*placed.values(), *others) if replicas)
    changed = {}
    for partition, before in placed.items():
        count = len(before) if replication_factor is None else replication_factor
        if not 0 < count <= len(brokers):
            message = f"replication factor {count} is not between 1 and the number of allowed brokers, {len(brokers)}"
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        after = _placed(before, count, brokers, machines, counts, leads)
        if after != tuple(before):
            changed[partition] = after
    return changed


def _placed(
    before: Sequence[int],
    count: int,
    brokers: Mapping[int, str | None],
    machines: Machines,
    counts: Counter[int],
    leads: Counter[int],
) -> tuple[int, ...]:
    """Return the new replicas of one partition, and update the numbers of replicas and leaders per broker.

    :raises ApiError: INVALID_REPLICATION_FACTOR if all machines have a replica.
    """
    places: list[int | None] = [each if each in brokers else None for each in before]
    while len(places) > count:
        # Remove replicas on disallowed brokers first, then the last replica.
        places.pop(places.index(None) if None in places else -1)
    places += [None] * (count - len(places))
    for at, each in enumerate(places):
        if each is None:
            kept = {other for other in places if other is not None}
            racks = {brokers[other] for other in kept}
            used = {machine_of(other, machines) for other in kept}
            free = [other for other in brokers if machine_of(other, machines) not in used]
            if not free:
                message = (
                    f"replication factor {count} is larger than the number of allowed machines,"
                    f" {machine_count(brokers, machines)}; two replicas must not share a machine"
                )
                raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
            chosen = min(
                free,
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
