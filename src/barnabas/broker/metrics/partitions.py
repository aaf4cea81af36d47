"""The metrics of topics, partitions and replicas, and of the whole cluster.

The leader reports the metrics of a partition, and each broker reports the metrics of its replicas. The broker that
clients see as the controller reports the metrics of the whole cluster. So each value comes from one broker, and a sum
over all brokers counts nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from barnabas.addresses import host_port
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.replica import Replica
from barnabas.broker.topics import Topics
from barnabas.coordination.topic_metadata_store import PartitionInfo
from barnabas.coordination.values import NO_LEADER
from barnabas.metrics.metric import Sample, counter, gauge
from barnabas.storage.log import Log

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
    "kafka_topic_partition_leader",
    "Id of the leader; -1 without a live leader (reported by the controller).",
    *_PARTITION,
)
REPLICAS = gauge("kafka_topic_partition_replicas", "Assigned replicas.", *_PARTITION)
IN_SYNC = gauge("kafka_topic_partition_in_sync_replica", "In-sync replicas.", *_PARTITION)
IS_PREFERRED = gauge(
    "kafka_topic_partition_leader_is_preferred", "1 if the preferred replica leads, otherwise 0.", *_PARTITION
)
UNDER_REPLICATED = gauge(
    "kafka_topic_partition_under_replicated_partition", "1 if a replica is out of sync, otherwise 0.", *_PARTITION
)

# These metrics have the names of Strimzi's JMX exporter.
LOG_SIZE = gauge("kafka_log_log_size", "Size of a replica's log in bytes.", *_PARTITION)
LOG_SEGMENTS = gauge("kafka_log_log_numlogsegments", "Number of segments of a replica's log.", *_PARTITION)
LOG_START = gauge("kafka_log_log_logstartoffset", "Log start offset of a replica.", *_PARTITION)
LOG_END = gauge("kafka_log_log_logendoffset", "Log end offset of a replica.", *_PARTITION)
BYTES_IN = counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes of produced batches.", "topic")
MESSAGES_IN = counter("kafka_server_brokertopicmetrics_messagesin_total", "Produced records.", "topic")
BYTES_OUT = counter("kafka_server_brokertopicmetrics_bytesout_total", "Bytes fetched by consumers.", "topic")
REPLICATION_IN = counter(
    "kafka_server_brokertopicmetrics_replicationbytesin_total", "Bytes fetched by followers on this broker.", "topic"
)
REPLICATION_OUT = counter(
    "kafka_server_brokertopicmetrics_replicationbytesout_total", "Bytes fetched from this broker by followers.", "topic"
)
PARTITION_COUNT = gauge("kafka_server_replicamanager_partitioncount", "Replicas on this broker.")
LEADER_COUNT = gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
UNDER_REPLICATED_COUNT = gauge(
    "kafka_server_replicamanager_underreplicatedpartitions", "Partitions led here with an out-of-sync replica."
)
UNDER_MIN_ISR_COUNT = gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
)
AT_MIN_ISR_COUNT = gauge(
    "kafka_server_replicamanager_atminisrpartitioncount",
    "Partitions led here with exactly min.insync.replicas in-sync replicas.",
)
OFFLINE_REPLICAS = gauge("kafka_server_replicamanager_offlinereplicacount", "Replicas here with an offline log.")
REASSIGNING = gauge(
    "kafka_server_replicamanager_reassigningpartitions", "Partitions led here that are under reassignment."
)
ACTIVE_CONTROLLER = gauge(
    "kafka_controller_kafkacontroller_activecontrollercount", "1 if this broker acts as controller, otherwise 0."
)
OFFLINE_PARTITIONS = gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "Partitions without a live leader. Reported by the controller; 0 elsewhere.",
)
IMBALANCE = gauge(
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "Partitions whose leader is not the preferred replica. Reported by the controller; 0 elsewhere.",
)
TOPIC_COUNT = gauge(
    "kafka_controller_kafkacontroller_globaltopiccount", "Topics. Reported by the controller; 0 elsewhere."
)
GLOBAL_PARTITIONS = gauge(
    "kafka_controller_kafkacontroller_globalpartitioncount", "Partitions. Reported by the controller; 0 elsewhere."
)

REPLICA_LAG = gauge(
    "barnabas_replica_lag_max", "The largest lag of a follower behind a leader on this broker, in records."
)


@dataclass(slots=True)
class _Sums:
    """Sums over the replicas of this broker, and over the partitions that it leads."""

    replicas: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    offline: int = 0
    reassigning: int = 0
    lag_max: int = 0
    produced_bytes: Counter[str] = field(default_factory=Counter)
    produced_records: Counter[str] = field(default_factory=Counter)
    replicated_bytes: Counter[str] = field(default_factory=Counter)
    replicated_out_bytes: Counter[str] = field(default_factory=Counter)
    consumed_bytes: Counter[str] = field(default_factory=Counter)

    def add(self, replica: Replica) -> None:
        topic, log = replica.topic_partition.topic, replica.log
        # Read the followers' offsets before the leader's log end offset, so that the lag is not negative.
        replicated_bytes, replicated_records = log.replicated_bytes, log.replicated_records
        self.produced_bytes[topic] += log.appended_bytes - replicated_bytes
        self.produced_records[topic] += log.appended_records - replicated_records
        self.replicated_bytes[topic] += replicated_bytes
        self.replicated_out_bytes[topic] += log.replicated_out_bytes
        self.consumed_bytes[topic] += log.consumed_bytes
        self.replicas += 1
        self.offline += log.is_offline

    def add_led(self, replica: LeaderReplica, info: PartitionInfo) -> None:
        spare = len(info.state.isr) - replica.config.min_insync_replicas
        self.led += 1
        self.under_replicated += _is_under_replicated(info)
        self.under_min_isr += spare < 0
        self.at_min_isr += spare == 0
        self.reassigning += bool(info.adding or info.removing)
        self.lag_max = max(self.lag_max, _follower_lag(replica))

    def samples(self) -> Iterator[Sample]:
        yield PARTITION_COUNT.sample(self.replicas)
        yield LEADER_COUNT.sample(self.led)
        yield UNDER_REPLICATED_COUNT.sample(self.under_replicated)
        yield UNDER_MIN_ISR_COUNT.sample(self.under_min_isr)
        yield AT_MIN_ISR_COUNT.sample(self.at_min_isr)
        yield OFFLINE_REPLICAS.sample(self.offline)
        yield REASSIGNING.sample(self.reassigning)
        yield REPLICA_LAG.sample(self.lag_max)
        for metric, counts in (
            (BYTES_IN, self.produced_bytes),
            (MESSAGES_IN, self.produced_records),
            (BYTES_OUT, self.consumed_bytes),
            (REPLICATION_IN, self.replicated_bytes),
            (REPLICATION_OUT, self.replicated_out_bytes),
        ):
            for topic, count in counts.items():
                yield metric.sample(count, topic)


def collect_partitions(broker_id: int, topics: Topics) -> Iterator[Sample | None]:
    """Yield the metrics of this module (`barnabas.metrics.metric.Collect`). Any thread may call this function."""
    image, sums = topics.image, _Sums()
    for replica in topics.replicas.all():
        if replica.is_deleted:
            continue
        where = replica.topic_partition
        # All samples share this label object. `Metric.sample` would copy it.
        labels = where.topic, str(where.partition)
        yield from _of_log(replica.log, labels)
        sums.add(replica)
        if isinstance(replica, LeaderReplica) and replica.is_led and (info := image.partition(where)) is not None:
            yield from _of_leader(broker_id, replica, info, labels)
            sums.add_led(replica, info)
    yield from _cluster(broker_id, image)
    yield from sums.samples()


def _of_log(log: Log, labels: tuple[str, str]) -> Iterator[Sample]:
    yield Sample(LOG_SIZE, log.size_bytes, labels)
    yield Sample(LOG_SEGMENTS, log.segment_count, labels)
    yield Sample(LOG_START, log.log_start_offset, labels)
    yield Sample(LOG_END, log.log_end_offset, labels)


def _of_leader(
    broker_id: int, replica: LeaderReplica, info: PartitionInfo, labels: tuple[str, str]
) -> Iterator[Sample]:
    yield Sample(CURRENT_OFFSET, replica.log.high_watermark, labels)
    yield Sample(OLDEST_OFFSET, replica.log.log_start_offset, labels)
    yield Sample(LEADER, broker_id, labels)
    yield Sample(REPLICAS, len(info.replicas), labels)
    yield Sample(IN_SYNC, len(info.state.isr), labels)
    yield Sample(IS_PREFERRED, info.replicas[0] == broker_id, labels)
    yield Sample(UNDER_REPLICATED, _is_under_replicated(info), labels)


def _cluster(broker_id: int, image: MetadataImage) -> Iterator[Sample | None]:
    is_controller = image.controller_id == broker_id
    yield ACTIVE_CONTROLLER.sample(is_controller)
    offline = imbalance = partitions = 0
    if is_controller:
        yield BROKERS.sample(len(image.brokers))
        for each, broker in sorted(image.brokers.items()):
            yield BROKER_INFO.sample(1, str(each), host_port(broker.registration.host, broker.registration.port))
        for name, topic in image.topics.items():
            yield TOPIC_PARTITIONS.sample(len(topic.partitions), name)
            partitions += len(topic.partitions)
            for number, info in enumerate(topic.partitions):
                leader = image.leader_of(info)
                imbalance += leader != info.replicas[0] if info.replicas else 0
                is_offline = leader == NO_LEADER
                offline += is_offline
                yield LEADER.sample(NO_LEADER, name, str(number)) if is_offline else None
    yield OFFLINE_PARTITIONS.sample(offline)
    yield IMBALANCE.sample(imbalance)
    yield TOPIC_COUNT.sample(len(image.topics) if is_controller else 0)
    yield GLOBAL_PARTITIONS.sample(partitions)


def _is_under_replicated(info: PartitionInfo) -> bool:
    return len(info.state.isr) < len(info.replicas)


def _follower_lag(replica: LeaderReplica) -> int:
    if replica.followers is None:
        return 0
    least = replica.followers.least_log_end()
    return 0 if least is None else max(0, replica.log.log_end_offset - least)
