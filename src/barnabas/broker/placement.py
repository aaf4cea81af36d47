"""Which brokers hold the replicas of new partitions: those that an administrator names, or all, spread over racks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from barnabas.broker.metadata_image import MetadataImage
from barnabas.coordination.values import ReplicaSet, TopicAssignment
from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.assignment import assign_added, assign_replicas, check_assignment
from barnabas.replication.reassignment import cancelled, check_target, reassigned

PARTITIONS_MAX = 10_000
"""The most partitions of a topic. Kafka's controllers allow as many in one request; each costs folders and files."""

Assignment = Sequence[Sequence[int]] | None
"""For each new partition its brokers, the one first that is meant to lead; None: they are to be chosen."""


def check_partition_count(count: int) -> None:
    """Check that a topic can have so many partitions.

    :raises ApiError: POLICY_VIOLATION.
    """
    if count > PARTITIONS_MAX:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"{count} partitions; a topic can have {PARTITIONS_MAX}")


def new_replicas(
    image: MetadataImage,
    partition_count: int,
    replication_factor: int,
    assignment: Assignment,
    random_below: Callable[[int], int],
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition of a new topic.

    :param random_below: returns a random number from 0 to its argument, exclusive.
    :raises ApiError: INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    if assignment is not None:
        check_assignment(dict(enumerate(assignment)), image.brokers)
        return [tuple(each) for each in assignment]
    count = max(1, len(image.brokers))
    start, shift = random_below(count), random_below(count)
    return assign_replicas(_racks(image), partition_count, replication_factor, start, shift)


def added_replicas(
    image: MetadataImage, existing: Sequence[tuple[int, ...]], added_count: int, assignment: Assignment
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition that a topic gets in addition.

    :param existing: those of the partitions that it has.
    :raises ApiError: INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    if assignment is not None:
        wanted = dict(enumerate(assignment, start=len(existing)))
        check_assignment(wanted, image.brokers, len(existing), len(existing[0]))
        return [tuple(each) for each in assignment]
    return assign_added(_racks(image), existing, added_count)


def reassigned_partitions(
    name: str,
    found: TopicAssignment,
    wanted: Mapping[int, Sequence[int] | None],
    live: AbstractSet[int],
    may_change_factor: bool,
) -> tuple[dict[int, ReplicaSet], dict[int, ApiError]]:
    """Return the replicas of the partitions of a topic that can move as it is wanted, and of the others why not.

    :param found: the topic as it is.
    :param wanted: by partition, the brokers that are to hold it; None: it stays where it was.
    """
    changed: dict[int, ReplicaSet] = {}
    refused: dict[int, ApiError] = {}
    for number, target in wanted.items():
        if not 0 <= number < len(found.replicas):
            refused[number] = unknown_partition(name, number)
            continue
        before = found.replica_set(number)
        try:
            if target is None:
                after = cancelled(before)
            else:
                check_target(before, target, live, may_change_factor=may_change_factor)
                after = reassigned(before, target)
        except ApiError as error:
            refused[number] = ApiError(error.code, error.reason, f"{name}-{number}")
            continue
        if after != before:
            changed[number] = after
    return changed, refused


def unknown_partition(name: str, number: int) -> ApiError:
    """Return the error that there is no such partition."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{number}")


def _racks(image: MetadataImage) -> dict[int, str | None]:
    """The brokers that live, and where they stand."""
    return {each: broker.registration.rack or None for each, broker in image.brokers.items()}
