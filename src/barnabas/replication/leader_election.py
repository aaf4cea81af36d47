"""Leader election rules.

Each broker decides by the same rules whether it may lead, and the metadata store accepts one broker.

The leader of a partition writes the partition state. If the leader is gone, each broker with a `Candidacy` tries to
write the state, and a compare-and-set on its version accepts the first. So a broker with an outdated metadata image
causes a delay, but no loss of records. Clean elections choose leaders from the ISR, whose members have all records that
were acknowledged with acks=all.

If all members of the ISR may lack records, the replica with the most records leads
(`barnabas.replication.unclean_recovery`).
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from barnabas.coordination.values import PartitionState, Remnant
from barnabas.replication.unclean_recovery import most_complete_replicas, remnant_of


class Candidacy(NamedTuple):
    """The right of a broker to become the leader of a partition.

    `rank` is the number of brokers that take precedence over this broker. A broker with rank 0 writes `state`
    immediately. A broker with a higher rank first waits for `rank` short pauses. If `is_unclean` is True, acknowledged
    records may be lost, and the broker must report this.
    """

    rank: int
    state: PartitionState
    is_unclean: bool


def candidacy(
    broker_id: int,
    replicas: tuple[int, ...],
    state: PartitionState,
    live: AbstractSet[int],
    *,
    is_new_incarnation: bool,
    is_unclean_allowed: bool,
    adding: Collection[int] = (),
) -> Candidacy | None:
    """Return the candidacy of a broker for the leadership of a partition, or None if the broker may not lead.

    1. Clean candidates are the live members of the ISR, in the order of the replicas.
    2. If the ISR is empty because all members may lack records, the candidates are the replicas with the most records.
      All former members must have reported their log ends.
    3. Otherwise, if the topic allows unclean elections, all live replicas are candidates. Former ISR members come
      first. Replicas that a reassignment has just added come last, because they may have almost no records.

    After an unclean election, the leader is the only ISR member, because the logs of other replicas may have diverged.

    :param live: the registered brokers.
    :param is_new_incarnation: True if the leader in the state has registered again after the state was written. It must
        claim leadership again, and has rank 0.
    :param is_unclean_allowed: the topic's `unclean.leader.election.enable`.
    :param adding: the replicas that a reassignment in progress adds.

    >>> state = PartitionState(leader=1, leader_epoch=4, isr=(1, 2, 3))
    >>> found = candidacy(3, (1, 2, 3), state, {2, 3}, is_new_incarnation=False, is_unclean_allowed=False)
    >>> found == Candidacy(rank=1, state=PartitionState(leader=3, leader_epoch=5, isr=(2, 3)), is_unclean=False)
    True
    """
    if state.leader in live & set(replicas) and not is_new_incarnation:
        return None
    in_line = sorted(live & set(replicas), key=lambda each: (each != state.leader, replicas.index(each)))
    # An only replica can always lead, even if another program has written a wrong ISR.
    in_sync = replicas if len(replicas) == 1 else state.isr
    members = [each for each in in_line if each in in_sync]
    candidates = members or [each for each in in_line if each in most_complete_replicas(state)]
    if not candidates and is_unclean_allowed:
        candidates = sorted(in_line, key=lambda each: (_distance(remnant_of(each, state)), each in adding))
    if broker_id not in candidates:
        return None
    isr = tuple(each for each in replicas if each in members) if members else (broker_id,)
    return Candidacy(candidates.index(broker_id), PartitionState(broker_id, state.leader_epoch + 1, isr), not members)


def _distance(remnant: Remnant | None) -> tuple[int, int, int]:
    """Return the sort key for an unclean election: former ISR members first, then the highest leader epoch and log end
    offset.
    """
    if remnant is None or remnant.is_gone:
        return (1, 0, 0)
    epoch, end_offset = remnant.extent
    return (0, -epoch, -end_offset)


def waited_for(state: PartitionState, live: AbstractSet[int]) -> tuple[int, ...]:
    """Return the brokers that must return or be repaired before a clean election.

    The result is empty if a live broker can lead.
    """
    if state.isr:
        return () if live & set(state.isr) else state.isr
    unreported = [each for each in state.lost_memory if not each.has_reported]
    if unreported:
        return tuple(each.broker_id for each in unreported if each.is_gone or each.broker_id not in live)
    most = most_complete_replicas(state)
    return () if live & set(most) else most


def why_offline(replicas: tuple[int, ...], state: PartitionState, live: AbstractSet[int]) -> str:
    """Return the reason why a partition has no leader, as text for the status and the log."""
    missing = [each for each in replicas if each in waited_for(state, live)]
    lost = [each.broker_id for each in state.lost_memory]
    line = f"no leader: one of the in-sync replicas {missing} must come back"
    if not state.isr and lost:
        line = f"no leader: {missing} must come back and report their log ends"
    if lost:
        line += f", since {lost} may have lost records in a power failure or with their disks"
    others = [each for each in replicas if each in live and each not in state.isr]
    if others:
        line += f"; {others} can lead if unclean.leader.election.enable=true, but records may be lost"
    return line


def transfer_leadership(
    state: PartitionState,
    replicas: tuple[int, ...],
    live: AbstractSet[int],
    leaving: AbstractSet[int] = frozenset(),
) -> PartitionState | None:
    """Return the partition state that transfers leadership, or None if no other replica should or can lead.

    The new leader is the first live in-sync replica, in the order of the replicas, that is not in `leaving`. In a
    controlled shutdown, `leaving` contains the leader itself. If `leaving` is empty, the preferred replica becomes
    leader if it can lead. Only the current leader may write this state. Records above the high watermark are lost if
    the new leader has not fetched them. So the caller should first wait until the new leader has caught up.

    :param leaving: the brokers that are shutting down or may lack records.
    """
    heirs = [each for each in replicas if each in state.isr and each in live and each not in leaving]
    if not heirs or heirs[0] == state.leader:
        return None
    isr = tuple(each for each in replicas if each in state.isr and each not in leaving)
    return PartitionState(heirs[0], state.leader_epoch + 1, isr)


def should_elect_preferred(state: PartitionState, replicas: tuple[int, ...], live: AbstractSet[int]) -> bool:
    """Return whether leadership should move to the preferred replica, because it is live and in sync, but is not the
    leader.

    :param live: the registered brokers, except those that may lack records.
    """
    preferred = next(iter(replicas), state.leader)
    return preferred != state.leader and preferred in state.isr and preferred in live
