"""The settings that a topic can have: Kafka's names, what each means, and what is said about it to administrators.

What a value does is the log's business (`barnabas.storage.config`) or the produce handler's; here it is written
down once what exists, for CreateTopics, DescribeConfigs and AlterConfigs alike.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.broker.config import BrokerConfig
from barnabas.errors import ConfigurationError
from barnabas.storage.config import LogConfig


class ConfigType(enum.IntEnum):
    """The type of a setting's value, as DescribeConfigs tells it (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


PRODUCER_COMPRESSION = "producer"
"""`compression.type` of a topic that keeps batches as their producers compressed them."""

COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", PRODUCER_COMPRESSION)

DELETE_POLICY = "delete"


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One setting of a topic.

    `default` returns its value where the topic has none of its own; `broker_setting` names the setting of the
    broker that this value comes from, if there is one.
    """

    name: str
    kind: ConfigType
    documentation: str
    default: Callable[[BrokerConfig], str]
    broker_setting: str | None = None


def _of_log(name: str) -> Callable[[BrokerConfig], str]:
    """Make a default that is the log's own."""
    field = name.replace(".", "_")
    return lambda _: str(getattr(LogConfig(), field))


def _of_broker(field: str) -> Callable[[BrokerConfig], str]:
    """Make a default that is a setting of the broker."""
    return lambda config: str(getattr(config, field))


def _always(value: str) -> Callable[[BrokerConfig], str]:
    return lambda _: value


_INT, _LONG, _STRING, _LIST = ConfigType.INT, ConfigType.LONG, ConfigType.STRING, ConfigType.LIST

TOPIC_SETTINGS: dict[str, TopicSetting] = {
    setting.name: setting
    for setting in (
        TopicSetting(
            "cleanup.policy",
            _LIST,
            "What becomes of old segments. Only 'delete' is supported: they go when retention.ms or"
            " retention.bytes says so.",
            _always(DELETE_POLICY),
        ),
        TopicSetting(
            "compression.type",
            _STRING,
            "How batches are stored: 'producer' keeps each as its producer compressed it; 'uncompressed', 'gzip',"
            " 'snappy', 'lz4' or 'zstd' compresses all of them so.",
            _always(PRODUCER_COMPRESSION),
        ),
        TopicSetting(
            "flush.messages",
            _LONG,
            "After so many messages a log is flushed to the disk; messages are exposed to consumers only after it.",
            _of_log("flush.messages"),
        ),
        TopicSetting(
            "flush.ms",
            _LONG,
            "After so many milliseconds what was appended is flushed to the disk; messages are exposed to consumers"
            " only after it.",
            _of_log("flush.ms"),
        ),
        TopicSetting(
            "index.interval.bytes",
            _INT,
            "Bytes of batches between two entries of the sparse indexes.",
            _of_broker("log_index_interval_bytes"),
            "log.index.interval.bytes",
        ),
        TopicSetting(
            "max.message.bytes",
            _INT,
            "The largest record batch that is taken, after compression.",
            _of_broker("message_max_bytes"),
            "message.max.bytes",
        ),
        TopicSetting(
            "message.timestamp.type",
            _STRING,
            "Whose clock the timestamps are of: 'CreateTime', the producer's, or 'LogAppendTime', the broker's.",
            _always("CreateTime"),
        ),
        TopicSetting(
            "min.insync.replicas",
            _INT,
            "How many replicas must have a message before it is acknowledged to producers with acks=all.",
            _of_broker("min_insync_replicas"),
            "min.insync.replicas",
        ),
        TopicSetting(
            "retention.bytes",
            _LONG,
            "The oldest segments of a partition are deleted while it is larger than this; -1: no limit.",
            _of_broker("log_retention_bytes"),
            "log.retention.bytes",
        ),
        TopicSetting(
            "retention.ms",
            _LONG,
            "A segment is deleted when its newest record is older than this; -1: never.",
            _of_broker("log_retention_ms"),
            "log.retention.ms",
        ),
        TopicSetting(
            "segment.bytes",
            _INT,
            "A segment that would grow beyond this is closed and another one begun.",
            _of_broker("log_segment_bytes"),
            "log.segment.bytes",
        ),
        TopicSetting(
            "segment.index.bytes",
            _INT,
            "A segment whose offset index has this size is closed.",
            _of_log("segment.index.bytes"),
        ),
        TopicSetting(
            "segment.ms",
            _LONG,
            "A segment is closed after this time, even if it is not full, so that retention can reach it.",
            _of_log("segment.ms"),
        ),
    )
}
"""Every setting that a topic can have, by its name."""

NOT_OF_LOGS = frozenset({"cleanup.policy", "compression.type", "min.insync.replicas"})
"""Settings that logs know nothing of."""


def check_value(name: str, value: str) -> None:
    """Check the value of a setting that is not the log's; the log checks its own.

    :raises ConfigurationError: the setting cannot have this value.
    """
    if name == "cleanup.policy" and value != DELETE_POLICY:
        raise ConfigurationError(
            f"cleanup.policy is {value!r}; only 'delete' is supported (log compaction does not exist here yet)"
        )
    if name == "compression.type" and value not in COMPRESSION_TYPES:
        raise ConfigurationError(f"compression.type is {value!r}; it can be {', '.join(COMPRESSION_TYPES)}")
    if name == "min.insync.replicas" and (not value.isdigit() or int(value) < 1):
        raise ConfigurationError(f"min.insync.replicas is {value!r}; it must be a whole number from 1 on")
