"""What has to be said to a cluster whose tree was brought back from a backup, before its first broker starts.

The tree names who was in sync when the backup was made, and in which epoch. What was acknowledged since may be on
others, in epochs that the first leader by the old tree would begin once more. Replicas that were to go then may be the
only ones now. And producer ids would be given out twice.
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


def distrust(tree: MetadataStore) -> int:
    """Let who has the most lead each partition, once all its replicas have told what they have; let nobody delete what
    it held before a move; and begin with producer ids that nobody had.

    :returns: how many partitions there are with several replicas. A sole replica leads with what it has.
    :raises CoordinationError: a broker is registered, a topic's nodes cannot be understood, or there is no answer.
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
