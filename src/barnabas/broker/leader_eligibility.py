"""The local facts on which leader elections depend: whether a replica may lead, its log end, its missing records."""

from __future__ import annotations

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replica import Replica
from barnabas.broker.replica_logs import ReplicaLogs
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from barnabas.replication.truncation import last_epoch
from barnabas.storage.checkpoints import EpochStart


class LeaderEligibility:
    """Used from the event loop's thread only."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache, replica_logs: ReplicaLogs) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._replica_logs = replica_logs

    def may_lead(self, where: TopicPartition) -> bool:
        """Whether there is a log here that can be used; a sole replica is led whatever it has."""
        replica = self._replicas.get(where)
        return replica is not None and (not replica.log.is_offline or self._is_sole(where))

    def lacks_records(self, replica: Replica) -> bool:
        """Whether others may have records that this replica should have: its log is gone, or cannot be used, or a part
        of it is lost."""
        where, opened = replica.topic_partition, replica.log
        is_lost = opened.is_offline or opened.lost_from is not None or self._replica_logs.was_missing(where)
        return is_lost and not self._is_sole(where)

    def known_epoch(self, where: TopicPartition) -> int:
        """Return the latest leader epoch that the log here knows, or -1."""
        replica = self._replicas.get(where)
        return NO_LEADER_EPOCH if replica is None else replica.log.leader_epochs.latest

    def is_ahead_of_tree(self, where: TopicPartition) -> bool:
        """Return whether the log here is newer than the metadata tree, and has not been compared with a leader's."""
        replica = self._replicas.get(where)
        return replica is not None and replica.log.is_newer_than_tree

    def end_of(self, where: TopicPartition) -> EpochStart:
        """Return of which epoch the last record here is before which none are lost, and the offset behind it.

        A log that lost all its records returns the offset with which it goes on: of several such replicas the one that
        reached furthest leads, so that no offset is used twice.
        """
        replica = self._replicas.get(where)
        if replica is None:
            return EpochStart(NO_LEADER_EPOCH, NO_OFFSET)
        opened = replica.log
        end = opened.log_end_offset
        sound_end = end if opened.lost_from is None else opened.lost_from
        epoch = last_epoch(opened.leader_epochs, sound_end)
        has_nothing = epoch == NO_LEADER_EPOCH and opened.log_start_offset == end
        return EpochStart(epoch, end if has_nothing else sound_end)

    def _is_sole(self, where: TopicPartition) -> bool:
        info = self._metadata.image.partition(where)
        return info is None or len(info.replicas) == 1
