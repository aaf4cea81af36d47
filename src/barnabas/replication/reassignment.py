"""How a partition moves to other brokers (KIP-455): what its replicas are meanwhile, and when the move is over.

While it moves, the replicas are those that are wanted, in their order, and behind them those that are to go. New ones
become in sync as every follower does. When all that are wanted are in sync, the leader takes the others away; where it
is to go itself, it hands leadership on first, and the next leader ends the move.

Who asks for another move before that, or takes it back, adds replicas and takes none away: one that is new and not
wanted any more stays until the end, as all that are to go.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from barnabas.coordination.values import PartitionState, ReplicaSet
from barnabas.errors import ApiError, ErrorCode


def reassigned(before: ReplicaSet, target: Sequence[int]) -> ReplicaSet:
    """Return the replicas of a partition that is to move.

    :param target: who is to hold it in the end, the preferred leader first.

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
    """Return the replicas of a partition that is to stay where it was.

    :raises ApiError: NO_REASSIGNMENT_IN_PROGRESS.

    >>> cancelled(ReplicaSet((3, 4, 1, 2), adding=(4,), removing=(1, 2)))
    ReplicaSet(replicas=(3, 1, 2, 4), adding=(4,), removing=(4,))
    """
    if not before.is_moving:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not on its way to other brokers")
    return reassigned(before, before.origin)


def check_target(
    before: ReplicaSet, target: Sequence[int], live: AbstractSet[int], *, may_change_factor: bool = True
) -> None:
    """Check where a partition is to move.

    :param live: the brokers that are there; one that holds a replica already need not be.
    :param may_change_factor: whether it may have more or fewer replicas than before (KIP-860).
    :raises ApiError: INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    if not target:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "it must have one replica at least")
    if len(set(target)) != len(target):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{list(target)} names a broker twice")
    unknown = sorted(set(target) - live - set(before.replicas))
    if unknown:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"brokers {unknown} are not there")
    if not may_change_factor and len(target) != len(before.target):
        message = f"it has {len(before.target)} replicas, and was to have {len(target)}"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def is_complete(replicas: ReplicaSet, isr: Sequence[int], min_insync_replicas: int) -> bool:
    """Tell whether nothing is waited for but to take replicas away.

    That is when all that are wanted are in sync. Where none of them is new, one that is dead is not waited for, as
    long as those in sync suffice for acks=all.

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
    """Return the state by which a leader that is to go hands leadership on; None where nobody can take it.

    :param able: those that live, and are not leaving.
    """
    leader = next((each for each in replicas.target if each in state.isr and each in able), None)
    return None if leader is None else PartitionState(leader, state.leader_epoch + 1, state.isr)


def end_state(replicas: ReplicaSet, state: PartitionState) -> PartitionState:
    """Return the state of a partition with which its move ends, written by a leader that stays.

    Where replicas go it begins another epoch: one of them may hold the partition again before long, with nothing, and
    what it had asked for with the records of before may come only then. A sole replica keeps no account of followers.
    """
    isr = tuple(each for each in replicas.target if each in state.isr)
    epoch = state.leader_epoch + bool(replicas.removing)
    return PartitionState(state.leader, epoch, isr)
