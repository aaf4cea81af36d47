"""The rules for internal topics such as `__consumer_offsets`.

Clients can read these topics, and can change only a few settings.

A wrong setting of `__consumer_offsets` can lose committed offsets: `cleanup.policy=delete` deletes offsets, and
`max.message.bytes=1` rejects commits. This module therefore contains the list of internal topics and an allow-list of
their settings. All code that reads or changes a topic's settings uses this module:

- `check_settings` rejects other settings in requests that create a topic or change its settings.
- `config_in_force` ignores other settings that another broker or a tool wrote into the metadata store, and
  `log_ignored` logs them. `config_in_force` also limits broker defaults that would break the topic.

`check_not_internal` rejects requests that write to these topics, delete them or add partitions. The module does no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from barnabas.broker.settings.rules import INT_MAX, LONG_MAX, Rule, number, small, whole
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import TopicConfig, topic_config
from barnabas.broker.settings.topic_table import CLEANUP_POLICY, TOPIC_SETTINGS, VALUE_SCHEMA_VALIDATION
from barnabas.coordination.topic_metadata_store import PartitionInfo
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.storage.log_config import NEVER

CONSUMER_OFFSETS = "__consumer_offsets"
"""The topic that stores consumer groups and their committed offsets."""

TRANSACTION_STATE = "__transaction_state"
"""The topic in which Kafka stores transactions. Barnabas does not use it yet."""

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""The topic names that Kafka reserves."""

_MADE_HERE = frozenset({CONSUMER_OFFSETS})

_HOURS_MS = 3_600_000
_SEGMENT_BYTES_MIN = 1_048_576
_MESSAGE_BYTES_MIN = 1_048_588
"""Kafka's default of `message.max.bytes`. The record of a group with a few hundred members fits."""
_FLUSH_MS_MAX = 1000
"""The maximum of `flush.ms` for internal topics if the broker has a flush policy.

A longer interval would delay offset commits, which wait for flushes.
"""

_FIXED = {
    CLEANUP_POLICY: "compact",
    "delete.retention.ms": str(24 * _HOURS_MS),
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": str(LONG_MAX),
    "message.timestamp.after.max.ms": str(LONG_MAX),
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.type": "CreateTime",
    "min.compaction.lag.ms": "0",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "segment.index.bytes": str(10 * 1024 * 1024),
    "segment.ms": str(7 * 24 * _HOURS_MS),
    VALUE_SCHEMA_VALIDATION: "false",
}
"""The settings of each internal topic that topic and broker settings do not change."""

log = logging.getLogger(__name__)


def check_not_internal(name: str, what: str) -> None:
    """Reject a client's operation on an internal topic.

    :param what: the end of the error message, for example "it cannot be deleted".
    :raises ApiError: INVALID_TOPIC_EXCEPTION.
    """
    if name in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is an internal topic; {what}")


def check_creation(name: str, config: BrokerConfig, replication_factor: int, broker_count: int) -> None:
    """Check a request that creates an internal topic.

    Barnabas must use the topic, and the topic must have enough replicas.

    :raises ApiError: INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR.
    """
    if name not in INTERNAL_TOPICS:
        return
    if name not in _MADE_HERE:
        check_not_internal(name, "it cannot be created, because Barnabas does not use it")
    least = min(config.offsets_topic_replication_factor, broker_count)
    if replication_factor < least:
        message = (
            f"topic {name} needs at least {least} replicas (offsets.topic.replication.factor), not {replication_factor}"
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def check_settings(
    name: str,
    config: BrokerConfig,
    before: Mapping[str, str],
    after: Mapping[str, str | None],
    replication_factor: int,
) -> None:
    """Check that changed topic settings keep an internal topic usable.

    :param before: the topic's current settings. Empty for a new topic.
    :raises ApiError: INVALID_CONFIG.
    """
    if name not in INTERNAL_TOPICS:
        return
    rules = _changeable(config, replication_factor)
    for setting, value in after.items():
        if value is None or value == before.get(setting) or value == _FIXED.get(setting):
            continue
        if setting not in rules:
            names = ", ".join(sorted(rules))
            message = (
                f"{setting} of the internal topic {name} cannot be changed to {value!r}; changeable settings: {names}"
            )
            raise ApiError(ErrorCode.INVALID_CONFIG, message)
        try:
            rules[setting].check(setting, value)
        except ConfigurationError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"internal topic {name}: {error}") from None


