"""What becomes of a partition whose replicas lose what their machines had in memory, one of them or all at once.

A broker that comes back without what its machine had in memory (another boot, and no clean-shutdown marker), or with
a log that is damaged or gone, is in the ISR by name only: it may lack acknowledged records. It withdraws before it does
anything else, and the state remembers that it was a member (`PartitionState.lost_memory`).

- While a member is left, that has all: it leads, and with its first word the others are forgotten.
- When the last one withdraws, as after a power failure of the whole room, each record that was acknowledged is on the
  disks of some, and nobody knows of which. So all that withdrew tell, in the state, of which epoch their last record is
  and where their log ends. Who has the most, by epoch first, has all that any of them has (`who_has_most`), and leads.
  Whoever is away is waited for, unless the topic allows an unclean election.
- A broker whose disk is an older copy of itself (`barnabas.storage.life_counter`) has lost memory as well, and more of
  it: where it is the last member, all replicas tell, since those that left the ISR later than that may have more.
- Where the tree has lost its memory, and not the replicas (it was brought back from a backup), nobody knows who was in
  sync last. A log with a later epoch than the tree's gives that away (`doubt`), and then all replicas have to tell. A
  log directory that has a higher life counter than the tree shows the same (`doubt_old_tree`). The state is doubted
  (`PartitionState.is_doubted`) until somebody leads: a leader that it deposes keeps its records.

What was told stays true until somebody leads: without a leader logs do not change. A broker that loses memory once
more withdraws once more, which takes back what it told. In the spirit of KIP-966's unclean recovery.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from barnabas.coordination.values import NO_LEADER, PartitionState, Remnant
from barnabas.model import NO_LEADER_EPOCH


def withdraw(
    broker_id: int,
    state: PartitionState,
    *,
    is_gone: bool = False,
    in_old_copy_of: tuple[int, ...] = (),
) -> PartitionState | None:
    """Return the state that a broker writes which may lack acknowledged records; None where it stays in sync.

    It stays as the only member, since nobody has more; but not with a log that is gone: all others have more than
    that. Where it is no member, the state is written as it is: a leader that is about to take it in, by what it had
    before, finds another version (KIP-903).

    The only member does not stay with an older copy of its disk either: replicas that left the ISR after that copy was
    made have more. Then all replicas tell, as after `doubt`.

    :param is_gone: its log of the partition is gone, and may be put back.
    :param in_old_copy_of: the partition's replicas, where the broker's log is in an older copy of its log directory.

    >>> withdraw(1, PartitionState(leader=1, leader_epoch=4, isr=(1, 2))) == PartitionState(-1, 5, (2,), (Remnant(1),))
    True
    """
    if state.isr == (broker_id,) and not state.lost_memory and not is_gone and not in_old_copy_of:
        return None
    isr, lost = tuple(each for each in state.isr if each != broker_id), state.lost_memory
    if broker_id in state.isr or remnant_of(broker_id, state) is not None:
        lost = _with(lost, Remnant.gone(broker_id) if is_gone else Remnant(broker_id))
        if not isr:
            known = {each.broker_id for each in lost}
            others = (Remnant(each) for each in in_old_copy_of if each not in known)
            lost = tuple(sorted((*lost, *others), key=lambda each: each.broker_id))
    if state.leader == broker_id:
        return PartitionState(NO_LEADER, state.leader_epoch + 1, isr, lost)
    return replace(state, isr=isr, lost_memory=lost)


def doubt(replicas: tuple[int, ...], state: PartitionState, known_epoch: int) -> PartitionState | None:
    """Return the state that a broker writes whose log knows a later epoch than the tree; None if it knows none.

    Each leader writes its epoch into the tree before any log has it. So the tree is older than the log, and the in-sync
    replicas that it names may lack what others acknowledged since. A sole replica is led, whatever the tree says.

    :param known_epoch: the latest that the broker's log knows.

    >>> doubt((2, 1), PartitionState(leader=1, leader_epoch=4, isr=(1,)), 6).lost_memory
    (Remnant(broker_id=1, epoch=-1, end_offset=-1), Remnant(broker_id=2, epoch=-1, end_offset=-1))
    """
    if known_epoch <= state.leader_epoch or len(replicas) == 1:
        return None
    return _doubted(replicas, known_epoch)


def doubt_old_tree(replicas: tuple[int, ...], state: PartitionState) -> PartitionState | None:
    """Return the state that a broker writes if its disk shows that the tree is older; None if the state has it already.

    The tree may name in-sync replicas that lack what the others acknowledged, in this leader epoch or in later ones.
    The caller does this only while the leader that the state names is not alive.

    >>> doubted = doubt_old_tree((2, 1), PartitionState(leader=2, leader_epoch=4, isr=(2,)))
    >>> doubted.leader_epoch, doubted.lost_memory
    (5, (Remnant(broker_id=1, epoch=-1, end_offset=-1), Remnant(broker_id=2, epoch=-1, end_offset=-1)))
    >>> doubt_old_tree((2, 1), doubted)
    """
    report = not state.isr and set(replicas) <= {each.broker_id for each in state.lost_memory}
    if len(replicas) == 1 or (report and state.is_doubted):
        return None
    return _doubted(replicas, max(state.leader_epoch, NO_LEADER_EPOCH) + 1)


def recover(replicas: tuple[int, ...], state: PartitionState) -> PartitionState | None:
    """Return the state that a broker writes where a stranger wrote one that names no replica, or others too; else None.

    Nobody knows which replicas were in sync, so all replicas report what they have. A sole replica leads, whatever the
    tree says.

    >>> recover((1, 2), PartitionState(leader=9, leader_epoch=4, isr=(9,))).lost_memory
    (Remnant(broker_id=1, epoch=-1, end_offset=-1), Remnant(broker_id=2, epoch=-1, end_offset=-1))
    """
    members = state.isr or tuple(each.broker_id for each in state.lost_memory)
    if len(replicas) == 1 or (members and set(members) <= set(replicas)):
        return None
    return _doubted(replicas, max(state.leader_epoch + 1, 0))


def tell(broker_id: int, state: PartitionState, epoch: int, end_offset: int) -> PartitionState | None:
    """Return the state in which a broker tells what it has left; None where nobody asks, or it has told that.

    It does not count that it has nothing left where its log was gone: not until that was put back.

    :param epoch: of its last record; -1 if there is none.
    :param end_offset: of its log, as far as that is sound.
    """
    known = remnant_of(broker_id, state)
    if known is None or state.isr or (known.is_gone and epoch == NO_LEADER_EPOCH):
        return None
    told = Remnant(broker_id, epoch, end_offset)
    return None if told == known else replace(state, lost_memory=_with(state.lost_memory, told))


def who_has_most(state: PartitionState) -> tuple[int, ...]:
    """Return those that have all that is left of a partition, once nobody is in sync and all that withdrew have told.

    More than one where they have the same: two logs that end alike are alike.
    """
    if state.isr or not all(each.is_told for each in state.lost_memory):
        return ()
    most = max((each.extent for each in state.lost_memory), default=None)
    return tuple(each.broker_id for each in state.lost_memory if each.extent == most)


def remnant_of(broker_id: int, state: PartitionState) -> Remnant | None:
    """Return what the state says of a broker that has withdrawn; None if it has not, or is forgotten."""
    return next((each for each in state.lost_memory if each.broker_id == broker_id), None)


def _doubted(replicas: tuple[int, ...], epoch: int) -> PartitionState:
    """Return the state in which all replicas report, since nobody knows which were in sync."""
    return PartitionState(NO_LEADER, epoch, (), tuple(Remnant(each) for each in sorted(replicas)), is_doubted=True)


def _with(lost: Iterable[Remnant], own: Remnant) -> tuple[Remnant, ...]:
    others = (each for each in lost if each.broker_id != own.broker_id)
    return tuple(sorted((*others, own), key=lambda each: each.broker_id))
