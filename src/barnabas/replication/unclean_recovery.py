"""Unclean recovery: the states of partitions whose replicas may lack acknowledged records (similar to KIP-966).

A replica may lack acknowledged records if its machine rebooted without a clean shutdown. The same applies if its log is
damaged or missing, or if its log directory is an older copy. Such a replica first leaves the ISR, and the partition
state keeps it as a former member (`PartitionState.lost_memory`).

- If ISR members remain, one of them leads. The leader's next state drops the former members.
- If the last member leaves the ISR (for example after a power failure of all machines), no replica is known to be
  complete. All former members report the leader epoch of their last record and their log end offset in the partition
  state. The replica with the highest epoch, and then the highest offset, has the most records
  (`most_complete_replicas`), and becomes leader. The election waits for missing reports, unless the topic allows
  unclean elections.
- If the log of the last member is in an older copy of its log directory (`barnabas.storage.life_counter`), all replicas
  report. Replicas that left the ISR after the copy was made may have more records.
- If the metadata store is older than the replicas (because it was restored from a backup), its ISR is obsolete. This is
  detected by a log with a later leader epoch (`doubt`), or by a log directory with a higher life counter
  (`doubt_old_tree`). All replicas then report. The state is doubted (`PartitionState.is_doubted`) until a leader is
  elected. A leader that a doubted state deposes keeps its records.

A report stays valid until a leader is elected, because logs do not change without a leader. If a broker loses records
again, it withdraws again, which removes its report.
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
    """Return the state that a broker writes if its replica may lack acknowledged records, or None if it stays in the
    ISR.

    The only member of the ISR stays, because no other replica has more records, unless:

    - its log is missing, so all other replicas may have more records;
    - its log is in an older copy of its disk, so replicas that left the ISR after the copy was made may have more
      records. All replicas then report their log ends, as after `doubt`.

    If the broker is not in the ISR, the returned state is unchanged, but the broker must write it. The write changes
    the version of the state. So a leader that is about to add the broker because of its earlier fetches fails
    (KIP-903).

    :param is_gone: True if the broker's log of the partition is missing. An operator may restore the log.
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
    """Return the state that a broker writes if its log has a later leader epoch than the metadata store, or None.

    A leader writes its leader epoch to the metadata store before any log contains it. So a later epoch in a log proves
    that the metadata store is older than the log. The in-sync replicas in the metadata store may then lack acknowledged
    records. An only replica leads in any case.

    :param known_epoch: the latest leader epoch in the broker's log.

    >>> doubt((2, 1), PartitionState(leader=1, leader_epoch=4, isr=(1,)), 6).lost_memory
    (Remnant(broker_id=1, epoch=-1, end_offset=-1), Remnant(broker_id=2, epoch=-1, end_offset=-1))
    """
    if known_epoch <= state.leader_epoch or len(replicas) == 1:
        return None
    return _doubted(replicas, known_epoch)


def doubt_old_tree(replicas: tuple[int, ...], state: PartitionState) -> PartitionState | None:
    """Return the state that a broker writes if its disk is newer than the metadata store, or None if it has been
    written.

    The in-sync replicas in the metadata store may lack records that were acknowledged in this or later leader epochs.
    The caller must use this function only if the leader in the state is not alive.

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
    """Return the state that replaces an invalid state, which another program has written, or None if the state is
    valid.

    A state is invalid if it has no in-sync replica, or an in-sync broker that is not a replica. The in-sync replicas
    are then unknown, so all replicas report their log ends. An only replica leads in any case.

    >>> recover((1, 2), PartitionState(leader=9, leader_epoch=4, isr=(9,))).lost_memory
    (Remnant(broker_id=1, epoch=-1, end_offset=-1), Remnant(broker_id=2, epoch=-1, end_offset=-1))
    """
    members = state.isr or tuple(each.broker_id for each in state.lost_memory)
    if len(replicas) == 1 or (members and set(members) <= set(replicas)):
        return None
    return _doubted(replicas, max(state.leader_epoch + 1, 0))


def report_log_end(broker_id: int, state: PartitionState, epoch: int, end_offset: int) -> PartitionState | None:
    """Return the state with a broker's log end report, or None if the state needs no report or already contains it.

    If the log was missing, an empty log is not reported until an operator has restored the log.

    :param epoch: the leader epoch of the last record, or -1 if the log is empty.
    :param end_offset: the log end offset of the intact part of the log.
    """
    known = remnant_of(broker_id, state)
    if known is None or state.isr or (known.is_gone and epoch == NO_LEADER_EPOCH):
        return None
    reported = Remnant(broker_id, epoch, end_offset)
    return None if reported == known else replace(state, lost_memory=_with(state.lost_memory, reported))


def most_complete_replicas(state: PartitionState) -> tuple[int, ...]:
    """Return the replicas with the most records if the ISR is empty and all former members have reported; otherwise ().

    The result has several replicas if their logs end at the same epoch and offset, because such logs are equal.
    """
    if state.isr or not all(each.has_reported for each in state.lost_memory):
        return ()
    most = max((each.extent for each in state.lost_memory), default=None)
    return tuple(each.broker_id for each in state.lost_memory if each.extent == most)


def remnant_of(broker_id: int, state: PartitionState) -> Remnant | None:
    """Return the broker's entry in `lost_memory`, or None if the broker is not a former ISR member."""
    return next((each for each in state.lost_memory if each.broker_id == broker_id), None)


def _doubted(replicas: tuple[int, ...], epoch: int) -> PartitionState:
    """Return the state in which all replicas must report their log ends, because the in-sync replicas are unknown."""
    return PartitionState(NO_LEADER, epoch, (), tuple(Remnant(each) for each in sorted(replicas)), is_doubted=True)


def _with(lost: Iterable[Remnant], own: Remnant) -> tuple[Remnant, ...]:
    others = (each for each in lost if each.broker_id != own.broker_id)
    return tuple(sorted((*others, own), key=lambda each: each.broker_id))
