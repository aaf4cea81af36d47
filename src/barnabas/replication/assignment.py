"""Which brokers hold which partitions of a topic: spread evenly, and over racks (KIP-36), as Kafka's `AdminUtils` does.

The first replicas, which lead as a rule, go round robin; the others follow at a distance that grows with each round, so
that the partitions which one broker leads are followed by all others and not by one neighbour. Brokers are taken
in an order that alternates racks, and a rack that has a replica of the partition already is passed over while there is
one that has none. Where racks are not told, each broker counts as a rack of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, zip_longest

from barnabas.errors import ApiError, ErrorCode


def assign_replicas(
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Return for each partition the brokers that hold it, the preferred leader first.

    :param brokers: those that live, each with its rack. If one has none, all racks are passed over.
    :param start: which broker, counted in the order in which they are taken, leads partition 0: random for a new topic.
    :param shift: at which distance the followers of partition 0 begin: random for a new topic.
    :param first_partition: the number of the first one. Partitions get the same in one call and in several.
    :raises ApiError: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.

    >>> assign_replicas({1: None, 2: None, 3: None}, 4, 2, start=0, shift=0)
    [(1, 2), (2, 3), (3, 1), (1, 3)]
    """
    _check_counts(partition_count, replication_factor, len(brokers))
    racks = _racks(brokers)
    order = _alternating(racks)
    rack_count = len(set(racks.values()))
    return [
        _replicas(order, racks, rack_count, replication_factor, number + start, shift + number // len(order))
        for number in range(first_partition, first_partition + partition_count)
    ]


def assign_added(
    brokers: Mapping[int, str | None], existing: Sequence[tuple[int, ...]], partition_count: int
) -> list[tuple[int, ...]]:
    """Return the replicas of partitions that a topic gets in addition: as many for each as partition 0 has.

    The round goes on where it began, at the leader of partition 0.

    :param existing: of the partitions that the topic has, at least one.
    :raises ApiError: as `assign_replicas`.
    """
    order = _alternating(_racks(brokers))
    preferred, replication_factor = existing[0][0], len(existing[0])
    start = order.index(preferred) if preferred in order else 0
    return assign_replicas(brokers, partition_count, replication_factor, start, start, len(existing))


def check_assignment(
    assignment: Mapping[int, Sequence[int]],
    brokers: Collection[int],
    first_partition: int = 0,
    replication_factor: int | None = None,
) -> None:
    """Check what an administrator wants instead: partition number to brokers, the preferred leader first.

    :param first_partition: the number that the first of them has to have.
    :param replication_factor: that of partitions which there are already.
    :raises ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    for expected, number in enumerate(sorted(assignment), first_partition):
        replicas = assignment[number]
        if number != expected:
            raise _refused(f"partitions must be numbered {first_partition}, {first_partition + 1} ... without a gap")
        if not replicas:
            raise _refused(f"partition {number} has no replicas")
        if len(set(replicas)) != len(replicas):
            raise _refused(f"partition {number} names a broker twice: {list(replicas)}")
        if unknown := set(replicas).difference(brokers):
            raise _refused(f"partition {number} names brokers that are not there: {sorted(unknown)}")
        if len(replicas) != (replication_factor := replication_factor or len(replicas)):
            raise _refused(f"partition {number} has {len(replicas)} replicas, and others have {replication_factor}")


def _check_counts(partition_count: int, replication_factor: int, broker_count: int) -> None:
    if partition_count <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > broker_count:
        message = f"Replication factor: {replication_factor} larger than available brokers: {broker_count}."
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _racks(brokers: Mapping[int, str | None]) -> dict[int, str]:
    known = {broker_id: rack for broker_id, rack in sorted(brokers.items()) if rack is not None}
    return known if len(known) == len(brokers) else {broker_id: f"{broker_id:020d}" for broker_id in sorted(brokers)}


def _alternating(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers, one of each rack in turn; racks by name, and brokers by id within them."""
    members: dict[str, list[int]] = {}
    for broker_id, rack in racks.items():
        members.setdefault(rack, []).append(broker_id)
    rounds = zip_longest(*(members[rack] for rack in sorted(members)))
    return [each for each in chain.from_iterable(rounds) if each is not None]


def _replicas(
    order: Sequence[int], racks: Mapping[int, str], rack_count: int, replication_factor: int, first: int, shift: int
) -> tuple[int, ...]:
    """Return the replicas of one partition.

    Any `len(order) - 1` steps in a row come by all other brokers, so each replica is found within as many.
    """
    replicas = [order[first % len(order)]]
    used = {racks[replicas[0]]}
    step = shift * rack_count
    while len(replicas) < replication_factor:
        broker_id = order[(first + 1 + step % (len(order) - 1)) % len(order)]
        if broker_id not in replicas and (racks[broker_id] not in used or len(used) == rack_count):
            replicas.append(broker_id)
            used.add(racks[broker_id])
        step += 1
    return tuple(replicas)


def _refused(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
