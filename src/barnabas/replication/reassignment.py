"""The rules for the reassignment of a partition to other brokers (KIP-455): its replicas during the reassignment, and
its completion.

During a reassignment, the replicas are the target replicas in their order, followed by the replicas to remove. Added
replicas join the ISR like any follower. When all target replicas are in sync, the leader removes all other replicas. If
the leader's own replica must be removed, it first transfers leadership, and the next leader completes the reassignment.

If a reassignment is replaced or cancelled before its completion, no replica is removed immediately. An added replica
that is no longer wanted stays until completion, like all replicas to remove.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from barnabas.coordination.values import PartitionState, ReplicaSet
from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.machines import NO_LABELS, Machines, check_separate


def reassigned(before: ReplicaSet, target: Sequence[int]) -> ReplicaSet:
    """Return the replicas of a partition at the start of a reassignment.

    :param target: the brokers that hold the partition after completion, with the preferred leader first.

    >>> reassigned(ReplicaSet((1, 2, 3)), [3, 4])
    ReplicaSet(replicas=(3, 4, 1, 2), adding=(4,), removing=(1, 2))
    """
    origin = before.origin
    replicas = tuple(dict.fromkeys((*target, *origin, *before.replicas)))
    return ReplicaSet(
        replicas,
        tuple(each for each in replicas if each not in origin),
        tuple(each for each in replicas if each not in target),
    )


def cancelled(before: ReplicaSet) -> ReplicaSet:
    """Return the replicas of a partition after its reassignment is cancelled.

    :raises ApiError: NO_REASSIGNMENT_IN_PROGRESS if the partition is not being reassigned.

    >>> cancelled(ReplicaSet((3, 4, 1, 2), adding=(4,), removing=(1, 2)))
    ReplicaSet(replicas=(3, 1, 2, 4), adding=(4,), removing=(4,))
    """
    if not before.is_moving:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned")
    return reassigned(before, before.origin)


def check_target(
    before: ReplicaSet,
    target: Sequence[int],
    live: AbstractSet[int],
    *,
    may_change_factor: bool = True,
    machines: Machines = NO_LABELS,
) -> None:
    """Check the target replicas of a reassignment.

    :param live: the live brokers. A current replica need not be live.
    :param may_change_factor: True if the target may have another replication factor (KIP-860).
    :param machines: the labels of the brokers' machines.
    :raises ApiError: INVALID_REPLICA_ASSIGNMENT (no replica, a repeated or unknown broker, or two brokers of one
        machine), INVALID_REPLICATION_FACTOR (a different number of replicas).
    """
    if not target:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition must have at least one replica")
    if len(set(target)) != len(target):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{list(target)} names a broker twice")
    unknown = sorted(set(target) - live - set(before.replicas))
    if unknown:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"unknown brokers: {unknown}")
    if not may_change_factor and len(target) != len(before.target):
        message = (
            f"the partition has {len(before.target)} replicas; the replication factor must not change to {len(target)}"
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if set(target) - set(before.replicas):
        check_separate(target, machines)


def is_complete(replicas: ReplicaSet, isr: Sequence[int], min_insync_replicas: int) -> bool:
    """Return whether a reassignment can be completed by removing the old replicas.

    All target replicas must be in sync. If no target replica is new, out-of-sync replicas are permitted if enough
    replicas are in sync for acks=all.

    >>> is_complete(ReplicaSet((3, 4, 1, 2), adding=(4,), removing=(1, 2)), (1, 2, 3), 1)
    False
    >>> is_complete(ReplicaSet((3, 4, 1, 2), adding=(4,), removing=(1, 2)), (1, 2, 3, 4), 1)
    True
    """
    target = replicas.target
    in_sync_count = sum(each in isr for each in target)
    has_new = any(each in replicas.adding for each in target)
    wanted_count = len(target) if has_new else max(1, min(min_insync_replicas, len(target)))
    return replicas.is_moving and in_sync_count >= wanted_count


def heir(replicas: ReplicaSet, state: PartitionState, able: AbstractSet[int]) -> PartitionState | None:
    """Return the state with which a leader that will be removed transfers its leadership, or None if no other replica
    can lead.

    :param able: the live brokers that are not shutting down.
    """
    leader = next((each for each in replicas.target if each in state.isr and each in able), None)
    return None if leader is None else PartitionState(leader, state.leader_epoch + 1, state.isr)


def end_state(replicas: ReplicaSet, state: PartitionState) -> PartitionState:
    """Return the state with which a leader that remains a replica completes the reassignment.

    If replicas are removed, the state has a new leader epoch. A removed replica may be added again with an empty log,
    and delayed fetches for its earlier log must then be rejected.
    """
    isr = tuple(each for each in replicas.target if each in state.isr)
    epoch = state.leader_epoch + bool(replicas.removing)
    return PartitionState(state.leader, epoch, isr)
