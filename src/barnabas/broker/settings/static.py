"""The settings of a broker that its file, the environment and flags can set: each declared once, in `BrokerConfig`.

A declaration has the default, the documentation, the valid values, whether the setting can be changed while the broker
runs, and Kafka's other names. Types, validation, the translation of Kafka's files, DescribeConfigs and
docs/reference/settings.md
derive from it. A setting that is the default of a topic setting refers to `TOPIC_SETTINGS` instead of repeating it.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from barnabas.addresses import PORT_MAX, bare_host, split_listener
from barnabas.broker.settings.rules import FLAG, INT_MAX, LONG_MAX, ConfigType, Rule, number, small, text, whole
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS
from barnabas.coordination.fields import BROKER_ID_MAX, HOST_CHARACTERS_MAX, TEXT_BYTES_MAX, is_text, shown
from barnabas.errors import ConfigurationError

T = TypeVar("T", bool, int, float, str)

BUFFER_BYTES_PER_THREAD_MIN = 1024 * 1024
"""The bytes of `log.cleaner.dedupe.buffer.size` that each thread needs."""

TELEMETRY_BYTES_MAX = 4 * 1024 * 1024
"""The largest value of `telemetry.max.bytes`."""

_RACK_AWARE = "RackAwareReplicaSelector"
_JAVA_PACKAGE = "org.apache.kafka.common.replica."
RACK_AWARE_SELECTORS = frozenset({_RACK_AWARE, _JAVA_PACKAGE + _RACK_AWARE})
REPLICA_SELECTORS = RACK_AWARE_SELECTORS | {"", "LeaderSelector", _JAVA_PACKAGE + "LeaderSelector"}


def dotted(field: str) -> str:
    """Return the name of the setting of a field: `num.partitions` for `num_partitions`."""
    return field.replace("_", ".")


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """The declaration of a setting of a broker."""

    default: bool | int | float | str
    about: str
    """The documentation."""
    rule: Rule
    is_dynamic: bool = False
    """True if it can be changed while the broker runs."""
    kafka_names: tuple[str, ...] = ()
    """Names that Kafka has, or had, for the same setting."""
    is_host: bool = False
    """True if the value is a host; an IPv6 address may be in brackets."""


_RULES: dict[type, Rule] = {bool: FLAG, int: whole(), float: number(), str: text()}
"""The rules of settings whose declaration has none, by the type of the default."""


def setting(
    default: T,
    about: str,
    rule: Rule | None = None,
    *,
    is_dynamic: bool = False,
    kafka_names: tuple[str, ...] = (),
    is_host: bool = False,
) -> T:
    """Declare a setting of a broker; see `BrokerSetting`."""
    declaration = BrokerSetting(default, about, rule or _RULES[type(default)], is_dynamic, kafka_names, is_host=is_host)
    field: T = _declared(declaration)
    return field


def topic_default(name: str, about: str = "") -> Any:
    """Declare a setting of a broker that is the default of a topic setting: with its default and its valid values.

    :param about: documentation besides the name of the topic setting.
    """
    of_topics = TOPIC_SETTINGS[name]
    documentation = " ".join(filter(None, (f"The topics' default of {name}.", about)))
    return _declared(
        BrokerSetting(_PARSERS[of_topics.rule.kind](of_topics.default), documentation, of_topics.rule, True)
    )


def _declared(declaration: BrokerSetting) -> Any:
    return dataclasses.field(default=declaration.default, metadata={BrokerSetting: declaration})


def parse_flag(value: str) -> bool:
    """Return the value of a flag, whose rule has checked the text."""
    return value.strip().lower() == "true"


_PARSERS: dict[ConfigType, Any] = {
    ConfigType.BOOLEAN: parse_flag,
    ConfigType.INT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.STRING: str,
    ConfigType.LIST: str,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The settings of one broker. A field `num_partitions` is the setting `num.partitions`."""

    host: str = setting(
        "127.0.0.1",
        "The address to listen on; 0.0.0.0 for all.",
        kafka_names=("host.name",),
        is_host=True,
    )
    port: int = setting(9092, "The port to listen on; 0 for a free one.")
    advertised_host: str = setting(
        "",
        "The host that clients are told; unset, the address at which they reached the broker.",
        kafka_names=("advertised.host.name",),
        is_host=True,
    )
    advertised_port: int = setting(0, "The port that clients are told; unset, the one that is listened on.")
    data: str = setting("barnabas-data", "The folder of the log and of the tree.")
    log_dirs: str = setting(
        "",
        "Folders of the log, with commas between them, on disks of their own; the tree is in the first one. Empty:"
        " the one of data.",
        kafka_names=("log.dir",),
    )
    broker_id: int = setting(0, "The number of this broker.", kafka_names=("node.id",))
    auto_create_topics_enable: bool = setting(
        True,
        "Whether a topic that a client asks for and that does not exist is made.",
    )
    delete_topic_enable: bool = setting(True, "Whether clients can delete topics.", FLAG, is_dynamic=True)
    num_partitions: int = setting(1, "How many partitions a topic gets that is made without saying.", whole(1))
    schema_registry_url: str = setting(
        "",
        "Where the schema registry is, for topics with barnabas.value.schema.validation: a url, or several with"
        " commas.",
    )
    min_insync_replicas: int = topic_default("min.insync.replicas")
    message_max_bytes: int = topic_default("max.message.bytes")
    log_segment_bytes: int = topic_default("segment.bytes")
    compression_type: str = topic_default("compression.type")
    log_roll_ms: int = topic_default("segment.ms")
    log_index_interval_bytes: int = topic_default("index.interval.bytes")
    log_index_size_max_bytes: int = topic_default("segment.index.bytes")
    log_flush_interval_messages: int = topic_default("flush.messages")
    log_flush_interval_ms: int = topic_default("flush.ms")
    log_message_timestamp_type: str = topic_default("message.timestamp.type")
    log_message_timestamp_before_max_ms: int = topic_default("message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = topic_default(
        "message.timestamp.after.max.ms",
        "Kafka's default is 3600000; here nothing is refused for its time unless somebody asks for that.",
    )
    log_retention_ms: int = topic_default("retention.ms")
    log_retention_bytes: int = topic_default("retention.bytes")
    log_retention_check_interval_ms: int = setting(300_000, "How often it is looked whether old segments can go.")
    log_cleanup_policy: str = topic_default("cleanup.policy")
    log_cleaner_enable: bool = setting(True, "Whether logs with cleanup.policy=compact are compacted.")
    log_cleaner_threads: int = setting(
        1,
        "How many logs are compacted at a time, each by a process of its own; 0: none.",
        small(),
        is_dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        134_217_728,
        "The memory for the keys of logs that are being compacted, in bytes, for all threads together: 24 bytes a key.",
        whole(),
        is_dynamic=True,
    )
    log_cleaner_io_buffer_size: int = setting(
        524_288,
        "The memory for reading and writing while logs are compacted, in bytes, for all threads together.",
        small(),
        is_dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        0.9,
        "How full the memory for keys may become; here at most 0.9.",
        number(),
        is_dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        sys.float_info.max,
        "How fast compaction reads and writes, all threads together.",
        number(0.0, sys.float_info.max),
        is_dynamic=True,
    )
    log_cleaner_backoff_ms: int = setting(
        15_000,
        "How long to wait, where there was nothing to compact, before it is looked again.",
        whole(),
        is_dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = topic_default("min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = topic_default("min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = topic_default("max.compaction.lag.ms")
    log_cleaner_delete_retention_ms: int = topic_default("delete.retention.ms")
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000,
        "How often sealed segments are flushed and recovery points stored.",
    )
    file_delete_delay_ms: int = setting(
        60_000,
        "How long the files of a deleted topic stay, for those who still read them.",
        whole(),
        is_dynamic=True,
        kafka_names=("log.segment.delete.delay.ms",),
    )
    socket_request_max_bytes: int = setting(104_857_600, "The largest request; a larger one ends its connection.")
    socket_partial_request_timeout_ms: int = setting(
        30_000,
        "How long a request may take to arrive; a slower one ends its connection.",
    )
    queued_max_request_bytes: int = setting(
        536_870_912,
        "The memory for large requests under way, over all connections. What waiting requests keep, and what the"
        " members of groups hand in, is at most a quarter of it each; one group holds at most a quarter of that.",
    )
    max_connections: int = setting(10_000, "The most connections that may be open.", small(), is_dynamic=True)
    max_connections_per_ip: int = setting(
        10_000,
        "The most connections that may be open from one address.",
        small(),
        is_dynamic=True,
    )
    connections_max_idle_ms: int = setting(600_000, "A connection that is silent for so long is closed.")
    fetch_max_bytes: int = setting(57_671_680, "The most that one fetch brings, whatever it asks for.")
    max_incremental_fetch_session_cache_slots: int = setting(1000, "How many fetch sessions are remembered.")
    offset_metadata_max_bytes: int = setting(
        4096,
        "The longest metadata of a committed offset, in UTF-16 units as in Kafka (a character beyond U+FFFF is two),"
        " and at most 32767 bytes of UTF-8.",
    )
    telemetry_metrics: str = setting(
        "standard",
        "The metrics that clients are asked to push (KIP-714): prefixes of their names, with commas between them;"
        " standard: those that KIP-714 requires of each client; *: all. Empty: none. It needs the extra"
        " barnabas[otel] and --http.",
    )
    telemetry_interval_ms: int = setting(
        300_000, "How often a client pushes its metrics, from 100 to 3600000.", whole(100, 3_600_000)
    )
    telemetry_max_bytes: int = setting(
        1_048_576,
        "The largest push of a client, compressed or decompressed; at most 4194304.",
        whole(1, TELEMETRY_BYTES_MAX),
    )
    default_replication_factor: int = setting(
        1,
        "How many replicas a topic gets that is made without saying.",
        whole(1),
    )
    unclean_leader_election_enable: bool = topic_default("unclean.leader.election.enable")
    rack: str = setting(
        "",
        "Where this broker stands (broker.rack in Kafka): replicas are spread over racks.",
        kafka_names=("broker.rack",),
    )
    replica_selector_class: str = setting(
        "",
        "Which replica consumers with client.rack read from (KIP-392): LeaderSelector, or empty: the leader;"
        " RackAwareReplicaSelector: one in their rack that is in sync. Kafka's Java names are taken as well.",
    )
    zookeeper_connect: str = setting(
        "",
        "The cluster's ZooKeeper, HOST:PORT,HOST:PORT/PATH; empty: this broker is a cluster of its own.",
    )
    zookeeper_session_timeout_ms: int = setting(
        18_000,
        "So long this broker may be out of ZooKeeper's reach before others take over what it leads.",
    )
    zookeeper_connection_timeout_ms: int = setting(18_000, "How long a start waits for ZooKeeper.")
    zookeeper_auth: str = setting(
        "",
        "USER:PASSWORD with which ZooKeeper's nodes are made and can be changed, and nobody else's.",
    )
    zookeeper_listener: str = setting(
        "",
        "[HOST:]PORT at which a broker that is a cluster of its own serves its tree in ZooKeeper's protocol, without"
        " HOST to this machine alone; clients may change all but the broker's own nodes. Empty: nowhere.",
    )
    zookeeper_listener_max_client_cnxns: int = setting(
        60,
        "How many connections clients of one address may have there, as ZooKeeper's maxClientCnxns; they may have"
        " four times as many sessions. 0: no limit for one address.",
    )
    inter_broker_host: str = setting(
        "",
        "The address at which other brokers fetch from this one; empty: the same as for clients.",
        is_host=True,
    )
    inter_broker_port: int = setting(0, "The port at which other brokers fetch from this one; 0: any free one.")
    controlled_shutdown_timeout_ms: int = setting(
        5_000,
        "How long a broker that stops waits for others to take over what it leads.",
    )
    auto_leader_rebalance_enable: bool = setting(
        True,
        "Whether a leader hands a partition to its preferred replica, the first one of its assignment, once that is"
        " in sync.",
    )
    leader_imbalance_check_interval_seconds: int = setting(300, "How often it is looked whether there is one.")
    offsets_topic_num_partitions: int = setting(
        50,
        "How many partitions __consumer_offsets gets when it is made; later changes have no effect.",
        whole(1),
    )
    offsets_topic_replication_factor: int = setting(
        3,
        "How many replicas __consumer_offsets gets when it is made; with ZooKeeper, groups wait until there are so"
        " many brokers.",
        whole(1),
    )
    offsets_topic_segment_bytes: int = setting(
        104_857_600,
        "The segment.bytes that __consumer_offsets gets when it is made.",
    )
    offsets_load_buffer_size: int = setting(
        5_242_880,
        "How much of __consumer_offsets is read at once when a broker begins to coordinate groups.",
        whole(1),
    )
    offsets_commit_timeout_ms: int = setting(
        5_000,
        "How long a commit, or a group's new generation, may take to be stored.",
        whole(1),
    )
    offsets_retention_minutes: int = setting(
        7 * 24 * 60,
        "How long a group without members keeps its committed offsets.",
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000,
        "How often it is looked whether offsets can be forgotten.",
    )
    group_min_session_timeout_ms: int = setting(6_000, "The shortest session that a group's member may ask for.")
    group_max_session_timeout_ms: int = setting(1_800_000, "The longest session that a group's member may ask for.")
    group_initial_rebalance_delay_ms: int = setting(
        0,
        "How long an empty group waits for more members after the first. Kafka's default is 3000, for large groups"
        " that start together; here a lone consumer starts at once.",
    )
    group_max_size: int = setting(2**31 - 1, "The most members of a group.")
    replica_fetch_max_bytes: int = setting(1_048_576, "How much a follower asks for of one partition at a time.")
    replica_fetch_response_max_bytes: int = setting(
        10_485_760,
        "How much a follower asks for of all partitions that another broker leads, at a time.",
    )
    replica_fetch_wait_max_ms: int = setting(
        500,
        "How long a follower's fetch waits at the leader until there is something new.",
    )
    replica_fetch_min_bytes: int = setting(
        1,
        "How much must be new before a follower's fetch is answered; under load it may wait up to 5 ms for more.",
    )
    replica_fetch_backoff_ms: int = setting(
        1_000,
        "How long a follower waits at most before it tries again to fetch what it could not.",
    )
    num_replica_fetchers: int = setting(
        1,
        "Over how many connections a broker fetches from each other broker. It cannot be changed while the broker"
        " runs: a replica keeps its connection as long as it follows.",
        whole(1),
    )
    leader_replication_throttled_rate: int = setting(
        LONG_MAX,
        "How many bytes a second followers that are not in sync get of what this broker leads, all together; of those"
        " partitions alone that leader.replication.throttled.replicas names.",
        whole(),
        is_dynamic=True,
    )
    follower_replication_throttled_rate: int = setting(
        LONG_MAX,
        "How many bytes a second this broker fetches from leaders, all together, for replicas that are not in sync;"
        " for those alone that follower.replication.throttled.replicas names.",
        whole(),
        is_dynamic=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        LONG_MAX,
        "How fast logs are moved from one data folder to another.",
        whole(),
        is_dynamic=True,
    )
    replica_lag_time_max_ms: int = setting(
        30_000,
        "A follower that was not at the end of its leader's log for so long is no longer in sync.",
    )
    replica_socket_timeout_ms: int = setting(
        30_000,
        "How long a follower waits for the answer to a fetch, besides replica.fetch.wait.max.ms.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5_000,
        "How often it is stored how far the logs can be read.",
    )

    def __post_init__(self) -> None:
        for name, declared in BROKER_SETTINGS.items():
            value, least = getattr(self, name), declared.rule.least
            if isinstance(value, int) and value < least and declared.rule.greatest in {INT_MAX, LONG_MAX}:
                raise ConfigurationError(f"{dotted(name)} is {value}; it must be {least} or more")
        self._check_identity()
        for name, declared in BROKER_SETTINGS.items():
            if declared.is_host:
                self._take_host(name)
            declared.rule.check(dotted(name), str(getattr(self, name)))
        self._check_zookeeper_listener()
        if self.log_cleaner_dedupe_buffer_size < BUFFER_BYTES_PER_THREAD_MIN * self.log_cleaner_threads:
            raise ConfigurationError("log.cleaner.dedupe.buffer.size must be at least 1 MiB for each cleaner thread")
        if self.replica_selector_class not in REPLICA_SELECTORS:
            raise ConfigurationError(
                f"replica.selector.class is {self.replica_selector_class!r}; it can be LeaderSelector or"
                " RackAwareReplicaSelector, also with org.apache.kafka.common.replica. before it"
            )
        if len({os.path.realpath(each) for each in self.folders}) < len(self.folders):
            raise ConfigurationError(f"a data folder is given twice: {self.log_dirs}")

    def _check_identity(self) -> None:
        """Check what other brokers read in the registration, which they skip where it is out of bounds."""
        if self.port > 65_535 or self.advertised_port > 65_535:
            raise ConfigurationError("a port is a number from 0 to 65535")
        if self.broker_id > BROKER_ID_MAX:
            raise ConfigurationError(f"broker.id is {self.broker_id}; it must be from 0 to {BROKER_ID_MAX}")
        if not is_text(self.rack):
            raise ConfigurationError(f"rack is {shown(self.rack)}; it must be text of at most {TEXT_BYTES_MAX} bytes")

    def _take_host(self, name: str) -> None:
        """Keep a host without the brackets of an IPv6 address."""
        host = getattr(self, name)
        if not host:
            return
        try:
            object.__setattr__(self, name, bare_host(host))
        except ValueError as error:
            hint = "; the port is a setting of its own" if ":" in host else ""
            raise ConfigurationError(f"{dotted(name)}: {error}{hint}") from None
        if len(host) > HOST_CHARACTERS_MAX:
            raise ConfigurationError(f"{dotted(name)} has {len(host)} characters; it can have {HOST_CHARACTERS_MAX}")

    def _check_zookeeper_listener(self) -> None:
        if not self.zookeeper_listener:
            return
        try:
            split_listener(self.zookeeper_listener)
        except ValueError:
            address = self.zookeeper_listener
            raise ConfigurationError(
                f"zookeeper.listener {address!r} is not [HOST:]PORT, with a port from 0 to {PORT_MAX}"
            ) from None
        if self.zookeeper_connect:
            raise ConfigurationError(
                "zookeeper.listener serves the tree of a broker that has one of its own; with zookeeper.connect it has"
                " none: connect to ZooKeeper itself"
            )

    @property
    def folders(self) -> tuple[Path, ...]:
        """The data folders; the tree is in the first one."""
        several = [name for each in self.log_dirs.split(",") if (name := each.strip())]
        return tuple(Path(each) for each in several or [self.data])


BROKER_SETTINGS: dict[str, BrokerSetting] = {
    field.name: field.metadata[BrokerSetting] for field in dataclasses.fields(BrokerConfig)
}
"""The declarations of all settings of a broker, by the name of their field."""

OTHER_NAMES = dict(
    sorted((other, dotted(name)) for name, each in BROKER_SETTINGS.items() for other in each.kafka_names)
)
"""The names of settings, by Kafka's other names."""
