"""The metrics of consumer groups. Each group is reported by its coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from barnabas.broker.group_service import GroupService
from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.metrics.group_lag import EndOffsets
from barnabas.groups.records import Committed
from barnabas.groups.results import GroupState
from barnabas.metrics.metric import Sample, counter, gauge
from barnabas.model import TopicPartition
from barnabas.protocol.declare import ZERO_UUID

_PARTITION = ("consumergroup", "topic", "partition")

# The names of kafka_exporter.
MEMBERS = gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup")
CURRENT_OFFSET = gauge("kafka_consumergroup_current_offset", "Committed offset of a group.", *_PARTITION)
CURRENT_OFFSET_SUM = gauge(
    "kafka_consumergroup_current_offset_sum", "Sum of a group's committed offsets in a topic.", "consumergroup", "topic"
)
LAG = gauge(
    "kafka_consumergroup_lag", "Records between a group's committed offset and the high watermark.", *_PARTITION
)
LAG_SUM = gauge("kafka_consumergroup_lag_sum", "Sum of a group's lag in a topic.", "consumergroup", "topic")

# These metrics have the names of Strimzi's JMX exporter.
_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
GROUPS = gauge(f"{_MANAGER}_numgroups", "Groups that this broker coordinates.")
OFFSETS = gauge(f"{_MANAGER}_numoffsets", "Committed offsets of these groups.")
GROUPS_BY_STATE = {
    state: gauge(f"{_MANAGER}_numgroups{state.value.lower()}", f"Groups in the state {state.value}.")
    for state in GroupState
}

LAG_SECONDS = gauge(
    "barnabas_consumergroup_lag_seconds",
    "Seconds since the first record behind a group's committed offset arrived; 0 without lag. The time begins with the"
    " start of the broker or the group's first commit, also for earlier records.",
    *_PARTITION,
)
_COORDINATOR = {
    "loads": counter("barnabas_coordinator_loads_total", "Loads of partitions of __consumer_offsets."),
    "failed_loads": counter("barnabas_coordinator_failed_loads_total", "Failed loads of these partitions."),
    "records_replayed": counter("barnabas_coordinator_replayed_records_total", "Records read by these loads."),
    "records_damaged": counter("barnabas_coordinator_damaged_records_total", "Damaged records skipped by these loads."),
    "appends": counter("barnabas_coordinator_appends_total", "Appends to __consumer_offsets by coordinators."),
    "failed_appends": counter("barnabas_coordinator_failed_appends_total", "Failed appends to __consumer_offsets."),
    "rolled_back": counter("barnabas_coordinator_rolled_back_total", "Appends whose changes were rolled back."),
    "timeouts": counter("barnabas_coordinator_timeouts_total", "Appends that were not replicated in time."),
}
"""The metrics for the fields of `CoordinatorCounters`, by field name."""
LOAD_SECONDS = counter("barnabas_coordinator_load_seconds_total", "Total duration of loads of __consumer_offsets.")
QUEUE_BYTES = gauge("barnabas_coordinator_queue_bytes", "Size of waiting appends to __consumer_offsets, in bytes.")

Commits = dict[TopicPartition, Committed]


def collect_groups(
    groups: GroupService, image: Callable[[], MetadataImage], ends: EndOffsets
) -> Iterator[Sample | None]:
    """Yield the metrics of this module (`barnabas.metrics.metric.Collect`). Any thread may call this function."""
    shards = [shard for shard in list(groups.runtime.shards) if not shard.refusal]
    states: Counter[GroupState] = Counter()
    members: dict[str, int] = {}
    for shard in shards:
        for summary in shard.machine.summaries():
            states[summary.state] += 1
            members[summary.group_id] = summary.member_count
            yield None
    committed: dict[str, Commits] = {}
    for shard in shards:
        for group_id, offsets in shard.machine.offsets.copies():
            committed[group_id] = offsets
            members.setdefault(group_id, 0)
            yield None
    yield GROUPS.sample(len(members))
    yield OFFSETS.sample(sum(map(len, committed.values())))
    for state, metric in GROUPS_BY_STATE.items():
        yield metric.sample(states[state])
    for group_id, count in members.items():
        yield MEMBERS.sample(count, group_id)
    # Read the end offsets after the committed offsets. Otherwise, the lag could be negative.
    yield from _offsets(committed, image(), ends)
    yield from _coordinator(groups)


def _offsets(committed: dict[str, Commits], image: MetadataImage, ends: EndOffsets) -> Iterator[Sample | None]:
    offset_sums: Counter[tuple[str, str]] = Counter()
    lag_sums: Counter[tuple[str, str]] = Counter()
    for group_id, offsets in committed.items():
        for where, each in offsets.items():
            if not _is_valid(where, each, image):
                yield None
                continue
            of_topic = group_id, where.topic
            labels = *of_topic, str(where.partition)
            offset_sums[of_topic] += each.offset
            yield Sample(CURRENT_OFFSET, each.offset, labels)
            if (end := ends.end_of(where)) is None:
                continue
            lag = max(0, end - each.offset)
            lag_sums[of_topic] += lag
            yield Sample(LAG, lag, labels)
            if (age_s := ends.age_s(where, each.offset) if lag else 0.0) is not None:
                yield Sample(LAG_SECONDS, age_s, labels)
    for metric, sums in ((CURRENT_OFFSET_SUM, offset_sums), (LAG_SUM, lag_sums)):
        for of_topic, total in sums.items():
            yield Sample(metric, total, of_topic)


def _is_valid(where: TopicPartition, committed: Committed, image: MetadataImage) -> bool:
    """Return whether a committed offset belongs to an existing topic."""
    topic = image.topics.get(where.topic)
    return topic is not None and committed.topic_id in {ZERO_UUID, topic.topic_id}


def _coordinator(groups: GroupService) -> Iterator[Sample]:
    counters = groups.runtime.counters
    for field, metric in _COORDINATOR.items():
        yield metric.sample(getattr(counters, field))
    yield LOAD_SECONDS.sample(counters.load_ms / 1000)
    yield QUEUE_BYTES.sample(counters.queue_bytes)