def config_in_force(
    config: BrokerConfig, name: str, settings: Mapping[str, str | None], replication_factor: int
) -> TopicConfig:
    """Return the effective settings of a topic.

    :raises ApiError: INVALID_CONFIG for an unknown name or an invalid value. Internal topics never raise it.
    """
    return topic_config(config, settings_in_force(config, name, settings, replication_factor))


def settings_in_force(
    config: BrokerConfig, name: str, settings: Mapping[str, str | None], replication_factor: int
) -> Mapping[str, str | None]:
    """Return the topic settings that are in force.

    For an internal topic, these are the allowed, fixed and limited settings.
    """
    if name not in INTERNAL_TOPICS:
        return settings
    rules = _changeable(config, INT_MAX)
    own = {each: value for each, value in settings.items() if value is not None and _fits(rules.get(each), each, value)}
    in_sync = int(own.get("min.insync.replicas", config.min_insync_replicas))
    has_flush_policy = config.log_flush_interval_ms != NEVER or config.log_flush_interval_messages != NEVER
    flush = {"flush.ms": str(min(config.log_flush_interval_ms, _FLUSH_MS_MAX))} if has_flush_policy else {}
    return {
        "max.message.bytes": str(max(config.message_max_bytes, _MESSAGE_BYTES_MIN)),
        "segment.bytes": str(config.offsets_topic_segment_bytes),
        "min.cleanable.dirty.ratio": TOPIC_SETTINGS["min.cleanable.dirty.ratio"].default,
        **own,
        **_FIXED,
        **flush,
        "min.insync.replicas": str(max(1, min(in_sync, replication_factor))),
    }


def settings_to_keep(name: str, settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the topic settings to write into the metadata store.

    For an internal topic, brokers of release 0.1 need the cleanup policy in the metadata store.
    """
    return {**settings, CLEANUP_POLICY: _FIXED[CLEANUP_POLICY]} if name in INTERNAL_TOPICS else settings


def log_ignored(config: BrokerConfig, name: str, settings: Mapping[str, str]) -> None:
    """Log the settings in the metadata store that this broker ignores for an internal topic."""
    if name not in INTERNAL_TOPICS:
        return
    rules = _changeable(config, INT_MAX)
    ignored = [
        f"{each}={value}"
        for each, value in sorted(settings.items())
        if value != _FIXED.get(each) and not _fits(rules.get(each), each, value)
    ]
    if ignored:
        log.warning("ignoring settings of the internal topic %s in the metadata store: %s", name, ", ".join(ignored))


def replication_factor_of(partitions: Iterable[PartitionInfo]) -> int:
    """Return the replication factor: the lowest number of replicas of any partition."""
    return min((len(each.replicas) for each in partitions), default=1)


def _changeable(config: BrokerConfig, replication_factor: int) -> dict[str, Rule]:
    """Return the allow-list: the settings that clients can change for internal topics, with rules for valid values."""
    return {
        "compression.type": TOPIC_SETTINGS["compression.type"].rule,
        "flush.messages": whole(1, 1),
        "follower.replication.throttled.replicas": TOPIC_SETTINGS["follower.replication.throttled.replicas"].rule,
        "leader.replication.throttled.replicas": TOPIC_SETTINGS["leader.replication.throttled.replicas"].rule,
        "max.message.bytes": small(_MESSAGE_BYTES_MIN),
        "min.cleanable.dirty.ratio": number(0.0, 0.9),
        "min.insync.replicas": small(1, replication_factor),
        "segment.bytes": small(min(_SEGMENT_BYTES_MIN, config.offsets_topic_segment_bytes)),
    }


def _fits(rule: Rule | None, name: str, value: str) -> bool:
    if rule is None:
        return False
    try:
        rule.check(name, value)
    except ConfigurationError:
        return False
    return True


def partition_count(name: str, config: BrokerConfig) -> int:
    """Return the default number of partitions of a new topic."""
    return config.offsets_topic_num_partitions if name == CONSUMER_OFFSETS else config.num_partitions


def replication_factor(name: str, config: BrokerConfig, broker_count: int) -> int:
    """Return the default number of replicas of a new topic.

    In a cluster, an internal topic always gets the configured number. While the cluster starts, its creation fails
    until enough brokers have registered. Otherwise, the topic would keep too few replicas. A standalone broker uses 1.
    """
    if name == CONSUMER_OFFSETS:
        wanted = config.offsets_topic_replication_factor
        return wanted if config.zookeeper_connect else min(wanted, broker_count)
    return config.default_replication_factor


def settings_of(name: str, config: BrokerConfig) -> dict[str, str | None]:
    """Return the default settings of a new topic. Only internal topics have default settings."""
    if name != CONSUMER_OFFSETS:
        return {}
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
