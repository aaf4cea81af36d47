"""The broker's settings: Kafka's names and defaults where Kafka has them.

They come from a TOML file, from the environment (`BARNABAS_NUM_PARTITIONS` for `num.partitions`) and from flags;
the later of these wins. A name that does not exist is an error, not a silent nothing; in the environment, which others
fill too, it is a warning.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.addresses import PORT_MAX, bare_host, split_host_port
from barnabas.broker.settings.cleaner_table import BUFFER_BYTES_PER_THREAD_MIN, CLEANER_RULES
from barnabas.broker.settings.kafka_names import OTHER_NAMES, OTHER_UNITS, WITHOUT_EFFECT, translate
from barnabas.broker.settings.rules import LONG_MAX
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS
from barnabas.broker.settings.unused import UNUSED_BROKER_SETTINGS
from barnabas.coordination.fields import BROKER_ID_MAX, HOST_CHARACTERS_MAX, TEXT_BYTES_MAX, is_text, shown
from barnabas.errors import ConfigurationError

log = logging.getLogger(__name__)

ENVIRONMENT_PREFIX = "BARNABAS_"
NOT_SETTINGS = frozenset({"BARNABAS_BOOTSTRAP", "BARNABAS_CODEC", "BARNABAS_DEBUG"})
"""Variables with the prefix that belong to the command and to the codec, not to the broker."""

_OF_A_SERVICE = re.compile(r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)")
"""What Kubernetes puts behind the name of a service, one `barnabas` or `barnabas-...`, in the variables of each pod of
its namespace (the Kubernetes documentation, *Service*, *Environment variables*; the form with PORT is Docker's)."""
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://.*")
"""The value of `<SERVICE>_PORT`."""


PROPERTIES = ".properties"
_CONTINUES = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_SEPARATOR = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


SETTING_DOCUMENTATION: dict[str, str] = {
    "host": "The address to listen on; 0.0.0.0 for all.",
    "port": "The port to listen on; 0 for a free one.",
    "advertised_host": "The host that clients are told; unset, the address at which they reached the broker.",
    "advertised_port": "The port that clients are told; unset, the one that is listened on.",
    "data": "The folder of the log and of the tree.",
    "log_dirs": "Folders of the log, with commas between them, on disks of their own; the tree is in the first one."
    " Empty: the one of data.",
    "broker_id": "The number of this broker.",
    "delete_topic_enable": "Whether clients can delete topics.",
    "auto_create_topics_enable": "Whether a topic that a client asks for and that does not exist is made.",
    "num_partitions": "How many partitions a topic gets that is made without saying.",
    "schema_registry_url": "Where the schema registry is, for topics with barnabas.value.schema.validation: a url, or"
    " several with commas.",
    "min_insync_replicas": "The topics' default of min.insync.replicas.",
    "message_max_bytes": "The topics' default of max.message.bytes.",
    "log_segment_bytes": "The topics' default of segment.bytes.",
    "compression_type": "The topics' default of compression.type.",
    "log_roll_ms": "The topics' default of segment.ms.",
    "log_index_interval_bytes": "The topics' default of index.interval.bytes.",
    "log_index_size_max_bytes": "The topics' default of segment.index.bytes.",
    "log_flush_interval_messages": "The topics' default of flush.messages.",
    "log_flush_interval_ms": "The topics' default of flush.ms.",
    "log_message_timestamp_type": "The topics' default of message.timestamp.type.",
    "log_message_timestamp_before_max_ms": "The topics' default of message.timestamp.before.max.ms.",
    "log_message_timestamp_after_max_ms": "The topics' default of message.timestamp.after.max.ms."
    " Kafka's default is 3600000; here nothing is refused for its time unless somebody asks for that.",
    "log_retention_ms": "The topics' default of retention.ms.",
    "log_retention_bytes": "The topics' default of retention.bytes.",
    "log_retention_check_interval_ms": "How often it is looked whether old segments can go.",
    "log_cleanup_policy": "The topics' default of cleanup.policy.",
    "log_cleaner_enable": "Whether logs with cleanup.policy=compact are compacted.",
    "log_cleaner_threads": "How many logs are compacted at a time, each by a process of its own; 0: none.",
    "log_cleaner_dedupe_buffer_size": "The memory for the keys of logs that are being compacted, in bytes, for all"
    " threads together: 24 bytes a key.",
    "log_cleaner_io_buffer_size": "The memory for reading and writing while logs are compacted, in bytes, for all"
    " threads together.",
    "log_cleaner_io_buffer_load_factor": "How full the memory for keys may become; here at most 0.9.",
    "log_cleaner_io_max_bytes_per_second": "How fast compaction reads and writes, all threads together.",
    "log_cleaner_backoff_ms": "How long to wait, where there was nothing to compact, before it is looked again.",
    "log_cleaner_min_cleanable_ratio": "The topics' default of min.cleanable.dirty.ratio.",
    "log_cleaner_min_compaction_lag_ms": "The topics' default of min.compaction.lag.ms.",
    "log_cleaner_max_compaction_lag_ms": "The topics' default of max.compaction.lag.ms.",
    "log_cleaner_delete_retention_ms": "The topics' default of delete.retention.ms.",
    "log_flush_offset_checkpoint_interval_ms": "How often sealed segments are flushed and recovery points stored.",
    "file_delete_delay_ms": "How long the files of a deleted topic stay, for those who still read them.",
    "socket_request_max_bytes": "The largest request; a larger one ends its connection.",
    "socket_partial_request_timeout_ms": "How long a request may take to arrive; a slower one ends its connection.",
    "queued_max_request_bytes": "The memory for large requests under way, over all connections. What waiting requests"
    " keep, and what the members of groups hand in, is at most a quarter of it each; one group holds at most a quarter"
    " of that.",
    "max_connections": "The most connections that may be open.",
    "max_connections_per_ip": "The most connections that may be open from one address.",
    "connections_max_idle_ms": "A connection that is silent for so long is closed.",
    "fetch_max_bytes": "The most that one fetch brings, whatever it asks for.",
    "max_incremental_fetch_session_cache_slots": "How many fetch sessions are remembered.",
    "offset_metadata_max_bytes": "The longest metadata of a committed offset, in UTF-16 units as in Kafka (a character"
    " beyond U+FFFF is two), and at most 32767 bytes of UTF-8.",
    "telemetry_metrics": "The metrics that clients are asked to push (KIP-714): prefixes of their names, with commas"
    " between them; standard: those that KIP-714 requires of each client; *: all. Empty: none. It needs the extra"
    " barnabas[otel].",
    "telemetry_interval_ms": "How often a client pushes its metrics, from 100 to 3600000.",
    "telemetry_max_bytes": "The largest push of a client, compressed or decompressed; at most 4194304.",
    "default_replication_factor": "How many replicas a topic gets that is made without saying.",
    "unclean_leader_election_enable": "The topics' default of unclean.leader.election.enable.",
    "rack": "Where this broker stands (broker.rack in Kafka): replicas are spread over racks.",
    "replica_selector_class": "Which replica consumers with client.rack read from (KIP-392): LeaderSelector, or empty:"
    " the leader; RackAwareReplicaSelector: one in their rack that is in sync. Kafka's Java names are taken as well.",
    "zookeeper_connect": "The cluster's ZooKeeper, HOST:PORT,HOST:PORT/PATH; empty: this broker is a cluster of its"
    " own.",
    "zookeeper_session_timeout_ms": "So long this broker may be out of ZooKeeper's reach before others take over"
    " what it leads.",
    "zookeeper_connection_timeout_ms": "How long a start waits for ZooKeeper.",
    "zookeeper_auth": "USER:PASSWORD with which ZooKeeper's nodes are made and can be changed, and nobody else's.",
    "zookeeper_listener": "[HOST:]PORT at which a broker that is a cluster of its own serves its tree in ZooKeeper's"
    " protocol, without HOST to this machine alone; clients may change all but the broker's own nodes. Empty: nowhere.",
    "zookeeper_listener_max_client_cnxns": "How many connections clients of one address may have there, as ZooKeeper's"
    " maxClientCnxns; they may have four times as many sessions. 0: no limit for one address.",
    "inter_broker_host": "The address at which other brokers fetch from this one; empty: the same as for clients.",
    "inter_broker_port": "The port at which other brokers fetch from this one; 0: any free one.",
    "controlled_shutdown_timeout_ms": "How long a broker that stops waits for others to take over what it leads.",
    "auto_leader_rebalance_enable": "Whether a leader hands a partition to its preferred replica, the first one of its"
    " assignment, once that is in sync.",
    "leader_imbalance_check_interval_seconds": "How often it is looked whether there is one.",
    "offsets_topic_num_partitions": "How many partitions __consumer_offsets gets when it is made; later changes have no"
    " effect.",
    "offsets_topic_replication_factor": "How many replicas __consumer_offsets gets when it is made; with ZooKeeper,"
    " groups wait until there are so many brokers.",
    "offsets_topic_segment_bytes": "The segment.bytes that __consumer_offsets gets when it is made.",
    "offsets_load_buffer_size": "How much of __consumer_offsets is read at once when a broker begins to coordinate"
    " groups.",
    "offsets_commit_timeout_ms": "How long a commit, or a group's new generation, may take to be stored.",
    "offsets_retention_minutes": "How long a group without members keeps its committed offsets.",
    "offsets_retention_check_interval_ms": "How often it is looked whether offsets can be forgotten.",
    "group_min_session_timeout_ms": "The shortest session that a group's member may ask for.",
    "group_max_session_timeout_ms": "The longest session that a group's member may ask for.",
    "group_initial_rebalance_delay_ms": "How long an empty group waits for more members after the first."
    " Kafka's default is 3000, for large groups that start together; here a lone consumer starts at once.",
    "group_max_size": "The most members of a group.",
    "replica_fetch_max_bytes": "How much a follower asks for of one partition at a time.",
    "replica_fetch_response_max_bytes": "How much a follower asks for of all partitions that another broker leads, at"
    " a time.",
    "replica_fetch_wait_max_ms": "How long a follower's fetch waits at the leader until there is something new.",
    "replica_fetch_min_bytes": "How much must be new before a follower's fetch is answered;"
    " under load it may wait up to 5 ms for more.",
    "replica_fetch_backoff_ms": "How long a follower waits at most before it tries again to fetch what it could not.",
    "num_replica_fetchers": "Over how many connections a broker fetches from each other broker. It cannot be changed"
    " while the broker runs: a replica keeps its connection as long as it follows.",
    "leader_replication_throttled_rate": "How many bytes a second followers that are not in sync get of what this"
    " broker leads, all together; of those partitions alone that leader.replication.throttled.replicas names.",
    "follower_replication_throttled_rate": "How many bytes a second this broker fetches from leaders, all together, for"
    " replicas that are not in sync; for those alone that follower.replication.throttled.replicas names.",
    "replica_alter_log_dirs_io_max_bytes_per_second": "How fast logs are moved from one data folder to another.",
    "replica_lag_time_max_ms": "A follower that was not at the end of its leader's log for so long is no longer in"
    " sync.",
    "replica_socket_timeout_ms": "How long a follower waits for the answer to a fetch, besides"
    " replica.fetch.wait.max.ms.",
    "replica_high_watermark_checkpoint_interval_ms": "How often it is stored how far the logs can be read.",
}
"""What each setting means, by its field's name."""

SIGNED = frozenset({"log_retention_ms", "log_retention_bytes"})
"""Settings in which -1 means that there is no limit."""

HOSTS = ("host", "advertised_host", "inter_broker_host")
"""Settings that are a host; an IPv6 address may be in brackets."""

AT_LEAST_ONE = (
    "num_partitions",
    "default_replication_factor",
    "offsets_topic_num_partitions",
    "offsets_topic_replication_factor",
    "offsets_load_buffer_size",
    "offsets_commit_timeout_ms",
    "num_replica_fetchers",
)

TELEMETRY_BYTES_MAX = 4 * 1024 * 1024
TELEMETRY_RANGES = {
    "telemetry_interval_ms": range(100, 3_600_001),
    "telemetry_max_bytes": range(1, TELEMETRY_BYTES_MAX + 1),
}
"""The values of settings; those of the interval are Kafka's."""

_RACK_AWARE = "RackAwareReplicaSelector"
_JAVA_PACKAGE = "org.apache.kafka.common.replica."
RACK_AWARE_SELECTORS = frozenset({_RACK_AWARE, _JAVA_PACKAGE + _RACK_AWARE})
REPLICA_SELECTORS = RACK_AWARE_SELECTORS | {"", "LeaderSelector", _JAVA_PACKAGE + "LeaderSelector"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker. A field `num_partitions` is the setting `num.partitions`; what each means stands in
    `SETTING_DOCUMENTATION`."""

    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str = ""
    advertised_port: int = 0
    data: str = "barnabas-data"
    log_dirs: str = ""
    broker_id: int = 0
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    num_partitions: int = 1
    schema_registry_url: str = ""
    min_insync_replicas: int = 1
    message_max_bytes: int = 1_048_588
    log_segment_bytes: int = 1_073_741_824
    compression_type: str = "producer"
    log_roll_ms: int = 7 * 24 * 3600 * 1000
    log_index_interval_bytes: int = 4096
    log_index_size_max_bytes: int = 10_485_760
    log_flush_interval_messages: int = LONG_MAX
    log_flush_interval_ms: int = LONG_MAX
    log_message_timestamp_type: str = "CreateTime"
    log_message_timestamp_before_max_ms: int = LONG_MAX
    log_message_timestamp_after_max_ms: int = LONG_MAX
    log_retention_ms: int = 7 * 24 * 3600 * 1000
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_cleanup_policy: str = "delete"
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_io_buffer_size: int = 524_288
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = sys.float_info.max
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_min_cleanable_ratio: float = 0.5
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleaner_max_compaction_lag_ms: int = LONG_MAX
    log_cleaner_delete_retention_ms: int = 24 * 3600 * 1000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    file_delete_delay_ms: int = 60_000
    socket_request_max_bytes: int = 104_857_600
    socket_partial_request_timeout_ms: int = 30_000
    queued_max_request_bytes: int = 536_870_912
    max_connections: int = 10_000
    max_connections_per_ip: int = 10_000
    connections_max_idle_ms: int = 600_000
    fetch_max_bytes: int = 57_671_680
    max_incremental_fetch_session_cache_slots: int = 1000
    offset_metadata_max_bytes: int = 4096
    telemetry_metrics: str = "standard"
    telemetry_interval_ms: int = 300_000
    telemetry_max_bytes: int = 1_048_576
    default_replication_factor: int = 1
    unclean_leader_election_enable: bool = False
    rack: str = ""
    replica_selector_class: str = ""
    zookeeper_connect: str = ""
    zookeeper_session_timeout_ms: int = 18_000
    zookeeper_connection_timeout_ms: int = 18_000
    zookeeper_auth: str = ""
    zookeeper_listener: str = ""
    zookeeper_listener_max_client_cnxns: int = 60
    inter_broker_host: str = ""
    inter_broker_port: int = 0
    controlled_shutdown_timeout_ms: int = 5_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_load_buffer_size: int = 5_242_880
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = 2**31 - 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_backoff_ms: int = 1_000
    num_replica_fetchers: int = 1
    leader_replication_throttled_rate: int = LONG_MAX
    follower_replication_throttled_rate: int = LONG_MAX
    replica_alter_log_dirs_io_max_bytes_per_second: int = LONG_MAX
    replica_lag_time_max_ms: int = 30_000
    replica_socket_timeout_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = -1 if field.name in SIGNED else 0
            if isinstance(value, int) and value < least:
                raise ConfigurationError(f"{_dotted(field.name)} is {value}; it must be {least} or more")
        self._check_identity()
        for name in HOSTS:
            self._take_host(name)
        self._check_zookeeper_listener()
        self._check_telemetry()
        for setting in TOPIC_SETTINGS.values():
            field_name = (setting.broker_setting or "").replace(".", "_")
            if hasattr(self, field_name):
                setting.rule.check(_dotted(field_name), str(getattr(self, field_name)))
        for name, rule in CLEANER_RULES.items():
            rule.check(name, str(getattr(self, name.replace(".", "_"))))
        if self.log_cleaner_dedupe_buffer_size < BUFFER_BYTES_PER_THREAD_MIN * self.log_cleaner_threads:
            raise ConfigurationError("log.cleaner.dedupe.buffer.size must be at least 1 MiB for each cleaner thread")
        if self.replica_selector_class not in REPLICA_SELECTORS:
            raise ConfigurationError(
                f"replica.selector.class is {self.replica_selector_class!r}; it can be LeaderSelector or"
                " RackAwareReplicaSelector, also with org.apache.kafka.common.replica. before it"
            )
        for name in AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{_dotted(name)} must be at least 1")
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
            raise ConfigurationError(f"{_dotted(name)}: {error}{hint}") from None
        if len(host) > HOST_CHARACTERS_MAX:
            raise ConfigurationError(f"{_dotted(name)} has {len(host)} characters; it can have {HOST_CHARACTERS_MAX}")

    def _check_telemetry(self) -> None:
        for name, allowed in TELEMETRY_RANGES.items():
            if getattr(self, name) not in allowed:
                raise ConfigurationError(f"{_dotted(name)} must be from {allowed[0]} to {allowed[-1]}")

    def _check_zookeeper_listener(self) -> None:
        if not self.zookeeper_listener:
            return
        split_listener(self.zookeeper_listener)
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


def split_listener(address: str) -> tuple[str, int]:
    """Return the host and port of `[HOST:]PORT`; without a host it is the loopback address.

    >>> split_listener("2181"), split_listener("[::1]:2181")
    (('127.0.0.1', 2181), ('::1', 2181))

    :raises ConfigurationError: it is no such address.
    """
    host, _, port = address.rpartition(":")
    try:
        return split_host_port(address if host else f"127.0.0.1:{port}")
    except ValueError:
        raise ConfigurationError(
            f"zookeeper.listener {address!r} is not [HOST:]PORT, with a port from 0 to {PORT_MAX}"
        ) from None


def load_config(
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Put the settings together, as `given_settings` does, and the defaults of all others.

    :raises ConfigurationError: the file cannot be read, or a name or value is wrong.
    """
    return BrokerConfig(**given_settings(file, overrides, environment))


def given_settings(
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the settings that somebody has given a value, by field name.

    :param file: a TOML file; `num.partitions = 6` and `[num]` `partitions = 6` are the same. A file named
        `*.properties` has the format of Kafka's `server.properties`.
    :param overrides: from flags, by field name or dotted name; None values are left out.
    :param environment: variables, of which those that begin with BARNABAS_ count.
    :raises ConfigurationError: the file cannot be read, or a name or value is wrong.
    """
    types = {field.name: type(field.default) for field in dataclasses.fields(BrokerConfig)}
    from_file = {} if file is None else _of_kafka(_read_file(Path(file)))
    from_flags = _of_kafka({name: value for name, value in (overrides or {}).items() if value is not None})
    settings = dict(_check(name, value, types) for name, value in from_file.items())
    for later in (
        _from_environment(environment or {}, types),
        dict(_check(name, value, types) for name, value in from_flags.items()),
    ):
        if "data" in later:
            # Or else the folders that were named before would win over this one.
            settings.pop("log_dirs", None)
        settings.update(later)
    return settings


def _of_kafka(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under their names here. Kafka's settings without meaning here are logged, and left out.

    :raises ConfigurationError: one of them has a meaning here, and a value that cannot be translated.
    """
    translated = translate(given)
    if translated.without_effect:
        log.warning("these settings of Kafka's have no effect here: %s", ", ".join(translated.without_effect))
    return translated.settings


def _from_environment(environment: Mapping[str, str], types: Mapping[str, type]) -> dict[str, Any]:
    """Return the settings among the variables; warn of those that are none, unless Kubernetes made them.

    :raises ConfigurationError: a setting cannot have the value; the message names the variable.
    """
    settings: dict[str, Any] = {}
    others: dict[str, str] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS or _is_of_a_service(variable, value):
            continue
        field = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if field in types:
            settings[field] = _of_variable(variable, field, value, types[field])
        else:
            others[_dotted(field)] = value
    try:
        translated = _of_kafka(others)
    except ConfigurationError as error:
        raise ConfigurationError(f"in the environment, {error}") from None
    for name, value in translated.items():
        field = name.replace(".", "_")
        variable = ENVIRONMENT_PREFIX + field.upper()
        if field in types:
            settings.setdefault(field, _of_variable(variable, field, str(value), types[field]))
        else:
            log.warning("%s in the environment is no setting of the broker%s", variable, _hint(field, types))
    return settings


def _of_variable(variable: str, field: str, value: str, wanted: type) -> Any:
    try:
        converted = _convert(_dotted(field), value, wanted)
        BrokerConfig(**{field: converted})
    except ConfigurationError as error:
        raise ConfigurationError(f"{variable}={value} in the environment: {error}") from None
    return converted


def _is_of_a_service(variable: str, value: str) -> bool:
    rest = variable.removeprefix(ENVIRONMENT_PREFIX)
    if _OF_A_SERVICE.fullmatch(rest):
        return True
    return (rest == "PORT" or rest.endswith("_PORT")) and _SERVICE_ADDRESS.fullmatch(value) is not None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        return parse_properties(text) if path.suffix == PROPERTIES else _flatten(tomllib.loads(text))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8: {error}") from None
    except tomllib.TOMLDecodeError as error:
        advice = f"a file in the format of Kafka's server.properties has a name that ends in {PROPERTIES}"
        raise ConfigurationError(f"{path} is not TOML: {error}; {advice}") from None


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the settings of a text in the format of Java's properties.

    >>> parse_properties("# the broker\nbroker.id=1\nlog.dirs = /a,\\\n  /b\n")
    {'broker.id': '1', 'log.dirs': '/a,/b'}
    """
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for first in lines:
        line = first.lstrip()
        if line.startswith(("#", "!")):
            continue
        while _CONTINUES.search(line):
            line = line[:-1] + next(lines, "").lstrip()
        name, _, value = _SEPARATOR.sub("\0", line, count=1).partition("\0")
        if name:
            found[_unescaped(name)] = _unescaped(value.rstrip())
    return found


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _check(name: str, value: Any, types: Mapping[str, type]) -> tuple[str, Any]:
    field = name.replace(".", "_").replace("-", "_")
    if field not in types:
        raise ConfigurationError(f"there is no setting {name}{_hint(field, types)}")
    return field, _convert(name, value, types[field])


def _hint(field: str, types: Mapping[str, type]) -> str:
    known = [*map(_dotted, types), *OTHER_NAMES, *OTHER_UNITS, *UNUSED_BROKER_SETTINGS, *WITHOUT_EFFECT]
    near = difflib.get_close_matches(_dotted(field), known, n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""


def _convert(name: str, value: Any, wanted: type) -> Any:
    if wanted is bool and isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if wanted is int and isinstance(value, str) and value.lstrip("-").isdigit():
        return int(value)
    if wanted is float and isinstance(value, int | str):
        value = _to_float(value)
    if type(value) is wanted:
        return value
    raise ConfigurationError(f"{name} takes {_KINDS[wanted]}, not {value!r}")


def _to_float(value: int | str) -> float | int | str:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return value


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _dotted(field: str) -> str:
    return field.replace("_", ".")
