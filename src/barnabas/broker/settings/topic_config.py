"""What the settings of a topic come to: its own, over those of the broker."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_table import (
    OF_LOGS,
    PRODUCER_COMPRESSION,
    TOPIC_SETTINGS,
    VALUE_SCHEMA_VALIDATION,
    check_value,
)
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.records import Compression
from barnabas.replication.quota import NONE_THROTTLED, ThrottledReplicas
from barnabas.storage.log_config import LogConfig

_LOG_FIELDS = {
    setting.name.replace(".", "_"): setting.broker_setting.replace(".", "_")
    for setting in TOPIC_SETTINGS.values()
    if setting.name in OF_LOGS and setting.broker_setting
}
"""The fields of `LogConfig` that have a default of the broker, with the field of `BrokerConfig`."""
_LOG_TEXTS = ("cleanup_policy", "message_timestamp_type")
"""The fields of `LogConfig` whose defaults are texts."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic, its own and the broker's, as they are in force."""

    log: LogConfig
    compression: Compression | None
    """How batches are stored; None: as their producers compressed them."""
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    leader_throttled: ThrottledReplicas = NONE_THROTTLED
    """Whose followers may be held back."""
    follower_throttled: ThrottledReplicas = NONE_THROTTLED
    """Which replicas may be held back as followers."""
    value_schemas: str | None = None
    """Where the registry is whose schemas values must have, empty if that is not known; None: values may be any."""


def default_log_config(config: BrokerConfig) -> LogConfig:
    """Return what a topic without settings of its own gets.

    :raises ConfigurationError: a log cannot have one of these settings.
    """
    defaults = {log_field: getattr(config, broker_field) for log_field, broker_field in _LOG_FIELDS.items()}
    texts = {log_field.replace("_", "."): defaults.pop(log_field) for log_field in _LOG_TEXTS}
    return LogConfig(**defaults).override(texts)


def topic_config(config: BrokerConfig, settings: Mapping[str, str | None]) -> TopicConfig:
    """Return the settings of a topic: the broker's, changed by the topic's own.

    :raises ApiError: INVALID_CONFIG for a name that is not known or a value that is wrong.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    try:
        for name, value in given.items():
            _check_name(name)
            check_value(name, value)
        _check_lags(given)
        log = default_log_config(config).override({name: value for name, value in given.items() if name in OF_LOGS})
    except ConfigurationError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    compression = given.get("compression.type", config.compression_type)
    return TopicConfig(
        log=log,
        compression=None if compression == PRODUCER_COMPRESSION else _COMPRESSIONS[compression],
        min_insync_replicas=int(given.get("min.insync.replicas", config.min_insync_replicas)),
        unclean_leader_election_enable=is_unclean_election_allowed(config, given),
        leader_throttled=ThrottledReplicas.parse(given.get("leader.replication.throttled.replicas", "")),
        follower_throttled=ThrottledReplicas.parse(given.get("follower.replication.throttled.replicas", "")),
        value_schemas=config.schema_registry_url if _flag(given, VALUE_SCHEMA_VALIDATION, False) else None,
    )


DECIDE_ON_DELETION = frozenset(
    {"retention.ms", "retention.bytes", "cleanup.policy", "min.compaction.lag.ms", "delete.retention.ms"}
)
KEEP_RECORDS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""The settings of a topic whose own cannot be read: nothing says that its records may be deleted."""


def usable_settings(config: BrokerConfig, settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings of a topic that it can have, and what is wrong with the others.

    Where one of the others decides which records are deleted, the topic keeps all of them.
    """
    try:
        topic_config(config, settings)
    except ApiError:
        pass
    else:
        return dict(settings), []
    usable: dict[str, str] = {}
    problems = []
    for name, value in settings.items():
        try:
            topic_config(config, {**usable, name: value})
        except ApiError as error:
            problems.append(error.reason)
        else:
            usable[name] = value
    if DECIDE_ON_DELETION & (settings.keys() - usable.keys()):
        usable |= KEEP_RECORDS
    return usable, problems


def is_unclean_election_allowed(config: BrokerConfig, settings: Mapping[str, str | None]) -> bool:
    """Whether a topic whose settings are valid may be led by a replica that was not in sync: a broker asks this of each
    partition whenever leaders may have changed."""
    return _flag(settings, "unclean.leader.election.enable", config.unclean_leader_election_enable)


def _flag(given: Mapping[str, str | None], name: str, default: bool) -> bool:
    value = given.get(name)
    return default if value is None else value.lower() == "true"


_COMPRESSIONS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def _check_lags(settings: Mapping[str, str]) -> None:
    names = "min.compaction.lag.ms", "max.compaction.lag.ms"
    least, greatest = (int(settings.get(name, TOPIC_SETTINGS[name].default)) for name in names)
    if least > greatest:
        raise ConfigurationError(f"{names[0]} is {least}, and must not be greater than {names[1]}, which is {greatest}")


def _check_name(name: str) -> None:
    if name not in TOPIC_SETTINGS:
        near = difflib.get_close_matches(name, TOPIC_SETTINGS, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(TOPIC_SETTINGS))}"
        raise ConfigurationError(f"there is no topic setting {name!r}; {hint}")
