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


def settings_of(name: str, config: BrokerConfig) -> dict[str, str | None]:
    """Return the settings with which a topic is made, if nobody says others: none, but for the brokers' own."""
    if name != CONSUMER_OFFSETS:
        return {}
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
