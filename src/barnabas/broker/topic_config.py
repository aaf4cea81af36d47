"""Topic names and topic settings: what CreateTopics may ask for, and what it means to a log."""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.broker.config import BrokerConfig
from barnabas.errors import ConfigurationError, ErrorCode, KafkaError
from barnabas.storage.config import LogConfig

TOPIC_NAME_CHARACTERS_MAX = 249
"""The longest name whose partition folders still fit a file name, as in Kafka."""

NOT_APPLIED = frozenset({"retention.ms", "retention.bytes", "flush.messages", "flush.ms"})
"""Settings that logs know and that nothing acts upon yet: refused, so that nobody relies on them."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Check that a topic may have this name.

    :raises KafkaError: INVALID_TOPIC_EXCEPTION, with what is wrong with it.
    """
    if not name:
        problem = "it is empty"
    elif name in {".", ".."}:
        problem = "it is a folder's"
    elif len(name) > TOPIC_NAME_CHARACTERS_MAX:
        problem = f"it has {len(name)} characters, and {TOPIC_NAME_CHARACTERS_MAX} are allowed"
    elif not _TOPIC_NAME.fullmatch(name):
        problem = "it may have letters, digits, '.', '_' and '-' only"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r}: {problem}")


def default_log_config(config: BrokerConfig) -> LogConfig:
    """Return what a topic without settings of its own gets."""
    return LogConfig(
        segment_bytes=config.log_segment_bytes,
        index_interval_bytes=config.log_index_interval_bytes,
        max_message_bytes=config.message_max_bytes,
    )


def topic_log_config(config: BrokerConfig, settings: Mapping[str, str | None]) -> LogConfig:
    """Return the log settings of a topic: the broker's, changed by the topic's own.

    :raises KafkaError: INVALID_CONFIG for a name that is not known or not supported, or a value that is wrong.
    """
    for name in settings:
        if name in NOT_APPLIED:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"topic setting {name} is not supported yet")
    try:
        return default_log_config(config).override(settings)
    except ConfigurationError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
