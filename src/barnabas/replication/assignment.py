"""The assignment of replicas to brokers: an even spread over brokers and racks (KIP-36), as in Kafka's `AdminUtils`.

The preferred leaders are assigned round robin. The distance between leader and followers grows with each round, so the
followers of one broker's partitions are spread over all other brokers. The brokers are ordered so that racks alternate.
A rack gets a second replica of a partition only if each rack already has a replica. If any broker has no rack, each
machine is treated as a separate rack. A machine never gets a second replica of a partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, zip_longest

from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.machines import (
    NO_LABELS,
    Machines,
    alternating,
    check_separate,
    machine_count,
    machine_of,
)


def assign_replicas(
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_partition: int = 0,
    machines: Machines = NO_LABELS,
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, with the preferred leader first.

    :param brokers: the live brokers, each with its rack. If one broker has no rack, all racks are ignored.
    :param start: the index of the preferred leader of partition 0 in the list of brokers. It is random for a new topic.
    :param shift: the distance from the leader of partition 0 to its followers. It is random for a new topic.
    :param first_partition: the number of the first partition to assign. Several calls with consecutive ranges return
        the same replicas as a single call.
    :param machines: the labels of the brokers' machines.
    :raises ApiError: INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR if a count is not positive or larger than the
        number of brokers or of machines.

    >>> assign_replicas({1: None, 2: None, 3: None}, 4, 2, start=0, shift=0)
    [(1, 2), (2, 3), (3, 1), (1, 3)]
    """
    _check_counts(partition_count, replication_factor, len(brokers), machine_count(brokers, machines))
    racks = _racks(brokers, machines)
    order = _alternating(racks, machines)
    return [
        _replicas(order, racks, machines, replication_factor, number + start, shift + number // len(order))
        for number in range(first_partition, first_partition + partition_count)
    ]


def assign_added(
    brokers: Mapping[int, str | None],
    existing: Sequence[tuple[int, ...]],
    partition_count: int,
    machines: Machines = NO_LABELS,
) -> list[tuple[int, ...]]:
    """Return the replicas of partitions that are added to a topic, each with the replication factor of partition 0.

    The round robin starts at the preferred leader of partition 0, as for a new topic.

    :param existing: the replicas of each existing partition. There must be at least one partition.
    :raises ApiError: see `assign_replicas`.
    """
    order = _alternating(_racks(brokers, machines), machines)
    preferred, replication_factor = existing[0][0], len(existing[0])
    start = order.index(preferred) if preferred in order else 0
    return assign_replicas(brokers, partition_count, replication_factor, start, start, len(existing), machines)


def check_assignment(
    assignment: Mapping[int, Sequence[int]],
    brokers: Collection[int],
    first_partition: int = 0,
    replication_factor: int | None = None,
    machines: Machines = NO_LABELS,
) -> None:
    """Check an assignment in an administrator's request.

    It maps partition numbers to brokers, with the preferred leader first.

    :param first_partition: the lowest partition number that the assignment must contain.
    :param replication_factor: the number of replicas that each partition must have. None means the number of the first
        partition.
    :raises ApiError: INVALID_REPLICA_ASSIGNMENT if the assignment has a gap, an unknown or repeated broker, two brokers
        of one machine, or partitions with different numbers of replicas.
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
            raise _refused(f"partition {number} names unknown brokers: {sorted(unknown)}")
        if len(replicas) != (replication_factor := replication_factor or len(replicas)):
            raise _refused(f"partition {number} has {len(replicas)} replicas, but must have {replication_factor}")
        check_separate(replicas, machines)


def _check_counts(partition_count: int, replication_factor: int, broker_count: int, machine_count: int) -> None:
    if partition_count <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > broker_count:
        message = f"Replication factor: {replication_factor} larger than available brokers: {broker_count}."
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if replication_factor > machine_count:
        message = (
            f"Replication factor: {replication_factor} larger than available machines: {machine_count};"
            " two replicas must not share a machine."
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _racks(brokers: Mapping[int, str | None], machines: Machines) -> dict[int, str]:
    known = {broker_id: rack for broker_id, rack in sorted(brokers.items()) if rack is not None}
    return known if len(known) == len(brokers) else {each: machine_of(each, machines) for each in sorted(brokers)}


def _alternating(racks: Mapping[int, str], machines: Machines) -> list[int]:
    """Return all brokers in an order that alternates racks, and the machines of a rack.

    Racks are sorted by name, and the brokers of a machine by id.
    """
    members: dict[str, list[int]] = {}
    for broker_id, rack in racks.items():
        members.setdefault(rack, []).append(broker_id)
    rounds = zip_longest(*(alternating(members[rack], machines) for rack in sorted(members)))
    return [each for each in chain.from_iterable(rounds) if each is not None]


def _replicas(
    order: Sequence[int], racks: Mapping[int, str], machines: Machines, replication_factor: int, first: int, shift: int
) -> tuple[int, ...]:
    """Return the replicas of one partition.

    Any `len(order) - 1` consecutive steps visit each other broker once, so the loop finds each replica within one round
    over the brokers. The exception is a machine whose brokers are in several racks: a second round ignores the racks.
    """
    replicas = [order[first % len(order)]]
    rack_count = len(set(racks.values()))
    used_racks, used_machines = {racks[replicas[0]]}, {machine_of(replicas[0], machines)}
    step = shift * rack_count
    steps_without_find = 0
    while len(replicas) < replication_factor:
        broker_id = order[(first + 1 + step % (len(order) - 1)) % len(order)]
        is_in_new_rack = racks[broker_id] not in used_racks or len(used_racks) == rack_count
        machine = machine_of(broker_id, machines)
        if machine not in used_machines and (is_in_new_rack or steps_without_find >= len(order) - 1):
            replicas.append(broker_id)
            used_racks.add(racks[broker_id])
            used_machines.add(machine)
            steps_without_find = 0
        else:
            steps_without_find += 1
        step += 1
    return tuple(replicas)


def _refused(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
