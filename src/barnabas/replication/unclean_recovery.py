"""Unclean recovery: the states of partitions whose replicas may lack acknowledged records (in the spirit of KIP-966).

A replica may lack acknowledged records if its machine rebooted without a clean shutdown. The same applies if its log
is damaged or gone, or if its log directory is an older copy. Such a replica leaves the ISR before it does anything
else, and the state keeps it as a former member (`PartitionState.lost_memory`).

- If a member of the ISR is left, it leads. Its next state forgets the former members.
- If the last member leaves the ISR (for example after a power failure of all machines), no single disk is known to be
  complete. All former members report the leader epoch of their last record and their log end offset in the state. The
  replica with the highest epoch and then the highest offset has all records that any of them has
  (`most_complete_replicas`), and leads. The election waits for missing reports, unless the topic allows unclean
  elections.
- If the last member is in an older copy of its log directory (`barnabas.storage.life_counter`), all replicas report:
  replicas that left the ISR after that copy was made may have more records.
- If the metadata store is older than the replicas (restored from a backup), its ISR is obsolete. A log with a later
  leader epoch than the store shows this (`doubt`), and so does a log directory with a higher life counter
  (`doubt_old_tree`). All replicas report then. The state is doubted (`PartitionState.is_doubted`) until a leader is
  elected: a leader that it deposes keeps its records.

A report stays valid until a leader is elected, since logs do not change without a leader. A broker that loses records
again leaves again, which removes its report.
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
    """Return the state that a broker writes whose replica may lack acknowledged records; None if it stays in the ISR.

    The only member of the ISR stays, because no other replica has more records, unless:

    - its log is gone, since then all others have more records;
    - its log is in an older copy of its disk, since replicas that left the ISR after that copy was made have more
      records. All replicas then report their log ends, as after `doubt`.

    If the broker is not in the ISR, the returned state is unchanged, and the broker writes it nevertheless. The new
    version makes the compare-and-set of a leader fail that is about to add the broker by its earlier fetches (KIP-903).

    :param is_gone: True if the broker's log of the partition is gone; an operator may restore it.
    :param in_old_copy_of: the partition's replicas if the broker's log is in an older copy of its log directory.

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
    """Return the state that a broker writes whose log has a later epoch than the metadata store; else None.

    A leader writes its epoch to the metadata store before any log has it. A later epoch in a log proves that the store
    is older than the log. The in-sync replicas in the store may then lack records that others have acknowledged. A sole
    replica leads in any case.

    :param known_epoch: the latest epoch in the broker's log.

    >>> doubt((2, 1), PartitionState(leader=1, leader_epoch=4, isr=(1,)), 6).lost_memory
    (Remnant(broker_id=1, epoch=-1, end_offset=-1), Remnant(broker_id=2, epoch=-1, end_offset=-1))
    """
    if known_epoch <= state.leader_epoch or len(replicas) == 1:
        return None
    return _doubted(replicas, known_epoch)


def doubt_old_tree(replicas: tuple[int, ...], state: PartitionState) -> PartitionState | None:
    """Return the state that a broker writes if its disk is newer than the metadata store, or None if it is written.

    The in-sync replicas in the store may lack records that others acknowledged in this leader epoch or later ones. The
    caller uses this function only while the leader in the state is not alive.

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
    """Return the state that replaces an invalid one, which another program has written; None if the state is valid.

    A state is invalid if it names no broker as in sync, or a broker that is not a replica. The in-sync replicas are
    unknown then, so all replicas report their log ends. A sole replica leads in any case.

    >>> recover((1, 2), PartitionState(leader=9, leader_epoch=4, isr=(9,))).lost_memory
    (Remnant(broker_id=1, epoch=-1, end_offset=-1), Remnant(broker_id=2, epoch=-1, end_offset=-1))
    """
    members = state.isr or tuple(each.broker_id for each in state.lost_memory)
    if len(replicas) == 1 or (members and set(members) <= set(replicas)):
        return None
    return _doubted(replicas, max(state.leader_epoch + 1, 0))


def report_log_end(broker_id: int, state: PartitionState, epoch: int, end_offset: int) -> PartitionState | None:
    """Return the state with a broker's report of its log end; None if the state needs no report or has this one.

    An empty log does not count as a report if the log was gone, until an operator has restored it.

    :param epoch: the leader epoch of the last record; -1 if the log is empty.
    :param end_offset: the log end offset of the intact part of the log.
    """
    known = remnant_of(broker_id, state)
    if known is None or state.isr or (known.is_gone and epoch == NO_LEADER_EPOCH):
        return None
    reported = Remnant(broker_id, epoch, end_offset)
    return None if reported == known else replace(state, lost_memory=_with(state.lost_memory, reported))


def most_complete_replicas(state: PartitionState) -> tuple[int, ...]:
    """Return the replicas with the most records once the ISR is empty and all former members have reported; else ().

    Several replicas have the most if their logs end at the same epoch and offset: such logs are equal.
    """
    if state.isr or not all(each.has_reported for each in state.lost_memory):
        return ()
    most = max((each.extent for each in state.lost_memory), default=None)
    return tuple(each.broker_id for each in state.lost_memory if each.extent == most)


def remnant_of(broker_id: int, state: PartitionState) -> Remnant | None:
    """Return the broker's entry in `lost_memory`; None if it is not a former member of the ISR."""
    return next((each for each in state.lost_memory if each.broker_id == broker_id), None)


def _doubted(replicas: tuple[int, ...], epoch: int) -> PartitionState:
    """Return the state in which all replicas must report because the in-sync replicas are unknown."""
    return PartitionState(NO_LEADER, epoch, (), tuple(Remnant(each) for each in sorted(replicas)), is_doubted=True)


def _with(lost: Iterable[Remnant], own: Remnant) -> tuple[Remnant, ...]:
    others = (each for each in lost if each.broker_id != own.broker_id)
    return tuple(sorted((*others, own), key=lambda each: each.broker_id))
