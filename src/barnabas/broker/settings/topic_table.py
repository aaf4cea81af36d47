"""The topic settings: all topic settings of Kafka 3 and 4, with their rules and documentation.

CreateTopics, DescribeConfigs, AlterConfigs and the settings reference use this table. The log
(`barnabas.storage.log_config`) and the produce handler implement the settings. Some of Kafka's settings have no effect
in Barnabas. The broker validates, stores and describes them, so that tools that set them work. Their documentation says
that they have no effect.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from barnabas.broker.settings.rules import FLAG, LONG_MAX, ConfigType, Rule, items, number, small, text, whole
from barnabas.errors import ConfigurationError
from barnabas.storage.log_config import LogConfig

PRODUCER_COMPRESSION = "producer"
"""The value of `compression.type` that keeps the producer's compression."""

COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", PRODUCER_COMPRESSION)

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

CLEANUP_POLICY, REMOTE_STORAGE = "cleanup.policy", "remote.storage.enable"

VALUE_SCHEMA_VALIDATION = "barnabas.value.schema.validation"

_REPLICA_LIST = r"(|\*|[0-9]+:[0-9]+)"
_ONE_FORMAT = "only record batches of format 2 are stored and sent"
_NO_TIERED_STORAGE = "tiered storage is not supported"


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """The declaration of a topic setting.

    `default` applies if neither the topic nor the broker sets a value. `broker_setting` is the name of the broker
    setting for the default, if there is one. `no_effect` is the reason if the setting has no effect.
    """

    name: str
    rule: Rule
    default: str
    about: str
    broker_setting: str | None = None
    no_effect: str | None = None

    @property
    def documentation(self) -> str:
        return self.about if self.no_effect is None else f"{self.about} Without effect: {self.no_effect}."


_DAY_MS = str(24 * 3600 * 1000)
_WEEK_MS = str(7 * 24 * 3600 * 1000)
_EVER = str(LONG_MAX)

