"""The topics in which the brokers keep what is theirs: clients see them and can read them, and that is all."""

from __future__ import annotations

from barnabas.broker.settings.static import BrokerConfig
from barnabas.errors import ErrorCode, KafkaError

CONSUMER_OFFSETS = "__consumer_offsets"
"""Groups, and the offsets that they commit."""

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, "__transaction_state"})
"""The names that Kafka keeps to itself."""


def check_not_internal(name: str, what: str) -> None:
    """Refuse what a client wants to do to a topic of the brokers.

    :param what: "cannot be deleted", for instance.
    :raises KafkaError: INVALID_TOPIC_EXCEPTION.
    """
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is the brokers' own, and {what}")


def partition_count(name: str, config: BrokerConfig) -> int:
    """Return how many partitions a topic gets that is made without saying."""
    return config.offsets_topic_num_partitions if name == CONSUMER_OFFSETS else config.num_partitions


def replication_factor(name: str, config: BrokerConfig, broker_count: int) -> int:
    """Return how many replicas a topic gets that is made without saying.

    The brokers' own topics get as many as the settings say: in a cluster that is starting, its first client waits until
    there are so many brokers, or the topic would have too few replicas for ever. A broker that is a cluster of its own
    gives one.
    """
    if name == CONSUMER_OFFSETS:
        wanted = config.offsets_topic_replication_factor
        return wanted if config.zookeeper_connect else min(wanted, broker_count)
    return config.default_replication_factor


def settings_of(name: str, config: BrokerConfig) -> dict[str, str | None]:
    """Return the settings with which a topic is made, if nobody says others: none, but for the brokers' own."""
    if name != CONSUMER_OFFSETS:
        return {}
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
