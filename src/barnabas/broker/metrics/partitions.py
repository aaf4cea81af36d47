"""Metrics of topics, partitions and replicas, and of the cluster as a whole.

A partition is reported by its leader, a replica by its broker. What no single broker has is reported by the broker
that acts as controller. So each value comes from one broker, and a sum over all brokers counts nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.addresses import host_port
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.replica import Replica
from barnabas.broker.topics import Topics
from barnabas.coordination.topic_metadata_store import PartitionInfo
from barnabas.coordination.values import NO_LEADER
from barnabas.metrics.metric import Sample, counter, gauge

_PARTITION = ("topic", "partition")

# The names of kafka_exporter.
BROKERS = gauge("kafka_brokers", "Live brokers. Reported by the controller.")
BROKER_INFO = gauge("kafka_broker_info", "1 for each live broker. Reported by the controller.", "id", "address")
TOPIC_PARTITIONS = gauge("kafka_topic_partitions", "Partitions of a topic. Reported by the controller.", "topic")
CURRENT_OFFSET = gauge(
    "kafka_topic_partition_current_offset", "High watermark: the offset of the next record that consumers get.",
    *_PARTITION,
)  # fmt: skip
OLDEST_OFFSET = gauge("kafka_topic_partition_oldest_offset", "Log start offset.", *_PARTITION)
LEADER = gauge(
    "kafka_topic_partition_leader", "Id of the leader. -1: none lives, reported by the controller.", *_PARTITION
)
REPLICAS = gauge("kafka_topic_partition_replicas", "Assigned replicas.", *_PARTITION)
IN_SYNC = gauge("kafka_topic_partition_in_sync_replica", "In-sync replicas.", *_PARTITION)
IS_PREFERRED = gauge(
    "kafka_topic_partition_leader_is_preferred", "1 if the first assigned replica leads, else 0.", *_PARTITION
)
UNDER_REPLICATED = gauge(
    "kafka_topic_partition_under_replicated_partition", "1 if a replica is not in sync, else 0.", *_PARTITION
)

# The names of Strimzi's JMX exporter.
LOG_SIZE = gauge("kafka_log_log_size", "Bytes of a replica's log.", *_PARTITION)
LOG_SEGMENTS = gauge("kafka_log_log_numlogsegments", "Segments of a replica's log.", *_PARTITION)
LOG_START = gauge("kafka_log_log_logstartoffset", "Log start offset of a replica.", *_PARTITION)
LOG_END = gauge("kafka_log_log_logendoffset", "Log end offset of a replica.", *_PARTITION)
BYTES_IN = counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes of batches that were produced.", "topic")
MESSAGES_IN = counter("kafka_server_brokertopicmetrics_messagesin_total", "Records that were produced.", "topic")
BYTES_OUT = counter("kafka_server_brokertopicmetrics_bytesout_total", "Bytes that consumers fetched.", "topic")
REPLICATION_IN = counter(
    "kafka_server_brokertopicmetrics_replicationbytesin_total", "Bytes that followers here fetched.", "topic"
)
REPLICATION_OUT = counter(
    "kafka_server_brokertopicmetrics_replicationbytesout_total", "Bytes that followers fetched from here.", "topic"
)
PARTITION_COUNT = gauge("kafka_server_replicamanager_partitioncount", "Replicas on this broker.")
LEADER_COUNT = gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
UNDER_REPLICATED_COUNT = gauge(
    "kafka_server_replicamanager_underreplicatedpartitions", "Partitions led here that have a replica out of sync."
)
UNDER_MIN_ISR_COUNT = gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Partitions led here that have fewer in-sync replicas than min.insync.replicas.",
)
AT_MIN_ISR_COUNT = gauge(
    "kafka_server_replicamanager_atminisrpartitioncount",
    "Partitions led here that have exactly min.insync.replicas replicas in sync.",
)
OFFLINE_REPLICAS = gauge("kafka_server_replicamanager_offlinereplicacount", "Replicas here whose log is offline.")
REASSIGNING = gauge(
    "kafka_server_replicamanager_reassigningpartitions", "Partitions led here that are moved to other brokers."
)
ACTIVE_CONTROLLER = gauge(
    "kafka_controller_kafkacontroller_activecontrollercount", "1 if this broker acts as controller, else 0."
)
OFFLINE_PARTITIONS = gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "Partitions without a live leader. Reported by the controller; 0 elsewhere.",
)
IMBALANCE = gauge(
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "Partitions that another than the first assigned replica leads. Reported by the controller; 0 elsewhere.",
)
TOPIC_COUNT = gauge(
    "kafka_controller_kafkacontroller_globaltopiccount", "Topics. Reported by the controller; 0 elsewhere."
)
GLOBAL_PARTITIONS = gauge(
    "kafka_controller_kafkacontroller_globalpartitioncount", "Partitions. Reported by the controller; 0 elsewhere."
)

REPLICA_LAG = gauge(
    "barnabas_replica_lag_max", "The most records that a follower of a partition led here is behind its leader."
)


class Led(NamedTuple):
    """A partition that this broker leads, as of one moment."""

    labels: tuple[str, str]
    replica: LeaderReplica
    info: PartitionInfo


def collect_partitions(broker_id: int, topics: Topics) -> Iterator[Sample]:
    """Yield the metrics of this module. Any thread may call it."""
    image = topics.image
    replicas = [each for each in topics.replicas.all() if not each.is_deleted]
    led = [
        Led((where.topic, str(where.partition)), replica, info)
        for replica in replicas
        if isinstance(replica, LeaderReplica)
        and replica.is_led
        and (info := image.partition(where := replica.topic_partition)) is not None
    ]
    yield from _cluster(broker_id, image)
    yield from _led(broker_id, led)
    yield from _counts(replicas, led)
    yield from _logs(replicas)
    yield from _traffic(replicas)


def _cluster(broker_id: int, image: MetadataImage) -> Iterator[Sample]:
    is_controller = image.controller_id == broker_id
    yield ACTIVE_CONTROLLER.sample(is_controller)
    offline: list[tuple[str, str]] = []
    imbalance = partitions = 0
    if is_controller:
        for name, topic in image.topics.items():
            partitions += len(topic.partitions)
            for number, info in enumerate(topic.partitions):
                leader = image.leader_of(info)
                imbalance += leader != info.replicas[0] if info.replicas else 0
                if leader == NO_LEADER:
                    offline.append((name, str(number)))
        yield BROKERS.sample(len(image.brokers))
        for each, broker in sorted(image.brokers.items()):
            yield BROKER_INFO.sample(1, str(each), host_port(broker.registration.host, broker.registration.port))
        for name, topic in image.topics.items():
            yield TOPIC_PARTITIONS.sample(len(topic.partitions), name)
        for labels in offline:
            yield LEADER.sample(NO_LEADER, *labels)
    yield OFFLINE_PARTITIONS.sample(len(offline))
    yield IMBALANCE.sample(imbalance)
    yield TOPIC_COUNT.sample(len(image.topics) if is_controller else 0)
    yield GLOBAL_PARTITIONS.sample(partitions)


def _led(broker_id: int, led: list[Led]) -> Iterator[Sample]:
    for labels, replica, _ in led:
        yield CURRENT_OFFSET.sample(replica.log.high_watermark, *labels)
    for labels, replica, _ in led:
        yield OLDEST_OFFSET.sample(replica.log.log_start_offset, *labels)
    for labels, _, _ in led:
        yield LEADER.sample(broker_id, *labels)
    for labels, _, info in led:
        yield REPLICAS.sample(len(info.replicas), *labels)
    for labels, _, info in led:
        yield IN_SYNC.sample(len(info.state.isr), *labels)
    for labels, _, info in led:
        yield IS_PREFERRED.sample(info.replicas[0] == broker_id, *labels)
    for labels, _, info in led:
        yield UNDER_REPLICATED.sample(_is_under_replicated(info), *labels)


def _counts(replicas: list[Replica], led: list[Led]) -> Iterator[Sample]:
    spare = [len(info.state.isr) - replica.config.min_insync_replicas for _, replica, info in led]
    followed = [replica for _, replica, _ in led if replica.followers is not None]
    yield PARTITION_COUNT.sample(len(replicas))
    yield LEADER_COUNT.sample(len(led))
    yield UNDER_REPLICATED_COUNT.sample(sum(_is_under_replicated(info) for _, _, info in led))
    yield UNDER_MIN_ISR_COUNT.sample(sum(each < 0 for each in spare))
    yield AT_MIN_ISR_COUNT.sample(sum(each == 0 for each in spare))
    yield OFFLINE_REPLICAS.sample(sum(each.log.is_offline for each in replicas))
    yield REASSIGNING.sample(sum(bool(info.adding or info.removing) for _, _, info in led))
    yield REPLICA_LAG.sample(max((_follower_lag(each) for each in followed), default=0))


def _is_under_replicated(info: PartitionInfo) -> bool:
    return len(info.state.isr) < len(info.replicas)


def _follower_lag(replica: LeaderReplica) -> int:
    if replica.followers is None:
        return 0
    least = replica.followers.least_log_end()
    return 0 if least is None else max(0, replica.log.log_end_offset - least)


def _logs(replicas: list[Replica]) -> Iterator[Sample]:
    named = [((each.topic_partition.topic, str(each.topic_partition.partition)), each.log) for each in replicas]
    for labels, log in named:
        yield LOG_SIZE.sample(log.size_bytes, *labels)
    for labels, log in named:
        yield LOG_SEGMENTS.sample(log.segment_count, *labels)
    for labels, log in named:
        yield LOG_START.sample(log.log_start_offset, *labels)
    for labels, log in named:
        yield LOG_END.sample(log.log_end_offset, *labels)


def _traffic(replicas: list[Replica]) -> Iterator[Sample]:
    produced: Counter[str] = Counter()
    records: Counter[str] = Counter()
    replicated: Counter[str] = Counter()
    replicated_out: Counter[str] = Counter()
    consumed: Counter[str] = Counter()
    for replica in replicas:
        topic, log = replica.topic_partition.topic, replica.log
        # Read first: the follower counts what the log has counted before.
        replicated_bytes, replicated_records = log.replicated_bytes, log.replicated_records
        produced[topic] += log.appended_bytes - replicated_bytes
        records[topic] += log.appended_records - replicated_records
        replicated[topic] += replicated_bytes
        replicated_out[topic] += log.replicated_out_bytes
        consumed[topic] += log.consumed_bytes
    for metric, counts in (
        (BYTES_IN, produced),
        (MESSAGES_IN, records),
        (BYTES_OUT, consumed),
        (REPLICATION_IN, replicated),
        (REPLICATION_OUT, replicated_out),
    ):
        for topic, count in counts.items():
            yield metric.sample(count, topic)
