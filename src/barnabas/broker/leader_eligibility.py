"""The state of this broker's logs, as input for leader elections."""

from __future__ import annotations

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replica import Replica
from barnabas.broker.replica_logs import ReplicaLogs
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from barnabas.replication.truncation import last_epoch
from barnabas.storage.checkpoints import EpochStart


class LeaderEligibility:
    """Implements the callbacks of `LeaderElection` about this broker's logs. Used from the event loop's thread only."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache, replica_logs: ReplicaLogs) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._replica_logs = replica_logs

    def may_lead(self, where: TopicPartition) -> bool:
        """Return whether this broker may lead a partition: it must have a usable log, unless it is the only replica."""
        replica = self._replicas.get(where)
        return replica is not None and (not replica.log.is_offline or self._is_sole(where))

    def lacks_records(self, replica: Replica) -> bool:
        """Return whether other replicas may have records that this replica lacks.

        This is the case if the log of this replica is missing, offline, or damaged at its end.
        """
        where, opened = replica.topic_partition, replica.log
        is_lost = opened.is_offline or opened.lost_from is not None or self._replica_logs.was_missing(where)
        return is_lost and not self._is_sole(where)

    def known_epoch(self, where: TopicPartition) -> int:
        """Return the latest leader epoch in the log of a partition, or -1."""
        replica = self._replicas.get(where)
        return NO_LEADER_EPOCH if replica is None else replica.log.leader_epochs.latest

    def is_ahead_of_tree(self, where: TopicPartition) -> bool:
        """Return whether the log is newer than the metadata store, and has not been compared with a leader's log."""
        replica = self._replicas.get(where)
        return replica is not None and replica.log.is_newer_than_tree

    def end_of(self, where: TopicPartition) -> EpochStart:
        """Return the leader epoch of the last record before any lost record, and the offset after that record.

        For a log without records, the offset is the log end offset. If all replicas have lost their records, the
        replica with the highest log end offset becomes leader, so that no offset is used twice.
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
