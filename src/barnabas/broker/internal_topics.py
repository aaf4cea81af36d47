"""The brokers' own topics: clients see and read them, and change little of them.

Clients lose committed offsets when somebody changes `__consumer_offsets`: `cleanup.policy=delete` deletes offsets,
`max.message.bytes=1` refuses commits. So this module has one table of internal topics and one allow-list of settings.
Every way to a topic's configuration passes it:

- requests that create a topic or change its settings (`check_settings`): other settings are refused;
- settings that are in force (`config_in_force`): other settings that another broker or a tool wrote into the metadata
  tree are ignored and logged. Defaults of the broker that would ruin the topic are bounded.

Requests that write, delete or add partitions are refused as a whole (`check_not_internal`). Pure.
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
"""Groups, and the offsets that they commit."""

TRANSACTION_STATE = "__transaction_state"
"""Transactions, in Kafka. Nothing here uses it yet."""

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""The names that Kafka keeps to itself."""

_MADE_HERE = frozenset({CONSUMER_OFFSETS})

_HOURS_MS = 3_600_000
_SEGMENT_BYTES_MIN = 1_048_576
_MESSAGE_BYTES_MIN = 1_048_588
"""Kafka's default of `message.max.bytes`: a group of some hundred members fits."""
_FLUSH_MS_MAX = 1000
"""Commits wait for a flush where the brokers have a flush policy, and not for the next million of messages."""

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
"""The same for every internal topic, whatever topic and broker say."""

log = logging.getLogger(__name__)


def check_not_internal(name: str, what: str) -> None:
    """Refuse what a client wants to do to a topic of the brokers.

    :param what: "cannot be deleted", for instance.
    :raises ApiError: INVALID_TOPIC_EXCEPTION.
    """
    if name in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is the brokers' own, and {what}")


def check_creation(name: str, config: BrokerConfig, replication_factor: int, broker_count: int) -> None:
    """Check that an internal topic is not created for a service that is not there, nor with fewer replicas than the
    brokers would give it.

    :raises ApiError: INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR.
    """
    if name not in INTERNAL_TOPICS:
        return
    if name not in _MADE_HERE:
        check_not_internal(name, "is not created: nothing here uses it")
    least = min(config.offsets_topic_replication_factor, broker_count)
    if replication_factor < least:
        message = (
            f"topic {name} has {least} replicas or more (offsets.topic.replication.factor), not {replication_factor}"
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def check_settings(
    name: str,
    config: BrokerConfig,
    before: Mapping[str, str],
    after: Mapping[str, str | None],
    replication_factor: int,
) -> None:
    """Check that a change of a topic's own settings keeps an internal topic usable.

    :param before: its own settings; none for a new topic.
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
            message = f"{setting} of the internal topic {name} cannot be changed to {value!r}; these can: {names}"
            raise ApiError(ErrorCode.INVALID_CONFIG, message)
        try:
            rules[setting].check(setting, value)
        except ConfigurationError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"internal topic {name}: {error}") from None


def config_in_force(
    config: BrokerConfig, name: str, settings: Mapping[str, str | None], replication_factor: int
) -> TopicConfig:
    """Return what the settings of a topic come to.

    :raises ApiError: INVALID_CONFIG for an unknown name or a wrong value; never for an internal topic.
    """
    return topic_config(config, settings_in_force(config, name, settings, replication_factor))


def settings_in_force(
    config: BrokerConfig, name: str, settings: Mapping[str, str | None], replication_factor: int
) -> Mapping[str, str | None]:
    """Return a topic's own settings as they count: of an internal topic, those that it can have, and those that are
    fixed or bounded."""
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
    """Return settings as they are written into the metadata tree: brokers of release 0.1 need the policy there."""
    return {**settings, CLEANUP_POLICY: _FIXED[CLEANUP_POLICY]} if name in INTERNAL_TOPICS else settings


def log_ignored(config: BrokerConfig, name: str, settings: Mapping[str, str]) -> None:
    """Log which settings of an internal topic somebody wrote into the metadata tree in vain."""
    if name not in INTERNAL_TOPICS:
        return
    rules = _changeable(config, INT_MAX)
    ignored = [
        f"{each}={value}"
        for each, value in sorted(settings.items())
        if value != _FIXED.get(each) and not _fits(rules.get(each), each, value)
    ]
    if ignored:
        log.warning("ignoring settings of the internal topic %s in the metadata tree: %s", name, ", ".join(ignored))


def replication_factor_of(partitions: Iterable[PartitionInfo]) -> int:
    """Return how many replicas each partition has at least."""
    return min((len(each.replicas) for each in partitions), default=1)


def _changeable(config: BrokerConfig, replication_factor: int) -> dict[str, Rule]:
    """Return the allow-list: the settings of internal topics that clients can change, with their values."""
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
