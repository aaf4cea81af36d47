"""Leader election: every broker decides from the same facts whether it may lead, and the metadata tree accepts one.

The leader of a partition writes the partition's state. If the leader is gone, the brokers with a `Candidacy` write the
state. A compare-and-set on the version of the state decides which broker is first. So brokers with an old image of the
cluster cost time, and no records. Clean elections take leaders from the ISR, which has all records that were
acknowledged at acks=all.

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
    """That a broker may take a partition over.

    `rank` counts the brokers that may do so before it: rank 0 writes `state` at once, each other one waits rank times a
    short pause first. Where `is_unclean`, acknowledged records may be lost, which has to be reported.
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
    """Return the state that a broker may write to lead a partition, or None if it may not.

    Clean candidates are the live members of the ISR, in the order of the replicas. If the ISR is empty because all
    members lost memory, those may lead that have the most, once all have told. Failing that, and only where the topic
    allows it, any replica, those first that were in sync before they lost memory, and those last that a
    move has only just brought in: they may have next to nothing yet.

    The leader of an unclean claim is alone in the new ISR: what the others have may differ.

    :param live: the brokers that are registered.
    :param is_new_incarnation: the leader that the state names has registered again since the state was written. It
        does not lead until it claims, for which it is the first in line.
    :param is_unclean_allowed: `unclean.leader.election.enable` of the topic.
    :param adding: the replicas that are new in a move that is under way.

    >>> state = PartitionState(leader=1, leader_epoch=4, isr=(1, 2, 3))
    >>> found = candidacy(3, (1, 2, 3), state, {2, 3}, is_new_incarnation=False, is_unclean_allowed=False)
    >>> found == Candidacy(rank=1, state=PartitionState(leader=3, leader_epoch=5, isr=(2, 3)), is_unclean=False)
    True
    """
    if state.leader in live & set(replicas) and not is_new_incarnation:
        return None
    in_line = sorted(live & set(replicas), key=lambda each: (each != state.leader, replicas.index(each)))
    in_sync = replicas if len(replicas) == 1 else state.isr  # a sole replica is led, whatever a stranger wrote
    members = [each for each in in_line if each in in_sync]
    candidates = members or [each for each in in_line if each in most_complete_replicas(state)]
    if not candidates and is_unclean_allowed:
        candidates = sorted(in_line, key=lambda each: (_distance(remnant_of(each, state)), each in adding))
    if broker_id not in candidates:
        return None
    isr = tuple(each for each in replicas if each in members) if members else (broker_id,)
    return Candidacy(candidates.index(broker_id), PartitionState(broker_id, state.leader_epoch + 1, isr), not members)


def _distance(remnant: Remnant | None) -> tuple[int, int, int]:
    """By which the replicas of an unclean claim are ordered: members of old first, the one that told most before."""
    if remnant is None or remnant.is_gone:
        return (1, 0, 0)
    epoch, end_offset = remnant.extent
    return (0, -epoch, -end_offset)


def waited_for(state: PartitionState, live: AbstractSet[int]) -> tuple[int, ...]:
    """Return the brokers of which one has to come back, or to be mended, before a partition can be led cleanly; nobody
    where one of those that live will lead soon."""
    if state.isr:
        return () if live & set(state.isr) else state.isr
    untold = [each for each in state.lost_memory if not each.is_told]
    if untold:
        return tuple(each.broker_id for each in untold if each.is_gone or each.broker_id not in live)
    most = most_complete_replicas(state)
    return () if live & set(most) else most


def why_offline(replicas: tuple[int, ...], state: PartitionState, live: AbstractSet[int]) -> str:
    """Return one line on why nobody may claim a partition that has no leader, for status and log."""
    missing = [each for each in replicas if each in waited_for(state, live)]
    lost = [each.broker_id for each in state.lost_memory]
    line = f"no leader: one of its in-sync replicas {missing} must come back"
    if not state.isr and lost:
        line = f"no leader: {missing} must come back with what they have on their disks"
    if lost:
        line += f", since {lost} may have lost records with the memory of their machines, or with their disks"
    others = [each for each in replicas if each in live and each not in state.isr]
    if others:
        line += f"; {others} may lead with unclean.leader.election.enable=true, and records may be lost"
    return line


def transfer_leadership(
    state: PartitionState,
    replicas: tuple[int, ...],
    live: AbstractSet[int],
    leaving: AbstractSet[int] = frozenset(),
) -> PartitionState | None:
    """Return the state by which the leader passes leadership on, or None if nobody could take it, or has it already.

    To the first live in-sync replica in the order of the replicas that is not leaving: at a controlled shutdown the
    leader itself is; with nobody leaving this is the preferred replica where it can lead.

    Only the present leader may write this. What it has above the high watermark may be lost to a follower that has
    not fetched it: for a replica that is not in a hurry it is better to wait until that has caught up.

    :param leaving: and those that have lost memory.
    """
    heirs = [each for each in replicas if each in state.isr and each in live and each not in leaving]
    if not heirs or heirs[0] == state.leader:
        return None
    isr = tuple(each for each in replicas if each in state.isr and each not in leaving)
    return PartitionState(heirs[0], state.leader_epoch + 1, isr)


def should_elect_preferred(state: PartitionState, replicas: tuple[int, ...], live: AbstractSet[int]) -> bool:
    """Tell whether leadership should go to the preferred replica, the first one: it is in sync, live, and not leader.

    :param live: registered, and not among those that lost memory.
    """
    preferred = next(iter(replicas), state.leader)
    return preferred != state.leader and preferred in state.isr and preferred in live
