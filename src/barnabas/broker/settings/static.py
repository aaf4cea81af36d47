"""The static settings of a broker, from its file, the environment and flags.

`BrokerConfig` contains one declaration of each setting.

A declaration contains the default, the documentation, the valid values, Kafka's other names, and whether the setting is
dynamic. Validation, the translation of Kafka's configuration files, DescribeConfigs and the settings reference use the
declarations. A setting that is the default of a topic setting refers to `TOPIC_SETTINGS`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from barnabas.addresses import PORT_MAX, bare_host, split_listener
from barnabas.broker.settings.rules import (
    FLAG,
    INT_MAX,
    LONG_MAX,
    ConfigType,
    Rule,
    items,
    number,
    small,
    text,
    whole,
)
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS
from barnabas.coordination.fields import BROKER_ID_MAX, HOST_CHARACTERS_MAX, TEXT_BYTES_MAX, is_text, shown
from barnabas.errors import ConfigurationError
from barnabas.security.protocols import SASL_MECHANISMS, SecurityProtocol

T = TypeVar("T", bool, int, float, str)

BUFFER_BYTES_PER_THREAD_MIN = 1024 * 1024
"""The minimum of `log.cleaner.dedupe.buffer.size` for each cleaner thread, in bytes."""

TELEMETRY_BYTES_MAX = 4 * 1024 * 1024
"""The maximum of `telemetry.max.bytes`."""

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""The values of `authorizer.class.name` that switch ACLs on."""
_RACK_AWARE = "RackAwareReplicaSelector"
_JAVA_PACKAGE = "org.apache.kafka.common.replica."
RACK_AWARE_SELECTORS = frozenset({_RACK_AWARE, _JAVA_PACKAGE + _RACK_AWARE})
REPLICA_SELECTORS = RACK_AWARE_SELECTORS | {"", "LeaderSelector", _JAVA_PACKAGE + "LeaderSelector"}


def dotted(field: str) -> str:
    """Return the name of the setting for a field name, for example `num.partitions` for `num_partitions`."""
    return field.replace("_", ".")


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """The declaration of a broker setting."""

    default: bool | int | float | str
    about: str
    """The documentation of the setting."""
    rule: Rule
    is_dynamic: bool = False
    """True if the setting can be changed while the broker runs."""
    kafka_names: tuple[str, ...] = ()
    """Kafka's other names for the setting, including deprecated names."""
    is_host: bool = False
    """True if the value is a host. An IPv6 address may be in brackets."""
    is_secret: bool = False
    """True if the value must never be shown: in a description, an error or a log line."""


_RULES: dict[type, Rule] = {bool: FLAG, int: whole(), float: number(), str: text()}
"""The default rules of settings that are declared without a rule, by the type of the setting's default."""


def setting(
    default: T,
    about: str,
    rule: Rule | None = None,
    *,
    is_dynamic: bool = False,
    kafka_names: tuple[str, ...] = (),
    is_host: bool = False,
    is_secret: bool = False,
) -> T:
    """Declare a broker setting. See `BrokerSetting`."""
    declaration = BrokerSetting(
        default,
        about,
        rule or _RULES[type(default)],
        is_dynamic,
        kafka_names,
        is_host=is_host,
        is_secret=is_secret,
    )
    field: T = _declared(declaration)
    return field


def topic_default(name: str, about: str = "") -> Any:
    """Declare a broker setting that is the default of a topic setting, with the same default and valid values.

    :param about: documentation that is added to the name of the topic setting.
    """
    of_topics = TOPIC_SETTINGS[name]
    documentation = " ".join(filter(None, (f"The default of the topic setting {name}.", about)))
    return _declared(
        BrokerSetting(_PARSERS[of_topics.rule.kind](of_topics.default), documentation, of_topics.rule, True)
    )


def _declared(declaration: BrokerSetting) -> Any:
    metadata = {BrokerSetting: declaration}
    return dataclasses.field(default=declaration.default, metadata=metadata, repr=not declaration.is_secret)


