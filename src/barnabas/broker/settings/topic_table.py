"""The settings that a topic can have: all of Kafka 4's and 3's, what each means, and what is told of it.

One table for CreateTopics, DescribeConfigs, AlterConfigs and docs/reference/settings.md alike. What a value does is up
to
the log (`barnabas.storage.log_config`) or to the produce handler. Some of Kafka's settings have no effect here: they
are checked, kept and shown, so that tools that set them work, and their documentation says so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from barnabas.broker.settings.rules import FLAG, LONG_MAX, ConfigType, Rule, items, number, small, text, whole
from barnabas.errors import ConfigurationError
from barnabas.storage.log_config import LogConfig

PRODUCER_COMPRESSION = "producer"
"""`compression.type` of a topic that keeps batches as their producers compressed them."""

COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", PRODUCER_COMPRESSION)

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

CLEANUP_POLICY, REMOTE_STORAGE = "cleanup.policy", "remote.storage.enable"

VALUE_SCHEMA_VALIDATION = "barnabas.value.schema.validation"

_REPLICA_LIST = r"(|\*|[0-9]+:[0-9]+)"
_ONE_FORMAT = "record batches (format 2) are stored as they come"
_NO_TIERED_STORAGE = "there is no tiered storage"


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One setting of a topic.

    `default` is its value where neither the topic nor the broker says another; `broker_setting` names the setting of
    the broker that goes before it, if there is one. `no_effect` says why its value changes nothing, if it does not.
    """

    name: str
    rule: Rule
    default: str
    about: str
    broker_setting: str | None = None
    no_effect: str | None = None

    @property
    def documentation(self) -> str:
        return self.about if self.no_effect is None else f"{self.about} Kept without effect: {self.no_effect}."


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
            "Whether only values are taken that begin with the id of a schema of the subject TOPIC-value, in the"
            " registry at the brokers' schema.registry.url. No setting of Kafka's.",
        ),
        TopicSetting(
            CLEANUP_POLICY,
            items("delete", "compact"),
            "delete",
            "What becomes of old records. 'delete': segments go when retention.ms or retention.bytes says so."
            " 'compact': the last record of each key stays, and those before it go. 'compact,delete': both."
            " Empty: all records stay.",
            "log.cleanup.policy",
        ),
        TopicSetting(
            "compression.gzip.level",
            small(-1, 9),
            "-1",
            "The level of gzip where compression.type is 'gzip'.",
            "compression.gzip.level",
            "each method has one level",
        ),
        TopicSetting(
            "compression.lz4.level",
            small(1, 17),
            "9",
            "The level of lz4 where compression.type is 'lz4'.",
            "compression.lz4.level",
            "each method has one level",
        ),
        TopicSetting(
            "compression.type",
            text(*COMPRESSION_TYPES),
            PRODUCER_COMPRESSION,
            "How batches are stored: 'producer' keeps each as its producer compressed it; 'uncompressed', 'gzip',"
            " 'snappy', 'lz4' or 'zstd' compresses all of them so.",
            "compression.type",
        ),
        TopicSetting(
            "compression.zstd.level",
            small(-131072, 22),
            "3",
            "The level of zstd where compression.type is 'zstd'.",
            "compression.zstd.level",
            "each method has one level",
        ),
        TopicSetting(
            "delete.retention.ms",
            whole(),
            _DAY_MS,
            "How long a compacted log keeps a tombstone (a record without a value) after it was first compacted.",
            "log.cleaner.delete.retention.ms",
        ),
        TopicSetting(
            "file.delete.delay.ms",
            whole(),
            "60000",
            "How long the files of deleted segments stay.",
            "file.delete.delay.ms",
            "the broker's setting of this name holds for all topics",
        ),
        TopicSetting(
            "flush.messages",
            whole(1),
            _EVER,
            "After so many messages a log is flushed to the disk; messages are exposed to consumers only after it.",
            "log.flush.interval.messages",
        ),
        TopicSetting(
            "flush.ms",
            whole(),
            _EVER,
            "After so many milliseconds what was appended is flushed to the disk; messages are exposed to consumers"
            " only after it.",
            "log.flush.interval.ms",
        ),
        TopicSetting(
            "follower.replication.throttled.replicas",
            items(pattern=_REPLICA_LIST),
            "",
            "Replicas, as partition:broker, or * for all, that fetch no faster than"
            " follower.replication.throttled.rate of their brokers while they are not in sync.",
        ),
        TopicSetting(
            "index.interval.bytes",
            small(),
            "4096",
            "Bytes of batches between two entries of the sparse indexes.",
            "log.index.interval.bytes",
        ),
        TopicSetting(
            "leader.replication.throttled.replicas",
            items(pattern=_REPLICA_LIST),
            "",
            "Leaders, as partition:broker, or * for all, that give their followers no more than"
            " leader.replication.throttled.rate of their brokers while those are not in sync.",
        ),
        TopicSetting(
            "local.retention.bytes",
            whole(-2),
            "-2",
            "How large a log is on the broker's own disk before tiered storage holds the rest.",
            "log.local.retention.bytes",
            _NO_TIERED_STORAGE,
        ),
        TopicSetting(
            "local.retention.ms",
            whole(-2),
            "-2",
            "How long a segment is on the broker's own disk before tiered storage alone holds it.",
            "log.local.retention.ms",
            _NO_TIERED_STORAGE,
        ),
        TopicSetting(
            "max.compaction.lag.ms",
            whole(1),
            _EVER,
            "How long a record can wait for compaction.",
            "log.cleaner.max.compaction.lag.ms",
        ),
        TopicSetting(
            "max.message.bytes",
            small(),
            "1048588",
            "The largest record batch that is taken, after compression.",
            "message.max.bytes",
        ),
        TopicSetting(
            "message.downconversion.enable",
            FLAG,
            "true",
            "Whether readers of older message formats are served (until Kafka 4).",
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
            "How far ahead of the broker's clock a batch's timestamps may be, where they are the producer's.",
            "log.message.timestamp.after.max.ms",
        ),
        TopicSetting(
            "message.timestamp.before.max.ms",
            whole(),
            _EVER,
            "How far behind the broker's clock a batch's first timestamp may be, where it is the producer's.",
            "log.message.timestamp.before.max.ms",
        ),
        TopicSetting(
            "message.timestamp.difference.max.ms",
            whole(),
            _EVER,
            "How far a record's timestamp may be from the broker's clock (until Kafka 4).",
            None,
            "its place was taken by message.timestamp.before.max.ms and message.timestamp.after.max.ms",
        ),
        TopicSetting(
            "message.timestamp.type",
            text(*TIMESTAMP_TYPES),
            "CreateTime",
            "Whose clock the timestamps are of: 'CreateTime', the producer's, or 'LogAppendTime', the broker's.",
            "log.message.timestamp.type",
        ),
        TopicSetting(
            "min.cleanable.dirty.ratio",
            number(0.0, 1.0),
            "0.5",
            "How much of a compacted log was appended since it was compacted, before it is compacted again.",
            "log.cleaner.min.cleanable.ratio",
        ),
        TopicSetting(
            "min.compaction.lag.ms",
            whole(),
            "0",
            "How long a record stays before it can be compacted away.",
            "log.cleaner.min.compaction.lag.ms",
        ),
        TopicSetting(
            "min.insync.replicas",
            small(1),
            "1",
            "How many replicas must have a message before it is acknowledged to producers with acks=all.",
            "min.insync.replicas",
        ),
        TopicSetting(
            "preallocate",
            FLAG,
            "false",
            "Whether the disk space of a segment is taken when it is begun.",
            "log.preallocate",
            "space is taken as it is written to",
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
            "Whether what is in tiered storage goes when that is switched off.",
            None,
            _NO_TIERED_STORAGE,
        ),
        TopicSetting(
            REMOTE_STORAGE,
            FLAG,
            "false",
            "Whether segments go to tiered storage. It can only be false here.",
            None,
            _NO_TIERED_STORAGE,
        ),
        TopicSetting(
            "retention.bytes",
            whole(-1),
            "-1",
            "The oldest segments of a partition are deleted while it is larger than this; -1: no limit.",
            "log.retention.bytes",
        ),
        TopicSetting(
            "retention.ms",
            whole(-1),
            _WEEK_MS,
            "A segment is deleted when its newest record is older than this; -1: never.",
            "log.retention.ms",
        ),
        TopicSetting(
            "segment.bytes",
            small(14),
            str(1024**3),
            "A segment that would grow beyond this is closed and another one begun.",
            "log.segment.bytes",
        ),
        TopicSetting(
            "segment.index.bytes",
            small(8),
            str(10 * 1024**2),
            "A segment whose offset index has this size is closed.",
            "log.index.size.max.bytes",
        ),
        TopicSetting(
            "segment.jitter.ms",
            whole(),
            "0",
            "By how much segments may be closed before segment.ms, so that not all are closed at once.",
            "log.roll.jitter.ms",
            "segments are closed when something is appended, at times of their own",
        ),
        TopicSetting(
            "segment.ms",
            whole(1),
            _WEEK_MS,
            "A segment is closed after this time, even if it is not full, so that retention can reach it.",
            "log.roll.ms",
        ),
        TopicSetting(
            "unclean.leader.election.enable",
            FLAG,
            "false",
            "Whether a replica that lacks messages may lead when no other is left.",
            "unclean.leader.election.enable",
        ),
    )
}
"""Every setting that a topic can have, by its name."""

OF_LOGS = frozenset(field.name.replace("_", ".") for field in fields(LogConfig) if field.init)
"""Settings that each log is given."""


def check_value(name: str, value: str) -> None:
    """Check the value of a setting.

    :raises ConfigurationError: the setting cannot have this value.
    """
    TOPIC_SETTINGS[name].rule.check(name, value)
    check_supported(name, value)


def check_supported(name: str, value: str) -> None:
    """Check that a value of Kafka's that this broker cannot live up to is not asked for.

    :raises ConfigurationError: it is.
    """
    if name == REMOTE_STORAGE and value.strip().lower() == "true":
        raise ConfigurationError(f"{name} is 'true'; {_NO_TIERED_STORAGE} here")
