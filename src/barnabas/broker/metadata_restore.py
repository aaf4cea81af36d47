"""Prepares a metadata store that was restored from a backup, before the first broker starts.

The restored metadata has the ISRs and leader epochs from the time of the backup. Replicas outside those ISRs may have
records that were acknowledged later, in leader epochs that a new leader would use again. A replica whose deletion is
pending in the backup may be the only replica now. Without preparation, brokers would also assign producer ids twice.
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
"""The number of producer ids to skip.

Brokers cannot have assigned more ids since the backup. There are 2^63 producer ids.
"""
_NO_BROKER = -1


def prepare_restored_store(tree: MetadataStore) -> int:
    """Make all replicas report their log ends, drop pending deletions of moved replicas, and skip used producer ids.

    :returns: the number of partitions with several replicas. An only replica leads without a report.
    :raises CoordinationError: a broker is registered, a topic's nodes are damaged, or the metadata store is
        unreachable.
    """
    if brokers := topic_metadata_store.read_brokers(tree):
        raise CoordinationError(f"brokers {sorted(brokers)} are registered; stop them first")
    reassignments.forget_removals(tree)
    changes = []
    for name, topic in topic_metadata_store.each_topic(tree):
        if not isinstance(topic, TopicInfo):
            raise CoordinationError(f"the node of topic {name} is damaged: {topic}; repair it first")
        for number, info in enumerate(topic.partitions):
            state = doubt(info.replicas, info.state, info.state.leader_epoch + 1)
            if state is not None:
                changes.append(next_state(TopicPartition(name, number), topic, state))
    if len(topic_metadata_store.write_partition_states(tree, changes)) < len(changes):
        raise CoordinationError("another process is changing the metadata store; stop all brokers first")
    topic_metadata_store.take_producer_ids(tree, _NO_BROKER, PRODUCER_IDS_PASSED_OVER)
    return len(changes)
