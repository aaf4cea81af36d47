"""The effective settings of a topic. Topic settings override the broker's defaults."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from barnabas.serialization.registry_settings import RegistrySettings

_LOG_FIELDS = {
    setting.name.replace(".", "_"): setting.broker_setting.replace(".", "_")
    for setting in TOPIC_SETTINGS.values()
    if setting.name in OF_LOGS and setting.broker_setting
}
"""The fields of `LogConfig` that have a broker default, with the corresponding fields of `BrokerConfig`."""
_LOG_TEXTS = ("cleanup_policy", "message_timestamp_type")
"""The fields of `LogConfig` whose string values must be parsed."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective settings of a topic."""

    log: LogConfig
    compression: Compression | None
    """The compression type of stored batches, or None to keep the producer's compression."""
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    leader_throttled: ThrottledReplicas = NONE_THROTTLED
    """The replicas whose followers are throttled while they lead, from `leader.replication.throttled.replicas`."""
    follower_throttled: ThrottledReplicas = NONE_THROTTLED
    """The replicas that are throttled while they follow, from `follower.replication.throttled.replicas`."""
    value_schemas: RegistrySettings | None = None
    """The schema registry for the validation of values, with an empty URL if none is set.

    None if values are not validated.
    """


def default_log_config(config: BrokerConfig) -> LogConfig:
    """Return the log settings of a topic that overrides no settings.

    :raises ConfigurationError: a setting is invalid for a log.
    """
    defaults = {log_field: getattr(config, broker_field) for log_field, broker_field in _LOG_FIELDS.items()}
    texts = {log_field.replace("_", "."): defaults.pop(log_field) for log_field in _LOG_TEXTS}
    return LogConfig(**defaults).override(texts)


def topic_config(config: BrokerConfig, settings: Mapping[str, str | None]) -> TopicConfig:
    """Return the effective settings of a topic.

    :raises ApiError: INVALID_CONFIG for an unknown name or an invalid value.
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
        value_schemas=_registry(config) if _flag(given, VALUE_SCHEMA_VALIDATION, False) else None,
    )


def _registry(config: BrokerConfig) -> RegistrySettings:
    # Imported here because few topics validate values.
    from barnabas.serialization.registry_settings import RegistrySettings  # noqa: PLC0415

    return RegistrySettings(
        config.schema_registry_url,
        config.schema_registry_username or None,
        config.schema_registry_password if config.schema_registry_username else None,
        ssl_cafile=config.schema_registry_ssl_truststore_location or None,
    )


DECIDE_ON_DELETION = frozenset(
    {"retention.ms", "retention.bytes", "cleanup.policy", "min.compaction.lag.ms", "delete.retention.ms"}
)
KEEP_RECORDS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""The settings that replace unreadable topic settings. No record may be deleted while the settings are unknown."""


def usable_settings(config: BrokerConfig, settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the valid settings of a topic, and the problems with invalid settings.

    If an invalid setting controls the deletion of records, the topic keeps all records.
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
    """Return whether an out-of-sync replica may become leader of a partition (`unclean.leader.election.enable`).

    This is a separate function, because the broker needs only this setting for each partition after leader changes.
    """
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
        raise ConfigurationError(f"{names[0]} is {least}; it must not be greater than {names[1]}, which is {greatest}")


def _check_name(name: str) -> None:
    if name not in TOPIC_SETTINGS:
        near = difflib.get_close_matches(name, TOPIC_SETTINGS, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else f"the topic settings are {', '.join(sorted(TOPIC_SETTINGS))}"
        raise ConfigurationError(f"unknown topic setting {name!r}; {hint}")