def parse_flag(value: str) -> bool:
    """Parse the valid text of a boolean setting."""
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
    """The settings of a broker. The field `num_partitions` is the setting `num.partitions`."""

    host: str = setting(
        "127.0.0.1",
        "The address that the broker listens on; 0.0.0.0 for all addresses.",
        kafka_names=("host.name",),
        is_host=True,
    )
    port: int = setting(9092, "The port that the broker listens on; 0 for any free port.")
    advertised_host: str = setting(
        "",
        "The host that the broker advertises to clients; empty: the address at which a client has reached the broker.",
        kafka_names=("advertised.host.name",),
        is_host=True,
    )
    advertised_port: int = setting(0, "The port that the broker advertises to clients; 0: the port that it listens on.")
    data: str = setting("barnabas-data", "The data directory, which contains the log and the metadata store.")
    log_dirs: str = setting(
        "",
        "Comma-separated data directories for the log, each on its own disk; the metadata store is in the first one."
        " Empty: the directory in data.",
        kafka_names=("log.dir",),
    )
    broker_id: int = setting(0, "The id of this broker.", kafka_names=("node.id",))
    auto_create_topics_enable: bool = setting(
        True,
        "Whether the broker creates a topic that a client requests and that does not exist.",
    )
    delete_topic_enable: bool = setting(True, "Whether clients can delete topics.", FLAG, is_dynamic=True)
    num_partitions: int = setting(1, "The default number of partitions of a new topic.", whole(1))
    schema_registry_url: str = setting(
        "",
        "The URL of the schema registry, or several URLs separated by commas, for topics with"
        " barnabas.value.schema.validation.",
    )
    schema_registry_username: str = setting("", "The user name for the schema registry.")
    schema_registry_password: str = setting(
        "",
        "The password for the schema registry, or its source: ${file:PATH}, ${env:NAME} or"
        " ${command:PROGRAM ARGUMENTS}.",
        is_secret=True,
    )
    schema_registry_ssl_truststore_location: str = setting(
        "",
        "The PEM file with the CAs that the broker trusts for https:// URLs of the schema registry. Empty: those of the"
        " operating system.",
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
        "Kafka's default is 3600000; Barnabas rejects no batch because of its timestamps by default.",
    )
    log_retention_ms: int = topic_default("retention.ms")
    log_retention_bytes: int = topic_default("retention.bytes")
    log_retention_check_interval_ms: int = setting(300_000, "The interval of the checks for old segments to delete.")
    log_cleanup_policy: str = topic_default("cleanup.policy")
    log_cleaner_enable: bool = setting(True, "Whether the broker compacts logs with cleanup.policy=compact.")
    log_cleaner_threads: int = setting(
        1,
        "The number of logs that are compacted at the same time, each by its own process; 0: none.",
        small(),
        is_dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        134_217_728,
        "The memory for the keys of logs during compaction, in bytes, for all threads together; a key needs 24 bytes.",
        whole(),
        is_dynamic=True,
    )
    log_cleaner_io_buffer_size: int = setting(
        524_288,
        "The memory for reads and writes during compaction, in bytes, for all threads together.",
        small(),
        is_dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        0.9,
        "The maximum load factor of the memory for keys; in Barnabas at most 0.9.",
        number(),
        is_dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        sys.float_info.max,
        "The maximum rate of compaction's reads and writes in bytes per second, for all threads together.",
        number(0.0, sys.float_info.max),
        is_dynamic=True,
    )
    log_cleaner_backoff_ms: int = setting(
        15_000,
        "The pause before the next check if there was nothing to compact.",
        whole(),
        is_dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = topic_default("min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = topic_default("min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = topic_default("max.compaction.lag.ms")
    log_cleaner_delete_retention_ms: int = topic_default("delete.retention.ms")
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000,
        "The interval at which sealed segments are flushed and recovery points are stored.",
    )
    file_delete_delay_ms: int = setting(
        60_000,
        "The time for which the files of a deleted topic stay on disk for readers that still use them.",
        whole(),
        is_dynamic=True,
        kafka_names=("log.segment.delete.delay.ms",),
    )
    socket_request_max_bytes: int = setting(
        104_857_600, "The maximum size of a request; the broker closes the connection of a larger one."
    )
    socket_partial_request_timeout_ms: int = setting(
        30_000,
        "The maximum time for the arrival of a whole request; the broker closes the connection of a slower one.",
    )
    queued_max_request_bytes: int = setting(
        536_870_912,
        "The memory for large requests in progress, over all connections. Waiting requests may use a quarter of it, and"
        " the data of group members another quarter; one group may use a quarter of the latter.",
    )
    max_connections: int = setting(10_000, "The maximum number of open connections.", small(), is_dynamic=True)
    max_connections_per_ip: int = setting(
        10_000,
        "The maximum number of open connections from one address.",
        small(),
        is_dynamic=True,
    )
    max_connection_creation_rate: int = setting(
        INT_MAX,
        "The maximum number of new connections per second of all listeners for clients together; further ones wait. A"
        " listener can have its own limit, too.",
        small(),
        is_dynamic=True,
    )
    quota_connection_creation_default: int = setting(
        1_000,
        "The maximum number of new connections per second from an address without the quota connection_creation_rate,"
        " after a burst of five times as many; further ones wait. 0: no limit.",
        small(),
        is_dynamic=True,
    )
    quota_controller_mutation_default: float = setting(
        1_000.0,
        "The maximum number of partitions per second that a user, or an address without a user, creates and deletes"
        " without the quota controller_mutation_rate, after a burst of controller.quota.window.num times as many. 0: no"
        " limit.",
        number(0.0, INT_MAX),
        is_dynamic=True,
    )
    quota_window_num: int = setting(
        11, "The number of windows over which quotas for bytes and time are calculated.", small(1)
    )
    quota_window_size_seconds: int = setting(1, "The length of a window of quotas for bytes and time.", small(1))
    controller_quota_window_num: int = setting(
        11, "The number of windows whose changes of topics a client may make at once.", small(1)
    )
    controller_quota_window_size_seconds: int = setting(
        1, "The length of a window of the quota for changes of topics.", small(1)
    )
    connections_max_idle_ms: int = setting(600_000, "The time after which the broker closes an idle connection.")
    fetch_max_bytes: int = setting(57_671_680, "The maximum size of a fetch response, even if a client requests more.")
    max_incremental_fetch_session_cache_slots: int = setting(1000, "The maximum number of fetch sessions.")
    offset_metadata_max_bytes: int = setting(
        4096,
        "The maximum length of the metadata of a committed offset, in UTF-16 units as in Kafka (a character above"
        " U+FFFF has two), and at most 32767 bytes of UTF-8.",
    )
    telemetry_metrics: str = setting(
        "standard",
        "The metrics that the broker requests from clients (KIP-714): comma-separated prefixes of their names;"
        " standard: those that KIP-714 requires of each client; *: all. Empty: none. It requires the extra"
        " barnabas[otel] and --http.",
    )
    telemetry_interval_ms: int = setting(
        300_000, "The interval at which clients push their metrics, from 100 to 3600000.", whole(100, 3_600_000)
    )
    telemetry_max_bytes: int = setting(
        1_048_576,
        "The maximum size of a client's push of metrics, compressed and decompressed; at most 4194304.",
        whole(1, TELEMETRY_BYTES_MAX),
    )
    default_replication_factor: int = setting(
        1,
        "The default replication factor of a new topic.",
        whole(1),
    )
    unclean_leader_election_enable: bool = topic_default("unclean.leader.election.enable")
    rack: str = setting(
        "",
        "The rack of this broker (broker.rack in Kafka): replicas are spread over racks.",
        kafka_names=("broker.rack",),
    )
    machine: str = setting(
        "",
        "A label of this broker's machine (ours), for machines with several brokers: two replicas of a partition are"
        " never placed on brokers with the same label. Empty: the only broker of its machine.",
    )
    replica_selector_class: str = setting(
        "",
        "The replica that consumers with client.rack read from (KIP-392): LeaderSelector, or empty: the leader;"
        " RackAwareReplicaSelector: an in-sync replica in their rack. Kafka's Java class names are also valid.",
    )
    zookeeper_connect: str = setting(
        "",
        "The cluster's ZooKeeper, HOST:PORT,HOST:PORT/PATH; empty: this broker is a cluster by itself.",
    )
    zookeeper_session_timeout_ms: int = setting(
        18_000,
        "The ZooKeeper session timeout: after this time without contact, other brokers become leaders of this broker's"
        " partitions.",
    )
    zookeeper_connection_timeout_ms: int = setting(18_000, "The maximum time to wait for ZooKeeper at the start.")
    zookeeper_auth: str = setting(
        "",
        "USER:PASSWORD for ZooKeeper, or its source: ${file:PATH}, ${env:NAME} or ${command:PROGRAM ARGUMENTS}."
        " Without TLS, ZooKeeper's protocol transmits the password without encryption.",
        is_secret=True,
    )
    zookeeper_set_acl: str = setting(
        "",
        "Whether only clients with the same credentials may change the nodes that this broker creates, and read the"
        " nodes with secrets (/config/users, /admin/scram_decoy_secret). Empty: true if zookeeper.auth is set.",
        text("", "true", "false"),
    )
    zookeeper_ssl_client_enable: bool = setting(False, "Whether connections to ZooKeeper use TLS.")
    zookeeper_ssl_truststore_type: str = setting(
        "PEM", "The format of zookeeper.ssl.truststore.location; only PEM is supported."
    )
    zookeeper_ssl_truststore_location: str = setting(
        "",
        "A PEM file with the CA certificates that the broker trusts for ZooKeeper, reloaded when it changes; empty: the"
        " operating system's.",
    )
    zookeeper_ssl_keystore_type: str = setting(
        "PEM", "The format of zookeeper.ssl.keystore.location; only PEM is supported."
    )
    zookeeper_ssl_keystore_location: str = setting(
        "",
        "A PEM file with the private key for ZooKeeper and its certificate chain; reloaded when it changes.",
    )
    zookeeper_ssl_keystore_password: str = setting(
        "",
        "The password of an encrypted private key in zookeeper.ssl.keystore.location, or its source.",
        is_secret=True,
    )
    zookeeper_ssl_enabled_protocols: str = setting(
        "TLSv1.2,TLSv1.3", "The permitted TLS versions for ZooKeeper.", items("TLSv1.2", "TLSv1.3")
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "HTTPS",
        "Whether the broker checks that the certificates of ZooKeeper's servers name their hosts: HTTPS, or empty for"
        " no check.",
        text("HTTPS", "https", ""),
    )
    zookeeper_listener: str = setting(
        "",
        "[HOST:]PORT at which a broker without ZooKeeper serves its metadata store in ZooKeeper's protocol, without"
        " HOST only to this machine; clients may change all nodes except the broker's own. Empty: not served.",
    )
    zookeeper_listener_max_client_cnxns: int = setting(
        60,
        "The maximum number of connections to zookeeper.listener from one address, like ZooKeeper's maxClientCnxns; the"
        " maximum number of sessions is four times as high. 0: no limit for an address.",
    )
    inter_broker_host: str = setting(
        "",
        "The address at which other brokers fetch from this broker; empty: the same as for clients.",
        is_host=True,
    )
    inter_broker_port: int = setting(0, "The port at which other brokers fetch from this broker; 0 for any free port.")
    controlled_shutdown_timeout_ms: int = setting(
        5_000,
        "The maximum time that a stopping broker waits for the transfer of its leaderships.",
    )
    auto_leader_rebalance_enable: bool = setting(
        True,
        "Whether a leader transfers leadership to the preferred replica, the first one of the assignment, when that is"
        " in sync.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, "The interval of the checks for leaderships to transfer to preferred replicas."
    )
    offsets_topic_num_partitions: int = setting(
        50,
        "The number of partitions of __consumer_offsets when it is created; later changes have no effect.",
        whole(1),
    )
    offsets_topic_replication_factor: int = setting(
        3,
        "The replication factor of __consumer_offsets when it is created; with ZooKeeper, groups wait until there are"
        " enough brokers.",
        whole(1),
    )
    offsets_topic_segment_bytes: int = setting(
        104_857_600,
        "The segment.bytes of __consumer_offsets when it is created.",
    )
    offsets_load_buffer_size: int = setting(
        5_242_880,
        "The size of one read of __consumer_offsets when a broker loads groups.",
        whole(1),
    )
    offsets_commit_timeout_ms: int = setting(
        5_000,
        "The maximum time for storing a commit or the new generation of a group.",
        whole(1),
    )
    offsets_retention_minutes: int = setting(
        7 * 24 * 60,
        "The time for which a group without members keeps its committed offsets.",
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000,
        "The interval of the checks for expired offsets.",
    )
    group_min_session_timeout_ms: int = setting(6_000, "The minimum session timeout of a group member.")
    group_max_session_timeout_ms: int = setting(1_800_000, "The maximum session timeout of a group member.")
    group_initial_rebalance_delay_ms: int = setting(
        0,
        "The time that an empty group waits for more members after the first one. Kafka's default is 3000, for large"
        " groups that start together; with 0, a single consumer starts without delay.",
    )
    group_max_size: int = setting(2**31 - 1, "The maximum number of members of a group.")
    replica_fetch_max_bytes: int = setting(1_048_576, "The maximum size of one partition in a follower's fetch.")
    replica_fetch_response_max_bytes: int = setting(
        10_485_760,
        "The maximum size of a follower's fetch from another broker, for all partitions together.",
    )
    replica_fetch_wait_max_ms: int = setting(
        500,
        "The maximum time that a follower's fetch waits at the leader for new records.",
    )
    replica_fetch_min_bytes: int = setting(
        1,
        "The size of new records at which a follower's fetch is answered; under load, it may wait up to 5 ms for more.",
    )
    replica_fetch_backoff_ms: int = setting(
        1_000,
        "The maximum pause before a follower retries a failed fetch.",
    )
    num_replica_fetchers: int = setting(
        1,
        "The number of connections from which a broker fetches from each other broker. It is not dynamic: a replica"
        " keeps its connection as long as it follows.",
        whole(1),
    )
    leader_replication_throttled_rate: int = setting(
        LONG_MAX,
        "The maximum rate, in bytes per second, at which this broker sends records to followers that are not in sync;"
        " only for partitions in leader.replication.throttled.replicas.",
        whole(),
        is_dynamic=True,
    )
    follower_replication_throttled_rate: int = setting(
        LONG_MAX,
        "The maximum rate, in bytes per second, at which this broker fetches records for replicas that are not in sync;"
        " only for replicas in follower.replication.throttled.replicas.",
        whole(),
        is_dynamic=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        LONG_MAX,
        "The maximum rate, in bytes per second, at which logs are moved between data directories.",
        whole(),
        is_dynamic=True,
    )
    replica_lag_time_max_ms: int = setting(
        30_000,
        "The time after which a follower that has not reached the end of its leader's log leaves the ISR.",
    )
    replica_socket_timeout_ms: int = setting(
        30_000,
        "The time that a follower waits for a fetch response, in addition to replica.fetch.wait.max.ms.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5_000,
        "The interval at which high watermarks are stored.",
    )

    listeners: str = setting(
        "",
        "The listeners, NAME://HOST:PORT,NAME://HOST:PORT; an empty HOST means all addresses. Empty: one listener,"
        " PLAINTEXT, at host and port.",
    )
    advertised_listeners: str = setting(
        "",
        "The addresses that the broker advertises to the clients of each listener, NAME://HOST:PORT,...; a listener"
        " that is missing here advertises its own address.",
    )
    listener_security_protocol_map: str = setting(
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener name, NAME:PROTOCOL,...; PROTOCOL is PLAINTEXT, SSL, SASL_PLAINTEXT or"
        " SASL_SSL.",
    )
    inter_broker_listener_name: str = setting(
        "",
        "The listener that this broker uses for connections to other brokers. It serves brokers only. Empty: the"
        " listener REPLICATION at inter.broker.host and inter.broker.port, with security.inter.broker.protocol.",
    )
    inter_broker_additional_listener_names: str = setting(
        "",
        "Further listeners that serve brokers only, for a change of inter.broker.listener.name without a pause.",
    )
    security_inter_broker_protocol: str = setting(
        "PLAINTEXT",
        "The security protocol of the listener REPLICATION.",
        text(*(each.value for each in SecurityProtocol)),
    )
    allow_anonymous: bool = setting(
        False,
        "Whether a listener without authentication may accept connections from other machines. If it is false, such a"
        " listener must be on a loopback address, otherwise the broker does not start. The same applies to"
        " zookeeper.listener; on a broker with SASL, zookeeper.listener needs it on a loopback address, too.",
    )
    super_users: str = setting(
        "",
        "The principals that may do everything, separated by semicolons: User:admin;User:CN=broker-1. A listener for"
        " brokers that authenticates accepts only these principals, and with ACLs also those with CLUSTER_ACTION.",
    )
    authorizer_class_name: str = setting(
        "",
        "Kafka's name of its authorizer switches ACLs on: org.apache.kafka.metadata.authorizer.StandardAuthorizer, or"
        " kafka.security.authorizer.AclAuthorizer. Empty: all clients may do everything.",
        text("", *AUTHORIZERS),
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, "Whether everyone may use a resource that no ACL concerns. Only used with authorizer.class.name."
    )
    bootstrap_users_file: str = setting(
        "",
        "A file of `barnabas security init` with the first users and ACLs. The first broker of a cluster imports it"
        " once, at its first start.",
    )
    authentication_timeout_ms: int = setting(
        10_000, "The maximum time for a TLS handshake, and for the authentication after it.", whole(1)
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, "The delay of the response to a failed authentication.", whole(0, 10_000)
    )
    connections_max_reauth_ms: int = setting(
        0,
        "The time after which a client of a SASL listener must authenticate again (KIP-368); 0: never, except before"
        " its token expires.",
    )
    ssl_keystore_type: str = setting("PEM", "The format of ssl.keystore.location; only PEM is supported.")
    ssl_keystore_location: str = setting(
        "",
        "A PEM file with the private key of TLS listeners and its certificate chain; reloaded when it changes.",
    )
    ssl_keystore_certificate_chain: str = setting("", "The certificate chain in PEM format, instead of a file.")
    ssl_keystore_key: str = setting("", "The private key in PEM format, instead of a file.", is_secret=True)
    ssl_key_password: str = setting("", "The password of an encrypted private key.", is_secret=True)
    ssl_truststore_type: str = setting("PEM", "The format of ssl.truststore.location; only PEM is supported.")
    ssl_truststore_location: str = setting(
        "",
        "A PEM file with the CA certificates that the broker trusts, for client certificates and for other brokers;"
        " reloaded when it changes.",
    )
    ssl_truststore_certificates: str = setting("", "The trusted CA certificates in PEM format, instead of a file.")
    ssl_client_auth: str = setting(
        "none",
        "Whether SSL listeners demand a client certificate: none, requested (optional) or required. A SASL_SSL listener"
        " demands one only by its own setting, listener.name.<name>.ssl.client.auth, as in Kafka.",
        text("none", "requested", "required"),
    )
    ssl_enabled_protocols: str = setting("TLSv1.2,TLSv1.3", "The permitted TLS versions.", items("TLSv1.2", "TLSv1.3"))
    ssl_cipher_suites: str = setting(
        "", "OpenSSL names of the permitted TLS 1.2 cipher suites, separated by colons; empty: OpenSSL's defaults."
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        "Whether this broker checks that the certificates of other brokers name their hosts: https, or empty for no"
        " check.",
        text("https", ""),
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        "The rules that map the distinguished name of a client certificate to a principal name, in Kafka's syntax:"
        " RULE:pattern/replacement/,RULE:pattern/replacement/L,DEFAULT.",
    )
    sasl_enabled_mechanisms: str = setting(
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "The SASL mechanisms of SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        items(*SASL_MECHANISMS),
    )
    sasl_plain_without_tls_enable: bool = setting(
        False, "Whether a SASL_PLAINTEXT listener may offer PLAIN, which sends passwords without encryption."
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "SCRAM-SHA-512",
        "The SASL mechanism for connections to other brokers.",
        text(*SASL_MECHANISMS),
    )
    sasl_inter_broker_username: str = setting("", "The user name for connections to other brokers.")
    sasl_inter_broker_password: str = setting(
        "",
        "The password for connections to other brokers, or its source: ${file:PATH}, ${env:NAME} or"
        " ${command:PROGRAM ARGUMENTS}.",
        is_secret=True,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "", "The URL of the key set (JWKS) that verifies tokens, https:// or file://; required for OAUTHBEARER."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, "The interval at which the broker reads the key set again.", whole(1_000)
    )
    sasl_oauthbearer_expected_issuer: str = setting("", "The issuer (iss) of tokens; required for OAUTHBEARER.")
    sasl_oauthbearer_expected_audience: str = setting(
        "", "The audience (aud) of tokens, or several separated by commas; required for OAUTHBEARER."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30, "The tolerated difference between the clocks of the issuer and the broker.", whole(0, 600)
    )
    sasl_oauthbearer_sub_claim_name: str = setting("sub", "The claim that contains the principal name.")
    listener_overrides: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The settings of single listeners, by full name: `listener.name.internal.ssl.client.auth`."""

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
        self._check_store_types()
        if self.log_cleaner_dedupe_buffer_size < BUFFER_BYTES_PER_THREAD_MIN * self.log_cleaner_threads:
            raise ConfigurationError("log.cleaner.dedupe.buffer.size must be at least 1 MiB for each cleaner thread")
        if self.replica_selector_class not in REPLICA_SELECTORS:
            raise ConfigurationError(
                f"replica.selector.class is {self.replica_selector_class!r}; it must be LeaderSelector or"
                " RackAwareReplicaSelector, also with the prefix org.apache.kafka.common.replica."
            )
        if len({os.path.realpath(each) for each in self.folders}) < len(self.folders):
            raise ConfigurationError(f"log.dirs contains a directory twice: {self.log_dirs}")

    def _check_identity(self) -> None:
        """Check the settings that the broker registers, because other brokers ignore an invalid registration."""
        if self.port > 65_535 or self.advertised_port > 65_535:
            raise ConfigurationError("a port must be from 0 to 65535")
        if self.broker_id > BROKER_ID_MAX:
            raise ConfigurationError(f"broker.id is {self.broker_id}; it must be from 0 to {BROKER_ID_MAX}")
        if not is_text(self.rack):
            raise ConfigurationError(f"rack is {shown(self.rack)}; it must have at most {TEXT_BYTES_MAX} bytes")
        if not is_text(self.machine):
            raise ConfigurationError(f"machine is {shown(self.machine)}; it must have at most {TEXT_BYTES_MAX} bytes")

    def _take_host(self, name: str) -> None:
        """Remove the brackets from an IPv6 address."""
        host = getattr(self, name)
        if not host:
            return
        try:
            object.__setattr__(self, name, bare_host(host))
        except ValueError as error:
            hint = "; the port is a separate setting" if ":" in host else ""
            raise ConfigurationError(f"{dotted(name)}: {error}{hint}") from None
        if len(host) > HOST_CHARACTERS_MAX:
            raise ConfigurationError(f"{dotted(name)} has {len(host)} characters, more than {HOST_CHARACTERS_MAX}")

    def _check_store_types(self) -> None:
        for name in (
            "ssl_keystore_type",
            "ssl_truststore_type",
            "zookeeper_ssl_keystore_type",
            "zookeeper_ssl_truststore_type",
        ):
            kind = getattr(self, name).upper()
            if kind == "PEM":
                continue
            first = "keytool -importkeystore -srckeystore STORE.jks -destkeystore STORE.p12 -deststoretype PKCS12; "
            convert = "openssl pkcs12 -in STORE.p12 -out STORE.pem"
            raise ConfigurationError(
                f"{dotted(name)} is {kind[:100]!r}; only PEM is supported. Convert the file:"
                f" {first if kind == 'JKS' else ''}{convert}"
            )

    def _check_zookeeper_listener(self) -> None:
        if not self.zookeeper_listener:
            return
        try:
            split_listener(self.zookeeper_listener)
        except ValueError:
            address = self.zookeeper_listener
            raise ConfigurationError(
                f"zookeeper.listener is {address!r}; it must be [HOST:]PORT, with a port from 0 to {PORT_MAX}"
            ) from None
        if self.zookeeper_connect:
            raise ConfigurationError(
                "zookeeper.listener and zookeeper.connect exclude each other: zookeeper.listener serves the embedded"
                " metadata store, which a broker with ZooKeeper does not have"
            )

    @property
    def folders(self) -> tuple[Path, ...]:
        """The data directories. The first directory also contains the embedded metadata store."""
        several = [name for each in self.log_dirs.split(",") if (name := each.strip())]
        return tuple(Path(each) for each in several or [self.data])


BROKER_SETTINGS: dict[str, BrokerSetting] = {
    field.name: field.metadata[BrokerSetting]
    for field in dataclasses.fields(BrokerConfig)
    if BrokerSetting in field.metadata
}
"""The declarations of all broker settings, by field name."""

OTHER_NAMES = dict(
    sorted((other, dotted(name)) for name, each in BROKER_SETTINGS.items() for other in each.kafka_names)
)
"""The names of settings, by Kafka's alternative names for them."""
