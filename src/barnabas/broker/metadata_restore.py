"""Preparation of a metadata tree that was restored from a backup, before the first broker starts.

The restored tree names the in-sync replicas and leader epochs of the time of the backup. Other replicas may have
records that were acknowledged later, in epochs that the first leader would use again. Replicas that were to be deleted
then may be the only ones now. Producer ids would be assigned twice.
"""

from __future__ import annotations

from barnabas.broker.metadata_image import next_state
from barnabas.coordination import reassignments, topic_metadata_store
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.coordination.topic_metadata_store import TopicInfo
from barnabas.errors import CoordinationError
from barnabas.model import TopicPartition
from barnabas.replication.unclean_recovery import doubt

PRODUCER_IDS_PASSED_OVER = 2**32
"""More than were given out since the backup; there are 2^63."""
_NO_BROKER = -1


def prepare_restored_store(tree: MetadataStore) -> int:
    """Make all replicas report their log ends, forget pending deletions of moved replicas, and skip used producer ids.

    :returns: the number of partitions with several replicas. A sole replica leads without a report.
    :raises CoordinationError: a broker is registered, a topic's nodes are damaged, or the store does not answer.
    """
    if brokers := topic_metadata_store.read_brokers(tree):
        raise CoordinationError(f"brokers {sorted(brokers)} are registered; stop them first")
    reassignments.forget_removals(tree)
    changes = []
    for name, topic in topic_metadata_store.each_topic(tree):
        if not isinstance(topic, TopicInfo):
            raise CoordinationError(f"topic {name}: {topic}; mend its node first")
        for number, info in enumerate(topic.partitions):
            state = doubt(info.replicas, info.state, info.state.leader_epoch + 1)
            if state is not None:
                changes.append(next_state(TopicPartition(name, number), topic, state))
    if len(topic_metadata_store.write_partition_states(tree, changes)) < len(changes):
        raise CoordinationError("somebody else changes the tree; stop all brokers first")
    topic_metadata_store.take_producer_ids(tree, _NO_BROKER, PRODUCER_IDS_PASSED_OVER)
    return len(changes)