TOPIC_SETTINGS: dict[str, TopicSetting] = {
    setting.name: setting
    for setting in (
        TopicSetting(
            VALUE_SCHEMA_VALIDATION,
            FLAG,
            "false",
            "Whether the broker rejects values that do not begin with the id of a schema of the subject TOPIC-value in"
            " the registry at the broker setting schema.registry.url. Kafka does not have this setting.",
        ),
        TopicSetting(
            CLEANUP_POLICY,
            items("delete", "compact"),
            "delete",
            "The treatment of old records. 'delete': segments are deleted by retention.ms and retention.bytes."
            " 'compact': only the last record of each key is kept. 'compact,delete': both. Empty: all records are"
            " kept.",
            "log.cleanup.policy",
        ),
        TopicSetting(
            "compression.gzip.level",
            small(-1, 9),
            "-1",
            "The level of gzip if compression.type is 'gzip'.",
            "compression.gzip.level",
            "each compression type has a fixed level",
        ),
        TopicSetting(
            "compression.lz4.level",
            small(1, 17),
            "9",
            "The level of lz4 if compression.type is 'lz4'.",
            "compression.lz4.level",
            "each compression type has a fixed level",
        ),
        TopicSetting(
            "compression.type",
            text(*COMPRESSION_TYPES),
            PRODUCER_COMPRESSION,
            "The compression of stored batches: 'producer' keeps the producer's compression; 'uncompressed', 'gzip',"
            " 'snappy', 'lz4' or 'zstd' compresses all batches in this way.",
            "compression.type",
        ),
        TopicSetting(
            "compression.zstd.level",
            small(-131072, 22),
            "3",
            "The level of zstd if compression.type is 'zstd'.",
            "compression.zstd.level",
            "each compression type has a fixed level",
        ),
        TopicSetting(
            "delete.retention.ms",
            whole(),
            _DAY_MS,
            "The time for which a compacted log keeps a tombstone (a record without a value) after its first"
            " compaction.",
            "log.cleaner.delete.retention.ms",
        ),
        TopicSetting(
            "file.delete.delay.ms",
            whole(),
            "60000",
            "The time for which the files of deleted segments stay on disk.",
            "file.delete.delay.ms",
            "the broker setting of the same name applies to all topics",
        ),
        TopicSetting(
            "flush.messages",
            whole(1),
            _EVER,
            "The number of messages after which a log is flushed; consumers see messages only after the flush.",
            "log.flush.interval.messages",
        ),
        TopicSetting(
            "flush.ms",
            whole(),
            _EVER,
            "The time in milliseconds after which appended messages are flushed; consumers see messages only after the"
            " flush.",
            "log.flush.interval.ms",
        ),
        TopicSetting(
            "follower.replication.throttled.replicas",
            items(pattern=_REPLICA_LIST),
            "",
            "The throttled followers, as partition:broker, or * for all. While they are not in sync, they fetch at most"
            " at the follower.replication.throttled.rate of their brokers.",
        ),
        TopicSetting(
            "index.interval.bytes",
            small(),
            "4096",
            "The number of bytes of batches between two entries of the offset and time indexes.",
            "log.index.interval.bytes",
        ),
        TopicSetting(
            "leader.replication.throttled.replicas",
            items(pattern=_REPLICA_LIST),
            "",
            "The throttled leaders, as partition:broker, or * for all. Their followers that are not in sync get records"
            " at most at the leader.replication.throttled.rate of the leaders' brokers.",
        ),
        TopicSetting(
            "local.retention.bytes",
            whole(-2),
            "-2",
            "The maximum size of a log on the broker's disk before older segments are only in tiered storage.",
            "log.local.retention.bytes",
            _NO_TIERED_STORAGE,
        ),
        TopicSetting(
            "local.retention.ms",
            whole(-2),
            "-2",
            "The maximum age of a segment on the broker's disk before it is only in tiered storage.",
            "log.local.retention.ms",
            _NO_TIERED_STORAGE,
        ),
        TopicSetting(
            "max.compaction.lag.ms",
            whole(1),
            _EVER,
            "The maximum time for which a record remains uncompacted.",
            "log.cleaner.max.compaction.lag.ms",
        ),
        TopicSetting(
            "max.message.bytes",
            small(),
            "1048588",
            "The maximum size of a record batch, after compression.",
            "message.max.bytes",
        ),
        TopicSetting(
            "message.downconversion.enable",
            FLAG,
            "true",
            "Whether readers of older message formats are supported (until Kafka 4).",
            None,
            _ONE_FORMAT,
        ),
        TopicSetting(
            "message.format.version",
            Rule(ConfigType.STRING, pattern=r"[0-9]+(\.[0-9]+)+(-IV[0-9]+)?"),
            "3.0-IV1",
            "The release whose message format is stored (until Kafka 4).",
            None,
            _ONE_FORMAT,
        ),
        TopicSetting(
            "message.timestamp.after.max.ms",
            whole(),
            _EVER,
            "The maximum time by which the timestamps of a batch may be ahead of the broker's clock, with CreateTime.",
            "log.message.timestamp.after.max.ms",
        ),
        TopicSetting(
            "message.timestamp.before.max.ms",
            whole(),
            _EVER,
            "The maximum time by which a batch's first timestamp may be behind the broker's clock, with CreateTime.",
            "log.message.timestamp.before.max.ms",
        ),
        TopicSetting(
            "message.timestamp.difference.max.ms",
            whole(),
            _EVER,
            "The maximum difference between a record's timestamp and the broker's clock (until Kafka 4).",
            None,
            "message.timestamp.before.max.ms and message.timestamp.after.max.ms replace it",
        ),
        TopicSetting(
            "message.timestamp.type",
            text(*TIMESTAMP_TYPES),
            "CreateTime",
            "The source of timestamps: 'CreateTime', the producer, or 'LogAppendTime', the broker.",
            "log.message.timestamp.type",
        ),
        TopicSetting(
            "min.cleanable.dirty.ratio",
            number(0.0, 1.0),
            "0.5",
            "The minimum ratio of the uncompacted part of a compacted log before it is compacted again.",
            "log.cleaner.min.cleanable.ratio",
        ),
        TopicSetting(
            "min.compaction.lag.ms",
            whole(),
            "0",
            "The minimum time for which a record remains uncompacted.",
            "log.cleaner.min.compaction.lag.ms",
        ),
        TopicSetting(
            "min.insync.replicas",
            small(1),
            "1",
            "The minimum number of in-sync replicas for acks=all; with fewer, produce requests get an error.",
            "min.insync.replicas",
        ),
        TopicSetting(
            "preallocate",
            FLAG,
            "false",
            "Whether the disk space of a new segment is allocated when it is created.",
            "log.preallocate",
            "space is allocated when data is written",
        ),
        TopicSetting(
            "remote.log.copy.disable",
            FLAG,
            "false",
            "Whether segments are no longer copied to tiered storage.",
            None,
            _NO_TIERED_STORAGE,
        ),
        TopicSetting(
            "remote.log.delete.on.disable",
            FLAG,
            "false",
            "Whether data in tiered storage is deleted when tiered storage is disabled.",
            None,
            _NO_TIERED_STORAGE,
        ),
        TopicSetting(
            REMOTE_STORAGE,
            FLAG,
            "false",
            "Whether tiered storage is enabled. Only false is supported.",
            None,
            _NO_TIERED_STORAGE,
        ),
        TopicSetting(
            "retention.bytes",
            whole(-1),
            "-1",
            "The maximum size of a partition; the oldest segments of a larger one are deleted. -1: no limit.",
            "log.retention.bytes",
        ),
        TopicSetting(
            "retention.ms",
            whole(-1),
            _WEEK_MS,
            "The maximum age of records: a segment is deleted when its newest record is older. -1: no limit.",
            "log.retention.ms",
        ),
        TopicSetting(
            "segment.bytes",
            small(14),
            str(1024**3),
            "The maximum size of a segment; a new segment is started before a larger one would result.",
            "log.segment.bytes",
        ),
        TopicSetting(
            "segment.index.bytes",
            small(8),
            str(10 * 1024**2),
            "The size of an offset index at which its segment is closed and a new one is started.",
            "log.index.size.max.bytes",
        ),
        TopicSetting(
            "segment.jitter.ms",
            whole(),
            "0",
            "The maximum time by which segments are closed before segment.ms, so that not all are closed at once.",
            "log.roll.jitter.ms",
            "each segment is closed by an append, at its own time",
        ),
        TopicSetting(
            "segment.ms",
            whole(1),
            _WEEK_MS,
            "The time after which a segment is closed even if it is not full, so that retention can delete it.",
            "log.roll.ms",
        ),
        TopicSetting(
            "unclean.leader.election.enable",
            FLAG,
            "false",
            "Whether a replica that lacks messages may become leader if no other replica can.",
            "unclean.leader.election.enable",
        ),
    )
}
"""All topic settings, by name."""

OF_LOGS = frozenset(field.name.replace("_", ".") for field in fields(LogConfig) if field.init)
"""The names of the settings that are passed to logs."""


def check_value(name: str, value: str) -> None:
    """Check the value of a topic setting.

    :raises ConfigurationError: the value is invalid.
    """
    TOPIC_SETTINGS[name].rule.check(name, value)
    check_supported(name, value)


def check_supported(name: str, value: str) -> None:
    """Check that this broker supports a valid value.

    :raises ConfigurationError: the value requires a Kafka feature that this broker does not have.
    """
    if name == REMOTE_STORAGE and value.strip().lower() == "true":
        raise ConfigurationError(f"{name} is 'true'; {_NO_TIERED_STORAGE}")
