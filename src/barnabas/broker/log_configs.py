"""The settings of the logs of topics: needed before the logs are opened, and so before the topics are known."""

from __future__ import annotations

from barnabas.broker.internal_topics import INTERNAL_TOPICS, config_in_force, replication_factor_of
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import KEEP_RECORDS, usable_settings
from barnabas.coordination import topic_metadata_store
from barnabas.coordination.metadata_store import MetadataStore, NodeError
from barnabas.storage.log_config import LogConfig


def log_configs(tree: MetadataStore, config: BrokerConfig) -> dict[str, LogConfig]:
    """Return the settings of the logs of topics that have settings of their own, by topic.

    Topics are left out of which the tree says what cannot be understood; `Topics.load` tells of them.
    """
    configs = {}
    for name, info in topic_metadata_store.each_topic(tree):
        if isinstance(info, NodeError):
            continue
        settings = KEEP_RECORDS if info.has_unreadable_config else usable_settings(config, info.config)[0]
        if settings or name in INTERNAL_TOPICS:
            configs[name] = config_in_force(config, name, settings, replication_factor_of(info.partitions)).log
    return configs
